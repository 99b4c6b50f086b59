//! The idempotency key of a call: four places it may come from, one key.
//!
//! No standard exists. Accepted, in this order: `params._meta` under
//! [`IDEMPOTENCY_KEY`](crate::meta::IDEMPOTENCY_KEY), `params.idempotencyKey`,
//! the HTTP header `Idempotency-Key`, and the tool argument that the tool's
//! policy names. Sources that disagree are refused: taking one would run a call
//! twice that somebody believed protected.

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::jsonrpc::{ErrorObject, InvalidParams};
use crate::raw;

/// Bytes of the longest key that can be accepted: it shares a row of an index with the principal and
/// the name of the tool.
pub const KEY_BYTES_MAX: usize = 255;

/// The four sources, as found in one call.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sources<'a> {
    /// [`RequestMeta::idempotency_key`](crate::meta::RequestMeta).
    pub meta: Option<&'a str>,
    /// [`CallToolParams::idempotency_key`](crate::tools::CallToolParams).
    pub params: Option<&'a str>,
    /// The HTTP header `Idempotency-Key`, bare or as a quoted string (RFC 9651 §3.3.3).
    pub header: Option<&'a str>,
    /// The argument that the tool's policy names; see [`argument`].
    pub argument: Option<&'a str>,
}

/// The key can't be used: `-32602`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Two sources name different keys.
    #[error("conflicting idempotency keys: {first} and {second} differ; send one key")]
    Conflict {
        /// The source that is read first.
        first: &'static str,
        /// The source that disagrees with it.
        second: &'static str,
    },
    /// A key that is empty, too long, or holds control characters.
    #[error(
        "the idempotency key in {source_name} must be 1 to {bytes_max} bytes without control characters"
    )]
    Invalid {
        /// Where it was found.
        source_name: &'static str,
        /// How long it may be.
        bytes_max: usize,
    },
}

impl From<&KeyError> for ErrorObject {
    fn from(error: &KeyError) -> Self {
        Self::invalid_params(error.to_string())
    }
}

/// The call's key, if any source has one, of at most so many bytes.
///
/// # Errors
/// If two sources disagree, or a key is not usable.
pub fn extract(sources: &Sources<'_>, bytes_max: usize) -> Result<Option<String>, KeyError> {
    let header = sources.header.map(unquote);
    let found = [
        ("params._meta", sources.meta),
        ("params.idempotencyKey", sources.params),
        ("the Idempotency-Key header", header.as_deref()),
        ("the tool's argument", sources.argument),
    ];
    let mut first: Option<(&'static str, &str)> = None;
    for (source_name, key) in found {
        let Some(key) = key else { continue };
        if key.is_empty() || key.len() > bytes_max || key.contains(char::is_control) {
            return Err(KeyError::Invalid {
                source_name,
                bytes_max,
            });
        }
        match first {
            None => first = Some((source_name, key)),
            Some((_, same)) if same == key => {}
            Some((first, _)) => {
                return Err(KeyError::Conflict {
                    first,
                    second: source_name,
                });
            }
        }
    }
    Ok(first.map(|(_, key)| key.to_owned()))
}

/// The string argument `name` of a call; `None` if absent or null.
///
/// # Errors
/// If it is there and not a string: the tool's author promised one.
pub fn argument(arguments: Option<&RawValue>, name: &str) -> Result<Option<String>, InvalidParams> {
    let value = arguments.and_then(|arguments| raw::member(arguments, name));
    match value.filter(|value| value.get() != "null") {
        None => Ok(None),
        Some(value) => raw::string(value).map(Some).ok_or_else(|| {
            InvalidParams::new(format!(
                "the argument `{name}` is the idempotency key: a string"
            ))
        }),
    }
}

fn unquote(header: &str) -> Cow<'_, str> {
    let header = crate::headers::trim_ows(header);
    let inner = header
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    match inner {
        Some(inner) if inner.contains('\\') => Cow::Owned(unescape(inner)),
        Some(inner) => Cow::Borrowed(inner),
        None => Cow::Borrowed(header),
    }
}

/// A backslash stands before a quote or another backslash; RFC 9651 §3.3.3.
fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => out.extend(characters.next()),
            _ => out.push(character),
        }
    }
    out
}
