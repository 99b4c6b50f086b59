//! The line protocol: what a program may say, and what becomes of one that says something else.

use std::sync::Arc;

use serde_json::json;
use worker::testkit::Kit;

use crate::world::{World, call, error, failure, text};

const STDOUT: &str = "protocol = \"stdout\"";
const FD3: &str = "protocol = \"fd3\"";

pub async fn half_a_line_is_no_message() {
    let world = World::new();
    let script = "printf '{\"type\":\"progress\",\"mess'";
    let run = call(&world.script(script, STDOUT), json!({})).await;
    let said = failure(&run);
    assert!(
        said.starts_with("line protocol: line 1 is no message"),
        "{said}"
    );
    // A whole one without its end is one.
    let script = "printf '{\"type\":\"result\",\"text\":\"x\"}'";
    let run = call(&world.script(script, STDOUT), json!({})).await;
    assert_eq!(text(&run), "x");
    world.wait_gone().await;
}

pub async fn whoever_breaks_the_rules_is_told_how() {
    let world = World::new();
    let step = "echo '{\"type\":\"step\",\"key\":\"a\"}'; read -r start; read -r go; ";
    for (script, expected) in [
        ("echo hello; sleep 1000", "line 1 is no message"),
        (
            "echo; echo '{\"type\":\"dance\"}'; sleep 1000",
            "line 2 is no message (unknown variant `dance`",
        ),
        (
            "echo '{\"type\":\"progress\",\"msg\":\"x\"}'; sleep 1000",
            "line 1 is no message (unknown field `msg`",
        ),
        (
            "echo '{\"type\":\"end\",\"key\":\"a\"}'; sleep 1000",
            "it ended step \"a\" and had not begun it",
        ),
        (
            "echo '{\"type\":\"step\",\"key\":\"checkpoint:1\"}'; sleep 1000",
            "keys of steps may not begin with",
        ),
        (
            "printf '{\"type\":\"result\",\"text\":\"\\377\"}\\n'; sleep 1000",
            "line 1 is no message",
        ),
        (
            "head -c 3000000 /dev/zero | tr '\\0' a; sleep 1000",
            "line 1 is longer than 1048576 bytes",
        ),
        ("exit 0", "it ended without a result"),
        (
            "echo '{\"type\":\"ask\",\"key\":\"a\",\"message\":\"?\",\"schema\":{},\"first\":true}'; sleep 1000",
            "it asks first, and policy.asks_first is not true",
        ),
    ] {
        let run = call(&world.script(script, STDOUT), json!({})).await;
        let said = failure(&run);
        assert!(said.contains(expected), "{script}: {said}");
        assert!(run.acts().is_empty(), "{script}");
    }
    // In the middle of a step nobody knows how far it came.
    for (script, expected) in [
        ("echo hello; sleep 1000", "is no message"),
        (
            "echo '{\"type\":\"step\",\"key\":\"b\"}'; sleep 1000",
            "it said \"step\" in the middle of step \"a\"",
        ),
        (
            "echo '{\"type\":\"end\",\"key\":\"b\"}'; sleep 1000",
            "it said \"end\" in the middle of step \"a\"",
        ),
        ("exit 0", "it ended in the middle of step \"a\""),
    ] {
        let script = format!("{step}{script}");
        let run = call(&world.script(&script, STDOUT), json!({})).await;
        let said = failure(&run);
        assert!(
            said.contains("step \"a\" started and its end is unknown"),
            "{script}: {said}"
        );
        assert!(said.contains(expected), "{script}: {said}");
    }
    world.wait_gone().await;
}

pub async fn the_end_in_the_middle_of_a_step_is_in_doubt() {
    let world = World::new();
    let script =
        "echo '{\"type\":\"step\",\"key\":\"a\"}' >&3; read -r start; read -r go; kill -9 $$";
    let run = call(&world.script(script, FD3), json!({})).await;
    assert!(
        failure(&run).contains("its end is unknown"),
        "{}",
        failure(&run)
    );
    let script = script.replace("\"key\":\"a\"", "\"key\":\"a\",\"idempotent\":true");
    let run = call(&world.script(&script, FD3), json!({})).await;
    assert!(run.result().unwrap_err().is_retryable());
}

