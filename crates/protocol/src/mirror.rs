//! `Mcp-Param-*`: tool parameters that are mirrored into headers (MCP 2026-07-28
//! §Custom Headers from Tool Parameters).

use std::borrow::Cow;

use serde_json::Value;
use serde_json::value::RawValue;

use crate::headers::{HeaderMismatch, PARAM_PREFIX, decode, trim_ows};
use crate::raw;

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
