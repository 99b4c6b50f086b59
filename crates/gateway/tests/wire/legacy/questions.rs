//! Questions of a task: requests of the server on the stream of `tasks/result`, and responses that
//! come back by themselves.

use serde_json::{Value, json};
use store::ParkedFor;

use super::{Legacy, RELATED, UNKNOWN, id_of};
use crate::support::{SOON, World, text, yes};

const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

fn asking() -> Value {
    json!({"name": "task", "arguments": {}, "task": {},
           "_meta": {CAPABILITIES: {"elicitation": {}}}})
}

async fn respond(client: &Legacy, message: Value) -> u16 {
    let request = client.request("response", json!({}));
    let answer = request.body(message.to_string()).send().await.unwrap();
    if answer.status == 202 {
        assert!(answer.body.is_empty());
    }
    answer.status
}

#[tokio::test]
async fn a_question_is_put_on_the_stream_and_answered_by_a_response() {
    let world = World::new().await;
    let alice = Legacy::new(&world, "alice");
    let task = alice.result("tools/call", asking()).await["task"].clone();
    let claim = world.claim("task").await;
    world
        .park(&claim, ParkedFor::Task, &["first", "second/part"])
        .await;
    let shown = alice.result("tasks/get", id_of(&task)).await;
    assert_eq!(shown["status"], "input_required");
    assert!(shown.get("inputRequests").is_none());
    assert!(
        shown["statusMessage"]
            .as_str()
            .unwrap()
            .contains("tasks/result"),
        "{shown}"
    );

    let mut stream = alice
        .request("tasks/result", id_of(&task))
        .stream()
        .await
        .unwrap();
    let mut asked = Vec::new();
    for _ in 0..2 {
        let request = stream.next(SOON).await.unwrap().unwrap();
        assert_eq!(request["jsonrpc"], "2.0");
        assert_eq!(request["method"], "elicitation/create", "{request}");
        assert_eq!(request["params"]["message"], "Sure?");
        assert_eq!(request["params"]["requestedSchema"]["type"], "object");
        assert_eq!(request["params"]["_meta"], json!({RELATED: id_of(&task)}));
        asked.push(request["id"].clone());
    }
    assert_ne!(asked[0], asked[1]);
    let answer = |id: &Value| json!({"jsonrpc": "2.0", "id": id, "result": yes()});

    // Nobody else's answer counts, and none to what was not asked; nothing can be learnt from it.
    let bob = Legacy::new(&world, "bob");
    assert_eq!(respond(&bob, answer(&asked[0])).await, 202);
    for id in [
        json!(format!("{UNKNOWN}/first")),
        json!("first"),
        json!(7),
        json!("x/y"),
    ] {
        assert_eq!(respond(&alice, answer(&id)).await, 202);
    }
    let open = "SELECT count(*) FROM inputs WHERE response IS NULL";
    assert_eq!(world.count(open).await, 2);
    // What does not fit its question is refused, and the question stays open.
    let bad = json!({"jsonrpc": "2.0", "id": asked[0], "result": {"action": "perhaps"}});
    assert_eq!(respond(&alice, bad).await, 400);
    assert_eq!(world.count(open).await, 2);

    for id in &asked {
        assert_eq!(respond(&alice, answer(id)).await, 202);
        // A second answer changes nothing.
        assert_eq!(respond(&alice, answer(id)).await, 202);
    }
    let claim = world.claim("task").await;
    world.complete(&claim, &text("thanks")).await;
    let last = stream.next(SOON).await.unwrap().unwrap();
    assert_eq!(last["result"]["content"][0]["text"], "thanks", "{last}");
}

