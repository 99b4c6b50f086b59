//! Every method with every param of every wrong type, and words that name nothing.

use serde_json::{Value, json};

use super::meta::of_every_type;
use crate::request::{Request, mirrored, modern};
use crate::row::Answer::Error;
use crate::row::{Row, row};

const ID: &str = "0198c0de-0000-7000-8000-000000000000";
const WRONG: crate::row::Answer = Error(200, -32602);

/// A method, params that are in order, one of them, and the types that it may have.
fn typed() -> Vec<(&'static str, Value, &'static str, &'static [&'static str])> {
    const TEXT: &[&str] = &["a text"];
    const MAY_BE_TEXT: &[&str] = &["a text", "null"];
    const MAY_BE_OBJECT: &[&str] = &["an object", "null"];
    let read = json!({"uri": "test://static-text"});
    let get = json!({"name": "test_simple_prompt"});
    let call = json!({"name": "greet", "arguments": {"name": "x"}});
    let complete = json!({"ref": {"type": "ref/prompt", "name": "test_prompt_with_arguments"},
                          "argument": {"name": "arg1", "value": "p"}});
    vec![
        ("tools/list", json!({}), "cursor", MAY_BE_TEXT),
        ("resources/list", json!({}), "cursor", MAY_BE_TEXT),
        ("resources/templates/list", json!({}), "cursor", MAY_BE_TEXT),
        ("prompts/list", json!({}), "cursor", MAY_BE_TEXT),
        ("tools/call", call.clone(), "name", TEXT),
        ("tools/call", call.clone(), "arguments", MAY_BE_OBJECT),
        ("tools/call", call.clone(), "requestState", MAY_BE_TEXT),
        ("tools/call", call.clone(), "inputResponses", MAY_BE_OBJECT),
        ("tools/call", call, "idempotencyKey", MAY_BE_TEXT),
        ("prompts/get", get.clone(), "name", TEXT),
        ("prompts/get", get.clone(), "arguments", MAY_BE_OBJECT),
        ("prompts/get", get, "requestState", MAY_BE_TEXT),
        ("resources/read", read.clone(), "uri", TEXT),
        ("resources/read", read, "requestState", MAY_BE_TEXT),
        ("completion/complete", complete.clone(), "ref", &[]),
        ("completion/complete", complete.clone(), "argument", &[]),
        ("completion/complete", complete, "context", MAY_BE_OBJECT),
        ("tasks/get", json!({}), "taskId", TEXT),
        ("tasks/cancel", json!({}), "taskId", TEXT),
        (
            "tasks/update",
            json!({"inputResponses": {}}),
            "taskId",
            TEXT,
        ),
        (
            "tasks/update",
            json!({"taskId": ID}),
            "inputResponses",
            &["an object"],
        ),
        (
            "subscriptions/listen",
            json!({}),
            "notifications",
            &["an object"],
        ),
    ]
}

/// The same without a word about types.
fn nameless(method: &str, params: &Value) -> Request {
    let mut params = params.clone();
    params["_meta"] = crate::request::meta();
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    mirrored(method).body(body.to_string())
}

