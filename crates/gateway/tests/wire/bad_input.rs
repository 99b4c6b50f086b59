//! Input that no honest client sends: none of it costs a panic, a leak or a 500.

use std::time::Duration;

use harness::client::{Socket, exchange};
use protocol::TaskId;
use protocol::callback::{Keys, Ticket};
use serde_json::json;

use crate::support::{KEY, SECOND, SOON, World, config};

fn head(world: &World, length: usize) -> String {
    format!(
        "POST /mcp HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n",
        world.address
    )
}

/// Nothing panicked, nothing failed, nothing is left open, and it still serves.
async fn unharmed(world: &World) {
    let answer = world.client("alice").discover().await.unwrap();
    assert_eq!(answer["resultType"], "complete");
    let text = world.registry.render();
    let mut internal = text
        .lines()
        .filter(|line| line.contains("outcome=\"internal\""));
    assert!(internal.all(|line| line.ends_with(" 0")), "{text}");
    assert!(world.metric("mcp_tasks_gateway_panics_total") < 0.5);
}

#[tokio::test]
async fn bytes_that_are_no_message() {
    let world = World::new().await;
    let alice = world.client("alice");
    let long_id = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":\"{}\",\"method\":\"x\"}}",
        "i".repeat(10_240)
    );
    let deep = |open: &str, close: &str, n: usize| {
        let (open, close) = (open.repeat(n), close.repeat(n));
        format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\",\"params\":{{\"a\":{open}1{close}}}}}"
        )
    };
    let bodies: Vec<Vec<u8>> = vec![
        b"\xff\xfe{\"jsonrpc\":\"2.0\"}".to_vec(),
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xc3\x28\"}".to_vec(),
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"id\":2,\"method\":\"x\"}".to_vec(),
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\",\"method\":\"y\"}".to_vec(),
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\",\"\\u006dethod\":\"y\"}".to_vec(),
        b"{\"jsonrpc\":\"2.0\",\"id\":1e400,\"method\":\"x\"}".to_vec(),
        long_id.into_bytes(),
        deep("[", "]", 65).into_bytes(),
        deep("[", "]", 100_000).into_bytes(),
        deep("{\"a\":", "}", 100_000).into_bytes(),
        "[".repeat(1_000_000).into_bytes(),
        "{\"a\":".repeat(500_000).into_bytes(),
        vec![0; 1000],
        b"\"\\ud800\"".to_vec(),
    ];
    for body in bodies {
        let shown = String::from_utf8_lossy(&body[..body.len().min(80)]).into_owned();
        let answer = alice
            .request("server/discover", json!({}))
            .body(body)
            .send()
            .await
            .unwrap();
        assert_eq!(answer.status, 400, "{shown}: {:?}", answer.message);
        let code = answer.error_code();
        assert!(
            matches!(code, Some(-32700 | -32600)),
            "{shown}: {:?}",
            answer.message
        );
    }
    unharmed(&world).await;
}

#[tokio::test]
async fn ids_come_back_as_they_were_sent() {
    let world = World::new().await;
    let alice = world.client("alice");
    for id in [
        "0",
        "-1",
        "9007199254740993",
        "123456789012345678901234567890",
        "\"\"",
        "\"\\u0061\\n\"",
        "\"☃\"",
    ] {
        let request = alice
            .request("server/discover", json!({}))
            .id(json!("THE-ID"));
        let body = String::from_utf8(request.bytes().to_vec())
            .unwrap()
            .replace("\"THE-ID\"", id);
        let answer = request.body(body).send().await.unwrap();
        assert_eq!(answer.status, 200, "{id}");
        let text = String::from_utf8(answer.body.to_vec()).unwrap();
        assert!(text.contains(&format!("\"id\":{id},")), "{id}: {text}");
    }
    let longest = "i".repeat(1022);
    let answer = alice
        .request("server/discover", json!({}))
        .id(json!(longest))
        .send();
    assert_eq!(answer.await.unwrap().message["id"], longest);
}

