//! HTTP/2 further on: requests that are served and refused as over HTTP/1.1, and streams that are open
//! (RFC 9113).

use crate::h2::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PADDED, PING, PREFACE, PRIORITY,
    SETTINGS, WINDOW_UPDATE, frame, header,
};
use crate::row::Answer::Frames;
use crate::row::{Row, raw};
use crate::smuggling::discover;

pub type Header<'a> = (&'a str, &'a [u8]);
/// What a good request says.
pub const GOOD: [Header<'_>; 9] = [
    (":method", b"POST"),
    (":scheme", b"http"),
    (":path", b"/mcp"),
    (":authority", b"127.0.0.1:3000"),
    ("authorization", b"Bearer alice"),
    ("content-type", b"application/json"),
    ("accept", b"application/json, text/event-stream"),
    ("mcp-protocol-version", b"2026-07-28"),
    ("mcp-method", b"server/discover"),
];
/// Of a frame.
const PAYLOAD_MAX: usize = 16_384;

pub fn packed(headers: &[Header<'_>]) -> Vec<u8> {
    let headers = headers.iter();
    headers
        .flat_map(|(name, value)| header(name, value))
        .collect()
}

/// The good head with some of its values changed.
fn changed(changes: &[Header<'_>]) -> Vec<u8> {
    let mut head = GOOD;
    for (name, value) in changes {
        let own = head.iter_mut().find(|(own, _)| own == name);
        own.unwrap().1 = value;
    }
    packed(&head)
}

/// The good head and more.
pub fn with(more: &[Header<'_>]) -> Vec<u8> {
    packed(&[&GOOD, more].concat())
}

/// A head of any size on stream 1, in as few frames as it takes.
pub fn head(block: &[u8], flags: u8) -> Vec<u8> {
    let pieces: Vec<&[u8]> = block.chunks(PAYLOAD_MAX).collect();
    let last = pieces.len() - 1;
    let frames = pieces.iter().enumerate().map(|(at, piece)| {
        let ends = if at == last { END_HEADERS } else { 0 };
        match at {
            0 => frame(HEADERS, flags | ends, 1, piece),
            _ => frame(CONTINUATION, ends, 1, piece),
        }
    });
    frames.collect::<Vec<_>>().concat()
}

pub fn asks(block: &[u8], body: &[u8]) -> Vec<u8> {
    [head(block, 0), frame(DATA, END_STREAM, 1, body)].concat()
}

/// A good request whose body is awaited.
pub fn open() -> Vec<u8> {
    head(&packed(&GOOD), 0)
}

pub fn rows() -> Vec<Row> {
    let body = discover();
    let body = body.as_bytes();
    let mut rows = Vec::new();
    let mut add = |name: &str, frames: Vec<u8>, told: &'static str| {
        let sent = [PREFACE, &frame(SETTINGS, 0, 0, &[]), &frames].concat();
        rows.push(raw(format!("HTTP/2: {name}"), sent, Frames(told)));
    };
    served(body, &mut add);
    refused(body, &mut add);
    opened(body, &mut add);
    rows
}

/// Strange, and in order.
fn served(body: &[u8], add: &mut impl FnMut(&str, Vec<u8>, &'static str)) {
    let good = asks(&packed(&GOOD), body);
    let before = |frames: Vec<u8>| [frames, good.clone()].concat();
    add("a good request", good.clone(), "STATUS 200");
    add(
        "a frame of an unknown kind",
        before(frame(0xee, 0xff, 0, b"x")),
        "STATUS 200",
    );
    add(
        "a setting that nobody knows",
        before(frame(SETTINGS, 0, 0, &[0xff, 0xff, 0, 0, 0, 1])),
        "STATUS 200",
    );
    add(
        "a PRIORITY before its stream",
        before(frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 1])),
        "STATUS 200",
    );
    let padded = [&[3][..], &packed(&GOOD), &[0; 3]].concat();
    add(
        "a padded head",
        [
            frame(HEADERS, END_HEADERS | PADDED, 1, &padded),
            frame(DATA, END_STREAM, 1, body),
        ]
        .concat(),
        "STATUS 200",
    );
    let padded = [&[200][..], body, &[0; 200]].concat();
    add(
        "a padded body",
        [open(), frame(DATA, END_STREAM | PADDED, 1, &padded)].concat(),
        "STATUS 200",
    );
    let letters: Vec<u8> = body
        .iter()
        .flat_map(|byte| frame(DATA, 0, 1, &[*byte]))
        .collect();
    add(
        "a frame for each letter",
        [open(), letters, frame(DATA, END_STREAM, 1, b"")].concat(),
        "STATUS 200",
    );
    let trailers = frame(HEADERS, END_HEADERS | END_STREAM, 1, &header("x-a", b"b"));
    add(
        "trailers",
        [open(), frame(DATA, 0, 1, body), trailers].concat(),
        "STATUS 200",
    );
    let length = body.len().to_string();
    add(
        "a length that is right",
        asks(&with(&[("content-length", length.as_bytes())]), body),
        "STATUS 200",
    );
    add(
        "cookies in crumbs",
        asks(&with(&[("cookie", b"a=b"), ("cookie", b"c=d")]), body),
        "STATUS 200",
    );
    add(
        "a stream of a high number",
        [
            frame(HEADERS, END_HEADERS, 0x7fff_ffff, &packed(&GOOD)),
            frame(DATA, END_STREAM, 0x7fff_ffff, body),
        ]
        .concat(),
        "STATUS 200",
    );
}

/// As over HTTP/1.1.
fn refused(body: &[u8], add: &mut impl FnMut(&str, Vec<u8>, &'static str)) {
    for (name, changes, told) in [
        ("GET", (":method", &b"GET"[..]), "STATUS 405"),
        ("a path and a slash", (":path", b"/mcp/"), "STATUS 404"),
        (
            "another host",
            (":authority", b"evil.example"),
            "STATUS 403",
        ),
        (
            "a host with a name before it",
            (":authority", b"user@127.0.0.1:3000"),
            "STATUS 403",
        ),
        ("an empty host", (":authority", b""), "RESET 1"),
        ("no token", ("authorization", b"Bearer "), "STATUS 401"),
        (
            "another type",
            ("content-type", b"text/plain"),
            "STATUS 415",
        ),
        (
            "another method in the header",
            ("mcp-method", b"tools/list"),
            "STATUS 400",
        ),
        (
            "a revision that is not served",
            ("mcp-protocol-version", b"1999-01-01"),
            "STATUS 400",
        ),
        ("a path without its slash", (":path", b"mcp"), "RESET 1"),
        ("a path with a space", (":path", b"/m cp"), "RESET 1"),
        ("a path with a zero byte", (":path", b"/mcp\0"), "RESET 1"),
        ("a scheme that is none", (":scheme", b"1:/"), "RESET 1"),
    ] {
        add(name, asks(&changed(&[changes]), body), told);
    }
    for (name, more, told) in [
        (
            "an origin of others",
            ("origin", &b"https://evil.example"[..]),
            "STATUS 403",
        ),
        (
            "another host beside the first",
            ("host", b"evil.example"),
            "STATUS 403",
        ),
        ("two tokens", ("authorization", b"Bearer bob"), "STATUS 400"),
        ("two lengths", ("content-length", b"1, 2"), "RESET 1"),
        ("a length below zero", ("content-length", b"-1"), "RESET 1"),
        (
            "a length beyond 64 bits",
            ("content-length", b"18446744073709551616"),
            "RESET 1",
        ),
        ("Keep-Alive", ("keep-alive", b"x"), "RESET 1"),
        (
            "Proxy-Connection",
            ("proxy-connection", b"close"),
            "RESET 1",
        ),
        (
            "TE with more than trailers",
            ("te", b"trailers, gzip"),
            "RESET 1",
        ),
        (
            "a protocol to change to",
            (":protocol", b"websocket"),
            "RESET 1",
        ),
        ("two paths", (":path", b"/x"), "RESET 1"),
    ] {
        // Only what stands behind other headers may be in no order: pseudo headers come first.
        let block = match more.0.starts_with(':') {
            true => packed(&[&GOOD[..4], &[more], &GOOD[4..]].concat()),
            false => with(&[more]),
        };
        add(name, asks(&block, body), told);
    }
    add(
        "a batch, in order",
        asks(&packed(&GOOD), b"[]"),
        "STATUS 400",
    );
    add("no message", asks(&packed(&GOOD), b""), "STATUS 400");
    add("a body that does not come", open(), "STATUS 408");
    let told = with(&[("content-length", b"1048577")]);
    add(
        "a body that is told too large",
        head(&told, 0),
        "STATUS 413",
    );
}

/// On a stream whose request is under way.
fn opened(body: &[u8], add: &mut impl FnMut(&str, Vec<u8>, &'static str)) {
    for (name, frames, told) in [
        (
            "trailers that do not end it",
            frame(HEADERS, END_HEADERS, 1, &header("x-a", b"b")),
            "RESET 1",
        ),
        (
            "trailers with a path",
            frame(
                HEADERS,
                END_HEADERS | END_STREAM,
                1,
                &header(":path", b"/x"),
            ),
            "STATUS 400",
        ),
        (
            "trailers in capitals",
            frame(HEADERS, END_HEADERS | END_STREAM, 1, &header("X-A", b"b")),
            "GOAWAY 1",
        ),
        (
            "a window of its own beyond 31 bits",
            frame(WINDOW_UPDATE, 0, 1, &[0x7f, 0xff, 0xff, 0xff]),
            "RESET 3",
        ),
        (
            "a window of its own of zero",
            frame(WINDOW_UPDATE, 0, 1, &[0; 4]),
            "GOAWAY 1",
        ),
        (
            "PRIORITY on itself",
            frame(PRIORITY, 0, 1, &[0, 0, 0, 1, 0]),
            "RESET 1",
        ),
        (
            "PRIORITY of a wrong size",
            frame(PRIORITY, 0, 1, &[0; 4]),
            "GOAWAY 1",
        ),
        (
            "a CONTINUATION behind a whole head",
            frame(CONTINUATION, END_HEADERS, 1, b""),
            "GOAWAY 1",
        ),
        (
            "another head cut by PING",
            [frame(HEADERS, 0, 3, b""), frame(PING, 0, 0, &[0; 8])].concat(),
            "GOAWAY 1",
        ),
        (
            "another head cut by DATA",
            [frame(HEADERS, 0, 3, b""), frame(DATA, 0, 1, b"x")].concat(),
            "GOAWAY 1",
        ),
        (
            "another head cut by what nobody knows",
            [frame(HEADERS, 0, 3, b""), frame(0xee, 0, 3, b"")].concat(),
            "GOAWAY 1",
        ),
        (
            "another stream below it",
            [
                frame(HEADERS, END_HEADERS, 7, &packed(&GOOD)),
                frame(HEADERS, END_HEADERS, 5, &packed(&GOOD)),
            ]
            .concat(),
            "GOAWAY 1",
        ),
        (
            "DATA of a stream above it",
            frame(DATA, END_STREAM, 3, body),
            "GOAWAY 1",
        ),
        (
            "a frame of 16 MiB",
            [&[0xff, 0xff, 0xff, DATA, 0, 0, 0, 0, 1][..], &[0; 64]].concat(),
            "GOAWAY 6",
        ),
        (
            "padding and no length of it",
            frame(DATA, PADDED, 1, b""),
            "GOAWAY 1",
        ),
        (
            "SETTINGS of a window that overflows",
            frame(SETTINGS, 0, 0, &[0, 4, 0x80, 0, 0, 0]),
            "GOAWAY 1",
        ),
        (
            "SETTINGS of frames too large",
            frame(SETTINGS, 0, 0, &[0, 5, 1, 0, 0, 0]),
            "GOAWAY 1",
        ),
    ] {
        add(
            &format!("on an open stream: {name}"),
            [open(), frames].concat(),
            told,
        );
    }
}
