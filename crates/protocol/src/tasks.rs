//! Tasks on the wire (SEP-2663): params of `tasks/*`, and the writers of a task,
//! which copy stored JSON as it is.

use bytes::Bytes;
use serde_json::value::RawValue;

use crate::input::InputResponses;
use crate::jsonrpc::{ErrorObject, InvalidParams};
use crate::meta::ResultMeta;
use crate::raw::Object;
use crate::{TaskId, TaskStatus, Timestamp, writer};

/// A task as its owner may see it: borrowed from a row, written without
/// parsing what is stored.
#[derive(Clone, Copy, Debug)]
pub struct TaskView<'a> {
    /// The task's name.
    pub task_id: TaskId,
    /// What it is doing, with what that brings along.
    pub state: TaskState<'a>,
    /// For people and models.
    pub status_message: Option<&'a str>,
    /// When the task was made.
    pub created_at: Timestamp,
    /// When something a client can see last changed.
    pub last_updated_at: Timestamp,
    /// Milliseconds from creation until the task may be gone; `None`: unlimited.
    pub ttl_ms: Option<i64>,
    /// Milliseconds a client should wait before it polls again.
    pub poll_interval_ms: u64,
}

/// A status with exactly what belongs to it, each as stored JSON text.
#[derive(Clone, Copy, Debug)]
pub enum TaskState<'a> {
    /// Nothing.
    Working,
    /// `inputRequests`, an object: all outstanding requests by key; see
    /// [`input::write_requests`](crate::input::write_requests).
    InputRequired(&'a [u8]),
    /// `result`, an object: what the call would have returned, with `resultType`.
    Completed(&'a [u8]),
    /// `error`, an object with code and message.
    Failed(&'a [u8]),
    /// Nothing.
    Cancelled,
}

impl TaskState<'_> {
    /// The status that this state shows.
    #[must_use]
    pub const fn status(&self) -> TaskStatus {
        match self {
            Self::Working => TaskStatus::Working,
            Self::InputRequired(_) => TaskStatus::InputRequired,
            Self::Completed(_) => TaskStatus::Completed,
            Self::Failed(_) => TaskStatus::Failed,
            Self::Cancelled => TaskStatus::Cancelled,
        }
    }

    const fn payload(&self) -> Option<(&'static str, &[u8])> {
        match self {
            Self::Working | Self::Cancelled => None,
            Self::InputRequired(requests) => Some(("inputRequests", requests)),
            Self::Completed(result) => Some(("result", result)),
            Self::Failed(error) => Some(("error", error)),
        }
    }
}

impl TaskView<'_> {
    /// Bytes that the stored payload adds to the answer.
    pub(crate) fn payload_bytes(&self) -> usize {
        self.state.payload().map_or(0, |(_, json)| json.len())
    }

    fn head(&self, out: writer::Object) -> writer::Object {
        let out = out
            .value("taskId", &self.task_id)
            .value("status", self.state.status().as_str())
            .optional("statusMessage", self.status_message)
            .value("createdAt", &self.created_at)
            .value("lastUpdatedAt", &self.last_updated_at);
        let out = match self.ttl_ms {
            // Always present: a published client refuses a task without it.
            None => out.raw("ttlMs", "null"),
            Some(ttl_ms) => out.integer("ttlMs", ttl_ms),
        };
        out.integer("pollIntervalMs", self.poll_interval_ms)
    }

    /// The flat members of a detailed task.
    pub(crate) fn members(&self, out: writer::Object) -> writer::Object {
        let out = self.head(out);
        match self.state.payload() {
            Some((name, json)) => out.raw(name, json),
            None => out,
        }
    }
}

/// `CreateTaskResult`: the handle in place of a result. Never holds `result`,
/// `error` or `inputRequests`, whatever the state (SEP-2663 §Task Creation).
#[must_use]
pub fn write_create_result(task: &TaskView<'_>, meta: &ResultMeta) -> Bytes {
    let out = writer::Object::with_capacity(512).value("resultType", "task");
    task.head(out).raw("_meta", meta.to_json()).finish()
}

/// The answer to `tasks/get`: the whole task, `resultType: "complete"`.
#[must_use]
pub fn write_detailed(task: &TaskView<'_>, meta: &ResultMeta) -> Bytes {
    let out =
        writer::Object::with_capacity(task.payload_bytes() + 512).value("resultType", "complete");
    task.members(out).raw("_meta", meta.to_json()).finish()
}

/// The answer to `tasks/update` and `tasks/cancel`: nothing of the task (rmcp
/// refuses any other member).
#[must_use]
pub fn write_acknowledgement(meta: &ResultMeta) -> Bytes {
    writer::Object::with_capacity(128)
        .value("resultType", "complete")
        .raw("_meta", meta.to_json())
        .finish()
}

/// The params of `tasks/get` and `tasks/cancel`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskIdParams {
    /// As sent; it may be no id at all.
    pub task_id: String,
}

impl TaskIdParams {
    /// Reads the params; unknown members are ignored.
    ///
    /// # Errors
    /// If `taskId` is missing or not a string.
    pub fn parse(params: Option<&RawValue>) -> Result<Self, InvalidParams> {
        Ok(Self {
            task_id: Object::params(params)?.required_string("taskId")?,
        })
    }

    /// The id, or `None` if the text can't be one of ours: answer
    /// [`not_found`], as for any unknown id.
    #[must_use]
    pub fn id(&self) -> Option<TaskId> {
        self.task_id.parse().ok()
    }
}

/// The params of `tasks/update`.
#[derive(Clone, Debug)]
pub struct UpdateTaskParams {
    /// As sent; it may be no id at all.
    pub task_id: String,
    /// Answers by key, shapes not yet checked: unknown keys are ignored first.
    pub input_responses: InputResponses,
}

impl UpdateTaskParams {
    /// Reads the params; unknown members are ignored.
    ///
    /// # Errors
    /// If `taskId` or `inputResponses` is missing or of the wrong type, or a key
    /// occurs twice.
    pub fn parse(params: Option<&RawValue>) -> Result<Self, InvalidParams> {
        let params = Object::params(params)?;
        let task_id = params.required_string("taskId")?;
        let responses = params.present("inputResponses").ok_or_else(|| {
            InvalidParams::new("`inputResponses` is missing: it must be an object")
        })?;
        Ok(Self {
            task_id,
            input_responses: InputResponses::read(responses)?,
        })
    }

    /// The id, or `None` if the text can't be one of ours.
    #[must_use]
    pub fn id(&self) -> Option<TaskId> {
        self.task_id.parse().ok()
    }
}

/// The one answer for ids that are unknown, foreign, purged or no ids at all:
/// the same bytes for all, so that nothing can be learnt (I8).
#[must_use]
pub fn not_found() -> ErrorObject {
    ErrorObject::invalid_params("Failed to retrieve task: Task not found")
}

/// The answer about an expired task, to its owner only.
#[must_use]
pub fn expired(final_status: TaskStatus, expired_at: Timestamp) -> ErrorObject {
    ErrorObject::invalid_params("Failed to retrieve task: Task has expired").with_data(
        serde_json::json!({
            "reason": crate::code::reason::TASK_EXPIRED,
            "finalStatus": final_status,
            "expiredAt": expired_at,
        }),
    )
}
