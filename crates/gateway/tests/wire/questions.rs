//! Questions before the task exists: `InputRequiredResult`, `requestState`, and the repeated call.

use harness::client::Client;
use serde_json::{Value, json};
use store::ParkedFor;

use crate::support::{World, text, yes};

async fn send(client: &Client, params: Value) -> Value {
    client
        .request("tools/call", params)
        .send()
        .await
        .unwrap()
        .message
}

/// A first call that is asked: its answer.
async fn asked(world: &World, client: &Client, tool: &str, parked_for: ParkedFor) -> Value {
    let (message, ()) = tokio::join!(send(client, json!({"name": tool})), async {
        let claim = world.claim(tool).await;
        world.park(&claim, parked_for, &["first"]).await;
    });
    let result = message["result"].clone();
    assert_eq!(result["resultType"], "input_required", "{message}");
    assert!(result["inputRequests"]["first"]["method"].is_string());
    assert!(result.get("taskId").is_none());
    result
}

#[tokio::test]
async fn asked_first_and_then_a_task() {
    let world = World::new().await;
    let alice = world.client("alice");
    let first = asked(&world, &alice, "asks", ParkedFor::Caller).await;
    let again = |state: &Value, responses: Value| json!({"name": "asks", "requestState": state, "inputResponses": responses});
    // Without an answer, or with one to another question: asked again, under another state.
    for responses in [json!(null), json!({}), json!({"other": yes()})] {
        let repeated = send(&alice, again(&first["requestState"], responses)).await;
        assert_eq!(
            repeated["result"]["resultType"], "input_required",
            "{repeated}"
        );
        assert_ne!(repeated["result"]["requestState"], first["requestState"]);
    }
    let malformed = send(
        &alice,
        again(&first["requestState"], json!({"first": 12345})),
    )
    .await;
    assert_eq!(malformed["error"]["code"], -32602);
    assert!(
        malformed["error"]["message"]
            .as_str()
            .unwrap()
            .contains("`first`"),
        "{malformed}"
    );
    let handle = send(
        &alice,
        again(&first["requestState"], json!({"first": yes()})),
    )
    .await;
    assert_eq!(handle["result"]["resultType"], "task", "{handle}");
    assert!(handle["result"].get("requestState").is_none());
    // A stale state meets the task as it is now: the same handle.
    let stale = send(
        &alice,
        again(&first["requestState"], json!({"first": yes()})),
    )
    .await;
    assert_eq!(stale["result"]["taskId"], handle["result"]["taskId"]);
    let claim = world.claim("asks").await;
    world.complete(&claim, &text("done")).await;
    let over = send(&alice, again(&first["requestState"], json!(null))).await;
    assert_eq!(over["result"]["content"][0]["text"], "done");
    assert_eq!(world.count("SELECT count(*) FROM tasks").await, 1);
}

#[tokio::test]
async fn several_rounds_inline() {
    let world = World::new().await;
    let undeclared = world.client("alice").undeclared();
    let first = asked(&world, &undeclared, "call", ParkedFor::Caller).await;
    let params = json!({"name": "call", "requestState": first["requestState"],
                        "inputResponses": {"first": yes()}});
    let (second, ()) = tokio::join!(send(&undeclared, params), async {
        let claim = world.claim("call").await;
        world.park(&claim, ParkedFor::Caller, &["second"]).await;
    });
    let second = &second["result"];
    assert_eq!(second["resultType"], "input_required");
    assert!(second["inputRequests"].get("first").is_none());
    assert_ne!(second["requestState"], first["requestState"]);
    let params = json!({"name": "call", "requestState": second["requestState"],
                        "inputResponses": {"second": yes()}});
    let (third, ()) = tokio::join!(send(&undeclared, params), async {
        let claim = world.claim("call").await;
        world.complete(&claim, &text("done")).await;
    });
    assert_eq!(third["result"]["content"][0]["text"], "done");
}

