//! The handshake, `ping`, notifications, and what is not served; and that no request of today is
//! taken for one of those.

use gateway::Config;
use harness::client::Client;
use http::Method;
use serde_json::{Value, json};

use super::{Legacy, OLDER, UNKNOWN, VERSION, without_modern};
use crate::support::{World, config};

fn initialize(version: &str) -> Value {
    json!({"protocolVersion": version, "capabilities": {"elicitation": {}},
           "clientInfo": {"name": "old", "version": "1"}})
}

#[tokio::test]
async fn a_handshake_without_a_session() {
    let world = World::new().await;
    let alice = Legacy::new(&world, "alice");
    for (asked, answered) in [
        (VERSION, VERSION),
        (OLDER, OLDER),
        ("2025-03-26", VERSION),
        ("2024-11-05", VERSION),
        ("2026-07-28", VERSION),
        ("v999", VERSION),
        ("", VERSION),
    ] {
        // The SDKs name no version before they were told one.
        for bare in [true, false] {
            let request = alice.request("initialize", initialize(asked));
            let request = match bare {
                true => request.without_header("mcp-protocol-version"),
                false => request,
            };
            let answer = request.send().await.unwrap();
            assert_eq!(answer.status, 200);
            assert!(answer.header("mcp-session-id").is_empty());
            let result = answer.into_result().unwrap();
            assert_eq!(result["protocolVersion"], answered, "{asked}");
            assert_eq!(result["serverInfo"]["name"], "mcp-tasks");
            assert!(result["instructions"].is_string());
            without_modern(&result);
            let tasks = json!({"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}});
            let tasks = if answered == VERSION {
                tasks
            } else {
                Value::Null
            };
            assert_eq!(result["capabilities"]["tasks"], tasks);
            // Changes can be told to nobody.
            assert_eq!(result["capabilities"]["tools"], json!({}));
        }
    }
    for bad in [
        json!({}),
        json!({"protocolVersion": 1}),
        json!({"protocolVersion": null}),
    ] {
        assert_eq!(alice.code("initialize", bad).await, -32602);
    }
    let nobody = Legacy::nobody(&world);
    let result = nobody.result("initialize", initialize(VERSION)).await;
    assert!(result["capabilities"]["tasks"].get("list").is_none());
    assert!(result["capabilities"]["tasks"]["cancel"].is_object());
}

#[tokio::test]
async fn ping_and_notifications() {
    let world = World::new().await;
    let alice = Legacy::new(&world, "alice");
    assert_eq!(alice.result("ping", json!({})).await, json!({}));
    assert_eq!(
        alice.clone().older().result("ping", json!({})).await,
        json!({})
    );
    for method in [
        "notifications/initialized",
        "notifications/cancelled",
        "notifications/other",
    ] {
        let answer = alice
            .request(method, json!({"requestId": 1}))
            .notification();
        let answer = answer.send().await.unwrap();
        assert_eq!((answer.status, answer.body.len()), (202, 0), "{method}");
    }
    for method in [Method::GET, Method::DELETE] {
        let request = alice.request("ping", json!({})).http_method(method);
        let answer = request.header("mcp-session-id", "x").send().await.unwrap();
        assert_eq!((answer.status, answer.header("allow")), (405, "POST"));
    }
    let series = format!("mcp_tasks_gateway_legacy_requests_total{{version=\"{VERSION}\"}}");
    assert!((world.metric(&series) - 1.0).abs() < 0.1);
    // Each is counted once, by its name.
    let text = world.registry.render();
    let counted: Vec<_> = text
        .lines()
        .filter(|line| line.starts_with("mcp_tasks_gateway_requests_total"))
        .filter(|line| line.contains("\"ping\"") || line.contains("\"disconnected\""))
        .collect();
    assert_eq!(counted.len(), 1, "{counted:?}");
    assert!(counted[0].ends_with(" 2"), "{counted:?}");
}

#[tokio::test]
async fn what_is_sloppy_is_served_and_what_is_wrong_is_told() {
    let world = World::new().await;
    let alice = Legacy::new(&world, "alice");
    // A session that we never gave is nothing to us.
    let request = alice.request("tools/list", json!({}));
    let answer = request
        .header("mcp-session-id", "mine")
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status, 200);
    assert!(answer.header("mcp-session-id").is_empty());
    // Without Accept, or with another one: JSON.
    for accept in [None, Some("application/json"), Some("text/html")] {
        let request = alice.request("tools/list", json!({}));
        let request = match accept {
            None => request.without_header("accept"),
            Some(kind) => request.header("accept", kind),
        };
        let answer = request.send().await.unwrap();
        assert_eq!((answer.status, answer.is_stream()), (200, false));
    }
    for params in [json!({"_meta": null}), json!({"_meta": {}})] {
        assert!(alice.result("tools/list", params).await["tools"].is_array());
    }
    // A slip in it is told in the client's own words, and never as a header that it does not know.
    let version = "io.modelcontextprotocol/protocolVersion";
    let same = json!({"_meta": {version: VERSION}});
    assert!(alice.result("tools/list", same).await["tools"].is_array());
    for (meta, told) in [
        (json!([]), "it must be an object"),
        (json!({version: 7}), "must be a string"),
        (
            json!({version: "2025-06-18"}),
            "and MCP-Protocol-Version says",
        ),
        (json!({"progressToken": {}}), "`progressToken` must be"),
    ] {
        let answer = alice.request("tools/list", json!({"_meta": meta}));
        let answer = answer.send().await.unwrap();
        assert_eq!((answer.status, answer.error_code()), (200, Some(-32602)));
        let message = answer.error()["message"].as_str().unwrap().to_owned();
        let named = message.starts_with("params._meta: ") && message.contains(told);
        assert!(named && !message.contains("Mcp-Method"), "{message}");
    }
    assert_eq!(alice.code("tools/list", json!({"cursor": 7})).await, -32602);
    assert_eq!(
        alice.code("tools/list", json!({"cursor": "forged"})).await,
        -32602
    );
    for method in [
        "server/discover",
        "subscriptions/listen",
        "tasks/update",
        "logging/setLevel",
        "resources/subscribe",
        "unknown/method",
        "",
    ] {
        assert_eq!(alice.code(method, json!({})).await, -32601, "{method}");
    }
    for method in ["tasks/get", "tasks/result", "tasks/cancel", "tasks/list"] {
        let older = alice.clone().older();
        assert_eq!(older.code(method, json!({"taskId": "x"})).await, -32601);
    }
    // Of 2025-03-26 only: a batch, and a request that does not name its version.
    let batch = json!([{"jsonrpc": "2.0", "id": 1, "method": "ping"}]).to_string();
    let answer = alice
        .request("ping", json!({}))
        .body(batch)
        .send()
        .await
        .unwrap();
    assert_eq!((answer.status, answer.error_code()), (400, Some(-32600)));
    let nameless = alice.request("tools/list", json!({}));
    let answer = nameless.without_header("mcp-protocol-version").send().await;
    assert_eq!(answer.unwrap().status, 400);
    for version in ["2025-03-26", "2024-11-05", "2025-11-26", "x"] {
        let request = alice.request("tools/list", json!({}));
        let answer = request
            .header("mcp-protocol-version", version)
            .send()
            .await
            .unwrap();
        assert_eq!((answer.status, answer.error_code()), (400, Some(-32022)));
    }
    // The door is the same for all.
    let evil = alice
        .request("ping", json!({}))
        .header("origin", "http://evil.example.com");
    assert_eq!(evil.send().await.unwrap().status, 403);
    let broken = alice
        .request("ping", json!({}))
        .header("authorization", "Basic x");
    let answer = broken.send().await.unwrap();
    assert_eq!(answer.status, 401);
    assert!(answer.header("www-authenticate").starts_with("Bearer"));
}

#[tokio::test]
async fn requests_of_today_are_never_taken_for_older_ones() {
    let world = World::new().await;
    let alice = world.client("alice");
    let id = json!({"taskId": super::UNKNOWN});
    for method in ["initialize", "ping", "tasks/result", "tasks/list"] {
        let answer = alice.request(method, id.clone()).send().await.unwrap();
        assert_eq!(
            (answer.status, answer.error_code()),
            (404, Some(-32601)),
            "{method}"
        );
        // Nor where a header contradicts what the body says of itself.
        for version in [VERSION, OLDER] {
            let request = alice.request(method, id.clone());
            let answer = request.header("mcp-protocol-version", version).send().await;
            assert_eq!(answer.unwrap().status, 404, "{method}");
        }
        let nameless = alice.request(method, id.clone());
        let answer = nameless
            .without_header("mcp-protocol-version")
            .send()
            .await
            .unwrap();
        assert!([400, 404].contains(&answer.status), "{method}");
    }
    let list = alice.request("tools/list", json!({}));
    let answer = list
        .header("mcp-protocol-version", VERSION)
        .send()
        .await
        .unwrap();
    assert_eq!((answer.status, answer.error_code()), (400, Some(-32020)));
    // And what names today's version without `_meta` is judged by today's rules.
    let bare = alice.request("tools/list", json!({})).params(json!({}));
    let answer = bare.send().await.unwrap();
    assert_eq!((answer.status, answer.error_code()), (400, Some(-32602)));
    // A response answers nothing today.
    let response = json!({"jsonrpc": "2.0", "id": format!("{}/k", super::UNKNOWN), "result": {}});
    let answer = alice.request("ping", json!({})).body(response.to_string());
    let answer = answer.send().await.unwrap();
    assert_eq!((answer.status, answer.error_code()), (400, Some(-32600)));
}

#[tokio::test]
async fn switched_off_they_are_told_which_version_is_served() {
    let world = World::with(Config {
        legacy_clients: false,
        ..config()
    })
    .await;
    let alice = Legacy::new(&world, "alice");
    let bare = alice
        .request("initialize", initialize(VERSION))
        .without_header("mcp-protocol-version");
    for request in [
        bare,
        alice.request("initialize", initialize(VERSION)),
        alice.request("tools/list", json!({})),
        alice.request("tasks/list", json!({})),
    ] {
        let answer = request.send().await.unwrap();
        assert_eq!((answer.status, answer.error_code()), (400, Some(-32022)));
        let supported = &answer.error()["data"]["supported"];
        assert_eq!(*supported, json!(["2026-07-28"]));
    }
    let notification = alice.request("notifications/initialized", json!({}));
    let answer = notification.notification().send().await.unwrap();
    assert_eq!(answer.status, 400);
    let response = json!({"jsonrpc": "2.0", "id": "x/y", "result": {}}).to_string();
    let answer = alice
        .request("x", json!({}))
        .body(response)
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status, 400);
    let modern = Client::new(&world.url).discover().await.unwrap();
    assert_eq!(modern["supportedVersions"], json!(["2026-07-28"]));
}

