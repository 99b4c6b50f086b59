//! `mcp-tasks check`: whether a tools file can be served.

use std::path::PathBuf;
use std::process::ExitCode;

use super::{Failure, tools_file};
use crate::Settings;
use crate::out::outln;

/// What to check.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The tools file; else the one that the settings name (`tools.file`).
    file: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
}

/// Runs the command.
///
/// # Errors
/// When there is no file to check.
pub fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let config = crate::config::load(arguments.settings.config.as_deref())?;
    let file = tools_file::named(arguments.file, &config)?;
    match tools::file::load_within(&file, tools_file::limits(&config.worker)) {
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
            outln!("{}: good", file.display());
            Ok(ExitCode::SUCCESS)
        }
        Err(problems) => {
            outln!("{problems}");
            eprintln!("mcp-tasks: {} problems", problems.problems.len());
            Ok(ExitCode::FAILURE)
        }
    }
}
