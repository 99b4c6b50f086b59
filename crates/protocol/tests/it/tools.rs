//! Tools as listed, called and answered.

use protocol::discover::{self, CacheScope, Caching};
use protocol::meta::{Implementation, ResultMeta};
use protocol::tools::{
    CallToolParams, CallToolResult, Content, ListToolsParams, Tool, ToolAnnotations,
    complete_result, unknown_tool, write_list,
};
use serde_json::{Value, json};

use crate::{raw, value};

fn call(params: &str) -> Result<CallToolParams, protocol::InvalidParams> {
    CallToolParams::parse(Some(&raw(params)))
}

fn meta() -> ResultMeta {
    ResultMeta::new(&Implementation::new("s", "1"))
}

#[test]
fn reads_a_call_and_keeps_its_arguments() {
    let read = call(
        r#"{"name":"greet","arguments": {"n": 1.0, "big":9007199254740993} ,"task":{"ttl":1},
        "requestState":"s","idempotencyKey":"k","inputResponses":{"a":12345},"else":[1]}"#,
    )
    .unwrap();
    assert_eq!(read.name, "greet");
    assert_eq!(
        read.arguments_json(),
        r#"{"n": 1.0, "big":9007199254740993}"#
    );
    assert_eq!(read.request_state.as_deref(), Some("s"));
    assert_eq!(read.idempotency_key.as_deref(), Some("k"));
    assert_eq!(
        read.input_responses.unwrap().get("a").unwrap().get(),
        "12345"
    );
}

#[test]
fn null_and_absent_are_the_same() {
    for params in [
        r#"{"name":"t"}"#,
        r#"{"name":"t","arguments":null,"inputResponses":null,"requestState":null,"idempotencyKey":null}"#,
    ] {
        let read = call(params).unwrap();
        assert_eq!(read.arguments_json(), "{}");
        assert!(read.arguments.is_none() && read.input_responses.is_none());
        assert!(read.request_state.is_none() && read.idempotency_key.is_none());
    }
}

