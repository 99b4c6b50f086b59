//! What the clients did and saw, in the order of one clock.
//!
//! The checker judges from this alone (and the ledger), so whatever a client asked is recorded,
//! also if nothing came back.

mod recorder;
mod reply;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use recorder::{Asking, Recorder, read};
pub use reply::Reply;

/// One thing that a client asked and what came of it, or one fault.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// When it was asked, or began ([`crate::clock`]).
    pub at_us: u64,
    /// When the answer was there, nobody waited for it any longer, or the fault was over. Whatever
    /// the answer says was true at some moment between the two.
    pub until_us: u64,
    /// Who: a client's name, or the schedule of faults.
    pub client: String,
    /// For whom; several clients may share a principal.
    pub principal: String,
    /// Which gateway was asked.
    pub gateway: String,
    /// What.
    #[serde(flatten)]
    pub kind: Kind,
}

/// What was asked, and what came back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Kind {
    /// `tools/call`.
    Called {
        /// The tool.
        tool: String,
        /// Its arguments: a [`crate::plan::Plan`]. A call that is repeated carries the same.
        arguments: Value,
        /// The idempotency key.
        key: Option<String>,
        /// What came back.
        answer: CallAnswer,
    },
    /// `tasks/get` by an owner.
    Read {
        /// The task.
        task: String,
        /// What came back.
        answer: TaskAnswer,
    },
    /// `tasks/update`.
    Updated {
        /// The task.
        task: String,
        /// Question and response, as sent. No two updates of a run carry the same response.
        answers: BTreeMap<String, Value>,
        /// What came back.
        answer: Acknowledgement,
    },
    /// `tasks/cancel`.
    Cancelled {
        /// The task.
        task: String,
        /// What came back.
        answer: Acknowledgement,
    },
    /// `notifications/tasks` on an owner's listen.
    Notified {
        /// The task.
        task: String,
        /// As it was shown.
        view: View,
    },
    /// Any method about another principal's task.
    Foreign {
        /// The task.
        task: String,
        /// `tasks/get`, `tasks/update`, `tasks/cancel` or `subscriptions/listen`.
        method: String,
        /// What came back.
        answer: ForeignAnswer,
    },
    /// Something was broken from outside.
    Fault {
        /// How, e.g. `kill9`.
        what: String,
        /// What was broken, e.g. `worker-2`.
        target: String,
    },
}

/// The answer to `tools/call`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum CallAnswer {
    /// The tool's result, as the very text of the message.
    Inline {
        /// JSON.
        result: String,
    },
    /// A handle: from here on the task is acknowledged.
    Handle {
        /// The task.
        task: String,
    },
    /// Questions before there is a task (`resultType: "input_required"`).
    Asked {
        /// JSON.
        result: String,
    },
    /// A JSON-RPC error.
    Error(RpcError),
    /// None: nobody knows whether the call was taken.
    NoAnswer(NoAnswer),
}

/// The answer to `tasks/get`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum TaskAnswer {
    /// The task.
    Task(View),
    /// A JSON-RPC error.
    Error(RpcError),
    /// None.
    NoAnswer(NoAnswer),
}

/// The answer to `tasks/update` and `tasks/cancel`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Acknowledgement {
    /// Acknowledged.
    Done,
    /// A JSON-RPC error.
    Error(RpcError),
    /// None: nobody knows whether it was taken.
    NoAnswer(NoAnswer),
}

/// The answer to somebody who asks about another's task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum ForeignAnswer {
    /// A JSON-RPC error; its text must be the one for a task that never was. For a listen: the
    /// acknowledgement left the task out, and no notification told of it (an empty text).
    Refused(RpcError),
    /// Something was shown.
    Shown {
        /// The text.
        result: String,
    },
    /// None.
    NoAnswer(NoAnswer),
}

/// A JSON-RPC error.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RpcError {
    /// Its code.
    pub code: i64,
    /// The whole error object, as the very text of the message.
    pub error: String,
}

/// Why there was no answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoAnswer {
    /// For people.
    pub why: String,
}

/// A task as it was shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// The id that the answer named.
    pub id: String,
    /// `working`, `input_required`, `completed`, `failed` or `cancelled`.
    pub status: String,
    /// The result, as the very text of the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// The error, as the very text of the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Keys of `inputRequests`, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<String>,
}

impl View {
    /// Whether the status is an end.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        ["completed", "failed", "cancelled"].contains(&self.status.as_str())
    }
}

impl RpcError {
    /// `message` of the error object.
    #[must_use]
    pub fn message(&self) -> String {
        self.field("/message")
    }

    /// `data.reason` of the error object; empty if there is none.
    #[must_use]
    pub fn reason(&self) -> String {
        self.field("/data/reason")
    }

    fn field(&self, pointer: &str) -> String {
        let error: Value = serde_json::from_str(&self.error).unwrap_or_default();
        error
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    }
}
