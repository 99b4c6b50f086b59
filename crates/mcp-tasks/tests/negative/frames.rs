//! HTTP/2, frame by frame (RFC 9113): what breaks a stream or the connection, and with which code.

use crate::h2::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PADDED, PING, PREFACE, PRIORITY,
    PUSH_PROMISE, RST_STREAM, SETTINGS, WINDOW_UPDATE, frame, header, pseudo,
};
use crate::row::Answer::Frames;
use crate::row::{Row, raw};

/// A request of these headers and a body.
fn asks(head: &[u8], body: &[u8]) -> Vec<u8> {
    let mut frames = frame(HEADERS, END_HEADERS, 1, head);
    frames.extend(frame(DATA, END_STREAM, 1, body));
    frames
}

fn with(headers: &[(&str, &[u8])]) -> Vec<u8> {
    let mut head = pseudo();
    for (name, value) in headers {
        head.extend(header(name, value));
    }
    head
}

pub fn rows() -> Vec<Row> {
    let open = || {
        frame(
            HEADERS,
            END_HEADERS,
            1,
            &with(&[("content-type", b"application/json")]),
        )
    };
    let json: (&str, &[u8]) = ("content-type", b"application/json");
    let mut rows = Vec::new();
    let mut add = |name: &str, frames: Vec<u8>, told: &'static str| {
        let sent = [PREFACE, &frame(SETTINGS, 0, 0, &[]), &frames].concat();
        rows.push(raw(format!("HTTP/2: {name}"), sent, Frames(told)));
    };
    add("DATA on no stream", frame(DATA, 0, 0, b"x"), "GOAWAY 1");
    add(
        "DATA on a stream that is not open",
        frame(DATA, 0, 1, b"x"),
        "GOAWAY 1",
    );
    add(
        "HEADERS on no stream",
        frame(HEADERS, END_HEADERS, 0, &pseudo()),
        "GOAWAY 1",
    );
    add(
        "HEADERS on a stream of the server",
        frame(HEADERS, END_HEADERS, 2, &pseudo()),
        "GOAWAY 1",
    );
    add(
        "HEADERS that are no HPACK",
        frame(HEADERS, END_HEADERS, 1, &[0xff; 40]),
        "GOAWAY 1",
    );
    add(
        "an index that is not there",
        frame(HEADERS, END_HEADERS, 1, &[0xfe]),
        "GOAWAY 1",
    );
    add(
        "an index of zero",
        frame(HEADERS, END_HEADERS, 1, &[0x80]),
        "GOAWAY 1",
    );
    add(
        "half a header",
        frame(HEADERS, END_HEADERS, 1, &[0x00, 5, b'a']),
        "GOAWAY 1",
    );
    add(
        "a table that is too large",
        frame(HEADERS, END_HEADERS, 1, &[0x3f, 0xe1, 0xff, 0x03]),
        "GOAWAY 1",
    );
    add(
        "HEADERS with more padding than frame",
        frame(HEADERS, END_HEADERS | PADDED, 1, &[200, 1]),
        "GOAWAY 1",
    );
    add(
        "DATA with more padding than frame",
        [open(), frame(DATA, PADDED, 1, &[200, 1])].concat(),
        "GOAWAY 1",
    );
    add(
        "RST_STREAM on no stream",
        frame(RST_STREAM, 0, 0, &[0; 4]),
        "GOAWAY 1",
    );
    add(
        "RST_STREAM of an idle stream",
        frame(RST_STREAM, 0, 7, &[0; 4]),
        "GOAWAY 1",
    );
    add(
        "RST_STREAM of a wrong size",
        [open(), frame(RST_STREAM, 0, 1, &[0; 3])].concat(),
        "GOAWAY 1",
    );
    add(
        "SETTINGS on a stream",
        frame(SETTINGS, 0, 1, &[]),
        "GOAWAY 1",
    );
    add(
        "SETTINGS of a wrong size",
        frame(SETTINGS, 0, 0, &[0; 5]),
        "GOAWAY 1",
    );
    add(
        "an acknowledgement that says something",
        frame(SETTINGS, 1, 0, &[0; 6]),
        "GOAWAY 1",
    );
    add(
        "an acknowledgement of nothing",
        [frame(SETTINGS, 1, 0, &[]), frame(SETTINGS, 1, 0, &[])].concat(),
        "GOAWAY 1",
    );
    add(
        "SETTINGS with a window too large",
        frame(SETTINGS, 0, 0, &[0, 4, 0xff, 0xff, 0xff, 0xff]),
        "GOAWAY 1",
    );
    add(
        "SETTINGS with frames too small",
        frame(SETTINGS, 0, 0, &[0, 5, 0, 0, 0, 1]),
        "GOAWAY 1",
    );
    add(
        "SETTINGS with push neither on nor off",
        frame(SETTINGS, 0, 0, &[0, 2, 0, 0, 0, 7]),
        "GOAWAY 1",
    );
    add(
        "PUSH_PROMISE of a client",
        frame(PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 2]),
        "GOAWAY 1",
    );
    add("PING on a stream", frame(PING, 0, 1, &[0; 8]), "GOAWAY 1");
    add(
        "PING of a wrong size",
        frame(PING, 0, 0, &[0; 7]),
        "GOAWAY 1",
    );
    add(
        "GOAWAY on a stream",
        frame(GOAWAY, 0, 1, &[0; 8]),
        "GOAWAY 1",
    );
    add(
        "GOAWAY of a wrong size",
        frame(GOAWAY, 0, 0, &[0; 3]),
        "GOAWAY 1",
    );
    add(
        "WINDOW_UPDATE of zero",
        frame(WINDOW_UPDATE, 0, 0, &[0; 4]),
        "GOAWAY 1",
    );
    add(
        "WINDOW_UPDATE of a wrong size",
        frame(WINDOW_UPDATE, 0, 0, &[0; 3]),
        "GOAWAY 1",
    );
    add(
        "WINDOW_UPDATE of an idle stream",
        frame(WINDOW_UPDATE, 0, 9, &[0, 0, 0, 1]),
        "GOAWAY 1",
    );
    add(
        "a window beyond 31 bits",
        frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0xff, 0xff]),
        "GOAWAY 3",
    );
    add(
        "CONTINUATION of nothing",
        frame(CONTINUATION, END_HEADERS, 1, &[]),
        "GOAWAY 1",
    );
    add(
        "HEADERS, then something else",
        [frame(HEADERS, 0, 1, &pseudo()), frame(PING, 0, 0, &[0; 8])].concat(),
        "GOAWAY 1",
    );
    add(
        "CONTINUATION of another stream",
        [
            frame(HEADERS, 0, 1, &pseudo()),
            frame(CONTINUATION, END_HEADERS, 3, &[]),
        ]
        .concat(),
        "GOAWAY 1",
    );
    add(
        "a frame that is too large",
        frame(DATA, 0, 1, &vec![0; 16_385]),
        "GOAWAY 6",
    );
    add(
        "PRIORITY on no stream",
        frame(PRIORITY, 0, 0, &[0; 5]),
        "GOAWAY 1",
    );
    for (name, head) in [
        (
            "no method",
            [header(":scheme", b"http"), header(":path", b"/mcp")].concat(),
        ),
        (
            "no path",
            [header(":method", b"POST"), header(":scheme", b"http")].concat(),
        ),
        (
            "no scheme",
            [header(":method", b"POST"), header(":path", b"/mcp")].concat(),
        ),
        (
            "an empty path",
            [
                header(":method", b"POST"),
                header(":scheme", b"http"),
                header(":path", b""),
            ]
            .concat(),
        ),
        (
            "two methods",
            [header(":method", b"GET"), pseudo()].concat(),
        ),
        ("a status in a request", with(&[(":status", b"200")])),
        ("a pseudo header of our own making", with(&[(":x", b"1")])),
        (
            "a pseudo header behind others",
            [header("a", b"b"), pseudo()].concat(),
        ),
        ("a name in capitals", with(&[("X-A", b"1")])),
        ("a name with a space", with(&[("x a", b"1")])),
        ("an empty name", with(&[("", b"1")])),
        ("a value with a line end", with(&[("x-a", b"1\r\nx: 2")])),
        ("a value with a zero byte", with(&[("x-a", b"1\0")])),
        ("Connection", with(&[("connection", b"close")])),
        (
            "Transfer-Encoding",
            with(&[("transfer-encoding", b"chunked")]),
        ),
        ("TE that is not trailers", with(&[("te", b"gzip")])),
        ("Upgrade", with(&[("upgrade", b"h2c")])),
        (
            "a method that is no token",
            [
                header(":method", b"P ST"),
                header(":scheme", b"http"),
                header(":path", b"/mcp"),
            ]
            .concat(),
        ),
        (
            "a length that is no number",
            with(&[json, ("content-length", b"x")]),
        ),
        (
            "a length that is too short",
            with(&[json, ("content-length", b"1")]),
        ),
        (
            "a length that is too long",
            with(&[json, ("content-length", b"99")]),
        ),
    ] {
        let told = match name {
            // What no header can hold breaks the connection, in what hyper stands on.
            "a name in capitals"
            | "an empty name"
            | "a name with a space"
            | "a pseudo header of our own making"
            | "a value with a line end"
            | "a value with a zero byte"
            | "a method that is no token" => "GOAWAY 1",
            "no path" => "STATUS 404",
            _ => "RESET 1",
        };
        add(name, asks(&head, b"{}"), told);
    }
    let path = |path: &[u8]| {
        let head = [
            header(":method", b"POST"),
            header(":scheme", b"http"),
            header(":path", path),
            header(":authority", b"127.0.0.1"),
        ];
        asks(&head.concat(), b"{}")
    };
    add("another path", path(b"/x"), "STATUS 404");
    add("an asterisk", path(b"*"), "STATUS 404");
    add("no JSON", asks(&with(&[json]), b"{"), "STATUS 400");
    add("a batch", asks(&with(&[json]), b"[]"), "STATUS 400");
    add(
        "no body",
        frame(HEADERS, END_HEADERS | END_STREAM, 1, &with(&[json])),
        "STATUS 400",
    );
    rows
}
