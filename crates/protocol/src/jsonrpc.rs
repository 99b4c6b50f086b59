//! JSON-RPC 2.0: one message a body, read in one pass, params kept raw; and the
//! writers of responses and notifications.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::raw::{self, shorten};
use crate::{code, writer};

/// The `id` of a request: a string or an integer, kept as the text that was
/// sent, so that it is echoed byte for byte, also beyond 2^53 (JSON-RPC 2.0 §4).
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct RequestId(Arc<RawValue>);

impl RequestId {
    /// The JSON text as it was sent.
    #[must_use]
    pub fn as_json(&self) -> &str {
        self.0.get()
    }

    fn read(value: &RawValue, limits: &Limits) -> Result<Self, &'static str> {
        let text = value.get();
        if text.len() > limits.id_bytes_max {
            return Err("the `id` is longer than this server accepts");
        }
        let valid = match text.as_bytes() {
            [b'"', ..] => raw::string(value).is_some(),
            [b'-', digits @ ..] | digits => digits.iter().all(u8::is_ascii_digit),
        };
        if valid {
            Ok(Self(Arc::from(value.to_owned())))
        } else {
            Err("`id` must be a string or an integer, never null")
        }
    }
}

impl PartialEq for RequestId {
    fn eq(&self, other: &Self) -> bool {
        self.as_json() == other.as_json()
    }
}

impl Eq for RequestId {}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_json())
    }
}

impl From<i64> for RequestId {
    fn from(number: i64) -> Self {
        Self::made(number.to_string())
    }
}

impl From<&str> for RequestId {
    fn from(text: &str) -> Self {
        Self::made(Value::from(text).to_string())
    }
}

impl RequestId {
    fn made(json: String) -> Self {
        let value = RawValue::from_string(json).expect("printed by serde_json or an integer");
        Self(Arc::from(value))
    }
}

/// What [`parse`] accepts. The size of the body is limited before it is read.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Levels of nesting of arrays and objects, the message itself being one.
    pub depth_max: usize,
    /// Bytes of the JSON text of an `id`: a subscription repeats it in every message.
    pub id_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            depth_max: 64,
            id_bytes_max: 1024,
        }
    }
}

/// One message from a client.
#[derive(Debug)]
pub enum Message {
    /// A call that gets a response.
    Request(Request),
    /// A message without `id`: accepted, never answered.
    Notification(Notification),
}

/// A call that gets a response.
#[derive(Debug)]
pub struct Request {
    /// Echoed in the response.
    pub id: RequestId,
    /// The method's name, not yet looked up.
    pub method: String,
    /// The params, an object, not yet read.
    pub params: Option<Box<RawValue>>,
}

/// The params of a request, read one level deep: once for all that every request is asked for in them.
#[derive(Debug)]
pub struct Params<'a>(raw::Object<'a>);

impl<'a> Params<'a> {
    /// Absent params are an empty object.
    ///
    /// # Errors
    /// If they are no object, or have a key twice.
    pub fn read(params: Option<&'a RawValue>) -> Result<Self, InvalidParams> {
        raw::Object::params(params).map(Self)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.0.get(name)
    }

    /// The member's value, where `null` counts as absent.
    pub(crate) fn present(&self, name: &str) -> Option<&'a RawValue> {
        self.0.present(name)
    }
}

/// A message that gets no response.
#[derive(Debug)]
pub struct Notification {
    /// The method's name.
    pub method: String,
    /// The params, an object, not yet read.
    pub params: Option<Box<RawValue>>,
}

/// What a body may be where clients of older revisions answer questions of ours.
#[derive(Debug)]
pub enum Incoming {
    /// What every client sends.
    Message(Message),
    /// An answer to a request of the server.
    Response(Response),
}

/// An answer to a request of the server.
#[derive(Debug)]
pub struct Response {
    /// Of the request.
    pub id: Option<RequestId>,
    /// The result, an object; `None` = the client answered with an error.
    pub result: Option<Box<RawValue>>,
}

impl Response {
    /// The refusal where nothing was asked.
    #[must_use]
    pub fn refused(self) -> ParseError {
        ParseError::shape(
            "responses are not accepted here, only requests and notifications",
            self.id,
        )
    }
}

