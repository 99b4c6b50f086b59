//! Programs without a protocol: what goes in, what comes out, what becomes of their ends.

use std::sync::Arc;

use serde_json::json;
use worker::testkit::{Kit, Run};

use crate::world::{World, call, error, failure, text};

const WORDS: &str = "for word in \"$@\"; do echo \"[$word]\"; done; cat";
const FREE: &str = "effects = \"none\"";

pub async fn arguments_come_as_json_and_as_words() {
    let world = World::new();
    let more = "arguments = [\"fixed\"]\nflags = { x = \"--x\", y = \"-y\" }\npositional = [\"z\"]";
    let tool = world.script(WORDS, more);
    let run = call(&tool, json!({"x": "a b", "y": true, "z": ["1", 2, null]})).await;
    assert_eq!(
        text(&run),
        "[fixed]\n[--x=a b]\n[-y]\n[--]\n[1]\n[2]\n{\"x\":\"a b\",\"y\":true,\"z\":[\"1\",2,null]}"
    );
    let run = call(&tool, json!({"x": [1, 2.5], "y": "v"})).await;
    let words = "[fixed]\n[--x=1]\n[--x=2.5]\n[-y]\n[v]\n";
    assert!(text(&run).starts_with(words), "{}", text(&run));
    let run = call(&tool, json!({"x": false, "y": null, "z": {"a": 1}})).await;
    let words = "[fixed]\n[--]\n[{\"a\":1}]\n";
    assert!(text(&run).starts_with(words), "{}", text(&run));
    let tool = world.script(WORDS, "stdin = false");
    assert_eq!(text(&call(&tool, json!({"x": 1})).await), "");
    world.assert_gone();
}

pub async fn no_value_is_taken_for_a_flag() {
    let world = World::new();
    let more = "flags = { x = \"--x\", y = \"-y\" }\npositional = [\"z\"]";
    let tool = world.script(WORDS, more);
    let run = call(&tool, json!({"x": "--help", "z": "-rf"})).await;
    assert!(text(&run).starts_with("[--x=--help]\n[--]\n[-rf]\n"));
    let run = call(&tool, json!({"y": "--help"})).await;
    assert_eq!(error(&run), "y: must not begin with \"-\"");
    assert!(run.acts().is_empty(), "nothing ran");
    let tool = world.script(WORDS, &format!("{more}\nseparator = \"\""));
    let run = call(&tool, json!({"z": ["a", "-rf"]})).await;
    assert_eq!(error(&run), "z: must not begin with \"-\"");
    // A negative number too: who knows what the program makes of it.
    let run = call(&tool, json!({"z": -1})).await;
    assert_eq!(error(&run), "z: must not begin with \"-\"");
}

pub async fn nothing_of_a_call_is_read_by_a_shell() {
    let world = World::new();
    let tool = world.script(WORDS, "flags = { x = \"--x\" }\npositional = [\"z\"]");
    for nasty in [
        "$(touch hacked)",
        "`touch hacked`",
        "; touch hacked",
        "'\"\\ \n\t*",
        "é\u{1f600}",
    ] {
        let run = call(&tool, json!({"x": nasty, "z": nasty})).await;
        let words = format!("[--x={nasty}]\n[--]\n[{nasty}]\n");
        assert!(text(&run).starts_with(&words), "{}", text(&run));
    }
    assert!(!world.path("hacked").exists());
}

pub async fn what_no_command_line_can_hold_is_refused() {
    let world = World::new();
    let tool = world.script(WORDS, "flags = { x = \"--x\" }\npositional = [\"z\"]");
    let run = call(&tool, json!({"x": "a\u{0}b"})).await;
    assert_eq!(error(&run), "x: holds a zero byte");
    let run = call(&tool, json!({"x": "a".repeat(200_000)})).await;
    assert!(
        error(&run).starts_with("x: is longer than"),
        "{}",
        error(&run)
    );
    let many = vec!["a".repeat(100_000); 10];
    let run = call(&tool, json!({"z": many})).await;
    assert!(error(&run).contains("too long for a command line"));
    // On standard input it goes through.
    let run = call(&tool, json!({"y": "a".repeat(200_000)})).await;
    assert!(text(&run).len() > 200_000);
}

pub async fn an_exit_code_is_an_error_with_the_last_words() {
    let world = World::new();
    let script =
        "echo out; i=0; while [ $i -lt 2000 ]; do echo line $i >&2; i=$((i+1)); done; exit 3";
    let run = call(&world.script(script, ""), json!({})).await;
    let said = error(&run);
    assert!(said.starts_with("exit code 3\n"), "{said}");
    assert!(
        said.ends_with("line 1999") && !said.contains("line 7\n"),
        "{said}"
    );
    assert!(said.len() < 10_000);
    let run = call(&world.script("exit 4", ""), json!({})).await;
    assert_eq!(error(&run), "exit code 4");
}

