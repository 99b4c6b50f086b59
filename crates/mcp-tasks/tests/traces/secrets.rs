//! What people send through tools is in no log line and in no span, however much is logged.

use harness::node::Node;
use serde_json::{Value, json};

use crate::collector::{Collector, Manner};
use crate::stack::{SOON, Stack, plan, spans};

const SETTINGS: &str = r#"
filter = "trace"
[logs]
filter = "trace"
[alerts]
unfetched_after = "1s"
[[alerts.receivers]]
name = "log"
kind = "log"
"#;

/// As it is planted; the call's name is part of results and errors.
const SECRETS: [&str; 7] = [
    "hush-argument",
    "hush-answer",
    "hush-malformed",
    "hush-error",
    "hush-output",
    "hush-token",
    "hush-script",
];

fn arguments(call: &str, items: Value, end: &str) -> Value {
    json!({ "name": "chaos_undo", "arguments": plan(call, items, end) })
}

#[tokio::test(flavor = "multi_thread")]
async fn neither_logs_nor_spans_tell_what_is_sent_through_tools() {
    let collector = Collector::start(Manner::Prompt).await;
    let mut stack = Stack::traced((1, 1), &collector, SETTINGS).await;
    let alice = stack.cluster.client(0, "hush-token");
    let ask = json!([
        { "step": { "key": "act", "undo": { "refuses": 1 } } },
        { "ask": [{ "key": "word" }] },
        { "panic": 1 },
    ]);
    let mut ids = Vec::new();
    for end in ["result", "tool_error", "failed"] {
        let call = alice.start("chaos_undo", plan("hush-argument", ask.clone(), end));
        let id = call.await.unwrap();
        alice
            .wait_status(&id, "input_required", SOON)
            .await
            .unwrap();
        let malformed = json!({ "word": { "action": "accept", "content": "hush-malformed" } });
        alice.update(&id, malformed).await.unwrap_err();
        let answer =
            json!({ "word": { "action": "accept", "content": { "value": "hush-answer" } } });
        alice.update(&id, answer).await.unwrap();
        alice.wait_end(&id, SOON).await.unwrap();
        ids.push(id);
    }
    // The tool says of arguments that it cannot use what it did not understand.
    let refused = arguments("x", json!([{ "hush-error": 1 }]), "result");
    alice.request("tools/call", refused).send().await.unwrap();
    let refused = json!({ "name": "hush-argument", "arguments": {} });
    alice.request("tools/call", refused).send().await.unwrap();
    let script = "echo hush-output; echo hush-output >&2; : hush-script; exit 3";
    let id = alice
        .start("run_shell", json!({ "script": script, "step": "once" }))
        .await
        .unwrap();
    alice.wait_end(&id, SOON).await.unwrap();
    let unread = alice.start("chaos_undo", plan("hush-argument", json!([]), "failed"));
    let unread = unread.await.unwrap();
    spans(&collector, "an alert", |all| {
        let mut all = all.iter();
        all.find(|span| span.name == "send alert" && span.get("task.id") == unread)
            .cloned()
    })
    .await;
    for node in stack.cluster.nodes() {
        assert!(node.stop(SOON).await.unwrap().success());
    }

    let told = |text: &[u8]| {
        let mut secrets = SECRETS.into_iter();
        secrets.find(|secret| {
            text.windows(secret.len())
                .any(|part| part == secret.as_bytes())
        })
    };
    let (mut bytes, mut debug) = (0, 0);
    for node in stack.cluster.nodes() {
        let log = std::fs::read(Node::log(node)).unwrap();
        bytes += log.len();
        debug += String::from_utf8_lossy(&log).matches("\"DEBUG\"").count();
        for line in log.split(|byte| *byte == b'\n') {
            let found = told(line);
            assert_eq!(
                found,
                None,
                "{}: {}",
                node.name(),
                String::from_utf8_lossy(line)
            );
        }
        let text = String::from_utf8_lossy(&log);
        assert!(!text.contains("hush"), "{}", node.name());
        let not_json = text.lines().find(|line| !line.starts_with('{'));
        assert_eq!(not_json, None, "every line is JSON, those of panics too");
    }
    assert!(debug > 0, "it was asked to tell much");
    let bodies = collector.bodies();
    for body in &bodies {
        assert_eq!(told(body), None);
    }
    println!(
        "{bytes} bytes of logs and {} spans say nothing",
        collector.spans().len()
    );
    assert!(collector.spans().len() > 50);
}
