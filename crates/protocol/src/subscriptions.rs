//! `subscriptions/listen` and the messages of its stream (MCP 2026-07-28
//! §Subscriptions; SEP-2663 §Task Status Notifications).
//!
//! Every message carries the id of the listen request in its `_meta`, with the
//! JSON type and the text it was sent with.

use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::jsonrpc::{self, InvalidParams, RequestId};
use crate::meta::{ResultMeta, SUBSCRIPTION_ID_KEY};
use crate::raw::Object;
use crate::tasks::TaskView;
use crate::writer;

/// The kinds of notification a client asks for, or a server agrees to. What
/// was not asked for must not be sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Filter {
    /// `notifications/tools/list_changed`.
    #[serde(skip_serializing_if = "is_false")]
    pub tools_list_changed: bool,
    /// `notifications/prompts/list_changed`.
    #[serde(skip_serializing_if = "is_false")]
    pub prompts_list_changed: bool,
    /// `notifications/resources/list_changed`.
    #[serde(skip_serializing_if = "is_false")]
    pub resources_list_changed: bool,
    /// URIs for `notifications/resources/updated`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_subscriptions: Option<Vec<String>>,
    /// Ids for `notifications/tasks`, not yet judged: what is no id, unknown,
    /// foreign or expired is silently left out of the acknowledgement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_ids: Option<Vec<String>>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes fields by reference"
)]
fn is_false(flag: &bool) -> bool {
    !flag
}

/// The params of `subscriptions/listen`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenParams {
    /// What the client asks for.
    pub notifications: Filter,
}

impl ListenParams {
    /// Reads the params; kinds we don't know are ignored.
    ///
    /// # Errors
    /// If `notifications` is missing, or a member has the wrong type.
    pub fn parse(params: Option<&RawValue>) -> Result<Self, InvalidParams> {
        let params = Object::params(params)?;
        let filter = params.present("notifications").ok_or_else(|| {
            InvalidParams::new("`notifications` is missing: it must be an object")
        })?;
        let filter = Object::strict(filter, "`notifications`")?;
        Ok(Self {
            notifications: Filter {
                tools_list_changed: flag(&filter, "toolsListChanged")?,
                prompts_list_changed: flag(&filter, "promptsListChanged")?,
                resources_list_changed: flag(&filter, "resourcesListChanged")?,
                resource_subscriptions: strings(&filter, "resourceSubscriptions")?,
                task_ids: strings(&filter, "taskIds")?,
            },
        })
    }
}

fn flag(filter: &Object<'_>, name: &str) -> Result<bool, InvalidParams> {
    match filter.present(name).map(RawValue::get) {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(_) => Err(InvalidParams::new(format!(
            "`notifications.{name}` must be true or false"
        ))),
    }
}

fn strings(filter: &Object<'_>, name: &str) -> Result<Option<Vec<String>>, InvalidParams> {
    let Some(value) = filter.present(name) else {
        return Ok(None);
    };
    serde_json::from_str(value.get()).map(Some).map_err(|_| {
        InvalidParams::new(format!(
            "`notifications.{name}` must be an array of strings"
        ))
    })
}

/// The first message of a stream: what was agreed to, `taskIds` and
/// `resourceSubscriptions` (possibly empty) if and only if some were asked for.
#[must_use]
pub fn write_acknowledged(subscription: &RequestId, agreed: &Filter) -> Bytes {
    let params = writer::Object::with_capacity(256)
        .value("notifications", agreed)
        .raw("_meta", notification_meta(subscription))
        .finish();
    jsonrpc::notification("notifications/subscriptions/acknowledged", &params)
}

/// `notifications/tools/list_changed`.
#[must_use]
pub fn write_tools_list_changed(subscription: &RequestId) -> Bytes {
    list_changed("notifications/tools/list_changed", subscription)
}

/// `notifications/prompts/list_changed`.
#[must_use]
pub fn write_prompts_list_changed(subscription: &RequestId) -> Bytes {
    list_changed("notifications/prompts/list_changed", subscription)
}

/// `notifications/resources/list_changed`: of resources or of templates.
#[must_use]
pub fn write_resources_list_changed(subscription: &RequestId) -> Bytes {
    list_changed("notifications/resources/list_changed", subscription)
}

fn list_changed(method: &str, subscription: &RequestId) -> Bytes {
    let params = writer::Object::with_capacity(128)
        .raw("_meta", notification_meta(subscription))
        .finish();
    jsonrpc::notification(method, &params)
}

/// `notifications/resources/updated`: read it again.
#[must_use]
pub fn write_resource_updated(subscription: &RequestId, uri: &str) -> Bytes {
    let params = writer::Object::with_capacity(256)
        .value("uri", uri)
        .raw("_meta", notification_meta(subscription))
        .finish();
    jsonrpc::notification("notifications/resources/updated", &params)
}

/// `notifications/tasks`: the whole task as `tasks/get` would show it now, but
/// without `resultType`, for it is no result.
#[must_use]
pub fn write_task(subscription: &RequestId, task: &TaskView<'_>) -> Bytes {
    let params = task
        .members(writer::Object::with_capacity(task.payload_bytes() + 512))
        .raw("_meta", notification_meta(subscription))
        .finish();
    jsonrpc::notification("notifications/tasks", &params)
}

/// The final response, sent only when we end the stream in good order
/// (MCP 2026-07-28 schema `SubscriptionsListenResult`).
#[must_use]
pub fn write_final(subscription: &RequestId, meta: &ResultMeta) -> Bytes {
    let result = writer::Object::with_capacity(256)
        .value("resultType", "complete")
        .raw("_meta", meta.with_subscription(subscription.as_json()))
        .finish();
    jsonrpc::response(subscription, &result)
}

fn notification_meta(subscription: &RequestId) -> Bytes {
    writer::Object::with_capacity(128)
        .raw(SUBSCRIPTION_ID_KEY, subscription.as_json())
        .finish()
}
