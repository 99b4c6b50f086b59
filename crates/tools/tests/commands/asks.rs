//! Questions of programs: several at once, for who cannot be asked, and what stands for an answer.

use std::sync::Arc;

use serde_json::{Value, json};
use worker::Tool;
use worker::testkit::Kit;

use crate::world::{World, failure, text};

const SCHEMA: &str =
    "dict(type='object', properties=dict(ok=dict(type='boolean')), required=['ok'])";

fn kit(tool: &Arc<dyn Tool>) -> Kit {
    Kit::of(Arc::clone(tool))
}

fn ok(value: bool) -> Value {
    json!({"action": "accept", "content": {"ok": value}})
}

/// Asks two things, and says what it got.
fn two() -> String {
    format!(
        "hear(); q = lambda key: dict(key=key, message=key + '?', schema={SCHEMA})\n\
         say(type='ask', questions=[q('a'), q('b')]); r = hear()\n\
         say(type='result', text=r['type'] + ' ' + ' '.join(\
         k + '=' + str(v['content']['ok']) for k, v in sorted(r['responses'].items())))"
    )
}

pub async fn several_questions_are_asked_at_once() {
    let world = World::new();
    let tool = world.python(&two(), "");
    let run = kit(&tool).run().await;
    assert!(run.result().unwrap_err().is_parked());
    let asked: Vec<&str> = run.asked().iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(asked, ["a", "b"]);
    assert_eq!(run.asked()[1].1["params"]["message"], "b?");
    let run = kit(&tool)
        .answer("a", ok(true))
        .answer("b", ok(false))
        .run()
        .await;
    assert_eq!(text(&run), "answers a=True b=False");
    // What one of them has as a default needs nobody.
    let own = two().replace("schema=", "default=dict(ok=True), schema=");
    let tool = world.python(&own, "");
    let run = kit(&tool).capabilities(json!({})).run().await;
    assert_eq!(text(&run), "answers a=True b=True");
    assert!(run.asked().is_empty());
    world.wait_gone().await;
}

pub async fn what_is_no_question_is_told() {
    let world = World::new();
    for (said, expected) in [
        ("questions=[]", "\"ask\" has no questions"),
        (
            "key='a', message='?'",
            "\"ask\" needs key, message and schema",
        ),
        (
            "key='a', message='?', schema={}, questions=[]",
            "\"ask\" needs key",
        ),
        (
            "questions=[dict(key='a', message='?')]",
            "missing field `schema`",
        ),
        (
            "questions=[dict(key='a', message='?', schema={}, more=1)]",
            "unknown field `more`",
        ),
    ] {
        let script = format!("hear(); say(type='ask', {said}); sys.stdin.read()");
        let run = kit(&world.python(&script, "")).run().await;
        let told = failure(&run);
        assert!(
            told.contains("line protocol: ") && told.contains(expected),
            "{said}: {told}"
        );
    }
    world.wait_gone().await;
}

pub async fn a_program_is_told_whether_its_caller_can_be_asked() {
    let world = World::new();
    let script = "start = hear()\n\
                  say(type='result', text=f\"{start['canAsk']} {os.environ['MCP_TASKS_CAN_ASK']}\")";
    let tool = world.python(script, "");
    for (capabilities, told) in [
        (json!({}), "False false"),
        (json!({"sampling": {}}), "False false"),
        (json!({"elicitation": {"url": {}}}), "False false"),
        (json!({"elicitation": {}}), "True true"),
        (json!({"elicitation": {"form": {}}}), "True true"),
    ] {
        let run = kit(&tool).capabilities(capabilities.clone()).run().await;
        assert_eq!(text(&run), told, "{capabilities}");
    }
}

/// Asks one thing whose own default is no.
fn one() -> String {
    format!(
        "hear(); say(type='ask', key='sure', message='Sure?', default=dict(ok=False), schema={SCHEMA})\n\
         r = hear()['response']; say(type='result', text=r['action'] + str(r.get('content', '')))"
    )
}

pub async fn a_policy_answers_for_who_cannot_be_asked() {
    let world = World::new();
    for (policy, expected) in [
        ("", "accept{'ok': False}"),
        ("sure = { ok = true }", "accept{'ok': True}"),
        ("sure = \"cancel\"", "cancel"),
        ("\"*\" = \"decline\"", "decline"),
        (
            "\"*\" = \"decline\"\nsure = { ok = true }",
            "accept{'ok': True}",
        ),
        ("other = \"decline\"", "accept{'ok': False}"),
    ] {
        let more = format!("[command.policy.default_answers]\n{policy}");
        let tool = world.python(&one(), &more);
        let run = kit(&tool).capabilities(json!({})).run().await;
        assert_eq!(text(&run), expected, "{policy}");
        assert!(run.asked().is_empty(), "{policy}");
        // Who can be asked is, whatever the default.
        let run = kit(&tool).run().await;
        assert!(run.result().unwrap_err().is_parked(), "{policy}");
    }
    // One that is no answer to the question is told at once, also where the caller can be asked.
    let tool = world.python(
        &one(),
        "[command.policy.default_answers]\nsure = { ok = 3 }",
    );
    for capabilities in [json!({}), json!({"elicitation": {}})] {
        let run = kit(&tool).capabilities(capabilities).run().await;
        let told = failure(&run);
        assert!(
            told.contains("policy.default_answers does not fit question \"sure\""),
            "{told}"
        );
    }
}

/// A scheduled caller never parks: it is a failure with its reason.
pub async fn without_an_answer_and_a_default_it_fails_and_never_parks() {
    let world = World::new();
    let tool = world.python(&two(), "");
    let run = kit(&tool).capabilities(json!({})).run().await;
    let error = run.result().unwrap_err().as_failed().unwrap().clone();
    assert_eq!(error.code, -32021);
    let data = error.data.unwrap();
    assert_eq!(data["reason"], "cannot_ask");
    assert_eq!(
        data["requiredCapabilities"],
        json!({"elicitation": {"form": {}}})
    );
    assert!(run.asked().is_empty());
    world.wait_gone().await;
}
