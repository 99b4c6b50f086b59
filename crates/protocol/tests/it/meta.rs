//! `_meta` of requests and results, and what capabilities count.

use protocol::input::InputKind::{self, ElicitForm, ElicitUrl, Roots, Sampling};
use protocol::jsonrpc::Params;
use protocol::meta::{
    ClientCapabilities, Implementation, MetaError, RequestMeta, ResultMeta, initialize_version,
    missing_capability, missing_tasks_extension, unsupported_version,
};
use protocol::{ErrorObject, VERSION};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::{raw, value};

fn read(params: Option<&RawValue>) -> Result<RequestMeta, MetaError> {
    RequestMeta::read(&Params::read(params)?)
}

fn parse(params: &Value) -> Result<RequestMeta, MetaError> {
    read(Some(&raw(&params.to_string())))
}

fn meta(extra: Value) -> Value {
    let mut meta = json!({
        "io.modelcontextprotocol/protocolVersion": VERSION,
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    if let (Value::Object(meta), Value::Object(extra)) = (&mut meta, extra) {
        meta.extend(extra);
    }
    json!({ "_meta": meta })
}

fn capabilities(json: Value) -> ClientCapabilities {
    ClientCapabilities::parse(json.to_string().as_bytes()).expect("an object")
}

#[test]
fn reads_what_clients_send() {
    let read = parse(&meta(json!({
        "io.modelcontextprotocol/clientInfo": {"name": "c", "version": "1", "icons": [], "x": 1},
        "io.modelcontextprotocol/logLevel": "debug",
        "io.github.mcp-tasks/idempotencyKey": "k",
        "progressToken": "progress-test-1",
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "tracestate": "a=b",
        "baggage": "c=d",
        "com.example/else": {"deep": [1]},
    })))
    .unwrap();
    assert_eq!(read.protocol_version, VERSION);
    assert!(read.version_is_supported());
    assert_eq!(read.client_info, Some(Implementation::new("c", "1")));
    assert_eq!(read.idempotency_key.as_deref(), Some("k"));
    assert_eq!(
        read.progress_token.unwrap().as_json(),
        "\"progress-test-1\""
    );
    assert!(read.trace.traceparent.unwrap().starts_with("00-"));
    assert_eq!(read.trace.tracestate.as_deref(), Some("a=b"));
    assert_eq!(read.trace.baggage.as_deref(), Some("c=d"));
    assert_eq!(read.capabilities.as_json(), "{}");
}

#[test]
fn needs_version_and_capabilities_and_nothing_else() {
    assert!(parse(&meta(json!({}))).is_ok());
    assert_eq!(read(None).unwrap_err(), MetaError::Missing);
    assert_eq!(parse(&json!({})).unwrap_err(), MetaError::Missing);
    assert_eq!(
        parse(&json!({"_meta": null})).unwrap_err(),
        MetaError::Missing
    );
    assert_eq!(
        parse(&json!({"_meta": {}})).unwrap_err(),
        MetaError::NoProtocolVersion
    );
    let no_capabilities = json!({"_meta": {"io.modelcontextprotocol/protocolVersion": VERSION}});
    assert_eq!(
        parse(&no_capabilities).unwrap_err(),
        MetaError::NoClientCapabilities
    );
    let null = meta(json!({"io.modelcontextprotocol/clientCapabilities": null}));
    assert_eq!(parse(&null).unwrap_err(), MetaError::NoClientCapabilities);
    for bad in [
        json!({"_meta": []}),
        json!({"_meta": "x"}),
        meta(json!({"io.modelcontextprotocol/protocolVersion": 20_260_728})),
        meta(json!({"io.modelcontextprotocol/clientCapabilities": []})),
        meta(json!({"io.modelcontextprotocol/clientCapabilities": true})),
        meta(json!({"io.github.mcp-tasks/idempotencyKey": 7})),
        meta(json!({"progressToken": {}})),
        meta(json!({"progressToken": true})),
        meta(json!({"progressToken": "x".repeat(10_000)})),
    ] {
        let error = parse(&bad).unwrap_err();
        assert!(matches!(error, MetaError::Malformed(_)), "{bad:.200}");
        assert_eq!(
            ErrorObject::from(&error).code,
            protocol::code::INVALID_PARAMS
        );
    }
}

#[test]
fn refuses_a_key_twice() {
    let params = raw(&format!(
        r#"{{"_meta":{{"io.modelcontextprotocol/protocolVersion":"v1",
        "io.modelcontextprotocol/clientCapabilities":{{}},
        "io.modelcontextprotocol/protocolVersion":"{VERSION}"}}}}"#
    ));
    assert!(matches!(read(Some(&params)), Err(MetaError::Malformed(_))));
    assert!(matches!(
        read(Some(&raw(r#"{"_meta":{},"_meta":{}}"#))),
        Err(MetaError::Malformed(_))
    ));
    assert!(
        ClientCapabilities::parse(
            br#"{"extensions":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}"#
        )
        .is_err()
    );
}

#[test]
fn what_no_promise_hangs_on_is_ignored_when_malformed() {
    let read = parse(&meta(json!({
        "io.modelcontextprotocol/clientInfo": "me", "traceparent": 1, "tracestate": null,
    })))
    .unwrap();
    assert_eq!(read.client_info, None);
    assert_eq!(read.trace, protocol::meta::TraceContext::default());
}

#[test]
fn progress_tokens_are_echoed_as_sent() {
    for token in ["1", "9007199254740993", "1.50", "\"\\u0041\"", "-3"] {
        let params = format!(
            r#"{{"_meta":{{"io.modelcontextprotocol/protocolVersion":"{VERSION}",
            "io.modelcontextprotocol/clientCapabilities":{{}},"progressToken":{token}}}}}"#
        );
        let token_read = read(Some(&raw(&params))).unwrap().progress_token.unwrap();
        let note = protocol::progress::write_notification(
            &token_read,
            &protocol::progress::Progress::new(50)
                .of(100)
                .with_message("half"),
        );
        assert_eq!(
            String::from_utf8_lossy(&note),
            format!(
                "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":\
                 {{\"progressToken\":{token},\"progress\":50,\"total\":100,\"message\":\"half\"}}}}"
            )
        );
    }
}

