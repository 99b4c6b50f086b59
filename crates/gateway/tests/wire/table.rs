//! Every row of the error table, in the order in which requests are judged.

use harness::client::{Answer, Client};
use http::Method;
use serde_json::{Value, json};

use crate::support::{World, config};

const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";

fn expect(answer: &Answer, status: u16, code: i64) -> &Value {
    let got = (answer.status, answer.error_code());
    assert_eq!(got, (status, Some(code)), "{:?}", answer.message);
    assert_eq!(answer.header("content-type"), "application/json");
    assert!(!answer.body.contains(&b'\n'), "one line");
    answer.error()
}

fn call<'a>(client: &'a Client, tool: &str) -> harness::client::Request<'a> {
    client
        .request("tools/call", json!({"name": tool, "arguments": {}}))
        .id(json!("c-1"))
}

#[tokio::test]
async fn http_itself() {
    let world = World::new().await;
    let alice = world.client("alice");
    let discover = || alice.request("server/discover", json!({}));
    for method in [Method::GET, Method::DELETE, Method::PUT, Method::OPTIONS] {
        let answer = discover().http_method(method).send().await.unwrap();
        assert_eq!((answer.status, answer.header("allow")), (405, "POST"));
    }
    let elsewhere = alice.at(&world.url.replace("/mcp", "/other"));
    let answer = elsewhere
        .request("server/discover", json!({}))
        .send()
        .await
        .unwrap();
    expect(&answer, 404, 404);

    let big = vec![b' '; 4 * 1024 * 1024 + 1];
    expect(&discover().body(big).send().await.unwrap(), 413, 413);
    for kind in ["text/plain", "application/x-www-form-urlencoded"] {
        let answer = discover()
            .header("content-type", kind)
            .send()
            .await
            .unwrap();
        assert!(
            answer.message.get("id").is_none(),
            "no id was read: {:?}",
            answer.message
        );
        expect(&answer, 415, 415);
    }
    let answer = discover()
        .without_header("content-type")
        .send()
        .await
        .unwrap();
    expect(&answer, 415, 415);
}

#[tokio::test]
async fn origin_and_host() {
    let world = World::new().await;
    let alice = world.client("alice");
    let discover = || alice.request("server/discover", json!({}));
    let evil = discover().header("origin", "http://evil.example.com");
    expect(&evil.send().await.unwrap(), 403, 403);
    let rebound = discover().header("host", "evil.example.com");
    expect(&rebound.send().await.unwrap(), 403, 403);
    let port = world.address.port();
    for own in [
        format!("http://127.0.0.1:{port}"),
        format!("http://localhost:{port}"),
    ] {
        let answer = discover().header("origin", own).send().await.unwrap();
        assert_eq!(answer.status, 200);
    }
}

#[tokio::test]
async fn who_calls() {
    let world = World::new().await;
    let nobody = Client::new(&world.url);
    let answer = nobody
        .request("server/discover", json!({}))
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status, 200, "without a token: anonymous");
    for (bad, is_bearer) in [
        ("Basic YTpi", false),
        ("alice", false),
        ("Bearer", true),
        ("Bearer a b", true),
    ] {
        let request = nobody
            .request("server/discover", json!({}))
            .header("authorization", bad);
        let answer = request.send().await.unwrap();
        expect(&answer, 401, 401);
        // In development there is no authorization server to be sent to; and who knows no token yet
        // made no mistake with one (RFC 6750 §3.1).
        let challenge = answer.header("www-authenticate");
        if is_bearer {
            assert!(
                challenge.starts_with("Bearer error=\"invalid_token\""),
                "{bad}: {challenge}"
            );
        } else {
            assert_eq!(challenge, "Bearer", "{bad}");
        }
    }
}

