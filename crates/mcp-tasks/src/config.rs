//! All settings: one documented struct a part, read from one file and the environment.

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// All settings. Every process reads the same file and uses its own sections.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Where tasks live.
    pub postgres: store::Config,
    /// Where hints live.
    pub redis: queue::config::Config,
    /// The front door.
    pub gateway: gateway::Config,
    /// Who is calling.
    pub auth: gateway::auth::Config,
    /// Running tools.
    pub worker: worker::Config,
    /// What the worker serves.
    pub tools: Tools,
    /// Sweeps.
    pub cron: cron::Config,
    /// Log output.
    pub logs: telemetry::config::Logs,
    /// Trace export.
    pub traces: telemetry::config::Traces,
    /// Metrics and probes.
    pub admin: telemetry::config::Admin,
}

/// Which tools the stock worker serves.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Tools {
    /// Serve the demo tools (`build_report`, `run_suite`, `reindex_corpus`).
    pub demo: bool,
    /// Serve test fixtures: `conformance` for those of the official conformance runner.
    pub fixtures: Option<Fixtures>,
}

/// A set of test fixtures.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema, clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum Fixtures {
    /// What the official conformance runner expects of a server.
    Conformance,
}

/// Settings that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// They cannot be read.
    #[error("the settings cannot be read")]
    Read(#[source] config::ConfigError),
    /// They contradict themselves; all problems at once.
    #[error("the settings do not work:\n  {}", .0.join("\n  "))]
    Invalid(Vec<String>),
    /// They cannot be printed.
    #[error("the settings cannot be printed")]
    Print(#[source] toml::ser::Error),
}

impl Config {
    /// The part of the settings that telemetry takes.
    pub fn telemetry(&self) -> telemetry::Config {
        telemetry::Config {
            logs: self.logs.clone(),
            traces: self.traces.clone(),
            admin: self.admin.clone(),
        }
    }

    fn problems(&self) -> Vec<String> {
        [
            self.postgres.validate(),
            self.redis.validate(),
            self.gateway.validate(&self.auth),
            self.worker.validate(),
            self.cron.validate(),
            self.telemetry().validate(),
        ]
        .concat()
    }
}

/// Reads the file, if one is named, and the environment over it.
///
/// # Errors
/// Names every setting that cannot be used.
pub fn load(file: Option<&Path>) -> Result<Config, Error> {
    let mut sources = config::Config::builder();
    if let Some(file) = file {
        sources = sources.add_source(config::File::from(file).format(config::FileFormat::Toml));
    }
    let environment = config::Environment::with_prefix("MCP_TASKS")
        .prefix_separator("__")
        .separator("__")
        .try_parsing(true);
    let config: Config = sources
        .add_source(environment)
        .build()
        .and_then(config::Config::try_deserialize)
        .map_err(Error::Read)?;
    let problems = config.problems();
    if problems.is_empty() {
        Ok(config)
    } else {
        Err(Error::Invalid(problems))
    }
}

/// The settings as TOML.
///
/// # Errors
/// When a value has no TOML form.
pub fn show(config: &Config) -> Result<String, Error> {
    toml::to_string(config).map_err(Error::Print)
}