pub fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for (method, params, param, right) in typed() {
        for (kind, value) in of_every_type() {
            if right.contains(&kind) {
                continue;
            }
            let mut params = params.clone();
            params[param] = value;
            rows.push(row(
                format!("{method}: {param} is {kind}"),
                &modern(method, params),
                WRONG,
            ));
        }
        if !right.contains(&"null") {
            let mut params = params.clone();
            params.as_object_mut().unwrap().remove(param);
            rows.push(row(
                format!("{method}: no {param}"),
                &nameless(method, &params),
                WRONG,
            ));
        }
    }
    for param in [
        "toolsListChanged",
        "promptsListChanged",
        "resourcesListChanged",
        "resourceSubscriptions",
        "taskIds",
    ] {
        for (kind, value) in of_every_type() {
            let list = param.starts_with("resourceS") || param == "taskIds";
            let fits = match kind {
                "null" => true,
                "true" => !list,
                _ => false,
            };
            if fits {
                continue;
            }
            let params = json!({"notifications": {param: value}});
            rows.push(row(
                format!("listen: {param} is {kind}"),
                &modern("subscriptions/listen", params),
                WRONG,
            ));
        }
    }
    let many = json!({"notifications": {"taskIds": vec![ID; 101]}});
    rows.push(row(
        "listen: 101 ids",
        &modern("subscriptions/listen", many),
        WRONG,
    ));
    for (name, tool) in [
        ("another case", "GREET"),
        ("a space behind", "greet "),
        ("nothing", ""),
        ("a zero byte", "\u{0}"),
        ("a snowman", "☃"),
        ("a path", "../greet"),
        ("SQL", "greet' OR '1'='1"),
        ("2000 letters", &"g".repeat(2000)),
        ("a right-to-left mark", "greet\u{202e}"),
        ("a provider", "fixtures"),
        ("a format", "%s%n{}"),
    ] {
        rows.push(row(
            format!("a tool called {name}"),
            &modern("tools/call", json!({"name": tool})),
            WRONG,
        ));
        rows.push(row(
            format!("a prompt called {name}"),
            &modern("prompts/get", json!({"name": tool})),
            WRONG,
        ));
        rows.push(row(
            format!("a resource at {name}"),
            &modern("resources/read", json!({"uri": tool})),
            WRONG,
        ));
        for method in ["tasks/get", "tasks/cancel", "tasks/update"] {
            let params = json!({"taskId": tool, "inputResponses": {}});
            rows.push(row(
                format!("{method} of {name}"),
                &modern(method, params),
                WRONG,
            ));
        }
    }
    for (name, id) in [
        ("that never was", ID),
        ("in capitals", "0198C0DE-0000-7000-8000-000000000000"),
        ("in braces", "{0198c0de-0000-7000-8000-000000000000}"),
        ("without hyphens", "0198c0de000070008000000000000000"),
        ("of zeros", "00000000-0000-0000-0000-000000000000"),
        ("as a URN", "urn:uuid:0198c0de-0000-7000-8000-000000000000"),
        (
            "with a zero byte",
            "0198c0de-0000-7000-8000-00000000000\u{0}",
        ),
    ] {
        rows.push(row(
            format!("tasks/get: an id {name}"),
            &modern("tasks/get", json!({"taskId": id})),
            WRONG,
        ));
    }
    for (name, state) in [
        ("empty", ""),
        ("short", "A"),
        ("forged", "forged"),
        ("a zero byte", "\u{0}"),
        ("padded", "QUFBQQ=="),
        ("long", &"A".repeat(5000)),
        ("JSON", "{\"i\":1}"),
        ("forty bytes", &"A".repeat(56)),
    ] {
        for (method, base) in [
            (
                "tools/call",
                json!({"name": "greet", "arguments": {"name": "x"}}),
            ),
            ("prompts/get", json!({"name": "test_simple_prompt"})),
            ("resources/read", json!({"uri": "test://static-text"})),
        ] {
            let mut params = base;
            params["requestState"] = json!(state);
            rows.push(row(
                format!("{method}: requestState {name}"),
                &modern(method, params),
                WRONG,
            ));
        }
    }
    for (name, key) in [
        ("empty", String::new()),
        ("long", "k".repeat(300)),
        ("a zero byte", "a\u{0}b".to_owned()),
    ] {
        let call = |params: Value| modern("tools/call", params);
        let base = || json!({"name": "greet", "arguments": {"name": "x"}});
        let mut params = base();
        params["idempotencyKey"] = json!(key);
        rows.push(row(
            format!("an idempotency key: {name}"),
            &call(params),
            WRONG,
        ));
        let mut params = base();
        params["_meta"] = crate::request::meta();
        params["_meta"]["io.github.mcp-tasks/idempotencyKey"] = json!(key);
        rows.push(row(
            format!("an idempotency key in _meta: {name}"),
            &call(params),
            WRONG,
        ));
    }
    let mut params = json!({"name": "greet", "arguments": {"name": "x"}, "idempotencyKey": "a"});
    params["_meta"] = crate::request::meta();
    let two = modern("tools/call", params).with("Idempotency-Key", "b");
    rows.push(row("two idempotency keys that differ", &two, WRONG));
    for (name, body) in [
        ("the name twice", r#""name":"greet","name":"greet""#),
        (
            "the name twice, one escaped",
            r#""name":"greet","n\u0061me":"greet""#,
        ),
        (
            "the arguments twice",
            r#""name":"greet","arguments":{},"arguments":{}"#,
        ),
        ("the name a lone surrogate", r#""name":"\ud800""#),
        (
            "the same key again in the arguments, deep",
            r#""name":"greet","arguments":{"name":"x","a":[{"b":1,"\u0062":1}]}"#,
        ),
        ("the name a number that no double holds", r#""name":1e999"#),
    ] {
        let meta = crate::request::meta().to_string();
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{{body},"_meta":{meta}}}}}"#
        );
        let request = mirrored("tools/call").with("Mcp-Name", "greet").body(body);
        // Whoever reads `_meta` meets a key that is there twice first.
        let answer = if name.contains("twice") {
            Error(400, -32602)
        } else {
            WRONG
        };
        rows.push(row(format!("tools/call: {name}"), &request, answer));
    }
    let listen = || {
        modern(
            "subscriptions/listen",
            json!({"notifications": {"toolsListChanged": true}}),
        )
    };
    for accept in [
        "application/json",
        "",
        "text/html",
        "text/event-stream-x",
        "*/json",
    ] {
        let request = listen().set("Accept", accept);
        rows.push(row(
            format!("listen: Accept {accept:?}"),
            &request,
            Error(406, 406),
        ));
    }
    rows.push(row(
        "listen: no Accept",
        &listen().without("Accept"),
        Error(406, 406),
    ));
    rows
}
