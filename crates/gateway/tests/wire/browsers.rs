//! Pages in browsers: what is asked before a request, and what a page may read of the answer.

use http::Method;
use serde_json::json;

use crate::support::{World, config};

const PAGE: &str = "https://app.example.com";

async fn world() -> World {
    let mut config = config();
    config.allowed_origins = vec![PAGE.to_owned()];
    World::with(config).await
}

#[tokio::test]
async fn allowed_pages_may_call_and_read() {
    let world = world().await;
    let alice = world.client("alice");
    let preflight = |origin: &str, asked: &str| {
        let request = alice.request("server/discover", json!({}));
        request
            .http_method(Method::OPTIONS)
            .header("origin", origin)
            .header("access-control-request-method", "POST")
            .header("access-control-request-headers", asked)
            .without_header("authorization")
            .send()
    };
    let answer = preflight(PAGE, "authorization, Mcp-Param-Region, x-evil")
        .await
        .unwrap();
    assert_eq!(answer.status, 204);
    assert_eq!(answer.header("access-control-allow-origin"), PAGE);
    assert_eq!(answer.header("access-control-allow-methods"), "POST");
    let sent = answer.header("access-control-allow-headers");
    for name in [
        "authorization",
        "content-type",
        "mcp-protocol-version",
        "mcp-param-region",
    ] {
        assert!(sent.split(", ").any(|one| one == name), "{name}: {sent}");
    }
    assert!(!sent.contains("evil"), "{sent}");
    assert!(answer.header("vary").contains("Origin"));
    assert_eq!(answer.header("access-control-allow-credentials"), "");
    for evil in [
        "https://evil.example.com",
        "null",
        "https://app.example.com.evil",
    ] {
        let answer = preflight(evil, "authorization").await.unwrap();
        assert_eq!(answer.status, 405, "{evil}");
        assert_eq!(answer.header("access-control-allow-origin"), "", "{evil}");
    }
    // Whatever the answer is, the page may read it, and where to get a token.
    let nobody = harness::client::Client::new(&world.url);
    for (authorization, status) in [("Bearer alice", 200), ("Basic x", 401)] {
        let request = nobody
            .request("server/discover", json!({}))
            .header("origin", PAGE)
            .header("authorization", authorization);
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status, status);
        assert_eq!(answer.header("access-control-allow-origin"), PAGE);
        let read = answer.header("access-control-expose-headers");
        assert!(read.contains("WWW-Authenticate"), "{read}");
        assert_eq!(answer.header("vary"), "Origin");
    }
    let request = nobody.request("server/discover", json!({}));
    let answer = request
        .header("origin", "https://evil.example.com")
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status, 403);
    assert_eq!(answer.header("access-control-allow-origin"), "");
    // Programs are no pages.
    let answer = nobody
        .request("server/discover", json!({}))
        .send()
        .await
        .unwrap();
    assert_eq!(answer.header("access-control-allow-origin"), "");
}
