//! Chunks (RFC 9112 §7.1): sizes, extensions, trailers, and the ends of their lines.

use crate::request::Request;
use crate::row::Answer::{Error, Result};
use crate::row::{Row, row};
use crate::smuggling::{discover, head};

/// What all extensions of one body may take, and all of its trailers.
const EXTENSIONS_MAX: usize = 16 * 1024;
const TRAILERS_MAX: usize = 16 * 1024;
/// So many trailers there may be.
const TRAILERS: usize = 100;

fn chunked(body: impl Into<Vec<u8>>) -> Request {
    head().with("Transfer-Encoding", "chunked").tail(body)
}

/// A good body with this behind its size.
fn extended(extension: &str) -> Request {
    let body = discover();
    chunked(format!(
        "{:x}{extension}\r\n{body}\r\n0\r\n\r\n",
        body.len()
    ))
}

/// A good body with this behind its last chunk.
fn trailed(trailers: &str) -> Request {
    let body = discover();
    chunked(format!("{:x}\r\n{body}\r\n0\r\n{trailers}\r\n", body.len()))
}

pub fn rows() -> Vec<Row> {
    let mut rows = sizes();
    rows.extend(line_ends());
    rows.extend(extensions());
    rows.extend(trailers());
    rows
}

fn sizes() -> Vec<Row> {
    let body = discover();
    let long = body.len();
    let mut rows = Vec::new();
    let one_by_one: String = body.chars().map(|c| format!("1\r\n{c}\r\n")).collect();
    for (name, sent) in [
        (
            "a chunk's size in capitals",
            format!("{long:X}\r\n{body}\r\n0\r\n\r\n"),
        ),
        (
            "a chunk's size with forty zeros in front",
            format!("{:0>40}{long:x}\r\n{body}\r\n0\r\n\r\n", ""),
        ),
        (
            "a last chunk of five zeros",
            format!("{long:x}\r\n{body}\r\n00000\r\n\r\n"),
        ),
        ("a chunk for each letter", format!("{one_by_one}0\r\n\r\n")),
        (
            "white space behind a chunk's size",
            format!("{long:x} \t\r\n{body}\r\n0\r\n\r\n"),
        ),
    ] {
        rows.push(row(name, &chunked(sent), Result));
    }
    for (name, size) in [
        ("with a sign", format!("+{long:x}")),
        ("below zero", format!("-{long:x}")),
        ("of minus zero", "-0".to_owned()),
        ("as 0x", format!("0x{long:x}")),
        ("with a space in front", format!(" {long:x}")),
        ("with a space in it", "1 0".to_owned()),
        ("that is empty", String::new()),
        ("that is only white space", "  ".to_owned()),
        ("with a comma", format!("{long:x},")),
        ("with an underscore", "1_0".to_owned()),
        ("of another script", "\u{ff11}".to_owned()),
        ("with a zero byte", format!("{long:x}\0")),
        ("of 2^64", "10000000000000000".to_owned()),
        ("of 2^68 - 1", "fffffffffffffffff".to_owned()),
        ("of a thousand digits", "f".repeat(1000)),
    ] {
        let sent = format!("{size}\r\n{body}\r\n0\r\n\r\n");
        rows.push(row(
            format!("a chunk's size {name}"),
            &chunked(sent),
            Error(400, 400),
        ));
    }
    for (name, size) in [
        ("one too small", long - 1),
        ("half of it", long / 2),
        ("one too large", long + 1),
        ("two too large", long + 2),
    ] {
        let sent = format!("{size:x}\r\n{body}\r\n0\r\n\r\n");
        rows.push(row(
            format!("a chunk's size that is {name}"),
            &chunked(sent),
            Error(400, 400),
        ));
    }
    // It is as large as it says for all that is known, and does not come.
    for (name, size) in [
        ("of 2^63", "8000000000000000"),
        ("of 2^64 - 1", "ffffffffffffffff"),
        ("of 4 GiB", "100000000"),
    ] {
        let sent = format!("{size}\r\n{body}");
        rows.push(row(
            format!("a chunk's size {name}, and little more"),
            &chunked(sent),
            Error(408, 408),
        ));
    }
    rows
}

/// In bodies a lone LF is no line end: who stands in front of us may not see it as one.
fn line_ends() -> Vec<Row> {
    let body = discover();
    let long = body.len();
    let mut rows = Vec::new();
    for (name, sent) in [
        (
            "LF alone behind a chunk's size",
            format!("{long:x}\n{body}\r\n0\r\n\r\n"),
        ),
        (
            "CR alone behind a chunk's size",
            format!("{long:x}\r{body}\r\n0\r\n\r\n"),
        ),
        (
            "two CRs behind a chunk's size",
            format!("{long:x}\r\r\n{body}\r\n0\r\n\r\n"),
        ),
        (
            "LF alone behind a chunk",
            format!("{long:x}\r\n{body}\n0\r\n\r\n"),
        ),
        (
            "CR alone behind a chunk",
            format!("{long:x}\r\n{body}\r0\r\n\r\n"),
        ),
        (
            "nothing behind a chunk",
            format!("{long:x}\r\n{body}0\r\n\r\n"),
        ),
        (
            "a space behind a chunk",
            format!("{long:x}\r\n{body} \r\n0\r\n\r\n"),
        ),
        (
            "an empty line behind a chunk",
            format!("{long:x}\r\n{body}\r\n\r\n0\r\n\r\n"),
        ),
        (
            "LF alone behind the last chunk's size",
            format!("{long:x}\r\n{body}\r\n0\n\r\n"),
        ),
        ("only LFs in chunks", format!("{long:x}\n{body}\n0\n\n")),
        (
            "CR and no LF at the end",
            format!("{long:x}\r\n{body}\r\n0\r\n\rx"),
        ),
    ] {
        rows.push(row(name, &chunked(sent), Error(400, 400)));
    }
    for (name, sent) in [
        ("no last chunk", format!("{long:x}\r\n{body}\r\n")),
        ("half of the last chunk", format!("{long:x}\r\n{body}\r\n0")),
        (
            "a last chunk without the empty line",
            format!("{long:x}\r\n{body}\r\n0\r\n"),
        ),
        ("a chunk's size without its line end", format!("{long:x}")),
    ] {
        rows.push(row(name, &chunked(sent), Error(408, 408)));
    }
    rows
}

