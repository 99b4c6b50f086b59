//! Questions, and answers that fit or do not.

use protocol::ErrorObject;
use protocol::input::{
    InputKind, InputRequest, InputResponses, validate_response, write_input_required,
    write_requests,
};
use protocol::meta::{Implementation, ResultMeta};
use serde_json::{Value, json};

use crate::{raw, value};

fn form(properties: Value, required: &[&str]) -> InputRequest {
    let schema = json!({"type": "object", "properties": properties, "required": required});
    InputRequest::elicit_form("Please say", schema)
}

fn check(request: &InputRequest, response: Value) -> Result<(), String> {
    validate_response(&request.to_raw(), &raw(&response.to_string()))
}

fn accept(request: &InputRequest, content: Value) -> Result<(), String> {
    check(request, json!({"action": "accept", "content": content}))
}

#[test]
fn questions_print_as_the_schema_says() {
    let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}});
    assert_eq!(
        serde_json::to_value(InputRequest::elicit_form("Name?", schema.clone())).unwrap(),
        json!({"method": "elicitation/create",
               "params": {"mode": "form", "message": "Name?", "requestedSchema": schema}})
    );
    assert_eq!(
        serde_json::to_value(InputRequest::elicit_url("Pay", "https://x.example/p")).unwrap(),
        json!({"method": "elicitation/create",
               "params": {"mode": "url", "message": "Pay", "url": "https://x.example/p"}})
    );
    assert_eq!(
        serde_json::to_value(InputRequest::roots()).unwrap(),
        json!({"method": "roots/list"})
    );
    for (request, kind) in [
        (
            InputRequest::elicit_form("m", schema),
            Some(InputKind::ElicitForm),
        ),
        (
            InputRequest::elicit_url("m", "u:v"),
            Some(InputKind::ElicitUrl),
        ),
        (InputRequest::sampling(json!({})), Some(InputKind::Sampling)),
        (InputRequest::roots(), Some(InputKind::Roots)),
        (
            InputRequest {
                method: "tools/call".into(),
                params: None,
            },
            None,
        ),
    ] {
        assert_eq!(request.kind(), kind);
    }
    assert_eq!(InputKind::of(&raw("[]")), None);
    let old = raw(r#"{"method":"elicitation/create","params":{"message":"m"}}"#);
    assert_eq!(InputKind::of(&old), Some(InputKind::ElicitForm));
}

#[test]
fn a_tools_malformed_question_is_found_before_a_client_sees_it() {
    assert_eq!(
        form(
            json!({"a": {"type": "array", "items": {"type": "string", "enum": ["x"]}}}),
            &[]
        )
        .check(),
        Ok(())
    );
    assert_eq!(InputRequest::roots().check(), Ok(()));
    assert_eq!(InputRequest::elicit_url("m", "https://x").check(), Ok(()));
    let message = json!([{"role": "user", "content": {"type": "text", "text": "?"}}]);
    assert_eq!(
        InputRequest::sampling(json!({"messages": message, "maxTokens": 100})).check(),
        Ok(())
    );
    for bad in [
        InputRequest::elicit_form("", json!({"type": "object", "properties": {}})),
        InputRequest::elicit_form("m", json!({"type": "object"})),
        InputRequest::elicit_form("m", json!({"type": "string", "properties": {}})),
        form(json!({"a": {"type": "object", "properties": {}}}), &[]),
        form(json!({"a": {}}), &[]),
        InputRequest::elicit_url("m", ""),
        InputRequest::sampling(json!({"messages": [], "maxTokens": 1})),
        InputRequest::sampling(json!({"messages": message, "maxTokens": 1.5})),
        InputRequest {
            method: "ping".into(),
            params: None,
        },
        InputRequest {
            method: "elicitation/create".into(),
            params: None,
        },
    ] {
        assert!(bad.check().is_err(), "{bad:?}");
    }
}

#[test]
fn an_answer_is_an_object_with_an_action() {
    let ask = form(json!({"name": {"type": "string"}}), &["name"]);
    for bad in [
        json!(12345),
        json!(null),
        json!("accept"),
        json!([]),
        json!(true),
        json!({}),
        json!({"action": "ok"}),
        json!({"action": 1}),
        json!({"action": "accept", "content": "x"}),
        json!({"action": "accept", "content": []}),
        json!({"action": "accept", "content": {}}),
        json!({"action": "accept"}),
        json!({"action": "accept", "content": {"name": null}}),
        json!({"name": "Alice"}),
    ] {
        assert!(check(&ask, bad.clone()).is_err(), "{bad}");
    }
    assert_eq!(accept(&ask, json!({"name": "Alice"})), Ok(()));
    for action in ["decline", "cancel"] {
        assert_eq!(check(&ask, json!({"action": action})), Ok(()));
        assert_eq!(
            check(
                &ask,
                json!({"action": action, "content": null, "_meta": {}})
            ),
            Ok(())
        );
    }
    assert_eq!(
        check(&form(json!({}), &[]), json!({"action": "accept"})),
        Ok(())
    );
    let url = InputRequest::elicit_url("m", "https://x");
    assert_eq!(check(&url, json!({"action": "accept"})), Ok(()));
    assert!(check(&url, json!({"content": {}})).is_err());
}

