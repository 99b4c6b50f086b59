//! What a server promises of its tool's structured content, and whether it keeps it
//! (MCP 2026-07-28 §Tools, Output Schema: clients should check).

use jsonschema::error::ValidationErrorKind;
use jsonschema::{PatternOptions, Validator};
use serde_json::Value;
use serde_json::value::RawValue;
use worker::CallToolResult;

/// Patterns whose automata are larger are refused (bytes).
const PATTERN_BYTES_MAX: usize = 1024 * 1024;
/// Schemas that are longer are not checked (bytes).
const SCHEMA_BYTES_MAX: usize = 512 * 1024;

/// An `outputSchema`: JSON Schema 2020-12 unless it says otherwise, with the references that it
/// has to itself. What it refers to elsewhere is never fetched.
pub(super) enum Promise {
    /// There is none.
    Nothing,
    Checked(Validator),
    /// Why it is not: clients check it too.
    Unchecked(String),
}

impl Promise {
    /// # Errors
    /// In words, if it is no schema.
    pub(super) fn read(schema: Option<&RawValue>) -> Result<Self, String> {
        let Some(schema) = schema else {
            return Ok(Self::Nothing);
        };
        let value: Value = serde_json::from_str(schema.get())
            .map_err(|error| format!("outputSchema cannot be read: {error}"))?;
        if !value.is_object() {
            return Err("outputSchema must be an object".to_owned());
        }
        if schema.get().len() > SCHEMA_BYTES_MAX {
            let why = format!("it is longer than {SCHEMA_BYTES_MAX} bytes");
            return Ok(Self::Unchecked(why));
        }
        if let Some(reference) = circle(&value) {
            let why = format!("its reference {reference} leads to itself");
            return Ok(Self::Unchecked(why));
        }
        let built = jsonschema::options()
            .offline()
            .with_pattern_options(PatternOptions::regex().size_limit(PATTERN_BYTES_MAX))
            .build(&value);
        match built {
            Ok(validator) => Ok(Self::Checked(validator)),
            Err(error) if matches!(error.kind(), ValidationErrorKind::Referencing(_)) => {
                Ok(Self::Unchecked(format!(
                    "what it refers to is not in it, and is not fetched: {error}"
                )))
            }
            Err(error) => Err(format!("outputSchema is no JSON Schema: {error}")),
        }
    }

    /// Why results are not checked, though there is a schema.
    pub(super) fn unchecked(&self) -> Option<&str> {
        match self {
            Self::Unchecked(why) => Some(why),
            Self::Nothing | Self::Checked(_) => None,
        }
    }

    /// # Errors
    /// In words, if a result does not keep it. One that says that the tool failed need not.
    pub(super) fn check(&self, result: &CallToolResult) -> Result<(), String> {
        let validator = match self {
            Self::Checked(validator) if !result.is_error => validator,
            _ => return Ok(()),
        };
        let Some(content) = &result.structured_content else {
            return Err("it has no structuredContent".to_owned());
        };
        validator.validate(content).map_err(|error| {
            let place = error.instance_path().to_string();
            let place = if place.is_empty() { "/" } else { &place };
            let text: String = error.to_string().chars().take(200).collect();
            format!("at {place}: {text}")
        })
    }
}

/// A reference that leads back to itself without a step into the content: to check against it
/// would never end. Those by name (`$anchor`, `$dynamicRef`) are refused by the compiler if so.
fn circle(schema: &Value) -> Option<String> {
    let mut places = vec![schema];
    while let Some(place) = places.pop() {
        if let Some(reference) = place.get("$ref").and_then(Value::as_str)
            && leads_to_itself(schema, place)
        {
            return Some(reference.to_owned());
        }
        match place {
            Value::Array(items) => places.extend(items),
            Value::Object(members) => places.extend(members.values()),
            _ => {}
        }
    }
    None
}

