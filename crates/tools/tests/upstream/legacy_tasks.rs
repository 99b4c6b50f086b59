//! Tasks of servers of 2025-11-25: made, followed, asked about, cancelled.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::server::{Reply, Seen, Server, tool};
use crate::world::{World, config};

fn listed(support: &str) -> Value {
    let mut listed = tool("t", json!({}));
    listed["execution"] = json!({ "taskSupport": support });
    json!([listed])
}

fn question() -> Value {
    json!({ "jsonrpc": "2.0", "id": "q-1", "method": "elicitation/create", "params": {
        "message": "Which?",
        "requestedSchema": { "type": "object", "properties": { "v": { "type": "string" } } },
        "_meta": { "io.modelcontextprotocol/related-task": { "taskId": "L1" } }
    } })
}

/// Works until it is told to go on; then it asks, if it does, and ends when it was answered.
struct Script {
    goes_on: Arc<AtomicBool>,
    asks: bool,
    support: &'static str,
}

impl Script {
    async fn start(support: &'static str, asks: bool) -> (Server, Arc<AtomicBool>) {
        let goes_on = Arc::new(AtomicBool::new(false));
        let script = Self {
            goes_on: Arc::clone(&goes_on),
            asks,
            support,
        };
        let answered = AtomicBool::new(false);
        let server = Server::start(move |seen: &Seen| script.reply(seen, &answered)).await;
        (server, goes_on)
    }

    fn reply(&self, seen: &Seen, answered: &AtomicBool) -> Reply {
        let state = |status: &str| {
            json!({ "taskId": "L1", "status": status, "statusMessage": format!("it is {status}"),
                "createdAt": "2025-11-25T00:00:00Z", "lastUpdatedAt": "2025-11-25T00:00:00Z",
                "ttl": 60_000, "pollInterval": 100 })
        };
        let result = json!({ "content": [{ "type": "text", "text": "done" }] });
        match (seen.verb.as_str(), seen.method()) {
            ("POST", "server/discover") => Reply::status(400),
            ("POST", "initialize") => Reply::Plain(
                200,
                vec![("mcp-session-id", "s-1".to_owned())],
                seen.result(json!({ "protocolVersion": "2025-11-25", "capabilities": {
                        "tools": {}, "tasks": { "cancel": {}, "requests": { "tools": { "call": {} } } } },
                    "serverInfo": { "name": "old", "version": "1" } }))
                    .to_string(),
            ),
            ("POST", "tools/list") => {
                Reply::json(seen.result(json!({ "tools": listed(self.support) })))
            }
            ("POST", "tools/call") if seen.body["params"]["task"].is_object() => {
                Reply::json(seen.result(json!({ "task": state("working") })))
            }
            ("POST", "tools/call") => Reply::json(seen.result(result)),
            ("POST", "tasks/get") => {
                let goes_on = self.goes_on.load(Ordering::SeqCst);
                let status = match (goes_on, self.asks && !answered.load(Ordering::SeqCst)) {
                    (false, _) => "working",
                    (true, true) => "input_required",
                    (true, false) => "completed",
                };
                Reply::json(seen.result(state(status)))
            }
            ("POST", "tasks/result") if self.asks && !answered.load(Ordering::SeqCst) => {
                Reply::held([question()])
            }
            ("POST", "tasks/result" | "tasks/cancel") => Reply::json(seen.result(result)),
            ("POST", _) => {
                if seen.body["id"] == "q-1" {
                    answered.store(true, Ordering::SeqCst);
                }
                Reply::status(202)
            }
            _ => Reply::status(405),
        }
    }
}

#[tokio::test]
async fn a_tool_that_only_runs_as_a_task_is_followed() {
    let (server, goes_on) = Script::start("required", false).await;
    let world = World::of(&server.url).await;
    let watching = async {
        server
            .until(|seen| seen.iter().any(|s| s.method() == "tasks/get"))
            .await;
        goes_on.store(true, Ordering::SeqCst);
    };
    let (run, ()) = tokio::join!(world.kit("up_t").run(), watching);
    assert_eq!(run.result().unwrap().content[0].as_text(), Some("done"));
    assert_eq!(run.acts(), ["call", "follow.2"]);
    let said = run.progress()[0].message.as_deref();
    assert!(
        said.is_some_and(|said| said.starts_with("it is ")),
        "{said:?}"
    );
    assert!(server.of("tools/call")[0].body["params"]["task"]["ttl"].is_u64());
    assert_eq!(server.of("tasks/result")[0].body["params"]["taskId"], "L1");
    // Another worker goes on following.
    let journaled = json!({ "task": { "id": "L1", "poll_ms": 100, "legacy": true } });
    let run = world.kit("up_t").finished("call", journaled).run().await;
    run.result().unwrap();
    assert_eq!(server.of("tools/call").len(), 1);
}

