//! Refusals in the words of an older revision.
//!
//! They travel with HTTP 200 wherever the request was read: to a published client any other status
//! is the end of its connection (and 404 the end of a session that it never had). But for 401 and
//! 403, which are how clients learn to ask for another token.

use http::StatusCode;
use protocol::completion::Reference;
use protocol::{ErrorObject, code};
use serde_json::json;

use crate::error::{Error, Row};

/// Of older revisions only.
const RESOURCE_NOT_FOUND: i64 = -32002;

/// The error as an older revision is told of it.
pub(crate) fn told(error: Error) -> Error {
    match error {
        // Their status and challenge are part of the message.
        error @ (Error::Auth(_) | Error::Scope { .. } | Error::Legacy(_)) => error,
        error => Error::Legacy(Box::new(error)),
    }
}

/// The row of the table for an error that is told to an older revision.
pub(crate) fn row(error: &Error) -> Row {
    let row = error.row();
    let object = match error {
        // MCP 2025-11-25 §Tool-Level Negotiation.
        Error::TasksNotDeclared => ErrorObject::new(
            code::METHOD_NOT_FOUND,
            "this tool runs as a task only: repeat the call with `task` in its params (MCP 2025-11-25)",
        ),
        // MCP 2025-11-25 §Resources, Error Handling.
        Error::Unknown(Reference::Resource(uri)) => {
            ErrorObject::new(RESOURCE_NOT_FOUND, "Resource not found")
                .with_data(json!({ "uri": uri }))
        }
        // The code came later.
        Error::Capability(missing) => ErrorObject::invalid_params(
            "the tool needs capabilities of the client that this call does not declare: without a \
             session they are declared by each call that asks for a task, in \
             params._meta[\"io.modelcontextprotocol/clientCapabilities\"]",
        )
        .with_data(json!({ "requiredCapabilities": missing })),
        Error::CallLimit {
            limit,
            offers_tasks: true,
        } => ErrorObject::internal(
            format!(
                "the result was not there within {}, and the work is stopped; repeat the call \
                 with `task` in its params to get a handle of such work (MCP 2025-11-25)",
                humantime::format_duration(*limit)
            ),
            code::reason::CALL_LIMIT,
        ),
        _ => row.error.clone(),
    };
    Row {
        status: StatusCode::OK,
        error: object,
        ..row
    }
}
