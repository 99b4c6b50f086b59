//! Callers who send all of what they have to say and hang up: what they asked for counts, and is
//! carried out to its end.

use std::time::Duration;

use harness::client::Socket;
use protocol::TaskId;
use protocol::callback::{Keys, Ticket};
use serde_json::{Value, json};
use store::{NewCallback, Open, ParkedFor};

use crate::support::{KEY, SECOND, World, yes};

const EACH: u32 = 12;
const LEGACY: &str = "Mcp-Protocol-Version: 2025-11-25\r\n";

/// Sends a whole request, and hangs up after that many milliseconds.
async fn fire(world: &World, (path, head): (&str, &str), body: &str, millis: u32) {
    let mut socket = Socket::connect(world.address).await.unwrap();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer alice\r\n{head}\
         Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n\
         Content-Length: {}\r\n\r\n{body}",
        world.address,
        body.len()
    );
    socket.write(request.as_bytes()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(millis.into())).await;
}

/// A request of today about a task.
async fn ask(world: &World, method: &str, (id, more): (&str, Value), millis: u32) {
    let head =
        format!("Mcp-Protocol-Version: 2026-07-28\r\nMcp-Method: {method}\r\nMcp-Name: {id}\r\n");
    let mut params = more;
    params["taskId"] = json!(id);
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities":
            {"extensions": {"io.modelcontextprotocol/tasks": {}}},
    });
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    fire(world, ("/mcp", &head), &body.to_string(), millis).await;
}

async fn started(world: &World) -> String {
    world
        .client("alice")
        .start("task", json!({}))
        .await
        .unwrap()
}

#[tokio::test]
async fn whoever_hangs_up_has_cancelled_all_the_same() {
    let world = World::new().await;
    for millis in 0..EACH {
        let id = started(&world).await;
        ask(&world, "tasks/cancel", (&id, json!({})), millis).await;
        let id = started(&world).await;
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tasks/cancel",
                          "params": {"taskId": id}});
        fire(&world, ("/mcp", LEGACY), &body.to_string(), millis).await;
    }
    let cancelled = "SELECT count(*) FROM tasks WHERE status = 'cancelled'";
    world.until(cancelled, i64::from(2 * EACH)).await;
}

#[tokio::test]
async fn whoever_hangs_up_has_answered_all_the_same() {
    let world = World::new().await;
    for millis in 0..EACH {
        let id = started(&world).await;
        let claim = world.claim_task("task", id.parse().unwrap()).await;
        world.park(&claim, ParkedFor::Task, &["a"]).await;
        let answers = json!({"inputResponses": {"a": yes()}});
        ask(&world, "tasks/update", (&id, answers), millis).await;
    }
    let queued = "SELECT count(*) FROM tasks WHERE status = 'working' AND phase = 'queued'";
    world.until(queued, i64::from(EACH)).await;
}

#[tokio::test]
async fn a_service_that_hangs_up_has_called_back_all_the_same() {
    let world = World::new().await;
    let keys = Keys::read(&[KEY.to_owned()]).unwrap();
    for millis in 0..EACH {
        let task: TaskId = started(&world).await.parse().unwrap();
        let claim = world.claim_task("task", task).await;
        let new = NewCallback {
            key: "call".to_owned(),
            seq: 0,
            wait: 600 * SECOND,
            signed_by: "one".to_owned(),
            proves: None,
        };
        let Open::Open(opened) = world.store.open_callback(&claim, &new).await.unwrap() else {
            panic!("nobody stops it");
        };
        let ticket = Ticket {
            task,
            key: new.key,
            expires_ms: opened.expires_ms,
        };
        let path = format!("/callbacks/{}", keys.sign(&ticket, "one").unwrap());
        fire(&world, (&path, ""), r#"{"text": "done"}"#, millis).await;
    }
    let kept = "SELECT count(*) FROM callbacks WHERE response IS NOT NULL";
    world.until(kept, i64::from(EACH)).await;
}
