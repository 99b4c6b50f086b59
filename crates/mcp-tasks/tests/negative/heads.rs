//! Heads that are HTTP and are refused: paths, methods, hosts, origins, types, tokens.

use crate::request::{instead, modern, post};
use crate::row::Answer::{Error, Status};
use crate::row::{Row, row};

pub fn rows() -> Vec<Row> {
    let discover = || modern("server/discover", serde_json::json!({}));
    let mut rows = Vec::new();
    for method in [
        "GET", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "QUERY", "post",
    ] {
        let answer = if method == "HEAD" {
            Status(405)
        } else {
            Error(405, 405)
        };
        let request = discover().line(&format!("{method} /mcp HTTP/1.1"));
        rows.push(row(format!("{method} at the endpoint"), &request, answer));
    }
    for path in [
        "/",
        "/mcp/",
        "/MCP",
        "//mcp",
        "/mcp/x",
        "/mcp%00",
        "/%6dcp",
        "/mcp;x",
        "/./mcp",
        "/mcp/../mcp",
        "/callbacks",
        "/metrics",
        "/.well-known/oauth-protected-resource",
        "/.well-known/oauth-authorization-server",
        "/sse",
        "/messages",
        "*",
        "/?mcp",
    ] {
        let request = discover().line(&format!("POST {path} HTTP/1.1"));
        rows.push(row(format!("POST {path}"), &request, Error(404, 404)));
    }
    let request = discover().line("CONNECT mcp:80 HTTP/1.1");
    rows.push(row("CONNECT", &request, Error(404, 404)));
    for host in [
        "evil.example",
        "evil.example:3000",
        "127.0.0.1.evil.example",
        "localhost.",
        "[::1",
        "127.0.0.1:x",
        "127.0.0.1:99999",
        "user@127.0.0.1",
        "127.0.0.1/",
        "0.0.0.0:3000",
        "2130706433",
        "",
    ] {
        rows.push(row(
            format!("Host {host:?}"),
            &discover().set("Host", host),
            Error(403, 403),
        ));
    }
    let twice = discover().with("Host", "127.0.0.1:3001");
    rows.push(row("two hosts", &twice, Error(403, 403)));
    rows.push(row("no host", &discover().without("Host"), Error(403, 403)));
    for origin in [
        "https://evil.example",
        "null",
        "",
        "http://",
        "file://",
        "http://127.0.0.1.evil.example",
        "https://127.0.0.1:3000",
        "http://localhost:1",
        "javascript:alert(1)",
        "http://127.0.0.1:3000 x",
    ] {
        rows.push(row(
            format!("Origin {origin:?}"),
            &discover().with("Origin", origin),
            Error(403, 403),
        ));
    }
    let latin = discover().with("Origin", b"http://\xe9vil");
    rows.push(row("an Origin in Latin-1", &latin, Error(403, 403)));
    for kind in [
        "",
        "text/plain",
        "application/jsonp",
        "application/json-rpc",
        "application/x-json",
        "json",
        "multipart/form-data; boundary=x",
        "application/x-www-form-urlencoded",
        "text/json",
        "application/json, text/plain",
        "application/ json",
    ] {
        let request = discover().set("Content-Type", kind);
        rows.push(row(
            format!("Content-Type {kind:?}"),
            &request,
            Error(415, 415),
        ));
    }
    rows.push(row(
        "no Content-Type",
        &discover().without("Content-Type"),
        Error(415, 415),
    ));
    for (name, value) in [
        ("no scheme", "alice"),
        ("another scheme", "Basic YWxpY2U6eA=="),
        ("no token", "Bearer "),
        ("two tokens in one", "Bearer a b"),
        ("a token with a quote", "Bearer \"alice\""),
        ("a token with a comma", "Bearer a,b"),
        (
            "a token that is too long",
            &format!("Bearer {}", "a".repeat(9000)),
        ),
    ] {
        let request = discover().set("Authorization", value);
        rows.push(row(name, &request, Error(401, 401)));
    }
    let latin = discover().set("Authorization", b"Bearer \xe9");
    rows.push(row("a token in Latin-1", &latin, Error(400, 400)));
    let twice = discover().with("Authorization", "Bearer bob");
    rows.push(row("two tokens", &twice, Error(400, 400)));
    for query in ["access_token=alice", "a=b&access_token=", "access_token"] {
        let request = discover().line(&format!("POST /mcp?{query} HTTP/1.1"));
        rows.push(
            row(
                format!("a token in the URL: {query}"),
                &request,
                Error(400, 400),
            )
            .saying("URL"),
        );
    }
    // The cheapest check first: what is wrong besides is not even looked at.
    let all = post()
        .set("Host", "evil")
        .set("Content-Type", "x")
        .line("POST /x HTTP/1.1");
    rows.push(row("all wrong at once", &all, Error(404, 404)));
    let most = instead("{")
        .set("Host", "evil")
        .set("Content-Type", "x")
        .with("Origin", "null");
    rows.push(row(
        "Origin before all that follows",
        &most,
        Error(403, 403),
    ));
    rows
}
