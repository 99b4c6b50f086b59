//! What a tool says of a step: its name, and by which rules it may be repeated or undone.

use serde_json::Value;
use telemetry::TraceContext;

/// A named, externally visible act. Its key is unique in the task.
#[derive(Clone, Debug)]
pub struct Step<'a> {
    pub(crate) key: &'a str,
    pub(crate) idempotent: bool,
    pub(crate) undo: Option<Undo>,
}

impl<'a> Step<'a> {
    /// An act that must not be repeated when its end is unknown.
    #[must_use]
    pub fn new(key: &'a str) -> Self {
        Self {
            key,
            idempotent: false,
            undo: None,
        }
    }

    /// An act that may be repeated with the same [`StepInfo::idempotency_key`].
    #[must_use]
    pub fn idempotent(mut self) -> Self {
        self.idempotent = true;
        self
    }

    /// What undoes the act: when the task ends without a result after the step has finished,
    /// [`crate::Tool::undo`] gets it, before the end is shown.
    #[must_use]
    pub fn undo(mut self, undo: Undo) -> Self {
        self.undo = Some(undo);
        self
    }
}

/// How to undo a step: JSON that the tool itself understands. It is journaled before the step
/// acts, so what only the act brings forth is in [`crate::Undoing::output`] instead.
#[derive(Clone, Debug)]
pub struct Undo {
    pub(crate) how: Value,
    pub(crate) idempotent: bool,
}

impl Undo {
    /// An undo that must not be repeated when its end is unknown.
    pub fn new(how: impl Into<Value>) -> Self {
        Self {
            how: how.into(),
            idempotent: false,
        }
    }

    /// An undo that may be repeated with the same [`crate::Undoing::idempotency_key`].
    #[must_use]
    pub fn idempotent(mut self) -> Self {
        self.idempotent = true;
        self
    }
}

/// What an act is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepInfo {
    /// `task_id:step`, the same at every attempt: hand it to the outside.
    pub idempotency_key: String,
    /// The trace that the act belongs to, to send along to what it calls
    /// ([`crate::Context::trace_context`]).
    pub trace_context: TraceContext,
}
