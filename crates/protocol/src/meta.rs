//! `_meta`: what every request must carry, what it may carry, and what every
//! result carries (MCP 2026-07-28 §Basic, `RequestMetaObject`, `ResultMetaObject`).

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

pub use crate::capabilities::ClientCapabilities;
use crate::jsonrpc::{ErrorObject, InvalidParams, Params};
use crate::raw::{self, Object, shorten};
use crate::{code, writer};

/// The one revision we serve.
pub const VERSION: &str = "2026-07-28";
/// Every revision we serve, newest first.
pub const SUPPORTED_VERSIONS: &[&str] = &[VERSION];
/// The tasks extension's identifier (SEP-2663 §Extension Identifier).
pub const EXTENSION_TASKS: &str = "io.modelcontextprotocol/tasks";

/// `_meta` key: the request's protocol version.
pub const PROTOCOL_VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
/// `_meta` key: the client's capabilities for this request.
pub const CLIENT_CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";
/// `_meta` key: the client's name and version.
pub const CLIENT_INFO_KEY: &str = "io.modelcontextprotocol/clientInfo";
/// `_meta` key: the server's name and version, on every result.
pub const SERVER_INFO_KEY: &str = "io.modelcontextprotocol/serverInfo";
/// `_meta` key: the id of the `subscriptions/listen` request a message belongs to.
pub const SUBSCRIPTION_ID_KEY: &str = "io.modelcontextprotocol/subscriptionId";
/// `_meta` key: our idempotency key; no standard exists.
pub const IDEMPOTENCY_KEY: &str = "io.github.mcp-tasks/idempotencyKey";

/// A program's name and version (MCP 2026-07-28 schema `Implementation`).
/// Self-reported: for display and logs, never for decisions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Implementation {
    /// For programs.
    pub name: String,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Any text.
    pub version: String,
    /// What it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Its home page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub website_url: Option<String>,
}

impl Implementation {
    /// A name and a version.
    pub fn new(name: impl Into<String>, version: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            title: None,
            version: version.into(),
            description: None,
            website_url: None,
        }
    }
}

/// The caller's trace (W3C Trace Context; `_meta` keys without prefix). Values
/// are passed on as they came; whoever uses them judges them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceContext {
    /// `traceparent`.
    pub traceparent: Option<String>,
    /// `tracestate`.
    pub tracestate: Option<String>,
    /// `baggage`.
    pub baggage: Option<String>,
}

/// The token of a caller who wants progress: a string or a number, echoed as sent.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct ProgressToken(Arc<RawValue>);

impl ProgressToken {
    /// The JSON text as it was sent.
    #[must_use]
    pub fn as_json(&self) -> &str {
        self.0.get()
    }
}

/// What one request says about itself.
#[derive(Clone, Debug)]
pub struct RequestMeta {
    /// The version the body names; to be compared with the header, then judged.
    pub protocol_version: String,
    /// The client's name and version, if sent and well formed.
    pub client_info: Option<Implementation>,
    /// What this client can do for this request.
    pub capabilities: ClientCapabilities,
    /// The caller's trace.
    pub trace: TraceContext,
    /// Set if the caller wants progress notifications.
    pub progress_token: Option<ProgressToken>,
    /// The idempotency key in `_meta`; see [`idempotency`](crate::idempotency).
    pub idempotency_key: Option<String>,
}

/// `_meta` is missing or malformed: `-32602`, HTTP 400.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MetaError {
    /// No `_meta` at all: with an unserved header version, an older client.
    #[error(
        "params._meta is missing: it must hold `{PROTOCOL_VERSION_KEY}` and `{CLIENT_CAPABILITIES_KEY}`"
    )]
    Missing,
    /// `_meta` does not name the protocol version.
    #[error("params._meta lacks `{PROTOCOL_VERSION_KEY}`")]
    NoProtocolVersion,
    /// `_meta` does not hold the client's capabilities.
    #[error("params._meta lacks `{CLIENT_CAPABILITIES_KEY}` (an empty object declares none)")]
    NoClientCapabilities,
    /// A value of the wrong type.
    #[error("params._meta: {0}")]
    Malformed(String),
}