#[tokio::test]
async fn what_it_asks_in_its_task_is_answered_there() {
    let (server, goes_on) = Script::start("optional", true).await;
    goes_on.store(true, Ordering::SeqCst);
    let world = World::of(&server.url).await;
    let yes = json!({ "action": "accept", "content": { "v": "x" } });
    // The answer is the server's to see; then the stream that was held says how it ended.
    let ending = async {
        server
            .until(|seen| seen.iter().any(|s| s.body["id"] == "q-1"))
            .await;
        let asked = &server.of("tasks/result")[0];
        server.say(&asked.result(json!({ "content": [{ "type": "text", "text": "asked" }] })));
    };
    let kit = world.kit("up_t").answer("question.2", yes.clone());
    let (run, ()) = tokio::join!(kit.run(), ending);
    assert_eq!(run.result().unwrap().content[0].as_text(), Some("asked"));
    assert_eq!(run.asked()[0].1["params"]["message"], "Which?");
    assert!(run.asked()[0].1["params"].get("_meta").is_none());
    let seen = server.seen();
    let answer = seen.iter().find(|s| s.body["id"] == "q-1").unwrap();
    assert_eq!(answer.body["result"], yes);
}

/// The worker that heard the question is lost: nobody else can answer it.
#[tokio::test]
async fn a_question_whose_connection_is_gone_ends_the_task() {
    let (server, goes_on) = Script::start("required", true).await;
    goes_on.store(true, Ordering::SeqCst);
    let world = World::of(&server.url).await;
    let asked = world.kit("up_t").run().await;
    assert_eq!(asked.status(), "input_required");
    let other = World::start(vec![config(&server.url)]);
    other.until(|_, told| told == Some(&Ok(()))).await;
    let yes = json!({ "action": "accept", "content": { "v": "x" } });
    let run = other.kit("up_t").after(&asked).answer("question.2", yes);
    let run = run.run().await;
    let error = run.error().unwrap();
    assert!(
        error
            .message
            .contains("the connection for the answer is gone"),
        "{error:?}"
    );
    assert_eq!(run.undone(), ["call"]);
    assert_eq!(server.of("tasks/cancel")[0].body["params"]["taskId"], "L1");
}

#[tokio::test]
async fn only_servers_that_make_tasks_are_asked_for_them() {
    let (server, _) = Script::start("forbidden", false).await;
    let world = World::of(&server.url).await;
    world.kit("up_t").run().await.result().unwrap();
    assert!(
        server.of("tools/call")[0].body["params"]
            .get("task")
            .is_none()
    );
}

/// As with a session whose tasks end with it.
#[tokio::test]
async fn a_task_that_its_server_forgets_is_called_again_if_that_may_be() {
    for (annotations, again) in [
        (json!({}), false),
        (json!({ "idempotentHint": true }), true),
    ] {
        let calls = AtomicUsize::new(0);
        let server = Server::start(move |seen: &Seen| {
            let mut only = tool("t", annotations.clone());
            only["execution"] = json!({ "taskSupport": "required" });
            let task = |id: &str, status: &str| json!({ "taskId": id, "status": status, "ttl": null,
                "createdAt": "2025-11-25T00:00:00Z", "lastUpdatedAt": "2025-11-25T00:00:00Z", "pollInterval": 100 });
            match (seen.verb.as_str(), seen.method()) {
                ("POST", "server/discover") => Reply::status(400),
                ("POST", "initialize") => Reply::json(seen.result(json!({ "protocolVersion": "2025-11-25",
                    "capabilities": { "tools": {}, "tasks": { "requests": { "tools": { "call": {} } } } },
                    "serverInfo": { "name": "old", "version": "1" } }))),
                ("POST", "tools/list") => Reply::json(seen.result(json!({ "tools": [only] }))),
                ("POST", "tools/call") => {
                    let id = format!("L{}", calls.fetch_add(1, Ordering::SeqCst));
                    Reply::json(seen.result(json!({ "task": task(&id, "working") })))
                }
                ("POST", "tasks/get") if seen.body["params"]["taskId"] == "L0" => {
                    Reply::json(json!({ "jsonrpc": "2.0", "id": seen.body["id"],
                        "error": { "code": -32602, "message": "Task not found" } }))
                }
                ("POST", "tasks/get") => Reply::json(seen.result(task("L1", "completed"))),
                ("POST", "tasks/result") => Reply::json(seen.result(json!({ "content": [] }))),
                ("POST", _) => Reply::status(202),
                _ => Reply::status(405),
            }
        })
        .await;
        let world = World::of(&server.url).await;
        let run = world.kit("up_t").run().await;
        assert_eq!(server.of("tools/call").len(), 1 + usize::from(again));
        if again {
            run.result().unwrap();
        } else {
            assert_eq!(run.reason().as_deref(), Some("step_in_doubt"));
            assert!(run.error().unwrap().message.contains("Task not found"));
        }
    }
}