/// Why a body is not a message: `-32700` or `-32600`, both HTTP 400.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct ParseError {
    /// [`code::PARSE_ERROR`] or [`code::INVALID_REQUEST`].
    pub code: i64,
    /// What is wrong, and what is allowed.
    pub message: String,
    /// The request's id, where it could be read.
    pub id: Option<RequestId>,
}

impl ParseError {
    fn syntax(message: impl Into<String>) -> Self {
        Self {
            code: code::PARSE_ERROR,
            message: message.into(),
            id: None,
        }
    }

    fn shape(message: impl Into<String>, id: Option<RequestId>) -> Self {
        Self {
            code: code::INVALID_REQUEST,
            message: message.into(),
            id,
        }
    }
}

impl From<&ParseError> for ErrorObject {
    fn from(error: &ParseError) -> Self {
        Self::new(error.code, error.message.clone())
    }
}

/// Reads one body: JSON, then its shape (JSON-RPC 2.0 §4; MCP 2026-07-28
/// §Streamable HTTP: one message a body, no batches, no responses).
///
/// # Errors
/// `-32700` if the body isn't JSON in UTF-8. `-32600` if it is a batch, a
/// response, nested too deep, has a top-level key twice, or a member of the
/// wrong type; with the id, where that much could be read.
pub fn parse(body: &[u8], limits: Limits) -> Result<Message, ParseError> {
    match read(body, limits)? {
        Incoming::Message(message) => Ok(message),
        Incoming::Response(response) => Err(response.refused()),
    }
}

/// The same, with responses.
///
/// # Errors
/// As [`parse`], but for the responses.
pub fn read(body: &[u8], limits: Limits) -> Result<Incoming, ParseError> {
    let text = std::str::from_utf8(body)
        .map_err(|error| ParseError::syntax(format!("the body is not UTF-8: {error}")))?;
    let first = text
        .trim_start_matches([' ', '\t', '\r', '\n'])
        .bytes()
        .next();
    if first != Some(b'{') {
        return Err(not_an_object(text, first));
    }
    let object = raw::Object::read(text)
        .map_err(|error| ParseError::syntax(format!("the body is not JSON: {error}")))?;

    let id = object
        .get("id")
        .map(|id| RequestId::read(id, &limits))
        .transpose();
    let known_id = id.as_ref().ok().cloned().flatten();
    let fail = |message: String| Err(ParseError::shape(message, known_id.clone()));
    if exceeds_depth(text, limits.depth_max) {
        return fail(format!(
            "the body is nested deeper than {} levels",
            limits.depth_max
        ));
    }
    if let Some(name) = object.duplicate() {
        // Which of two ids is meant can't be known, so neither is echoed.
        let id = known_id.filter(|_| name != "id");
        let message = format!("the key `{}` occurs twice", shorten(name));
        return Err(ParseError::shape(message, id));
    }
    let id = match id {
        Ok(id) => id,
        Err(message) => return Err(ParseError::shape(message, None)),
    };
    if object.get("jsonrpc").and_then(raw::string).as_deref() != Some("2.0") {
        return fail("`jsonrpc` must be \"2.0\"".to_owned());
    }
    if object.get("result").is_some() || object.get("error").is_some() {
        let result = object.get("result").filter(|result| raw::is_object(result));
        return Ok(Incoming::Response(Response {
            id,
            result: result.map(ToOwned::to_owned),
        }));
    }
    let Some(method) = object.get("method").and_then(raw::string) else {
        return fail("`method` must be a string".to_owned());
    };
    let params = object.get("params");
    if params.is_some_and(|params| !raw::is_object(params)) {
        return fail("`params` must be an object".to_owned());
    }
    let params = params.map(ToOwned::to_owned);
    Ok(Incoming::Message(match id {
        Some(id) => Message::Request(Request { id, method, params }),
        None => Message::Notification(Notification { method, params }),
    }))
}

fn not_an_object(text: &str, first: Option<u8>) -> ParseError {
    match (serde_json::from_str::<IgnoredAny>(text), first) {
        (Err(error), _) => ParseError::syntax(format!("the body is not JSON: {error}")),
        (Ok(_), Some(b'[')) => {
            ParseError::shape("batches are not accepted: send one message a body", None)
        }
        (Ok(_), _) => ParseError::shape("the body must be one JSON object", None),
    }
}

