//! HTTP/2: heads that unpack to more than they are or are no HPACK (RFC 7541), and what is no HTTP/2 from
//! its first bytes on.

use crate::h2::{CONTINUATION, HEADERS, PREFACE, SETTINGS, frame, header};
use crate::request::post;
use crate::row::Answer::{Closed, Frames, Result, Status};
use crate::row::{Row, raw, row};
use crate::smuggling::discover;
use crate::streams::{GOOD, asks, packed, with};

/// `gateway.limits.header_bytes_max`: names, values and 32 bytes for each header (RFC 9113 §6.5.2).
const HEADER_BYTES_MAX: usize = 32 * 1024;

/// A good head whose list of headers is as large as this.
fn list_of(size: usize) -> Vec<u8> {
    let own: usize = GOOD
        .iter()
        .map(|(name, value)| name.len() + value.len() + 32)
        .sum();
    let pad = vec![b'x'; size - own - 32 - "x-pad".len()];
    with(&[("x-pad", &pad)])
}

pub fn rows() -> Vec<Row> {
    let body = discover();
    let mut rows = Vec::new();
    let mut add = |name: &str, frames: Vec<u8>, told: &'static str| {
        let sent = [PREFACE, &frame(SETTINGS, 0, 0, &[]), &frames].concat();
        rows.push(raw(format!("HTTP/2: {name}"), sent, Frames(told)));
    };
    unpacked(body.as_bytes(), &mut add);
    rows.extend(beginnings());
    rows
}

/// Heads that are larger than they look, or no HPACK.
fn unpacked(body: &[u8], add: &mut impl FnMut(&str, Vec<u8>, &'static str)) {
    for (size, told) in [
        (HEADER_BYTES_MAX - 2, "STATUS 200"),
        (HEADER_BYTES_MAX - 1, "STATUS 200"),
        (HEADER_BYTES_MAX, "STATUS 431"),
        (HEADER_BYTES_MAX + 1, "STATUS 431"),
        (HEADER_BYTES_MAX + 10_000, "STATUS 431"),
    ] {
        add(
            &format!("a list of headers of {size} bytes"),
            asks(&list_of(size), body),
            told,
        );
    }
    // One entry of the table, and an index of it: a byte that unpacks to 4,000.
    let entry = [&[0x40][..], &header("x-a", &[b'x'; 3900])[1..]].concat();
    for (times, told) in [(8, "STATUS 431"), (10_000, "GOAWAY 11")] {
        let bomb = [packed(&GOOD), entry.clone(), vec![0xbe; times]].concat();
        add(
            &format!("a head that repeats itself {times} times"),
            asks(&bomb, body),
            told,
        );
    }
    let endless: Vec<Vec<u8>> = (0..50)
        .map(|_| frame(CONTINUATION, 0, 1, &header("x-a", b"b")))
        .collect();
    add(
        "CONTINUATION without an end",
        [frame(HEADERS, 0, 1, &packed(&GOOD)), endless.concat()].concat(),
        "GOAWAY 11",
    );
    for (name, block) in [
        (
            "a number without an end",
            [&[0x00][..], &[0xff; 20]].concat(),
        ),
        (
            "a name longer than the head",
            vec![0x00, 0x7f, 0x80, 0x40, b'x'],
        ),
        (
            "Huffman's code of its end",
            vec![0x00, 0x01, b'x', 0x84, 0xff, 0xff, 0xff, 0xff],
        ),
        (
            "Huffman's code padded with zeros",
            vec![0x00, 0x01, b'x', 0x81, 0x18],
        ),
        (
            "a size of the table behind a header",
            [header("x-a", b"b"), vec![0x20]].concat(),
        ),
        ("an index beyond the table", vec![0xff, 0x80, 0x80, 0x04]),
    ] {
        add(
            &format!("HPACK: {name}"),
            asks(&[packed(&GOOD), block].concat(), body),
            "GOAWAY 1",
        );
    }
}

/// Connections that are no HTTP/2 from the start.
fn beginnings() -> Vec<Row> {
    let settings = frame(SETTINGS, 0, 0, &[]);
    let mut rows = vec![
        raw("HTTP/2: half a preface", &PREFACE[..12], Closed),
        raw(
            "HTTP/2: a preface, settings and silence",
            [PREFACE, &settings].concat(),
            Frames(""),
        ),
    ];
    for (name, at, byte) in [("first", 4, b'x'), ("second", 18, b'X'), ("last", 23, b'x')] {
        let mut preface = PREFACE.to_vec();
        preface[at] = byte;
        let sent = [&preface[..], &settings].concat();
        rows.push(raw(
            format!("HTTP/2: a preface with its {name} line changed"),
            sent,
            Status(400),
        ));
    }
    let body = discover();
    let length = body.len().to_string();
    let upgrade = crate::smuggling::head()
        .set("Connection", "close, Upgrade, HTTP2-Settings")
        .with("Upgrade", "h2c")
        .with("HTTP2-Settings", "AAMAAABkAAQAAP__");
    rows.push(row(
        "a wish for HTTP/2 that is not granted",
        &upgrade.with("Content-Length", length).tail(body),
        Result,
    ));
    let websocket = post()
        .line("GET /mcp HTTP/1.1")
        .set("Connection", "Upgrade")
        .with("Upgrade", "websocket");
    rows.push(row(
        "a wish for WebSocket",
        &websocket.with("Connection", "close"),
        Status(405),
    ));
    rows
}
