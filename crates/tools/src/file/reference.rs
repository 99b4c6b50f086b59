//! The reference of a tools file's keys, from what the file is read by.

use std::fmt::Write as _;

use serde_json::Value;

use super::command_keys::COMMAND;
use super::http_keys::HTTP;
use super::policy_keys::POLICY;
use super::reader::Key;
use crate::upstream::UpstreamConfig;

/// Markdown tables of all keys, each with the name of its place in the page.
#[must_use]
pub fn tables() -> [(&'static str, String); 4] {
    [
        ("command", rows(COMMAND)),
        ("http", rows(HTTP)),
        ("upstream", upstream()),
        ("policy", policy()),
    ]
}

fn rows(keys: &[Key]) -> String {
    let mut table = "| key | allowed | |\n|---|---|---|\n".to_owned();
    for key in keys {
        let _ = writeln!(table, "| `{}` | {} | {} |", key.name, key.allowed, key.text);
    }
    table
}

/// From the doc comments of the settings.
fn upstream() -> String {
    let schema = schemars::schema_for!(UpstreamConfig).to_value();
    let needed = schema["required"].as_array().cloned().unwrap_or_default();
    let keys = schema["properties"].as_object().into_iter().flatten();
    let mut table = "| key | default | |\n|---|---|---|\n".to_owned();
    for (name, key) in keys {
        let default = match &key["default"] {
            _ if needed.iter().any(|needed| needed == name) => "needed".to_owned(),
            Value::Null => "–".to_owned(),
            default => format!("`{default}`"),
        };
        let text = key["description"].as_str().unwrap_or_default();
        let text = text.replace('\n', " ").replace('|', "\\|");
        let _ = writeln!(table, "| `{name}` | {default} | {text} |");
    }
    let policy = "What differs from `[defaults]`, for all its tools; see [policies](#policies)";
    let _ = writeln!(table, "| `policy` | – | {policy} |");
    table
}

fn policy() -> String {
    let (_, values) = super::policy::effective(&[]);
    let mut table = "| key | default | allowed | |\n|---|---|---|---|\n".to_owned();
    for (key, value) in POLICY.iter().zip(values) {
        let default = match value.value {
            Value::Null => "–".to_owned(),
            value => format!("`{value}`"),
        };
        let _ = writeln!(
            table,
            "| `{}` | {default} | {} | {} |",
            key.name, key.allowed, key.text
        );
    }
    table
}
