//! Schemas in a tools file: JSON Schemas, compiled when the file is read.

use serde_json::Value;

use super::reader::Section;

/// A schema that compiles.
pub(super) struct Schema {
    pub(super) json: Value,
    pub(super) validator: jsonschema::Validator,
}

impl Schema {
    /// Names of the properties that it speaks of.
    pub(super) fn names(&self) -> Vec<String> {
        let properties = self.json.get("properties").and_then(Value::as_object);
        let names = properties
            .into_iter()
            .flat_map(|properties| properties.keys());
        names.cloned().collect()
    }
}

/// Reads and compiles the schema under `key`.
pub(super) fn read(section: &Section<'_, '_>, key: &'static str) -> Option<Schema> {
    let json = section.json(key)?;
    if !json.is_object() {
        section.problem(section.at(key), key, "is no JSON Schema: it is no object");
        return None;
    }
    match jsonschema::options().offline().build(&json) {
        Ok(validator) => Some(Schema { json, validator }),
        Err(error) => {
            let problem = format!("is no JSON Schema: {error}");
            section.problem(section.at(key), key, problem);
            None
        }
    }
}
