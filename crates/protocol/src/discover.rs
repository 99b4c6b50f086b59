//! `server/discover`: what this server speaks (MCP 2026-07-28 §Discovery).

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::meta::{EXTENSION_TASKS, ResultMeta, SUPPORTED_VERSIONS};
use crate::writer;

/// Who may share a cached answer (MCP 2026-07-28 schema `CacheableResult`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CacheScope {
    /// Any client: nothing in it depends on the caller.
    Public,
    /// Only the same authorization context.
    Private,
}

/// How long and for whom an answer may be cached. Discover and every list carry
/// it: two published clients refuse them without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caching {
    /// Milliseconds; 0 means stale at once.
    pub ttl_ms: u64,
    /// For whom.
    pub scope: CacheScope,
}

/// What is served beside tools: it is advertised exactly as long as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Provided {
    /// Resources.
    pub resources: bool,
    /// Some of them tell when they change.
    pub subscribe: bool,
    /// Prompts.
    pub prompts: bool,
    /// Completions of their arguments.
    pub completions: bool,
}

/// The answer to `server/discover`: the versions we serve, tools with
/// `listChanged`, what is provided beside them, and the tasks extension as
/// exactly `{}` (a published client takes any setting in it for "no tasks").
#[must_use]
pub fn write_result(
    provided: Provided,
    instructions: Option<&str>,
    caching: Caching,
    meta: &ResultMeta,
) -> Bytes {
    let mut capabilities = serde_json::json!({
        "tools": { "listChanged": true },
        "extensions": { EXTENSION_TASKS: {} },
    });
    if provided.resources {
        capabilities["resources"] = serde_json::json!({ "listChanged": true });
    }
    if provided.resources && provided.subscribe {
        capabilities["resources"]["subscribe"] = true.into();
    }
    if provided.prompts {
        capabilities["prompts"] = serde_json::json!({ "listChanged": true });
    }
    if provided.completions {
        capabilities["completions"] = serde_json::json!({});
    }
    writer::Object::with_capacity(1024)
        .value("resultType", "complete")
        .value("supportedVersions", SUPPORTED_VERSIONS)
        .value("capabilities", &capabilities)
        .optional("instructions", instructions)
        .integer("ttlMs", caching.ttl_ms)
        .value("cacheScope", &caching.scope)
        .raw("_meta", meta.to_json())
        .finish()
}