#[test]
fn one_answer_may_serve_both_questions() {
    let answer = json!({"name": "partial-1", "confirm": true});
    assert_eq!(
        accept(
            &form(json!({"name": {"type": "string"}}), &["name"]),
            answer.clone()
        ),
        Ok(())
    );
    assert_eq!(
        accept(
            &form(json!({"confirm": {"type": "boolean"}}), &["confirm"]),
            answer
        ),
        Ok(())
    );
}

#[test]
fn known_fields_have_the_asked_type_and_range() {
    let choice = json!({"type": "string", "enum": ["red", "blue"]});
    let titled = json!({"type": "string", "oneOf": [{"const": "r", "title": "Red"}]});
    let many = json!({"type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "string", "enum": ["a", "b", "c"]}});
    let many_titled = json!({"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}]}});
    let cases = [
        (
            json!({"type": "string"}),
            vec![json!(""), json!("é")],
            vec![json!(1), json!(true), json!(["a"]), json!({})],
        ),
        (
            json!({"type": "string", "minLength": 2, "maxLength": 3}),
            vec![json!("éé"), json!("ééé")],
            vec![json!("é"), json!("abcd")],
        ),
        (
            json!({"type": "boolean"}),
            vec![json!(true), json!(false)],
            vec![json!("true"), json!(1)],
        ),
        (
            json!({"type": "integer", "minimum": 1, "maximum": 9}),
            vec![json!(1), json!(9), json!(2.0)],
            vec![json!(0), json!(10), json!(1.5), json!("1")],
        ),
        (
            json!({"type": "integer"}),
            vec![json!(u64::MAX), json!(i64::MIN)],
            vec![json!(0.1)],
        ),
        (
            json!({"type": "number", "maximum": 0.5}),
            vec![json!(0.5), json!(-1)],
            vec![json!(0.6), json!("0.1"), json!(false)],
        ),
        (
            choice,
            vec![json!("red")],
            vec![json!("green"), json!("Red")],
        ),
        (titled, vec![json!("r")], vec![json!("Red")]),
        (
            many,
            vec![json!(["a"]), json!(["a", "b"])],
            vec![
                json!([]),
                json!(["a", "b", "c"]),
                json!(["d"]),
                json!([1]),
                json!("a"),
            ],
        ),
        (
            many_titled,
            vec![json!(["a"]), json!([])],
            vec![json!(["A"])],
        ),
        (
            json!({"type": "string", "format": "email"}),
            vec![json!("not checked")],
            vec![],
        ),
        (
            json!({"type": "something new"}),
            vec![json!({"any": 1})],
            vec![],
        ),
    ];
    for (property, good, bad) in cases {
        let ask = form(json!({"f": property}), &["f"]);
        for fits in good {
            assert_eq!(
                accept(&ask, json!({"f": fits, "extra": {"deep": [1]}})),
                Ok(()),
                "{property}"
            );
        }
        for other in bad {
            let error = accept(&ask, json!({"f": other})).unwrap_err();
            assert!(error.contains("content.f"), "{property} {other}: {error}");
        }
    }
}

#[test]
fn an_optional_field_may_be_left_out_or_null() {
    let ask = form(json!({"n": {"type": "integer"}}), &[]);
    for content in [json!({}), json!({"n": null}), json!({"n": 1})] {
        assert_eq!(accept(&ask, content), Ok(()));
    }
    assert_eq!(check(&ask, json!({"action": "accept"})), Ok(()));
    assert!(accept(&ask, json!({"n": "1"})).is_err());
}

#[test]
fn sampling_and_roots_have_their_shapes() {
    let sample = InputRequest::sampling(json!({"messages": [], "maxTokens": 1}));
    let text = json!({"type": "text", "text": "Paris"});
    let answer =
        json!({"role": "assistant", "content": text, "model": "m", "stopReason": "endTurn"});
    assert_eq!(check(&sample, answer.clone()), Ok(()));
    let mut list = answer.clone();
    list["content"] =
        json!([text, {"type": "tool_use", "id": "1", "name": "n", "input": {}}, {"type": "new"}]);
    assert_eq!(check(&sample, list), Ok(()));
    for (member, bad) in [
        ("role", json!("system")),
        ("model", json!(null)),
        ("content", json!("Paris")),
        ("content", json!(null)),
        ("content", json!({"text": "Paris"})),
        ("content", json!({"type": "text"})),
        ("content", json!([{"type": "image", "data": "x"}])),
        ("content", json!([1])),
    ] {
        let mut wrong = answer.clone();
        wrong[member] = bad;
        assert!(check(&sample, wrong.clone()).is_err(), "{wrong}");
    }
    let roots = InputRequest::roots();
    assert_eq!(
        check(
            &roots,
            json!({"roots": [{"uri": "file:///test/root", "name": "r"}]})
        ),
        Ok(())
    );
    assert_eq!(check(&roots, json!({"roots": []})), Ok(()));
    for bad in [
        json!({}),
        json!({"roots": {}}),
        json!({"roots": ["file:///"]}),
        json!({"roots": [{"name": "x"}]}),
        json!({"roots": [{"uri": "file:///", "name": 1}]}),
    ] {
        assert!(check(&roots, bad.clone()).is_err(), "{bad}");
    }
}

#[test]
fn odd_json_is_refused_and_never_panics() {
    let ask = form(json!({"name": {"type": "string"}}), &["name"]).to_raw();
    let deep = format!(
        "{{\"action\":\"accept\",\"content\":{{\"name\":{}1{}}}}}",
        "[".repeat(5000),
        "]".repeat(5000)
    );
    assert!(validate_response(&ask, &raw(&deep)).is_err());
    assert!(
        validate_response(
            &ask,
            &raw(r#"{"action":"accept","content":{"name":1e999}}"#)
        )
        .is_err()
    );
    assert!(validate_response(&raw("{}"), &raw("{}")).is_err());
    assert!(
        validate_response(
            &raw(r#"{"method":"elicitation/create"}"#),
            &raw(r#"{"action":"accept"}"#)
        )
        .is_ok()
    );
}

#[test]
fn unknown_keys_are_ignored_before_any_shape_is_looked_at() {
    let name = form(json!({"name": {"type": "string"}}), &["name"]).to_raw();
    let confirm = form(json!({"confirm": {"type": "boolean"}}), &["confirm"]).to_raw();
    let outstanding = [("name", &*name), ("confirm", &*confirm)];
    let responses = |json: &str| InputResponses::read(&raw(json)).unwrap();

    let unknown = responses(r#"{"unknown-key":{"ignored":true},"other":12345}"#);
    assert!(unknown.select(outstanding).unwrap().is_empty());
    assert!(responses("{}").select(outstanding).unwrap().is_empty());

    let part =
        responses(r#"{"confirm":{"action":"accept","content":{"confirm":true, "n":1.0}},"x":1}"#);
    let selected = part.select(outstanding).unwrap();
    assert_eq!(selected.len(), 1);
    assert_eq!(selected[0].0, "confirm");
    assert_eq!(
        selected[0].1.get(),
        r#"{"action":"accept","content":{"confirm":true, "n":1.0}}"#
    );

    let malformed = responses(r#"{"confirm":{"action":"decline"},"name":12345}"#);
    let error = malformed.select(outstanding).unwrap_err();
    assert_eq!(error.key, "name");
    let error = ErrorObject::from(&error);
    assert_eq!(error.code, -32602);
    assert!(error.message.contains("`name`"), "{}", error.message);
    assert_eq!(error.data.unwrap()["key"], "name");
    assert_eq!(
        malformed.iter().map(|(key, _)| key).collect::<Vec<_>>(),
        ["confirm", "name"]
    );
}

#[test]
fn questions_are_written_from_stored_text() {
    let requests = write_requests([
        ("a\"b", &br#"{"method":"roots/list", "n":1.0}"#[..]),
        ("c", b"{}"),
    ]);
    assert_eq!(
        requests,
        &br#"{"a\"b":{"method":"roots/list", "n":1.0},"c":{}}"#[..]
    );
    assert_eq!(write_requests([]), "{}");
    let meta = ResultMeta::new(&Implementation::new("s", "1"));
    let result = value(&write_input_required(Some(&requests), Some("state"), &meta));
    assert_eq!(result["resultType"], "input_required");
    assert_eq!(result["requestState"], "state");
    assert_eq!(result["inputRequests"]["a\"b"]["method"], "roots/list");
    let waiting = value(&write_input_required(None, Some("s"), &meta));
    assert!(waiting.get("inputRequests").is_none());
    assert!(
        value(&write_input_required(Some(&requests), None, &meta))
            .get("requestState")
            .is_none()
    );
}
