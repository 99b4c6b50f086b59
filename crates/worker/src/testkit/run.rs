//! What came of a run, as the client and the world outside would see it.

use std::time::Duration;

use protocol::ErrorObject;
use protocol::code::{self, reason};
use protocol::progress::Progress;
use protocol::tools::CallToolResult;
use serde_json::{Value, json};

use super::World;
use crate::error::ToolError;

/// What came of it.
#[derive(Debug)]
pub struct Run {
    pub(super) outcome: Result<CallToolResult, ToolError>,
    pub(super) world: World,
    pub(super) elapsed: Duration,
}

/// A try that was not the last one, or a worker that was lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Try {
    /// Why another one was needed.
    pub message: String,
    /// How long the job waited before it.
    pub pause: Duration,
}

impl Run {
    /// The result, if there is one.
    ///
    /// # Errors
    /// How it ended instead.
    pub fn result(&self) -> Result<&CallToolResult, &ToolError> {
        self.outcome.as_ref()
    }

    /// The result as the client reads it; also of what a provider was asked.
    #[must_use]
    pub fn json(&self) -> Option<Value> {
        let result = self.outcome.as_ref().ok()?;
        serde_json::from_slice(&result.to_json()).ok()
    }

    /// The task's status, as a client would read it: `completed`, `failed`, `cancelled`,
    /// `input_required`, or `working` where [`super::Kit::run`] has stopped before another try.
    #[must_use]
    pub fn status(&self) -> &'static str {
        match &self.outcome {
            Ok(_) => "completed",
            Err(error) if error.is_parked() => "input_required",
            Err(error) if error.is_stopped() && self.world.not_undone.is_empty() => "cancelled",
            Err(error) if error.is_retryable() => "working",
            Err(_) => "failed",
        }
    }

    /// The JSON-RPC error of a task that is `failed`.
    #[must_use]
    pub fn error(&self) -> Option<ErrorObject> {
        if self.status() != "failed" {
            return None;
        }
        let error = self.outcome.as_ref().err()?;
        let undo_failed = || ErrorObject {
            code: code::INTERNAL_ERROR,
            message: "cancelled, and not everything could be undone".to_owned(),
            data: Some(json!({ "reason": reason::UNDO_FAILED })),
        };
        let plain = || ErrorObject::new(code::INTERNAL_ERROR, error.to_string());
        Some(match error.as_failed() {
            Some(error) => error.clone(),
            None if error.is_stopped() => undo_failed(),
            None => plain(),
        })
    }

    /// `data.reason` of that error, where the system has made it: `step_in_doubt`,
    /// `attempts_exhausted` and the like.
    #[must_use]
    pub fn reason(&self) -> Option<String> {
        let data = self.error()?.data?;
        Some(data.get("reason")?.as_str()?.to_owned())
    }

    /// Keys of the steps that acted, in order; replayed ones did not.
    #[must_use]
    pub fn acts(&self) -> Vec<&str> {
        self.world.acts.iter().map(String::as_str).collect()
    }

    /// The questions that were asked: key and request.
    #[must_use]
    pub fn asked(&self) -> &[(String, Value)] {
        &self.world.asked
    }

    /// Keys of the steps that were undone, in order.
    #[must_use]
    pub fn undone(&self) -> Vec<&str> {
        self.world.undone.iter().map(String::as_str).collect()
    }

    /// Steps that could not be undone: key and why.
    #[must_use]
    pub fn not_undone(&self) -> &[(String, String)] {
        &self.world.not_undone
    }

    /// The progress that was reported.
    #[must_use]
    pub fn progress(&self) -> &[Progress] {
        &self.world.progress
    }

    /// The tries before the last one, lost workers among them: why, and the backoff after each.
    #[must_use]
    pub fn tries(&self) -> &[Try] {
        &self.world.tries
    }

    /// How much time has passed, by Tokio's clock: all tries, pauses and waiting.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.elapsed
    }

    /// The journal at the end, in its order: keys of finished steps and answered questions, with
    /// outputs and responses.
    #[must_use]
    pub fn journal(&self) -> Vec<(String, Value)> {
        let mut entries: Vec<_> = self.world.journal.iter().filter(|e| e.done).collect();
        entries.sort_by_key(|entry| entry.seq);
        let value = |bytes: &bytes::Bytes| serde_json::from_slice(bytes).unwrap_or_default();
        entries
            .into_iter()
            .map(|e| {
                (
                    e.key.clone(),
                    e.value.as_ref().map(value).unwrap_or_default(),
                )
            })
            .collect()
    }
}