#[tokio::test]
async fn unknown_fields_everywhere_are_ignored() {
    let world = World::new().await;
    let alice = world.client("alice");
    let request = alice
        .request(
            "tools/list",
            json!({"unknown": {"a": [1]}, "task": {"ttl": 1}}),
        )
        .meta("example.com/unknown", json!({"x": 1}))
        .meta("io.modelcontextprotocol/logLevel", json!("debug"))
        .header("mcp-session-id", "s")
        .header("last-event-id", "7")
        .header("x-unknown", "y");
    let body = String::from_utf8(request.bytes().to_vec()).unwrap();
    let body = body.replacen('{', "{\"unknown\":true,", 1);
    let answer = request.body(body).send().await.unwrap();
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("mcp-session-id"), "", "never echoed");
    let client = alice.capabilities(json!({
        "unknown": {}, "extensions": {"example.com/x": {"y": 1}, "io.modelcontextprotocol/tasks": {"z": 1}},
    }));
    let task = client
        .request("tools/call", json!({"name": "task", "arguments": {"any": {"thing": []}}, "task": {"ttl": 60}, "x": 1}))
        .send()
        .await
        .unwrap()
        .into_result()
        .unwrap();
    assert_eq!(task["resultType"], "task");
    let params = json!({"taskId": task["taskId"], "x": 1});
    let answer = client.request("tasks/get", params).send().await.unwrap();
    assert_eq!(answer.status, 200);
    unharmed(&world).await;
}

#[tokio::test]
async fn slow_and_broken_bodies() {
    let mut config = config();
    config.limits.body_read_timeout = Duration::from_millis(500);
    config.limits.header_read_timeout = SECOND;
    let world = World::with(config).await;

    let mut slow = Socket::connect(world.address).await.unwrap();
    slow.write(format!("{}\r\n{{", head(&world, 1000)).as_bytes())
        .await
        .unwrap();
    let answer = String::from_utf8(slow.read_to_end(SOON).await).unwrap();
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(
        answer.to_lowercase().contains("connection: close"),
        "{answer}"
    );

    // Whoever goes on saying a little has no more time: neither for a body nor for a head.
    for begin in [format!("{}\r\n", head(&world, 1000)), head(&world, 1000)] {
        let mut dripping = Socket::connect(world.address).await.unwrap();
        dripping.write(begin.as_bytes()).await.unwrap();
        let begun = std::time::Instant::now();
        let ended = loop {
            let slowly = dripping.write_slowly(b"x: x\r\n", Duration::from_millis(20));
            if slowly.await.is_err() {
                break begun.elapsed();
            }
            assert!(begun.elapsed() < 20 * SECOND, "it may drip for ever");
        };
        assert!(ended > Duration::from_millis(300), "it had {ended:?}");
    }
    // Whoever is slow, but done in time, is served.
    let first = format!("{}Connection: close\r\n", head(&world, 2));
    let rest = "\r\n{}";
    for at in [20, first.len() + 3] {
        let whole = format!("{first}{rest}");
        let mut slow = Socket::connect(world.address).await.unwrap();
        slow.write(&whole.as_bytes()[..at]).await.unwrap();
        tokio::time::sleep(Duration::from_millis(250)).await;
        slow.write(&whole.as_bytes()[at..]).await.unwrap();
        let answer = String::from_utf8(slow.read_to_end(SOON).await).unwrap();
        // An empty object is no request, which is found out by reading it.
        assert!(answer.contains("-32600"), "{answer}");
    }

    // Closed half way, with and without the half that listens.
    let mut half = Socket::connect(world.address).await.unwrap();
    half.write(format!("{}\r\n{{\"json", head(&world, 1000)).as_bytes())
        .await
        .unwrap();
    half.half_close().await.unwrap();
    let answer = String::from_utf8(half.read_to_end(SOON).await).unwrap();
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 400 "),
        "{answer}"
    );
    let mut gone = Socket::connect(world.address).await.unwrap();
    gone.write(format!("{}\r\n{{", head(&world, 1000)).as_bytes())
        .await
        .unwrap();
    drop(gone);

    // No head, half a head, silence, half of HTTP/2's greeting.
    for greeting in ["", "POST /mcp HTT", "PRI * HTTP/2.0\r\n"] {
        let mut silent = Socket::connect(world.address).await.unwrap();
        silent.write(greeting.as_bytes()).await.unwrap();
        let begun = std::time::Instant::now();
        silent.read_to_end(SOON).await;
        assert!(begun.elapsed() < 5 * SECOND, "{greeting:?} was waited for");
    }
    let connections = async || world.metric("mcp_tasks_gateway_connections");
    harness::wait::for_state("no connection is left", SOON, connections, |n| *n < 0.5)
        .await
        .unwrap();
    unharmed(&world).await;
}

