//! MCP 2025-11-25 and 2025-06-18 on the wire: what clients of those revisions send, and our
//! answers as they know them.
//!
//! Everything here turns text into text: the methods behind are those of [`VERSION`](crate::VERSION),
//! and a task is the same row whoever looks at it.

mod initialize;
mod questions;
mod request;
mod results;
mod tasks;

use serde_json::value::RawValue;

pub use initialize::{InitializeParams, ListsTasks, write_initialize};
pub use questions::{Question, asked, questions};
pub use request::{Answers, request_meta, wants_task};
pub use results::{plain, task_result, tool_result, tools};
pub use tasks::{create_result, shown_status, task, task_list};

use crate::meta::PROTOCOL_VERSION_KEY;
use crate::raw;

/// The revisions that legacy clients may speak, newest first. Not 2025-03-26: it demands batches,
/// and its requests do not say which revision they are of.
pub const VERSIONS: &[&str] = &[WITH_TASKS, "2025-06-18"];
/// The one that knows tasks, as an experiment (MCP 2025-11-25 §Tasks).
pub const WITH_TASKS: &str = "2025-11-25";
/// `_meta` key: the task that a message belongs to (MCP 2025-11-25 §Tasks, Associating).
pub const RELATED_TASK_KEY: &str = "io.modelcontextprotocol/related-task";
/// `_meta` key of a handle: what a host may give its model for the time being.
pub const IMMEDIATE_RESPONSE_KEY: &str = "io.modelcontextprotocol/model-immediate-response";

/// The revision of this name, if it is one of [`VERSIONS`].
#[must_use]
pub fn version(name: &str) -> Option<&'static str> {
    VERSIONS.iter().find(|version| **version == name).copied()
}

/// The revision that an `initialize` for `asked` is answered with: the same if we speak it, else
/// our newest (MCP 2025-11-25 §Lifecycle, Version Negotiation).
#[must_use]
pub fn negotiate(asked: &str) -> &'static str {
    version(asked).unwrap_or(WITH_TASKS)
}

/// Whether a request says of itself that it is of a revision without `initialize`: then it is
/// judged by that, whatever its headers say. What names an older one, or none, is a slip of an older client's,
/// and is told in its words ([`request_meta`]).
#[must_use]
pub fn is_modern(params: Option<&RawValue>) -> bool {
    params
        .and_then(|params| raw::member(params, "_meta"))
        .and_then(|meta| raw::member(meta, PROTOCOL_VERSION_KEY))
        .and_then(raw::string)
        .is_some_and(|named| version(&named).is_none())
}
