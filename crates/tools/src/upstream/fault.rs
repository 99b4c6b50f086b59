//! What went wrong between us and an upstream server, and what is known of the call then.

use protocol::{ErrorObject, code};
use worker::ToolError;

/// Why there is no result.
#[derive(Debug)]
pub(super) enum Fault {
    /// The server did not get the request, or did not want it now: nothing happened.
    NotSent(String),
    /// The server refuses us, and would do so again: nothing happened.
    Refused(String),
    /// The server takes such a request for a mistake, whatever it is about: nothing happened.
    Misfit(String),
    /// The session is gone: nothing happened, and a new one helps.
    Expired,
    /// The request is gone and its end is unknown.
    Unknown(String),
    /// The server answered with something that is no answer. The call has ended somehow.
    Garbage(String),
    /// The server's own error: the call has ended.
    Rpc(ErrorObject),
}

impl Fault {
    /// In words.
    pub(super) fn text(&self) -> String {
        match self {
            Self::NotSent(text)
            | Self::Refused(text)
            | Self::Misfit(text)
            | Self::Unknown(text) => text.clone(),
            Self::Garbage(text) => format!("answered with garbage: {text}"),
            Self::Expired => "has ended our session".to_owned(),
            Self::Rpc(error) => format!("answered with error {}: {}", error.code, error.message),
        }
    }

    /// The end of a step in which a tool was called; `repeatable` if garbage leaves no doubt that
    /// matters.
    pub(super) fn into_tool_error(self, upstream: &str, repeatable: bool) -> ToolError {
        let text = format!("upstream \"{upstream}\" {}", self.text());
        match self {
            Self::NotSent(_) | Self::Expired => ToolError::retryable(text),
            Self::Refused(_) | Self::Misfit(_) => ToolError::failed(code::INTERNAL_ERROR, text),
            Self::Garbage(_) if repeatable => ToolError::failed(code::INTERNAL_ERROR, text),
            Self::Unknown(_) | Self::Garbage(_) => ToolError::outcome_unknown(text),
            // As if it had been asked directly.
            Self::Rpc(error) => match error.data {
                Some(data) => ToolError::failed_with(error.code, error.message, data),
                None => ToolError::failed(error.code, error.message),
            },
        }
    }
}
