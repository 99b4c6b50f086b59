//! The command line of the load test.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use mcp_tasks_loadtest::load::outside::Outside;
use mcp_tasks_loadtest::load::pods::Kubectl;
use mcp_tasks_loadtest::load::run::{self, Options, Outcome};
use mcp_tasks_loadtest::load::scenario::Scenario;
use mcp_tasks_loadtest::schedule::Numbers;

/// Puts a system of real processes under load, breaks parts of it as the scenario says, checks every
/// answer, and writes a report. Ends with 1 if an objective was missed.
#[derive(Debug, Parser)]
#[command(
    name = "mcp-tasks-load",
    version,
    about,
    args_conflicts_with_subcommands = true
)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// What to play.
    #[arg(long, default_value = "loadtest/scenarios/failover.toml")]
    scenario: PathBuf,
    /// The binary that is put under load.
    #[arg(long, default_value = "target/debug/mcp-tasks")]
    binary: PathBuf,
    /// An endpoint of a system that runs already, as http://10.0.0.7:3000/mcp; repeat it for several.
    #[arg(long = "url", value_name = "URL")]
    urls: Vec<String>,
    /// The processes.json of such a system (`make dev` writes one): its gateways are asked, and its
    /// processes can be broken by name.
    #[arg(long, value_name = "FILE")]
    processes: Option<PathBuf>,
    /// File with bearer tokens or API keys, one a line, a principal each. Without it the principals' names
    /// are sent, which development authentication believes.
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,
    /// One such token.
    #[arg(
        long,
        value_name = "TOKEN",
        env = "MCP_TASKS_LOAD_TOKEN",
        hide_env_values = true
    )]
    token: Option<String>,
    /// The file that the chaos tools of such a system write their acts to (`tools.ledger`), if it can be
    /// read from here.
    #[arg(long, value_name = "FILE")]
    ledger: Option<PathBuf>,
    /// An argument of every kubectl, as --kubectl=--namespace=mcp; repeat it for several.
    #[arg(long = "kubectl", value_name = "ARGUMENT", allow_hyphen_values = true)]
    kubectl: Vec<String>,
    /// Gateways of our own.
    #[arg(long, default_value_t = 3)]
    gateways: usize,
    /// Workers of our own.
    #[arg(long, default_value_t = 2)]
    workers: usize,
    /// Operations begun each second, instead of the scenario's.
    #[arg(long, conflicts_with = "clients")]
    rate: Option<f64>,
    /// Clients that never pause, instead of the scenario's rate.
    #[arg(long)]
    clients: Option<usize>,
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

#[derive(Debug, Subcommand)]
enum Command {
    /// Draw the page of a report.json again.
    Report {
        /// The figures of a run.
        json: PathBuf,
        /// The page; without it, beside the figures.
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(Command::Report { json, out }) = &arguments.command {
        return match run::draw(json, out.as_deref()) {
            Ok(page) => {
                println!("report: {}", page.display());
                ExitCode::SUCCESS
            }
            Err(error) => {
                eprintln!("mcp-tasks-load: {error}");
                ExitCode::from(2)
            }
        };
    }
    let outcome = load(arguments);
    match &outcome {
        Ok(outcome) => print!("{}", outcome.text),
        Err(error) => eprintln!("mcp-tasks-load: {error}"),
    }
    ExitCode::from(run::exit_code(&outcome))
}

fn load(arguments: Arguments) -> harness::Result<Outcome> {
    let mut scenario = Scenario::read(&arguments.scenario)?;
    if arguments.rate.is_some() || arguments.clients.is_some() {
        (scenario.rate, scenario.clients) = (arguments.rate, arguments.clients);
    }
    if let Some(duration) = arguments.duration {
        scenario.duration = duration;
    }
    scenario.check().map_err(harness::Error::Other)?;
    let outside = outside(&arguments)?;
    let options = Options {
        binary: arguments.binary,
        outside,
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

/// The system that runs already, if one is named.
fn outside(arguments: &Arguments) -> harness::Result<Option<Outside>> {
    let mut tokens: Vec<String> = arguments.token.iter().cloned().collect();
    if let Some(file) = &arguments.tokens {
        let failed = format!("read {}", file.display());
        let text = std::fs::read_to_string(file).map_err(harness::Error::io(failed))?;
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        tokens.extend(lines.map(str::to_owned));
    }
    if arguments.urls.is_empty() && arguments.processes.is_none() {
        let asked =
            !tokens.is_empty() || arguments.ledger.is_some() || !arguments.kubectl.is_empty();
        let told = "--token, --tokens, --ledger and --kubectl are for a system that --url or --processes names";
        return if asked {
            Err(harness::Error::Other(told.to_owned()))
        } else {
            Ok(None)
        };
    }
    Ok(Some(Outside {
        urls: arguments.urls.clone(),
        tokens,
        processes: arguments.processes.clone(),
        ledger: arguments.ledger.clone(),
        kubectl: Kubectl {
            arguments: arguments.kubectl.clone(),
            program: None,
        },
    }))
}
