//! Requests whose end two readers may see in two places, and requests that name two targets: whatever
//! stands in front of us, nobody's request may hide in another one's.

use harness::client::exchange;

use crate::support::{SECOND, SOON, World};

/// The statuses of all answers that came.
fn statuses(answer: &[u8]) -> Vec<u16> {
    let text = String::from_utf8_lossy(answer).into_owned();
    let heads = text.split("HTTP/1.1 ").skip(1);
    heads
        .filter_map(|head| head.get(..3)?.parse().ok())
        .collect()
}

fn hidden(host: &str) -> String {
    format!("GET /hidden HTTP/1.1\r\nHost: {host}\r\n\r\n")
}

/// What is hidden in a body is never answered as a request: 404 would be the answer to it.
#[tokio::test]
async fn no_request_hides_in_a_body() {
    let world = World::new().await;
    let host = world.address.to_string();
    let hidden = hidden(&host);
    let begin = |more: &str| {
        format!(
            "POST /mcp HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n{more}\r\n"
        )
    };
    let chunked = "Transfer-Encoding: chunked\r\n";
    let cases = [
        // Chunked and a length, in both orders, with nothing and with all of the rest as the body.
        (
            begin(&format!("Content-Length: 4\r\n{chunked}")),
            format!("0\r\n\r\n{hidden}"),
        ),
        (
            begin(&format!("{chunked}Content-Length: 4\r\n")),
            format!("0\r\n\r\n{hidden}"),
        ),
        // Two lengths, in two headers and in one.
        (
            begin("Content-Length: 0\r\nContent-Length: 60\r\n"),
            hidden.clone(),
        ),
        (
            begin("Content-Length: 60\r\nContent-Length: 0\r\n"),
            hidden.clone(),
        ),
        (begin("Content-Length: 0, 60\r\n"), hidden.clone()),
        // Lengths that are no numbers.
        (begin("Content-Length: +0\r\n"), hidden.clone()),
        (begin("Content-Length: -1\r\n"), hidden.clone()),
        (begin("Content-Length: 0x0\r\n"), hidden.clone()),
        (
            begin("Content-Length: 18446744073709551616\r\n"),
            hidden.clone(),
        ),
        // Encodings that are nearly chunked.
        (
            begin("Transfer-Encoding: xchunked\r\n"),
            format!("0\r\n\r\n{hidden}"),
        ),
        (
            begin("Transfer-Encoding: chunked, identity\r\n"),
            format!("0\r\n\r\n{hidden}"),
        ),
        (
            begin("Transfer-Encoding : chunked\r\n"),
            format!("0\r\n\r\n{hidden}"),
        ),
        (
            begin("Transfer-Encoding:\u{b}chunked\r\n"),
            format!("0\r\n\r\n{hidden}"),
        ),
        (
            begin("X: y\r\n Transfer-Encoding: chunked\r\n"),
            format!("0\r\n\r\n{hidden}"),
        ),
        // Chunks whose size is none, is too large, or ends early.
        (begin(chunked), format!("-1\r\n\r\n{hidden}")),
        (begin(chunked), format!("10000000000000000\r\n\r\n{hidden}")),
        (begin(chunked), format!("1\r\nxy\r\n0\r\n\r\n{hidden}")),
        (begin(chunked), format!("0x0\r\n\r\n{hidden}")),
        (begin(chunked), format!("1 \u{b}\r\nx\r\n0\r\n\r\n{hidden}")),
    ];
    for (head, body) in cases {
        let sent = format!("{head}{body}");
        let answer = exchange(world.address, sent.as_bytes(), 3 * SECOND)
            .await
            .unwrap();
        let statuses = statuses(&answer);
        let shown = sent.replace("\r\n", "⏎");
        println!("{statuses:?}: {shown}");
        assert!(!statuses.contains(&404), "{shown}: {statuses:?}");
        assert!(
            statuses.iter().all(|s| (400..500).contains(s)),
            "{shown}: {statuses:?}"
        );
    }
    assert!(world.client("alice").discover().await.is_ok());
    assert!(world.metric("mcp_tasks_gateway_panics_total") == 0.0);
}

