//! Everything that can become of a call, so that every metric has something to tell.

use std::time::Duration;

use futures::future::join_all;
use harness::client::Client;
use serde_json::{Value, json};

use crate::stack::Stack;

/// Used up by failures only.
pub const SOON: Duration = Duration::from_secs(40);

/// The tool that all of it is done with: every panel about one tool has data then.
pub const TOOL: &str = "chaos_undo";

/// Arguments of a chaos tool.
pub fn plan(call: &str, items: Value, end: &str) -> Value {
    json!({ "call": call, "items": items, "end": end })
}

fn step(key: &str, more: Value) -> Value {
    let mut step = json!({ "key": key });
    for (name, value) in more.as_object().unwrap() {
        step[name] = value.clone();
    }
    json!({ "step": step })
}

/// One caller's day, on both gateways. Leaves a failure that nobody reads and a question that
/// nobody answers.
pub async fn mixed(stack: &Stack, caller: usize) {
    let name = format!("caller-{caller}");
    let clients = [0, 1].map(|gateway| stack.cluster.client(gateway, &name));
    let [one, other] = &clients;
    one.discover().await.unwrap();
    one.list().await.unwrap();
    let call = |what: &str| format!("{name} {what}");

    let quick = plan(&call("quick"), json!([step("a", json!({}))]), "result");
    one.call("chaos_quick", quick).await.unwrap();
    one.call("no_such_tool", json!({})).await.unwrap_err();
    let unknown = one.request("no/such/method", json!({}));
    assert_eq!(unknown.send().await.unwrap().status, 404);

    let retried = json!([
        step("once", json!({ "idempotent": true, "refuses": 1 })),
        { "retry": 1 },
        { "panic": 1 },
        { "pause": 200 },
    ]);
    let doubt = json!([step("pay", json!({ "unknown": 1 }))]);
    let undone = json!([step(
        "book",
        json!({ "undo": { "idempotent": true, "refuses": 1 } })
    )]);
    let not_undone = json!([step("send", json!({ "undo": { "fails": true } }))]);
    let asks = json!([{ "ask": [{ "key": "sure" }] }]);
    let plans = [
        plan(&call("retried"), retried, "result"),
        plan(&call("doubt"), doubt, "result"),
        plan(&call("undone"), undone, "failed"),
        plan(&call("not undone"), not_undone, "failed"),
        plan(&call("wrong"), json!([]), "tool_error"),
        plan(&call("answered"), asks.clone(), "result"),
        plan(&call("unanswered"), asks, "result"),
        plan(&call("cancelled"), json!([]), "wait"),
        plan(&call("unread"), json!([]), "failed"),
    ];
    let ids = join_all(plans.into_iter().map(|plan| one.start(TOOL, plan))).await;
    let ids: Vec<String> = ids.into_iter().map(Result::unwrap).collect();
    let [ended @ .., answered, unanswered, cancelled, _unread] = &ids[..] else {
        unreachable!("nine were started");
    };
    let mut listen = one.listen(json!({ "taskIds": ended })).await.unwrap();
    // Polls as fast as answers come: held, most of them.
    join_all(ended.iter().map(async |id| {
        other.wait_end(id, SOON).await.unwrap();
    }))
    .await;
    assert!(listen.next(SOON).await.unwrap().is_some());
    answer(other, answered).await;
    other
        .wait_status(unanswered, "input_required", SOON)
        .await
        .unwrap();
    one.cancel(cancelled).await.unwrap();
    one.wait_end(cancelled, SOON).await.unwrap();
    let exhausted = plan(&call("exhausted"), json!([]), "exhaust");
    let exhausted = one.start("chaos_gives_up", exhausted).await.unwrap();
    one.wait_end(&exhausted, SOON).await.unwrap();
}

async fn answer(client: &Client, id: &str) {
    let asked = client
        .wait_status(id, "input_required", SOON)
        .await
        .unwrap();
    let key = asked["inputRequests"]
        .as_object()
        .and_then(|asked| asked.keys().next().cloned())
        .unwrap();
    let yes = json!({ key: { "action": "accept", "content": { "value": "yes" } } });
    client.update(id, yes).await.unwrap();
    client.wait_status(id, "completed", SOON).await.unwrap();
}

/// More work than there are places, and it never ends.
pub async fn backlog(stack: &Stack, jobs: usize) -> Vec<String> {
    let client = stack.cluster.client(0, "backlog");
    let started = (0..jobs).map(|job| {
        let plan = plan(&format!("backlog {job}"), json!([]), "wait");
        client.start(TOOL, plan)
    });
    let ids = join_all(started).await;
    ids.into_iter().map(Result::unwrap).collect()
}
