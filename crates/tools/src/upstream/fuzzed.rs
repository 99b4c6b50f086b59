//! What upstream servers send, decoded, for fuzzers.

use super::message::{self, Message};
use super::sse;

/// What a stream of these pieces says: the data of its events, the last id, and why reading ended
/// early.
pub fn events<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
    bytes_max: usize,
) -> (Vec<String>, Option<String>, Result<(), String>) {
    sse::events(pieces, bytes_max)
}

/// A message of a server, written again as we would write it.
///
/// # Errors
/// With what is wrong with it.
pub fn message(text: &[u8]) -> Result<String, String> {
    Ok(match Message::read(text)? {
        Message::Response { id, result } => {
            let id = if id.is_empty() { "null" } else { &id };
            let id = serde_json::value::RawValue::from_string(id.to_owned());
            let id = id.map_err(|error| format!("the id is no JSON: {error}"))?;
            message::answer(&id, &result)
        }
        Message::Request(request) => {
            let params = request.params.as_deref().map_or("null", |raw| raw.get());
            message::object([
                ("id", request.id.get()),
                ("method", &message::string(&request.method)),
                ("params", params),
            ])
        }
        Message::Notification { method, params } => {
            let params = params.as_deref().map_or("null", |raw| raw.get());
            message::outgoing(None, &method, params)
        }
    })
}
