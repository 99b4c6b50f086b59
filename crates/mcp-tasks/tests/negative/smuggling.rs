//! Heads whose lines or lengths two readers may see differently (RFC 9112 §2.2, §5, §6, §11.2): what is
//! read in one way only is served, the rest is refused before any of it is believed.

use crate::request::{Request, meta, mirrored, post};
use crate::row::Answer::{Closed, Error, Result, Status};
use crate::row::{Row, raw, row};

/// A body that is served.
pub fn discover() -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{{"_meta":{}}}}}"#,
        meta()
    )
}

/// The head of a request that is served, without a length.
pub fn head() -> Request {
    mirrored("server/discover")
}

/// As sent, with one text of it instead of another.
fn with(request: &Request, old: &str, new: &str) -> Vec<u8> {
    let sent = String::from_utf8(request.bytes()).unwrap();
    assert!(sent.contains(old), "{old:?}");
    sent.replacen(old, new, 1).into_bytes()
}

pub fn rows() -> Vec<Row> {
    let mut rows = line_ends();
    rows.extend(folds());
    rows.extend(lengths());
    rows.extend(encodings());
    rows
}

/// A lone LF may end a line (§2.2); a lone CR never does.
fn line_ends() -> Vec<Row> {
    let body = discover();
    let good = head().body(body.as_str());
    let (lines, _) = String::from_utf8(good.bytes())
        .map(|text| (text.replace("\r\n", "\n"), text.len()))
        .unwrap();
    let first = "POST /mcp HTTP/1.1\r\n";
    let mut rows = vec![
        raw("every line ends with LF alone", lines.clone(), Result),
        raw(
            "the first line ends with LF alone",
            with(&good, first, "POST /mcp HTTP/1.1\n"),
            Result,
        ),
        raw(
            "an empty line before the request",
            with(&good, first, &format!("\r\n{first}")),
            Result,
        ),
        raw(
            "a bare LF before the request",
            with(&good, first, &format!("\n{first}")),
            Result,
        ),
    ];
    let http_10 = lines.replace("HTTP/1.1", "HTTP/1.0");
    rows.push(raw("HTTP/1.0, every line with LF alone", http_10, Result));
    for (name, line) in [
        ("ends with CR alone", "POST /mcp HTTP/1.1\r"),
        ("ends with two CRs", "POST /mcp HTTP/1.1\r\r\n"),
        ("ends with a tab", "POST /mcp HTTP/1.1\t\r\n"),
        ("ends with a space", "POST /mcp HTTP/1.1 \r\n"),
        ("begins with a space", " POST /mcp HTTP/1.1\r\n"),
        ("begins with a tab", "\tPOST /mcp HTTP/1.1\r\n"),
        (
            "begins with a byte order mark",
            "\u{feff}POST /mcp HTTP/1.1\r\n",
        ),
        ("is cut by CR", "POST /m\rcp HTTP/1.1\r\n"),
        ("is cut by LF", "POST /mcp\nHTTP/1.1\r\n"),
        ("is divided by tabs", "POST\t/mcp\tHTTP/1.1\r\n"),
        ("has no version", "POST /mcp\r\n"),
        ("has half a version", "POST /mcp HTTP/1.\r\n"),
        ("is of HTTP/2.0", "POST /mcp HTTP/2.0\r\n"),
        ("is of HTTP/1.10", "POST /mcp HTTP/1.10\r\n"),
        ("is of HTTP/0.9", "POST /mcp HTTP/0.9\r\n"),
        ("is an answer's", "HTTP/1.1 200 OK\r\n"),
    ] {
        let name = format!("a request line that {name}");
        rows.push(raw(name, with(&good, first, line), Status(400)));
    }
    for (name, line) in [
        ("with LF in its name", "X\n-A: b"),
        ("that ends with CR alone", "X-A: b\rX-B: c"),
        ("that ends with two CRs", "X-A: b\r"),
        ("with a tab before its colon", "X-A\t: b"),
        ("with quotes in its name", "\"X-A\": b"),
        ("with brackets in its name", "X(A): b"),
        ("with DEL in its value", "X-A: \u{7f}"),
        ("with an escape in its value", "X-A: \u{1b}[31m"),
    ] {
        let request = good.clone().line(&format!("POST /mcp HTTP/1.1\r\n{line}"));
        rows.push(row(format!("a header {name}"), &request, Status(400)));
    }
    // What follows the empty line is no header any more: the host is missing.
    let early = with(&good, first, "POST /mcp HTTP/1.1\n\n");
    rows.push(raw("two LFs behind the first line", early, Status(403)));
    rows.push(raw("only line ends", "\r\n\r\n\n\n\r\n", Closed));
    rows.push(raw(
        "a head without its last LF",
        "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:3000\r\n\r",
        Closed,
    ));
    rows
}

/// Lines that go on in the next one (obs-fold, §5.2) are refused, whichever header they belong to.
fn folds() -> Vec<Row> {
    let mut rows = Vec::new();
    let folded = |line: &str| {
        head()
            .line(&format!("POST /mcp HTTP/1.1\r\n{line}"))
            .body(discover())
    };
    for (name, line) in [
        ("by a tab", "X-A: b\r\n\tc"),
        ("by spaces", "X-A: b\r\n    c"),
        ("behind LF alone", "X-A: b\n c"),
        ("of white space only", "X-A: b\r\n \t "),
        ("whose first line is empty", "X-A:\r\n b"),
        ("that hides a header", "X-A: b\r\n Host: evil.example"),
        ("of the length", "Content-Length:\r\n 2"),
        ("of the encoding", "Transfer-Encoding:\r\n chunked"),
        ("of the token", "X-Authorization: Bearer\r\n bob"),
    ] {
        rows.push(row(format!("a fold {name}"), &folded(line), Status(400)));
    }
    let first = folded(" X-A: b");
    rows.push(row("a fold of no header", &first, Status(400)));
    rows
}