/// Whether what is checked against the same content as `start`, by reference or by combination,
/// holds `start` itself.
fn leads_to_itself(root: &Value, start: &Value) -> bool {
    let mut seen: Vec<*const Value> = Vec::new();
    let mut next = vec![start];
    while let Some(place) = next.pop() {
        if !seen.is_empty() && std::ptr::eq(place, start) {
            return true;
        }
        if seen.iter().any(|seen| std::ptr::eq(*seen, place)) {
            continue;
        }
        seen.push(std::ptr::from_ref(place));
        let target = place.get("$ref").and_then(Value::as_str);
        let target = target.and_then(|to| to.strip_prefix('#'));
        next.extend(target.and_then(|at| root.pointer(at)));
        for keyword in ["allOf", "anyOf", "oneOf"] {
            next.extend(
                place
                    .get(keyword)
                    .and_then(Value::as_array)
                    .into_iter()
                    .flatten(),
            );
        }
        for keyword in ["not", "if", "then", "else"] {
            next.extend(place.get(keyword));
        }
        let dependent = place.get("dependentSchemas").and_then(Value::as_object);
        next.extend(dependent.into_iter().flat_map(|all| all.values()));
    }
    false
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(schema: &Value) -> Result<Promise, String> {
        let raw = RawValue::from_string(schema.to_string()).unwrap();
        Promise::read(Some(&raw))
    }

    fn keeps(promise: &Promise, content: Value) -> Result<(), String> {
        promise.check(&CallToolResult::structured(content))
    }

    #[test]
    fn references_to_the_schema_itself_are_followed() {
        let tree = read(&json!({
            "type": "object",
            "properties": { "tree": { "$ref": "#/$defs/node" }, "at": { "$ref": "#place" } },
            "$defs": {
                "node": {
                    "type": "object",
                    "properties": {
                        "value": { "type": "integer" },
                        "children": { "type": "array", "items": { "$ref": "#/$defs/node" } }
                    },
                    "required": ["value"]
                },
                "place": { "$anchor": "place", "type": "string" }
            }
        }));
        let tree = tree.unwrap();
        assert!(tree.unchecked().is_none());
        let deep =
            |value: Value| json!({ "tree": { "value": 1, "children": [{ "value": value }] } });
        assert!(keeps(&tree, deep(json!(2))).is_ok());
        let told = keeps(&tree, deep(json!("two"))).unwrap_err();
        assert!(told.starts_with("at /tree/children/0/value: "), "{told}");
        assert!(keeps(&tree, json!({ "at": 3 })).is_err());
        let dynamic = read(&json!({
            "$id": "https://example.com/tree",
            "$dynamicAnchor": "node",
            "type": "object",
            "properties": { "next": { "$dynamicRef": "#node" }, "n": { "type": "integer" } }
        }));
        let told = keeps(
            &dynamic.unwrap(),
            json!({ "next": { "next": { "n": "x" } } }),
        );
        assert!(told.unwrap_err().starts_with("at /next/next/n: "));
    }

    #[test]
    fn what_is_elsewhere_is_not_fetched_and_not_checked() {
        for elsewhere in [
            json!({ "$ref": "https://example.com/schema.json" }),
            json!({ "type": "object", "properties": { "a": { "$ref": "file:///etc/passwd" } } }),
            json!({ "type": "object", "properties": { "a": { "$ref": "#/$defs/missing" } } }),
            json!({ "$ref": "http://169.254.169.254/latest#/x" }),
        ] {
            let promise = read(&elsewhere).unwrap();
            assert!(promise.unchecked().is_some(), "{elsewhere}");
            assert!(keeps(&promise, json!({ "a": 1 })).is_ok());
        }
        // The draft itself is known.
        let draft = json!({ "$ref": "https://json-schema.org/draft/2020-12/schema" });
        assert!(read(&draft).unwrap().unchecked().is_none());
        assert!(read(&json!({ "type": "no such type" })).is_err());
    }

    #[test]
    fn circles_end() {
        for circle in [
            json!({ "$ref": "#" }),
            json!({ "allOf": [{ "$ref": "#" }] }),
            json!({ "$ref": "#/$defs/a", "$defs": { "a": { "$ref": "#/$defs/b" }, "b": { "$ref": "#/$defs/a" } } }),
            json!({ "dependentSchemas": { "a": { "$ref": "#" } } }),
            json!({ "$anchor": "x", "$ref": "#x" }),
            json!({ "$id": "https://example.com/x", "$ref": "https://example.com/x" }),
            json!({ "$dynamicAnchor": "x", "allOf": [{ "$dynamicRef": "#x" }] }),
            json!({ "not": { "$ref": "#" }, "unevaluatedProperties": { "$ref": "#" } }),
        ] {
            // Whatever comes of it, it comes.
            if let Ok(promise) = read(&circle) {
                let _ = keeps(&promise, json!({ "a": { "a": 1 } }));
            }
        }
    }
}
