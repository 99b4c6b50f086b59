//! A call's arguments against the tool's `inputSchema`, and their digest.
//!
//! A violation is no protocol error: the result says what is wrong, so that the model can mend
//! its call (MCP 2026-07-28 §Tools, Error Handling). No reference leaves the schema, and depth,
//! size and backtracking are bounded, because the schema may come from another server.

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// Levels of nesting of a schema.
const SCHEMA_DEPTH_MAX: usize = 64;
/// Bytes of a schema.
const SCHEMA_BYTES_MAX: usize = 512 * 1024;
/// Steps back of one `pattern` that is no regular language.
const BACKTRACK_MAX: usize = 100_000;
/// Bytes of one compiled `pattern`.
const PATTERN_BYTES_MAX: usize = 1024 * 1024;
/// Violations told at once.
const TOLD_MAX: usize = 5;
/// Characters of one violation: it quotes what was sent.
const TOLD_CHARS_MAX: usize = 300;

/// A compiled `inputSchema`.
pub(crate) struct Schema(Validator);

impl Schema {
    /// Compiles a schema: 2020-12 unless `$schema` says otherwise.
    ///
    /// # Errors
    /// With what is wrong with it.
    pub(crate) fn compile(json: &str) -> Result<Self, String> {
        if json.len() > SCHEMA_BYTES_MAX {
            return Err(format!(
                "inputSchema is larger than {SCHEMA_BYTES_MAX} bytes"
            ));
        }
        let schema: Value =
            serde_json::from_str(json).map_err(|error| format!("inputSchema: {error}"))?;
        if depth(&schema) > SCHEMA_DEPTH_MAX {
            return Err(format!(
                "inputSchema is nested deeper than {SCHEMA_DEPTH_MAX} levels"
            ));
        }
        if let Some(pointer) = circle(&schema) {
            return Err(format!(
                "inputSchema: the reference {pointer} leads to itself"
            ));
        }
        let patterns = PatternOptions::fancy_regex()
            .backtrack_limit(BACKTRACK_MAX)
            .size_limit(PATTERN_BYTES_MAX);
        jsonschema::options()
            .offline()
            .with_pattern_options(patterns)
            .build(&schema)
            .map(Self)
            .map_err(|error| format!("inputSchema: {}", shorten(&error.to_string())))
    }

    /// Checks arguments.
    ///
    /// # Errors
    /// With a text for the model: where, what is wrong, what is allowed.
    pub(crate) fn check(&self, arguments: &Value) -> Result<(), String> {
        let mut errors = self.0.iter_errors(arguments);
        let Some(first) = errors.next() else {
            return Ok(());
        };
        let told: Vec<String> = std::iter::once(first)
            .chain(errors)
            .take(TOLD_MAX)
            .map(|error| {
                let path = error.instance_path().to_string();
                let place = if path.is_empty() { "/" } else { &path };
                format!("- at {}: {}", shorten(place), shorten(&error.to_string()))
            })
            .collect();
        Err(format!(
            "Invalid arguments; nothing was run. Correct them and call again:\n{}",
            told.join("\n")
        ))
    }
}

/// SHA-256 of the canonical JSON (RFC 8785): equal for arguments that differ in spelling only.
/// RFC 8785 knows doubles alone, in which integers beyond 2^53 run together: those count by
/// their digits.
///
/// # Errors
/// If they have no canonical form.
pub(crate) fn digest(arguments: &Value) -> Result<[u8; 32], String> {
    let canonical = serde_json_canonicalizer::to_vec(&by_digits(arguments))
        .map_err(|error| format!("Invalid arguments: {error}"))?;
    Ok(Sha256::digest(canonical).into())
}

/// The same value with every integer that a double cannot hold as a text that no other value
/// is likely to be.
fn by_digits(value: &Value) -> Value {
    const EXACT_MAX: u64 = 1 << 53;
    match value {
        Value::Number(number) => {
            let integer = number
                .as_u64()
                .or_else(|| number.as_i64().map(i64::unsigned_abs));
            match integer {
                Some(integer) if integer > EXACT_MAX => {
                    Value::String(format!("\0integer {number}"))
                }
                _ => value.clone(),
            }
        }
        Value::Array(items) => items.iter().map(by_digits).collect(),
        Value::Object(members) => members
            .iter()
            .map(|(name, value)| (name.clone(), by_digits(value)))
            .collect(),
        Value::Null | Value::Bool(_) | Value::String(_) => value.clone(),
    }
}

/// Levels of nesting. A value was read by a parser that refuses more than 128.
fn depth(value: &Value) -> usize {
    let inner = match value {
        Value::Array(items) => items.iter().map(depth).max(),
        Value::Object(members) => members.values().map(depth).max(),
        _ => return 0,
    };
    1 + inner.unwrap_or(0)
}

/// A `$ref` that leads back to itself without a step into the instance: checking against it
/// would never end. Follows references by JSON pointer; others are resolved by the compiler.
fn circle(schema: &Value) -> Option<String> {
    let mut places = vec![schema];
    while let Some(place) = places.pop() {
        if let Some(reference) = place.get("$ref").and_then(Value::as_str)
            && let Some(found) = leads_to_itself(schema, place, reference)
        {
            return Some(found);
        }
        match place {
            Value::Array(items) => places.extend(items),
            Value::Object(members) => places.extend(members.values()),
            _ => {}
        }
    }
    None
}

