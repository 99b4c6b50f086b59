//! The command line of the flood measurement.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use harness::Result;
use mcp_tasks_loadtest::flood::latency::{Flood, generate, quiet};
use mcp_tasks_loadtest::flood::memory::{self, Kind};
use mcp_tasks_loadtest::flood::target::Target;

/// Floods a gateway of its own and tells what another principal notices, and what memory it takes.
/// Ends with 1 if a target was missed.
#[derive(Debug, Parser)]
#[command(name = "mcp-tasks-flood", version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// The binary that is flooded.
    #[arg(long, default_value = "target/release/mcp-tasks")]
    binary: PathBuf,
    /// For how long each thing is measured.
    #[arg(long, default_value = "10s", value_parser = humantime::parse_duration)]
    time: Duration,
    /// What the flooding principal may send, a second; it sends five times that.
    #[arg(long, default_value_t = 1_000)]
    bucket: u32,
    /// Leave out the floods of memory.
    #[arg(long)]
    latency_only: bool,
    /// Connections of each flood of memory, divided by this.
    #[arg(long, default_value_t = 1)]
    smaller: usize,
    /// More memory than this, in MiB, misses the target.
    #[arg(long, default_value_t = 700)]
    memory_max: u64,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Only sends (what the measurement starts of itself, on one core).
    Generate {
        /// Where to.
        #[arg(long)]
        at: SocketAddr,
        /// Requests a second.
        #[arg(long)]
        rate: u64,
    },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let mut builder = match arguments.command {
        Some(Command::Generate { .. }) => tokio::runtime::Builder::new_current_thread(),
        None => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = match builder.enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("mcp-tasks-flood: {error}");
            return ExitCode::FAILURE;
        }
    };
    let done = runtime.block_on(async {
        match arguments.command {
            Some(Command::Generate { at, rate }) => generate(at, rate).await.map(|()| true),
            None => measure(&arguments).await,
        }
    });
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("mcp-tasks-flood: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether all targets were met.
async fn measure(arguments: &Arguments) -> Result<bool> {
    let mut met = latency(arguments).await?;
    if !arguments.latency_only {
        met &= memory(&arguments.binary, arguments).await?;
    }
    Ok(met)
}

async fn latency(arguments: &Arguments) -> Result<bool> {
    let bucket = arguments.bucket;
    let settings = format!(
        "[gateway.limits]\nrequests_of_principal_per_second = {bucket}\n\
         requests_of_principal_burst = {bucket}"
    );
    let target = Target::start(&arguments.binary, &settings).await?;
    // Everything is warm.
    quiet(&target, Duration::from_secs(2)).await?;
    let before = quiet(&target, arguments.time).await?;
    println!("quiet:        {before}");
    let flood = Flood::start(&target, 5 * u64::from(bucket))?;
    // What it may send at once after a rest is over.
    tokio::time::sleep(Duration::from_secs(4)).await;
    let requests = "mcp_tasks_gateway_requests_total";
    let (before_it, begun) = (target.metric(requests).await?, Instant::now());
    let during = quiet(&target, arguments.time).await?;
    let came = (target.metric(requests).await? - before_it) / begun.elapsed().as_secs_f64();
    drop(flood);
    println!("in the flood: {during}");
    // Else the quiet one was quiet because nobody flooded.
    if came < 4.5 * f64::from(bucket) {
        println!("no more than {came:.0} requests a second came: no flood");
        return Ok(false);
    }
    let allowed = (before.p99 * 2).max(before.p99 + Duration::from_millis(5));
    let met = during.p99 <= allowed && during.refused == 0;
    println!(
        "p99 {:.2} ms, allowed {:.2} ms: {}",
        during.p99.as_secs_f64() * 1e3,
        allowed.as_secs_f64() * 1e3,
        if met { "met" } else { "missed" }
    );
    Ok(met)
}

async fn memory(binary: &Path, arguments: &Arguments) -> Result<bool> {
    const MIB: u64 = 1024 * 1024;
    let mut met = true;
    for (kind, connections) in Kind::ALL {
        let target = match kind {
            Kind::Hellos | Kind::Records => Target::encrypted(binary).await?,
            _ => Target::start(binary, "").await?,
        };
        let connections = connections / arguments.smaller.max(1);
        let taken = memory::flood(&target, (kind, connections), memory::HELD).await?;
        let fits = taken.most <= arguments.memory_max * MIB;
        met &= fits && taken.seen.is_none_or(|seen| seen.refused == 0);
        // Who was sent away took nothing.
        if kind.is_kept() && taken.connections * 100 < connections as u64 * 95 {
            println!(
                "  only {} of them were there at once: no flood",
                taken.connections
            );
            met = false;
        }
        let others = taken.seen.map(|seen| format!("; others: {seen}"));
        println!(
            "{kind:?} over {connections} connections: {} MiB before, {} MiB at most{}{}",
            taken.before / MIB,
            taken.most / MIB,
            if fits { "" } else { " (missed)" },
            others.unwrap_or_default()
        );
    }
    Ok(met)
}
