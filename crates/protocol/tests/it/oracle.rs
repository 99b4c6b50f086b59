//! Another implementation reads what we print: rmcp's model types as an oracle.

use protocol::discover::{self, CacheScope, Caching};
use protocol::input::{InputRequest, write_input_required, write_requests};
use protocol::meta::{Implementation, ResultMeta};
use protocol::subscriptions::{Filter, write_acknowledged, write_final};
use protocol::tasks::{
    TaskState, TaskView, write_acknowledgement, write_create_result, write_detailed,
};
use protocol::tools::{CallToolResult, Content, Tool, write_list};
use protocol::{RequestId, TaskId, Timestamp};
use rmcp::model;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::value;

fn meta() -> ResultMeta {
    ResultMeta::new(&Implementation::new("s", "1"))
}

/// rmcp reads our text and prints the same members back.
fn agrees<T: DeserializeOwned + Serialize>(ours: &[u8]) -> T {
    let ours = value(ours);
    let read: T = serde_json::from_value(ours.clone())
        .unwrap_or_else(|error| panic!("{}: {error}: {ours}", std::any::type_name::<T>()));
    assert_eq!(
        serde_json::to_value(&read).expect("rmcp prints what it read"),
        ours
    );
    read
}

fn view(state: TaskState<'_>) -> TaskView<'_> {
    TaskView {
        task_id: TaskId::new(1),
        state,
        status_message: Some("m"),
        created_at: Timestamp::from_unix_ms(1),
        last_updated_at: Timestamp::from_unix_ms(2),
        ttl_ms: Some(3),
        poll_interval_ms: 500,
    }
}

#[test]
fn tasks_agree() {
    let form = InputRequest::elicit_form(
        "Name?",
        json!({"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}),
    );
    let requests = write_requests([("k", form.to_raw().get().as_bytes())]);
    let result = CallToolResult::text("done").to_json();
    for state in [
        TaskState::Working,
        TaskState::InputRequired(&requests),
        TaskState::Completed(&result),
        TaskState::Failed(br#"{"code":-32603,"message":"m","data":{"reason":"work_limit"}}"#),
        TaskState::Cancelled,
    ] {
        agrees::<model::CreateTaskResult>(&write_create_result(&view(state), &meta()));
        let read: model::GetTaskResult = agrees(&write_detailed(&view(state), &meta()));
        assert_eq!(
            serde_json::to_value(read.task.status()).unwrap(),
            state.status().as_str()
        );
        let unlimited = TaskView {
            ttl_ms: None,
            status_message: None,
            ..view(state)
        };
        agrees::<model::GetTaskResult>(&write_detailed(&unlimited, &meta()));
    }
    agrees::<model::TaskAckResult>(&write_acknowledgement(&meta()));
}

#[test]
fn tools_agree() {
    let result = CallToolResult::content(vec![
        Content::text("t"),
        Content::image("aaaa", "image/png"),
        Content::audio("bbbb", "audio/wav"),
        Content::text_resource("test://r", "text/plain", "x"),
        Content::blob_resource("test://b", "image/png", "cccc"),
        Content::resource_link("test://l", "link"),
    ]);
    agrees::<model::CallToolResult>(&result.to_json());
    agrees::<model::CallToolResult>(&CallToolResult::error("no").to_json());
    agrees::<model::CallToolResult>(&CallToolResult::structured(json!({"n": 1})).to_json());

    let tool = Tool::new("t", &json!({"type": "object"}))
        .with_title("T")
        .with_description("d")
        .with_output_schema(&json!({"type": "object"}));
    let caching = Caching {
        ttl_ms: 5,
        scope: CacheScope::Private,
    };
    let page = write_list([&tool.to_json()[..]], Some("c"), caching, &meta());
    let read: model::ListToolsResult = agrees(&page);
    assert_eq!(read.tools[0].name, "t");
    agrees::<model::DiscoverResult>(&discover::write_result(
        discover::Provided::default(),
        Some("i"),
        caching,
        &meta(),
    ));
}

#[test]
fn questions_agree() {
    for request in [
        InputRequest::elicit_form(
            "m",
            json!({"type": "object", "properties": {"a": {"type": "boolean"}}}),
        ),
        InputRequest::sampling(json!({
            "messages": [{"role": "user", "content": {"type": "text", "text": "?"}}],
            "maxTokens": 100,
        })),
        InputRequest::roots(),
    ] {
        let text = request.to_raw();
        let read: Value =
            serde_json::to_value(serde_json::from_str::<model::InputRequest>(text.get()).unwrap())
                .unwrap();
        assert_eq!(read["method"], request.method);
    }
    let requests = write_requests([("k", InputRequest::roots().to_raw().get().as_bytes())]);
    let result = write_input_required(Some(&requests), Some("state"), &meta());
    let read: model::InputRequiredResult = serde_json::from_slice(&result).unwrap();
    assert_eq!(read.request_state.as_deref(), Some("state"));
}

#[test]
fn streams_agree() {
    let id = RequestId::from(7);
    let last = value(&write_final(&id, &meta()));
    serde_json::from_value::<model::SubscriptionsListenResult>(last["result"].clone()).unwrap();
    let filter = Filter {
        tools_list_changed: true,
        ..Filter::default()
    };
    let first = value(&write_acknowledged(&id, &filter));
    serde_json::from_value::<model::SubscriptionsAcknowledgedNotification>(first).unwrap();
}
