//! Each limit of one request, just below it, at it and beyond it (docs/limits.md).

use serde_json::json;

use crate::request::{Request, instead, mirrored, modern, older};
use crate::row::Answer::{Error, Result, Said, Status};
use crate::row::{Row, row};
use crate::smuggling::{discover, head};

/// `gateway.limits`: defaults, and what the stack's settings say.
const HEADER_BYTES_MAX: usize = 32 * 1024;
const BODY_BYTES_MAX: usize = 1024 * 1024;
const DEPTH_MAX: usize = 64;
const ID_BYTES_MAX: usize = 1024;
/// `callbacks.body_bytes_max` of the stack.
const CALLBACK_BYTES_MAX: usize = 4096;
/// Fixed.
const HEADERS_MAX: usize = 100;
const TOKEN_BYTES_MAX: usize = 8 * 1024;
const KEY_BYTES_MAX: usize = 255;

/// A good request whose head has this many bytes.
fn head_of(length: usize) -> Request {
    let body = discover();
    let good = head().body(body.as_str());
    let own = good.bytes().len() - body.len() + "X-Pad: \r\n".len();
    let padded = good.with("X-Pad", "x".repeat(length - own));
    assert_eq!(padded.bytes().len() - body.len(), length);
    padded
}

/// A good request of so many headers.
fn headers(count: usize) -> Request {
    let good = head().body(discover());
    let head = String::from_utf8(good.bytes()).unwrap();
    let own = head.lines().take_while(|line| !line.is_empty()).count() - 1;
    (own..count).fold(good, |request, n| request.with(&format!("X-{n}"), "x"))
}

fn padded(length: usize) -> Vec<u8> {
    let mut body = discover().into_bytes();
    body.resize(length, b' ');
    body
}

fn in_chunks(body: &[u8], size: usize) -> Request {
    let mut sent = Vec::new();
    for chunk in body.chunks(size) {
        sent.extend(format!("{:x}\r\n", chunk.len()).into_bytes());
        sent.extend_from_slice(chunk);
        sent.extend(b"\r\n");
    }
    sent.extend(b"0\r\n\r\n");
    head().with("Transfer-Encoding", "chunked").tail(sent)
}

pub fn rows() -> Vec<Row> {
    let mut rows = heads();
    rows.extend(bodies());
    rows.extend(messages());
    rows
}

fn heads() -> Vec<Row> {
    let mut rows = Vec::new();
    // A head is read in pieces: one that is larger is surely seen to be when it is twice as large.
    for (length, answer) in [
        (HEADER_BYTES_MAX - 1, Result),
        (HEADER_BYTES_MAX, Result),
        (2 * HEADER_BYTES_MAX + 1, Status(431)),
        (4 * HEADER_BYTES_MAX, Status(431)),
    ] {
        rows.push(row(
            format!("a head of {length} bytes"),
            &head_of(length),
            answer,
        ));
    }
    for (count, answer) in [
        (HEADERS_MAX - 1, Result),
        (HEADERS_MAX, Result),
        (HEADERS_MAX + 1, Status(431)),
        (10 * HEADERS_MAX, Status(431)),
    ] {
        rows.push(row(format!("{count} headers"), &headers(count), answer));
    }
    // Many of one name are many.
    let same = (0..=HEADERS_MAX).fold(head(), |request, _| request.with("X-A", "x"));
    rows.push(row(
        "a header a hundred times",
        &same.body(discover()),
        Status(431),
    ));
    let long = |length: usize| {
        let line = format!("POST /mcp?{} HTTP/1.1", "x".repeat(length));
        head().line(&line).body(discover())
    };
    rows.push(row("a query of 16 KiB", &long(16 * 1024), Result));
    rows.push(row("a query of 70,000 bytes", &long(70_000), Status(431)));
    for (length, answer) in [
        (TOKEN_BYTES_MAX + 1, Error(401, 401)),
        (2 * TOKEN_BYTES_MAX, Error(401, 401)),
    ] {
        let token = format!("Bearer {}", "t".repeat(length));
        let request = head().set("Authorization", token).body(discover());
        rows.push(row(format!("a token of {length} bytes"), &request, answer));
    }
    rows
}

