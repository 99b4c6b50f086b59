//! What this crate decodes, for fuzzers and property tests (`crates/fuzz`): thin wrappers around what
//! requests pass through, and nothing that anybody else should call.

use http::HeaderMap;
use protocol::TaskId;
use serde_json::Value;
use store::Principal;

use crate::arguments;
use crate::auth::fuzzed as auth;
use crate::cursor::Use;
use crate::door;
use crate::method::Method;
use crate::mirrors;
use crate::request_state::Binding;
use crate::sealed::Keys;

pub use auth::{Claimed, bearer, claims, jwks, jwt, looks_like_jwt};

/// What something sealed is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Purpose {
    /// The method: of a list for cursors, else of a call.
    pub method: &'static str,
    /// The caller's issuer and subject.
    pub principal: (String, String),
    /// The tool.
    pub tool: String,
    /// The arguments.
    pub digest: [u8; 32],
}

impl Purpose {
    fn principal(&self) -> Principal {
        let (issuer, subject) = self.principal.clone();
        Principal::verified(issuer, subject, None)
    }

    fn with<T>(&self, act: impl FnOnce(Binding<'_>) -> T) -> T {
        act(Binding {
            method: Method::parse(self.method).unwrap_or(Method::ToolsCall),
            principal: &self.principal(),
            tool: &self.tool,
            digest: &self.digest,
        })
    }
}

/// Keys that seal.
pub struct Sealer(Keys);

impl Sealer {
    /// From keys as settings write them.
    ///
    /// # Errors
    /// With what is wrong with one.
    pub fn new(keys: &[String]) -> Result<Self, String> {
        Keys::new(keys).map(Self)
    }

    /// A `requestState`.
    #[must_use]
    pub fn state(&self, round: (TaskId, i32), until_ms: i64, purpose: &Purpose) -> Option<String> {
        purpose.with(|binding| self.0.seal(round, until_ms, binding))
    }

    /// What a `requestState` says.
    #[must_use]
    pub fn open_state(&self, text: &str, purpose: &Purpose) -> Option<(TaskId, i32)> {
        let state = purpose.with(|binding| self.0.open(text, binding)).ok()?;
        Some((state.id, state.round))
    }

    /// A cursor of a list.
    #[must_use]
    pub fn cursor(&self, after: &str, now: i64, purpose: &Purpose) -> Option<String> {
        of_list(purpose, &purpose.principal()).seal(&self.0, after, now)
    }

    /// What a cursor says.
    #[must_use]
    pub fn open_cursor(&self, text: &str, now: i64, purpose: &Purpose) -> Option<String> {
        let principal = purpose.principal();
        of_list(purpose, &principal).open(&self.0, text, now).ok()
    }
}

fn of_list<'a>(purpose: &Purpose, principal: &'a Principal) -> Use<'a> {
    Use {
        list: purpose.method,
        version: protocol::VERSION,
        principal: Some(principal),
    }
}

/// The digest of arguments.
///
/// # Errors
/// If they have no canonical form.
pub fn digest(arguments: &Value) -> Result<[u8; 32], String> {
    arguments::digest(arguments)
}

/// Compiles a schema and checks arguments against it.
///
/// # Errors
/// With what is wrong with one of them.
pub fn check_schema(schema: &str, arguments: &Value) -> Result<(), String> {
    arguments::Schema::compile(schema)?.check(arguments)
}

/// A header that may occur once.
///
/// # Errors
/// If it is malformed, in words.
pub fn one<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, String> {
    mirrors::named(headers, name).map_err(|mismatch| mismatch.to_string())
}

/// Whether the body is said to be JSON, whether streams are read, whether anything is.
#[must_use]
pub fn kinds(headers: &HeaderMap) -> (bool, bool, bool) {
    let accepts = door::accepts(headers);
    (door::is_json(headers), accepts.streams, accepts.anything)
}