/// All places that are checked against the same instance as `place`, by reference or by
/// combination, without passing one twice.
fn leads_to_itself(root: &Value, start: &Value, reference: &str) -> Option<String> {
    let mut seen: Vec<*const Value> = Vec::new();
    let mut next = vec![start];
    while let Some(place) = next.pop() {
        if !seen.is_empty() && std::ptr::eq(place, start) {
            return Some(reference.to_owned());
        }
        let here = std::ptr::from_ref(place);
        if seen.contains(&here) {
            continue;
        }
        seen.push(here);
        if let Some(pointer) = place.get("$ref").and_then(Value::as_str)
            && let Some(target) = pointer.strip_prefix('#').and_then(|at| root.pointer(at))
        {
            next.push(target);
        }
        for keyword in ["allOf", "anyOf", "oneOf"] {
            if let Some(Value::Array(branches)) = place.get(keyword) {
                next.extend(branches);
            }
        }
        for keyword in ["not", "if", "then", "else"] {
            next.extend(place.get(keyword));
        }
    }
    None
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(TOLD_CHARS_MAX) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn large_integers_do_not_run_together() {
        let digest = |json: &str| digest(&serde_json::from_str(json).unwrap()).unwrap();
        assert_ne!(
            digest(r#"{"n":9007199254740993}"#),
            digest(r#"{"n":9007199254740992}"#)
        );
        assert_ne!(
            digest(r#"{"n":[-9007199254740994]}"#),
            digest(r#"{"n":[-9007199254740993]}"#)
        );
        assert_eq!(digest(r#"{"n":1.0,"m":2}"#), digest(r#"{"m":2,"n":1}"#));
    }

    fn compile(schema: &Value) -> Result<Schema, String> {
        Schema::compile(&schema.to_string())
    }

    #[test]
    fn says_where_and_what_is_allowed() {
        let schema = compile(&json!({
            "type": "object",
            "properties": {
                "month": {"type": "string", "enum": ["may", "june"]},
                "deep": {"type": "object", "properties": {"n": {"type": "integer", "minimum": 3}}},
            },
            "required": ["month"],
            "additionalProperties": false,
        }))
        .unwrap();
        assert!(schema.check(&json!({"month": "may"})).is_ok());
        let told = schema
            .check(&json!({"month": "july", "deep": {"n": 1}}))
            .unwrap_err();
        assert!(
            told.contains("at /month: ") && told.contains("\"june\""),
            "{told}"
        );
        assert!(
            told.contains("at /deep/n: ") && told.contains('3'),
            "{told}"
        );
        let told = schema.check(&json!({"x": 1})).unwrap_err();
        assert!(told.contains("\"month\"") && told.contains("'x'"), "{told}");
        let long = schema
            .check(&json!({"month": "x".repeat(10_000)}))
            .unwrap_err();
        assert!(long.len() < 1_000, "what was sent is quoted in part");
    }

    #[test]
    fn dialects_differ_by_schema() {
        let old = compile(&json!({
            "$schema": "http://json-schema.org/draft-04/schema#",
            "type": "object",
            "properties": {"n": {"type": "number", "minimum": 3, "exclusiveMinimum": true}},
        }))
        .unwrap();
        assert!(old.check(&json!({"n": 3})).is_err());
        assert!(old.check(&json!({"n": 4})).is_ok());
    }

    #[test]
    fn references_stay_inside() {
        let refused = |schema: Value| compile(&schema).err().unwrap_or_default();
        for remote in [
            "http://127.0.0.1:1/x.json",
            "file:///etc/passwd",
            "https://example.com/s",
        ] {
            assert_ne!(
                refused(json!({"type": "object", "$ref": remote})),
                "",
                "{remote}"
            );
        }
        let local = json!({
            "type": "object",
            "$defs": {"tree": {"type": "object", "properties": {
                "left": {"$ref": "#/$defs/tree"}, "right": {"$ref": "#/$defs/tree"}}}},
            "properties": {"tree": {"$ref": "#/$defs/tree"}},
        });
        let schema = compile(&local).unwrap();
        assert!(
            schema
                .check(&json!({"tree": {"left": {"left": {}}}}))
                .is_ok()
        );
        assert!(
            schema
                .check(&json!({"tree": {"left": {"left": 1}}}))
                .is_err()
        );
    }

    #[test]
    fn references_that_lead_to_themselves_are_refused() {
        for schema in [
            json!({"$ref": "#"}),
            json!({"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}),
            json!({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"allOf": [{"$ref": "#/$defs/a"}]}},
                   "properties": {"x": {"$ref": "#/$defs/a"}}}),
        ] {
            let problem = compile(&schema).err().unwrap_or_default();
            assert!(problem.contains("leads to itself"), "{schema}: {problem}");
        }
    }

    #[test]
    fn bombs_are_refused_or_harmless() {
        let mut deep = json!({"type": "object"});
        for _ in 0..100 {
            deep = json!({"allOf": [deep]});
        }
        assert!(compile(&deep).is_err());
        let schema = compile(&json!({
            "type": "object",
            "properties": {"x": {"type": "string", "pattern": "^(a+)+$(?=b)"}},
        }))
        .unwrap();
        let begun = std::time::Instant::now();
        let _ = schema.check(&json!({"x": format!("{}!", "a".repeat(5_000))}));
        assert!(begun.elapsed() < std::time::Duration::from_secs(5));
    }

    #[test]
    fn spelling_does_not_change_the_digest() {
        let read = |text: &str| digest(&serde_json::from_str(text).unwrap()).unwrap();
        assert_eq!(
            read(r#"{"a":1.0,"b":"\u0041"}"#),
            read(r#"{ "b":"A", "a":1 }"#)
        );
        assert_ne!(read(r#"{"a":1}"#), read(r#"{"a":2}"#));
        assert_ne!(read("{}"), read(r#"{"a":null}"#));
    }
}
