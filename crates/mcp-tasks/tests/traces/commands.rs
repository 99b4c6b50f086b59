//! What a tool starts belongs to its trace.

use serde_json::json;

use crate::collector::{Collector, Manner};
use crate::stack::{SOON, Stack, spans};

const CALLER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const SCRIPT: &str = r#"echo "$TRACEPARENT $TRACESTATE $BAGGAGE""#;

async fn run(stack: &Stack) -> (String, String) {
    let alice = stack.cluster.client(0, "alice");
    let arguments = json!({ "script": SCRIPT, "step": "once" });
    let params = json!({ "name": "run_shell", "arguments": arguments });
    let request = alice.request("tools/call", params);
    let request = request
        .meta("traceparent", json!(CALLER))
        .meta("tracestate", json!("vendor=1"))
        .meta("baggage", json!("tenant=a"));
    let handle = request.send().await.unwrap().into_result().unwrap();
    let id = handle["taskId"].as_str().unwrap().to_owned();
    let task = alice.wait_status(&id, "completed", SOON).await.unwrap();
    let text = task["result"]["content"][0]["text"].as_str().unwrap();
    let output: serde_json::Value = serde_json::from_str(text).unwrap();
    (id, output["stdout"].as_str().unwrap().trim().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_continues_the_trace_of_its_step() {
    let collector = Collector::start(Manner::Prompt).await;
    let stack = Stack::traced((1, 1), &collector, "").await;
    let (id, said) = run(&stack).await;
    let step = spans(&collector, "the step", |all| {
        let mut steps = all.iter().filter(|span| span.name == "step");
        let job = all
            .iter()
            .find(|span| span.get("task.id") == id && span.kind == "CONSUMER")?;
        steps.find(|span| span.is_child_of(job)).cloned()
    });
    let step = step.await;
    let expected = format!("00-{}-{}-01  tenant=a", step.trace, step.id);
    assert_eq!(
        said, expected,
        "a trace of its own has no state of the caller's vendors"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn without_spans_a_command_continues_the_trace_of_the_call() {
    let stack = Stack::of((1, 1), "").await;
    let (_, said) = run(&stack).await;
    assert_eq!(said, format!("{CALLER} vendor=1 tenant=a"));
}
