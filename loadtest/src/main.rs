//! The command line of the chaos harness.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use mcp_tasks_loadtest::judgement;
use mcp_tasks_loadtest::run::{self, Options};
use mcp_tasks_loadtest::sabotage::{self, Sabotage, drill};
use mcp_tasks_loadtest::schedule;

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
    /// Lists the faults of a run without running it.
    Plan {
        /// How long the run would be.
        #[arg(long, default_value = "1m", value_parser = humantime::parse_duration)]
        duration: std::time::Duration,
        /// Decides the faults.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Judges a run that was kept (`chaos --keep DIR`) once more.
    Check {
        /// Its folder.
        dir: PathBuf,
    },
    /// Breaks every promise once, on purpose, and fails unless each breach is found as what it is.
    Sabotage(Drill),
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
    /// Break one promise on purpose, by triggers in the run's own database: it must be found.
    #[arg(long, value_parser = sabotage_named)]
    sabotage: Option<&'static Sabotage>,
}

#[derive(Debug, clap::Args)]
struct Drill {
    /// The binary under attack.
    #[arg(long, default_value = "target/debug/mcp-tasks")]
    binary: PathBuf,
    /// For how long clients begin something new.
    #[arg(long, default_value = "10s", value_parser = humantime::parse_duration)]
    duration: std::time::Duration,
    /// Decides what the clients do.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Keep histories, ledger, configuration and logs in this folder.
    #[arg(long)]
    keep: Option<PathBuf>,
}

fn sabotage_named(name: &str) -> Result<&'static Sabotage, String> {
    let names = || sabotage::all().iter().map(|sabotage| sabotage.name);
    let known = || format!("one of {}", names().collect::<Vec<_>>().join(", "));
    sabotage::find(name).ok_or_else(known)
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Chaos(chaos) => attack(chaos),
        Command::Plan { duration, seed } => {
            for planned in schedule::plan(seed, duration, run::NUMBERS) {
                println!("{:>6.1} s  {}", planned.at.as_secs_f64(), planned.fault);
            }
            Ok(true)
        }
        Command::Check { dir } => check(&dir),
        Command::Sabotage(drill) => break_all(drill),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("mcp-tasks-loadtest: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether it went well.
fn attack(chaos: Chaos) -> harness::Result<bool> {
    let options = Options {
        binary: chaos.binary,
        duration: chaos.duration,
        seed: chaos.seed,
        clients: chaos.clients,
        tasks_min: chaos.tasks_min,
        keep: chaos.keep,
        sabotage: chaos.sabotage,
    };
    let runtime = tokio::runtime::Runtime::new();
    let runtime = runtime.map_err(harness::Error::io("start the runtime"))?;
    let outcome = runtime.block_on(run::run(&options))?;
    print!("{}", outcome.report);
    println!("{}", outcome.verdict);
    Ok(outcome.good)
}

/// Whether all was found.
fn break_all(drill: Drill) -> harness::Result<bool> {
    let options = drill::Options {
        binary: drill.binary,
        duration: drill.duration,
        seed: drill.seed,
        keep: drill.keep,
    };
    let runtime = tokio::runtime::Runtime::new();
    let runtime = runtime.map_err(harness::Error::io("start the runtime"))?;
    let outcome = runtime.block_on(drill::run(&options))?;
    print!("{}", outcome.report);
    println!("{}", outcome.verdict);
    Ok(outcome.good)
}

/// Whether no promise was broken.
fn check(dir: &Path) -> harness::Result<bool> {
    let judgement = judgement::of_folder(dir)?;
    print!("{}", judgement.report);
    println!("check: violations={}", judgement.violations);
    Ok(judgement.violations == 0)
}