#[tokio::test]
async fn json_and_its_shape() {
    let world = World::new().await;
    let alice = world.client("alice");
    let discover = || alice.request("server/discover", json!({}));
    for (body, code, id) in [
        ("", -32700, Value::Null),
        ("{", -32700, Value::Null),
        ("nonsense", -32700, Value::Null),
        (
            r#"[{"jsonrpc":"2.0","id":1,"method":"server/discover"}]"#,
            -32600,
            Value::Null,
        ),
        (r#""text""#, -32600, Value::Null),
        (
            r#"{"jsonrpc":"2.0","id":null,"method":"server/discover"}"#,
            -32600,
            Value::Null,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1.5,"method":"server/discover"}"#,
            -32600,
            Value::Null,
        ),
        (
            r#"{"jsonrpc":"2.0","id":true,"method":"server/discover"}"#,
            -32600,
            Value::Null,
        ),
        (r#"{"jsonrpc":"2.0","id":7,"result":{}}"#, -32600, json!(7)),
        (
            r#"{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"x"}}"#,
            -32600,
            json!(7),
        ),
        (
            r#"{"jsonrpc":"1.0","id":"x","method":"server/discover"}"#,
            -32600,
            json!("x"),
        ),
        (r#"{"jsonrpc":"2.0","id":"x"}"#, -32600, json!("x")),
        (
            r#"{"jsonrpc":"2.0","id":"x","method":1}"#,
            -32600,
            json!("x"),
        ),
        (
            r#"{"jsonrpc":"2.0","id":"x","method":"server/discover","params":[]}"#,
            -32600,
            json!("x"),
        ),
    ] {
        let answer = discover().body(body).send().await.unwrap();
        expect(&answer, 400, code);
        assert_eq!(answer.message["id"], id, "{body}");
        assert_eq!(
            answer.message.get("id").is_none(),
            id.is_null(),
            "never `id: null`: {body}"
        );
    }
}

#[tokio::test]
async fn legacy_clients_are_told_which_versions_there_are() {
    let settings = gateway::Config {
        legacy_clients: false,
        ..config()
    };
    let world = World::with(settings).await;
    let alice = world.client("alice");
    let initialize = alice
        .request("initialize", json!({}))
        .params(json!({"protocolVersion": "2025-11-25", "capabilities": {}}));
    let legacy = initialize.clone().without_header("mcp-protocol-version");
    let legacy = legacy.without_header("mcp-method");
    let answer = legacy.send().await.unwrap();
    let error = expect(&answer, 400, -32022);
    assert_eq!(
        error["data"],
        json!({"supported": ["2026-07-28"], "requested": "2025-11-25"})
    );
    assert!(error["message"].as_str().unwrap().contains("2026-07-28"));

    let old = alice.request("tools/list", json!({})).params(json!({}));
    let old = old
        .header("mcp-protocol-version", "2025-11-25")
        .without_header("mcp-method");
    let answer = old.send().await.unwrap();
    assert_eq!(
        expect(&answer, 400, -32022)["data"]["requested"],
        "2025-11-25"
    );

    // With the header and `_meta` it is a method like any other that we don't serve.
    let modern = alice.request("initialize", json!({})).send().await.unwrap();
    expect(&modern, 404, -32601);
}

#[tokio::test]
async fn the_method_header() {
    let world = World::new().await;
    let alice = world.client("alice");
    let list = || alice.request("tools/list", json!({})).id(json!(5));
    for request in [
        list().without_header("mcp-method"),
        list().header("mcp-method", "tools/call"),
        list().header("mcp-method", "TOOLS/LIST"),
        list().header("mcp-method", "tools/l\u{ef}st"),
    ] {
        let answer = request.send().await.unwrap();
        expect(&answer, 400, -32020);
        assert_eq!(answer.message["id"], 5);
    }
    let padded = list()
        .header("MCP-METHOD", "tools/list ")
        .send()
        .await
        .unwrap();
    assert_eq!(padded.status, 200);
}

#[tokio::test]
async fn unknown_methods() {
    let world = World::new().await;
    let alice = world.client("alice");
    for method in [
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
        "resources/list",
        "prompts/list",
        "tasks/result",
        "tasks/list",
        "unknown/method",
        "",
    ] {
        let answer = alice
            .request(method, json!({"taskId": "x"}))
            .send()
            .await
            .unwrap();
        expect(&answer, 404, -32601);
    }
}

#[tokio::test]
async fn meta() {
    let world = World::new().await;
    let alice = world.client("alice");
    let discover = || alice.request("server/discover", json!({})).id(json!(101));
    for request in [
        discover().params(json!({})),
        discover().params(json!({"_meta": null})),
        discover().params(json!({"_meta": []})),
        discover().without_meta(VERSION_KEY),
        discover().without_meta(CAPABILITIES_KEY),
        discover().meta(VERSION_KEY, json!(1)),
        discover().meta(CAPABILITIES_KEY, json!([])),
    ] {
        let answer = request.send().await.unwrap();
        expect(&answer, 400, -32602);
        assert_eq!(answer.message["id"], 101);
    }
    let without_info = discover().without_meta("io.modelcontextprotocol/clientInfo");
    assert_eq!(without_info.send().await.unwrap().status, 200);
}

#[tokio::test]
async fn versions() {
    let world = World::new().await;
    let alice = world.client("alice");
    let discover = || alice.request("server/discover", json!({})).id(json!(301));
    let both = discover()
        .meta(VERSION_KEY, json!("v999.0.0"))
        .header("mcp-protocol-version", "v999.0.0");
    let answer = both.send().await.unwrap();
    let error = expect(&answer, 400, -32022);
    assert_eq!(
        error["data"],
        json!({"supported": ["2026-07-28"], "requested": "v999.0.0"})
    );
    for request in [
        discover().meta(VERSION_KEY, json!("v999.0.0")),
        discover().header("mcp-protocol-version", "v999.0.0"),
        discover().without_header("mcp-protocol-version"),
    ] {
        expect(&request.send().await.unwrap(), 400, -32020);
    }
}

#[tokio::test]
async fn the_name_header() {
    let world = World::new().await;
    let alice = world.client("alice");
    for request in [
        call(&alice, "strict").without_header("mcp-name"),
        call(&alice, "strict").header("mcp-name", "call"),
        call(&alice, "strict").header("mcp-name", "=?base64?c3RyaWN0?"),
        call(&alice, "strict").header("mcp-name", "=?base64?!!?="),
        call(&alice, "strict").header("mcp-name", "STRICT"),
    ] {
        expect(&request.send().await.unwrap(), 400, -32020);
    }
    for good in ["  strict  ", "=?base64?c3RyaWN0?="] {
        let answer = call(&alice, "strict")
            .header("mcp-name", good)
            .send()
            .await
            .unwrap();
        assert_eq!((answer.status, answer.error_code()), (200, None));
    }
    // On tasks a missing one is served, a wrong one is not.
    let id = "0198c0de-0000-7000-8000-000000000000";
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let params = json!({"taskId": id, "inputResponses": {}});
        let request = || alice.request(method, params.clone());
        let missing = request().without_header("mcp-name").send().await.unwrap();
        expect(&missing, 200, -32602);
        let wrong = request().header("mcp-name", "other").send().await.unwrap();
        expect(&wrong, 400, -32020);
        let series = format!("mcp_tasks_gateway_missing_mcp_name_total{{method=\"{method}\"}}");
        assert!((world.metric(&series) - 1.0).abs() < 0.1, "{series}");
    }
}

#[tokio::test]
async fn capabilities() {
    let world = World::new().await;
    let undeclared = world.client("alice").undeclared();
    let tasks = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
    // Before the id is looked at.
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let answer = undeclared
            .request(method, json!({"taskId": "gate-test"}))
            .send();
        let answer = answer.await.unwrap();
        assert_eq!(
            expect(&answer, 400, -32021)["data"]["requiredCapabilities"],
            tasks
        );
    }
    let listen = undeclared.request(
        "subscriptions/listen",
        json!({"notifications": {"taskIds": []}}),
    );
    expect(&listen.send().await.unwrap(), 400, -32021);
    let answer = call(&undeclared, "only_task").send().await.unwrap();
    assert_eq!(
        expect(&answer, 400, -32021)["data"]["requiredCapabilities"],
        tasks
    );
    let nothing = world.client("alice").capabilities(json!({}));
    let answer = call(&nothing, "needs_sampling").send().await.unwrap();
    let needed = &expect(&answer, 400, -32021)["data"]["requiredCapabilities"];
    assert_eq!(*needed, json!({"sampling": {}}));
    // A declaration in another place does not count.
    for elsewhere in [
        json!({"io.modelcontextprotocol/tasks": {}}),
        json!({"tasks": {}}),
        json!({"extensions": {"io.modelcontextprotocol/tasks": true}}),
    ] {
        let client = world.client("alice").capabilities(elsewhere);
        expect(
            &client
                .request("tasks/get", json!({"taskId": "x"}))
                .send()
                .await
                .unwrap(),
            400,
            -32021,
        );
    }
}

