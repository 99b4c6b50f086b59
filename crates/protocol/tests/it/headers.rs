//! Headers that agree with the body, and those that do not.

use std::borrow::Cow;

use protocol::ErrorObject;
use protocol::headers::{
    HeaderMismatch, NameHeader, ParamHeader, check_method, check_name, check_param, check_version,
    decode, name_in, param_headers, trim_ows,
};
use protocol::jsonrpc::Params;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::raw;

/// The check as a request goes through it.
fn name_of(
    method: &str,
    header: Option<&str>,
    params: Option<&RawValue>,
) -> Result<NameHeader, HeaderMismatch> {
    let params = Params::read(params).expect("an object");
    check_name(method, header, name_in(method, &params).as_deref())
}

#[test]
fn method_and_version_must_be_there_and_the_same() {
    assert!(check_method(Some("tools/call"), "tools/call").is_ok());
    assert!(check_method(Some(" \ttools/call "), "tools/call").is_ok());
    assert!(check_version(Some("2026-07-28"), "2026-07-28").is_ok());
    for header in [
        None,
        Some(""),
        Some("TOOLS/LIST"),
        Some("tools/call"),
        Some("tools/list x"),
    ] {
        let error = check_method(header, "tools/list").unwrap_err();
        assert_eq!(ErrorObject::from(&error).code, -32020);
    }
    let error = check_version(Some("2026-07-28"), "v999.0.0").unwrap_err();
    assert_eq!(
        error.to_string(),
        "Header mismatch: MCP-Protocol-Version value '2026-07-28' does not match body value 'v999.0.0'"
    );
    let error = check_version(None, "2026-07-28").unwrap_err();
    assert_eq!(
        (error.expected.as_deref(), error.got.as_deref()),
        (Some("2026-07-28"), None)
    );
    assert!(error.to_string().contains("missing"), "{error}");
}

#[test]
fn name_mirrors_what_the_method_is_about() {
    let call = raw(r#"{"name":"greet","arguments":{"name":"x"}}"#);
    let check = |header| name_of("tools/call", header, Some(&call));
    assert_eq!(check(Some("greet")), Ok(NameHeader::Matches));
    assert_eq!(check(Some("  greet  ")), Ok(NameHeader::Matches));
    assert_eq!(check(Some("=?base64?Z3JlZXQ=?=")), Ok(NameHeader::Matches));
    for header in [
        None,
        Some(""),
        Some("Greet"),
        Some("=?base64?Z3JlZXQ?="),
        Some("x"),
    ] {
        assert!(check(header).is_err(), "{header:?}");
    }
    let read = raw(r#"{"uri":"file:///é"}"#);
    assert_eq!(
        name_of(
            "resources/read",
            Some("=?base64?ZmlsZTovLy/DqQ==?="),
            Some(&read)
        ),
        Ok(NameHeader::Matches)
    );
}

#[test]
fn a_missing_name_on_tasks_is_served_and_a_wrong_one_is_not() {
    let params = raw(r#"{"taskId":"t"}"#);
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let check = |header| name_of(method, header, Some(&params));
        assert_eq!(check(None), Ok(NameHeader::MissingOnTask));
        assert_eq!(check(Some("t")), Ok(NameHeader::Matches));
        assert!(check(Some("u")).is_err());
        assert!(check(Some("")).is_err());
    }
    assert_eq!(
        name_of("tasks/result", None, Some(&params)),
        Ok(NameHeader::NotApplicable)
    );
    assert_eq!(
        name_of("tools/list", Some("x"), None),
        Ok(NameHeader::NotApplicable)
    );
    // The params are malformed: that is for their own check to say.
    for params in [r"{}", r#"{"name":7}"#, r#"{"name":null}"#] {
        assert_eq!(
            name_of("tools/call", None, Some(&raw(params))),
            Ok(NameHeader::NotApplicable)
        );
    }
}

/// RFC 4648 §4: the standard alphabet, padded, each octet written in one way, and nothing between.
#[test]
fn there_is_one_way_to_encode_a_value() {
    let decode = |encoded: &str| decode(&format!("=?base64?{encoded}?=")).map(Cow::into_owned);
    assert_eq!(decode("PDw/Pz8+Pg==").as_deref(), Some("<<???>>"));
    assert_eq!(decode("Z3J+").as_deref(), Some("gr~"));
    for other in [
        "PDw_Pz8-Pg==",
        "Z3J-",
        "PDw/Pz8+Pg",
        "PDw/Pz8+Pg=",
        "PDw/Pz8+Ph==",
        "PDw/ Pz8+Pg==",
        "PDw/Pz8+Pg==\t",
        "PDw/Pz8+Pg===",
        "PDw/=Pz8+Pg=",
    ] {
        assert_eq!(decode(other), None, "{other:?}");
    }
}

#[test]
fn values_decode_only_between_both_markers() {
    assert_eq!(decode("=?base64?SGVsbG8=?=").as_deref(), Some("Hello"));
    assert_eq!(
        decode("=?base64?SGVsbG8sIOS4lueVjA==?=").as_deref(),
        Some("Hello, 世界")
    );
    assert_eq!(
        decode("=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?=").as_deref(),
        Some("=?base64?literal?=")
    );
    assert_eq!(decode("=?base64??=").as_deref(), Some(""));
    for literal in [
        "SGVsbG8=",
        "=?base64?SGVsbG8=",
        "SGVsbG8=?=",
        "=?BASE64?SGVsbG8=?=",
        "",
        "=?base64?=",
    ] {
        assert_eq!(decode(literal).as_deref(), Some(literal));
    }
    for bad in [
        "=?base64?SGVsbG8?=",
        "=?base64?SGVs!!!bG8=?=",
        "=?base64?SGVsbG8= ?=",
        "=?base64?SGVsbG8==?=",
        "=?base64?SGVsbG9=?=",
        "=?base64?/w==?=",
        "=?base64?SGVs_G8=?=",
    ] {
        assert_eq!(decode(bad), None, "{bad}");
    }
    assert_eq!(trim_ows(" \t a b \t"), "a b");
}

fn region() -> ParamHeader {
    let schema = json!({"type": "object", "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"}, "free": {"type": "string"}}});
    param_headers(&schema)
        .expect("the schema is valid")
        .remove(0)
}