fn bodies() -> Vec<Row> {
    let mut rows = Vec::new();
    for (length, answer) in [
        (BODY_BYTES_MAX - 1, Result),
        (BODY_BYTES_MAX, Result),
        (BODY_BYTES_MAX + 2, Error(413, 413)),
    ] {
        rows.push(row(
            format!("a body of {length} bytes"),
            &instead(padded(length)),
            answer.clone(),
        ));
        let whole = in_chunks(&padded(length), usize::MAX);
        rows.push(row(
            format!("a chunk of {length} bytes"),
            &whole,
            answer.clone(),
        ));
        let parts = in_chunks(&padded(length), 4000);
        rows.push(row(
            format!("chunks of {length} bytes in all"),
            &parts,
            answer,
        ));
    }
    for length in [
        CALLBACK_BYTES_MAX + 1,
        2 * CALLBACK_BYTES_MAX,
        BODY_BYTES_MAX,
    ] {
        let request = crate::callbacks::good(vec![b' '; length]);
        rows.push(row(
            format!("a callback of {length} bytes"),
            &request,
            Said(413),
        ));
    }
    for length in [CALLBACK_BYTES_MAX - 1, CALLBACK_BYTES_MAX] {
        // It is read, and says nothing.
        let request = crate::callbacks::good(vec![b' '; length]);
        rows.push(row(
            format!("a callback of {length} bytes, all of them spaces"),
            &request,
            Said(400),
        ));
    }
    rows
}

fn messages() -> Vec<Row> {
    let mut rows = Vec::new();
    // The message and its params are two levels.
    for (levels, answer) in [
        (DEPTH_MAX - 1, Result),
        (DEPTH_MAX, Result),
        (DEPTH_MAX + 1, Error(400, -32600)),
    ] {
        let nested = (3..levels).fold(json!([]), |inner, _| json!([inner]));
        let request = modern("server/discover", json!({"x": nested}));
        rows.push(row(format!("{levels} levels"), &request, answer));
    }
    for (length, answer) in [
        (ID_BYTES_MAX - 1, Result),
        (ID_BYTES_MAX, Result),
        (ID_BYTES_MAX + 1, Error(400, -32600)),
        (100 * ID_BYTES_MAX, Error(400, -32600)),
    ] {
        // With its quotes.
        let id = "k".repeat(length - 2);
        let body = discover().replace("\"id\":1,", &format!("\"id\":\"{id}\","));
        rows.push(row(
            format!("an id of {length} bytes"),
            &instead(body),
            answer,
        ));
    }
    for (length, answer) in [
        (KEY_BYTES_MAX - 1, Result),
        (KEY_BYTES_MAX, Result),
        (KEY_BYTES_MAX + 1, Error(200, -32602)),
    ] {
        let call = json!({"name": "greet", "arguments": {"name": "x"}, "idempotencyKey": "k".repeat(length)});
        rows.push(row(
            format!("an idempotency key of {length} bytes"),
            &modern("tools/call", call),
            answer,
        ));
    }
    for length in [127, 128, 129, 4000] {
        let name = "n".repeat(length);
        let call = modern("tools/call", json!({"name": name, "arguments": {}}));
        rows.push(row(
            format!("a tool's name of {length} letters"),
            &call,
            Error(200, -32602),
        ));
    }
    for length in [35, 36, 37, 4000] {
        let get = modern("tasks/get", json!({"taskId": "0".repeat(length)}));
        rows.push(row(
            format!("a task's id of {length} letters"),
            &get,
            Error(200, -32602),
        ));
        let get = older(
            "2025-11-25",
            "tasks/get",
            &json!({"taskId": "0".repeat(length)}),
        );
        rows.push(row(
            format!("a task's id of {length} letters, of an older client"),
            &get,
            Error(200, -32602),
        ));
    }
    let method = "m".repeat(20_000);
    let request = mirrored(&method).body(discover().replace("server/discover", &method));
    rows.push(row(
        "a method of 20,000 letters",
        &request,
        Error(404, -32601),
    ));
    rows
}