/// They are read over, up to a limit.
fn extensions() -> Vec<Row> {
    let mut rows = Vec::new();
    for (name, extension) in [
        ("a name", ";a"),
        ("a name and a value", ";a=b"),
        ("several", ";a=b;c;d=\"e;f\""),
        ("white space around", " ; a = b "),
        ("no name", ";"),
        ("bytes of Unicode", ";\u{e9}=\u{1f980}"),
    ] {
        rows.push(row(
            format!("an extension of a chunk: {name}"),
            &extended(extension),
            Result,
        ));
    }
    for (name, extension) in [
        ("LF", ";a\nb"),
        ("LF in quotes", ";a=\"\n\""),
        ("CR", ";a\rb"),
        ("CR in quotes", ";a=\"\r\""),
        ("LF that looks like the end of a size", ";\n2"),
        ("no semicolon", " a=b"),
    ] {
        rows.push(row(
            format!("an extension of a chunk with {name}"),
            &extended(extension),
            Error(400, 400),
        ));
    }
    // Behind the semicolon each byte counts.
    for (length, answer) in [
        (EXTENSIONS_MAX - 2, Result),
        (EXTENSIONS_MAX - 1, Result),
        (EXTENSIONS_MAX, Error(400, 400)),
        (4 * EXTENSIONS_MAX, Error(400, 400)),
    ] {
        let extension = format!(";{}", "x".repeat(length));
        rows.push(row(
            format!("an extension of {length} bytes"),
            &extended(&extension),
            answer,
        ));
    }
    let body = discover();
    for (each, answer) in [
        (10, Result),
        (EXTENSIONS_MAX / body.len() + 1, Error(400, 400)),
    ] {
        let extension = "x".repeat(each);
        let chunks: String = body
            .chars()
            .map(|c| format!("1;{extension}\r\n{c}\r\n"))
            .collect();
        let request = chunked(format!("{chunks}0\r\n\r\n"));
        rows.push(row(
            format!("an extension of {each} bytes for each letter"),
            &request,
            answer,
        ));
    }
    rows
}

/// They are read, and count for nothing.
fn trailers() -> Vec<Row> {
    let mut rows = Vec::new();
    for (name, trailers) in [
        ("any", "X-A: b\r\n"),
        ("a host", "Host: evil.example\r\n"),
        ("a length", "Content-Length: 2\r\n"),
        ("an encoding", "Transfer-Encoding: gzip\r\n"),
        ("a token", "Authorization: Bearer bob\r\n"),
        ("an origin", "Origin: https://evil.example\r\n"),
        ("another method", "Mcp-Method: tools/call\r\n"),
    ] {
        rows.push(row(
            format!("a trailer: {name}"),
            &trailed(trailers),
            Result,
        ));
    }
    for (name, trailers) in [
        ("without a name", ": b\r\n"),
        ("without a colon", "X-A\r\n"),
        ("with a space before its colon", "X-A : b\r\n"),
        ("with a zero byte", "X-A: \0\r\n"),
        ("with CR alone", "X-A: b\rX-B: c\r\n"),
        ("that is folded", "X-A: b\r\n c\r\n"),
    ] {
        rows.push(row(
            format!("a trailer {name}"),
            &trailed(trailers),
            Error(400, 400),
        ));
    }
    for (count, answer) in [
        (TRAILERS - 1, Result),
        (TRAILERS, Result),
        (TRAILERS + 1, Error(400, 400)),
    ] {
        let trailers: String = (0..count).map(|n| format!("X-{n}: x\r\n")).collect();
        rows.push(row(
            format!("{count} trailers"),
            &trailed(&trailers),
            answer,
        ));
    }
    // With their line ends, the last one included.
    for (length, answer) in [
        (TRAILERS_MAX - 1, Result),
        (TRAILERS_MAX + 2, Error(400, 400)),
        (4 * TRAILERS_MAX, Error(400, 400)),
    ] {
        let trailers = format!("X-A: {}\r\n", "x".repeat(length - "X-A: \r\n\r\n".len()));
        rows.push(row(
            format!("trailers of {length} bytes"),
            &trailed(&trailers),
            answer,
        ));
    }
    rows
}
