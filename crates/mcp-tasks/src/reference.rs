//! The reference of all settings, written from the settings' own doc comments.

use std::fmt::Write as _;

use serde_json::Value;

use crate::config::Config;

/// Markdown: a section a part, a row a setting.
pub fn markdown() -> String {
    let schema = schemars::schema_for!(Config).to_value();
    let defaults = serde_json::to_value(Config::default()).unwrap_or_default();
    let mut page = String::from(
        "# Settings\n\nWritten by `make docs` from the source; do not edit.\n\n\
         One TOML file (`--config FILE` or `MCP_TASKS_CONFIG`), the same for all processes. \
         Environment variables win: `MCP_TASKS__POSTGRES__URL` is `url` in `[postgres]`. \
         Durations are text with a unit (`\"30s\"`, `\"5m\"`). Lists are separated by commas there. Unknown names are refused.\n",
    );
    section(
        &mut page,
        "",
        &resolve(&schema, &schema),
        &defaults,
        &schema,
    );
    page
}

fn section(page: &mut String, path: &str, schema: &Value, defaults: &Value, root: &Value) {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
        return;
    };
    let (mut rows, mut parts) = (String::new(), Vec::new());
    for (name, property) in properties {
        let resolved = resolve(property, root);
        let path = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        let default = defaults.get(name).cloned().unwrap_or(Value::Null);
        let text = |schema: &Value| {
            schema
                .get("description")
                .and_then(Value::as_str)
                .unwrap_or("")
                .replace('\n', " ")
        };
        if resolved.get("properties").is_some() {
            parts.push((path, text(property), resolved, default));
        } else {
            let default = if default.is_null() {
                "–".to_owned()
            } else {
                format!("`{default}`")
            };
            let _ = writeln!(
                rows,
                "| `{name}` | {default} | {}{} |",
                text(property).replace('|', "\\|"),
                allowed(&resolved)
            );
        }
    }
    if !rows.is_empty() {
        let _ = write!(page, "\n| setting | default | |\n|---|---|---|\n{rows}");
    }
    for (path, text, schema, defaults) in parts {
        let _ = write!(page, "\n## `[{path}]`\n\n{text}\n");
        section(page, &path, &schema, &defaults, root);
    }
}

/// The values that a setting may have, where they are few.
fn allowed(schema: &Value) -> String {
    let variants = schema.get("oneOf").and_then(Value::as_array);
    let plain = schema.get("enum").and_then(Value::as_array);
    let values: Vec<String> = variants
        .into_iter()
        .flatten()
        .filter_map(|variant| {
            let value = variant.get("const")?.as_str()?;
            let text = variant
                .get("description")
                .and_then(Value::as_str)
                .unwrap_or("");
            Some(format!(
                "`{value}` ({})",
                text.replace('\n', " ").trim_end_matches('.')
            ))
        })
        .chain(
            plain
                .into_iter()
                .flatten()
                .filter_map(|v| Some(format!("`{}`", v.as_str()?))),
        )
        .collect();
    if values.is_empty() {
        return String::new();
    }
    format!(" One of {}.", values.join(", "))
}

/// The schema behind a `$ref` (or an optional one).
fn resolve(schema: &Value, root: &Value) -> Value {
    let reference = schema
        .get("$ref")
        .or_else(|| schema.pointer("/anyOf/0/$ref"));
    match reference
        .and_then(Value::as_str)
        .and_then(|r| r.strip_prefix('#'))
    {
        Some(pointer) => root.pointer(pointer).cloned().unwrap_or_default(),
        None => schema.clone(),
    }
}
