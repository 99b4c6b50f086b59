//! Servers of 2026-07-28: requests that stand alone, several round trips, tasks of their own.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::server::{Reply, Seen, modern, tool};
use crate::world::World;

fn done(seen: &Seen) -> Reply {
    Reply::json(seen.result(json!({ "resultType": "complete", "content": [] })))
}

fn meta(seen: &Seen, name: &str) -> Value {
    seen.body["params"]["_meta"][format!("io.modelcontextprotocol/{name}")].clone()
}

#[tokio::test]
async fn each_request_stands_alone() {
    let mut wheel = tool("wheel ü", json!({}));
    wheel["name"] = json!("wheel");
    wheel["inputSchema"] = json!({ "type": "object", "properties": {
        "city": { "type": "string", "x-mcp-header": "City" },
        "n": { "type": "integer", "x-mcp-header": "N" },
        "gone": { "type": "string", "x-mcp-header": "Gone" }
    } });
    let server = modern(json!([wheel]), done).await;
    let world = World::of(&server.url).await;
    let kit = world
        .kit("up_wheel")
        .arguments(json!({ "city": "Köln", "n": 7, "gone": null }));
    kit.capabilities(json!({ "elicitation": {} }))
        .run()
        .await
        .result()
        .unwrap();
    assert!(server.of("initialize").is_empty());
    let call = &server.of("tools/call")[0];
    assert_eq!(call.header("mcp-protocol-version"), "2026-07-28");
    assert_eq!(call.header("mcp-method"), "tools/call");
    assert_eq!(call.header("mcp-name"), "wheel");
    assert_eq!(call.header("mcp-param-city"), "=?base64?S8O2bG4=?=");
    assert_eq!(call.header("mcp-param-n"), "7");
    assert_eq!(call.header("mcp-param-gone"), "");
    assert_eq!(call.header("mcp-session-id"), "");
    assert_eq!(meta(call, "protocolVersion"), "2026-07-28");
    // What our caller can answer, and that we follow tasks.
    assert_eq!(
        meta(call, "clientCapabilities"),
        json!({ "elicitation": { "form": {} }, "extensions": { "io.modelcontextprotocol/tasks": {} } })
    );
    assert!(call.body["params"]["_meta"]["io.github.mcp-tasks/idempotencyKey"].is_string());
}

#[tokio::test]
async fn a_cancelled_call_s_stream_is_closed() {
    let server = modern(json!([tool("t", json!({ "readOnlyHint": true }))]), |_| {
        Reply::held([])
    })
    .await;
    let world = World::of(&server.url).await;
    let stop = CancellationToken::new();
    let cancelling = async {
        server
            .until(|seen| seen.iter().any(|s| s.method() == "tools/call"))
            .await;
        stop.cancel();
    };
    let (run, ()) = tokio::join!(world.kit("up_t").stopped_by(stop.clone()).run(), cancelling);
    assert!(run.result().unwrap_err().is_stopped());
    let closed = |s: &Seen| s.verb == "CLOSED" && s.body["of"]["method"] == "tools/call";
    server.until(|seen| seen.iter().any(closed)).await;
    assert!(server.of("notifications/cancelled").is_empty());
}