pub async fn a_step_that_did_not_happen_says_so() {
    let world = World::new();
    let script = "hear(); say(type='step', key='a'); hear()\n\
                  say(type='end', key='a', error='no room')\nsys.stdin.read()";
    let run = call(&world.python(script, ""), json!({})).await;
    assert_eq!(failure(&run), "no room");
    let script = script.replace("'no room'", "'busy', retry=True");
    let run = call(&world.python(&script, ""), json!({})).await;
    assert!(run.result().unwrap_err().is_retryable());
    world.wait_gone().await;
}

pub async fn a_begun_step_is_come_to_again() {
    let world = World::new();
    let script = "start = hear()\nsay(type='checkpoint', value=1)\n\
                  say(type='step', key='a', idempotent=True)\nreply = hear()\n\
                  say(type='end', key='a', output=reply)\n\
                  say(type='result', text=json.dumps([start['steps'], reply]))";
    let tool = world.python(script, "");
    let first = call(&tool, json!({})).await;
    assert_eq!(first.acts(), ["checkpoint:1", "a"]);
    // Not idempotent as the journal has it: in doubt, whatever it says now.
    let run = Kit::of(Arc::clone(&tool))
        .finished("checkpoint:1", json!(1))
        .begun("a")
        .run()
        .await;
    assert!(run.result().is_ok() || failure(&run).contains("step \"a\""));
    assert!(text(&first).contains("\"type\": \"go\"") && text(&first).contains(":a\""));
}

pub async fn finished_steps_are_not_done_again() {
    let world = World::new();
    let script = "start = hear()\nsay(type='step', key='a')\nreply = hear()\n\
                  say(type='result', text=json.dumps([start['steps'], reply]))";
    let tool = world.python(script, "");
    let run = Kit::of(tool).finished("a", json!({"n": 1})).run().await;
    let told: serde_json::Value = serde_json::from_str(&text(&run)).unwrap();
    assert_eq!(told[0], json!({"a": {"n": 1}}));
    assert_eq!(
        told[1],
        json!({"type": "done", "key": "a", "output": {"n": 1}})
    );
    assert!(run.acts().is_empty());
}

pub async fn checkpoints_outlive_a_failed_try() {
    let world = World::new();
    let script = "start = hear()\nfrom_env = json.loads(os.environ['MCP_TASKS_CHECKPOINT'])\n\
                  if start['checkpoint'] is None:\n\
                  \x20   for n in range(500): say(type='checkpoint', value=n)\n\
                  \x20   sys.exit(75)\n\
                  say(type='result', text=json.dumps([start['checkpoint'], from_env]))";
    let tool = world.python(script, "retry_exit_codes = [75]");
    let run = call(&tool, json!({})).await;
    assert!(run.result().unwrap_err().is_retryable());
    let written = run.acts();
    assert!(!written.is_empty() && written.len() < 50, "{written:?}");
    let run = Kit::of(tool)
        .finished("checkpoint:1", json!(499))
        .run()
        .await;
    assert_eq!(text(&run), "[499, 499]");
}

pub async fn a_refused_step_is_not_done() {
    let world = World::new();
    let script = "hear(); say(type='step', key='a')\nreply = hear()\n\
                  open('acted', 'w') if reply['type'] == 'go' else open('stopped', 'w')";
    let tool = world.python(script, "grace = \"3s\"");
    let run = Kit::of(tool).cancel_at("a").run().await;
    assert!(run.result().unwrap_err().is_stopped());
    assert!(!world.path("acted").exists());
    world.assert_gone();
}

pub async fn a_default_needs_no_client() {
    let world = World::new();
    let script = "hear(); say(type='ask', key='a', message='?', default={'n': 3},\n\
                  \x20   schema={'type': 'object', 'properties': {'n': {'type': 'integer'}}})\n\
                  say(type='result', text=json.dumps(hear()['response']))";
    let tool = world.python(script, "");
    let run = Kit::of(Arc::clone(&tool))
        .capabilities(json!({}))
        .run()
        .await;
    assert_eq!(
        text(&run),
        "{\"action\": \"accept\", \"content\": {\"n\": 3}}"
    );
    // Who could answer and does not is waited for.
    let run = Kit::of(tool).run().await;
    assert!(run.result().unwrap_err().is_parked());
    assert_eq!(run.asked().len(), 1);
}

