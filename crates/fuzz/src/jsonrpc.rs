//! One JSON-RPC message, and the params of every method.

use protocol::completion::CompleteParams;
use protocol::jsonrpc::{self, Incoming, Limits, Message, Params, ParseError};
use protocol::meta::RequestMeta;
use protocol::{RequestId, legacy, prompts, resources, subscriptions, tasks, tools};
use serde_json::Value;
use serde_json::value::RawValue;

pub(crate) fn run(data: &[u8]) {
    let limits = Limits {
        depth_max: 16,
        id_bytes_max: 64,
    };
    let read = jsonrpc::read(data, limits);
    let value: Option<Value> = serde_json::from_slice(data).ok();
    if let Some(value) = &value {
        against_value(value, &read);
    }
    let incoming = match read {
        Err(error) => return refused(&error),
        Ok(incoming) => incoming,
    };
    match &incoming {
        Incoming::Message(Message::Request(request)) => {
            echoed(&request.id);
            written_again(
                &request.method,
                request.params.as_deref(),
                Some(&request.id),
                limits,
            );
            params(request.params.as_deref());
        }
        Incoming::Message(Message::Notification(notification)) => {
            let (method, params) = (&notification.method, notification.params.as_deref());
            written_again(method, params, None, limits);
        }
        Incoming::Response(response) => {
            let _ = response.id.as_ref().and_then(legacy::asked);
        }
    }
}

/// What another reader makes of the same text.
fn against_value(value: &Value, read: &Result<Incoming, ParseError>) {
    let fits = depth(value) <= 16;
    if let Ok(incoming) = read {
        assert!(fits, "deeper than it may be");
        assert_eq!(value["jsonrpc"], "2.0");
        match incoming {
            Incoming::Message(Message::Request(request)) => {
                assert_eq!(value["method"], request.method.as_str());
                assert!(value["id"].is_string() || value["id"].is_number());
            }
            Incoming::Message(Message::Notification(notification)) => {
                assert_eq!(value["method"], notification.method.as_str());
                assert!(value.get("id").is_none());
            }
            Incoming::Response(_) => {
                assert!(value.get("result").is_some() || value.get("error").is_some());
            }
        }
    } else if !value.is_object() {
        assert!(read.is_err());
    }
}

fn depth(value: &Value) -> usize {
    let inner = match value {
        Value::Array(items) => items.iter().map(depth).max(),
        Value::Object(members) => members.values().map(depth).max(),
        _ => return 0,
    };
    1 + inner.unwrap_or(0)
}

/// A refusal says what is wrong, on one line, and is itself well formed.
fn refused(error: &ParseError) {
    assert!(matches!(error.code, -32700 | -32600));
    assert!(!error.message.is_empty() && error.message.len() < 1000);
    let text = jsonrpc::error_response(error.id.as_ref(), &error.into());
    let read: Value = serde_json::from_slice(&text).expect("an answer is JSON");
    assert_eq!(read["error"]["code"], error.code);
    assert!(!text.contains(&b'\n'));
}

/// An id comes back as it came.
fn echoed(id: &RequestId) {
    assert!(id.as_json().len() <= 64);
    let text = jsonrpc::response(id, b"{}");
    let expected = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{{}}}}",
        id.as_json()
    );
    assert_eq!(text, expected.as_bytes());
}

/// What was read, written and read again, is the same.
fn written_again(method: &str, params: Option<&RawValue>, id: Option<&RequestId>, limits: Limits) {
    let mut text = String::from("{\"jsonrpc\":\"2.0\"");
    if let Some(id) = id {
        text.push_str(&format!(",\"id\":{}", id.as_json()));
    }
    text.push_str(&format!(",\"method\":{}", Value::from(method)));
    if let Some(params) = params {
        text.push_str(&format!(",\"params\":{params}"));
    }
    text.push('}');
    let again = jsonrpc::read(text.as_bytes(), limits).expect("it was read before");
    match again {
        Incoming::Message(Message::Request(request)) => {
            assert_eq!(request.method, method);
            assert_eq!(Some(&request.id), id);
            let same = request.params.as_deref().map(RawValue::get) == params.map(RawValue::get);
            assert!(same);
        }
        Incoming::Message(Message::Notification(notification)) => {
            assert_eq!((notification.method.as_str(), id), (method, None));
        }
        Incoming::Response(_) => panic!("a request became a response"),
    }
}

/// Every reader of params: none panics, and every refusal is short and says something.
fn params(params: Option<&RawValue>) {
    fn told<T, E: std::fmt::Display>(read: Result<T, E>) -> Option<T> {
        read.map_err(|error| {
            let text = error.to_string();
            assert!(!text.is_empty() && text.len() < 1000, "{text}");
        })
        .ok()
    }
    if let Some(meta) =
        told(Params::read(params)).and_then(|params| told(RequestMeta::read(&params)))
    {
        let _ = (
            meta.version_is_supported(),
            meta.capabilities.declares_tasks(),
        );
    }
    if let Some(call) = told(tools::CallToolParams::parse(params)) {
        let json: Result<&RawValue, _> = serde_json::from_str(call.arguments_json());
        assert!(json.is_ok_and(|json| json.get().starts_with('{')));
    }
    told(tools::ListToolsParams::parse(params));
    if let Some(get) = told(tasks::TaskIdParams::parse(params)) {
        let _ = get.id();
    }
    if let Some(update) = told(tasks::UpdateTaskParams::parse(params)) {
        let _ = update.id();
    }
    told(subscriptions::ListenParams::parse(params));
    told(resources::ReadParams::parse(params));
    told(prompts::GetParams::parse(params));
    told(CompleteParams::parse(params));
    for version in ["2025-11-25", "2025-06-18"] {
        let asked = legacy::request_meta(params, version, legacy::Answers::AsTask);
        told(asked);
    }
    told(legacy::wants_task(params));
    told(legacy::InitializeParams::parse(params));
    let _ = (
        legacy::is_modern(params),
        protocol::meta::initialize_version(params),
    );
}
