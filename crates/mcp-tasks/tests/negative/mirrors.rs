//! Headers that must say what the body says: missing, different, doubled, badly encoded.

use serde_json::json;

use crate::request::{Request, modern};
use crate::row::Answer::Error;
use crate::row::{Row, row};

const ID: &str = "0198c0de-0000-7000-8000-000000000000";

pub fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    let mismatch = Error(400, -32020);
    let discover = || modern("server/discover", json!({}));
    for header in ["MCP-Protocol-Version", "Mcp-Method"] {
        rows.push(row(
            format!("no {header}"),
            &discover().without(header),
            mismatch.clone(),
        ));
        let twice = discover().with(
            header,
            if header == "Mcp-Method" {
                "server/discover"
            } else {
                "2026-07-28"
            },
        );
        rows.push(row(format!("{header} twice"), &twice, mismatch.clone()));
        for (name, value) in [
            ("empty", &b""[..]),
            ("another word", b"tools/list"),
            ("in capitals", b"SERVER/DISCOVER"),
            ("a list", b"server/discover, server/discover"),
            ("in quotes", b"\"server/discover\""),
            ("encoded", b"=?base64?c2VydmVyL2Rpc2NvdmVy?="),
            ("Latin-1", b"server/discover\xe9"),
            ("a soft hyphen", "server/dis\u{ad}cover".as_bytes()),
        ] {
            rows.push(row(
                format!("{header} {name}"),
                &discover().set(header, value),
                mismatch.clone(),
            ));
        }
    }
    let named: Vec<(&str, Request)> = vec![
        (
            "tools/call",
            modern("tools/call", json!({"name": "greet", "arguments": {}})),
        ),
        (
            "prompts/get",
            modern("prompts/get", json!({"name": "test_simple_prompt"})),
        ),
        (
            "resources/read",
            modern("resources/read", json!({"uri": "test://static-text"})),
        ),
        ("tasks/get", modern("tasks/get", json!({"taskId": ID}))),
        (
            "tasks/cancel",
            modern("tasks/cancel", json!({"taskId": ID})),
        ),
        (
            "tasks/update",
            modern("tasks/update", json!({"taskId": ID, "inputResponses": {}})),
        ),
    ];
    for (method, request) in &named {
        if !method.starts_with("tasks/") {
            let name = format!("{method} without Mcp-Name");
            rows.push(row(
                name,
                &request.clone().without("Mcp-Name"),
                mismatch.clone(),
            ));
        }
        for (name, value) in [
            ("empty", &b""[..]),
            ("another", b"other"),
            ("Latin-1", b"gr\xe9et"),
            ("encoded without padding", b"=?base64?Z3JlZXQ?="),
            ("encoded by the other alphabet", b"=?base64?-_-_?="),
            ("encoded nothing", b"=?base64??="),
            ("encoded with a space", b"=?base64?Z3Jl ZXQ=?="),
            ("encoded bytes that are no text", b"=?base64?/////w==?="),
            ("encoded twice", b"=?base64?PT9iYXNlNjQ/WjNKbFpYUT0/PQ==?="),
            ("half a marker", b"=?base64?Z3JlZXQ="),
            ("a marker in capitals", b"=?BASE64?Z3JlZXQ=?="),
            ("of RFC 2047", b"=?utf-8?B?Z3JlZXQ=?="),
        ] {
            let request = request.clone().set("Mcp-Name", value);
            rows.push(row(
                format!("{method}: Mcp-Name {name}"),
                &request,
                mismatch.clone(),
            ));
        }
        let twice = request.clone().with("Mcp-Name", "greet");
        rows.push(row(
            format!("{method}: Mcp-Name twice"),
            &twice,
            mismatch.clone(),
        ));
    }
    let call = |arguments| {
        modern(
            "tools/call",
            json!({"name": "test_custom_header", "arguments": arguments}),
        )
    };
    rows.push(row(
        "a mirrored argument without its header",
        &call(json!({"region": "eu"})),
        mismatch.clone(),
    ));
    rows.push(row(
        "a mirrored argument with another header",
        &call(json!({"region": "eu"})).with("Mcp-Param-Region", "us"),
        mismatch.clone(),
    ));
    rows.push(row(
        "a header of an argument that is not there",
        &call(json!({})).with("Mcp-Param-Region", "us"),
        mismatch.clone(),
    ));
    rows.push(row(
        "a header of an argument that is null",
        &call(json!({"region": null})).with("Mcp-Param-Region", "us"),
        mismatch.clone(),
    ));
    rows.push(row(
        "a mirrored argument badly encoded",
        &call(json!({"region": "eu"})).with("Mcp-Param-Region", "=?base64?ZX?="),
        mismatch.clone(),
    ));
    rows.push(row(
        "a mirrored argument twice",
        &call(json!({"region": "eu"}))
            .with("Mcp-Param-Region", "eu")
            .with("Mcp-Param-Region", "eu"),
        mismatch,
    ));
    rows
}
