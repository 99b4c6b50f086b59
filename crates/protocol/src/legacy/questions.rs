//! A task's questions as older revisions ask them: requests of the server on the stream of
//! `tasks/result`, answered by responses in bodies of their own (MCP 2025-11-25 §Input Required
//! Status).
//!
//! The request's id says which question of which task it is, so that any replica understands the
//! answer. It gives no right: an answer counts for a task of its sender only.

use bytes::Bytes;
use serde_json::value::RawValue;

use super::RELATED_TASK_KEY;
use crate::input::InputKind;
use crate::meta::NotAnObject;
use crate::raw::{self, Object};
use crate::{RequestId, TaskId, writer};

/// One question, ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Its key.
    pub key: String,
    /// The JSON-RPC request.
    pub json: Bytes,
}

/// The outstanding questions of a task, from its stored `inputRequests`.
///
/// # Errors
/// If they are not an object of requests.
pub fn questions(id: TaskId, requests: &[u8]) -> Result<Vec<Question>, NotAnObject> {
    let text = std::str::from_utf8(requests).map_err(|error| NotAnObject::new(&error))?;
    let requests = Object::read(text).map_err(|error| NotAnObject::new(&error))?;
    let members = requests.into_members().into_iter();
    members
        .map(|(key, request)| {
            let method = raw::member(request, "method").and_then(raw::string);
            let method = method.ok_or_else(|| NotAnObject::new(&"a request without a method"))?;
            let name = format!("{id}/{key}");
            let json = writer::Object::with_capacity(request.get().len() + 256)
                .raw("jsonrpc", "\"2.0\"")
                .value("id", &name)
                .value("method", &method)
                .raw("params", params(request, id, &name))
                .finish();
            Ok(Question {
                key: key.into_owned(),
                json,
            })
        })
        .collect()
}

/// The params, which name the task; a page to visit has a name too in those revisions.
fn params(request: &RawValue, id: TaskId, name: &str) -> Bytes {
    let read = |value: &'_ RawValue| value.get().to_owned();
    let params = raw::member(request, "params").map(read).unwrap_or_default();
    let params = Object::read(&params).unwrap_or_default();
    let meta = params.get("_meta").map(read).unwrap_or_default();
    let meta = Object::read(&meta).unwrap_or_default();
    let related = serde_json::json!({ "taskId": id });
    let meta = meta
        .into_members()
        .into_iter()
        .filter(|(name, _)| name != RELATED_TASK_KEY)
        .fold(writer::Object::with_capacity(128), |out, (name, value)| {
            out.entry(&name, value.get().as_bytes())
        })
        .value(RELATED_TASK_KEY, &related)
        .finish();
    let is_page = InputKind::of(request) == Some(InputKind::ElicitUrl);
    let nameless = is_page && params.present("elicitationId").is_none();
    let members = params.into_members().into_iter();
    let out = members
        .filter(|(name, _)| name != "_meta")
        .fold(writer::Object::with_capacity(256), |out, (name, value)| {
            out.entry(&name, value.get().as_bytes())
        })
        .optional("elicitationId", nameless.then_some(name));
    out.raw("_meta", meta).finish()
}

/// Which question of which task the request with this id asked; `None` = no id of ours.
#[must_use]
pub fn asked(id: &RequestId) -> Option<(TaskId, String)> {
    let text: String = serde_json::from_str(id.as_json()).ok()?;
    let (task, key) = text.split_once('/')?;
    Some((task.parse().ok()?, key.to_owned()))
}
