//! `subscriptions/listen`: acknowledgement, current state, one message a change.

use harness::sse::Stream;
use serde_json::{Value, json};
use store::ParkedFor;

use crate::support::{SECOND, SOON, World, config, text, yes};

const ID: &str = "io.modelcontextprotocol/subscriptionId";

async fn next(stream: &mut Stream) -> Value {
    stream
        .next(SOON)
        .await
        .unwrap()
        .expect("the stream is open")
}

#[tokio::test]
async fn tasks_from_first_state_to_last() {
    let world = World::new().await;
    let alice = world.client("alice");
    let id = alice.start("task", json!({})).await.unwrap();
    let foreign = world
        .client("mallory")
        .start("task", json!({}))
        .await
        .unwrap();
    let ids = json!([
        id,
        id,
        foreign,
        "nonsense",
        "0198c0de-0000-7000-8000-000000000000"
    ]);
    let params = json!({"notifications": {"taskIds": ids, "promptsListChanged": true,
                                          "resourcesListChanged": true}});
    let request = alice
        .request("subscriptions/listen", params)
        .id(json!("sub-1"));
    let mut stream = request.stream().await.unwrap();
    assert_eq!(stream.headers["content-type"], "text/event-stream");

    let ack = next(&mut stream).await;
    assert_eq!(ack["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(ack["params"]["notifications"], json!({"taskIds": [id]}));
    let first = next(&mut stream).await;
    assert_eq!(first["method"], "notifications/tasks");
    assert_eq!(first["params"]["status"], "working");
    assert!(first["params"].get("resultType").is_none());

    let claim = world.claim_task("task", id.parse().unwrap()).await;
    world.park(&claim, ParkedFor::Task, &["a"]).await;
    let asked = next(&mut stream).await;
    assert_eq!(asked["params"]["status"], "input_required");
    let shown = alice.get(&id).await.unwrap();
    assert_eq!(asked["params"]["inputRequests"], shown["inputRequests"]);
    alice.update(&id, json!({"a": yes()})).await.unwrap();
    assert_eq!(next(&mut stream).await["params"]["status"], "working");
    let claim = world.claim_task("task", id.parse().unwrap()).await;
    world.complete(&claim, &text("done")).await;
    let done = next(&mut stream).await;
    assert_eq!(done["params"]["status"], "completed");
    assert_eq!(done["params"]["result"]["content"][0]["text"], "done");
    for message in [ack, first, asked, done] {
        assert_eq!(message["params"]["_meta"][ID], "sub-1", "{message}");
    }
    world
        .until(
            "SELECT count(*) FROM tasks WHERE first_fetched_at IS NOT NULL",
            1,
        )
        .await;
}

#[tokio::test]
async fn the_subscription_id_keeps_its_type() {
    let mut world = World::new().await;
    let alice = world.client("alice");
    let params = json!({"notifications": {"toolsListChanged": true}});
    let request = alice.request("subscriptions/listen", params).id(json!(7));
    let mut stream = request.stream().await.unwrap();
    let ack = next(&mut stream).await;
    assert_eq!(ack["params"]["_meta"][ID], 7);
    assert_eq!(
        ack["params"]["notifications"],
        json!({"toolsListChanged": true})
    );
    world.stop().await;
    let last = next(&mut stream).await;
    assert_eq!(
        (&last["id"], &last["result"]["_meta"][ID]),
        (&json!(7), &json!(7))
    );
    assert_eq!(last["result"]["resultType"], "complete");
    assert_eq!(stream.next(SOON).await.unwrap(), None);
}

#[tokio::test]
async fn nothing_asked_for_is_a_quiet_stream() {
    let mut config = config();
    config.keep_alive = SECOND / 4;
    let world = World::with(config).await;
    let alice = world.client("alice");
    let mut stream = alice.listen(json!({})).await.unwrap();
    assert_eq!(
        next(&mut stream).await["params"]["notifications"],
        json!({})
    );
    world.queue.catalogue_changed().await;
    for _ in 0..3 {
        let event = tokio::time::timeout(SECOND, stream.event())
            .await
            .unwrap()
            .unwrap();
        assert!(
            matches!(event, Some(harness::sse::Event::Comment(_))),
            "{event:?}"
        );
    }
    drop(stream);
    let open = async || world.metric("mcp_tasks_gateway_listens");
    harness::wait::for_state("the stream is forgotten", SOON, open, |n| *n < 0.5)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_terminal_task_is_told_at_once() {
    let world = World::new().await;
    let alice = world.client("alice");
    let id = alice.start("task", json!({})).await.unwrap();
    alice.cancel(&id).await.unwrap();
    let mut stream = alice.listen(json!({"taskIds": [id]})).await.unwrap();
    assert_eq!(
        next(&mut stream).await["params"]["notifications"]["taskIds"],
        json!([id])
    );
    assert_eq!(next(&mut stream).await["params"]["status"], "cancelled");
}
