//! How a tool ends other than with a result.

use protocol::ErrorObject;
use protocol::code::{self, reason};
use serde_json::{Value, json};

/// The end of an attempt without a result.
///
/// Tools make [`ToolError::failed`] and [`ToolError::retryable`]; the rest comes out of the
/// context's methods and is passed on with `?`.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ToolError(pub(crate) Ending);

#[derive(Debug, thiserror::Error)]
pub(crate) enum Ending {
    /// The task fails with this error of the tool's, unless its code is one to be tried again.
    #[error("{}", .0.message)]
    Failed(ErrorObject),
    /// The task fails with this error of ours: another try would come to the same.
    #[error("{}", .0.message)]
    Refused(ErrorObject),
    /// Another try may help.
    #[error("{0}")]
    Retry(String),
    /// An act may or may not have taken effect.
    #[error("{0}")]
    Unknown(String),
    /// The job ended to wait for answers.
    #[error("waiting for answers")]
    Parked,
    /// A stop is requested, or this attempt lost the task.
    #[error("stopped")]
    Stopped,
}

impl ToolError {
    /// The task fails with a JSON-RPC error. Codes from -32768 to -32000 are reserved by
    /// JSON-RPC; use `-32603` or a code of your own outside of them. Codes among the policy's
    /// `retry_codes` are tried again.
    #[must_use]
    pub fn failed(code: i64, message: impl Into<String>) -> Self {
        Self(Ending::Failed(ErrorObject::new(code, message)))
    }

    /// The same, with data for programs.
    #[must_use]
    pub fn failed_with(code: i64, message: impl Into<String>, data: Value) -> Self {
        Self(Ending::Failed(ErrorObject {
            code,
            message: message.into(),
            data: Some(data),
        }))
    }

    /// This try failed; another one, after the tool's backoff, may not.
    #[must_use]
    pub fn retryable(message: impl Into<String>) -> Self {
        Self(Ending::Retry(message.into()))
    }

    /// Inside a step: the act may or may not have taken effect (a time-out after sending, say).
    /// An idempotent step is tried again with the same key; any other leaves the task failed
    /// with reason `step_in_doubt`. Every other error says that the act did not happen.
    #[must_use]
    pub fn outcome_unknown(message: impl Into<String>) -> Self {
        Self(Ending::Unknown(message.into()))
    }

    /// A failure of ours: the tool asks for something that cannot be.
    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Self(Ending::Refused(ErrorObject::new(
            code::INTERNAL_ERROR,
            message,
        )))
    }

    /// The same with data for programs.
    pub(crate) fn refused_with(message: impl Into<String>, data: Value) -> Self {
        Self(Ending::Refused(ErrorObject {
            code: code::INTERNAL_ERROR,
            message: message.into(),
            data: Some(data),
        }))
    }

    /// The same with its reason.
    pub(crate) fn reason(reason: &str, message: impl Into<String>) -> Self {
        Self::refused_with(message, json!({ "reason": reason }))
    }

    pub(crate) fn in_doubt(step: &str) -> Self {
        Self::refused_with(
            format!("step \"{step}\" started and its end is unknown: it may have taken effect"),
            json!({ "reason": reason::STEP_IN_DOUBT, "step": step }),
        )
    }

    /// The same, with what is known of it.
    pub(crate) fn in_doubt_after(step: &str, message: &str) -> Self {
        Self::refused_with(
            format!(
                "step \"{step}\" started and its end is unknown: it may have taken effect ({message})"
            ),
            json!({ "reason": reason::STEP_IN_DOUBT, "step": step }),
        )
    }

    pub(crate) fn parked() -> Self {
        Self(Ending::Parked)
    }

    pub(crate) fn stopped() -> Self {
        Self(Ending::Stopped)
    }

    /// The JSON-RPC error the task fails with, if it does.
    #[must_use]
    pub fn as_failed(&self) -> Option<&ErrorObject> {
        match &self.0 {
            Ending::Failed(error) | Ending::Refused(error) => Some(error),
            Ending::Retry(_) | Ending::Unknown(_) | Ending::Parked | Ending::Stopped => None,
        }
    }

    /// Whether another try was asked for.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self.0, Ending::Retry(_))
    }

    /// Whether the job ended to wait for answers.
    #[must_use]
    pub fn is_parked(&self) -> bool {
        matches!(self.0, Ending::Parked)
    }

    /// Whether the job was told to stop.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        matches!(self.0, Ending::Stopped)
    }

    /// Whether nobody knows what the act has come to.
    #[must_use]
    pub fn is_outcome_unknown(&self) -> bool {
        matches!(self.0, Ending::Unknown(_))
    }
}
