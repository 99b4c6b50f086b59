//! Bodies that are messages, and the many that are not.

use protocol::code::{INVALID_REQUEST, PARSE_ERROR};
use protocol::jsonrpc::{
    Limits, Message, ParseError, Request, error_response, error_response_raw, notification, parse,
    response,
};
use protocol::{ErrorObject, RequestId};
use serde_json::json;

use crate::value;

fn request(body: &str) -> Request {
    match parse(body.as_bytes(), Limits::default()) {
        Ok(Message::Request(request)) => request,
        other => panic!("{body}: {other:?}"),
    }
}

fn refused(body: impl AsRef<[u8]>) -> ParseError {
    let body = body.as_ref();
    parse(body, Limits::default())
        .map(|message| format!("{message:?}"))
        .expect_err(&String::from_utf8_lossy(&body[..body.len().min(200)]))
}

fn id_of(error: &ParseError) -> Option<&str> {
    error.id.as_ref().map(RequestId::as_json)
}

#[test]
fn keeps_params_as_sent() {
    let request = request(
        "\r\n {\"params\" : {\"a\": 1.0,  \"b\":[ ]} , \"method\":\"tools\\u002fcall\",\"id\":7,\"jsonrpc\":\"2.0\"} ",
    );
    assert_eq!(request.method, "tools/call");
    assert_eq!(request.params.unwrap().get(), "{\"a\": 1.0,  \"b\":[ ]}");
    assert_eq!(request.id.as_json(), "7");
}

#[test]
fn echoes_ids_byte_for_byte() {
    for id in [
        "0",
        "-1",
        "9007199254740993",
        "18446744073709551617",
        "123456789012345678901234567890123456789012345678901234567890",
        "\"\"",
        "\"a\"",
        "\"\\u0041\\n é 日本\"",
        "\"9007199254740993\"",
    ] {
        let request = request(&format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"m\"}}"
        ));
        assert_eq!(request.id.as_json(), id);
        let answer = response(&request.id, b"{}");
        assert_eq!(
            answer,
            format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{}}}}")
        );
        let answer = error_response(Some(&request.id), &ErrorObject::new(-32601, "no"));
        assert!(String::from_utf8_lossy(&answer).contains(&format!("\"id\":{id},")));
    }
}

#[test]
fn refuses_other_ids_and_echoes_none() {
    let long = format!("\"{}\"", "x".repeat(10 * 1024));
    let long_number = "9".repeat(10 * 1024);
    for id in [
        "null",
        "true",
        "[]",
        "[1]",
        "{}",
        "1.0",
        "1.5",
        "1e3",
        "-0.0",
        "\"\\ud800\"",
        &long,
        &long_number,
    ] {
        let error = refused(format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"m\"}}"
        ));
        assert_eq!(
            (error.code, id_of(&error)),
            (INVALID_REQUEST, None),
            "{id:.40}"
        );
        assert!(error.message.len() < 200);
    }
}

#[test]
fn a_body_that_is_not_json_is_a_parse_error() {
    let unterminated = "[".repeat(1_000_000);
    let bomb = "{\"a\":".repeat(300_000);
    for body in [
        &b""[..],
        b"   ",
        b"{",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\"",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\"} x",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\"}{}",
        b"{'jsonrpc':'2.0'}",
        b"{\"jsonrpc\":\"2.0\",\"id\":01,\"method\":\"m\"}",
        b"{\"jsonrpc\":\"2.0\",\"id\":-,\"method\":\"m\"}",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",}",
        b"{\"jsonrpc\":\"2.0\",\"id\":NaN,\"method\":\"m\"}",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\nb\"}",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\xfe\"}",
        b"\xef\xbb\xbf{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\"}",
        b"\xf0\x9f",
        b"null x",
        b"[1,",
        b"\0",
        unterminated.as_bytes(),
        bomb.as_bytes(),
    ] {
        let error = refused(body);
        let shown = String::from_utf8_lossy(&body[..body.len().min(60)]).into_owned();
        assert_eq!((error.code, id_of(&error)), (PARSE_ERROR, None), "{shown}");
        assert!(error.message.len() < 300, "{shown}");
    }
}

#[test]
fn json_that_is_no_request_is_an_invalid_request() {
    for (body, id) in [
        ("null", None),
        ("1", None),
        ("\"tools/call\"", None),
        ("[]", None),
        ("[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\"}]", None),
        ("{}", None),
        ("{\"id\":1,\"method\":\"m\"}", Some("1")),
        ("{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"m\"}", Some("1")),
        ("{\"jsonrpc\":2.0,\"id\":1,\"method\":\"m\"}", Some("1")),
        ("{\"jsonrpc\":\"2.0\",\"id\":1}", Some("1")),
        ("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":null}", Some("1")),
        ("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":{}}", Some("1")),
        (
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"params\":null}",
            Some("1"),
        ),
        (
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"params\":[]}",
            Some("1"),
        ),
        (
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"params\":\"{}\"}",
            Some("1"),
        ),
        (
            "{\"jsonrpc\":\"2.0\",\"id\":\"r\",\"result\":{}}",
            Some("\"r\""),
        ),
        (
            "{\"jsonrpc\":\"2.0\",\"id\":\"r\",\"error\":{\"code\":1,\"message\":\"\"}}",
            Some("\"r\""),
        ),
        (
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"result\":{}}",
            Some("1"),
        ),
    ] {
        let error = refused(body);
        assert_eq!((error.code, id_of(&error)), (INVALID_REQUEST, id), "{body}");
    }
    assert!(refused("[1]").message.contains("batch"));
}

