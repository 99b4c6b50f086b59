//! JSON-RPC as an upstream server sends it: read one level deep, payloads kept as text.

use std::borrow::Cow;

use protocol::ErrorObject;
use serde::Deserialize;
use serde_json::value::RawValue;

/// One message of a server.
#[derive(Debug)]
pub(super) enum Message {
    /// The answer to one of our requests.
    Response {
        /// The id, as text; empty where the server did not know whose answer it is.
        id: String,
        result: Result<Box<RawValue>, ErrorObject>,
    },
    /// Something it wants of us.
    Request(Request),
    /// Something it says.
    Notification {
        method: String,
        params: Option<Box<RawValue>>,
    },
}

/// A server's own request.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) id: Box<RawValue>,
    pub(super) method: String,
    pub(super) params: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct Wire<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    #[serde(default)]
    error: Option<ErrorObject>,
}

impl Message {
    /// Reads one message.
    ///
    /// # Errors
    /// With what is wrong, and how the text begins.
    pub(super) fn read(text: &[u8]) -> Result<Self, String> {
        let garbage = |why: &str| {
            let begin = String::from_utf8_lossy(&text[..text.len().min(80)]).into_owned();
            format!("{why}: {begin:?}")
        };
        let text = std::str::from_utf8(text).map_err(|_| garbage("not UTF-8"))?;
        let wire: Wire<'_> = serde_json::from_str(text)
            .map_err(|error| garbage(&format!("no message of JSON-RPC ({error})")))?;
        let id = wire.id.filter(|id| id.get() != "null");
        if let Some(method) = wire.method {
            let (method, params) = (method.into_owned(), wire.params.map(ToOwned::to_owned));
            return Ok(match id {
                Some(id) => Self::Request(Request {
                    id: id.to_owned(),
                    method,
                    params,
                }),
                None => Self::Notification { method, params },
            });
        }
        let id = id.map(|id| id.get().to_owned()).unwrap_or_default();
        match (wire.result, wire.error) {
            (_, Some(error)) => Ok(Self::Response {
                id,
                result: Err(error),
            }),
            (Some(result), None) => Ok(Self::Response {
                id,
                result: Ok(result.to_owned()),
            }),
            (None, None) => Err(garbage("neither method nor result nor error")),
        }
    }
}

/// A JSON object of members whose values are JSON text already.
pub(super) fn object<'a>(members: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut text = String::from("{");
    for (name, value) in members {
        if text.len() > 1 {
            text.push(',');
        }
        text.push_str(&string(name));
        text.push(':');
        text.push_str(value);
    }
    text.push('}');
    text
}

/// A JSON string.
pub(super) fn string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// A request, or without an id a notification.
pub(super) fn outgoing(id: Option<i64>, method: &str, params: &str) -> String {
    let id = id.map(|id| id.to_string());
    let method = string(method);
    let mut members = vec![("jsonrpc", "\"2.0\"")];
    if let Some(id) = &id {
        members.push(("id", id));
    }
    members.push(("method", &method));
    members.push(("params", params));
    object(members)
}

/// The answer to a server's request.
pub(super) fn answer(id: &RawValue, result: &Result<Box<RawValue>, ErrorObject>) -> String {
    let (name, value) = match result {
        Ok(result) => ("result", result.get().to_owned()),
        Err(error) => ("error", serde_json::to_string(error).unwrap_or_default()),
    };
    object([("jsonrpc", "\"2.0\""), ("id", id.get()), (name, &value)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_each_kind() {
        let response = Message::read(br#"{"jsonrpc":"2.0","id":7,"result":{"a":1.50}}"#).unwrap();
        assert!(matches!(response, Message::Response { id, result: Ok(raw) }
            if id == "7" && raw.get() == r#"{"a":1.50}"#));
        let error = br#"{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"no"}}"#;
        assert!(
            matches!(Message::read(error).unwrap(), Message::Response { id, result: Err(error) }
            if id.is_empty() && error.code == -1)
        );
        let request = Message::read(br#"{"id":"x","method":"ping"}"#).unwrap();
        assert!(matches!(request, Message::Request(request) if request.method == "ping"));
        let said = Message::read(br#"{"method":"notifications/x","params":{}}"#).unwrap();
        assert!(matches!(
            said,
            Message::Notification {
                params: Some(_),
                ..
            }
        ));
    }

    #[test]
    fn garbage_is_told_with_its_beginning() {
        for text in [
            &b"<html>"[..],
            b"[]",
            b"{}",
            b"\xff\xfe",
            b"{\"id\":1,\"error\":3}",
        ] {
            assert!(Message::read(text).is_err(), "{text:?}");
        }
        assert!(Message::read(b"<html>").unwrap_err().contains("<html>"));
    }

    #[test]
    fn writes_what_it_is_given_unchanged() {
        let text = outgoing(Some(3), "tools/call", "{\"n\":1.0}");
        assert_eq!(
            text,
            r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"n":1.0}}"#
        );
    }
}
