//! **The** table: every way in which a request can be refused → HTTP status, JSON-RPC error,
//! metric label, log level.
//!
//! Errors about tasks and tools travel with HTTP 200, because a published client hides the code
//! of a 404, 429 or 503. The range −32768…−32000 is reserved, so refusals of HTTP itself carry
//! HTTP's own number as code.

use std::time::Duration;

use http::StatusCode;
use protocol::completion::Reference;
use protocol::headers::HeaderMismatch;
use protocol::idempotency::KeyError;
use protocol::input::MalformedAnswer;
use protocol::jsonrpc::{InvalidParams, ParseError};
use protocol::meta::MetaError;
use protocol::{ErrorObject, Timestamp, code};
use serde_json::{Map, Value, json};
use store::Lookup;

use crate::{auth, request_state};

/// Seconds after which it makes sense to try again when Postgres is away.
const RETRY_POSTGRES_SECONDS: u64 = 2;
/// Somebody must change the settings.
const RETRY_KEY_SECONDS: u64 = 30;
/// The same for a paused tool: people pause it, and they take their time.
const RETRY_PAUSED_SECONDS: u64 = 30;

/// Why a request is refused.
#[derive(Debug)]
pub(crate) enum Error {
    /// Another path than the endpoint's.
    NoSuchPath,
    /// Not `POST`.
    MethodNotAllowed,
    /// The body is larger than it may be.
    BodyTooLarge { bytes_max: usize },
    /// `Origin` is not allowed.
    Origin,
    /// `Host` is not ours.
    Host,
    /// No usable token.
    Auth(auth::Refused),
    /// The token lacks scopes that the tool needs.
    Scope { needed: Vec<String> },
    /// Not `application/json`.
    ContentType,
    /// The body did not arrive in time.
    BodyTimeout,
    /// The body broke off.
    BodyBroken,
    /// Not JSON, or no request.
    Parse(ParseError),
    /// The version is not served.
    Version(String),
    /// A header and the body disagree.
    Header(HeaderMismatch),
    /// The method is not served.
    Method(String),
    /// `_meta` lacks what it must hold.
    Meta(MetaError),
    /// `tasks/*`, or a tool only offered as a task, without the extension.
    TasksNotDeclared,
    /// The tool needs capabilities that the client lacks.
    Capability(Map<String, Value>),
    /// A listen whose `Accept` lacks `text/event-stream`.
    NotAcceptable,
    /// The params are malformed.
    Params(InvalidParams),
    /// No such tool for this caller.
    UnknownTool(String),
    /// No such resource or prompt for this caller.
    Unknown(Reference),
    /// An operator paused the tool.
    ToolPaused(String),
    /// The arguments are larger than the tool takes.
    ArgumentsTooLarge { bytes: usize, bytes_max: usize },
    /// The idempotency key cannot be used.
    Key(KeyError),
    /// The idempotency key belongs to a call with other arguments.
    KeyReused,
    /// The `requestState` is not accepted.
    RequestState(request_state::Refused),
    /// The question that the `requestState` belongs to is over.
    RequestStateExpired,
    /// The tool asks before the task exists, and no key is configured to seal the state.
    NoRequestStateKey,
    /// An answer does not fit its question.
    Answer(MalformedAnswer),
    /// No such task for this caller.
    TaskNotFound,
    /// The caller's task, expired.
    TaskExpired {
        final_status: protocol::TaskStatus,
        expired_at: Timestamp,
    },
    /// The held call's task was stopped.
    Cancelled,
    /// The call can't become a task, and was held for its result as long as it may.
    CallLimit {
        limit: Duration,
        /// Its client could have declared the extension.
        offers_tasks: bool,
    },
    /// A call that asks for a task, of a tool that never is one (MCP 2025-11-25).
    NeverTask(String),
    /// A task that is to be cancelled is over (MCP 2025-11-25).
    AlreadyOver(protocol::TaskStatus),
    /// The held call's task asks, and its client can't be asked (MCP 2025-11-25).
    NobodyToAsk,
    /// The process ends before a task that is waited for does (MCP 2025-11-25).
    WaitEnds,
    /// One of the others, as a client of an older revision is told of it.
    Legacy(Box<Error>),
    /// More than this process takes on.
    Overloaded { what: &'static str },
    /// More than this principal may take.
    Limited {
        what: &'static str,
        retry_after: Duration,
    },
    /// The process ends before the answer is there.
    Leaving,
    /// Postgres could not be asked.
    Store(store::Error),
    /// A fault of this program.
    Bug(String),
}

/// How loud an error is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loud {
    /// The client's doing, or an overload or outage: those are told once by metrics and
    /// readiness, not once a request.
    Debug,
    /// Ours, and somebody must look.
    Error,
}

