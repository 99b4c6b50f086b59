//! `notifications/progress`: how far a held call has come.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Number;

use crate::jsonrpc;
use crate::meta::ProgressToken;
use crate::writer;

/// One progress report (MCP 2026-07-28 schema `ProgressNotificationParams`).
///
/// Numbers are kept as the tool gave them: whole ones stay whole on the wire.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// How far; should rise with each report.
    pub progress: Number,
    /// The whole, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<Number>,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl Progress {
    /// `done` of an unknown whole.
    pub fn new(done: impl Into<Number>) -> Self {
        Self {
            progress: done.into(),
            total: None,
            message: None,
        }
    }

    /// Of a known whole.
    #[must_use]
    pub fn of(mut self, total: impl Into<Number>) -> Self {
        self.total = Some(total.into());
        self
    }

    /// With a word for people.
    #[must_use]
    pub fn with_message(mut self, message: impl Into<String>) -> Self {
        self.message = Some(message.into());
        self
    }
}

/// The notification on the stream of the call that gave the token. Never for
/// tasks (SEP-2663 §Task Status Notifications).
#[must_use]
pub fn write_notification(token: &ProgressToken, progress: &Progress) -> Bytes {
    let params = writer::Object::with_capacity(128)
        .raw("progressToken", token.as_json())
        .value("progress", &progress.progress)
        .optional("total", progress.total.as_ref())
        .optional("message", progress.message.as_ref())
        .finish();
    jsonrpc::notification("notifications/progress", &params)
}
