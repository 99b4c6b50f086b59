//! `mcp-tasks tools show`: the policy of a tool in force, and where each value comes from: the tools
//! file, the tool's own code, the settings, or nobody.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};
use tools::file::{Effective, ToolsFile, of_code};

use super::Failure;
use super::operator::{self, Desk, Options, Output, object, table};
use crate::config::Config;
use crate::out::{out, outln};

/// A tool that was found.
struct Found {
    source: String,
    /// The file that declares it, and on which line.
    file: Option<(PathBuf, usize)>,
    values: Vec<Effective>,
    /// What is not known of it.
    note: Option<String>,
}

/// Shows a tool of the tools file; one that is in none is looked for among those that workers serve.
///
/// # Errors
/// When there is no such tool, or it cannot be looked for.
pub fn run(name: &str, file: Option<PathBuf>, options: &Options) -> Result<ExitCode, Failure> {
    let config = crate::config::load(options.settings.config.as_deref())?;
    let file = file.or_else(|| config.tools.file.clone());
    let read = file.as_deref().map(tools::file::load).transpose()?;
    let in_file = file.as_deref().zip(read.as_ref());
    if let Some(found) = in_file.and_then(|(file, read)| of_file(name, file, read)) {
        return Ok(show(name, &found, &config, options.output));
    }
    let none = match in_file {
        Some((file, read)) => {
            let names = read.tools.iter().map(|tool| tool.name.clone());
            let upstreams = read.upstreams.iter().map(|one| {
                let config = &one.wanted.config;
                format!("those of upstream \"{}\" ({}…)", config.name, config.prefix)
            });
            let names: Vec<String> = names.chain(upstreams).collect();
            let names = match names.is_empty() {
                true => "none".to_owned(),
                false => names.join(", "),
            };
            format!("{} has no tool \"{name}\"; it has {names}", file.display())
        }
        None => "no tools file is named (--tools, or tools.file of the settings)".to_owned(),
    };
    let asked = operator::run(options, true, async |desk| of_fleet(desk, name).await);
    asked.map_err(|error| {
        let error = super::chain(&*error);
        format!("{none}; and among the tools that workers serve: {error}").into()
    })
}

fn of_file(name: &str, file: &Path, read: &ToolsFile) -> Option<Found> {
    let policy = read.policy(name)?;
    Some(Found {
        source: policy.source.to_owned(),
        file: Some((file.to_owned(), policy.line)),
        values: policy.values,
        note: (policy.source == "upstream")
            .then(|| format!("whether the server has a tool \"{name}\" is not known here")),
    })
}

/// What workers have published: tools of Rust code say their policies themselves.
async fn of_fleet(desk: &Desk, name: &str) -> Result<ExitCode, Failure> {
    let tools = desk.store.tools().await?;
    let Some(tool) = tools.iter().find(|tool| tool.spec.name() == name) else {
        return Err(format!("there is no \"{name}\"").into());
    };
    let found = Found {
        source: format!("worker, version {}", tool.spec.version),
        file: None,
        values: of_code(&tool.spec.policy),
        note: None,
    };
    Ok(show(name, &found, &desk.config, desk.output))
}

fn show(name: &str, found: &Found, config: &Config, output: Output) -> ExitCode {
    let place = |line: usize| {
        let (file, _) = found.file.as_ref()?;
        Some(format!("{}:{line}", file.display()))
    };
    let row = |row: &Effective| {
        let (value, from, place) = match in_force(row, &found.values, config) {
            Some((value, place)) => (value, "settings", Some(place.to_owned())),
            None => (
                row.value.clone(),
                row.from.as_str(),
                row.line.and_then(place),
            ),
        };
        object([
            ("policy", json!(row.key)),
            ("value", value),
            ("from", json!(from)),
            ("place", json!(place)),
        ])
    };
    let rows: Vec<Value> = found.values.iter().map(row).collect();
    let place = found.file.as_ref().and_then(|(_, line)| place(*line));
    match output {
        Output::Json => outln!(
            "{:#}",
            json!({
                "tool": name, "source": found.source, "place": place, "policy": rows,
                "note": found.note,
            })
        ),
        Output::Table => {
            let place = place.map(|place| format!(", {place}")).unwrap_or_default();
            outln!("{name}: {}{place}", found.source);
            if let Some(note) = &found.note {
                outln!("({note})");
            }
            out!("{}", table(&["policy", "value", "from", "place"], &rows));
        }
    }
    ExitCode::SUCCESS
}

/// What the settings say, where they decide: of a value that nobody has set, and of a budget that
/// is above the ceiling.
fn in_force(row: &Effective, all: &[Effective], config: &Config) -> Option<(Value, &'static str)> {
    let (gateway, said) = (&config.gateway, &row.value);
    let duration = |duration| json!(humantime::format_duration(duration).to_string());
    if row.key == "inline_budget"
        && let Some(budget) = said.as_str()
        && humantime::parse_duration(budget).is_ok_and(|own| own > gateway.inline_budget_max)
    {
        let ceiling = duration(gateway.inline_budget_max);
        return Some((ceiling, "gateway.inline_budget_max"));
    }
    if !said.is_null() {
        return None;
    }
    Some(match row.key {
        "inline_budget" => (duration(gateway.inline_budget), "gateway.inline_budget"),
        "call_limit" => (duration(gateway.call_limit), "gateway.call_limit"),
        "poll_min" => (duration(gateway.poll_min), "gateway.poll_min"),
        "poll_max" => (duration(gateway.poll_max), "gateway.poll_max"),
        "alert_after" => (
            duration(config.alerts.unfetched_after),
            "alerts.unfetched_after",
        ),
        "argument_bytes_max" => (
            json!(gateway.limits.argument_bytes_max),
            "gateway.limits.argument_bytes_max",
        ),
        "result_bytes_max" => (
            json!(config.worker.result_bytes_max),
            "worker.result_bytes_max",
        ),
        "ttl" => (duration(ttl_needed(all)?), "the sum of what it covers"),
        _ => return None,
    })
}

/// The TTL that covers everything else.
fn ttl_needed(all: &[Effective]) -> Option<Duration> {
    let mut policy = json!({});
    for row in all.iter().filter(|row| !row.value.is_null()) {
        match row.key.split_once('.') {
            Some((table, key)) => policy[table][key] = row.value.clone(),
            None => policy[row.key] = row.value.clone(),
        }
    }
    let policy: worker::ToolPolicy = serde_json::from_value(policy).ok()?;
    Some(policy.ttl_needed())
}
