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
use serde_json::Value;
use serde_json::value::RawValue;

use crate::code;
use crate::jsonrpc::ErrorObject;
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
    fn different(header: &str, expected: &str, got: &str) -> Self {
        Self {
            header: header.to_owned(),
            expected: Some(shorten(expected).into_owned()),
            got: Some(shorten(got).into_owned()),
            is_malformed: false,
        }
    }

    fn missing(header: &str, expected: &str) -> Self {
        let expected = Some(shorten(expected).into_owned());
        Self {
            header: header.to_owned(),
            expected,
            got: None,
            is_malformed: false,
        }
    }

    fn unexpected(header: &str, got: &str) -> Self {
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

/// `Mcp-Name` against what the method's params name.
///
/// # Errors
/// If the header is malformed or another; if it is missing on a method other
/// than `tasks/*`.
pub fn check_name(
    method: &str,
    header: Option<&str>,
    params: Option<&RawValue>,
) -> Result<NameHeader, HeaderMismatch> {
    let expected =
        name_source(method).and_then(|source| raw::string(raw::member(params?, source)?));
    let Some(expected) = expected else {
        return Ok(NameHeader::NotApplicable);
    };
    let Some(header) = header.map(trim_ows) else {
        return if method.starts_with("tasks/") {
            Ok(NameHeader::MissingOnTask)
        } else {
            Err(HeaderMismatch::missing(NAME, &expected))
        };
    };
    match decode(header) {
        None => Err(HeaderMismatch::malformed(NAME, header)),
        Some(value) if value == expected => Ok(NameHeader::Matches),
        Some(value) => Err(HeaderMismatch::different(NAME, &expected, &value)),
    }
}

/// One tool parameter that is mirrored into a header, as annotated with
/// `x-mcp-header` in the tool's `inputSchema`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamHeader {
    /// The whole header's name, `Mcp-Param-Region`.
    pub header: String,
    /// The names of the properties from the arguments' root to the value.
    pub path: Vec<String>,
}

/// The annotated parameters of a tool.
///
/// # Errors
/// With what is wrong, if an annotation breaks a rule of MCP 2026-07-28 §Schema
/// Extension: then every client must hide the tool.
pub fn param_headers(input_schema: &Value) -> Result<Vec<ParamHeader>, String> {
    let mut found = Vec::new();
    collect(input_schema, &mut Vec::new(), &mut found)?;
    let mut names: Vec<String> = found
        .iter()
        .map(|param| param.header.to_ascii_lowercase())
        .collect();
    names.sort_unstable();
    if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(format!(
            "x-mcp-header: two parameters share the header {}",
            twice[0]
        ));
    }
    let annotations = count_annotations(input_schema);
    if annotations != found.len() {
        return Err(
            "x-mcp-header is only allowed on properties reached from the schema's root \
                    through `properties` alone"
                .to_owned(),
        );
    }
    Ok(found)
}

fn collect(
    schema: &Value,
    path: &mut Vec<String>,
    found: &mut Vec<ParamHeader>,
) -> Result<(), String> {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
        return Ok(());
    };
    for (name, property) in properties {
        path.push(name.clone());
        if let Some(annotation) = property.get("x-mcp-header") {
            let header = annotation_header(annotation, property)
                .map_err(|problem| format!("x-mcp-header of `{}`: {problem}", path.join(".")))?;
            found.push(ParamHeader {
                header,
                path: path.clone(),
            });
        }
        collect(property, path, found)?;
        path.pop();
    }
    Ok(())
}

fn annotation_header(annotation: &Value, property: &Value) -> Result<String, &'static str> {
    let suffix = annotation.as_str().ok_or("must be a string")?;
    let is_token = !suffix.is_empty()
        && suffix
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte));
    if !is_token {
        return Err("must be a non-empty token (RFC 9110 §5.6.2)");
    }
    match property.get("type").and_then(Value::as_str) {
        Some("string" | "integer" | "boolean") => Ok(format!("{PARAM_PREFIX}{suffix}")),
        _ => Err("the parameter's type must be string, integer or boolean"),
    }
}

/// Annotations anywhere in schema positions; instance data is not looked into.
fn count_annotations(schema: &Value) -> usize {
    match schema {
        Value::Array(items) => items.iter().map(count_annotations).sum(),
        Value::Object(members) => members
            .iter()
            .map(|(keyword, value)| match keyword.as_str() {
                "x-mcp-header" => 1,
                "default" | "const" | "enum" | "examples" | "required" | "dependentRequired" => 0,
                "properties" | "$defs" | "definitions" | "patternProperties"
                | "dependentSchemas" => value
                    .as_object()
                    .map_or(0, |map| map.values().map(count_annotations).sum()),
                _ => count_annotations(value),
            })
            .sum(),
        _ => 0,
    }
}

/// One `Mcp-Param-*` header against the call's arguments.
///
/// Present in the body: the header must be there and equal, numbers by value,
/// whatever their spelling. Absent or null in the body: there must be no header,
/// for an intermediary may have believed it. A body value of the wrong type is
/// left to the check of the arguments.
///
/// # Errors
/// If they disagree, or the header is malformed.
pub fn check_param(
    param: &ParamHeader,
    arguments: Option<&RawValue>,
    header: Option<&str>,
) -> Result<(), HeaderMismatch> {
    let body = arguments
        .and_then(|root| {
            param
                .path
                .iter()
                .try_fold(root, |at, name| raw::member(at, name))
        })
        .map(RawValue::get)
        .filter(|value| *value != "null");
    let header = header.map(trim_ows);
    let Some(body) = body else {
        return match header {
            None => Ok(()),
            Some(header) => Err(HeaderMismatch::unexpected(&param.header, header)),
        };
    };
    let expected = match body.as_bytes().first() {
        Some(b'{' | b'[') => return Ok(()),
        Some(b'"') => Cow::Owned(serde_json::from_str::<String>(body).unwrap_or_default()),
        _ => Cow::Borrowed(body),
    };
    let Some(header) = header else {
        return Err(HeaderMismatch::missing(&param.header, &expected));
    };
    let value = decode(header).ok_or_else(|| HeaderMismatch::malformed(&param.header, header))?;
    let is_number = matches!(body.as_bytes().first(), Some(b'-' | b'0'..=b'9'));
    if value == expected || (is_number && is_same_number(&value, &expected)) {
        Ok(())
    } else {
        Err(HeaderMismatch::different(&param.header, &expected, &value))
    }
}

/// Whether two JSON numbers have the same value, exactly, without floats.
fn is_same_number(left: &str, right: &str) -> bool {
    matches!((decimal(left), decimal(right)), (Some(left), Some(right)) if left == right)
}

/// Sign, digits without zeros at either end, and the power of ten they start from.
fn decimal(text: &str) -> Option<(bool, String, i64)> {
    let (is_negative, rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (mantissa, exponent) = match rest.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().ok()?),
        None => (rest, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    if whole.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let significant = digits.trim_end_matches('0');
    let dropped = i64::try_from(digits.len() - significant.len()).ok()?;
    let exponent = exponent
        .checked_sub(i64::try_from(fraction.len()).ok()?)?
        .checked_add(dropped)?;
    match significant.trim_start_matches('0') {
        "" => Some((false, String::new(), 0)),
        significant => Some((is_negative, significant.to_owned(), exponent)),
    }
}
