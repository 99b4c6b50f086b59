//! Tasks as created, read, updated and refused.

use protocol::meta::{Implementation, ResultMeta};
use protocol::tasks::{
    TaskIdParams, TaskState, TaskView, UpdateTaskParams, expired, not_found, write_acknowledgement,
    write_create_result, write_detailed,
};
use protocol::{TaskId, TaskStatus, Timestamp};
use serde_json::{Value, json};

use crate::{raw, value};

const ID: &str = "01963d5c-7a10-7abc-8def-0123456789ab";
const RESULT: &[u8] =
    br#"{"resultType":"complete", "content":[] ,"n":1.50,"big":9007199254740993}"#;

fn view(state: TaskState<'_>) -> TaskView<'_> {
    TaskView {
        task_id: ID.parse::<TaskId>().expect("an id"),
        state,
        status_message: Some("the \"work\" goes on"),
        created_at: Timestamp::from_unix_ms(1_764_412_245_123),
        last_updated_at: Timestamp::from_unix_micros(1_764_412_246_000_001),
        ttl_ms: Some(3_600_000),
        poll_interval_ms: 500,
    }
}

fn meta() -> ResultMeta {
    ResultMeta::new(&Implementation::new("s", "1"))
}

fn states() -> [(TaskState<'static>, TaskStatus, Option<&'static str>); 5] {
    [
        (TaskState::Working, TaskStatus::Working, None),
        (
            TaskState::InputRequired(b"{\"k\":{}}"),
            TaskStatus::InputRequired,
            Some("inputRequests"),
        ),
        (
            TaskState::Completed(RESULT),
            TaskStatus::Completed,
            Some("result"),
        ),
        (
            TaskState::Failed(b"{\"code\":1,\"message\":\"\"}"),
            TaskStatus::Failed,
            Some("error"),
        ),
        (TaskState::Cancelled, TaskStatus::Cancelled, None),
    ]
}

#[test]
fn a_handle_is_flat_and_holds_no_outcome() {
    for (state, status, _) in states() {
        let printed = value(&write_create_result(&view(state), &meta()));
        let names: Vec<&str> = printed
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        assert_eq!(
            names,
            [
                "_meta",
                "createdAt",
                "lastUpdatedAt",
                "pollIntervalMs",
                "resultType",
                "status",
                "statusMessage",
                "taskId",
                "ttlMs"
            ]
        );
        assert_eq!(printed["resultType"], "task");
        assert_eq!(printed["status"], status.as_str());
        assert_eq!(printed["taskId"], ID);
        assert_eq!(printed["createdAt"], "2025-11-29T10:30:45.123000Z");
        assert_eq!(printed["lastUpdatedAt"], "2025-11-29T10:30:46.000001Z");
        assert_eq!(printed["_meta"].as_object().unwrap().len(), 1);
    }
}

#[test]
fn a_read_holds_exactly_what_belongs_to_the_status() {
    for (state, status, member) in states() {
        let printed = value(&write_detailed(&view(state), &meta()));
        assert_eq!(
            (&printed["resultType"], &printed["status"]),
            (&json!("complete"), &json!(status))
        );
        let held: Vec<&str> = ["inputRequests", "result", "error"]
            .into_iter()
            .filter(|name| printed.get(name).is_some())
            .collect();
        assert_eq!(held, member.into_iter().collect::<Vec<_>>());
        assert!(printed.get("requestState").is_none() && printed.get("task").is_none());
    }
}

#[test]
fn stored_text_is_copied_byte_for_byte() {
    let printed = write_detailed(&view(TaskState::Completed(RESULT)), &meta());
    assert!(printed.windows(RESULT.len()).any(|window| window == RESULT));
    assert_eq!(
        printed,
        write_detailed(&view(TaskState::Completed(RESULT)), &meta())
    );
}

#[test]
fn durations_are_whole_milliseconds_or_null() {
    let text =
        |view: &TaskView<'_>| String::from_utf8(write_detailed(view, &meta()).into()).unwrap();
    let limited = view(TaskState::Working);
    assert!(text(&limited).contains("\"ttlMs\":3600000,\"pollIntervalMs\":500,"));
    let unlimited = TaskView {
        ttl_ms: None,
        status_message: None,
        ..limited
    };
    assert!(text(&unlimited).contains("\"ttlMs\":null,\"pollIntervalMs\":500,"));
    assert!(!text(&unlimited).contains("statusMessage"));
}

#[test]
fn an_acknowledgement_says_nothing_of_the_task() {
    let printed = value(&write_acknowledgement(&meta()));
    let names: Vec<&String> = printed.as_object().unwrap().keys().collect();
    assert_eq!(names, ["_meta", "resultType"]);
    assert_eq!(printed["resultType"], "complete");
}

#[test]
fn params_name_a_task_or_are_malformed() {
    let read = |params: &str| TaskIdParams::parse(Some(&raw(params)));
    let params = read(&format!("{{\"taskId\":\"{ID}\",\"cursor\":{{}}}}")).unwrap();
    assert_eq!(params.id().unwrap().to_string(), ID);
    for unknown in ["gate-test", "", &ID.to_uppercase(), &"x".repeat(100_000)] {
        let params = read(&json!({"taskId": unknown}).to_string()).unwrap();
        assert_eq!(params.id(), None);
        assert_eq!(params.task_id, unknown);
    }
    for bad in [
        "{}",
        r#"{"taskId":null}"#,
        r#"{"taskId":1}"#,
        r#"{"taskId":["a"]}"#,
        r#"{"taskId":"a","taskId":"b"}"#,
    ] {
        assert!(read(bad).is_err(), "{bad}");
    }
    assert!(TaskIdParams::parse(None).is_err());
}

#[test]
fn updates_hold_answers_of_any_shape_by_key() {
    let read = |params: &str| UpdateTaskParams::parse(Some(&raw(params)));
    let update =
        read(r#"{"taskId":"t","inputResponses":{"unknown-key":{"ignored":true},"k":12345}}"#)
            .unwrap();
    assert_eq!((update.task_id.as_str(), update.id()), ("t", None));
    assert_eq!(update.input_responses.len(), 2);
    assert_eq!(update.input_responses.get("k").unwrap().get(), "12345");
    assert!(
        read(r#"{"taskId":"t","inputResponses":{}}"#)
            .unwrap()
            .input_responses
            .is_empty()
    );
    for bad in [
        r#"{"taskId":"t"}"#,
        r#"{"taskId":"t","inputResponses":null}"#,
        r#"{"taskId":"t","inputResponses":[]}"#,
        r#"{"taskId":"t","inputResponses":12345}"#,
        r#"{"taskId":"t","inputResponses":{"a":{},"a":{}}}"#,
        r#"{"inputResponses":{}}"#,
    ] {
        assert!(read(bad).is_err(), "{bad}");
    }
}

#[test]
fn unknown_and_expired_are_told_apart_by_message_and_data() {
    assert_eq!(
        value(&not_found().to_json()),
        json!({"code": -32602, "message": "Failed to retrieve task: Task not found"})
    );
    let gone = value(&expired(TaskStatus::Completed, Timestamp::from_unix_ms(0)).to_json());
    assert_eq!(gone["message"], "Failed to retrieve task: Task has expired");
    assert_eq!(
        gone["data"],
        json!({"reason": "task_expired", "finalStatus": "completed",
               "expiredAt": "1970-01-01T00:00:00.000000Z"})
    );
    assert_eq!(gone["code"], Value::from(-32602));
}
