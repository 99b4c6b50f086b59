//! The command line of the chaos harness.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use mcp_tasks_loadtest::run::{self, Options};

/// Attacks a system of real processes and decides whether it kept its promises.
#[derive(Debug, Parser)]
#[command(version, about, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Many clients, and faults from a seeded schedule. The last line is the verdict.
    Chaos(Chaos),
}

#[derive(Debug, clap::Args)]
struct Chaos {
    /// The binary under attack.
    #[arg(long, default_value = "target/debug/mcp-tasks")]
    binary: PathBuf,
    /// How long, e.g. 90s or 10m.
    #[arg(long, default_value = "1m", value_parser = humantime::parse_duration)]
    duration: std::time::Duration,
    /// Decides the faults and what the clients do.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Clients at the same time.
    #[arg(long, default_value_t = 40)]
    clients: u64,
    /// Fail with fewer acknowledged tasks.
    #[arg(long, default_value_t = 0)]
    tasks_min: u64,
    /// Keep history, ledger, configuration and logs in this folder.
    #[arg(long)]
    keep: Option<PathBuf>,
}

fn main() -> ExitCode {
    let Command::Chaos(chaos) = Arguments::parse().command;
    let options = Options {
        binary: chaos.binary,
        duration: chaos.duration,
        seed: chaos.seed,
        clients: chaos.clients,
        tasks_min: chaos.tasks_min,
        keep: chaos.keep,
    };
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error),
    };
    match runtime.block_on(run::run(&options)) {
        Ok(outcome) => {
            print!("{}", outcome.report);
            println!("{}", outcome.verdict);
            if outcome.good {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
        Err(error) => failed(&error),
    }
}

fn failed(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("mcp-tasks-loadtest: {error}");
    ExitCode::FAILURE
}
