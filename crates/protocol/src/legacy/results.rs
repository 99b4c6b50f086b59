//! Our results without what older revisions do not know.

use bytes::Bytes;
use serde_json::value::RawValue;

use super::RELATED_TASK_KEY;
use crate::TaskId;
use crate::meta::{NotAnObject, SERVER_INFO_KEY};
use crate::raw::{self, Object};
use crate::writer;

/// Members of results that came later.
const MODERN: [&str; 3] = ["resultType", "ttlMs", "cacheScope"];

/// A result of any method but `tools/call`.
///
/// # Errors
/// If it isn't the JSON text of an object.
pub fn plain(result: &[u8]) -> Result<Bytes, NotAnObject> {
    let object = read(result)?;
    let meta = meta(object.get("_meta"), None);
    let members = object.into_members().into_iter();
    let kept = members.filter(|(name, _)| !MODERN.contains(&&**name) && name != "_meta");
    let out = kept.fold(with_capacity(result), |out, (name, value)| {
        out.entry(&name, value.get().as_bytes())
    });
    Ok(finish(out, meta))
}

/// A tool's result. `structuredContent` that is no object came later too, and clients refuse the
/// whole result for it; the same is in its `content`.
///
/// # Errors
/// If it isn't the JSON text of an object.
pub fn tool_result(result: &[u8]) -> Result<Bytes, NotAnObject> {
    write_tool_result(result, None)
}

/// The same as the answer to `tasks/result`, which names its task (MCP 2025-11-25 §Tasks,
/// Associating Task-Related Messages).
///
/// # Errors
/// If it isn't the JSON text of an object.
pub fn task_result(result: &[u8], id: TaskId) -> Result<Bytes, NotAnObject> {
    write_tool_result(result, Some(id))
}

fn write_tool_result(result: &[u8], id: Option<TaskId>) -> Result<Bytes, NotAnObject> {
    let object = read(result)?;
    let meta = meta(object.get("_meta"), id);
    let members = object.into_members().into_iter();
    let kept = members.filter(|(name, value)| match &**name {
        "resultType" | "_meta" => false,
        "structuredContent" => raw::is_object(value),
        _ => true,
    });
    let out = kept.fold(with_capacity(result), |out, (name, value)| {
        out.entry(&name, value.get().as_bytes())
    });
    Ok(finish(out, meta))
}

/// A page of `tools/list`, where `support` says for a tool's name what `execution.taskSupport` is;
/// `None` = the revision knows no tasks. An `outputSchema` of another type than object came later,
/// and clients refuse the whole list for it.
///
/// # Errors
/// If it is no page of ours.
pub fn tools(
    page: &[u8],
    support: impl Fn(&str) -> Option<&'static str>,
) -> Result<Bytes, NotAnObject> {
    let page = plain(page)?;
    let object = read(&page)?;
    let no = |error: serde_json::Error| NotAnObject::new(&error);
    let mut tools = vec![b'['];
    let listed = object.get("tools").map_or("[]", RawValue::get);
    for tool in serde_json::from_str::<Vec<&RawValue>>(listed).map_err(no)? {
        if tools.len() > 1 {
            tools.push(b',');
        }
        tools.extend_from_slice(&write_tool(tool, &support)?);
    }
    tools.push(b']');
    let members = object.into_members().into_iter();
    Ok(members
        .fold(with_capacity(&page), |out, (name, value)| match &*name {
            "tools" => out.raw("tools", &tools),
            _ => out.entry(&name, value.get().as_bytes()),
        })
        .finish())
}

fn write_tool(
    tool: &RawValue,
    support: &impl Fn(&str) -> Option<&'static str>,
) -> Result<Bytes, NotAnObject> {
    let object = read(tool.get().as_bytes())?;
    let name = object.get("name").and_then(raw::string).unwrap_or_default();
    let execution = support(&name).map(|support| serde_json::json!({ "taskSupport": support }));
    let members = object.into_members().into_iter();
    let kept = members.filter(|(name, value)| match &**name {
        "execution" => false,
        "outputSchema" => {
            raw::member(value, "type").and_then(raw::string).as_deref() == Some("object")
        }
        _ => true,
    });
    Ok(kept
        .fold(
            with_capacity(tool.get().as_bytes()),
            |out, (name, value)| out.entry(&name, value.get().as_bytes()),
        )
        .optional("execution", execution.as_ref())
        .finish())
}

/// The `_meta` of a result: without our name, with the task's.
fn meta(meta: Option<&RawValue>, id: Option<TaskId>) -> Option<Bytes> {
    let members = meta.and_then(|meta| Object::read(meta.get()).ok());
    let members = members.map(Object::into_members).unwrap_or_default();
    let mut kept = members
        .into_iter()
        .filter(|(name, _)| name != SERVER_INFO_KEY && (id.is_none() || name != RELATED_TASK_KEY))
        .peekable();
    if kept.peek().is_none() && id.is_none() {
        return None;
    }
    let out = kept.fold(writer::Object::with_capacity(256), |out, (name, value)| {
        out.entry(&name, value.get().as_bytes())
    });
    Some(match id {
        Some(id) => out
            .value(RELATED_TASK_KEY, &serde_json::json!({ "taskId": id }))
            .finish(),
        None => out.finish(),
    })
}

fn finish(out: writer::Object, meta: Option<Bytes>) -> Bytes {
    match meta {
        Some(meta) => out.raw("_meta", meta).finish(),
        None => out.finish(),
    }
}

fn with_capacity(text: &[u8]) -> writer::Object {
    writer::Object::with_capacity(text.len() + 128)
}

fn read(json: &[u8]) -> Result<Object<'_>, NotAnObject> {
    let text = std::str::from_utf8(json).map_err(|error| NotAnObject::new(&error))?;
    Object::read(text).map_err(|error| NotAnObject::new(&error))
}
