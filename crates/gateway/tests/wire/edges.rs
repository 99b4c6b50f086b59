//! Limits of one request: below, at and above each.

use std::time::Duration;

use harness::client::{Answer, Client, Request};
use harness::proxy::{Mode, Proxy};
use harness::redis::Redis;
use protocol::tools::Tool;
use serde_json::{Value, json};
use store::{ToolPolicy, ToolSpec};

use crate::support::{SECOND, SOON, World, config, migrate, tools};

async fn world() -> World {
    let mut config = config();
    config.limits.body_bytes_max = 2_048;
    config.limits.argument_bytes_max = 300;
    config.limits.depth_max = 12;
    config.limits.id_bytes_max = 40;
    config.limits.idempotency_key_bytes_max = 50;
    config.limits.tool_name_bytes_max = 20;
    config.limits.listen_ids_max = 3;
    config.limits.answer_bytes_max = 200;
    config.limits.header_bytes_max = 8_192;
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

/// Over HTTP/1.1 all of a head counts. It is read in pieces, and one that is larger is surely seen to be
/// when it is twice as large.
#[tokio::test]
async fn heads() {
    let world = world().await;
    for (length, expected) in [(8_191, 405), (8_192, 405), (16_385, 431), (100_000, 431)] {
        let begin = format!("GET /mcp HTTP/1.1\r\nHost: {}\r\n", world.address);
        let end = "Connection: close\r\n\r\n";
        let mut head = begin;
        // Lines of 100 bytes, and a last one that is as long as it takes.
        while head.len() + end.len() + 200 < length {
            head.push_str(&format!("X-Long: {}\r\n", "y".repeat(90)));
        }
        let lacks = length - head.len() - end.len();
        head.push_str(&format!("X-Last: {}\r\n{end}", "y".repeat(lacks - 10)));
        assert_eq!(head.len(), length);
        let answer =
            harness::client::exchange(world.address, head.as_bytes(), crate::support::SOON);
        let answer = answer.await.unwrap();
        let answer = String::from_utf8_lossy(&answer);
        let status = answer.get(9..12).and_then(|status| status.parse().ok());
        assert_eq!(status, Some(expected), "{length} bytes: {answer}");
    }
}

#[tokio::test]
async fn answers() {
    let world = world().await;
    let alice = world.client("alice");
    let answer = |length: usize| {
        // `{"action":"decline","x":"…"}`
        let answer = json!({"action": "decline", "x": "y".repeat(length - 27)});
        assert_eq!(answer.to_string().len(), length);
        answer
    };
    for (length, expected, stored) in [
        (199, (200, None), 1),
        (200, (200, None), 2),
        (201, (200, Some(-32602)), 2),
    ] {
        let task = alice.call("task", json!({})).await.unwrap();
        let id = task["taskId"].as_str().unwrap().parse().unwrap();
        let claim = world.claim_task("task", id).await;
        world.park(&claim, store::ParkedFor::Task, &["k"]).await;
        let params = json!({"taskId": task["taskId"], "inputResponses": {"k": answer(length)}});
        let request = alice.request("tasks/update", params);
        assert_eq!(send(request).await, expected, "{length} bytes");
        let answered = "SELECT count(*) FROM inputs WHERE response IS NOT NULL";
        assert_eq!(world.count(answered).await, stored);
    }
}

#[tokio::test]
async fn idempotency_keys() {
    let world = world().await;
    let alice = world.client("alice");
    let refused = (200, Some(-32602));
    for (length, expected) in [
        (0, refused),
        (1, (200, None)),
        (49, (200, None)),
        (50, (200, None)),
        (51, refused),
    ] {
        let key = "k".repeat(length);
        let request = call(&alice, json!({})).idempotency_key(&key);
        assert_eq!(send(request).await, expected, "{length} bytes");
        // One that the tool names counts as any other.
        let call = json!({"name": "keyed", "arguments": {"order": key}});
        let request = alice.request("tools/call", call);
        assert_eq!(send(request).await, expected, "{length} bytes");
    }
    let answer = call(&alice, json!({})).idempotency_key(&"k".repeat(51));
    let answer = answer.send().await.unwrap();
    let message = answer.error()["message"].to_string();
    assert!(message.contains("1 to 50 bytes"), "{message}");
}

/// As long as is possible.
#[tokio::test]
async fn idempotency_keys_without_settings() {
    let world = World::new().await;
    let alice = world.client("alice");
    for (length, expected) in [
        (254, (200, None)),
        (255, (200, None)),
        (256, (200, Some(-32602))),
    ] {
        let key = "k".repeat(length);
        let request = call(&alice, json!({})).idempotency_key(&key);
        assert_eq!(send(request).await, expected, "{length} bytes");
    }
}

/// What is no id, whatever its length, is an unknown one; its length is that of a body.
#[tokio::test]
async fn ids_of_tasks() {
    let world = world().await;
    let alice = world.client("alice");
    let task = alice.call("task", json!({})).await.unwrap();
    let id = task["taskId"].as_str().unwrap();
    assert_eq!(id.len(), 36);
    for (id, expected) in [
        (id.to_owned(), (200, None)),
        (id[..35].to_owned(), (200, Some(-32602))),
        (format!("{id}0"), (200, Some(-32602))),
        ("0".repeat(1_000), (200, Some(-32602))),
        (String::new(), (200, Some(-32602))),
    ] {
        let request = alice.request("tasks/get", json!({"taskId": id}));
        assert_eq!(send(request).await, expected, "{id}");
    }
}

/// A tool of a name of so many letters, whose calls are tasks at once.
fn named(length: usize) -> ToolSpec {
    let name = "t".repeat(length);
    let definition = Tool::new(&name, &json!({"type": "object"})).with_description("D.");
    let mut spec = ToolSpec::new(definition);
    spec.policy = ToolPolicy {
        inline_budget: Some(Duration::ZERO),
        ..ToolPolicy::default()
    };
    spec
}

/// One with a longer name is not listed, told of as refused, and unknown as any other.
#[tokio::test]
async fn names_of_tools() {
    let world = world().await;
    let alice = world.client("alice");
    let specs = [19, 20, 21].map(named);
    world
        .store
        .register_tools(&specs, 60 * SECOND)
        .await
        .unwrap();
    let refused = async || world.metric("mcp_tasks_gateway_catalogue_refused_tools");
    harness::wait::for_state("one is refused", SOON, refused, |n| *n > 0.5)
        .await
        .unwrap();
    let listed = alice.list().await.unwrap();
    let listed = |length: usize| {
        let name = "t".repeat(length);
        listed.iter().any(|tool| tool["name"] == name.as_str())
    };
    assert_eq!([19, 20, 21].map(listed), [true, true, false]);
    for (length, expected) in [
        (19, (200, None)),
        (20, (200, None)),
        (21, (200, Some(-32602))),
        (128, (200, Some(-32602))),
        (129, (200, Some(-32602))),
        (1_000, (200, Some(-32602))),
    ] {
        let request = alice.request("tools/call", json!({"name": "t".repeat(length)}));
        assert_eq!(send(request).await, expected, "{length} letters");
    }
}

/// Nobody looks in Postgres for what has a longer name.
#[tokio::test]
async fn names_that_no_tool_has_are_not_looked_for() {
    let database = harness::postgres::test_database(migrate).await.unwrap();
    // postgresql://user@127.0.0.1:PORT/name
    let (_, rest) = database.url().split_once("127.0.0.1:").unwrap();
    let port: String = rest.chars().take_while(char::is_ascii_digit).collect();
    let proxy = Proxy::to_port(port.parse().unwrap()).await.unwrap();
    let redis = Redis::temporary().await.unwrap();
    let url = proxy.through(database.url());
    let mut config = config();
    config.limits.tool_name_bytes_max = 20;
    let world = World::over(config, database, redis, &url).await;
    let alice = world.client("alice");
    proxy.set(Mode::Cut);
    for (length, expected) in [
        (21, (200, Some(-32602))),
        (20, (503, Some(-32603))),
        (19, (503, Some(-32603))),
    ] {
        let request = alice.request("tools/call", json!({"name": "t".repeat(length)}));
        assert_eq!(send(request).await, expected, "{length} letters");
    }
}

/// As long as MCP allows.
#[tokio::test]
async fn names_of_tools_without_settings() {
    let fits = |length| named(length).definition.check().is_ok();
    assert_eq!(
        [0, 1, 127, 128, 129].map(fits),
        [false, true, true, true, false]
    );
    let world = World::new().await;
    let alice = world.client("alice");
    let specs = [127, 128].map(named);
    world
        .store
        .register_tools(&specs, 60 * SECOND)
        .await
        .unwrap();
    let listed = async || alice.list().await.unwrap().len();
    harness::wait::for_state("both are listed", SOON, listed, |n| *n == tools().len() + 2)
        .await
        .unwrap();
    for (length, expected) in [
        (127, (200, None)),
        (128, (200, None)),
        (129, (200, Some(-32602))),
    ] {
        let request = alice.request("tools/call", json!({"name": "t".repeat(length)}));
        assert_eq!(send(request).await, expected, "{length} letters");
    }
}

/// Keys that are long enough are tokens of just that length.
#[tokio::test]
async fn tokens() {
    use sha2::{Digest as _, Sha256};
    let key = |length: usize| format!("mtk_{}", "k".repeat(length - 4));
    let entry = |length: usize| {
        let hash: String = Sha256::digest(key(length))
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();
        format!("[[key]]\nsha256 = \"{hash}\"\nsubject = \"s{length}\"\n")
    };
    let files = tempfile::tempdir().unwrap();
    for max in [300, 8_192] {
        let lengths = [max - 1, max, max + 1];
        let file = files.path().join(format!("{max}.toml"));
        std::fs::write(&file, lengths.map(entry).concat()).unwrap();
        let auth = gateway::auth::Config {
            mode: Some(gateway::auth::Mode::Tokens),
            api_keys_file: Some(file),
            ..gateway::auth::Config::default()
        };
        let mut config = config();
        if max != config.limits.token_bytes_max {
            config.limits.token_bytes_max = max;
        }
        let world = World::guarded(config, auth).await;
        for (length, expected) in lengths.into_iter().zip([200, 200, 401]) {
            let client = world.client(&key(length));
            let (status, _) = send(client.request("server/discover", json!({}))).await;
            assert_eq!(status, expected, "{length} bytes of {max}");
        }
    }
}