pub async fn a_signal_is_an_error() {
    let world = World::new();
    let run = call(
        &world.script("echo dying >&2; kill -SEGV $$", ""),
        json!({}),
    )
    .await;
    assert_eq!(error(&run), "killed by signal 11\ndying");
}

pub async fn a_program_may_ask_for_another_try() {
    let world = World::new();
    let tool = world.script("echo busy >&2; exit 75", "retry_exit_codes = [75]");
    let run = call(&tool, json!({})).await;
    let error = run.result().unwrap_err();
    assert!(error.is_retryable(), "{error:?}");
    assert_eq!(error.to_string(), "exit code 75\nbusy");
}

pub async fn a_flood_is_stopped_where_that_does_no_harm() {
    let world = World::new();
    let tool = world.script("yes", &format!("{FREE}\noutput_bytes_max = 1000"));
    let run = call(&tool, json!({})).await;
    let said = error(&run);
    assert!(said.contains("; 1000 are allowed"), "{said}");
    world.assert_gone();
}

pub async fn a_flood_of_one_that_acts_is_read_to_its_end() {
    let world = World::new();
    let tool = world.script(
        "head -c 3000000 /dev/zero; touch done",
        "output_bytes_max = 1000",
    );
    let run = call(&tool, json!({})).await;
    assert_eq!(
        error(&run),
        "wrote 3000000 bytes to its standard output; 1000 are allowed"
    );
    assert!(world.path("done").exists());
}

pub async fn json_is_structured_and_fits_its_schema() {
    let world = World::new();
    let schema = "output_schema = { type = \"object\", properties = { n = { type = \"integer\" } }, required = [\"n\"] }";
    let tool = world.script("echo '{\"n\": 3}'", schema);
    let run = call(&tool, json!({})).await;
    let result = run.result().unwrap();
    assert_eq!(result.structured_content, Some(json!({"n": 3})));
    let run = call(&world.script("echo '{\"n\": \"3\"}'", schema), json!({})).await;
    let said = failure(&run);
    assert!(
        said.contains("does not fit its outputSchema") && said.contains("/n"),
        "{said}"
    );
    let run = call(&world.script("echo '{\"n\": '", schema), json!({})).await;
    assert!(failure(&run).starts_with("its standard output is no JSON: "));
    let run = call(&world.script("echo '[1]'", "output = \"json\""), json!({})).await;
    assert_eq!(run.result().unwrap().structured_content, Some(json!([1])));
    let run = call(&world.script("echo '{}' ; exit 1", schema), json!({})).await;
    assert_eq!(error(&run), "exit code 1");
}

pub async fn what_is_no_utf8_is_shown_or_refused() {
    let world = World::new();
    let script = "printf 'a\\377b'";
    for more in ["", FREE] {
        let run = call(&world.script(script, more), json!({})).await;
        assert_eq!(text(&run), "a\u{fffd}b");
    }
    let run = call(
        &world.script("printf '\"a\\377b\"'", "output = \"json\""),
        json!({}),
    )
    .await;
    assert!(failure(&run).starts_with("its standard output is no JSON: "));
    let run = call(&world.script("printf 'a\\377b' >&2; exit 1", ""), json!({})).await;
    assert_eq!(error(&run), "exit code 1\na\u{fffd}b");
}

pub async fn children_left_behind_are_gone() {
    let world = World::new();
    let script =
        "for i in 1 2 3 4 5; do (sleep 1000 & sleep 1000 & setsid sleep 1000 &) ; done; echo done";
    let run = call(&world.script(script, ""), json!({})).await;
    assert_eq!(text(&run), "done");
    world.assert_gone();
}

pub async fn a_program_that_is_gone_is_named() {
    let world = World::new();
    let tool = world.script("true", "");
    std::fs::remove_file(world.path("script")).unwrap();
    let run = call(&tool, json!({})).await;
    assert!(
        failure(&run).contains("script cannot be started"),
        "{}",
        failure(&run)
    );
}

pub async fn the_environment_is_clean() {
    let world = World::new();
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
    let more = "env = { GREETING = \"hello\" }\nenv_pass = [\"CARGO_PKG_NAME\", \"NOT_THERE\"]";
    let run = call(&world.script("env; pwd", more), json!({})).await;
    let said = text(&run);
    for line in [
        "GREETING=hello",
        "CARGO_PKG_NAME=mcp-tasks-tools",
        "MCP_TASKS_ATTEMPT=1",
        "MCP_TASKS_PRINCIPAL_ISSUER=kit",
        "MCP_TASKS_PRINCIPAL_SUBJECT=caller",
    ] {
        assert!(said.lines().any(|l| l == line), "{line}: {said}");
    }
    assert!(said.contains("MCP_TASKS_TASK_ID=") && said.contains("MCP_TASKS_IDEMPOTENCY_KEY="));
    assert!(!said.contains("CARGO_MANIFEST_DIR"), "{said}");
    let dir = world.path("").canonicalize().unwrap();
    assert!(
        said.ends_with(dir.to_str().unwrap().trim_end_matches('/')),
        "{said}"
    );
}

