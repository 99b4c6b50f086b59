//! Clients of older revisions: what is refused before and around their methods.

use serde_json::{Value, json};

use crate::request::{Request, older, post};
use crate::row::Answer::{Error, Status};
use crate::row::{Row, row};

const ID: &str = "0198c0de-0000-7000-8000-000000000000";
const VERSIONS: [&str; 2] = ["2025-11-25", "2025-06-18"];

fn body(version: &str, body: impl Into<Vec<u8>>) -> Request {
    post().with("MCP-Protocol-Version", version).body(body)
}

pub fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for version in VERSIONS {
        for (name, text, code) in [
            ("no JSON", "{", -32700),
            ("a batch", "[]", -32600),
            ("no method", r#"{"jsonrpc":"2.0","id":1}"#, -32600),
            (
                "an id of null",
                r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#,
                -32600,
            ),
            (
                "an id that is a fraction",
                r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#,
                -32600,
            ),
            (
                "params that are a list",
                r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}"#,
                -32600,
            ),
            (
                "another version of JSON-RPC",
                r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#,
                -32600,
            ),
        ] {
            rows.push(row(
                format!("{version}: {name}"),
                &body(version, text),
                Error(400, code),
            ));
        }
        for (name, text) in [
            (
                "a response to nothing",
                r#"{"jsonrpc":"2.0","id":1,"result":{}}"#.to_owned(),
            ),
            (
                "a response without an id",
                r#"{"jsonrpc":"2.0","result":{}}"#.to_owned(),
            ),
            (
                "a response to a task that never was",
                format!(r#"{{"jsonrpc":"2.0","id":"{ID}/k","result":{{"action":"accept"}}}}"#),
            ),
            (
                "a response to half an id",
                format!(r#"{{"jsonrpc":"2.0","id":"{ID}","result":{{}}}}"#),
            ),
            (
                "a response to a zero byte",
                format!(r#"{{"jsonrpc":"2.0","id":"{ID}/\u0000","result":{{}}}}"#),
            ),
            (
                "an error to nothing",
                r#"{"jsonrpc":"2.0","id":7,"error":{"code":-1,"message":"x"}}"#.to_owned(),
            ),
        ] {
            rows.push(row(
                format!("{version}: {name}"),
                &body(version, text),
                Status(202),
            ));
        }
        for method in [
            "server/discover",
            "subscriptions/listen",
            "tasks/update",
            "logging/setLevel",
            "roots/list",
            "tools/Call",
            "",
            "\u{0}",
            "☃",
            "sampling/createMessage",
        ] {
            let name = format!("{version}: method {method:?}");
            rows.push(row(
                name,
                &older(version, method, &json!({})),
                Error(200, -32601),
            ));
        }
    }
    for method in ["tasks/get", "tasks/result", "tasks/cancel", "tasks/list"] {
        let name = format!("2025-06-18: {method}");
        rows.push(row(
            name,
            &older("2025-06-18", method, &json!({"taskId": ID})),
            Error(200, -32601),
        ));
    }
    for version in ["2025-03-26", "2024-11-05", "1.0", "x", "2025-11-2５"] {
        let request = older(version, "tools/list", &json!({}));
        let plain = version.is_ascii();
        let answer = if plain {
            Error(400, -32022)
        } else {
            Error(400, -32020)
        };
        rows.push(row(
            format!("version {version:?} by a header alone"),
            &request,
            answer,
        ));
    }
    let initialize =
        |params: &Value| older("2025-11-25", "initialize", params).without("MCP-Protocol-Version");
    for (kind, value) in super::meta::of_every_type() {
        if value.is_string() {
            continue;
        }
        let params = json!({"protocolVersion": value, "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}});
        rows.push(row(
            format!("initialize: the version is {kind}"),
            &initialize(&params),
            Error(200, -32602),
        ));
    }
    rows.push(row(
        "initialize: no version",
        &initialize(&json!({})),
        Error(200, -32602),
    ));
    let twice = older("2025-11-25", "ping", &json!({})).with("MCP-Protocol-Version", "2025-11-25");
    rows.push(row("an older version twice", &twice, Error(400, -32020)));
    let nothing = older("2025-11-25", "tools/list", &json!({})).without("MCP-Protocol-Version");
    rows.push(row(
        "an older request without its version",
        &nothing,
        Error(400, -32020),
    ));
    rows
}