/// Our own scan of valid JSON: a raw-value parse accepts any depth, and what is
/// stored raw today is parsed by somebody's recursive parser tomorrow.
fn exceeds_depth(text: &str, depth_max: usize) -> bool {
    // What opens no more than that, strings included, cannot be nested deeper.
    let opening = |byte: &u8| matches!(byte, b'{' | b'[');
    if text.bytes().filter(opening).count() <= depth_max {
        return false;
    }
    let mut depth = 0usize;
    let mut strings = raw::Strings::default();
    for byte in text.bytes() {
        match byte {
            _ if strings.feed(byte) => {}
            b'{' | b'[' if depth == depth_max => return true,
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

/// A JSON-RPC error (JSON-RPC 2.0 §5.1).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ErrorObject {
    /// One of [`code`], or an upstream's own.
    pub code: i64,
    /// One sentence: what was wrong, where, what is allowed.
    pub message: String,
    /// Details for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}

impl ErrorObject {
    /// An error without `data`.
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
        }
    }

    /// The same error with `data`.
    #[must_use]
    pub fn with_data(mut self, data: Value) -> Self {
        self.data = Some(data);
        self
    }

    /// `-32602`.
    pub fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(code::INVALID_PARAMS, message)
    }

    /// `-32601` for a method that is not served.
    #[must_use]
    pub fn method_not_found(method: &str) -> Self {
        Self::new(
            code::METHOD_NOT_FOUND,
            format!("Method not found: {}", shorten(method)),
        )
    }

    /// `-32603` with `data.reason`, one of [`code::reason`].
    pub fn internal(message: impl Into<String>, reason: &str) -> Self {
        Self::new(code::INTERNAL_ERROR, message).with_data(serde_json::json!({ "reason": reason }))
    }

    /// `429`: repeat after whole seconds, at least 1.
    pub fn rate_limited(message: impl Into<String>, retry_after_seconds: u64) -> Self {
        let seconds = retry_after_seconds.max(1);
        Self::new(code::RATE_LIMITED, message)
            .with_data(serde_json::json!({ "retryAfterSeconds": seconds }))
    }

    /// The error object as JSON text, as it is stored for a failed task.
    #[must_use]
    pub fn to_json(&self) -> Bytes {
        writer::json(self)
    }
}

impl fmt::Display for ErrorObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.code)
    }
}

impl std::error::Error for ErrorObject {}

/// A request's params are malformed; becomes `-32602`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidParams(String);

impl InvalidParams {
    /// `message` says which param, what is wrong, what is allowed.
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

impl From<InvalidParams> for ErrorObject {
    fn from(error: InvalidParams) -> Self {
        Self::invalid_params(error.0)
    }
}

/// A response with `result`, the JSON text of an object.
#[must_use]
pub fn response(id: &RequestId, result: &[u8]) -> Bytes {
    writer::Object::with_capacity(result.len() + id.as_json().len() + 40)
        .raw("jsonrpc", "\"2.0\"")
        .raw("id", id.as_json())
        .raw("result", result)
        .finish()
}

/// An error response; without `id` where none was read (MCP 2026-07-28 schema
/// `JSONRPCErrorResponse`: `id` is optional, never null).
#[must_use]
pub fn error_response(id: Option<&RequestId>, error: &ErrorObject) -> Bytes {
    error_response_raw(id, &error.to_json())
}

/// An error response from a stored error, copied as it is.
#[must_use]
pub fn error_response_raw(id: Option<&RequestId>, error: &[u8]) -> Bytes {
    let message = writer::Object::with_capacity(error.len() + 60).raw("jsonrpc", "\"2.0\"");
    let message = match id {
        Some(id) => message.raw("id", id.as_json()),
        None => message,
    };
    message.raw("error", error).finish()
}

/// A notification with `params`, the JSON text of an object.
#[must_use]
pub fn notification(method: &str, params: &[u8]) -> Bytes {
    writer::Object::with_capacity(params.len() + method.len() + 50)
        .raw("jsonrpc", "\"2.0\"")
        .value("method", method)
        .raw("params", params)
        .finish()
}