/// Whoever was served before leaves nothing in the environment of who comes next.
pub async fn nothing_of_a_call_is_left_to_the_next() {
    let world = World::new();
    world.write("token", "s3cr3t-one");
    let more = "env = { GREETING = \"hello\" }\nsecret_env = { TOKEN = \"token\" }";
    let script = "env | sort; export LEFT=behind; MCP_TASKS_LEFT=1; export MCP_TASKS_LEFT; umask 0";
    let tool = world.script(script, more);
    let (one, two) = (
        call(&tool, json!({"x": "of the first"})).await,
        call(&tool, json!({"y": "of the second"})).await,
    );
    let names = |run: &Run| -> Vec<String> {
        let lines = text(run);
        let names = lines.lines().filter_map(|line| line.split_once('='));
        names.map(|(name, _)| name.to_owned()).collect()
    };
    assert_eq!(names(&one), names(&two));
    assert!(!text(&two).contains("of the first") && !text(&two).contains("LEFT"));
}

pub async fn secrets_are_read_at_every_start_and_not_told() {
    let world = World::new();
    world.write("token", "s3cr3t-one\n");
    let more = "secret_env = { TOKEN = \"token\" }";
    let tool = world.script("echo \"$TOKEN\" >&2; [ \"$TOKEN\" = s3cr3t-two ]", more);
    let run = call(&tool, json!({})).await;
    assert_eq!(error(&run), "exit code 1\n***");
    world.write("token", "s3cr3t-two\n");
    assert_eq!(text(&call(&tool, json!({})).await), "");
    std::fs::remove_file(world.path("token")).unwrap();
    let run = call(&tool, json!({})).await;
    assert_eq!(error(&run), "TOKEN: its secret cannot be read");
}

pub async fn memory_is_limited() {
    let world = World::new();
    let script = "head -c 200000000 /dev/zero | tail -c 200000000 >/dev/null && echo enough";
    let tool = world.script(script, "memory_bytes_max = 100000000");
    let said = error(&call(&tool, json!({})).await);
    assert!(said.contains("memory"), "{said}");
    // It is limited from outside, so it may have begun by then.
    let script = "while [ \"$(ulimit -v)\" = unlimited ]; do :; done; ulimit -v";
    let tool = world.script(script, "memory_bytes_max = 104857600");
    assert_eq!(text(&call(&tool, json!({})).await), "102400");
}

/// Also what a program has started before the limit was there.
pub async fn memory_of_children_is_limited() {
    let world = World::new();
    let child = "while [ \"$(ulimit -v)\" = unlimited ]; do :; done; ulimit -v";
    let script = format!("(({child}) & ({child}) & wait) & (setsid sh -c '{child}') & wait");
    let tool = world.script(
        &script,
        "memory_bytes_max = 104857600\npolicy = { work_limit = \"1m\" }",
    );
    assert_eq!(
        text(&call(&tool, json!({})).await),
        "102400\n102400\n102400"
    );
}

pub async fn what_must_not_be_repeated_is_not() {
    let world = World::new();
    let tool = world.script("echo ran >> log", "");
    let run = Kit::of(Arc::clone(&tool)).begun("run").run().await;
    assert!(failure(&run).contains("step \"run\""), "{}", failure(&run));
    assert_eq!(world.read("log"), "");
    // What is known to have ended is not run again either.
    let ended = json!({"code": 0, "signal": null, "stdout": "said", "cut_of": null, "stderr": ""});
    let run = Kit::of(tool).finished("run", ended).run().await;
    assert_eq!(text(&run), "said");
    assert_eq!(world.read("log"), "");
}

pub async fn what_may_be_repeated_is_with_the_same_key() {
    let world = World::new();
    let script = "echo $MCP_TASKS_TASK_ID $MCP_TASKS_IDEMPOTENCY_KEY";
    let tool = world.script(script, "effects = \"repeatable\"");
    let run = call(&tool, json!({})).await;
    assert_eq!(run.acts(), ["run"]);
    let said = text(&run);
    let (task, key) = said.split_once(' ').unwrap();
    assert_eq!(key, format!("{task}:run"));
    let tool = world.script(script, "annotations = { readOnlyHint = true }");
    assert!(call(&tool, json!({})).await.acts().is_empty(), "no journal");
}