pub async fn a_caller_can_be_asked_first() {
    let world = World::new();
    let script = "hear(); say(type='ask', key='a', message='?', first=True,\n\
                  \x20   schema={'type': 'object', 'properties': {'n': {'type': 'integer'}}})\n\
                  say(type='result', text=str(hear()['response']['content']['n']))";
    let tool = world.python(script, "policy = { asks_first = true }");
    assert!(tool.spec().policy.asks_first);
    let yes = json!({"action": "accept", "content": {"n": 3}});
    let run = Kit::of(tool).answer("a", yes).run().await;
    assert_eq!(text(&run), "3");
}

pub async fn a_run_that_has_asked_is_gone_before_its_task_waits() {
    let world = World::new();
    let script = "trap '' TERM; echo '{\"type\":\"ask\",\"key\":\"a\",\"message\":\"?\",\
                  \"schema\":{\"type\":\"object\",\"properties\":{}}}' >&3\n\
                  sleep 1000 & setsid sleep 1000 & sleep 1000";
    let tool = world.script(script, &format!("{FD3}\ngrace = \"100ms\""));
    let run = call(&tool, json!({})).await;
    assert!(run.result().unwrap_err().is_parked());
    world.assert_gone();
}

pub async fn results_take_all_forms() {
    let world = World::new();
    let run = call(&world.script("echo plain", FD3), json!({})).await;
    assert_eq!(text(&run), "plain");
    let run = call(
        &world.script("echo '{\"n\":1}'", &format!("{FD3}\noutput = \"json\"")),
        json!({}),
    )
    .await;
    assert_eq!(
        run.result().unwrap().structured_content,
        Some(json!({"n": 1}))
    );
    let said = "hear(); say(type='result', structured={'n': 1}, text='one')";
    let run = call(&world.python(said, "output = \"json\""), json!({})).await;
    let result = run.result().unwrap();
    assert_eq!(result.structured_content, Some(json!({"n": 1})));
    assert_eq!(text(&run), "one");
    let run = call(
        &world.python("say(type='result', text='bad', error=True)", ""),
        json!({}),
    )
    .await;
    assert_eq!(error(&run), "bad");
    let run = call(
        &world.python("say(type='result', text='x'); sys.exit(2)", ""),
        json!({}),
    )
    .await;
    assert_eq!(error(&run), "exit code 2");
    let schema = "output_schema = { type = \"object\", required = [\"n\"] }";
    let run = call(
        &world.python("say(type='result', structured={})", schema),
        json!({}),
    )
    .await;
    assert!(failure(&run).contains("does not fit its outputSchema"));
    let run = call(
        &world.python("say(type='result', text='x')", schema),
        json!({}),
    )
    .await;
    assert!(failure(&run).contains("its result must be \"structured\""));
    let run = call(
        &world.script(
            "head -c 5000000 /dev/zero",
            &format!("{FD3}\noutput_bytes_max = 1000"),
        ),
        json!({}),
    )
    .await;
    assert_eq!(
        error(&run),
        "wrote 5000000 bytes to its standard output; 1000 are allowed"
    );
}

pub async fn reports_come_at_a_bearable_pace() {
    let world = World::new();
    let script = "hear()\nfor n in range(20000): say(type='progress', message=str(n))\n\
                  say(type='result', text='x')";
    let run = call(&world.python(script, ""), json!({})).await;
    assert_eq!(text(&run), "x");
    let reports = run.progress();
    assert!(reports.len() < 2000, "{}", reports.len());
    assert_eq!(reports.last().unwrap().message.as_deref(), Some("19999"));
}

pub async fn large_messages_go_both_ways() {
    let world = World::new();
    let script = "start = hear(); big = 'b' * 900000\nsay(type='step', key='a'); hear()\n\
                  say(type='end', key='a', output=len(start['arguments']['x']))\n\
                  say(type='result', text=big)";
    let run = call(
        &world.python(script, ""),
        json!({"x": "a".repeat(3_000_000)}),
    )
    .await;
    assert_eq!(text(&run).len(), 900_000);
    assert_eq!(run.acts(), ["a"]);
    // And a standard output beside the protocol.
    let script = "read -r start; head -c 200000 /dev/zero | tr '\\0' a; \
                  echo '{\"type\":\"progress\",\"message\":\"half\"}' >&3; echo b";
    let run = call(&world.script(script, FD3), json!({})).await;
    assert_eq!(text(&run).len(), 200_001);
    assert_eq!(run.progress()[0].message.as_deref(), Some("half"));
}
