//! `initialize`: the handshake of older revisions, answered without a session (MCP 2025-11-25
//! §Lifecycle).

use bytes::Bytes;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::WITH_TASKS;
use crate::jsonrpc::InvalidParams;
use crate::meta::{NotAnObject, ResultMeta};
use crate::raw::Object;
use crate::writer;

/// The params of `initialize`. What the client says of its capabilities is not kept: there is no
/// session that would remember it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitializeParams {
    /// The revision that the client asks for.
    pub protocol_version: String,
}

impl InitializeParams {
    /// Reads the params; unknown members are ignored.
    ///
    /// # Errors
    /// If `protocolVersion` is missing or not a string.
    pub fn parse(params: Option<&RawValue>) -> Result<Self, InvalidParams> {
        Ok(Self {
            protocol_version: Object::params(params)?.required_string("protocolVersion")?,
        })
    }
}

/// The answer to `initialize` in `version`, from our answer to `server/discover`: the same
/// features, but for what takes a session (`listChanged`, `subscribe`).
///
/// # Errors
/// If `discovered` is no answer to `server/discover`.
pub fn write_initialize(
    version: &str,
    discovered: &[u8],
    lists_tasks: ListsTasks,
    (instructions, meta): (&str, &ResultMeta),
) -> Result<Bytes, NotAnObject> {
    let not = |error: serde_json::Error| NotAnObject::new(&error);
    let discovered: Value = serde_json::from_slice(discovered).map_err(not)?;
    let mut capabilities = Map::new();
    for feature in ["tools", "resources", "prompts", "completions"] {
        if discovered["capabilities"].get(feature).is_some() {
            capabilities.insert(feature.to_owned(), json!({}));
        }
    }
    if version == WITH_TASKS {
        let mut tasks = json!({ "cancel": {}, "requests": { "tools": { "call": {} } } });
        if lists_tasks == ListsTasks::Yes {
            tasks["list"] = json!({});
        }
        capabilities.insert("tasks".to_owned(), tasks);
    }
    Ok(writer::Object::with_capacity(1024)
        .value("protocolVersion", version)
        .value("capabilities", &capabilities)
        .raw("serverInfo", meta.server_info())
        .value("instructions", instructions)
        .finish())
}

/// Whether this caller may list its tasks: one that is not told apart from others may not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListsTasks {
    /// It has proved who it is.
    Yes,
    /// Anybody is this caller.
    No,
}