#[tokio::test]
async fn what_it_needs_is_asked_and_the_call_goes_on() {
    let server = modern(json!([tool("t", json!({}))]), |seen: &Seen| {
        let params = &seen.body["params"];
        let ask = |state: &str| {
            let form = json!({ "mode": "form", "message": state,
                "requestedSchema": { "type": "object", "properties": {} } });
            Reply::json(seen.result(
                json!({ "resultType": "input_required", "requestState": state,
                "inputRequests": { "who": { "method": "elicitation/create", "params": form } } }),
            ))
        };
        match params["requestState"].as_str() {
            None => ask("one"),
            Some("one") => ask("two"),
            Some(_) => Reply::json(seen.result(json!({ "resultType": "complete",
                "content": [{ "type": "text", "text": params["inputResponses"].to_string() }] }))),
        }
    })
    .await;
    let world = World::of(&server.url).await;
    let yes = json!({ "action": "accept", "content": {} });
    let no = json!({ "action": "decline" });
    let kit = world
        .kit("up_t")
        .answer("who", yes.clone())
        .answer("who.2", no.clone());
    let run = kit.run().await;
    let text = run.result().unwrap().content[0]
        .as_text()
        .unwrap()
        .to_owned();
    assert_eq!(text, json!({ "who": no }).to_string());
    let calls = server.of("tools/call");
    assert_eq!(calls.len(), 3);
    assert_eq!(
        calls[1].body["params"]["inputResponses"],
        json!({ "who": yes })
    );
    assert_eq!(run.acts(), ["call", "call.2", "call.3"]);
}

/// Makes a task, asks something in it, and ends it.
async fn with_a_task() -> crate::server::Server {
    let polls = AtomicUsize::new(0);
    modern(json!([tool("t", json!({}))]), move |seen: &Seen| {
        let state = |more: Value| {
            let mut state = json!({ "resultType": "complete", "taskId": "T/1", "status": "working",
                "createdAt": "2026-07-28T00:00:00Z", "lastUpdatedAt": "2026-07-28T00:00:00Z",
                "ttlMs": null, "pollIntervalMs": 100 });
            for (name, value) in more.as_object().unwrap() {
                state[name] = value.clone();
            }
            Reply::json(seen.result(state))
        };
        match seen.method() {
            "tools/call" => state(json!({ "resultType": "task" })),
            "tasks/get" => match polls.fetch_add(1, Ordering::SeqCst) {
                0 => state(json!({ "statusMessage": "on it" })),
                1 => state(json!({ "status": "input_required", "inputRequests": { "ok": {
                    "method": "elicitation/create", "params": { "mode": "form", "message": "Ok?",
                        "requestedSchema": { "type": "object", "properties": {} } } } } })),
                // As if the answer had not arrived there yet.
                2 => Reply::status(503),
                _ => state(json!({ "status": "completed",
                    "result": { "resultType": "complete", "content": [], "structuredContent": 7 } })),
            },
            _ => Reply::json(seen.result(json!({ "resultType": "complete" }))),
        }
    })
    .await
}

#[tokio::test]
async fn a_task_of_its_own_is_followed() {
    let server = with_a_task().await;
    let world = World::of(&server.url).await;
    let answer = json!({ "action": "accept", "content": {} });
    let run = world.kit("up_t").answer("ok.2", answer.clone()).run().await;
    assert_eq!(run.result().unwrap().structured_content, Some(json!(7)));
    assert_eq!(run.progress()[0].message.as_deref(), Some("on it"));
    let update = &server.of("tasks/update")[0];
    assert_eq!(
        update.body["params"]["inputResponses"],
        json!({ "ok": answer })
    );
    assert_eq!(update.header("mcp-name"), "T/1");
    assert_eq!(server.of("tools/call").len(), 1);
    assert!(run.undone().is_empty());
}

#[tokio::test]
async fn another_worker_goes_on_following() {
    let server = with_a_task().await;
    let world = World::of(&server.url).await;
    let kit = world
        .kit("up_t")
        .finished("call", json!({ "task": { "id": "T/1", "poll_ms": 100 } }));
    let run = kit
        .answer("ok.2", json!({ "action": "decline" }))
        .run()
        .await;
    run.result().unwrap();
    assert!(server.of("tools/call").is_empty());
}

#[tokio::test]
async fn its_task_is_cancelled_with_ours() {
    let server = with_a_task().await;
    let world = World::of(&server.url).await;
    let run = world.kit("up_t").cancel_at("follow.2").run().await;
    assert!(run.result().unwrap_err().is_stopped());
    assert_eq!(run.undone(), ["call"]);
    let cancel = &server.of("tasks/cancel")[0];
    assert_eq!(cancel.body["params"]["taskId"], "T/1");
}
