//! `_meta`: what a client must say of itself, and how it may be said wrongly.

use serde_json::{Value, json};

use crate::request::{CAPABILITIES_KEY, VERSION_KEY, meta, modern};
use crate::row::Answer::Error;
use crate::row::{Row, row};

/// Values of every JSON type.
pub fn of_every_type() -> Vec<(&'static str, Value)> {
    vec![
        ("null", Value::Null),
        ("true", json!(true)),
        ("a number", json!(7)),
        ("a fraction", json!(1.5)),
        ("a text", json!("x")),
        ("a list", json!([1])),
        ("an object", json!({"a": 1})),
    ]
}

fn with(key: &str, value: Value) -> Value {
    let mut meta = meta();
    meta[key] = value;
    meta
}

fn without(key: &str) -> Value {
    let mut meta = meta();
    meta.as_object_mut().unwrap().remove(key);
    meta
}

pub fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    let discover = |meta: Value| modern("server/discover", json!({"_meta": meta}));
    for (kind, value) in of_every_type() {
        if !value.is_object() && !value.is_null() {
            rows.push(row(
                format!("_meta is {kind}"),
                &discover(value.clone()),
                Error(400, -32602),
            ));
        }
        if !value.is_string() {
            let request = discover(with(VERSION_KEY, value.clone()));
            rows.push(row(
                format!("the version is {kind}"),
                &request,
                Error(400, -32602),
            ));
        }
        if !value.is_object() {
            let request = discover(with(CAPABILITIES_KEY, value.clone()));
            rows.push(row(
                format!("the capabilities are {kind}"),
                &request,
                Error(400, -32602),
            ));
        }
    }
    for (name, meta) in [
        ("no version", without(VERSION_KEY)),
        ("no capabilities", without(CAPABILITIES_KEY)),
        ("an empty _meta", json!({})),
        (
            "keys without a prefix",
            json!({"protocolVersion": "2026-07-28", "clientCapabilities": {}}),
        ),
        (
            "keys in capitals",
            json!({VERSION_KEY.to_uppercase(): "2026-07-28", CAPABILITIES_KEY: {}}),
        ),
    ] {
        rows.push(row(
            format!("_meta: {name}"),
            &discover(meta),
            Error(400, -32602),
        ));
    }
    let body = |params: &str| {
        let text =
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{params}}}"#);
        modern("server/discover", json!({})).body(text)
    };
    let (version, capabilities) = (
        format!(r#""{VERSION_KEY}":"2026-07-28""#),
        format!(r#""{CAPABILITIES_KEY}":{{}}"#),
    );
    for (name, params) in [
        ("no params", "{}".to_owned()),
        (
            "two versions",
            format!("{{\"_meta\":{{{version},{version},{capabilities}}}}}"),
        ),
        (
            "two capabilities",
            format!("{{\"_meta\":{{{version},{capabilities},{capabilities}}}}}"),
        ),
        (
            "two _meta",
            format!(
                "{{\"_meta\":{{{version},{capabilities}}},\"_meta\":{{{version},{capabilities}}}}}"
            ),
        ),
        (
            "a lone surrogate as the version",
            format!("{{\"_meta\":{{\"{VERSION_KEY}\":\"\\ud800\",{capabilities}}}}}"),
        ),
        (
            "a number that no double holds as the version",
            format!("{{\"_meta\":{{\"{VERSION_KEY}\":1e999,{capabilities}}}}}"),
        ),
    ] {
        rows.push(row(
            format!("_meta: {name}"),
            &body(&params),
            Error(400, -32602),
        ));
    }
    for version in [
        "v999",
        "2026-07-29",
        "2024-11-05",
        "2025-03-26",
        "x".repeat(2000).as_str(),
    ] {
        let request =
            discover(with(VERSION_KEY, json!(version))).set("MCP-Protocol-Version", version);
        let shown = &version[..version.len().min(20)];
        rows.push(
            row(format!("version {shown:?}"), &request, Error(400, -32022)).saying("version"),
        );
    }
    for version in [
        "",
        "2026-07-28 ",
        " 2026-07-28",
        "2026-07-28\u{0}",
        "２０２６-07-28",
        "v999.1",
    ] {
        let request = discover(with(VERSION_KEY, json!(version)));
        rows.push(row(
            format!("version {version:?} in the body"),
            &request,
            Error(400, -32020),
        ));
    }
    let tasks = "io.modelcontextprotocol/tasks";
    for (name, capabilities) in [
        ("not at all", json!({})),
        ("beside the extensions", json!({tasks: {}})),
        ("by its short name", json!({"tasks": {}})),
        ("as true", json!({"extensions": {tasks: true}})),
        ("as null", json!({"extensions": {tasks: null}})),
        ("as a list", json!({"extensions": {tasks: []}})),
        ("in a list", json!({"extensions": [tasks]})),
        (
            "in capitals",
            json!({"extensions": {tasks.to_uppercase(): {}}}),
        ),
        (
            "with a zero byte",
            json!({"extensions": {format!("{tasks}\u{0}"): {}}}),
        ),
    ] {
        for method in ["tasks/get", "tasks/cancel", "tasks/update"] {
            let params = json!({"taskId": "0198c0de-0000-7000-8000-000000000000", "inputResponses": {},
                "_meta": with(CAPABILITIES_KEY, capabilities.clone())});
            let name = format!("{method} declared {name}");
            rows.push(row(name, &modern(method, params), Error(400, -32021)));
        }
    }
    rows
}
