//! How a tool fails, and why a worker could not run.

use protocol::code::{self, reason};
use protocol::{ErrorObject, InvalidParams};
use serde_json::{Value, json};

/// Why a call of a tool ended without a result.
///
/// A tool that failed in a way the model should see returns
/// `Ok(CallToolResult::error(…))`: the task is then `completed` (SEP-2663 §Task Status). This
/// type is for JSON-RPC errors, for tries that may be repeated, and for what the context says
/// when the work must end now. Let the latter pass with `?`: once the context has said it, it
/// says it again to every further question, and whatever the tool returns after it is ignored.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct ToolError(#[from] pub(crate) Fault);

#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Fault {
    /// The task fails with this JSON-RPC error.
    #[error("{}", .0.message)]
    Failed(ErrorObject),
    /// The try failed; another one may succeed.
    #[error("{0}")]
    Retryable(String),
    /// An act's end is unknown.
    #[error("{0}")]
    Unknown(String),
    /// The attempt is over.
    #[error("{0}")]
    Halt(#[from] Halt),
}

/// What ends an attempt from outside the tool.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Halt {
    /// The task waits for answers.
    #[error("the task waits for input")]
    Parked,
    /// A stop is requested, or the task expired.
    #[error("the task is told to stop")]
    Stopped,
    /// Another attempt owns the task, or nobody.
    #[error("the task belongs to another attempt")]
    Lost,
    /// A step began before, and its end is unknown.
    #[error("step \"{0}\" started and its end is unknown: it may have taken effect")]
    InDoubt(String),
}

impl ToolError {
    /// The task fails with this JSON-RPC error: `code` outside −32768…−32000 unless it is one of
    /// [`protocol::code`].
    pub fn failed(code: i64, message: impl Into<String>) -> Self {
        Self(Fault::Failed(ErrorObject::new(code, message)))
    }

    /// As [`failed`](Self::failed), with `data` for programs.
    pub fn failed_with(code: i64, message: impl Into<String>, data: Value) -> Self {
        Self(Fault::Failed(ErrorObject::new(code, message).with_data(data)))
    }

    /// The task fails with `-32603`: the tool itself is at fault.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::failed(code::INTERNAL_ERROR, message)
    }

    /// The try failed and may be repeated, by the tool's policy: after a pause that doubles, up
    /// to the policy's number of tries. Then the task fails with reason `attempts_exhausted`.
    pub fn retryable(message: impl Into<String>) -> Self {
        Self(Fault::Retryable(message.into()))
    }

    /// From inside a step: whether it took effect is not known (a lost reply, say). The step
    /// stays open: an idempotent one is tried again, any other fails the task with reason
    /// `step_in_doubt`. Any other error of a step means that it did not take effect.
    pub fn outcome_unknown(message: impl Into<String>) -> Self {
        Self(Fault::Unknown(message.into()))
    }

    /// The work ends because it was told to: what a tool returns that saw
    /// [`Context::cancelled`](crate::Context::cancelled).
    #[must_use]
    pub fn stopped() -> Self {
        Self(Fault::Halt(Halt::Stopped))
    }

    /// Whether the context said that the attempt is over: let it pass.
    #[must_use]
    pub fn is_control_flow(&self) -> bool {
        matches!(self.0, Fault::Halt(_))
    }

    /// The JSON-RPC error that a client would see, if it is one.
    #[must_use]
    pub fn as_error(&self) -> Option<&ErrorObject> {
        match &self.0 {
            Fault::Failed(error) => Some(error),
            Fault::Retryable(_) | Fault::Unknown(_) | Fault::Halt(_) => None,
        }
    }

    /// Whether another try may succeed.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self.0, Fault::Retryable(_))
    }

    pub(crate) fn reasoned(message: impl Into<String>, reason: &str) -> Self {
        Self(Fault::Failed(ErrorObject::internal(message, reason)))
    }
}

impl From<Halt> for ToolError {
    fn from(halt: Halt) -> Self {
        Self(Fault::Halt(halt))
    }
}

impl From<ErrorObject> for ToolError {
    fn from(error: ErrorObject) -> Self {
        Self(Fault::Failed(error))
    }
}

impl From<InvalidParams> for ToolError {
    fn from(error: InvalidParams) -> Self {
        Self::failed(code::INVALID_PARAMS, error.to_string())
    }
}

/// The error of a task whose step is in doubt; `data.step` names it.
pub(crate) fn step_in_doubt(step: &str) -> ErrorObject {
    let message = Halt::InDoubt(step.to_owned()).to_string();
    ErrorObject::new(code::INTERNAL_ERROR, message)
        .with_data(json!({ "reason": reason::STEP_IN_DOUBT, "step": step }))
}

/// The error of a task whose tries are used up.
pub(crate) fn attempts_exhausted(tries: i32, last: &str) -> ErrorObject {
    let message = format!("gave up after {tries} tries: {last}");
    ErrorObject::new(code::INTERNAL_ERROR, message).with_data(json!({
        "reason": reason::ATTEMPTS_EXHAUSTED, "tries": tries, "lastError": last,
    }))
}

/// Why a worker ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The threads for tools could not be made.
    #[error("the threads that tools run on could not be made")]
    Threads(#[source] std::io::Error),
    /// A tool neither waits nor returns, and so can't be stopped from inside the process.
    #[error("tool {tool} of task {task} does not stop: the process must end to stop it")]
    Stuck {
        /// The tool.
        tool: String,
        /// Its task.
        task: protocol::TaskId,
    },
    /// A loop of the worker ended by itself: a fault of this program.
    #[error("the worker's {0} loop ended by itself")]
    Ended(&'static str),
}

/// Why a tool can't be served.
#[derive(Debug, thiserror::Error)]
pub enum InvalidTool {
    /// Its definition would be refused by clients.
    #[error("{0}")]
    Definition(String),
    /// Its policy contradicts itself.
    #[error(transparent)]
    Policy(#[from] store::PolicyError),
    /// Its version is below 1, or it resumes itself or a version that cannot exist.
    #[error("tool {tool}: {problem}")]
    Version {
        /// The tool.
        tool: String,
        /// What is wrong.
        problem: String,
    },
    /// The same name and version are served already.
    #[error("tool {tool} version {version} is served already")]
    Twice {
        /// The tool.
        tool: String,
        /// Its version.
        version: i32,
    },
}