#[test]
fn malformed_calls_say_what_is_wrong() {
    for (params, word) in [
        ("{}", "name"),
        (r#"{"name":null}"#, "name"),
        (r#"{"name":7}"#, "name"),
        (r#"{"name":"t","arguments":[]}"#, "arguments"),
        (r#"{"name":"t","arguments":"{}"}"#, "arguments"),
        (r#"{"name":"t","arguments":{"a":1,"a":2}}"#, "twice"),
        (r#"{"name":"t","name":"u"}"#, "twice"),
        (r#"{"name":"t","inputResponses":[]}"#, "inputResponses"),
        (r#"{"name":"t","inputResponses":{"a":1,"a":2}}"#, "twice"),
        (r#"{"name":"t","requestState":{}}"#, "requestState"),
        (r#"{"name":"t","idempotencyKey":1}"#, "idempotencyKey"),
        (r#"{"name":"\ud800"}"#, "name"),
    ] {
        let error = call(params).unwrap_err().to_string();
        assert!(error.contains(word), "{params}: {error}");
    }
    assert!(CallToolParams::parse(None).is_err());
    assert_eq!(unknown_tool("nope").message, "Unknown tool: nope");
    assert!(unknown_tool(&"x".repeat(100_000)).message.len() < 200);
}

#[test]
fn results_are_complete_and_lean() {
    let printed = |result: CallToolResult| String::from_utf8(result.to_json().into()).unwrap();
    assert_eq!(
        printed(CallToolResult::text("Hello, \"Ann\"!\n")),
        r#"{"resultType":"complete","content":[{"type":"text","text":"Hello, \"Ann\"!\n"}]}"#
    );
    assert_eq!(
        printed(CallToolResult::error("no")),
        r#"{"resultType":"complete","content":[{"type":"text","text":"no"}],"isError":true}"#
    );
    assert_eq!(
        printed(CallToolResult::default()),
        r#"{"resultType":"complete","content":[]}"#
    );
    let structured = value(&CallToolResult::structured(json!({"n": 500})).to_json());
    assert_eq!(structured["structuredContent"], json!({"n": 500}));
    assert_eq!(structured["content"][0]["text"], "{\"n\":500}");
}

#[test]
fn every_kind_of_content_prints_and_reads() {
    let all = CallToolResult::content(vec![
        Content::text("t"),
        Content::image("aaaa", "image/png"),
        Content::audio("bbbb", "audio/wav"),
        Content::text_resource("test://r", "text/plain", "x"),
        Content::blob_resource("test://b", "image/png", "cccc"),
        Content::resource_link("test://l", "link"),
    ]);
    let printed = value(&all.to_json());
    assert_eq!(
        printed["content"],
        json!([
            {"type": "text", "text": "t"},
            {"type": "image", "data": "aaaa", "mimeType": "image/png"},
            {"type": "audio", "data": "bbbb", "mimeType": "audio/wav"},
            {"type": "resource", "resource": {"uri": "test://r", "mimeType": "text/plain", "text": "x"}},
            {"type": "resource", "resource": {"uri": "test://b", "mimeType": "image/png", "blob": "cccc"}},
            {"type": "resource_link", "uri": "test://l", "name": "link"},
        ])
    );
    assert_eq!(
        serde_json::from_value::<CallToolResult>(printed).unwrap(),
        all
    );
    assert_eq!(all.content[0].as_text(), Some("t"));
    assert_eq!(all.content[1].as_text(), None);
    let older =
        json!({"content": [{"type": "text", "text": "t", "new": 1}], "isError": false, "x": 1});
    assert_eq!(
        serde_json::from_value::<CallToolResult>(older).unwrap(),
        CallToolResult::text("t")
    );
    assert!(
        serde_json::from_value::<CallToolResult>(json!({"resultType": "task", "content": []}))
            .is_err()
    );
}

#[test]
fn foreign_results_are_made_fit() {
    let fit = |json: &str| {
        complete_result(json.as_bytes()).map(|json| String::from_utf8(json.into()).unwrap())
    };
    assert_eq!(
        fit("{\n  \"content\": [ {\"type\": \"new\\n\"} ],\n \"n\": 1.0\n}").unwrap(),
        "{\"resultType\":\"complete\",\"content\":[{\"type\":\"new\\n\"}],\"n\":1.0}"
    );
    assert_eq!(
        fit(r#"{"content":[],"resultType":"complete"}"#).unwrap(),
        r#"{"content":[],"resultType":"complete"}"#
    );
    for bad in [
        "{}",
        "[]",
        "",
        r#"{"content":{}}"#,
        r#"{"content":[],"resultType":"task"}"#,
        r#"{"content":[],"resultType":null}"#,
        r#"{"content":[],"content":[]}"#,
    ] {
        assert!(fit(bad).is_err(), "{bad}");
    }
    assert!(complete_result(b"\xff").is_err());
}

#[test]
fn definitions_keep_their_schemas_text() {
    let schema = r#"{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","$defs":{"address":{"$anchor":"addressDef"}},"if":{},"then":{},"additionalProperties":false}"#;
    let mut tool: Tool = serde_json::from_str(&format!(
        "{{\"name\":\"t\",\"inputSchema\": {schema} ,\"x\":1}}"
    ))
    .unwrap();
    tool.annotations = Some(ToolAnnotations {
        read_only_hint: Some(true),
        ..Default::default()
    });
    let printed = tool.to_json();
    assert_eq!(
        String::from_utf8_lossy(&printed),
        format!(
            "{{\"name\":\"t\",\"inputSchema\":{schema},\"annotations\":{{\"readOnlyHint\":true}}}}"
        )
    );
    let pretty: Tool =
        serde_json::from_str("{\"name\":\"t\",\"inputSchema\":{\n\"type\":\n\"object\"}}").unwrap();
    assert!(value(&pretty.to_json())["inputSchema"]["type"] == "object");
}

#[test]
fn definitions_are_checked() {
    let object =
        json!({"type": "object", "properties": {"r": {"type": "string", "x-mcp-header": "R"}}});
    assert_eq!(
        Tool::new("a-Z_0.9", &object).check().unwrap()[0].header,
        "Mcp-Param-R"
    );
    for name in ["", "a/b", "a b", "é", &"x".repeat(129)] {
        assert!(Tool::new(name, &object).check().is_err(), "{name:.20}");
    }
    for schema in [
        json!({}),
        json!({"type": "string"}),
        json!(true),
        json!({"type": ["object"]}),
    ] {
        assert!(Tool::new("t", &schema).check().is_err(), "{schema}");
    }
}

#[test]
fn a_page_is_cacheable_and_joined_from_stored_text() {
    let caching = Caching {
        ttl_ms: 60_000,
        scope: CacheScope::Private,
    };
    let stored: [&[u8]; 2] = [br#"{"name":"a","n":1.0}"#, br#"{"name":"b"}"#];
    let page = write_list(stored, Some("c\"1"), caching, &meta());
    assert!(
        page.windows(stored[0].len())
            .any(|window| window == stored[0])
    );
    let page = value(&page);
    assert_eq!(page["tools"].as_array().unwrap().len(), 2);
    assert_eq!(
        (
            &page["resultType"],
            &page["nextCursor"],
            &page["ttlMs"],
            &page["cacheScope"]
        ),
        (
            &json!("complete"),
            &json!("c\"1"),
            &json!(60_000),
            &json!("private")
        )
    );
    let empty = value(&write_list([], None, caching, &meta()));
    assert_eq!(empty["tools"], json!([]));
    assert!(empty.get("nextCursor").is_none());
    let list = |params: &str| ListToolsParams::parse(Some(&raw(params)));
    assert_eq!(
        list(r#"{"cursor":"x","y":1}"#).unwrap().cursor.as_deref(),
        Some("x")
    );
    assert_eq!(list(r#"{"cursor":null}"#), Ok(ListToolsParams::default()));
    assert_eq!(ListToolsParams::parse(None), Ok(ListToolsParams::default()));
    assert!(list(r#"{"cursor":1}"#).is_err());
}

#[test]
fn discover_offers_the_extension_as_exactly_an_empty_object() {
    let caching = Caching {
        ttl_ms: 0,
        scope: CacheScope::Public,
    };
    let found = value(&discover::write_result(
        discover::Provided::default(),
        Some("wait"),
        caching,
        &meta(),
    ));
    assert_eq!(
        found["capabilities"]["extensions"],
        json!({"io.modelcontextprotocol/tasks": {}})
    );
    assert_eq!(found["capabilities"]["tools"], json!({"listChanged": true}));
    assert_eq!(found["capabilities"].get("tasks"), None::<&Value>);
    assert_eq!(found["supportedVersions"], json!(["2026-07-28"]));
    assert_eq!(
        (&found["ttlMs"], &found["cacheScope"]),
        (&json!(0), &json!("public"))
    );
    assert_eq!(found["instructions"], "wait");
    assert_eq!(
        found["_meta"]["io.modelcontextprotocol/serverInfo"],
        json!({"name": "s", "version": "1"})
    );
}