#[test]
fn the_extension_counts_in_one_place_only() {
    let tasks = "io.modelcontextprotocol/tasks";
    assert!(capabilities(json!({"extensions": {tasks: {}}})).declares_tasks());
    assert!(capabilities(json!({"extensions": {tasks: {"x": 1}, "y/z": {}}})).declares_tasks());
    for other in [
        json!({}),
        json!({tasks: {}}),
        json!({"tasks": {}}),
        json!({"experimental": {tasks: {}}}),
        json!({"extensions": {}}),
        json!({"extensions": {tasks: null}}),
        json!({"extensions": {tasks: true}}),
        json!({"extensions": [tasks]}),
        json!({"extensions": {"Io.modelcontextprotocol/tasks": {}}}),
        json!({"extensions": null}),
    ] {
        assert!(!capabilities(other.clone()).declares_tasks(), "{other}");
    }
    let beside = parse(&meta(json!({tasks: {}}))).unwrap();
    assert!(!beside.capabilities.declares_tasks());
}

#[test]
fn elicitation_without_a_mode_means_form() {
    let kinds = |json: Value| -> Vec<InputKind> {
        let all = [ElicitForm, ElicitUrl, Sampling, Roots];
        let capabilities = capabilities(json);
        all.into_iter()
            .filter(|kind| capabilities.supports(*kind))
            .collect()
    };
    assert_eq!(kinds(json!({})), []);
    assert_eq!(kinds(json!({"elicitation": {}})), [ElicitForm]);
    assert_eq!(kinds(json!({"elicitation": {"form": {}}})), [ElicitForm]);
    assert_eq!(kinds(json!({"elicitation": {"url": {}}})), [ElicitUrl]);
    assert_eq!(
        kinds(json!({"elicitation": {"form": {}, "url": {}}})),
        [ElicitForm, ElicitUrl]
    );
    assert_eq!(
        kinds(json!({"elicitation": true, "sampling": null, "roots": 1})),
        []
    );
    assert_eq!(
        kinds(json!({"sampling": {}, "elicitation": {}, "roots": {"listChanged": true}})),
        [ElicitForm, Sampling, Roots]
    );
}