#[tokio::test]
async fn params() {
    let world = World::new().await;
    let alice = world.client("alice");
    let call = |params: Value| alice.request("tools/call", params);
    for params in [
        json!({}),
        json!({"name": null}),
        json!({"name": 1}),
        json!({"name": "no_such_tool"}),
        json!({"name": ""}),
        json!({"name": "call", "arguments": []}),
        json!({"name": "call", "arguments": "x"}),
        json!({"name": "call", "inputResponses": []}),
        json!({"name": "call", "requestState": 1}),
        json!({"name": "call", "requestState": "forged"}),
        json!({"name": "call", "idempotencyKey": ""}),
        json!({"name": "call", "idempotencyKey": "k".repeat(300)}),
        json!({"name": "small", "arguments": {"x": "y".repeat(100)}}),
    ] {
        let answer = call(params.clone()).send().await.unwrap();
        assert_eq!(
            (answer.status, answer.error_code()),
            (200, Some(-32602)),
            "{params}"
        );
    }
    for (method, params) in [
        ("tasks/get", json!({})),
        ("tasks/get", json!({"taskId": 1})),
        ("tasks/cancel", json!({"taskId": null})),
        ("tasks/update", json!({"taskId": "x"})),
        ("tasks/update", json!({"taskId": "x", "inputResponses": []})),
        ("tools/list", json!({"cursor": 1})),
        ("tools/list", json!({"cursor": "☃"})),
        ("tools/list", json!({"cursor": ""})),
        ("subscriptions/listen", json!({})),
        (
            "subscriptions/listen",
            json!({"notifications": {"toolsListChanged": 1}}),
        ),
        (
            "subscriptions/listen",
            json!({"notifications": {"taskIds": "x"}}),
        ),
        (
            "subscriptions/listen",
            json!({"notifications": {"taskIds": vec!["x"; 101]}}),
        ),
    ] {
        let answer = alice.request(method, params.clone()).send().await.unwrap();
        assert_eq!(
            (answer.status, answer.error_code()),
            (200, Some(-32602)),
            "{method} {params}"
        );
    }
    assert_eq!(
        world.count("SELECT count(*) FROM tasks").await,
        0,
        "nothing was created"
    );
}