/// One row of the table.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) status: StatusCode,
    pub(crate) error: ErrorObject,
    /// Metric label `outcome`.
    pub(crate) label: &'static str,
    pub(crate) loud: Loud,
    /// `Retry-After`, in seconds.
    pub(crate) retry_after: Option<u64>,
}

impl Row {
    fn new(status: StatusCode, label: &'static str, error: ErrorObject) -> Self {
        Self {
            status,
            error,
            label,
            loud: Loud::Debug,
            retry_after: None,
        }
    }

    fn loud(self, loud: Loud) -> Self {
        Self { loud, ..self }
    }

    fn retry(self, seconds: u64) -> Self {
        Self {
            retry_after: Some(seconds.max(1)),
            ..self
        }
    }
}

/// An error of HTTP itself, with HTTP's number as code.
fn http(status: StatusCode, label: &'static str, message: impl Into<String>) -> Row {
    let error = ErrorObject::new(i64::from(status.as_u16()), message);
    Row::new(status, label, error)
}

fn ok(label: &'static str, error: ErrorObject) -> Row {
    Row::new(StatusCode::OK, label, error)
}

fn bad(label: &'static str, error: ErrorObject) -> Row {
    Row::new(StatusCode::BAD_REQUEST, label, error)
}

fn call_limit_text(limit: Duration, offers_tasks: bool) -> String {
    let limit = humantime::format_duration(limit);
    let advice = if offers_tasks {
        "; declare the extension io.modelcontextprotocol/tasks to get a handle of such work"
    } else {
        ""
    };
    format!("the result was not there within {limit}, and the work is stopped{advice}")
}

