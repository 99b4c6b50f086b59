//! The same door over HTTP/2 with prior knowledge, as proxies speak it.

use bytes::Bytes;
use http::Version;
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::json;

use crate::support::{SECOND, World, request, text, whole};

type Http2 = Client<HttpConnector, Full<Bytes>>;

fn client() -> Http2 {
    Client::builder(TokioExecutor::new())
        .http2_only(true)
        .build(HttpConnector::new())
}

#[tokio::test]
async fn many_at_once_over_one_connection() {
    let world = World::new().await;
    let http = client();
    let first = http
        .request(request(&world, "server/discover", json!({})))
        .await
        .unwrap();
    assert_eq!(
        (first.status().as_u16(), first.version()),
        (200, Version::HTTP_2)
    );
    assert!(whole(first).await.contains("supportedVersions"));
    let call = json!({"name": "inline", "arguments": {}});
    let calls = (0..20).map(|_| http.request(request(&world, "tools/call", call.clone())));
    let (answers, ()) = tokio::join!(futures::future::join_all(calls), async {
        for _ in 0..20 {
            let claim = world.claim("inline").await;
            world.complete(&claim, &text("done")).await;
        }
    });
    for answer in answers {
        assert!(whole(answer.unwrap()).await.contains("done"));
    }
    assert!(world.metric("mcp_tasks_gateway_connections") < 1.5);
    world.until("SELECT count(*) FROM tasks", 0).await;
}

#[tokio::test]
async fn a_reset_stream_is_a_disconnect() {
    let mut world = World::new().await;
    let http = client();
    let call = json!({"name": "inline", "arguments": {}});
    let early = http.request(request(&world, "tools/call", call.clone()));
    tokio::time::timeout(SECOND / 5, early).await.unwrap_err();
    let late = http
        .request(request(&world, "tools/call", call))
        .await
        .unwrap();
    assert_eq!(late.headers()["content-type"], "text/event-stream");
    drop(late);
    world
        .until(
            "SELECT count(*) FROM tasks WHERE stop_reason = 'abandoned'",
            2,
        )
        .await;
    // The connection itself is still open; the end of the process closes it in good order.
    let answer = http
        .request(request(&world, "server/discover", json!({})))
        .await
        .unwrap();
    assert_eq!(answer.status(), 200);
    world.stop().await;
}

#[tokio::test]
async fn the_host_is_checked_here_too() {
    let world = World::new().await;
    let mut evil = request(&world, "server/discover", json!({}));
    let host = "evil.example.com".parse().unwrap();
    evil.headers_mut().insert("host", host);
    let answer = client().request(evil).await.unwrap();
    assert_eq!(answer.status(), 403);
}
