//! The messages of a listen stream.

use protocol::meta::{Implementation, ResultMeta};
use protocol::subscriptions::{
    Filter, ListenParams, write_acknowledged, write_final, write_task, write_tools_list_changed,
};
use protocol::tasks::{TaskState, TaskView};
use protocol::{RequestId, TaskId, Timestamp};
use serde_json::json;

use crate::{raw, value};

const KEY: &str = "io.modelcontextprotocol/subscriptionId";

fn listen(params: &str) -> Result<Filter, protocol::InvalidParams> {
    ListenParams::parse(Some(&raw(params))).map(|params| params.notifications)
}

#[test]
fn reads_what_is_asked_for() {
    assert_eq!(listen(r#"{"notifications":{}}"#), Ok(Filter::default()));
    let all = listen(
        r#"{"notifications":{"toolsListChanged":true,"promptsListChanged":false,
        "resourcesListChanged":null,"resourceSubscriptions":["a:b"],"taskIds":["x","x"],"new":{}}}"#,
    )
    .unwrap();
    assert!(all.tools_list_changed && !all.prompts_list_changed && !all.resources_list_changed);
    assert_eq!(all.resource_subscriptions, Some(vec!["a:b".to_owned()]));
    assert_eq!(all.task_ids, Some(vec!["x".to_owned(), "x".to_owned()]));
    for bad in [
        "{}",
        r#"{"notifications":null}"#,
        r#"{"notifications":[]}"#,
        r#"{"notifications":{"toolsListChanged":1}}"#,
        r#"{"notifications":{"taskIds":"x"}}"#,
        r#"{"notifications":{"taskIds":[1]}}"#,
        r#"{"notifications":{"taskIds":[],"taskIds":[]}}"#,
    ] {
        assert!(listen(bad).is_err(), "{bad}");
    }
    assert!(ListenParams::parse(None).is_err());
}

#[test]
fn every_message_carries_the_id_as_it_was_sent() {
    let task = TaskView {
        task_id: TaskId::new(0),
        state: TaskState::Failed(br#"{"code":-32603,"message":"m"}"#),
        status_message: None,
        created_at: Timestamp::from_unix_ms(0),
        last_updated_at: Timestamp::from_unix_ms(0),
        ttl_ms: None,
        poll_interval_ms: 1,
    };
    let meta = ResultMeta::new(&Implementation::new("s", "1"));
    for id in [RequestId::from("17"), RequestId::from(17)] {
        let messages = [
            write_acknowledged(&id, &Filter::default()),
            write_tools_list_changed(&id),
            write_task(&id, &task),
        ];
        let expected = format!("\"{KEY}\":{}}}", id.as_json());
        for message in messages {
            assert!(String::from_utf8_lossy(&message).contains(&expected));
            let message = value(&message);
            assert!(message.get("id").is_none());
            assert_eq!(message["params"]["_meta"].as_object().unwrap().len(), 1);
            assert!(message["params"].get("resultType").is_none());
        }
        let last = write_final(&id, &meta);
        assert!(String::from_utf8_lossy(&last).contains(&expected));
        let last = value(&last);
        assert_eq!(last["result"]["resultType"], "complete");
        assert_eq!(last["id"], last["result"]["_meta"][KEY]);
        assert!(last["result"]["_meta"]["io.modelcontextprotocol/serverInfo"].is_object());
    }
}

#[test]
fn the_acknowledgement_names_what_was_agreed() {
    let agreed = |filter: &Filter| {
        value(&write_acknowledged(&RequestId::from(1), filter))["params"]["notifications"].clone()
    };
    assert_eq!(agreed(&Filter::default()), json!({}));
    let filter = Filter {
        tools_list_changed: true,
        task_ids: Some(Vec::new()),
        ..Filter::default()
    };
    assert_eq!(
        agreed(&filter),
        json!({"toolsListChanged": true, "taskIds": []})
    );
}

#[test]
fn a_task_is_shown_whole() {
    let task = TaskView {
        task_id: TaskId::new(0),
        state: TaskState::Completed(br#"{"content":[],"n":1.50}"#),
        status_message: Some("done"),
        created_at: Timestamp::from_unix_ms(0),
        last_updated_at: Timestamp::from_unix_ms(1),
        ttl_ms: Some(1),
        poll_interval_ms: 1,
    };
    let message = write_task(&RequestId::from(1), &task);
    assert!(String::from_utf8_lossy(&message).contains(r#""result":{"content":[],"n":1.50}"#));
    let message = value(&message);
    assert_eq!(message["method"], "notifications/tasks");
    assert_eq!(message["params"]["status"], "completed");
    assert_eq!(message["params"]["taskId"], task.task_id.to_string());
}
