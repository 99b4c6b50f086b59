//! All settings: one documented struct a part, read from one file and the environment.

use std::path::{Path, PathBuf};

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
    /// Telling people of what nobody looked at.
    pub alerts: cron::alerts::config::Config,
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
    /// Serve test fixtures: `conformance` for those of the official conformance runner, `chaos`
    /// for those of chaos runs.
    pub fixtures: Option<Fixtures>,
    /// The file that the acts of the chaos tools are appended to, one line each; needed by them.
    pub ledger: Option<PathBuf>,
    /// Serve the drill tools of this version (`drill_ask`, `drill_work`): tests choose what they
    /// ask and how they take being stopped.
    pub drills: Option<i32>,
    /// Versions whose tasks the drill tools can go on with.
    pub drills_resume: Vec<i32>,
    /// Serve `run_shell`, which runs any script that a caller sends. For tests: whoever may call
    /// it may do all that the worker may.
    pub shell: bool,
}

/// A set of test fixtures.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema, clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum Fixtures {
    /// What the official conformance runner expects of a server.
    Conformance,
    /// What chaos runs drive.
    Chaos,
}

impl Tools {
    fn validate(&self) -> Vec<String> {
        let chaos = self.fixtures == Some(Fixtures::Chaos);
        if chaos && self.ledger.is_none() {
            return vec!["tools.ledger: the chaos tools need a file to write to".to_owned()];
        }
        Vec::new()
    }
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
            self.redis
                .validate()
                .into_iter()
                .map(|p| format!("redis.{p}"))
                .collect(),
            self.gateway.validate(&self.auth),
            self.worker.validate(),
            self.cron.validate(self.worker.publish_interval),
            self.alerts.validate(),
            self.tools.validate(),
            self.telemetry().validate(),
        ]
        .concat()
    }
}

/// Settings that are lists; in the environment their values are separated by commas.
const LISTS: [&str; 4] = [
    "tools.drills_resume",
    "gateway.request_state_keys",
    "gateway.allowed_hosts",
    "gateway.allowed_origins",
];

/// Which setting is wrong, and what is allowed.
fn wrong(error: serde_path_to_error::Error<serde_json::Error>) -> Error {
    let (path, problem) = (error.path().to_string(), error.inner().to_string());
    let hint = if problem.contains("a duration") {
        ", e.g. \"30s\" or \"5m\""
    } else {
        ""
    };
    Error::Invalid(vec![format!("{path}: {problem}{hint}")])
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
    let mut environment = config::Environment::with_prefix("MCP_TASKS")
        .prefix_separator("__")
        .separator("__")
        .try_parsing(true)
        .list_separator(",");
    for list in LISTS {
        environment = environment.with_list_parse_key(list);
    }
    let values: serde_json::Value = sources
        .add_source(environment)
        .build()
        .and_then(config::Config::try_deserialize)
        .map_err(Error::Read)?;
    let config: Config = serde_path_to_error::deserialize(values).map_err(wrong)?;
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
