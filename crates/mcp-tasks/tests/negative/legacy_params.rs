//! Clients of older revisions: params of every wrong type.

use serde_json::{Value, json};

use super::meta::of_every_type;
use crate::request::older;
use crate::row::Answer::Error;
use crate::row::{Row, row};

const ID: &str = "0198c0de-0000-7000-8000-000000000000";
const WRONG: crate::row::Answer = Error(200, -32602);

pub fn rows() -> Vec<Row> {
    const TEXT: &[&str] = &["a text"];
    const MAY_BE_TEXT: &[&str] = &["a text", "null"];
    const MAY_BE_OBJECT: &[&str] = &["an object", "null"];
    let call = json!({"name": "greet", "arguments": {"name": "x"}});
    let typed: Vec<(&str, Value, &str, &[&str])> = vec![
        ("tools/list", json!({}), "cursor", MAY_BE_TEXT),
        ("tasks/list", json!({}), "cursor", MAY_BE_TEXT),
        ("prompts/list", json!({}), "cursor", MAY_BE_TEXT),
        ("tools/call", call.clone(), "name", TEXT),
        ("tools/call", call.clone(), "arguments", MAY_BE_OBJECT),
        ("tools/call", call, "task", MAY_BE_OBJECT),
        ("tasks/get", json!({}), "taskId", TEXT),
        ("tasks/result", json!({}), "taskId", TEXT),
        ("tasks/cancel", json!({}), "taskId", TEXT),
        ("prompts/get", json!({}), "name", TEXT),
        ("resources/read", json!({}), "uri", TEXT),
    ];
    let mut rows = Vec::new();
    for (method, params, param, right) in typed {
        for (kind, value) in of_every_type() {
            if right.contains(&kind) {
                continue;
            }
            let mut params = params.clone();
            params[param] = value;
            let name = format!("2025-11-25: {method}: {param} is {kind}");
            rows.push(row(name, &older("2025-11-25", method, &params), WRONG));
        }
    }
    for (name, id) in [
        ("that never was", ID),
        ("of a zero byte", "\u{0}"),
        ("of nothing", ""),
        ("in capitals", "0198C0DE-0000-7000-8000-000000000000"),
    ] {
        for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
            let name = format!("2025-11-25: {method} of an id {name}");
            rows.push(row(
                name,
                &older("2025-11-25", method, &json!({"taskId": id})),
                WRONG,
            ));
        }
    }
    for cursor in ["", "x", "\u{0}", ID, "bGFzdA"] {
        for list in ["tasks/list", "tools/list"] {
            let name = format!("2025-11-25: {list} with the cursor {cursor:?}");
            rows.push(row(
                name,
                &older("2025-11-25", list, &json!({"cursor": cursor})),
                WRONG,
            ));
        }
    }
    for (name, tool) in [
        ("nothing", ""),
        ("a zero byte", "\u{0}"),
        ("what is not there", "none"),
    ] {
        let name = format!("2025-11-25: a tool called {name}");
        rows.push(row(
            name,
            &older("2025-11-25", "tools/call", &json!({"name": tool})),
            WRONG,
        ));
    }
    let required = json!({"name": "test_tool_with_task", "arguments": {}});
    rows.push(row(
        "2025-11-25: a task's tool without task",
        &older("2025-11-25", "tools/call", &required),
        Error(200, -32601),
    ));
    let never = json!({"name": "greet", "arguments": {"name": "x"}, "task": {}});
    rows.push(row(
        "2025-11-25: a tool that is never a task with task",
        &older("2025-11-25", "tools/call", &never),
        Error(200, -32601),
    ));
    let read = json!({"uri": "test://none"});
    rows.push(row(
        "2025-11-25: a resource that is not there",
        &older("2025-11-25", "resources/read", &read),
        Error(200, -32002),
    ));
    rows
}
