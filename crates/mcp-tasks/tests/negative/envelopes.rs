//! JSON objects that are no request: ids, versions, methods, params, responses, names twice.

use crate::request::{instead, mirrored};
use crate::row::Answer::Error;
use crate::row::{Row, row};

pub fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    let refused = |name: String, body: String| row(name, &instead(body), Error(400, -32600));
    for id in [
        "null",
        "true",
        "false",
        "1.0",
        "1.5",
        "-0.0",
        "1e3",
        "1E400",
        "-1e-5",
        "[]",
        "[1]",
        "{}",
        "{\"a\":1}",
        "\"\\ud800\"",
        "\"\\udc00\"",
        "\"\\ud800\\ud800\"",
        "\"\\ud83d\"",
        "9007199254740993.0",
        "123456789012345678901234567890e1",
    ] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"server/discover"}}"#);
        rows.push(refused(format!("id {id}"), body));
    }
    for (name, id) in [
        ("a text of 1 KiB", format!("\"{}\"", "i".repeat(1024))),
        ("a number of 2 KiB", "1".repeat(2048)),
        ("a text of 100 KiB", format!("\"{}\"", "☃".repeat(33_000))),
        ("escapes of 2 KiB", format!("\"{}\"", "\\u0000".repeat(350))),
        ("spaces within a list", format!("[{}]", " ".repeat(2048))),
    ] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"server/discover"}}"#);
        rows.push(refused(format!("an id that is {name}"), body));
    }
    for version in [
        "\"1.0\"",
        "\"2\"",
        "\"2.0 \"",
        "\"2.00\"",
        "2.0",
        "2",
        "null",
        "true",
        "[\"2.0\"]",
        "{}",
        "\"\"",
        "\"２.０\"",
        "\"2.0\\u0000\"",
    ] {
        let body = format!(r#"{{"jsonrpc":{version},"id":1,"method":"server/discover"}}"#);
        rows.push(refused(format!("jsonrpc {version}"), body));
    }
    for method in [
        "null",
        "1",
        "true",
        "[]",
        "{}",
        "[\"server/discover\"]",
        "\"\\ud800\"",
        "1e400",
    ] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":{method}}}"#);
        rows.push(refused(format!("method {method}"), body));
    }
    for params in ["null", "1", "true", "\"x\"", "[]", "[{}]", "1e400"] {
        let body =
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{params}}}"#);
        rows.push(refused(format!("params {params}"), body));
        let body = format!(r#"{{"jsonrpc":"2.0","method":"notifications/x","params":{params}}}"#);
        rows.push(refused(format!("params {params} of a notification"), body));
    }
    for (name, body) in [
        ("no jsonrpc", r#"{"id":1,"method":"server/discover"}"#),
        (
            "JSONRPC",
            r#"{"JSONRPC":"2.0","id":1,"method":"server/discover"}"#,
        ),
        ("no method", r#"{"jsonrpc":"2.0","id":1}"#),
        (
            "no method and params",
            r#"{"jsonrpc":"2.0","id":1,"params":{}}"#,
        ),
        (
            "Method",
            r#"{"jsonrpc":"2.0","id":1,"Method":"server/discover"}"#,
        ),
        (
            "two ids",
            r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"server/discover"}"#,
        ),
        (
            "two ids alike",
            r#"{"jsonrpc":"2.0","id":1,"id":1,"method":"server/discover"}"#,
        ),
        (
            "two ids, one escaped",
            r#"{"jsonrpc":"2.0","id":1,"\u0069d":2,"method":"server/discover"}"#,
        ),
        (
            "two methods",
            r#"{"jsonrpc":"2.0","id":1,"method":"server/discover","method":"tools/list"}"#,
        ),
        (
            "two methods, one escaped",
            r#"{"jsonrpc":"2.0","id":1,"method":"server/discover","\u006dethod":"tools/list"}"#,
        ),
        (
            "two params",
            r#"{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{},"params":{}}"#,
        ),
        (
            "two versions",
            r#"{"jsonrpc":"2.0","jsonrpc":"2.0","id":1,"method":"server/discover"}"#,
        ),
        (
            "two of what nobody knows",
            r#"{"jsonrpc":"2.0","id":1,"method":"server/discover","x":1,"x":2}"#,
        ),
        (
            "two empty names",
            r#"{"jsonrpc":"2.0","id":1,"method":"server/discover","":1,"":2}"#,
        ),
        (
            "two names of a zero byte",
            r#"{"jsonrpc":"2.0","id":1,"method":"server/discover","\u0000":1,"\u0000":2}"#,
        ),
        ("a response", r#"{"jsonrpc":"2.0","id":1,"result":{}}"#),
        (
            "a response without an id",
            r#"{"jsonrpc":"2.0","result":{}}"#,
        ),
        (
            "a response that is an error",
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"x"}}"#,
        ),
        (
            "a response that is both",
            r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":"x"}}"#,
        ),
        (
            "a response and a request",
            r#"{"jsonrpc":"2.0","id":1,"method":"server/discover","result":{}}"#,
        ),
        (
            "a response of null",
            r#"{"jsonrpc":"2.0","id":1,"result":null}"#,
        ),
        (
            "an error of null",
            r#"{"jsonrpc":"2.0","id":1,"error":null}"#,
        ),
        (
            "a response to null",
            r#"{"jsonrpc":"2.0","id":null,"result":{}}"#,
        ),
        (
            "a response to a task's question",
            r#"{"jsonrpc":"2.0","id":"0198c0de-0000-7000-8000-000000000000/k","result":{"action":"accept"}}"#,
        ),
    ] {
        rows.push(refused(name.to_owned(), body.to_owned()));
    }
    for method in [
        "initialize",
        "ping",
        "tasks/list",
        "tasks/result",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
        "roots/list",
        "sampling/createMessage",
        "elicitation/create",
        "rpc.discover",
        "tools/Call",
        "tools/call ",
        "tools",
        "tools/",
        "",
        "\u{0}",
        "☃",
        "x",
        "server/discover/",
        "notifications/initialized",
        "subscriptions/unlisten",
    ] {
        let params = serde_json::json!({"_meta": crate::request::meta()});
        let body =
            serde_json::json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let plain = method.bytes().all(|byte| byte.is_ascii_graphic()) && !method.is_empty();
        // What no header can say is a mismatch before it is a method.
        let answer = if plain {
            Error(404, -32601)
        } else {
            Error(400, -32020)
        };
        let sent = if plain { method } else { "x-unknown" };
        rows.push(row(
            format!("method {method:?}, unknown"),
            &mirrored(sent).body(body.to_string()),
            answer,
        ));
    }
    rows
}
