//! `mcp-tasks check` and `mcp-tasks config check`: whether a tools file can be served, and settings
//! with all the files that they name can be used.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use tools::file::{Problem, ToolsFile};

use super::{Failure, tools_file};
use crate::Settings;
use crate::config::Config;
use crate::out::outln;

/// What to check.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The tools file; else the one that the settings name (`tools.file`).
    file: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
}

/// Runs `mcp-tasks check`.
///
/// # Errors
/// When there is no file to check.
pub fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let config = crate::config::load(arguments.settings.config.as_deref())?;
    let file = tools_file::named(arguments.file, &config)?;
    let problems = match tools::file::load_within(&file, tools_file::limits(&config.worker)) {
        Ok(read) => {
            let names: Vec<&str> = read.tools.iter().map(|tool| tool.name.as_str()).collect();
            let upstreams = read.upstreams.iter();
            let upstreams = upstreams.map(|one| one.wanted.config.name.as_str());
            let upstreams: Vec<&str> = upstreams.collect();
            for (what, names) in [("tools", names), ("upstream servers", upstreams)] {
                if !names.is_empty() {
                    outln!("{what}: {}", names.join(", "));
                }
            }
            tell_notes(&file, &read, &config);
            read.missing
        }
        Err(problems) => problems.problems,
    };
    for problem in &problems {
        outln!("{}", problem.of(&file));
    }
    match problems.len() {
        0 => {
            outln!("{}: good", file.display());
            return Ok(ExitCode::SUCCESS);
        }
        1 => eprintln!("mcp-tasks: 1 problem"),
        many => eprintln!("mcp-tasks: {many} problems"),
    }
    Ok(ExitCode::FAILURE)
}

/// Runs `mcp-tasks config check`, of settings that do not contradict themselves.
///
/// # Errors
/// Everything that is wrong with the files that they name.
pub fn settings(config: &Config) -> Result<ExitCode, Failure> {
    let mut problems = super::doctor_auth::files(config)?;
    problems.extend(config.gateway.tls.check_files().err());
    problems.extend(super::doctor_alerts::files(config)?);
    if let Some(file) = &config.tools.file {
        let missing = match tools::file::load_within(file, tools_file::limits(&config.worker)) {
            Ok(read) => {
                tell_notes(file, &read, config);
                read.missing
            }
            Err(problems) => problems.problems,
        };
        if missing.is_empty() {
            outln!("{}: good", file.display());
        }
        problems.extend(missing.iter().map(|problem| problem.of(file)));
    }
    if problems.is_empty() {
        outln!("the settings are good");
        return Ok(ExitCode::SUCCESS);
    }
    Err(problems.join("\n").into())
}

/// What works, and perhaps not as it was meant.
fn tell_notes(file: &Path, read: &ToolsFile, config: &Config) {
    if read.tools.is_empty() && read.upstreams.is_empty() {
        eprintln!("note: {}: declares no tools", file.display());
    }
    for note in read.notes.iter().chain(&against(read, config)) {
        eprintln!("note: {}", note.of(file));
    }
}

/// Values that the settings cut short.
fn against(read: &ToolsFile, config: &Config) -> Vec<Problem> {
    let mut notes = Vec::new();
    let mut note = |line: usize, key: String, problem: String| {
        notes.push(Problem { line, key, problem });
    };
    let shown = |duration| humantime::format_duration(duration).to_string();
    for tool in &read.tools {
        let place = format!("{} \"{}\"", tool.source, tool.name);
        let (bytes, most) = (tool.name.len(), config.gateway.limits.tool_name_bytes_max);
        if bytes > most {
            let problem = format!(
                "{bytes} bytes are more than gateway.limits.tool_name_bytes_max ({most}): gateways \
                 with these settings do not serve it"
            );
            note(tool.line, format!("{place}: name"), problem);
        }
        let most = config.worker.stop_grace;
        if let Some((grace, line)) = tool.grace.filter(|(grace, _)| *grace > most) {
            let (grace, most) = (shown(grace), shown(most));
            let problem = format!(
                "{grace} is longer than worker.stop_grace ({most}): a stopped program is killed then"
            );
            note(line, format!("{place}: grace"), problem);
        }
        let most = config.gateway.inline_budget_max;
        let budget = tool.policy.iter().find(|row| row.key == "inline_budget");
        if let Some(line) = budget.and_then(|row| row.line)
            && let Some(text) = budget.and_then(|row| row.value.as_str())
            && humantime::parse_duration(text).is_ok_and(|own| own > most)
        {
            let most = shown(most);
            let problem = format!(
                "{text} is more than gateway.inline_budget_max ({most}), which is what calls are \
                 held open for"
            );
            note(line, format!("{place}: policy.inline_budget"), problem);
        }
    }
    notes
}