#[tokio::test]
async fn a_task_that_asks_is_shown_to_who_can_see_tasks() {
    let world = World::new().await;
    let alice = world.client("alice");
    let (message, ()) = tokio::join!(send(&alice, json!({"name": "call"})), async {
        let claim = world.claim("call").await;
        world.park(&claim, ParkedFor::Task, &["first"]).await;
    });
    let handle = &message["result"];
    assert_eq!(
        (&handle["resultType"], &handle["status"]),
        (&json!("task"), &json!("input_required"))
    );
    assert!(handle.get("inputRequests").is_none());
    let task = alice.get(handle["taskId"].as_str().unwrap()).await.unwrap();
    assert!(task["inputRequests"]["first"].is_object());
    assert!(task.get("requestState").is_none());
    // Who can't see tasks is asked as a caller.
    asked(
        &world,
        &world.client("bob").undeclared(),
        "call",
        ParkedFor::Task,
    )
    .await;
}

#[tokio::test]
async fn a_state_is_good_for_its_call_only() {
    let world = World::new().await;
    let alice = world.client("alice");
    let first = asked(&world, &alice, "asks", ParkedFor::Caller).await;
    let state = first["requestState"].as_str().unwrap();
    let answer = |state: &str| json!({"name": "asks", "requestState": state, "inputResponses": {"first": yes()}});
    let refused = async |client: &Client, params: Value| {
        let message = send(client, params.clone()).await;
        assert_eq!(message["error"]["code"], -32602, "{params}: {message}");
    };
    refused(&alice, answer(&format!("{state}-TAMPERED"))).await;
    refused(&alice, answer(&state[1..])).await;
    refused(&alice, answer("")).await;
    refused(&world.client("mallory"), answer(state)).await;
    let mut other = answer(state);
    other["arguments"] = json!({"x": 1});
    refused(&alice, other).await;
    let mut other = answer(state);
    other["name"] = json!("call");
    refused(&alice, other).await;
    // Nobody came back in time: the hold ran out, and the sweep stopped it.
    let ended = "UPDATE tasks SET stop_requested_at = now(), stop_reason = 'abandoned'";
    world.database.rows(ended).await.unwrap();
    let message = send(&alice, answer(state)).await;
    assert_eq!(message["error"]["code"], -32602);
    assert!(
        message["error"]["message"]
            .as_str()
            .unwrap()
            .contains("expired"),
        "{message}"
    );
}

#[tokio::test]
async fn the_question_outlives_the_connection_that_asked() {
    let world = World::new().await;
    let alice = world.client("alice");
    asked(&world, &alice, "asks", ParkedFor::Caller).await;
    let kept = "SELECT count(*) FROM tasks WHERE held_until > now() + interval '9 minutes' \
                AND stop_requested_at IS NULL AND handed_out_at IS NULL";
    assert_eq!(world.count(kept).await, 1);
}

#[tokio::test]
async fn answers_that_come_with_the_first_call_are_offered() {
    let world = World::new().await;
    let alice = world.client("alice");
    let params = json!({"name": "task", "inputResponses": {"first": yes(), "other": {}}});
    assert_eq!(send(&alice, params).await["result"]["resultType"], "task");
    let claim = world.claim("task").await;
    let offered: Value = serde_json::from_slice(claim.offered_responses.as_ref().unwrap()).unwrap();
    assert_eq!(offered, json!({"first": yes(), "other": {}}));
    for none in [json!(null), json!({})] {
        let params = json!({"name": "only_task", "inputResponses": none});
        assert_eq!(send(&alice, params).await["result"]["resultType"], "task");
        assert_eq!(world.claim("only_task").await.offered_responses, None);
    }
}

#[tokio::test]
async fn a_repeat_by_key_is_asked_and_may_answer() {
    let world = World::new().await;
    let alice = world.client("alice");
    let call = || {
        let request = alice.request("tools/call", json!({"name": "asks", "arguments": {}}));
        request.idempotency_key("k")
    };
    let (first, ()) = tokio::join!(call().send(), async {
        let claim = world.claim("asks").await;
        world.park(&claim, ParkedFor::Caller, &["first"]).await;
    });
    assert_eq!(
        first.unwrap().message["result"]["resultType"],
        "input_required"
    );
    let again = call().send().await.unwrap();
    assert_eq!(again.message["result"]["resultType"], "input_required");
    let (answered, ()) = tokio::join!(
        call()
            .param("inputResponses", json!({"first": yes()}))
            .send(),
        async {
            let claim = world.claim("asks").await;
            world.complete(&claim, &text("done")).await;
        }
    );
    assert_eq!(
        answered.unwrap().message["result"]["content"][0]["text"],
        "done"
    );
    assert_eq!(world.count("SELECT count(*) FROM tasks").await, 1);
}
