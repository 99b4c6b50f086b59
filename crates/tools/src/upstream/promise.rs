//! What a server promises of its tool's structured content, and whether it keeps it
//! (MCP 2026-07-28 §Tools, Output Schema: clients should check).

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;
use serde_json::value::RawValue;
use worker::CallToolResult;

/// Patterns whose automata are larger are refused (bytes).
const PATTERN_BYTES_MAX: usize = 1024 * 1024;

/// An `outputSchema`. One with references is not checked: whoever wrote it may have them lead in
/// circles, and clients check it too.
pub(super) struct Promise(Option<Validator>);

impl Promise {
    /// # Errors
    /// In words, if it is no schema.
    pub(super) fn read(schema: Option<&RawValue>) -> Result<Self, String> {
        let Some(schema) = schema else {
            return Ok(Self(None));
        };
        let value: Value = serde_json::from_str(schema.get())
            .map_err(|error| format!("outputSchema cannot be read: {error}"))?;
        if !value.is_object() {
            return Err("outputSchema must be an object".to_owned());
        }
        if ["$ref", "$dynamicRef", "$recursiveRef"]
            .iter()
            .any(|word| schema.get().contains(word))
        {
            return Ok(Self(None));
        }
        jsonschema::options()
            .offline()
            .with_pattern_options(PatternOptions::regex().size_limit(PATTERN_BYTES_MAX))
            .build(&value)
            .map(|validator| Self(Some(validator)))
            .map_err(|error| format!("outputSchema is no JSON Schema: {error}"))
    }

    /// # Errors
    /// In words, if a result does not keep it. One that says that the tool failed need not.
    pub(super) fn check(&self, result: &CallToolResult) -> Result<(), String> {
        let Some(validator) = self.0.as_ref().filter(|_| !result.is_error) else {
            return Ok(());
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
