//! `mcp-tasks`: durable task handles for MCP tools. One binary, three processes, and the
//! commands around them.

mod commands;
mod config;
mod lifecycle;
mod load;
mod metrics;
mod monitor;
mod out;
mod reference;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::out::out;

/// Durable task handles for MCP tools.
#[derive(Debug, Parser)]
#[command(version, about, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

/// Where the settings are.
#[derive(Debug, clap::Args)]
struct Settings {
    /// Configuration file (TOML). Environment variables win over it: MCP_TASKS__POSTGRES__URL
    /// is postgres.url.
    #[arg(long, env = "MCP_TASKS_CONFIG")]
    config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run everything on this machine: a private Postgres and Redis, gateways, workers, cron.
    Dev(commands::dev::Options),
    /// Serve MCP.
    Gateway(Settings),
    /// Run tools.
    Worker(commands::worker::Options),
    /// Keep the promises that no request is around to keep.
    Cron(CronOptions),
    /// Bring the schema up to what this binary needs.
    Migrate(commands::migrate::Options),
    /// Ask a process on this machine how it is, at its admin address. For health checks of containers.
    Health(commands::health::Arguments),
    /// Check a tools file; says everything that is wrong with it.
    Check(commands::check::Arguments),
    /// Look at anybody's tasks, and act on them. For operators.
    Tasks {
        #[command(subcommand)]
        what: commands::tasks::Command,
    },
    /// Look at tools; take one out of service, and back. For operators.
    Tools {
        #[command(subcommand)]
        what: commands::tools::Command,
    },
    /// Show who runs jobs. For operators.
    Workers(commands::operator::Options),
    /// Show what waits, runs and is parked. For operators.
    Queues(commands::operator::Options),
    /// Check what the system stands on, and say what to do. For operators.
    Doctor(commands::doctor::Arguments),
    /// Show what operators did. For operators.
    Audit {
        #[command(subcommand)]
        what: commands::audit::Command,
    },
    /// Keep a tool's external command on the lease of its worker. Workers start this themselves.
    #[command(hide = true)]
    Supervise {
        /// The command.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        _command: Vec<OsString>,
    },
    /// Look at the settings.
    Config {
        #[command(subcommand)]
        what: ConfigCommand,
    },
}

#[derive(Debug, clap::Args)]
struct CronOptions {
    #[command(flatten)]
    settings: Settings,
    #[command(subcommand)]
    what: Option<CronCommand>,
}

#[derive(Debug, Subcommand)]
enum CronCommand {
    /// Run sweeps once and exit, e.g. from a Kubernetes CronJob.
    Run {
        /// The sweeps, in this order.
        #[arg(required = true)]
        sweeps: Vec<String>,
        #[command(flatten)]
        operator: commands::operator::Options,
    },
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Check the settings, and the tools file that they name; says everything that is wrong.
    Check(Settings),
    /// Print the settings in force, defaults included; passwords and keys are hidden.
    Show(Settings),
    /// Print the reference of all settings (Markdown).
    Reference,
}

fn main() -> ExitCode {
    if let Some(code) = worker::process::supervise_if_asked() {
        return code;
    }
    match run(Arguments::parse().command) {
        Ok(code) => code,
        Err(error) => {
            report(&*error);
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<ExitCode, commands::Failure> {
    match command {
        Command::Dev(options) => commands::dev::run(options),
        Command::Gateway(settings) => {
            commands::gateway::run(config::load(settings.config.as_deref())?)
        }
        Command::Worker(options) => commands::worker::run(options),
        Command::Check(arguments) => commands::check::run(arguments),
        Command::Cron(CronOptions { settings, what }) => match what {
            None => commands::cron::run(config::load(settings.config.as_deref())?),
            Some(CronCommand::Run {
                sweeps,
                mut operator,
            }) => {
                operator.settings.config = operator.settings.config.or(settings.config);
                commands::cron_run::run(&sweeps, &operator)
            }
        },
        Command::Migrate(options) => {
            commands::migrate::run(config::load(options.config.as_deref())?, &options)
        }
        Command::Health(arguments) => commands::health::run(&arguments),
        Command::Tasks { what } => commands::tasks::run(what),
        Command::Tools { what } => commands::tools::run(what),
        Command::Workers(options) => commands::workers::run(&options),
        Command::Queues(options) => commands::queues::run(&options),
        Command::Doctor(arguments) => commands::doctor::run(&arguments),
        Command::Audit { what } => commands::audit::run(what),
        // A worker's own way of asking was answered by `main`.
        Command::Supervise { .. } => {
            Err("supervise is started by workers, for their commands".into())
        }
        Command::Config { what } => {
            match what {
                ConfigCommand::Check(settings) => {
                    let config = config::load(settings.config.as_deref())?;
                    return commands::check::settings(&config);
                }
                ConfigCommand::Show(settings) => {
                    out!(
                        "{}",
                        config::show(&config::load(settings.config.as_deref())?)?
                    );
                }
                ConfigCommand::Reference => out!("{}", reference::markdown()),
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// An error with all its causes, once.
fn report(error: &(dyn std::error::Error + 'static)) {
    eprintln!("mcp-tasks: {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        eprintln!("  because: {error}");
        cause = error.source();
    }
}