#[tokio::test]
async fn listens_need_a_client_that_reads_streams() {
    let world = World::new().await;
    let alice = world.client("alice");
    let params = json!({"notifications": {"toolsListChanged": true}});
    let listen = || alice.request("subscriptions/listen", params.clone());
    let answer = listen()
        .header("accept", "application/json")
        .send()
        .await
        .unwrap();
    expect(&answer, 406, 406);
    let answer = listen().without_header("accept").send().await.unwrap();
    expect(&answer, 406, 406);
}

#[tokio::test]
async fn param_headers() {
    let world = World::new().await;
    let alice = world.client("alice");
    let call = |arguments: Value| {
        // Refused after the headers are judged, so that nothing waits for a worker.
        let params = json!({"name": "region", "arguments": arguments, "requestState": "forged"});
        alice.request("tools/call", params)
    };
    let hello = || call(json!({"region": "Hello"}));
    for (request, code) in [
        (hello().header("mcp-param-region", "Hello"), -32602),
        (
            hello().header("MCP-PARAM-REGION", " =?base64?SGVsbG8=?= "),
            -32602,
        ),
        (
            hello()
                .header("mcp-param-unknown", "x")
                .header("mcp-param-region", "Hello"),
            -32602,
        ),
        (call(json!({})), -32602),
        (call(json!({"region": null})), -32602),
        (
            call(json!({"count": 42})).header("mcp-param-count", "42.0"),
            -32602,
        ),
        (hello(), -32020),
        (hello().header("mcp-param-region", "hello"), -32020),
        (
            hello().header("mcp-param-region", "=?base64?SGVsbG8?="),
            -32020,
        ),
        (
            hello().header("mcp-param-region", "=?base64?SGVs!!!bG8=?="),
            -32020,
        ),
        (call(json!({})).header("mcp-param-region", "Hello"), -32020),
        (
            call(json!({"count": 42})).header("mcp-param-count", "43"),
            -32020,
        ),
    ] {
        let answer = request.send().await.unwrap();
        let status = if code == -32020 { 400 } else { 200 };
        assert_eq!((answer.status, answer.error_code()), (status, Some(code)));
    }
}

