//! The command line of the load test.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use mcp_tasks_loadtest::load::run::{self, Options, Outcome};
use mcp_tasks_loadtest::load::scenario::Scenario;
use mcp_tasks_loadtest::schedule::Numbers;

/// Puts a system of real processes under load, breaks parts of it as the scenario says, checks every
/// answer, and writes a report. Ends with 1 if an objective was missed.
#[derive(Debug, Parser)]
#[command(name = "mcp-tasks-load", version, about)]
struct Arguments {
    /// What to play.
    #[arg(long, default_value = "loadtest/scenarios/failover.toml")]
    scenario: PathBuf,
    /// The binary that is put under load.
    #[arg(long, default_value = "target/debug/mcp-tasks")]
    binary: PathBuf,
    /// Gateways.
    #[arg(long, default_value_t = 3)]
    gateways: usize,
    /// Workers.
    #[arg(long, default_value_t = 2)]
    workers: usize,
    /// Operations begun each second, instead of the scenario's.
    #[arg(long)]
    rate: Option<f64>,
    /// For how long, instead of the scenario's.
    #[arg(long, value_parser = humantime::parse_duration)]
    duration: Option<std::time::Duration>,
    /// Decides what clients choose.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Folder for report.html, report.json, the history and all logs.
    #[arg(long)]
    keep: Option<PathBuf>,
}

fn main() -> ExitCode {
    match load(Arguments::parse()) {
        Ok(outcome) => {
            print!("{}", outcome.text);
            if outcome.good {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
        Err(error) => {
            eprintln!("mcp-tasks-load: {error}");
            ExitCode::from(2)
        }
    }
}

fn load(arguments: Arguments) -> harness::Result<Outcome> {
    let mut scenario = Scenario::read(&arguments.scenario)?;
    if let Some(rate) = arguments.rate {
        scenario.rate = rate;
    }
    if let Some(duration) = arguments.duration {
        scenario.duration = duration;
    }
    scenario.check().map_err(harness::Error::Other)?;
    let options = Options {
        binary: arguments.binary,
        scenario,
        numbers: Numbers {
            gateways: arguments.gateways,
            workers: arguments.workers,
            crons: 1,
        },
        seed: arguments.seed,
        dir: arguments.keep,
    };
    let runtime = tokio::runtime::Runtime::new();
    let runtime = runtime.map_err(harness::Error::io("start the runtime"))?;
    runtime.block_on(run::run(&options))
}
