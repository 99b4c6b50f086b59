//! Limits of one request: below, at and above each.

use harness::client::{Answer, Client, Request};
use serde_json::{Value, json};

use crate::support::{World, config};

async fn world() -> World {
    let mut config = config();
    config.limits.body_bytes_max = 2_048;
    config.limits.argument_bytes_max = 300;
    config.limits.depth_max = 12;
    config.limits.id_bytes_max = 40;
    config.limits.listen_ids_max = 3;
    World::with(config).await
}

fn seen(answer: &Answer) -> (u16, Option<i64>) {
    (answer.status, answer.error_code())
}

async fn send(request: Request<'_>) -> (u16, Option<i64>) {
    seen(&request.send().await.unwrap())
}

fn call(client: &Client, arguments: Value) -> Request<'_> {
    client.request(
        "tools/call",
        json!({"name": "task", "arguments": arguments}),
    )
}

#[tokio::test]
async fn bodies() {
    let world = world().await;
    let alice = world.client("alice");
    for (length, expected) in [
        (2_047, (200, None)),
        (2_048, (200, None)),
        (2_049, (413, Some(413))),
    ] {
        let request = alice.request("server/discover", json!({}));
        let mut body = request.bytes().to_vec();
        body.resize(length, b' ');
        assert_eq!(send(request.body(body)).await, expected, "{length} bytes");
    }
}

#[tokio::test]
async fn nesting() {
    let world = world().await;
    let alice = world.client("alice");
    // The message, its params, the arguments: three levels before the first array.
    for (arrays, expected) in [
        (8, (200, None)),
        (9, (200, None)),
        (10, (400, Some(-32600))),
    ] {
        let nested = (1..arrays).fold(json!([]), |inner, _| json!([inner]));
        let request = call(&alice, json!({"a": nested}));
        assert_eq!(send(request).await, expected, "{arrays} arrays");
    }
}

#[tokio::test]
async fn ids_of_requests() {
    let world = world().await;
    let alice = world.client("alice");
    // With the quotes around them.
    for (length, expected) in [
        (37, (200, None)),
        (38, (200, None)),
        (39, (400, Some(-32600))),
    ] {
        let request = alice.request("server/discover", json!({}));
        let request = request.id(json!("i".repeat(length)));
        assert_eq!(send(request).await, expected, "{length} letters");
    }
}

#[tokio::test]
async fn arguments() {
    let world = world().await;
    let alice = world.client("alice");
    // `small` has a limit of its own, and is held: so it is only asked beyond.
    for (tool, length, expected) in [
        ("task", 299, None),
        ("task", 300, None),
        ("task", 301, Some(-32602)),
        ("small", 65, Some(-32602)),
    ] {
        // `{"a":"…"}`.
        let arguments = json!({"a": "x".repeat(length - 8)});
        assert_eq!(arguments.to_string().len(), length);
        let request = alice.request("tools/call", json!({"name": tool, "arguments": arguments}));
        assert_eq!(
            send(request).await,
            (200, expected),
            "{tool}: {length} bytes"
        );
    }
}

#[tokio::test]
async fn ids_in_a_subscription() {
    let world = world().await;
    let alice = world.client("alice");
    for (count, refused) in [(2, false), (3, false), (4, true)] {
        let ids: Vec<String> = (0..count)
            .map(|_| protocol::TaskId::new(0).to_string())
            .collect();
        let params = json!({"notifications": {"taskIds": ids}});
        if refused {
            let request = alice.request("subscriptions/listen", params);
            assert_eq!(send(request).await, (200, Some(-32602)), "{count} ids");
        } else {
            let stream = alice.listen(params["notifications"].clone()).await;
            assert!(stream.is_ok(), "{count} ids");
        }
    }
}
