//! Whether an answer fits its question: the shape, and for a form its fields.
//!
//! Lenient where clients differ and strict where a tool would stumble: extra
//! keys are fine, known fields must have the asked type and range, required ones
//! must be there.

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::input::InputKind;
use crate::raw::shorten;
use crate::unique;

/// Checks `response` against `request`, both as JSON text.
///
/// # Errors
/// With what is wrong and what is allowed, for the client's eyes.
pub fn validate_response(request: &RawValue, response: &RawValue) -> Result<(), String> {
    let kind = InputKind::of(request).ok_or("the question is of no known kind")?;
    let read = |value: &RawValue| unique::read(value.get()).map_err(|problem| problem.to_string());
    let response = read(response)?;
    let Value::Object(response) = response else {
        return Err(format!("expected an object, got {}", type_name(&response)));
    };
    match kind {
        InputKind::ElicitForm => {
            let request = read(request)?;
            elicit_form(&request["params"]["requestedSchema"], &response)
        }
        InputKind::ElicitUrl => elicit_action(&response).map(|_| ()),
        InputKind::Sampling => sampling(&response),
        InputKind::Roots => roots(&response),
    }
}

fn elicit_action(response: &Map<String, Value>) -> Result<&str, String> {
    match response.get("action").and_then(Value::as_str) {
        Some(action @ ("accept" | "decline" | "cancel")) => Ok(action),
        _ => Err("`action` must be accept, decline or cancel".to_owned()),
    }
}

fn elicit_form(schema: &Value, response: &Map<String, Value>) -> Result<(), String> {
    if elicit_action(response)? != "accept" {
        return Ok(());
    }
    let nothing = Map::new();
    let content = match response.get("content") {
        None | Some(Value::Null) => &nothing,
        Some(Value::Object(content)) => content,
        Some(other) => {
            return Err(format!(
                "`content` must be an object, got {}",
                type_name(other)
            ));
        }
    };
    let given = |name: &str| content.get(name).filter(|value| !value.is_null());
    for name in schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
    {
        if given(name).is_none() {
            return Err(format!("`content.{name}` is required"));
        }
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        if let Some(value) = given(name) {
            field(property, value)
                .map_err(|allowed| format!("`content.{name}` must be {allowed}"))?;
        }
    }
    Ok(())
}

/// Checks one field; the error says what is allowed. Formats and keywords that
/// clients can't be relied on to enforce alike are not checked.
fn field(property: &Value, value: &Value) -> Result<(), String> {
    match property["type"].as_str() {
        Some("string") => string_field(property, value),
        Some("boolean") => value
            .is_boolean()
            .then_some(())
            .ok_or("true or false".to_owned()),
        Some("integer") => {
            let is_whole = value.is_i64()
                || value.is_u64()
                || value.as_f64().is_some_and(|number| number.fract() == 0.0);
            is_whole.then_some(()).ok_or("a whole number".to_owned())?;
            range(property, value)
        }
        Some("number") => {
            value
                .is_number()
                .then_some(())
                .ok_or("a number".to_owned())?;
            range(property, value)
        }
        Some("array") => array_field(property, value),
        _ => Ok(()),
    }
}

fn string_field(property: &Value, value: &Value) -> Result<(), String> {
    let text = value.as_str().ok_or("a string")?;
    let length = u64::try_from(text.chars().count()).unwrap_or(u64::MAX);
    if let Some(min) = property["minLength"].as_u64().filter(|min| length < *min) {
        return Err(format!("at least {min} characters long"));
    }
    if let Some(max) = property["maxLength"].as_u64().filter(|max| length > *max) {
        return Err(format!("at most {max} characters long"));
    }
    one_of(property, value)
}

fn range(property: &Value, value: &Value) -> Result<(), String> {
    let number = value.as_f64().ok_or("a number")?;
    if let Some(min) = property["minimum"].as_f64().filter(|min| number < *min) {
        return Err(format!("at least {min}"));
    }
    if let Some(max) = property["maximum"].as_f64().filter(|max| number > *max) {
        return Err(format!("at most {max}"));
    }
    Ok(())
}

fn array_field(property: &Value, value: &Value) -> Result<(), String> {
    let items = value.as_array().ok_or("an array of strings")?;
    let count = u64::try_from(items.len()).unwrap_or(u64::MAX);
    if let Some(min) = property["minItems"].as_u64().filter(|min| count < *min) {
        return Err(format!("at least {min} items"));
    }
    if let Some(max) = property["maxItems"].as_u64().filter(|max| count > *max) {
        return Err(format!("at most {max} items"));
    }
    for item in items {
        if !item.is_string() {
            return Err("an array of strings".to_owned());
        }
        one_of(&property["items"], item)?;
    }
    Ok(())
}

/// The choices of a selection: `enum`, or `const`s under `oneOf` or `anyOf`.
fn one_of(schema: &Value, value: &Value) -> Result<(), String> {
    let titled = ["oneOf", "anyOf"]
        .into_iter()
        .find_map(|name| schema[name].as_array());
    let choices: Vec<&Value> = match (schema["enum"].as_array(), titled) {
        (Some(choices), _) => choices.iter().collect(),
        (None, Some(choices)) => choices.iter().map(|choice| &choice["const"]).collect(),
        (None, None) => return Ok(()),
    };
    if choices.contains(&value) {
        return Ok(());
    }
    let names: Vec<&str> = choices
        .iter()
        .filter_map(|choice| choice.as_str())
        .collect();
    Err(format!("one of {}", shorten(&names.join(", "))))
}

/// MCP 2026-07-28 schema `CreateMessageResult`.
fn sampling(response: &Map<String, Value>) -> Result<(), String> {
    match response.get("role").and_then(Value::as_str) {
        Some("user" | "assistant") => {}
        _ => return Err("`role` must be user or assistant".to_owned()),
    }
    if !response.get("model").is_some_and(Value::is_string) {
        return Err("`model` must be a string".to_owned());
    }
    match response.get("content") {
        Some(Value::Array(blocks)) => blocks.iter().try_for_each(sampling_block),
        Some(block @ Value::Object(_)) => sampling_block(block),
        _ => Err("`content` must be a content block or an array of them".to_owned()),
    }
}

fn sampling_block(block: &Value) -> Result<(), String> {
    let needs: &[&str] = match block["type"].as_str() {
        Some("text") => &["text"],
        Some("image" | "audio") => &["data", "mimeType"],
        Some("tool_use") => &["id", "name"],
        Some("tool_result") => &["toolUseId"],
        Some(_) => &[],
        None => return Err("a content block must have a `type`".to_owned()),
    };
    match needs.iter().find(|name| !block[**name].is_string()) {
        Some(name) => Err(format!("`content.{name}` must be a string")),
        None => Ok(()),
    }
}

/// MCP 2026-07-28 schema `ListRootsResult`.
fn roots(response: &Map<String, Value>) -> Result<(), String> {
    let roots = response
        .get("roots")
        .and_then(Value::as_array)
        .ok_or("`roots` must be an array")?;
    for root in roots {
        if !root["uri"].as_str().is_some_and(|uri| uri.contains(':')) {
            return Err("each root must have a `uri`".to_owned());
        }
        if !(root["name"].is_null() || root["name"].is_string()) {
            return Err("a root's `name` must be a string".to_owned());
        }
    }
    Ok(())
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}