#[test]
fn parameters_are_mirrored() {
    let region = region();
    assert_eq!(
        region,
        ParamHeader {
            header: "Mcp-Param-Region".into(),
            path: vec!["region".into()]
        }
    );
    let check = |arguments: &str, header| check_param(&region, Some(&raw(arguments)), header);
    let hello = r#"{"region":"Hello"}"#;
    assert!(check(hello, Some("Hello")).is_ok());
    assert!(check(hello, Some(" Hello ")).is_ok());
    assert!(check(hello, Some("=?base64?SGVsbG8=?=")).is_ok());
    assert!(check(r#"{"region":"SGVsbG8="}"#, Some("SGVsbG8=")).is_ok());
    assert!(
        check(
            r#"{"region":"=?base64?SGVsbG8="}"#,
            Some("=?base64?SGVsbG8=")
        )
        .is_ok()
    );
    assert!(check(r#"{"region":" padded "}"#, Some("=?base64?IHBhZGRlZCA=?=")).is_ok());
    assert!(check(r#"{"region":""}"#, Some("")).is_ok());
    for bad in [
        None,
        Some("hello"),
        Some(""),
        Some("=?base64?SGVsbG8?="),
        Some("=?base64?SGVs!!!bG8=?="),
    ] {
        assert!(check(hello, bad).is_err(), "{bad:?}");
    }
    assert!(
        check(hello, Some("=?base64?SGVsbG8?="))
            .unwrap_err()
            .is_malformed
    );
}

#[test]
fn without_a_value_there_is_no_header() {
    let region = region();
    for arguments in [
        None,
        Some("{}"),
        Some(r#"{"region":null}"#),
        Some(r#"{"other":"x"}"#),
    ] {
        let arguments = arguments.map(raw);
        assert!(check_param(&region, arguments.as_deref(), None).is_ok());
        let error = check_param(&region, arguments.as_deref(), Some("eu")).unwrap_err();
        assert_eq!(
            (error.expected.as_deref(), error.got.as_deref()),
            (None, Some("eu"))
        );
    }
    // A wrong type is for the arguments' own check to say.
    assert!(check_param(&region, Some(&raw(r#"{"region":{"a":1}}"#)), None).is_ok());
}

#[test]
fn numbers_are_compared_by_value_and_exactly() {
    let param = ParamHeader {
        header: "Mcp-Param-N".into(),
        path: vec!["n".into()],
    };
    let same = |body: &str, header: &str| {
        check_param(
            &param,
            Some(&raw(&format!("{{\"n\":{body}}}"))),
            Some(header),
        )
        .is_ok()
    };
    for (body, header) in [
        ("42", "42"),
        ("42", "42.0"),
        ("42.0", "42"),
        ("42", "4.2e1"),
        ("1e2", "100"),
        ("0", "-0"),
        ("0", "0e999999999999"),
        ("-7", "-7.000"),
        ("9007199254740993", "9007199254740993"),
        ("9007199254740993", "9007199254740993.0"),
    ] {
        assert!(same(body, header), "{body} {header}");
    }
    for (body, header) in [
        ("42", "43"),
        ("42", "-42"),
        ("42", "4.2"),
        ("42", ""),
        ("42", "forty"),
        ("42", "0x2a"),
        ("42", "4 2"),
        ("42", "42e"),
        ("42", "."),
        ("42", "1e99999999999999999999"),
        ("9007199254740993", "9007199254740992"),
        ("true", "1"),
        ("true", "True"),
        ("\"42\"", "42.0"),
    ] {
        assert!(!same(body, header), "{body} {header}");
    }
    assert!(same("true", "true") && same("false", "false") && same("\"42\"", "42"));
}

#[test]
fn nested_parameters_are_found_by_their_path() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "object", "properties": {
        "b": {"type": "integer", "x-mcp-header": "B"}}}}});
    let params = param_headers(&schema).unwrap();
    assert_eq!(params[0].path, ["a", "b"]);
    assert!(check_param(&params[0], Some(&raw(r#"{"a":{"b":1}}"#)), Some("1")).is_ok());
    assert!(check_param(&params[0], Some(&raw(r#"{"a":{"c":1}}"#)), None).is_ok());
    // Of two members the last counts, as for whoever parses the arguments later.
    assert!(check_param(&params[0], Some(&raw(r#"{"a":{"b":1,"b":2}}"#)), Some("1")).is_err());
    assert!(check_param(&params[0], Some(&raw(r#"{"a":[1]}"#)), None).is_ok());
}

#[test]
fn annotations_outside_the_rules_are_refused() {
    let with = |property: Value| json!({"type": "object", "properties": {"p": property}});
    for schema in [
        with(json!({"type": "string", "x-mcp-header": ""})),
        with(json!({"type": "string", "x-mcp-header": 7})),
        with(json!({"type": "string", "x-mcp-header": "a b"})),
        with(json!({"type": "string", "x-mcp-header": "a\r\nb"})),
        with(json!({"type": "string", "x-mcp-header": "é"})),
        with(json!({"type": "number", "x-mcp-header": "N"})),
        with(json!({"type": "object", "x-mcp-header": "N"})),
        with(json!({"x-mcp-header": "N"})),
        with(json!({"type": "array", "items": {"type": "string", "x-mcp-header": "N"}})),
        json!({"type": "object", "x-mcp-header": "N"}),
        json!({"type": "object", "$defs": {"d": {"type": "string", "x-mcp-header": "N"}}}),
        json!({"type": "object", "allOf": [{"properties": {"p": {"type": "string", "x-mcp-header": "N"}}}]}),
        json!({"type": "object", "properties": {
            "p": {"type": "string", "x-mcp-header": "N"},
            "q": {"type": "string", "x-mcp-header": "n"}}}),
    ] {
        assert!(param_headers(&schema).is_err(), "{schema}");
    }
    // A property may be called like the annotation; instance data is no schema.
    let schema = json!({"type": "object", "properties": {
        "x-mcp-header": {"type": "string"},
        "q": {"type": "object", "default": {"x-mcp-header": 1}, "enum": [{"x-mcp-header": 1}]}}});
    assert_eq!(param_headers(&schema), Ok(vec![]));
    assert_eq!(param_headers(&json!({"type": "object"})), Ok(vec![]));
}

#[test]
fn a_header_that_is_not_text_is_malformed() {
    let error = HeaderMismatch::malformed("Mcp-Name", "?");
    assert_eq!(
        error.to_string(),
        "Header mismatch: Mcp-Name is malformed: '?'"
    );
    let long = "x".repeat(8000);
    assert!(
        check_method(Some(&long), "tools/call")
            .unwrap_err()
            .to_string()
            .len()
            < 300
    );
}