impl Error {
    /// The row for this error.
    #[expect(
        clippy::too_many_lines,
        reason = "a table is read in one piece, and the match has no `_`"
    )]
    pub(crate) fn row(&self) -> Row {
        match self {
            Self::NoSuchPath => http(
                StatusCode::NOT_FOUND,
                "no_such_path",
                "nothing is served at this path",
            ),
            Self::MethodNotAllowed => http(
                StatusCode::METHOD_NOT_ALLOWED,
                "method_not_allowed",
                "only POST is served: one JSON-RPC message a body",
            ),
            Self::BodyTooLarge { bytes_max } => http(
                StatusCode::PAYLOAD_TOO_LARGE,
                "body_too_large",
                format!("the body is larger than {bytes_max} bytes"),
            ),
            Self::Origin => http(
                StatusCode::FORBIDDEN,
                "origin",
                "the Origin is not allowed to call this server",
            ),
            Self::Host => http(
                StatusCode::FORBIDDEN,
                "host",
                "the Host is not an address of this server",
            ),
            Self::Auth(auth::Refused::Unauthorized { message, .. }) => {
                http(StatusCode::UNAUTHORIZED, "unauthorized", *message)
            }
            Self::Auth(auth::Refused::Malformed { message }) => {
                http(StatusCode::BAD_REQUEST, "credentials", *message)
            }
            Self::Auth(auth::Refused::Unavailable { message }) => Row::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "auth_unavailable",
                ErrorObject::internal(*message, "unavailable"),
            )
            .retry(auth::RETRY_ISSUER_SECONDS),
            Self::Scope { needed } => http(
                StatusCode::FORBIDDEN,
                "insufficient_scope",
                format!("the token lacks a scope; needed: {}", needed.join(" ")),
            ),
            Self::ContentType => http(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "content_type",
                "Content-Type must be application/json",
            ),
            Self::BodyTimeout => http(
                StatusCode::REQUEST_TIMEOUT,
                "body_timeout",
                "the body did not arrive in time",
            ),
            Self::BodyBroken => http(
                StatusCode::BAD_REQUEST,
                "body_broken",
                "the body broke off before its end",
            ),
            Self::Parse(error) => bad(
                if error.code == code::PARSE_ERROR {
                    "parse_error"
                } else {
                    "invalid_request"
                },
                error.into(),
            ),
            Self::Version(requested) => bad(
                "unsupported_version",
                protocol::meta::unsupported_version(requested),
            ),
            Self::Header(mismatch) => bad("header_mismatch", mismatch.into()),
            Self::Method(method) => Row::new(
                StatusCode::NOT_FOUND,
                "method_not_found",
                ErrorObject::method_not_found(method),
            ),
            Self::Meta(error) => bad("meta", error.into()),
            Self::TasksNotDeclared => bad(
                "missing_capability",
                protocol::meta::missing_tasks_extension(),
            ),
            Self::Capability(missing) => bad(
                "missing_capability",
                protocol::meta::missing_capability(missing.clone()),
            ),
            Self::NotAcceptable => http(
                StatusCode::NOT_ACCEPTABLE,
                "not_acceptable",
                "subscriptions/listen is answered as text/event-stream: Accept must name it",
            ),
            Self::Params(error) => ok("invalid_params", error.clone().into()),
            Self::UnknownTool(name) => ok("unknown_tool", protocol::tools::unknown_tool(name)),
            Self::Unknown(reference) => ok(
                match reference {
                    Reference::Prompt(_) => "unknown_prompt",
                    Reference::Resource(_) => "unknown_resource",
                },
                reference.unknown(),
            ),
            Self::ToolPaused(name) => ok(
                "tool_paused",
                ErrorObject::new(
                    code::INTERNAL_ERROR,
                    format!("the tool {name} is paused and takes no new calls; try again later"),
                )
                .with_data(json!({
                    "reason": code::reason::TOOL_PAUSED,
                    "retryAfterSeconds": RETRY_PAUSED_SECONDS,
                })),
            )
            .retry(RETRY_PAUSED_SECONDS),
            Self::ArgumentsTooLarge { bytes, bytes_max } => ok(
                "invalid_params",
                ErrorObject::invalid_params(format!(
                    "the arguments are {bytes} bytes long; this tool takes at most {bytes_max}"
                )),
            ),
            Self::Key(error) => ok("idempotency_key", error.into()),
            Self::KeyReused => ok(
                "idempotency_conflict",
                ErrorObject::invalid_params(
                    "the idempotency key was used before with other arguments: \
                     repeat those, or send another key",
                )
                .with_data(json!({ "reason": "idempotency_conflict" })),
            ),
            Self::RequestState(request_state::Refused::Invalid) => ok(
                "request_state",
                ErrorObject::invalid_params(
                    "the requestState is not valid: repeat the call without it",
                ),
            ),
            Self::RequestState(request_state::Refused::OtherCall) => ok(
                "request_state",
                ErrorObject::invalid_params(
                    "the requestState belongs to a call with another tool or other arguments",
                ),
            ),
            Self::RequestStateExpired => ok(
                "request_state",
                ErrorObject::invalid_params(
                    "the requestState has expired: repeat the call without it",
                ),
            ),
            Self::NoRequestStateKey => ok(
                "no_request_state_key",
                ErrorObject::new(
                    code::INTERNAL_ERROR,
                    "the tool asks a question before its task exists, and this server has no \
                     key for that: the operator must set gateway.request_state_keys",
                ),
            )
            .loud(Loud::Error),
            Self::Answer(error) => ok("malformed_answer", error.into()),
            Self::TaskNotFound => ok("task_not_found", protocol::tasks::not_found()),
            Self::TaskExpired {
                final_status,
                expired_at,
            } => ok(
                "task_expired",
                protocol::tasks::expired(*final_status, *expired_at),
            ),
            Self::Cancelled => ok(
                "cancelled",
                ErrorObject::internal("the call was cancelled", code::reason::CANCELLED),
            ),
            Self::CallLimit {
                limit,
                offers_tasks,
            } => ok(
                "call_limit",
                ErrorObject::internal(
                    call_limit_text(*limit, *offers_tasks),
                    code::reason::CALL_LIMIT,
                ),
            ),
            Self::NeverTask(name) => ok(
                "never_task",
                ErrorObject::new(
                    code::METHOD_NOT_FOUND,
                    format!("the tool {name} does not run as a task: call it without `task`"),
                ),
            ),
            Self::AlreadyOver(status) => ok(
                "already_over",
                ErrorObject::invalid_params(format!(
                    "Cannot cancel task: already in terminal status '{status}'"
                )),
            ),
            Self::NobodyToAsk => ok(
                "nobody_to_ask",
                ErrorObject::internal(
                    "the call's work waits for an answer that its client cannot give",
                    "nobody_to_ask",
                ),
            ),
            Self::WaitEnds => Row::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "leaving",
                ErrorObject::internal(
                    "this server ends, and the task goes on: send tasks/result again",
                    "unavailable",
                ),
            )
            .retry(1),
            Self::Legacy(error) => crate::legacy::row(error),
            Self::Overloaded { what } => Row::new(
                StatusCode::TOO_MANY_REQUESTS,
                "overloaded",
                ErrorObject::rate_limited(
                    format!("this server holds as many {what} as it may; try again later"),
                    1,
                ),
            )
            .retry(1),
            Self::Limited { what, retry_after } => {
                let seconds = retry_after.as_secs_f64().ceil();
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "it is between a second and an hour"
                )]
                let seconds = seconds.clamp(1.0, 3600.0) as u64;
                Row::new(
                    StatusCode::TOO_MANY_REQUESTS,
                    "limited",
                    ErrorObject::rate_limited(
                        format!("you have as many {what} as you may; try again later"),
                        seconds,
                    ),
                )
                .retry(seconds)
            }
            Self::Leaving => Row::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "leaving",
                ErrorObject::internal(
                    "this server ends before the call is answered: send it again; work without \
                     an idempotency key is stopped",
                    "unavailable",
                ),
            )
            .retry(1),
            Self::Store(store::Error::Unavailable(_) | store::Error::Timeout(_)) => Row::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "unavailable",
                ErrorObject::internal("the database is not available", "unavailable"),
            )
            .retry(RETRY_POSTGRES_SECONDS),
            Self::Store(store::Error::KeyMissing { .. }) => Row::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "key_missing",
                ErrorObject::internal(
                    "what is stored of this task is sealed, and the server lacks the key that opens it: \
                     its operator must add that key",
                    "key_missing",
                ),
            )
            .retry(RETRY_KEY_SECONDS),
            Self::Store(
                store::Error::Corrupt { .. } | store::Error::Schema(_) | store::Error::Bug(_),
            )
            | Self::Bug(_) => Row::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "internal",
                ErrorObject::internal("the server failed", "internal"),
            )
            .loud(Loud::Error),
        }
    }

    /// The task is gone; `None` = the caller has no such task.
    pub(crate) fn gone(lookup: Option<Lookup>) -> Self {
        match lookup {
            Some(Lookup::Expired {
                final_status,
                expired_at,
            }) => Self::TaskExpired {
                final_status,
                expired_at: expired_at.into(),
            },
            Some(Lookup::Found(_) | Lookup::Unknown) | None => Self::TaskNotFound,
        }
    }

    /// Logs the error once, as loud as the table says: ours with its whole chain, a client's without
    /// what it is told, which repeats what it sent.
    pub(crate) fn log(&self, row: &Row) {
        let (outcome, error) = (row.label, self.chain());
        match row.loud {
            Loud::Debug => tracing::debug!(outcome, error, "request refused"),
            Loud::Error => tracing::error!(outcome, error, "request failed"),
        }
    }

    fn chain(&self) -> Option<String> {
        match self {
            Self::Store(error) => Some(chain(error)),
            Self::Bug(what) => Some(what.clone()),
            _ => None,
        }
    }
}

