//! Clients of MCP 2025-11-25 against real processes: without a session, any replica answers.

use std::time::Duration;

use harness::client::{Client, Request};
use serde_json::{Value, json};

use crate::support::{SOON, System};

const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

/// A request as the SDKs of 1.x send it.
fn request<'a>(client: &'a Client, method: &str, params: Value) -> Request<'a> {
    let request = client.request(method, json!({})).params(params);
    request
        .header("mcp-protocol-version", "2025-11-25")
        .without_header("mcp-method")
        .without_header("mcp-name")
}

async fn result(client: &Client, method: &str, params: Value) -> Value {
    let answer = request(client, method, params).send().await.unwrap();
    answer.into_result().unwrap()
}

/// Calls a tool as a task: its id.
async fn start(client: &Client, tool: &str, arguments: Value) -> Value {
    let params = json!({"name": tool, "arguments": arguments, "task": {"ttl": 60000},
                        "_meta": {CAPABILITIES: {"elicitation": {}}}});
    let created = result(client, "tools/call", params).await;
    json!({"taskId": created["task"]["taskId"]})
}

/// Made on one, waited for on the other, which dies; asked for again on the first.
#[tokio::test(flavor = "multi_thread")]
async fn a_wait_survives_its_replica() {
    let mut system = System::of(2, 1).await;
    let alice = system.cluster.client(0, "alice");
    let other = system.cluster.client(1, "alice");
    let started = result(
        &other,
        "initialize",
        json!({"protocolVersion": "2025-11-25"}),
    )
    .await;
    assert_eq!(started["protocolVersion"], "2025-11-25");
    let id = start(&alice, "slow_compute", json!({"seconds": 4})).await;
    let open = request(&other, "tasks/result", id.clone());
    let mut waiting = open.stream().await.unwrap();
    let early = waiting.next(Duration::from_millis(300)).await;
    assert!(early.is_err(), "it waits: {early:?}");
    system.cluster.gateways[1].kill9();
    assert!(
        waiting.next(SOON).await.is_err(),
        "cut off with its replica"
    );
    let shown = result(&alice, "tasks/get", id.clone()).await;
    assert_eq!(shown["status"], "working");
    let done = result(&alice, "tasks/result", id.clone()).await;
    assert!(done["content"][0]["text"].is_string(), "{done}");
    let related = &done["_meta"]["io.modelcontextprotocol/related-task"];
    assert_eq!(*related, id);
    assert_eq!(system.count("SELECT count(*) FROM tasks").await, 1);
}

/// Made, asked, answered and cancelled, each on another replica.
#[tokio::test(flavor = "multi_thread")]
async fn a_question_is_asked_on_one_replica_and_answered_on_another() {
    let system = System::of(2, 1).await;
    let alice = system.cluster.client(0, "alice");
    let other = system.cluster.client(1, "alice");
    let id = start(&alice, "confirm_delete", json!({"filename": "a.txt"})).await;
    let mut waiting = request(&other, "tasks/result", id.clone())
        .stream()
        .await
        .unwrap();
    let asked = waiting.next(SOON).await.unwrap().unwrap();
    assert_eq!(asked["method"], "elicitation/create", "{asked}");
    let answer = json!({"jsonrpc": "2.0", "id": asked["id"],
                        "result": {"action": "accept", "content": {"confirm": true}}});
    let response = request(&alice, "response", json!({})).body(answer.to_string());
    assert_eq!(response.send().await.unwrap().status, 202);
    let last = waiting.next(SOON).await.unwrap().unwrap();
    assert!(last["result"]["content"][0]["text"].is_string(), "{last}");

    let id = start(&alice, "slow_compute", json!({"seconds": 60})).await;
    let cancelled = result(&other, "tasks/cancel", id.clone()).await;
    assert_eq!(cancelled["status"], "cancelled", "{cancelled}");
    let shown = result(&alice, "tasks/get", id).await;
    assert_eq!(shown["status"], "cancelled");
    let page = result(&other, "tasks/list", json!({})).await;
    assert_eq!(page["tasks"].as_array().unwrap().len(), 2, "{page}");
}