/// A name with a space, a bare line feed or a null in it is no header.
#[tokio::test]
async fn heads_are_read_strictly() {
    let world = World::new().await;
    let host = world.address.to_string();
    for line in [
        "Content Type: application/json",
        "X\0: y",
        "X: a\0b",
        "X: a\rb",
        ": nothing",
        "no colon",
    ] {
        let sent =
            format!("POST /mcp HTTP/1.1\r\nHost: {host}\r\n{line}\r\nContent-Length: 0\r\n\r\n");
        let answer = exchange(world.address, sent.as_bytes(), 3 * SECOND)
            .await
            .unwrap();
        assert_eq!(statuses(&answer), [400], "{line:?}");
    }
}

/// Which host is meant is said once: in the target, or in `Host`; where both are there they agree.
#[tokio::test]
async fn a_request_names_one_host() {
    let world = World::new().await;
    let host = world.address.to_string();
    let post = |target: &str, hosts: &str| {
        format!(
            "POST {target} HTTP/1.1\r\n{hosts}Content-Type: application/json\r\n\
             Connection: close\r\nContent-Length: 2\r\n\r\n{{}}"
        )
    };
    for (request, expected) in [
        // It is let in, and then is no request of MCP.
        (post("/mcp", &format!("Host: {host}\r\n")), 400),
        (post("/mcp", ""), 403),
        (post("/mcp", "Host: evil.example.com\r\n"), 403),
        (
            post("/mcp", &format!("Host: {host}\r\nHost: {host}\r\n")),
            403,
        ),
        (post("/mcp", &format!("Host: {host}, {host}\r\n")), 403),
        (
            post("/mcp", &format!("Host: {host}@evil.example.com\r\n")),
            403,
        ),
        (
            post(
                "/mcp",
                &format!("Host: evil.example.com:{}\r\n", world.address.port()),
            ),
            403,
        ),
        (
            post(&format!("http://{host}/mcp"), &format!("Host: {host}\r\n")),
            400,
        ),
        (
            post("http://evil.example.com/mcp", &format!("Host: {host}\r\n")),
            403,
        ),
        (
            post(&format!("http://{host}/mcp"), "Host: evil.example.com\r\n"),
            403,
        ),
        (
            post("//evil.example.com/mcp", &format!("Host: {host}\r\n")),
            404,
        ),
        (post("/mcp/", &format!("Host: {host}\r\n")), 404),
        (post("/MCP", &format!("Host: {host}\r\n")), 404),
        (post("/%6dcp", &format!("Host: {host}\r\n")), 404),
        (post("/x/../mcp", &format!("Host: {host}\r\n")), 404),
        (post("*", &format!("Host: {host}\r\n")), 404),
    ] {
        let answer = exchange(world.address, request.as_bytes(), SOON)
            .await
            .unwrap();
        assert_eq!(statuses(&answer), [expected], "{request}");
    }
    let connect = format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    let answer = exchange(world.address, connect.as_bytes(), 3 * SECOND)
        .await
        .unwrap();
    let statuses = statuses(&answer);
    assert!(
        statuses.iter().all(|status| (400..500).contains(status)),
        "{statuses:?}"
    );
}

/// Requests one behind the other are answered one behind the other, the wrong ones as well.
#[tokio::test]
async fn answers_keep_the_order_of_their_requests() {
    let world = World::new().await;
    let host = world.address.to_string();
    let get = format!("GET /mcp HTTP/1.1\r\nHost: {host}\r\n\r\n");
    let other = hidden(&host);
    let last = format!("GET /mcp HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    let sent = format!("{get}{other}{get}{other}{last}");
    let answer = exchange(world.address, sent.as_bytes(), SOON)
        .await
        .unwrap();
    assert_eq!(statuses(&answer), [405, 404, 405, 404, 405]);
}
