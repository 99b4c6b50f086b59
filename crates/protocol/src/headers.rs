//! The headers that mirror the body: decode, trim, compare (SEP-2243; MCP
//! 2026-07-28 §Streamable HTTP, Request Metadata).
//!
//! A load balancer routes by the header and we act by the body, so they must
//! say the same. Header *names* are matched by the HTTP library, ignoring case;
//! values are case-sensitive. A header whose bytes are not visible ASCII, or that
//! occurs twice, is refused with [`HeaderMismatch::malformed`].

use std::borrow::Cow;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use crate::code;
use crate::jsonrpc::{ErrorObject, Params};
pub use crate::mirror::{ParamHeader, check_param, param_headers};
use crate::raw::{self, shorten};

/// The header that mirrors `_meta`'s protocol version.
pub const PROTOCOL_VERSION: &str = "MCP-Protocol-Version";
/// The header that mirrors the method.
pub const METHOD: &str = "Mcp-Method";
/// The header that mirrors what the method is about.
pub const NAME: &str = "Mcp-Name";
/// What the headers of annotated tool parameters begin with.
pub const PARAM_PREFIX: &str = "Mcp-Param-";

/// A header and the body disagree: `-32020`, HTTP 400.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Header mismatch: {header} {}", self.problem())]
pub struct HeaderMismatch {
    /// The header's name.
    pub header: String,
    /// What the body says; `None` if the body has no such value.
    pub expected: Option<String>,
    /// What the header says; `None` if it is missing.
    pub got: Option<String>,
    /// Whether the header's value could not be read at all.
    pub is_malformed: bool,
}

impl HeaderMismatch {
    pub(crate) fn different(header: &str, expected: &str, got: &str) -> Self {
        Self {
            header: header.to_owned(),
            expected: Some(shorten(expected).into_owned()),
            got: Some(shorten(got).into_owned()),
            is_malformed: false,
        }
    }

    pub(crate) fn missing(header: &str, expected: &str) -> Self {
        let expected = Some(shorten(expected).into_owned());
        Self {
            header: header.to_owned(),
            expected,
            got: None,
            is_malformed: false,
        }
    }

    pub(crate) fn unexpected(header: &str, got: &str) -> Self {
        let got = Some(shorten(got).into_owned());
        Self {
            header: header.to_owned(),
            expected: None,
            got,
            is_malformed: false,
        }
    }

    /// The header's value has a bad encoding, invalid bytes, or occurs twice.
    #[must_use]
    pub fn malformed(header: &str, got: &str) -> Self {
        Self {
            is_malformed: true,
            ..Self::unexpected(header, got)
        }
    }

    fn problem(&self) -> String {
        let got = self.got.as_deref().unwrap_or_default();
        match (&self.expected, &self.got) {
            _ if self.is_malformed => format!("is malformed: '{got}'"),
            (Some(expected), None) => format!("is missing; the body says '{expected}'"),
            (Some(expected), Some(_)) => {
                format!("value '{got}' does not match body value '{expected}'")
            }
            (None, _) => format!("value '{got}' has no value in the body to match"),
        }
    }
}

impl From<&HeaderMismatch> for ErrorObject {
    fn from(mismatch: &HeaderMismatch) -> Self {
        Self::new(code::HEADER_MISMATCH, mismatch.to_string())
    }
}

/// Without the optional white space that HTTP allows around a value (RFC 9110 §5.5).
#[must_use]
pub fn trim_ows(value: &str) -> &str {
    value.trim_matches([' ', '\t'])
}

/// The text a value stands for: `=?base64?…?=` decoded, anything else as it is
/// (MCP 2026-07-28 §Value Encoding). `None` if the encoding is bad, or decodes to
/// what isn't UTF-8. A value with only one of the two markers is literal.
#[must_use]
pub fn decode(value: &str) -> Option<Cow<'_, str>> {
    let encoded = value
        .strip_prefix("=?base64?")
        .and_then(|rest| rest.strip_suffix("?="));
    match encoded {
        None => Some(Cow::Borrowed(value)),
        Some(encoded) => {
            let bytes = BASE64_STANDARD.decode(encoded).ok()?;
            String::from_utf8(bytes).ok().map(Cow::Owned)
        }
    }
}

/// `MCP-Protocol-Version` against `_meta`'s version. Whether the version is
/// served is asked afterwards.
///
/// # Errors
/// If the header is missing or another.
pub fn check_version(header: Option<&str>, body: &str) -> Result<(), HeaderMismatch> {
    check_plain(PROTOCOL_VERSION, header, body)
}

/// `Mcp-Method` against the body's method.
///
/// # Errors
/// If the header is missing or another; letter case counts.
pub fn check_method(header: Option<&str>, body: &str) -> Result<(), HeaderMismatch> {
    check_plain(METHOD, header, body)
}

fn check_plain(name: &str, header: Option<&str>, body: &str) -> Result<(), HeaderMismatch> {
    match header.map(trim_ows) {
        None => Err(HeaderMismatch::missing(name, body)),
        Some(value) if value == body => Ok(()),
        Some(value) => Err(HeaderMismatch::different(name, body, value)),
    }
}

/// Which param `Mcp-Name` mirrors for a method, if any.
#[must_use]
pub fn name_source(method: &str) -> Option<&'static str> {
    match method {
        "tools/call" | "prompts/get" => Some("name"),
        "resources/read" => Some("uri"),
        "tasks/get" | "tasks/update" | "tasks/cancel" => Some("taskId"),
        _ => None,
    }
}

/// What `Mcp-Name` was, where it is no mismatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameHeader {
    /// It says what the body says.
    Matches,
    /// This request has nothing to mirror: the method has no name, or the body
    /// lacks it, which the check of the params will refuse.
    NotApplicable,
    /// Missing on `tasks/*`: served all the same and to be counted, because a
    /// published client (fastmcp) never sends it there.
    MissingOnTask,
}

/// What the params of a request of this method name, if they do: the text that `Mcp-Name` mirrors.
#[must_use]
pub fn name_in(method: &str, params: &Params<'_>) -> Option<String> {
    raw::string(params.get(name_source(method)?)?)
}

/// `Mcp-Name` against what the method's params name ([`name_in`]).
///
/// # Errors
/// If the header is malformed or another; if it is missing on a method other
/// than `tasks/*`.
pub fn check_name(
    method: &str,
    header: Option<&str>,
    expected: Option<&str>,
) -> Result<NameHeader, HeaderMismatch> {
    let Some(expected) = expected else {
        return Ok(NameHeader::NotApplicable);
    };
    let Some(header) = header.map(trim_ows) else {
        return if method.starts_with("tasks/") {
            Ok(NameHeader::MissingOnTask)
        } else {
            Err(HeaderMismatch::missing(NAME, expected))
        };
    };
    match decode(header) {
        None => Err(HeaderMismatch::malformed(NAME, header)),
        Some(value) if value == expected => Ok(NameHeader::Matches),
        Some(value) => Err(HeaderMismatch::different(NAME, expected, &value)),
    }
}
