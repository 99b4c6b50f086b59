//! Which methods older revisions have here, and in which shape each is answered.

use protocol::legacy::{self, WITH_TASKS};
use serde_json::value::RawValue;

use super::Shape;
use crate::error::Error;
use crate::method::Method;

/// A method that is served to an older revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Served {
    /// As it is today.
    Today(Method),
    Initialize,
    Ping,
    TasksCancel,
    TasksList,
    TasksResult,
}

impl Served {
    /// The method of this name in this revision.
    pub(super) fn parse(name: &str, version: &str) -> Option<Self> {
        let tasks = version == WITH_TASKS;
        Some(match name {
            "initialize" => Self::Initialize,
            "ping" => Self::Ping,
            "tasks/cancel" if tasks => Self::TasksCancel,
            "tasks/list" if tasks => Self::TasksList,
            "tasks/result" if tasks => Self::TasksResult,
            _ => match Method::parse(name)? {
                // Those came later.
                Method::Discover | Method::TasksUpdate | Method::TasksCancel | Method::Listen => {
                    return None;
                }
                Method::TasksGet if !tasks => return None,
                today => Self::Today(today),
            },
        })
    }

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Today(method) => method.as_str(),
            Self::Initialize => "initialize",
            Self::Ping => "ping",
            Self::TasksCancel => "tasks/cancel",
            Self::TasksList => "tasks/list",
            Self::TasksResult => "tasks/result",
        }
    }

    /// The method of today whose scopes it needs; that checks its own.
    pub(super) fn needs_scopes_of(self) -> Option<Method> {
        match self {
            Self::Today(_) | Self::Initialize | Self::Ping => None,
            Self::TasksCancel => Some(Method::TasksCancel),
            Self::TasksList | Self::TasksResult => Some(Method::TasksGet),
        }
    }

    /// How its answer looks.
    ///
    /// # Errors
    /// If the request for a task is malformed.
    pub(super) fn shape(self, params: Option<&RawValue>, version: &str) -> Result<Shape, Error> {
        Ok(match self {
            // A revision without tasks does not know the member.
            Self::Today(Method::ToolsCall)
                if version == WITH_TASKS && legacy::wants_task(params)? =>
            {
                Shape::Handle
            }
            Self::Today(Method::ToolsCall) => Shape::ToolResult,
            Self::Today(Method::ToolsList) => Shape::Tools,
            Self::Today(Method::TasksGet) | Self::TasksCancel => Shape::Task,
            Self::TasksResult => Shape::TaskResult,
            Self::TasksList | Self::Initialize | Self::Ping => Shape::Own,
            Self::Today(_) => Shape::Plain,
        })
    }
}

/// What stands for the answer of a client that answered with an error.
pub(super) fn dismissed() -> Box<RawValue> {
    RawValue::from_string(r#"{"action":"cancel"}"#.to_owned()).expect("JSON of ours")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_revision_has_more_than_it_had() {
        for name in [
            "server/discover",
            "subscriptions/listen",
            "tasks/update",
            "logging/setLevel",
            "resources/subscribe",
            "",
        ] {
            for version in legacy::VERSIONS {
                assert_eq!(Served::parse(name, version), None, "{name} in {version}");
            }
        }
        for name in ["tasks/get", "tasks/result", "tasks/cancel", "tasks/list"] {
            let parsed = Served::parse(name, WITH_TASKS).unwrap();
            assert_eq!(parsed.as_str(), name);
            assert_eq!(Served::parse(name, "2025-06-18"), None, "{name}");
        }
        for name in ["initialize", "ping", "tools/list", "tools/call"] {
            for version in legacy::VERSIONS {
                assert_eq!(Served::parse(name, version).unwrap().as_str(), name);
            }
        }
    }
}
