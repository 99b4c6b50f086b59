//! One task's life as a collector sees it: the call, what it led to, and who let it go on.

use harness::client::Client;
use harness::logs;
use serde_json::{Value, json};

use crate::collector::{Collector, Manner, Span};
use crate::stack::{SOON, Stack, plan, spans};

const CALLER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const ANSWERER: &str = "00-1bf7651916cd43dd8448eb211c80319c-c7ad6b7169203331-01";

fn trace_of(traceparent: &str) -> &str {
    &traceparent[3..35]
}

async fn request(client: &Client, method: &str, params: Value, traceparent: &str) -> Value {
    let request = client.request(method, params);
    let request = request
        .meta("traceparent", json!(traceparent))
        .meta("tracestate", json!("vendor=1"))
        .meta("baggage", json!("tenant=a"));
    request.send().await.unwrap().into_result().unwrap()
}

/// The one span of this name that is about this task.
fn one<'a>(spans: &'a [Span], name: &str, task: &str) -> Option<&'a Span> {
    spans
        .iter()
        .find(|span| span.name == name && span.get("task.id") == task)
}

/// The span that ended so.
fn attempt<'a>(spans: &'a [Span], task: &str, outcome: &str) -> Option<&'a Span> {
    spans
        .iter()
        .find(|span| span.get("task.id") == task && span.get("attempt.outcome") == outcome)
}

/// The child of this name.
fn child<'a>(spans: &'a [Span], parent: &Span, name: &str) -> Option<&'a Span> {
    spans
        .iter()
        .find(|span| span.is_child_of(parent) && span.name == name)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_seen_from_the_call_to_its_end() {
    let collector = Collector::start(Manner::Prompt).await;
    let stack = Stack::traced((2, 1), &collector, "").await;
    let alice = stack.cluster.client(0, "alice");
    let there = stack.cluster.client(1, "alice");
    let items = json!([
        { "step": { "key": "first" } },
        { "ask": [{ "key": "go" }] },
        { "retry": 1 },
        { "step": { "key": "second", "idempotent": true } },
    ]);
    let params = json!({ "name": "chaos_steps", "arguments": plan("life", items, "result") });
    let handle = request(&alice, "tools/call", params, CALLER).await;
    let task = handle["taskId"].as_str().unwrap();
    alice
        .wait_status(task, "input_required", SOON)
        .await
        .unwrap();
    let answer = json!({ "go": { "action": "accept", "content": { "value": "yes" } } });
    let params = json!({ "taskId": task, "inputResponses": answer });
    request(&there, "tasks/update", params, ANSWERER).await;
    alice.wait_status(task, "completed", SOON).await.unwrap();

    let all = spans(&collector, "the spans of the task", |all| {
        let ended = attempt(all, task, "completed")?;
        let retried = attempt(all, task, "retried")?;
        child(all, retried, "retry")?;
        child(all, ended, "complete")?;
        one(all, "tools/call chaos_steps", task)?;
        one(all, "tasks/update", task)?;
        Some(all.to_vec())
    });
    let all = all.await;

    let call = one(&all, "tools/call chaos_steps", task).unwrap();
    assert_eq!(
        (call.kind.as_str(), call.service.as_str()),
        ("SERVER", "mcp-tasks-gateway")
    );
    assert_eq!(call.trace, trace_of(CALLER), "the caller's trace goes on");
    assert_eq!(call.parent, CALLER[36..52]);
    for (key, value) in [
        ("mcp.method.name", "tools/call"),
        ("mcp.protocol.version", "2026-07-28"),
        ("gen_ai.tool.name", "chaos_steps"),
        ("gen_ai.operation.name", "execute_tool"),
        ("network.transport", "tcp"),
        ("mcp_tasks.outcome", "task"),
    ] {
        assert_eq!(call.get(key), value, "{key}: {call:?}");
    }
    assert!(!call.get("jsonrpc.request.id").is_empty());
    assert!(!call.is_error);
    let persisted = child(&all, call, "create").expect("the call is persisted");
    assert_eq!(
        (persisted.kind.as_str(), persisted.get("db.system.name")),
        ("CLIENT", "postgresql")
    );
    let sent = child(&all, call, "send chaos_steps").expect("the call is hinted");
    assert_eq!(
        (sent.kind.as_str(), sent.get("messaging.system")),
        ("PRODUCER", "redis")
    );
    assert_eq!(sent.get("messaging.operation.type"), "send");
    assert_eq!(sent.get("messaging.message.id"), task);

    let update = one(&all, "tasks/update", task).unwrap();
    assert_eq!(update.trace, trace_of(ANSWERER));
    let resume = child(&all, update, "resume").expect("the answer lets it go on");
    child(&all, resume, "send chaos_steps").expect("and hints it");

    let [parked, retried, completed] =
        ["parked", "retried", "completed"].map(|outcome| attempt(&all, task, outcome).unwrap());
    let mut traces: Vec<&str> = Vec::new();
    for (number, one) in [parked, retried, completed].into_iter().enumerate() {
        assert_eq!(one.name, "process chaos_steps");
        assert_eq!(
            (one.kind.as_str(), one.service.as_str()),
            ("CONSUMER", "mcp-tasks-worker")
        );
        assert_eq!(one.parent, "", "a root");
        assert_eq!(one.get("attempt"), (number + 1).to_string());
        assert_eq!(one.linked("call").len(), 1);
        assert!(one.is_linked_to(call), "{one:?}");
        assert_eq!(one.is_linked_to(update), number > 0, "{one:?}");
        traces.push(&one.trace);
    }
    traces.extend([call.trace.as_str(), update.trace.as_str()]);
    traces.sort_unstable();
    traces.dedup();
    assert_eq!(traces.len(), 5, "traces of their own");
    assert!(retried.is_error && !parked.is_error && !completed.is_error);

    let first = child(&all, parked, "step").expect("a step");
    assert_eq!(first.get("step.key"), "first");
    child(&all, first, "begin_step").expect("it is journaled before");
    child(&all, first, "finish_step").expect("and after");
    let park = child(&all, parked, "park").expect("it parks");
    assert_eq!(
        (park.get("input.questions"), park.get("input.parked_for")),
        ("1", "task")
    );
    child(&all, park, "park").expect("in Postgres");
    assert!(
        child(&all, retried, "step").is_none(),
        "a replay does not act"
    );
    let second = child(&all, completed, "step").expect("a step");
    assert_eq!(second.get("step.key"), "second");

    for gateway in &stack.cluster.gateways {
        let lines = logs::lines(gateway.log()).unwrap();
        assert!(lines.iter().all(|line| line.get("spans").is_none()));
    }
    let lines = logs::lines(stack.cluster.workers[0].log()).unwrap();
    let failed = lines.iter().find(|line| line["message"] == "try failed");
    let failed = failed.expect("a line on the try that failed");
    assert_eq!(failed["task.id"], task);
    assert_eq!(failed["tool.name"], "chaos_steps");
    assert_eq!(failed["attempt"], 2);
    assert_eq!(failed["trace_id"], retried.trace);
    assert_eq!(failed["span_id"], retried.id);
}

