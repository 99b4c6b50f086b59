//! Odd, and in order: what a database, a log or a header could stumble over. It is answered like
//! anything else, and what cannot be kept is refused by name.

use serde_json::{Value, json};

use crate::request::{CAPABILITIES_KEY, instead, meta, modern};
use crate::row::Answer::{Error, Result};
use crate::row::{Row, row};
use crate::stack::{SOON, Stack};

/// Texts that Postgres, JSON or a terminal could take amiss.
const TEXTS: &[(&str, &str)] = &[
    ("a zero byte", "a\u{0}b"),
    ("control characters", "\u{1}\u{7f}\u{9f}"),
    ("an escape of a terminal", "\u{1b}[31m\u{7}"),
    ("the end of Unicode", "\u{10ffff}\u{fffe}\u{ffff}"),
    ("a byte order mark", "\u{feff}x"),
    ("directions", "\u{202e}x\u{2066}"),
    ("line ends", "a\r\nb\u{2028}c\u{85}d"),
    ("ten thousand accents", "e\u{301}\u{301}\u{301}"),
    ("quotes", "'\"`\\;--*"),
];

/// Streams, which no row can wait for the end of: what cannot be is left out of what is agreed to.
pub async fn listens(stack: &Stack) {
    let alice = stack.cluster.client(0, "alice");
    let watched = "test://watched-resource";
    let uris: Vec<String> = TEXTS
        .iter()
        .map(|(_, text)| format!("test://template/{text}/data"))
        .chain([watched.to_owned()])
        .collect();
    let ids: Vec<&str> = TEXTS.iter().map(|(_, text)| *text).collect();
    let filter = json!({"resourceSubscriptions": uris, "taskIds": ids});
    let mut stream = alice.listen(filter).await.unwrap();
    let told = stream.next(SOON).await.unwrap().unwrap();
    assert_eq!(told["method"], "notifications/subscriptions/acknowledged");
    let agreed = &told["params"]["notifications"];
    assert_eq!(agreed["taskIds"], json!([]), "{told}");
    let agreed = agreed["resourceSubscriptions"].as_array().unwrap();
    assert!(agreed.contains(&json!(watched)), "{told}");
    assert!(!agreed.contains(&json!(uris[0])), "{told}");
}

pub async fn rows(stack: &Stack) -> Vec<Row> {
    let mut rows = Vec::new();
    let discover = |meta: Value| modern("server/discover", json!({"_meta": meta}));
    let (id, _) = stack.asked().await;
    for (name, text) in TEXTS {
        let mut client = meta();
        client["io.modelcontextprotocol/clientInfo"] = json!({"name": text, "version": text});
        client["traceparent"] = json!(text);
        client["tracestate"] = json!(text);
        client["baggage"] = json!(text);
        rows.push(row(
            format!("a client called {name}"),
            &discover(client.clone()),
            Result,
        ));
        let call = json!({"name": "greet", "arguments": {"name": text}, "_meta": client.clone()});
        rows.push(row(
            format!("a call by {name}"),
            &modern("tools/call", call),
            Result,
        ));
        // Kept in a row, and shown again.
        let call = json!({"name": "slow_compute", "arguments": {"seconds": 0, "label": text, *text: text}, "_meta": client});
        rows.push(row(
            format!("a task of {name}"),
            &modern("tools/call", call),
            Result,
        ));
        let update = json!({"taskId": id, "inputResponses": {*text: {"action": "accept"}}});
        rows.push(row(
            format!("an answer called {name}"),
            &modern("tasks/update", update),
            Result,
        ));
        let key = json!({"name": "greet", "arguments": {"name": "x"}, "idempotencyKey": format!("key {text}")});
        let refused = text.contains(char::is_control);
        let answer = if refused { Error(200, -32602) } else { Result };
        rows.push(row(
            format!("an idempotency key of {name}"),
            &modern("tools/call", key),
            answer,
        ));
        let uri = format!("test://template/{text}/data");
        rows.push(row(
            format!("a resource of {name}"),
            &modern("resources/read", json!({"uri": uri})),
            Result,
        ));
        let arguments = json!({"arg1": text, "arg2": text});
        let get = json!({"name": "test_prompt_with_arguments", "arguments": arguments});
        rows.push(row(
            format!("a prompt of {name}"),
            &modern("prompts/get", get),
            Result,
        ));
        let complete = json!({"ref": {"type": "ref/prompt", "name": "test_prompt_with_arguments"},
                              "argument": {"name": "arg1", "value": text}});
        rows.push(row(
            format!("a completion of {name}"),
            &modern("completion/complete", complete),
            Result,
        ));
        let get = json!({"taskId": text});
        rows.push(row(
            format!("a task called {name}"),
            &modern("tasks/get", get),
            Error(200, -32602),
        ));
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":{},"method":"server/discover","params":{{"_meta":{}}}}}"#,
            json!(text),
            meta()
        );
        rows.push(row(format!("an id of {name}"), &instead(body), Result));
    }
    for id in [
        "0",
        "-0",
        "-9223372036854775809",
        "18446744073709551616",
        "123456789012345678901234567890",
        "\"\"",
        "\"\\u0000\"",
    ] {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"server/discover","params":{{"_meta":{}}}}}"#,
            meta()
        );
        rows.push(row(format!("id {id}, odd"), &instead(body), Result));
    }
    for (name, number) in [
        ("beyond a double", "1e999"),
        ("beyond 64 bits", "123456789012345678901234567890"),
        ("minus zero", "-0.0"),
        ("tiny", "1e-999"),
        ("long", &"1".repeat(5000)),
    ] {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"greet","arguments":{{"name":"x","n":{number}}},"_meta":{}}}}}"#,
            meta()
        );
        let request = crate::request::mirrored("tools/call")
            .with("Mcp-Name", "greet")
            .body(body);
        rows.push(row(format!("an argument {name}"), &request, Result));
    }
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"greet","arguments":{{"name":"\ud800"}},"_meta":{}}}}}"#,
        meta()
    );
    let request = crate::request::mirrored("tools/call")
        .with("Mcp-Name", "greet")
        .body(body);
    rows.push(row("an argument of a lone surrogate", &request, Result));
    for (kind, value) in super::meta::of_every_type() {
        for key in [
            "traceparent",
            "tracestate",
            "baggage",
            "progressToken",
            "io.modelcontextprotocol/clientInfo",
            "io.modelcontextprotocol/logLevel",
            "example.com/unknown",
        ] {
            let mut client = meta();
            client[key] = value.clone();
            let refused = key == "progressToken" && matches!(kind, "true" | "a list" | "an object");
            let answer = if refused { Error(400, -32602) } else { Result };
            let name = format!("_meta {key} is {kind}");
            rows.push(row(name, &discover(client), answer));
        }
        let mut client = meta();
        client[CAPABILITIES_KEY] =
            json!({"elicitation": value, "sampling": value, "roots": value, "extensions": value});
        rows.push(row(
            format!("capabilities are {kind}"),
            &discover(client),
            Result,
        ));
    }
    rows
}