/// One length, in digits.
fn lengths() -> Vec<Row> {
    let body = discover();
    let long = body.len();
    let told = |value: &str| head().with("Content-Length", value).tail(body.as_str());
    let mut rows = vec![
        row(
            "the same length twice",
            &told(&long.to_string()).with("Content-Length", long.to_string()),
            Result,
        ),
        row(
            "a length with zeros in front",
            &told(&format!("000{long}")),
            Result,
        ),
        row(
            "a length with white space around",
            &told(&format!(" \t{long} ")),
            Result,
        ),
    ];
    for (name, value) in [
        ("the same length twice, in one", format!("{long}, {long}")),
        ("a length and a comma", format!("{long},")),
        ("a length and nothing, in one", format!(", {long}")),
        ("a length in hexadecimal", format!("0x{long:x}")),
        ("a length with an exponent", "2e2".to_owned()),
        ("a length with a point", format!("{long}.0")),
        ("a length with a space in it", "2 1".to_owned()),
        ("a length with a parameter", format!("{long};x")),
        ("a length in quotes", format!("\"{long}\"")),
        ("an empty length", String::new()),
        ("a length of minus zero", "-0".to_owned()),
        (
            "a length in digits of another script",
            "\u{ff12}\u{ff10}\u{ff10}".to_owned(),
        ),
        ("a length of 2^64", "18446744073709551616".to_owned()),
        ("a length of a thousand digits", "1".repeat(1000)),
    ] {
        rows.push(row(name, &told(&value), Status(400)));
    }
    for (name, first, second) in [
        ("the smaller length first", 2, long),
        ("the larger length first", long, 2),
        ("no length, then one", 0, long),
        ("a length, then none", long, 0),
    ] {
        let request = told(&first.to_string()).with("Content-Length", second.to_string());
        rows.push(row(name, &request, Status(400)));
    }
    let request = told(&long.to_string()).with("Content-Length", "x");
    rows.push(row(
        "a length, then none that can be read",
        &request,
        Status(400),
    ));
    for (name, value) in [
        ("a length of 2^63", "9223372036854775808"),
        ("a length of 2^32", "4294967296"),
    ] {
        rows.push(row(name, &told(value), Error(413, 413)));
    }
    // Beyond what the reader can count to.
    let most = told("18446744073709551615");
    rows.push(row("a length of 2^64 - 1", &most, Status(431)));
    rows
}

/// One encoding, which is chunked; it counts, whatever length is told beside it (§6.3), and nothing
/// else is read from that connection.
fn encodings() -> Vec<Row> {
    let body = discover();
    let chunks = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    let coded = |value: &str| {
        head()
            .with("Transfer-Encoding", value)
            .tail(chunks.as_str())
    };
    let mut rows = vec![
        row("CHUNKED", &coded("CHUNKED"), Result),
        row("chunked, and white space", &coded(" chunked \t"), Result),
        row(
            "chunks, then the length of the body",
            &coded("chunked").with("Content-Length", body.len().to_string()),
            Result,
        ),
        row(
            "chunks, then a length of zero",
            &coded("chunked").with("Content-Length", "0"),
            Result,
        ),
        row(
            "chunks, then a length that is no number",
            &coded("chunked").with("Content-Length", "x"),
            Result,
        ),
        row(
            "a length of zero, then chunks",
            &head()
                .with("Content-Length", "0")
                .with("Transfer-Encoding", "chunked")
                .tail(chunks.as_str()),
            Result,
        ),
        row(
            "a length that is no number, then chunks",
            &head()
                .with("Content-Length", "x")
                .with("Transfer-Encoding", "chunked")
                .tail(chunks.as_str()),
            Status(400),
        ),
    ];
    for value in [
        "identity",
        "gzip",
        "xchunked",
        "chunkedx",
        "chunk",
        "chunked;q=1",
        "chunked, identity",
        "chunked,",
        "\"chunked\"",
        "chunked\u{b}",
        "\u{b}chunked",
        "chunked chunked",
        "",
    ] {
        let name = format!("encoded as {value:?}");
        rows.push(row(name, &coded(value), Status(400)));
    }
    for (name, first, second) in [
        ("chunked, then identity", "chunked", "identity"),
        ("chunked, then nothing", "chunked", ""),
        ("chunked, then gzip", "chunked", "gzip"),
    ] {
        let request = coded(first).with("Transfer-Encoding", second);
        let name = format!("two encodings: {name}");
        rows.push(row(name, &request, Status(400)));
    }
    let spaced = head()
        .with("Transfer-Encoding ", "chunked")
        .tail(chunks.as_str());
    rows.push(row(
        "a space behind Transfer-Encoding",
        &spaced,
        Status(400),
    ));
    let old = coded("chunked").line("POST /mcp HTTP/1.0");
    rows.push(row("chunks in HTTP/1.0", &old, Status(400)));
    let unlike = post()
        .with("Transfer_Encoding", "chunked")
        .tail(chunks.as_str());
    rows.push(row(
        "an encoding with an underscore",
        &unlike,
        Error(400, -32700),
    ));
    rows
}
