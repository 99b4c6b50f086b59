//! What a tool is told of a step that it is to undo.

use std::time::Duration;

use bytes::Bytes;
use protocol::TaskId;
use serde::de::DeserializeOwned;
use store::Principal;
use tokio_util::sync::CancellationToken;

use crate::context::pause;
use crate::error::ToolError;
use crate::process::Commands;
use crate::tool::Arguments;

/// A finished step that is to be undone.
pub struct Undoing {
    pub(crate) task_id: TaskId,
    pub(crate) principal: Principal,
    pub(crate) arguments: Arguments,
    pub(crate) step: String,
    pub(crate) how: Bytes,
    pub(crate) output: Bytes,
    /// Which try this is, from 1.
    pub(crate) tries: i32,
    pub(crate) stop: CancellationToken,
    pub(crate) commands: Commands,
}

impl Undoing {
    /// The task.
    #[must_use]
    pub fn task_id(&self) -> TaskId {
        self.task_id
    }

    /// For whom the work was done.
    #[must_use]
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// The arguments of the call.
    #[must_use]
    pub fn arguments(&self) -> &Arguments {
        &self.arguments
    }

    /// Key of the step.
    #[must_use]
    pub fn step(&self) -> &str {
        &self.step
    }

    /// Which try this is, from 1.
    #[must_use]
    pub fn tries(&self) -> i32 {
        self.tries
    }

    /// What the step declared ([`crate::Undo::new`]).
    ///
    /// # Errors
    /// When it does not fit `T`: the undo is given up.
    pub fn how<T: DeserializeOwned>(&self) -> Result<T, ToolError> {
        serde_json::from_slice(&self.how).map_err(|error| {
            ToolError::refused(format!("what undoes step \"{}\": {error}", self.step))
        })
    }

    /// What the step put out.
    ///
    /// # Errors
    /// When it does not fit `T`, or was too large to be kept: the undo is given up.
    pub fn output<T: DeserializeOwned>(&self) -> Result<T, ToolError> {
        serde_json::from_slice(&self.output).map_err(|error| {
            ToolError::refused(format!("output of step \"{}\": {error}", self.step))
        })
    }

    /// `task_id:step:undo`, the same at every try: hand it to the outside.
    #[must_use]
    pub fn idempotency_key(&self) -> String {
        format!("{}:{}:undo", self.task_id, self.step)
    }

    /// Cancelled when the undo shall stop: at a drain, at the policy's `undo_limit`, or when
    /// another worker owns the task. After a grace period its future is dropped.
    #[must_use]
    pub fn cancelled(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// What runs external commands, and ends them with this try.
    #[must_use]
    pub fn commands(&self) -> Commands {
        self.commands.clone()
    }

    /// Waits, but not beyond the wish that the undo stop.
    ///
    /// # Errors
    /// That it shall stop, and nothing was undone: pass it on with `?`.
    pub async fn pause(&self, duration: Duration) -> Result<(), ToolError> {
        pause(&self.stop, duration).await
    }
}