#[tokio::test(flavor = "multi_thread")]
async fn undoing_failing_and_idling_are_seen_for_what_they_are() {
    let collector = Collector::start(Manner::Prompt).await;
    let settings = "[alerts]\nunfetched_after = \"1s\"\n\
                    [[alerts.receivers]]\nname = \"log\"\nkind = \"log\"\n";
    let stack = Stack::traced((1, 1), &collector, settings).await;
    let alice = stack.cluster.client(0, "alice");
    let items = json!([{ "step": { "key": "made", "undo": { "refuses": 1 } } }]);
    let params = json!({ "name": "chaos_undo", "arguments": plan("undone", items, "failed") });
    let handle = request(&alice, "tools/call", params, CALLER).await;
    let task = handle["taskId"].as_str().unwrap();
    let alert = spans(
        &collector,
        "the alert of a failure that nobody read",
        |all| one(all, "send alert", task).cloned(),
    );
    let alert = alert.await;
    let all = spans(&collector, "the spans of undoing", |all| {
        attempt(all, task, "failed")?;
        attempt(all, task, "undone")?;
        Some(all.to_vec())
    });
    let all = all.await;
    let call = one(&all, "tools/call chaos_undo", task).unwrap();
    assert_eq!(
        (alert.parent.as_str(), alert.service.as_str()),
        ("", "mcp-tasks-cron")
    );
    assert!(alert.is_linked_to(call), "{alert:?}");
    assert_eq!(alert.get("alert.kind"), "unfetched_failure");
    assert_eq!(alert.get("alert.receiver"), "log");

    let failed = attempt(&all, task, "failed").unwrap();
    assert!(failed.is_error && failed.is_linked_to(call));
    let undoing = attempt(&all, task, "undone").unwrap();
    assert_eq!(undoing.name, "undo chaos_undo");
    assert!(undoing.is_linked_to(call));
    let undo = child(&all, undoing, "undo").expect("the step is undone");
    assert_eq!((undo.get("step.key"), undo.get("undo.try")), ("made", "2"));

    let sweeps: Vec<&Span> = all
        .iter()
        .filter(|span| span.name.starts_with("sweep "))
        .collect();
    assert!(!sweeps.is_empty());
    for sweep in sweeps {
        assert!(
            sweep.is_error || !sweep.get("sweep.rows").is_empty(),
            "{sweep:?}"
        );
        assert_eq!(sweep.parent, "");
    }
    alice.get(task).await.unwrap();
    let missing = alice.request("tasks/get", json!({ "taskId": "none" }));
    missing.send().await.unwrap();
    let refused = spans(&collector, "a refused request", |all| {
        let mut all = all.iter();
        all.find(|span| span.name == "tasks/get" && span.is_error)
            .cloned()
    });
    let refused = refused.await;
    assert_eq!(refused.get("mcp_tasks.outcome"), "task_not_found");
    assert_eq!(
        refused.get("rpc.response.status_code"),
        refused.get("error.type")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_trace_contexts_fail_nothing_and_headers_come_second() {
    let collector = Collector::start(Manner::Prompt).await;
    let stack = Stack::traced((1, 1), &collector, "").await;
    let alice = stack.cluster.client(0, "alice");
    let huge = "x".repeat(100_000);
    let call =
        |name: &str| json!({ "name": "chaos_steps", "arguments": plan(name, json!([]), "result") });
    let bad = [
        (json!("00-0-0-01"), json!("=,;"), json!("=;\u{0}")),
        (json!(huge), json!(huge), json!(huge)),
        (json!(17), json!({}), json!([])),
        (json!("ü"), json!("\u{0}"), json!("a=%00,b=%ff,c=\u{7f}")),
    ];
    let mut tasks = Vec::new();
    for (number, (traceparent, tracestate, baggage)) in bad.into_iter().enumerate() {
        let request = alice.request("tools/call", call(&format!("bad {number}")));
        let request = request
            .meta("traceparent", traceparent)
            .meta("tracestate", tracestate)
            .meta("baggage", baggage);
        let handle = request.send().await.unwrap().into_result().unwrap();
        tasks.push(handle["taskId"].as_str().unwrap().to_owned());
    }
    let request = alice.request("tools/call", call("by header"));
    let request = request
        .header("traceparent", CALLER)
        .header("baggage", &huge[..8000]);
    let handle = request.send().await.unwrap().into_result().unwrap();
    let by_header = handle["taskId"].as_str().unwrap().to_owned();
    let request = alice.request("tools/call", call("by both"));
    let request = request
        .header("traceparent", CALLER)
        .meta("traceparent", json!(ANSWERER));
    let handle = request.send().await.unwrap().into_result().unwrap();
    let by_both = handle["taskId"].as_str().unwrap().to_owned();
    for task in tasks.iter().chain([&by_header, &by_both]) {
        alice.wait_status(task, "completed", SOON).await.unwrap();
    }
    let all = spans(&collector, "the calls", |all| {
        let mut ids = tasks.iter().chain([&by_header, &by_both]);
        ids.all(|task| {
            one(all, "tools/call chaos_steps", task).is_some()
                && attempt(all, task, "completed").is_some()
        })
        .then(|| all.to_vec())
    });
    let all = all.await;
    for task in &tasks {
        let call = one(&all, "tools/call chaos_steps", task).unwrap();
        assert_eq!(call.parent, "", "a root of its own: {call:?}");
        assert!(attempt(&all, task, "completed").unwrap().is_linked_to(call));
    }
    let call = one(&all, "tools/call chaos_steps", &by_header).unwrap();
    assert_eq!(
        (call.trace.as_str(), call.parent.as_str()),
        (trace_of(CALLER), &CALLER[36..52])
    );
    let call = one(&all, "tools/call chaos_steps", &by_both).unwrap();
    assert_eq!(call.trace, trace_of(ANSWERER), "_meta comes first");
    let http = call.linked("http");
    assert_eq!(http.len(), 1);
    assert_eq!(http[0].trace, trace_of(CALLER));
}

/// A caller that did not sample is followed, from the call to the last attempt.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_caller_does_not_keep_is_not_kept_here() {
    let collector = Collector::start(Manner::Prompt).await;
    let stack = Stack::traced((1, 1), &collector, "sample_ratio = 0.0\n").await;
    let alice = stack.cluster.client(0, "alice");
    let params = |name: &str| {
        let items = json!([{ "step": { "key": "act" } }]);
        json!({ "name": "chaos_steps", "arguments": plan(name, items, "result") })
    };
    let unsampled = format!("{}00", &CALLER[..53]);
    let mut ids = Vec::new();
    for (name, traceparent) in [("no", unsampled.as_str()), ("yes", ANSWERER)] {
        let handle = request(&alice, "tools/call", params(name), traceparent).await;
        let id = handle["taskId"].as_str().unwrap().to_owned();
        alice.wait_status(&id, "completed", SOON).await.unwrap();
        ids.push(id);
    }
    let all = spans(&collector, "the task whose caller keeps its trace", |all| {
        one(all, "tools/call chaos_steps", &ids[1])?;
        attempt(all, &ids[1], "completed")?;
        Some(all.to_vec())
    });
    let all = all.await;
    let about = |id: &str| all.iter().filter(|span| span.get("task.id") == id).count();
    assert_eq!(about(&ids[0]), 0);
    assert!(about(&ids[1]) >= 2);
    let own: Vec<&Span> = all.iter().filter(|span| span.name == "tasks/get").collect();
    assert!(own.is_empty(), "the ratio is 0: {own:?}");
}