#[tokio::test]
async fn a_client_that_cannot_ask_has_dismissed_the_question() {
    let world = World::new().await;
    let alice = Legacy::new(&world, "alice");
    let task = alice.result("tools/call", asking()).await["task"].clone();
    let claim = world.claim("task").await;
    world.park(&claim, ParkedFor::Task, &["first"]).await;
    let mut stream = alice
        .request("tasks/result", id_of(&task))
        .stream()
        .await
        .unwrap();
    let id = stream.next(SOON).await.unwrap().unwrap()["id"].clone();
    let error = json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32600, "message": "no"}});
    assert_eq!(respond(&alice, error).await, 202);
    world
        .until("SELECT count(*) FROM tasks WHERE phase = 'queued'", 1)
        .await;
    let answers = world
        .database
        .rows("SELECT convert_from(response, 'UTF8') FROM inputs")
        .await
        .unwrap();
    assert_eq!(answers[0][0].as_deref(), Some(r#"{"action":"cancel"}"#));
}

/// Each wait asks what is open: an answer that was lost with a connection can be given again.
#[tokio::test]
async fn a_new_wait_asks_again() {
    let world = World::new().await;
    let alice = Legacy::new(&world, "alice");
    let task = alice.result("tools/call", asking()).await["task"].clone();
    let claim = world.claim("task").await;
    world.park(&claim, ParkedFor::Task, &["first"]).await;
    let mut ids = Vec::new();
    for _ in 0..2 {
        let stream = alice.request("tasks/result", id_of(&task)).stream();
        let request = stream.await.unwrap().next(SOON).await.unwrap().unwrap();
        ids.push(request["id"].clone());
    }
    assert_eq!(ids[0], ids[1]);
    // A client that reads no streams is not asked, and waits.
    let plain = alice
        .request("tasks/result", id_of(&task))
        .header("accept", "application/json");
    let (answer, ()) = tokio::join!(plain.send(), async {
        let answer = json!({"jsonrpc": "2.0", "id": ids[0], "result": yes()});
        assert_eq!(respond(&alice, answer).await, 202);
        let claim = world.claim("task").await;
        world.complete(&claim, &text("thanks")).await;
    });
    let answer = answer.unwrap();
    assert!(!answer.is_stream());
    assert_eq!(answer.message["result"]["content"][0]["text"], "thanks");
}

/// What can be asked is what the call itself declared: by default nothing, and of an ordinary call
/// never anything.
#[tokio::test]
async fn what_a_call_declares_is_what_can_be_asked() {
    let world = World::new().await;
    let alice = Legacy::new(&world, "alice");
    let stored = async || {
        let sql = "SELECT convert_from(client_capabilities, 'UTF8') FROM tasks ORDER BY created_at DESC, id DESC LIMIT 1";
        let rows = world.database.rows(sql).await.unwrap();
        serde_json::from_str::<Value>(rows[0][0].as_deref().unwrap()).unwrap()
    };
    let tasks = json!({"io.modelcontextprotocol/tasks": {}});
    alice.result("tools/call", asking()).await;
    assert_eq!(
        stored().await,
        json!({"elicitation": {}, "extensions": tasks})
    );
    alice.task("task").await;
    assert_eq!(stored().await, json!({"extensions": tasks}));
    let mut ordinary = asking();
    ordinary["name"] = json!("call");
    ordinary.as_object_mut().unwrap().remove("task");
    let (_, ()) = tokio::join!(alice.result("tools/call", ordinary), async {
        let claim = world.claim("call").await;
        assert_eq!(stored().await, json!({}));
        world.complete(&claim, &text("done")).await;
    });
}

/// A tool that asks before there is a task finds that there is one already.
#[tokio::test]
async fn a_tool_that_asks_first_asks_on_the_task() {
    let world = World::new().await;
    let alice = Legacy::new(&world, "alice");
    let mut params = asking();
    params["name"] = json!("asks");
    let task = alice.result("tools/call", params).await["task"].clone();
    let claim = world.claim("asks").await;
    world.park(&claim, ParkedFor::Caller, &["first"]).await;
    let shown = alice.result("tasks/get", id_of(&task)).await;
    assert_eq!(shown["status"], "input_required");
    let stream = alice.request("tasks/result", id_of(&task)).stream();
    let asked = stream.await.unwrap().next(SOON).await.unwrap().unwrap();
    let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": yes()});
    assert_eq!(respond(&alice, answer).await, 202);
    let claim = world.claim("asks").await;
    world.complete(&claim, &text("done")).await;
    let result = alice.result("tasks/result", id_of(&task)).await;
    assert_eq!(result["content"][0]["text"], "done");
}

/// A repeat by key may meet a task that somebody else's client made, and that asks.
#[tokio::test]
async fn an_ordinary_call_that_meets_a_question_is_told_so() {
    let world = World::new().await;
    let modern = world.client("alice");
    let arguments = json!({"order": "b-1"});
    let handle = modern.call("keyed", arguments.clone()).await.unwrap();
    assert_eq!(handle["resultType"], "task");
    let claim = world.claim("keyed").await;
    world.park(&claim, ParkedFor::Task, &["first"]).await;
    let alice = Legacy::new(&world, "alice");
    let told = alice
        .error(
            "tools/call",
            json!({"name": "keyed", "arguments": arguments}),
        )
        .await;
    assert_eq!(told["code"], -32603, "{told}");
    assert_eq!(told["data"]["reason"], "nobody_to_ask");
}
