//! What callers see of a task, and who owns it.

use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use protocol::{TaskId, TaskStatus};

use crate::keyring::Wrapped;

/// Who calls: issuer and subject of a verified token. A task belongs to exactly one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Principal {
    /// `iss` of the token, or the name of the local authentication mode.
    pub issuer: String,
    /// `sub` of the token.
    pub subject: String,
    /// Tenant claim, if there is one. Never widens access.
    pub tenant: Option<String>,
}

impl Principal {
    /// Made by whoever verified the token, and by nobody else.
    #[must_use]
    pub fn verified(issuer: String, subject: String, tenant: Option<String>) -> Self {
        Self {
            issuer,
            subject,
            tenant,
        }
    }
}

/// Why a task was told to stop; the first reason stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The owner asked (`tasks/cancel`).
    Cancelled,
    /// Nobody has the id and nobody waits.
    Abandoned,
    /// Its TTL ran out.
    Expired,
    /// It worked longer than its tool may.
    WorkLimit,
    /// A question went unanswered.
    InputDeadline,
    /// No worker serves the pinned version any more.
    VersionGone,
}

impl StopReason {
    /// As stored.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cancelled => "cancelled",
            Self::Abandoned => "abandoned",
            Self::Expired => "expired",
            Self::WorkLimit => "work_limit",
            Self::InputDeadline => "input_deadline",
            Self::VersionGone => "version_gone",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        [
            Self::Cancelled,
            Self::Abandoned,
            Self::Expired,
            Self::WorkLimit,
            Self::InputDeadline,
            Self::VersionGone,
        ]
        .into_iter()
        .find(|reason| reason.as_str() == text)
    }
}

/// For whom a parked task asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParkedFor {
    /// Before the task is shown: the caller of `tools/call` is asked (`InputRequiredResult`).
    Caller,
    /// As a task: `tasks/get` shows the questions.
    Task,
}

impl ParkedFor {
    /// As stored.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Caller => "caller",
            Self::Task => "task",
        }
    }
}

/// A task as it was at one moment.
#[derive(Clone, Debug)]
pub struct Task {
    /// Its id.
    pub id: TaskId,
    /// Name of its tool.
    pub tool: String,
    /// Version of its tool.
    pub tool_version: i32,
    /// What a client sees.
    pub status: TaskStatus,
    /// What the work says of itself.
    pub status_message: Option<String>,
    /// Creation, by Postgres' clock, whole milliseconds.
    pub created_at: SystemTime,
    /// Last change a client can see; strictly later with every such change.
    pub last_updated_at: SystemTime,
    /// From creation, ms; `None` = unlimited. Never shrinks.
    pub ttl_ms: Option<i64>,
    /// All outstanding requests, as one JSON object. Present exactly while input is required, but where it is
    /// withheld.
    pub input_requests: Option<Bytes>,
    /// The tool's result (JSON). Present exactly when completed, but where it is withheld.
    pub result: Option<Bytes>,
    /// How long result, error and requests are, in bytes, where they were too long to be read with others; else 0.
    pub withheld: usize,
    /// A JSON-RPC error object (JSON). Present exactly when failed, but where it is withheld.
    pub error: Option<Bytes>,
    /// Waits in the queue for a worker.
    pub queued: bool,
    /// An outcome reached the owner before.
    pub fetched: bool,
    /// A handle was given out, or is about to be.
    pub handed_out: bool,
    /// Was created with an idempotency key.
    pub keyed: bool,
    /// Why it was told to stop.
    pub stop: Option<StopReason>,
    /// For whom it asks, while parked.
    pub parked_for: Option<ParkedFor>,
    /// How often it has parked.
    pub rounds: i32,
    /// The key that its contents are sealed with, until they are opened.
    pub(crate) sealed: Option<Arc<Wrapped>>,
}
