//! The reference of a tools file's keys, from the tables that the file is read by.

use std::fmt::Write as _;

use super::command::COMMAND;
use super::policy::POLICY;
use super::reader::Key;

/// Markdown tables of all keys, each with the name of its place in the page.
#[must_use]
pub fn tables() -> [(&'static str, String); 2] {
    [("command", rows(COMMAND)), ("policy", policy())]
}

fn rows(keys: &[Key]) -> String {
    let mut table = "| key | allowed | |\n|---|---|---|\n".to_owned();
    for key in keys {
        let _ = writeln!(table, "| `{}` | {} | {} |", key.name, key.allowed, key.text);
    }
    table
}

fn policy() -> String {
    let (_, values) = super::policy::effective(&[]);
    let mut table = "| key | default | allowed | |\n|---|---|---|---|\n".to_owned();
    for (key, value) in POLICY.iter().zip(values) {
        let default = match value.value {
            serde_json::Value::Null => "–".to_owned(),
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