#[test]
fn a_top_level_key_may_occur_once() {
    let twice = |extra: &str| {
        refused(format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",{extra}}}"
        ))
    };
    for extra in [
        "\"method\":\"n\"",
        "\"m\\u0065thod\":\"n\"",
        "\"x\":1,\"x\":1",
        "\"jsonrpc\":\"2.0\"",
    ] {
        let error = twice(extra);
        assert_eq!(
            (error.code, id_of(&error)),
            (INVALID_REQUEST, Some("1")),
            "{extra}"
        );
        assert!(error.message.contains("twice"), "{}", error.message);
    }
    assert_eq!(id_of(&twice("\"id\":2")), None);
    assert_eq!(id_of(&twice("\"id\":1")), None);
}

#[test]
fn unknown_members_are_ignored_however_many() {
    let many: String = (0..50_000).map(|n| format!(",\"k{n}\":[{n}]")).collect();
    let request = request(&format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\"{many}}}"
    ));
    assert_eq!(request.method, "m");
    assert!(request.params.is_none());
}

#[test]
fn a_message_without_id_is_a_notification() {
    let body = br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    match parse(body, Limits::default()).unwrap() {
        Message::Notification(note) => {
            assert_eq!(note.method, "notifications/cancelled");
            assert_eq!(note.params.unwrap().get(), r#"{"requestId":1}"#);
        }
        Message::Request(request) => panic!("{request:?}"),
    }
}

#[test]
fn depth_is_counted_over_the_whole_body() {
    let nested = |levels: usize, member: &str| {
        let (open, close) = ("[".repeat(levels), "]".repeat(levels));
        format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"m\",\"{member}\":{{\"x\":{open}{close}}}}}"
        )
    };
    let limits = Limits {
        depth_max: 10,
        ..Limits::default()
    };
    // The message and `params` are two levels themselves.
    for member in ["params", "somethingUnknown"] {
        assert!(parse(nested(8, member).as_bytes(), limits).is_ok());
        let error = parse(nested(9, member).as_bytes(), limits).unwrap_err();
        assert_eq!((error.code, id_of(&error)), (INVALID_REQUEST, Some("5")));
        assert!(error.message.contains("10 levels"), "{}", error.message);
    }
    let bomb = nested(400_000, "params");
    assert_eq!(id_of(&refused(bomb)), Some("5"));
}

#[test]
fn brackets_in_strings_are_not_depth() {
    let text = "[{\\\"".repeat(1000);
    let request = request(&format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"params\":{{\"x\":\"{text}\\\\\"}}}}"
    ));
    assert!(request.params.is_some());
}

#[test]
fn errors_print_what_the_specification_shows() {
    let error = ErrorObject::invalid_params("Failed to retrieve task: Task not found");
    assert_eq!(
        value(&error_response(Some(&RequestId::from(70)), &error)),
        json!({"jsonrpc": "2.0", "id": 70, "error": {
            "code": -32602, "message": "Failed to retrieve task: Task not found"}})
    );
    let bare = value(&error_response(
        None,
        &ErrorObject::rate_limited("slow down", 0),
    ));
    assert_eq!(bare["error"]["data"]["retryAfterSeconds"], 1);
    assert!(bare.get("id").is_none());
    let stored = br#"{"code":-32603,"message":"m","data":{"n":1.50}}"#;
    let answer = error_response_raw(Some(&RequestId::from("a")), stored);
    assert!(answer.ends_with(br#""error":{"code":-32603,"message":"m","data":{"n":1.50}}}"#));
    let reasoned = ErrorObject::internal("m", protocol::code::reason::WORK_LIMIT);
    assert_eq!(reasoned.data, Some(json!({"reason": "work_limit"})));
    assert_eq!(value(&notification("a\"b", b"{}"))["method"], "a\"b");
}

#[test]
fn a_long_method_does_not_make_a_long_message() {
    let error = ErrorObject::method_not_found(&"é".repeat(100_000));
    assert!(error.message.len() < 300);
}

#[test]
fn random_bytes_never_panic() {
    let alphabet = br#"{}[]":,\u0012 e.-+truefalsn"id"method"jsonrpc"2.0"#;
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..20_000 {
        let body: Vec<u8> = (0..40)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                alphabet[usize::try_from(state % alphabet.len() as u64).unwrap()]
            })
            .collect();
        let _ = parse(
            &body,
            Limits {
                depth_max: 5,
                id_bytes_max: 8,
            },
        );
    }
}