/// An error with all its causes.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

macro_rules! from {
    ($($type:ty => $variant:ident),+ $(,)?) => {$(
        impl From<$type> for Error {
            fn from(error: $type) -> Self {
                Self::$variant(error)
            }
        }
    )+};
}

from! {
    ParseError => Parse,
    HeaderMismatch => Header,
    MetaError => Meta,
    InvalidParams => Params,
    KeyError => Key,
    request_state::Refused => RequestState,
    auth::Refused => Auth,
    store::Error => Store,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_codes_are_the_specifications_only() {
        let ours = [
            Error::BodyTooLarge { bytes_max: 1 },
            Error::Overloaded { what: "calls" },
            Error::Scope { needed: Vec::new() },
            Error::NotAcceptable,
        ];
        for error in ours {
            let row = error.row();
            assert_eq!(row.error.code, i64::from(row.status.as_u16()), "{error:?}");
        }
    }

    #[test]
    fn unknown_and_foreign_are_the_same_bytes() {
        let unknown = Error::gone(None).row().error.to_json();
        assert_eq!(
            unknown,
            Error::gone(Some(Lookup::Unknown)).row().error.to_json()
        );
    }

    #[test]
    fn overload_and_outage_say_when_to_come_back() {
        let row = Error::Overloaded { what: "calls" }.row();
        assert_eq!((row.status.as_u16(), row.retry_after), (429, Some(1)));
        assert_eq!(row.error.data.unwrap()["retryAfterSeconds"], 1);
        let row = Error::Store(store::Error::Unavailable("away".into())).row();
        assert_eq!((row.status.as_u16(), row.retry_after), (503, Some(2)));
        assert_eq!(row.error.code, -32603);
    }
}