/// Older revisions mirror nothing into headers, so what a header says of the method buys nothing;
/// their reads are refused last all the same.
#[tokio::test]
async fn only_reads_overdraw_an_account() {
    let mut config = config();
    // One a second is so slow that even a busy machine does not fill it.
    config.limits.requests_of_principal_per_second = 1;
    config.limits.requests_of_principal_burst = 20;
    let world = World::with(config).await;
    let alice = Legacy::new(&world, "alice");
    let list = async |params: Value| {
        let request = alice.request("tools/list", params);
        let request = request.header("mcp-method", "tasks/get");
        request.send().await.unwrap().status
    };
    let (started, mut served) = (std::time::Instant::now(), 0);
    while list(json!({})).await == 200 {
        served += 1;
        assert!(served < 1_000, "nobody stops it");
    }
    let filled = started.elapsed().as_secs() + 1;
    assert!((20..=20 + filled).contains(&served), "{served}");
    let (mut reads, mut refused) = (0, 0);
    while alice
        .send("tasks/get", json!({"taskId": UNKNOWN}))
        .await
        .status
        == 200
    {
        reads += 1;
        assert!(reads < 1_000, "nobody stops it");
        // Neither short nor long ones take anything of that.
        let long = "x".repeat(if reads % 2 == 0 { 0 } else { 2_000 });
        refused += u32::from(list(json!({"_meta": {"long": long}})).await == 429);
    }
    assert!(reads >= 20, "{reads}");
    assert!(refused >= 10, "{refused}");
}
