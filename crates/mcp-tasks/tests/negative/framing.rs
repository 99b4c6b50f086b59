//! HTTP/1.1 itself: heads and bodies that are cut, doubled, or no HTTP at all (RFC 9112).

use crate::request::{Request, instead, post};
use crate::row::Answer::{Closed, Error, Status};
use crate::row::{Row, raw, row};

const DISCOVER: &str = r#"{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{}}"#;

fn chunked(body: impl Into<Vec<u8>>) -> Request {
    post().with("Transfer-Encoding", "chunked").tail(body)
}

pub fn rows() -> Vec<Row> {
    let mut rows = vec![
        raw("no HTTP", "GARBAGE\r\n\r\n", Status(400)),
        raw("zero bytes", vec![0_u8; 64], Status(400)),
        raw(
            "bytes of TLS",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n".to_vec(),
            Status(400),
        ),
        raw("a line alone", "POST /mcp\r\n\r\n", Status(400)),
        raw("half a head", "POST /mcp HTTP/1.1\r\nHost: a", Closed),
        raw("silence", "", Closed),
        row("HTTP/9.9", &post().line("POST /mcp HTTP/9.9"), Status(400)),
        row(
            "http in small letters",
            &post().line("POST /mcp http/1.1"),
            Status(400),
        ),
        row(
            "two spaces",
            &post().line("POST  /mcp HTTP/1.1"),
            Status(400),
        ),
        row(
            "a method that is no token",
            &post().line("PO(ST /mcp HTTP/1.1"),
            Status(400),
        ),
        row(
            "a method of zero bytes",
            &post().line("\0 /mcp HTTP/1.1"),
            Status(400),
        ),
        row(
            "a path with a space",
            &post().line("POST /m cp HTTP/1.1"),
            Status(400),
        ),
        row(
            "a path with a zero byte",
            &post().line("POST /mcp\0 HTTP/1.1"),
            Status(400),
        ),
        row(
            "a path in Latin-1",
            &post().line("POST /mcp\u{e9} HTTP/1.1"),
            Error(404, 404),
        ),
        row(
            "a header without a colon",
            &post().with("X", "").line("POST /mcp HTTP/1.1\r\nnonsense"),
            Status(400),
        ),
        row(
            "a header without a name",
            &post().with("", "x"),
            Status(400),
        ),
        row(
            "a space before the colon",
            &post().with("X-A ", "x"),
            Status(400),
        ),
        row(
            "a folded header",
            &post().with("X-A", "x\r\n y"),
            Status(400),
        ),
        row(
            "a header with a zero byte",
            &post().with("X-A", "x\0y"),
            Status(400),
        ),
        row(
            "a header with a bare CR",
            &post().with("X-A", "x\ry"),
            Status(400),
        ),
        row(
            "too many headers",
            &(0..200).fold(post(), |r, n| r.with(&format!("X-{n}"), "x")),
            Status(431),
        ),
        row(
            "a header of 64 KiB",
            &post().with("X-A", "x".repeat(64 * 1024)),
            Status(431),
        ),
        row(
            "a path of 64 KiB",
            &post().line(&format!("POST /{} HTTP/1.1", "x".repeat(64 * 1024))),
            Status(431),
        ),
        row(
            "a length that is no number",
            &post().with("Content-Length", "ten"),
            Status(400),
        ),
        row(
            "a length below zero",
            &post().with("Content-Length", "-1"),
            Status(400),
        ),
        row(
            "a length with a sign",
            &post().with("Content-Length", "+2").tail("{}"),
            Status(400),
        ),
        row(
            "a length beyond 64 bits",
            &post().with("Content-Length", "99999999999999999999"),
            Status(400),
        ),
        row(
            "two lengths",
            &post()
                .with("Content-Length", "2")
                .with("Content-Length", "3")
                .tail("{}"),
            Status(400),
        ),
        row(
            "two lengths in one",
            &post().with("Content-Length", "2, 3").tail("{}"),
            Status(400),
        ),
        row(
            "a length and chunks",
            &post()
                .with("Content-Length", "5")
                .with("Transfer-Encoding", "chunked")
                .tail("0\r\n\r\n"),
            Error(400, -32700),
        ),
        row(
            "an encoding that is not known",
            &post().with("Transfer-Encoding", "gzip, nonsense").tail("x"),
            Status(400),
        ),
        row(
            "chunked twice over",
            &post()
                .with("Transfer-Encoding", "chunked, chunked")
                .tail("0\r\n\r\n"),
            Error(400, -32700),
        ),
        row(
            "chunks, then another encoding",
            &post()
                .with("Transfer-Encoding", "chunked, gzip")
                .tail("0\r\n\r\n"),
            Status(400),
        ),
        row(
            "a chunk's size that is no number",
            &chunked("zz\r\n{}\r\n0\r\n\r\n"),
            Error(400, 400),
        ),
        row(
            "a chunk's size beyond 64 bits",
            &chunked("fffffffffffffffff\r\n{}\r\n0\r\n\r\n"),
            Error(400, 400),
        ),
        row(
            "a chunk longer than it says",
            &chunked("1\r\n{}\r\n0\r\n\r\n"),
            Error(400, 400),
        ),
        row(
            "a chunk without an end",
            &chunked("2\r\n{}"),
            Error(408, 408),
        ),
        row(
            "chunks without an end",
            &chunked("2\r\n{}\r\n"),
            Error(408, 408),
        ),
        row("no chunk", &chunked("0\r\n\r\n"), Error(400, -32700)),
        row(
            "a chunk of 2 MiB that is too large",
            &chunked(
                [
                    b"200000\r\n".to_vec(),
                    vec![b' '; 0x20_0000],
                    b"\r\n0\r\n\r\n".to_vec(),
                ]
                .concat(),
            ),
            Error(413, 413),
        ),
        row(
            "a trailer that is no header",
            &chunked(format!(
                "{:x}\r\n{DISCOVER}\r\n0\r\nnonsense\r\n\r\n",
                DISCOVER.len()
            )),
            Error(400, 400),
        ),
        row(
            "a body shorter than it says",
            &post().with("Content-Length", "100").tail("{\"jsonrpc\""),
            Error(408, 408),
        ),
        row(
            "a body that is told too large",
            &post().with("Content-Length", "1048577"),
            Error(413, 413),
        ),
        row(
            "a body that is too large",
            &instead(vec![b' '; 1024 * 1024 + 1]),
            Error(413, 413),
        ),
        row(
            "no body",
            &post().with("Content-Length", "0"),
            Error(400, -32700),
        ),
        row("no body and no length", &post(), Error(400, -32700)),
        row(
            "an expectation that nobody has",
            &post().with("Expect", "miracle").body(DISCOVER),
            Error(400, -32020),
        ),
        row(
            "HTTP/1.0 without a host",
            &post().without("Host").line("POST /mcp HTTP/1.0"),
            Error(403, 403),
        ),
    ];
    for encoding in ["gzip", "br", "deflate", "zstd", "gzip, br"] {
        let request = instead(b"\x1f\x8b\x08\x00".to_vec()).with("Content-Encoding", encoding);
        rows.push(row(
            format!("a body in {encoding}"),
            &request,
            Error(400, -32700),
        ));
    }
    rows
}
