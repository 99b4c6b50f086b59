//! Logs, traces, the metrics registry and the admin listener of every process.
//!
//! Architecture invariant: this crate never knows another crate of ours, keeps no metric in a
//! static, and never makes serving wait for a collector.
//!
//! ```no_run
//! # use mcp_tasks_telemetry as telemetry;
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let config = telemetry::Config::default();
//! let guard = telemetry::init(&config, "mcp-tasks-gateway")?;
//! let registry = telemetry::Registry::new();
//! guard.observe(&registry);
//! let health = telemetry::Health::new(&registry);
//! let postgres = health.check("postgres");
//! let listener = telemetry::admin::bind(config.admin.listen).await?;
//! let shutdown = tokio_util::sync::CancellationToken::new();
//! let admin = telemetry::admin::serve(listener, registry, health, shutdown);
//! postgres.ready();
//! admin.await;
//! # Ok(())
//! # }
//! ```

pub mod admin;
pub mod config;
mod export;
mod filter;
pub mod health;
mod lines;
mod logs;
pub mod metrics;
mod process;
pub mod traces;

pub use config::Config;
pub use filter::check as check_filter;
pub use health::{Beat, Check, Health};
pub use logs::panic_text;
pub use metrics::Registry;
pub use process::describe_process;
pub use traces::TraceContext;

use std::sync::atomic::Ordering;

use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Why telemetry could not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A filter setting can't be parsed.
    #[error("{field} can't be parsed")]
    Filter {
        /// The setting.
        field: &'static str,
        /// What is wrong with it.
        source: tracing_subscriber::filter::ParseError,
    },
    /// The export's runtime could not be made.
    #[error("the runtime of the trace export could not be made")]
    Runtime(#[source] std::io::Error),
    /// The trace exporter refused its settings.
    #[error("the trace export could not be set up: {0}")]
    Export(String),
    /// Another subscriber is installed already.
    #[error("logging is set up already")]
    AlreadySet(#[source] tracing_subscriber::util::TryInitError),
}

/// Keeps telemetry alive; dropping it sends the last spans, for at most `traces.flush_timeout`.
/// Hold it in `main` until everything else has ended, and return from `main` rather than exit.
#[must_use = "dropping it at once ends trace export"]
pub struct Guard {
    export: Option<export::Export>,
}

impl Guard {
    /// Publishes what becomes of exported spans in `registry`: zeros without an endpoint.
    pub fn observe(&self, registry: &Registry) {
        match &self.export {
            Some(export) => export.observe(registry),
            None => drop(export::Metrics::prepared(registry)),
        }
    }
}

/// Sets up logs and traces for the whole process, named `service` in traces. From then on a panic is
/// a log line.
///
/// # Errors
/// If a setting is wrong (see [`Config::validate`]), or logging is set up already.
pub fn init(config: &Config, service: &'static str) -> Result<Guard, Error> {
    let export = match &config.traces.endpoint {
        Some(endpoint) => Some(export::Export::start(&config.traces, endpoint, service)?),
        None => None,
    };
    let registry = tracing_subscriber::registry();
    // A layer that is none would have all be made that nobody wants.
    let set = match &export {
        Some(export) => registry
            .with(export.layer(&config.traces)?)
            .with(logs::layer(&config.logs)?)
            .try_init(),
        None => registry.with(logs::layer(&config.logs)?).try_init(),
    };
    set.map_err(Error::AlreadySet)?;
    traces::EXPORTED.store(export.is_some(), Ordering::Relaxed);
    logs::catch_panics();
    Ok(Guard { export })
}