#[tokio::test]
async fn arguments_that_violate_the_schema_are_a_result() {
    let world = World::new().await;
    let alice = world.client("alice");
    for arguments in [
        json!({}),
        json!({"month": "july"}),
        json!({"month": "may", "x": 1}),
    ] {
        let result = alice.call("strict", arguments).await.unwrap();
        assert_eq!(
            (&result["resultType"], &result["isError"]),
            (&json!("complete"), &json!(true))
        );
        let text = result["content"][0]["text"].as_str().unwrap();
        assert!(text.contains("Invalid arguments"), "{text}");
    }
    // A number that no double holds.
    let request = alice.request("tools/call", json!({"name": "call"}));
    let body = String::from_utf8(request.bytes().to_vec()).unwrap();
    let body = body.replace(
        "\"name\":\"call\"",
        "\"name\":\"call\",\"arguments\":{\"x\":1e999}",
    );
    let result = request
        .body(body)
        .send()
        .await
        .unwrap()
        .into_result()
        .unwrap();
    assert_eq!(result["isError"], true);
    assert_eq!(world.count("SELECT count(*) FROM tasks").await, 0);
}

#[tokio::test]
async fn notifications_are_accepted() {
    let world = World::new().await;
    let alice = world.client("alice");
    let cancelled = || {
        let params = json!({"requestId": 1});
        alice
            .request("notifications/cancelled", params)
            .notification()
    };
    let answer = cancelled().send().await.unwrap();
    assert_eq!((answer.status, answer.body.len()), (202, 0));
    let answer = cancelled()
        .without_header("mcp-method")
        .send()
        .await
        .unwrap();
    expect(&answer, 400, -32020);
    let answer = cancelled()
        .header("mcp-protocol-version", "v999")
        .send()
        .await
        .unwrap();
    expect(&answer, 400, -32022);
}

#[tokio::test]
async fn more_than_it_may_hold() {
    let mut config = crate::support::config();
    config.limits.held_calls_max = 1;
    config.limits.listens_max = 1;
    let world = World::with(config).await;
    let alice = world.client("alice");
    let undeclared = world.client("alice").undeclared();
    let _held = call(&undeclared, "inline").stream().await.unwrap();
    let answer = call(&undeclared, "inline").send().await.unwrap();
    let error = expect(&answer, 429, 429);
    assert_eq!(error["data"]["retryAfterSeconds"], 1);
    assert_eq!(answer.header("retry-after"), "1");
    // Who can be given a handle is.
    let handle = alice.call("call", json!({})).await.unwrap();
    assert_eq!(handle["resultType"], "task");

    let _listen = alice
        .listen(json!({"toolsListChanged": true}))
        .await
        .unwrap();
    let listen = json!({"notifications": {"toolsListChanged": true}});
    let answer = alice
        .request("subscriptions/listen", listen)
        .send()
        .await
        .unwrap();
    expect(&answer, 429, 429);
}
