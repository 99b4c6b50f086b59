//! What is recorded once an outcome reached its caller.

use serde_json::json;

use crate::support::{World, text};

#[tokio::test]
async fn inline_outcomes_nobody_can_name_are_forgotten() {
    let world = World::new().await;
    let alice = world.client("alice");
    let (result, ()) = tokio::join!(alice.call("call", json!({})), async {
        let claim = world.claim("call").await;
        world.complete(&claim, &text("done")).await;
    });
    assert_eq!(result.unwrap()["content"][0]["text"], "done");
    world.until("SELECT count(*) FROM tasks", 0).await;
    assert_eq!(world.count("SELECT count(*) FROM tombstones").await, 0);
}

#[tokio::test]
async fn keyed_and_streamed_ones_are_fetched() {
    let world = World::new().await;
    let undeclared = world.client("alice").undeclared();
    let call = undeclared.request("tools/call", json!({"name": "inline", "arguments": {}}));
    let (answer, ()) = tokio::join!(call.idempotency_key("k").send(), async {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        let claim = world.claim("inline").await;
        let fetched = "SELECT count(*) FROM tasks WHERE first_fetched_at IS NOT NULL";
        assert_eq!(world.count(fetched).await, 0);
        world.complete(&claim, &text("done")).await;
    });
    assert!(answer.unwrap().is_stream());
    world
        .until(
            "SELECT count(*) FROM tasks WHERE first_fetched_at IS NOT NULL",
            1,
        )
        .await;
}

#[tokio::test]
async fn the_first_read_of_an_outcome_is_recorded() {
    let world = World::new().await;
    let alice = world.client("alice");
    let id = alice.start("task", json!({})).await.unwrap();
    let claim = world.claim("task").await;
    alice.get(&id).await.unwrap();
    let error = json!({"code": -32603, "message": "no"});
    world.fail(&claim, &error).await;
    let fetched = "SELECT count(*) FROM tasks WHERE first_fetched_at IS NOT NULL";
    world.client("mallory").get(&id).await.unwrap_err();
    assert_eq!(world.count(fetched).await, 0);
    alice.get(&id).await.unwrap();
    world.until(fetched, 1).await;
    let at = "SELECT first_fetched_at FROM tasks";
    let first = world.database.rows(at).await.unwrap();
    alice.get(&id).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    assert_eq!(world.database.rows(at).await.unwrap(), first);
}