#[test]
fn says_which_capabilities_are_missing() {
    let missing = |has: Value, needs: Value| {
        let needs = needs.as_object().unwrap().clone();
        capabilities(has).missing(&needs).map(Value::Object)
    };
    assert_eq!(
        missing(json!({"sampling": {}}), json!({"sampling": {}})),
        None
    );
    assert_eq!(missing(json!({}), json!({})), None);
    assert_eq!(
        missing(json!({}), json!({"sampling": {}})),
        Some(json!({"sampling": {}}))
    );
    assert_eq!(
        missing(
            json!({"sampling": {}}),
            json!({"sampling": {"tools": {}}, "roots": {}})
        ),
        Some(json!({"sampling": {"tools": {}}, "roots": {}}))
    );
    assert_eq!(
        missing(
            json!({"elicitation": {}}),
            json!({"elicitation": {"form": {}}})
        ),
        None
    );
    assert_eq!(
        missing(
            json!({"elicitation": {}}),
            json!({"elicitation": {"form": {}, "url": {}}})
        ),
        Some(json!({"elicitation": {"url": {}}}))
    );
    for kind in [ElicitForm, ElicitUrl, Sampling, Roots] {
        let required = kind.required_capability();
        assert!(capabilities(json!({})).missing(&required).is_some());
        assert!(capabilities(Value::Object(required.clone())).supports(kind));
        assert_eq!(
            capabilities(Value::Object(required.clone())).missing(&required),
            None
        );
    }
}

#[test]
fn errors_about_versions_and_capabilities_carry_their_data() {
    let error = unsupported_version("v999.0.0");
    assert_eq!(error.code, -32022);
    assert_eq!(
        error.data,
        Some(json!({"supported": [VERSION], "requested": "v999.0.0"}))
    );
    assert!(error.message.contains(VERSION), "{}", error.message);
    let error = missing_tasks_extension();
    assert_eq!(error.code, -32021);
    assert_eq!(
        error.data.unwrap()["requiredCapabilities"]["extensions"]["io.modelcontextprotocol/tasks"],
        json!({})
    );
    let error = missing_capability(Sampling.required_capability());
    assert_eq!(
        error.data,
        Some(json!({"requiredCapabilities": {"sampling": {}}}))
    );
    let params = raw(r#"{"protocolVersion":"2025-11-25","capabilities":{}}"#);
    assert_eq!(
        initialize_version(Some(&params)).as_deref(),
        Some("2025-11-25")
    );
    assert_eq!(initialize_version(None), None);
    assert_eq!(
        initialize_version(Some(&raw(r#"{"protocolVersion":1}"#))),
        None
    );
}

#[test]
fn server_info_is_attached_and_nothing_else_moves() {
    let meta = ResultMeta::new(&Implementation::new("mcp-tasks", "0.1.0"));
    let info = r#"{"io.modelcontextprotocol/serverInfo":{"name":"mcp-tasks","version":"0.1.0"}}"#;
    let attached =
        |json: &str| String::from_utf8(meta.attach(json.as_bytes()).unwrap().into()).unwrap();
    assert_eq!(meta.to_json(), info);
    assert_eq!(attached("{}"), format!("{{\"_meta\":{info}}}"));
    assert_eq!(
        attached(" {\"a\" :1.0 } "),
        format!("{{\"a\" :1.0 ,\"_meta\":{info}}}")
    );
    assert_eq!(
        attached(r#"{"_meta":{"x/y": 1e2},"n":9007199254740993}"#),
        r#"{"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"mcp-tasks","version":"0.1.0"},"x/y":1e2},"n":9007199254740993}"#
    );
    assert_eq!(
        attached(r#"{"_meta":null,"a":1}"#),
        format!("{{\"_meta\":{info},\"a\":1}}")
    );
    let replaced =
        attached(r#"{"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"upstream"}}}"#);
    assert_eq!(replaced, format!("{{\"_meta\":{info}}}"));
    let nested = value(&meta.attach(br#"{"content":[{"_meta":{"a":1}}]}"#).unwrap());
    assert_eq!(nested["content"][0]["_meta"], json!({"a": 1}));
    assert!(nested["_meta"].is_object());
    for bad in [&b"[]"[..], b"", b"null", b"{", b"{} {}", b"\xff"] {
        assert!(meta.attach(bad).is_err());
    }
}
