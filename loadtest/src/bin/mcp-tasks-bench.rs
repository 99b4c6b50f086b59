//! The command line of the bench.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use harness::Error;
use mcp_tasks_loadtest::bench::peers::{self, Places};
use mcp_tasks_loadtest::bench::run::{self, Options};
use mcp_tasks_loadtest::bench::{capacity, history, table};

/// Measures what the system does a second, each work beside its baseline in the same minute: `pgbench`
/// on the same table. Ends with 1 if a target was missed, with 2 if something could not be measured.
#[derive(Debug, Parser)]
#[command(name = "mcp-tasks-bench", version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    how: How,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// The table of works with their ratios, targets and verdicts (what is done without a command).
    Table,
    /// What a task costs: bytes, journal, memory, connections, processor time.
    Capacity,
    /// Other servers with task handles, under the same clients: ours divided by theirs.
    Peers(Peers),
}

#[derive(Debug, clap::Args)]
struct Peers {
    /// The folder with `peer-rmcp` and `peer-tower-mcp`.
    #[arg(long, default_value = "target/release")]
    programs: PathBuf,
    /// A Python that has `fastmcp` and `fastmcp-tasks`.
    #[arg(long, default_value = ".tools/python-fastmcp/bin/python")]
    python: PathBuf,
    /// The folder with `fastmcp_server.py`.
    #[arg(long, default_value = "loadtest/peers")]
    scripts: PathBuf,
    /// Fail if one of them is not there.
    #[arg(long)]
    all: bool,
}

#[derive(Debug, clap::Args)]
struct How {
    /// The binary that is measured.
    #[arg(long, global = true, default_value = "target/release/mcp-tasks")]
    binary: PathBuf,
    /// Works to measure, separated by commas, instead of all; inline, gateways, listens and soak stand for
    /// two each.
    #[arg(long, global = true, value_delimiter = ',', value_parser = work)]
    only: Vec<String>,
    /// Rows in the table, as 100k or 1M.
    #[arg(long, global = true, default_value = "100k", value_parser = count)]
    base_rows: u64,
    /// Also measure reads with so many rows in the table, as 10M (what rows_10m has by itself).
    #[arg(long, global = true, value_parser = count)]
    rows: Option<u64>,
    /// How long each measurement takes; with `--only soak`, how long that does.
    #[arg(long, global = true, default_value = "5s", value_parser = humantime::parse_duration)]
    time: Duration,
    /// Pairs of measurements of each work.
    #[arg(long, global = true, default_value_t = 3)]
    repeats: usize,
    /// Connections of our clients.
    #[arg(long, global = true, default_value_t = 64)]
    connections: usize,
    /// Clients of pgbench.
    #[arg(long, global = true, default_value_t = 32)]
    clients: usize,
    /// Open listens.
    #[arg(long, global = true, default_value = "10k", value_parser = count)]
    listens: u64,
    /// Also soak, for so long.
    #[arg(long, global = true, value_parser = humantime::parse_duration)]
    soak: Option<Duration>,
    /// Everything as short as it can be: whether it runs, and no figure that means anything.
    #[arg(long, global = true)]
    quick: bool,
    /// Where the ratios of recorded runs are.
    #[arg(long, global = true, default_value = "loadtest/history.jsonl")]
    history: PathBuf,
    /// Add this run's ratios to the history.
    #[arg(long, global = true, conflicts_with = "quick")]
    record: bool,
    /// Write everything to this file (JSON).
    #[arg(long, global = true)]
    json: Option<PathBuf>,
}

/// How long a measurement takes if nothing else is said.
const USUAL: Duration = Duration::from_secs(5);

fn work(key: &str) -> Result<String, String> {
    if !table::named(key).is_empty() {
        return Ok(key.to_owned());
    }
    let groups = table::GROUPS.map(|(group, _)| group);
    let works = table::ALL.map(|work| work.key);
    let known = [&works[..], &groups[..]].concat().join(", ");
    Err(format!("known are {known}"))
}

/// A whole number, with `k` for thousands and `M` for millions.
fn count(text: &str) -> Result<u64, String> {
    let (digits, times) = match text.strip_suffix(['k', 'M']) {
        Some(digits) if text.ends_with('k') => (digits, 1_000),
        Some(digits) => (digits, 1_000_000),
        None => (text, 1),
    };
    let number = digits
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(times));
    match number {
        Some(1..=100_000_000) => Ok(number.unwrap_or_default()),
        _ => Err("a number from 1 to 100M is needed, such as 5000, 100k or 10M".to_owned()),
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match bench(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("mcp-tasks-bench: {error}");
            ExitCode::from(2)
        }
    }
}

/// Whether all targets were met.
fn bench(arguments: &Arguments) -> harness::Result<bool> {
    let how = &arguments.how;
    if how.time < Duration::from_secs(1)
        || how.repeats == 0
        || how.connections == 0
        || how.clients == 0
    {
        let told = "--time must be at least 1s; --repeats, --connections and --clients at least 1";
        return Err(Error::Other(told.to_owned()));
    }
    if how.record && cfg!(debug_assertions) {
        let told = "--record is for a build with optimisation: make bench ARGS=--record";
        return Err(Error::Other(told.to_owned()));
    }
    let mut options = Options {
        binary: how.binary.clone(),
        rows: how.base_rows,
        many: how.rows,
        time: how.time,
        repeats: how.repeats,
        connections: how.connections,
        clients: how.clients,
        listens: how.listens,
        soak: how.soak,
        only: how
            .only
            .iter()
            .flat_map(|name| table::named(name))
            .map(str::to_owned)
            .collect(),
    }
    .soak_only(USUAL);
    if how.quick {
        options = options.quick();
    }
    // One thread: clients leave the cores to what they measure.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(Error::io("start the runtime"))?;
    match &arguments.command {
        Some(Command::Capacity) => {
            print!("{}", runtime.block_on(capacity::measure(&options))?);
            return Ok(true);
        }
        Some(Command::Peers(at)) => {
            let places = Places {
                programs: at.programs.clone(),
                python: at.python.clone(),
                scripts: at.scripts.clone(),
            };
            print!(
                "{}",
                runtime.block_on(peers::measure(&options, &places, at.all))?
            );
            return Ok(true);
        }
        Some(Command::Table) | None => {}
    }
    let report = runtime.block_on(run::run(&options))?;
    print!("{}", report.text());
    if let Some(file) = &how.json {
        let text = format!("{:#}\n", report.json());
        std::fs::write(file, text).map_err(Error::io(format!("write {}", file.display())))?;
    }
    if how.quick {
        if let Some((work, why)) = report.failed.first_key_value() {
            return Err(Error::Other(format!("{work}: {why}")));
        }
        let failed = report.rows.iter().find(|row| row.errors > 0);
        if let Some(row) = failed {
            return Err(Error::Other(format!("{}: {:?}", row.key, row.notes)));
        }
        println!("a quick run: all of it works, and no figure above means anything");
        return Ok(true);
    }
    print!("{}", history::compare(&how.history, &report)?);
    if how.record {
        history::record(&how.history, &report)?;
        println!("recorded in {}", how.history.display());
    }
    if let Some((work, why)) = report.failed.first_key_value() {
        return Err(Error::Other(format!("{work} could not be measured: {why}")));
    }
    Ok(report.rows.iter().all(|row| row.met() != Some(false)))
}