#[tokio::test]
async fn heads_that_no_library_sends() {
    let world = World::new().await;
    let discover = "{}";
    for (bytes, statuses) in [
        ("GARBAGE\r\n\r\n".to_owned(), &[400][..]),
        (
            format!("{}X: {}\r\n\r\n", head(&world, 2), "y".repeat(100_000)),
            &[431, 400],
        ),
        (
            format!("{}Content-Length: 3\r\n\r\n{discover}", head(&world, 2)),
            &[400],
        ),
        (
            format!(
                "{}Host: evil\r\nConnection: close\r\n\r\n{discover}",
                head(&world, 2)
            ),
            &[403],
        ),
        (
            "POST /mcp HTTP/1.1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_owned(),
            &[403],
        ),
        ("POST /mcp HTTP/1.0\r\n\r\n".to_owned(), &[403]),
        (
            format!("{}Origin: \u{1}\r\n\r\n{discover}", head(&world, 2)),
            &[400, 403],
        ),
        (
            format!(
                "{}Transfer-Encoding: chunked\r\nConnection: close\r\n\r\nzz\r\n",
                head(&world, 2)
            ),
            &[400],
        ),
        (
            format!(
                "{}Authorization: Bearer a\r\nAuthorization: Bearer b\r\nConnection: close\r\n\r\n{discover}",
                head(&world, 2)
            ),
            &[400],
        ),
    ] {
        let answer = exchange(world.address, bytes.as_bytes(), 3 * SECOND)
            .await
            .unwrap();
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let status: u16 = answer.get(9..12).and_then(|s| s.parse().ok()).unwrap_or(0);
        let shown = &bytes[..bytes.len().min(120)];
        assert!(statuses.contains(&status), "{shown:?}: {answer}");
    }
    // Many clients read nothing before they have sent everything: a body that is larger than it
    // may be is read away, so that they get their answer and no broken pipe.
    let six_mib = " ".repeat(0x60_0000);
    let chunked = head(&world, 0).replace("Content-Length: 0", "Transfer-Encoding: chunked");
    for sent in [
        format!("{}\r\n{six_mib}", head(&world, six_mib.len())),
        format!("{chunked}\r\n600000\r\n{six_mib}\r\n0\r\n\r\n"),
    ] {
        let mut socket = Socket::connect(world.address).await.unwrap();
        socket.write(sent.as_bytes()).await.unwrap();
        let answer = String::from_utf8_lossy(&socket.read_to_end(SOON).await).into_owned();
        assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    }
    unharmed(&world).await;
}

#[tokio::test]
async fn a_flood_of_refusals_leaks_nothing() {
    let world = World::new().await;
    let alice = world.client("alice");
    for n in 0..300 {
        let request = alice.request("tools/call", json!({"name": format!("none{n}")}));
        assert_eq!(request.send().await.unwrap().error_code(), Some(-32602));
    }
    assert!(world.metric("mcp_tasks_gateway_held_calls") < 0.5);
    let rendered = world.registry.render();
    assert!(!rendered.contains("none1"), "what clients send is no label");
    unharmed(&world).await;
}

/// It is read away like a body at the endpoint: who sends everything first gets the answer, too.
#[tokio::test]
async fn a_callback_that_is_too_large_and_does_not_say_so() {
    const BYTES: usize = 8 * 1024 * 1024;
    let world = World::new().await;
    let ticket = Ticket {
        task: TaskId::new(0),
        key: "call".to_owned(),
        expires_ms: i64::MAX,
    };
    let keys = Keys::read(&[KEY.to_owned()]).unwrap();
    let token = keys.sign(&ticket, "").unwrap();
    let head = format!(
        "POST /callbacks/{token} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
         Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n{BYTES:x}\r\n",
        world.address
    );
    let mut request = head.into_bytes();
    request.resize(request.len() + BYTES, b' ');
    request.extend_from_slice(b"\r\n0\r\n\r\n");
    let answer = exchange(world.address, &request, SOON).await.unwrap();
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    unharmed(&world).await;
}