impl From<InvalidParams> for MetaError {
    fn from(error: InvalidParams) -> Self {
        Self::Malformed(error.to_string())
    }
}

impl From<&MetaError> for ErrorObject {
    fn from(error: &MetaError) -> Self {
        Self::invalid_params(error.to_string())
    }
}

impl RequestMeta {
    /// Reads `params._meta`.
    ///
    /// `logLevel` and keys we don't know are ignored. So are malformed client
    /// info and trace context: no promise hangs on them.
    ///
    /// # Errors
    /// If `_meta`, the version or the capabilities are missing or of the wrong
    /// type, if a key occurs twice, or if a token or key we would use is malformed.
    pub fn read(params: &Params<'_>) -> Result<Self, MetaError> {
        let meta = params.present("_meta").ok_or(MetaError::Missing)?;
        let meta = Object::strict(meta, "it")?;
        let protocol_version = meta
            .string(PROTOCOL_VERSION_KEY)?
            .ok_or(MetaError::NoProtocolVersion)?;
        let capabilities = meta
            .present(CLIENT_CAPABILITIES_KEY)
            .ok_or(MetaError::NoClientCapabilities)?;
        let text = |name: &str| meta.get(name).and_then(raw::string);
        Ok(Self {
            protocol_version,
            capabilities: ClientCapabilities::read(capabilities)?,
            client_info: meta
                .get(CLIENT_INFO_KEY)
                .and_then(|info| serde_json::from_str(info.get()).ok()),
            trace: TraceContext {
                traceparent: text("traceparent"),
                tracestate: text("tracestate"),
                baggage: text("baggage"),
            },
            progress_token: meta
                .present("progressToken")
                .map(progress_token)
                .transpose()?,
            idempotency_key: meta.string(IDEMPOTENCY_KEY)?,
        })
    }

    /// Whether the version is one of [`SUPPORTED_VERSIONS`].
    #[must_use]
    pub fn version_is_supported(&self) -> bool {
        SUPPORTED_VERSIONS.contains(&self.protocol_version.as_str())
    }
}

pub(crate) fn progress_token(value: &RawValue) -> Result<ProgressToken, InvalidParams> {
    let token_is_valid = match value.get().as_bytes().first() {
        Some(b'"') => raw::string(value).is_some(),
        Some(b'-' | b'0'..=b'9') => true,
        _ => false,
    };
    if token_is_valid && value.get().len() <= 1024 {
        Ok(ProgressToken(Arc::from(value.to_owned())))
    } else {
        Err(InvalidParams::new(
            "`progressToken` must be a string or a number of at most 1 KiB",
        ))
    }
}

/// The version a legacy `initialize` asks for, `params.protocolVersion`.
#[must_use]
pub fn initialize_version(params: Option<&RawValue>) -> Option<String> {
    raw::string(raw::member(params?, "protocolVersion")?)
}

/// `-32022` with what is served and what was asked for
/// (MCP 2026-07-28 schema `UnsupportedProtocolVersionError`).
#[must_use]
pub fn unsupported_version(requested: &str) -> ErrorObject {
    let supported = SUPPORTED_VERSIONS.join(", ");
    let requested = shorten(requested);
    let message =
        format!("Unsupported protocol version {requested}: this server speaks MCP {supported}");
    ErrorObject::new(code::UNSUPPORTED_VERSION, message).with_data(serde_json::json!({
        "supported": SUPPORTED_VERSIONS,
        "requested": requested,
    }))
}

