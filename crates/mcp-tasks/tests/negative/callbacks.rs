//! Addresses of callbacks: forged, over, and bodies that say nothing.

use protocol::TaskId;
use protocol::callback::{Keys, Ticket};

use crate::request::{Request, post};
use crate::row::Answer::{Said, Status};
use crate::row::{Row, row};
use crate::stack::KEY;

/// Of another task each time: calls are counted by their task.
fn token(keys: &str, expires_ms: i64) -> String {
    let ticket = Ticket {
        task: TaskId::new(0),
        key: "call".to_owned(),
        expires_ms,
    };
    Keys::read(&[keys.to_owned()])
        .unwrap()
        .sign(&ticket, "")
        .unwrap()
}

fn at(token: &str, body: impl Into<Vec<u8>>) -> Request {
    post()
        .without("Authorization")
        .line(&format!("POST /callbacks/{token} HTTP/1.1"))
        .body(body)
}

/// To an address that is ours.
pub fn good(body: impl Into<Vec<u8>>) -> Request {
    at(&token(KEY, i64::MAX), body)
}

pub fn rows() -> Vec<Row> {
    let good = token(KEY, i64::MAX);
    let text = r#"{"text":"done"}"#;
    let mut rows = Vec::new();
    let flipped = good.replacen(|c: char| c.is_ascii_lowercase(), "A", 1);
    for (name, bad) in [
        ("nothing", ""),
        ("a slash", "/"),
        ("dots", "../mcp"),
        ("a letter", "A"),
        ("forty letters", &"A".repeat(43)),
        ("a good one, cut", &good[..good.len() - 1]),
        ("a good one, changed", &flipped),
        ("a good one, and more", &format!("{good}AA")),
        ("a good one, padded", &format!("{good}=")),
        ("a good one, and a path", &format!("{good}/x")),
        (
            "a good one, escaped",
            &good.replacen(&good[..1], &format!("%{:02x}", good.as_bytes()[0]), 1),
        ),
        ("another key's", &token(&"ff".repeat(32), i64::MAX)),
        ("long", &"A".repeat(2000)),
        ("a zero byte", "%00"),
    ] {
        rows.push(row(
            format!("a token that is {name}"),
            &at(bad, text),
            Said(404),
        ));
    }
    for (name, expires) in [
        ("is over", 0),
        ("was over before 1970", i64::MIN),
        ("is for a task that never was", i64::MAX),
    ] {
        rows.push(row(
            format!("a token that {name}"),
            &at(&token(KEY, expires), text),
            Said(410),
        ));
    }
    for method in ["GET", "PUT", "DELETE", "PATCH", "HEAD"] {
        let request = at(&good, text).line(&format!("{method} /callbacks/{good} HTTP/1.1"));
        let answer = if method == "HEAD" {
            Status(405)
        } else {
            Said(405)
        };
        rows.push(row(format!("{method} a callback"), &request, answer));
    }
    for kind in [
        "text/plain",
        "",
        "application/x-www-form-urlencoded",
        "application/xml",
    ] {
        rows.push(row(
            format!("a callback of type {kind:?}"),
            &at(&good, text).set("Content-Type", kind),
            Said(415),
        ));
    }
    rows.push(row(
        "a callback of no type",
        &at(&good, text).without("Content-Type"),
        Said(415),
    ));
    for (name, body) in [
        ("nothing", &b""[..]),
        ("no JSON", b"{"),
        ("bytes that are no text", b"\xff\xfe"),
        ("a zero byte", b"\0"),
        ("null", b"null"),
        ("a list", b"[]"),
        ("a text", b"\"done\""),
        ("an empty object", b"{}"),
        ("only whether it failed", b"{\"isError\":true}"),
        ("what nobody knows", b"{\"result\":1}"),
        ("text and content", b"{\"text\":\"a\",\"content\":[]}"),
        ("a number as text", b"{\"text\":1}"),
        ("content that is no list", b"{\"content\":{}}"),
        ("a block of no type", b"{\"content\":[{}]}"),
        (
            "a block of an unknown type",
            b"{\"content\":[{\"type\":\"x\"}]}",
        ),
        ("isError as a text", b"{\"text\":\"a\",\"isError\":\"no\"}"),
        ("progress as a text", b"{\"progress\":\"x\"}"),
        ("progress and a result", b"{\"progress\":1,\"text\":\"a\"}"),
        ("progress of null", b"{\"progress\":null}"),
        ("progress beyond a double", b"{\"progress\":1e999}"),
        ("a lone surrogate", b"{\"text\":\"\\ud800\"}"),
        ("two messages", b"{\"text\":\"a\"}{\"text\":\"b\"}"),
        ("text twice", b"{\"text\":\"a\",\"text\":\"b\"}"),
        ("progress twice", b"{\"progress\":1,\"progress\":2}"),
    ] {
        rows.push(row(
            format!("a callback of {name}"),
            &self::good(body),
            Said(400),
        ));
    }
    let deep = format!("{{\"structured\":{}1{}}}", "[".repeat(500), "]".repeat(500));
    rows.push(row(
        "a callback that is nested too deep",
        &self::good(deep),
        Said(400),
    ));
    rows.push(row(
        "a callback that is too large",
        &self::good(vec![b' '; 5000]),
        Said(413),
    ));
    let cut = self::good("").tail("{\"te").with("Content-Length", "100");
    rows.push(row("a callback that breaks off", &cut, Said(408)));
    rows
}
