//! Bodies that are no JSON-RPC message: bytes, JSON, depth.

use crate::request::instead;
use crate::row::Answer::Error;
use crate::row::{Row, row};

fn nested(open: &str, close: &str, levels: usize) -> String {
    let (open, close) = (open.repeat(levels), close.repeat(levels));
    format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\",\"params\":{{\"a\":{open}1{close}}}}}")
}

pub fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for (name, body) in [
        ("a space", &b" "[..]),
        ("a byte order mark", b"\xef\xbb\xbf{}"),
        ("a byte order mark of UTF-16", b"\xff\xfe{\0}\0"),
        ("UTF-16 without a mark", b"{\0}\0"),
        ("UTF-32", b"{\0\0\0}\0\0\0"),
        ("a lone continuation byte", b"{\"jsonrpc\":\"\x80\"}"),
        ("an overlong slash", b"{\"jsonrpc\":\"\xc0\xaf\"}"),
        ("an overlong zero", b"{\"jsonrpc\":\"\xc0\x80\"}"),
        ("a surrogate in UTF-8", b"{\"jsonrpc\":\"\xed\xa0\x80\"}"),
        ("beyond Unicode", b"{\"jsonrpc\":\"\xf4\x90\x80\x80\"}"),
        ("half a character", b"{\"jsonrpc\":\"\xe2\x98\"}"),
        ("Latin-1", b"{\"jsonrpc\":\"\xe9\"}"),
        ("a zero byte", b"{\"jsonrpc\":\"\0\"}"),
        ("a zero byte behind", b"{}\0"),
        ("a control character in a text", b"{\"jsonrpc\":\"\x01\"}"),
        ("a line end in a text", b"{\"jsonrpc\":\"\n\"}"),
        ("a tab in a name", b"{\"json\trpc\":1}"),
        ("an open object", b"{"),
        ("an open text", b"{\"jsonrpc"),
        ("no value", b"{\"jsonrpc\":}"),
        ("no colon", b"{\"jsonrpc\" 1}"),
        ("a comma too many", b"{\"a\":1,}"),
        ("a comma at the start", b"{,\"a\":1}"),
        ("two objects", b"{}{}"),
        ("two lines", b"{}\n{}"),
        ("more behind it", b"{} x"),
        ("single quotes", b"{'jsonrpc':'2.0'}"),
        ("no quotes", b"{jsonrpc:2}"),
        ("a comment", b"{/* x */}"),
        ("a line comment", b"{} // x"),
        ("NaN", b"{\"id\":NaN}"),
        ("Infinity", b"{\"id\":Infinity}"),
        ("minus Infinity", b"{\"id\":-Infinity}"),
        ("undefined", b"{\"id\":undefined}"),
        ("True", b"{\"id\":True}"),
        ("a hexadecimal number", b"{\"id\":0x10}"),
        ("a leading zero", b"{\"id\":01}"),
        ("a leading plus", b"{\"id\":+1}"),
        ("a leading point", b"{\"id\":.5}"),
        ("a trailing point", b"{\"id\":5.}"),
        ("no exponent", b"{\"id\":1e}"),
        ("a minus alone", b"{\"id\":-}"),
        ("a bad escape", b"{\"a\":\"\\x\"}"),
        ("half an escape", b"{\"a\":\"\\u12\"}"),
        ("an escape that is no number", b"{\"a\":\"\\uzzzz\"}"),
        ("a brace that closes nothing", b"}"),
        ("a bracket that closes a brace", b"{\"a\":[1}"),
        ("a form", b"jsonrpc=2.0&id=1&method=x"),
        ("XML", b"<?xml version=\"1.0\"?><methodCall/>"),
        ("a frame of LSP", b"Content-Length: 2\r\n\r\n{}"),
        ("an event", b"data: {}\n\n"),
        ("bytes of gzip", b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03"),
        ("YAML", b"jsonrpc: '2.0'"),
        ("base64 of JSON", b"e30="),
    ] {
        rows.push(row(
            format!("{name}, as a body"),
            &instead(body),
            Error(400, -32700),
        ));
    }
    let open = |text: &str, n: usize| instead(text.repeat(n));
    for (name, request) in [
        ("brackets without an end", open("[", 100_000)),
        ("braces without an end", open("{\"a\":", 100_000)),
        (
            "a text without an end",
            instead(format!("{{\"a\":\"{}", "x".repeat(100_000))),
        ),
    ] {
        rows.push(row(name, &request, Error(400, -32700)));
    }
    for (name, body) in [
        ("null", "null"),
        ("true", "true"),
        ("a number", "7"),
        ("a text", "\"server/discover\""),
        ("a number with white space", " \t\r\n1.5e3 "),
        ("an empty batch", "[]"),
        (
            "a batch of one",
            r#"[{"jsonrpc":"2.0","id":1,"method":"server/discover"}]"#,
        ),
        (
            "a batch of two",
            r#"[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"x"}]"#,
        ),
        ("a batch of nothing", "[null]"),
        ("a batch in a batch", "[[{}]]"),
        ("an empty object", "{}"),
        ("nested brackets", "[[[[[[[[]]]]]]]]"),
    ] {
        rows.push(row(
            format!("{name}, as a message"),
            &instead(body),
            Error(400, -32600),
        ));
    }
    for (name, body) in [
        ("arrays one level too deep", nested("[", "]", 63)),
        ("objects one level too deep", nested("{\"a\":", "}", 63)),
        ("arrays at 129 levels", nested("[", "]", 127)),
        ("arrays at ten thousand levels", nested("[", "]", 10_000)),
        (
            "objects at ten thousand levels",
            nested("{\"a\":", "}", 10_000),
        ),
        ("both in turn", nested("[{\"a\":", "}]", 40)),
        (
            "deep where nobody looks",
            format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\",\"z\":{}{}}}",
                "[".repeat(64),
                "]".repeat(64)
            ),
        ),
        (
            "deep behind brackets in a text",
            format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"]]]\\\"]]\",\"z\":{}{}}}",
                "[".repeat(65),
                "]".repeat(65)
            ),
        ),
    ] {
        rows.push(row(name, &instead(body), Error(400, -32600)).saying("nested"));
    }
    rows
}