/// `-32021` with the capabilities object the client would have had to declare
/// (MCP 2026-07-28 schema `MissingRequiredClientCapabilityError`).
#[must_use]
pub fn missing_capability(required: Map<String, Value>) -> ErrorObject {
    let names: Vec<&str> = required.keys().map(String::as_str).collect();
    let message = format!("Missing required client capability: {}", names.join(", "));
    ErrorObject::new(code::MISSING_CAPABILITY, message)
        .with_data(serde_json::json!({ "requiredCapabilities": required }))
}

/// `-32021` for a client that did not declare the tasks extension.
#[must_use]
pub fn missing_tasks_extension() -> ErrorObject {
    let message = format!("Missing required client capability: the extension {EXTENSION_TASKS}");
    ErrorObject::new(code::MISSING_CAPABILITY, message).with_data(serde_json::json!({
        "requiredCapabilities": { "extensions": { EXTENSION_TASKS: {} } },
    }))
}

/// The `_meta` of our results, written once: `serverInfo`.
#[derive(Clone, Debug)]
pub struct ResultMeta {
    server_info: Arc<str>,
    json: Bytes,
}

/// A stored result is not a JSON object: a bug of whoever stored it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the result is not a JSON object: {0}")]
pub struct NotAnObject(String);

impl NotAnObject {
    pub(crate) fn new(why: &impl std::fmt::Display) -> Self {
        Self(why.to_string())
    }
}

impl ResultMeta {
    /// For a server of this name and version.
    #[must_use]
    pub fn new(server: &Implementation) -> Self {
        let json = writer::json(server);
        let server_info: Arc<str> = String::from_utf8_lossy(&json).into();
        let json = with_server_info(&server_info).finish();
        Self { server_info, json }
    }

    /// The `_meta` object.
    #[must_use]
    pub fn to_json(&self) -> Bytes {
        self.json.clone()
    }

    /// The name and version of this server, a JSON object.
    pub(crate) fn server_info(&self) -> &str {
        &self.server_info
    }

    /// The `_meta` object of a message of a subscription.
    pub(crate) fn with_subscription(&self, id: &str) -> Bytes {
        with_server_info(&self.server_info)
            .raw(SUBSCRIPTION_ID_KEY, id)
            .finish()
    }

    /// A stored result with `serverInfo` in its `_meta`; all else byte for byte.
    ///
    /// A `serverInfo` of the tool's own (say, an upstream server's) is replaced:
    /// it names the server that sends the response.
    ///
    /// # Errors
    /// If `result` isn't the JSON text of an object.
    pub fn attach(&self, result: &[u8]) -> Result<Bytes, NotAnObject> {
        let text = std::str::from_utf8(result)
            .map_err(|error| NotAnObject(error.to_string()))?
            .trim();
        let object = Object::read(text).map_err(|error| NotAnObject(error.to_string()))?;
        let mut out = Vec::with_capacity(text.len() + self.server_info.len() + 100);
        let Some(meta) = object.get("_meta") else {
            out.extend_from_slice(&text.as_bytes()[..text.len() - 1]);
            if !object.is_empty() {
                out.push(b',');
            }
            out.extend_from_slice(b"\"_meta\":");
            out.extend_from_slice(&self.to_json());
            out.push(b'}');
            return Ok(Bytes::from(out));
        };
        let merged = Object::read(meta.get())
            .unwrap_or_default()
            .into_members()
            .into_iter()
            .filter(|(name, _)| name != SERVER_INFO_KEY)
            .fold(with_server_info(&self.server_info), |out, (name, value)| {
                out.entry(&name, value.get().as_bytes())
            })
            .finish();
        let at = raw::position(text, meta);
        out.extend_from_slice(&text.as_bytes()[..at.start]);
        out.extend_from_slice(&merged);
        out.extend_from_slice(&text.as_bytes()[at.end..]);
        Ok(Bytes::from(out))
    }
}

fn with_server_info(server_info: &str) -> writer::Object {
    writer::Object::with_capacity(server_info.len() + 100).raw(SERVER_INFO_KEY, server_info)
}
