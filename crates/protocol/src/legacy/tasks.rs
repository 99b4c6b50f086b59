//! A task as MCP 2025-11-25 shows it: `ttl` and `pollInterval`, in milliseconds as they are today;
//! and `failed` for a tool that reported an error, which today is a completed call.

use std::borrow::Cow;

use bytes::Bytes;
use serde_json::value::RawValue;

use super::{IMMEDIATE_RESPONSE_KEY, RELATED_TASK_KEY};
use crate::TaskStatus;
use crate::meta::NotAnObject;
use crate::raw::{self, Object};
use crate::writer;

/// What a task says that waits for its owner.
const WAITS_FOR_INPUT: &str = "Waiting for your answers: call tasks/result to be asked.";
/// What a task says whose tool reported an error.
const TOOL_FAILED: &str = "The tool reported an error: tasks/result tells it.";
/// What a host may give its model in place of the result.
const IMMEDIATE_RESPONSE: &str =
    "Started as a task. The result does not exist yet: it is there when the task is completed.";

/// `CreateTaskResult` from ours: the task nested in `task`.
///
/// # Errors
/// If `handle` is no task of ours.
pub fn create_result(handle: &[u8]) -> Result<Bytes, NotAnObject> {
    let task = task(handle)?;
    let id = member(&task, "taskId")?;
    let related = format!(r#"{{"taskId":{id}}}"#);
    let meta = writer::Object::with_capacity(256)
        .raw(RELATED_TASK_KEY, related)
        .value(IMMEDIATE_RESPONSE_KEY, IMMEDIATE_RESPONSE)
        .finish();
    Ok(writer::Object::with_capacity(task.len() + 300)
        .raw("task", &task)
        .raw("_meta", meta)
        .finish())
}

/// The flat `Task` from ours, whatever method gave it: the answer to `tasks/get` and
/// `tasks/cancel`.
///
/// # Errors
/// If `modern` is no task of ours.
pub fn task(modern: &[u8]) -> Result<Bytes, NotAnObject> {
    let text = text(modern)?;
    let object = Object::read(text).map_err(|error| NotAnObject::new(&error))?;
    let need = |name: &str| {
        let missing = || NotAnObject::new(&format_args!("a task without `{name}`"));
        object.get(name).ok_or_else(missing)
    };
    let status = raw::string(need("status")?).unwrap_or_default();
    let failed = status == "completed" && object.get("result").is_some_and(is_error);
    let message = match status.as_str() {
        "input_required" => Some(Cow::Borrowed(WAITS_FOR_INPUT)),
        _ if failed => Some(Cow::Borrowed(TOOL_FAILED)),
        _ => object
            .get("statusMessage")
            .and_then(raw::string)
            .map(Cow::Owned),
    };
    let status = if failed { "failed" } else { &status };
    Ok(writer::Object::with_capacity(512)
        .raw("taskId", need("taskId")?.get())
        .value("status", status)
        .optional("statusMessage", message.as_deref())
        .raw("createdAt", need("createdAt")?.get())
        .raw("lastUpdatedAt", need("lastUpdatedAt")?.get())
        .raw("ttl", need("ttlMs")?.get())
        .raw("pollInterval", need("pollIntervalMs")?.get())
        .finish())
}

/// The answer to `tasks/list`, from tasks of ours.
///
/// # Errors
/// If one of them is none.
pub fn task_list<'a>(
    modern: impl IntoIterator<Item = &'a [u8]>,
    next_cursor: Option<&str>,
) -> Result<Bytes, NotAnObject> {
    let mut tasks = vec![b'['];
    for one in modern {
        if tasks.len() > 1 {
            tasks.push(b',');
        }
        tasks.extend_from_slice(&task(one)?);
    }
    tasks.push(b']');
    Ok(writer::Object::with_capacity(tasks.len() + 256)
        .raw("tasks", tasks)
        .optional("nextCursor", next_cursor)
        .finish())
}

/// The status as it is shown: a tool's own error makes the task `failed` (MCP 2025-11-25 §Task
/// Execution Errors). `result` is that of a completed task.
#[must_use]
pub fn shown_status(status: TaskStatus, result: Option<&[u8]>) -> TaskStatus {
    let says_error = |json: &[u8]| serde_json::from_slice::<&RawValue>(json).is_ok_and(is_error);
    match status {
        TaskStatus::Completed if result.is_some_and(says_error) => TaskStatus::Failed,
        other => other,
    }
}

fn is_error(result: &RawValue) -> bool {
    raw::member(result, "isError").is_some_and(|flag| flag.get() == "true")
}

fn member(json: &[u8], name: &str) -> Result<String, NotAnObject> {
    let object = Object::read(text(json)?).map_err(|error| NotAnObject::new(&error))?;
    let missing = || NotAnObject::new(&format_args!("no `{name}`"));
    Ok(object.get(name).ok_or_else(missing)?.get().to_owned())
}

fn text(json: &[u8]) -> Result<&str, NotAnObject> {
    std::str::from_utf8(json).map_err(|error| NotAnObject::new(&error))
}
