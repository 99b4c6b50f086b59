//! Keeps the promises that no request is around to keep: a table of sweeps.
//!
//! Any number of replicas run the same table; each sweep has a leader lease, so one runs it at
//! a time, and every sweep is safe to kill half way and to repeat.
//!
//! Architecture invariant: this crate takes no input, runs no tool, and never depends on the
//! gateway or the worker.

pub mod alerts;
pub mod config;
mod metrics;
mod once;
mod schedule;
mod state;
mod sweeps;
mod trace;

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use protocol::TaskId;
use queue::Queue;
use store::{Broken, Store};
use telemetry::{Health, Registry};
use tokio_util::sync::CancellationToken;

pub use config::Config;
pub use once::{Once, intervals};

use crate::alerts::Alerts;

/// What a sweep works with.
#[derive(Clone)]
pub(crate) struct Parts {
    pub(crate) store: Store,
    pub(crate) queue: Queue,
    pub(crate) config: Config,
    pub(crate) metrics: metrics::Metrics,
    pub(crate) alerts: Arc<Alerts>,
    pub(crate) shutdown: CancellationToken,
    /// Since when this process has looked on without a break.
    pub(crate) watching_since: Instant,
}

/// So many tasks that were left out are told of in one message.
const BROKEN_TOLD: usize = 5;

/// Why a sweep did not end well.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Postgres could not be asked.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// There is no sweep of this name.
    #[error("there is no sweep {name}; there are {known}")]
    NoSuchSweep {
        /// As it was asked for.
        name: String,
        /// Those that can be run once.
        known: String,
    },
    /// Only a process that stays can do this.
    #[error("the sweep {0} needs a cron process that stays: it tells what it sees on its /metrics")]
    Lasting(&'static str),
    /// Everything was done but for these tasks, whose rows Postgres refuses to change, or that cannot
    /// be read. An operator must look.
    #[error("{} left out: {}", .0.len(), told(.0))]
    Broken(Vec<(TaskId, String)>),
}

/// Some of the tasks that were left out, and why.
fn told(broken: &[(TaskId, String)]) -> String {
    let some = broken.iter().take(BROKEN_TOLD);
    let some: Vec<String> = some.map(|(id, why)| format!("{id}: {why}")).collect();
    some.join("; ")
}

/// How many rows a sweep moved.
pub(crate) type Swept = Result<u64, Error>;

/// One line of the table.
pub(crate) struct Sweep {
    pub(crate) name: &'static str,
    pub(crate) interval: Duration,
    pub(crate) run: fn(Parts) -> BoxFuture<'static, Swept>,
}

/// The cron process.
pub struct Cron {
    parts: Parts,
    table: Vec<Sweep>,
    health: Health,
}

impl Cron {
    /// A cron process over these parts. Nothing runs before [`Cron::run`].
    #[must_use]
    pub fn new(
        (config, alerts): (Config, alerts::config::Config),
        store: Store,
        queue: Queue,
        registry: &Registry,
        health: Health,
    ) -> Self {
        let table = table(&config);
        let metrics = metrics::Metrics::prepared(
            registry,
            table.iter().map(|sweep| sweep.name),
            alerts
                .receivers
                .iter()
                .map(|receiver| receiver.name.as_str()),
        );
        let shutdown = CancellationToken::new();
        Self {
            parts: Parts {
                store,
                queue,
                config,
                metrics,
                alerts: Arc::new(Alerts::new(alerts)),
                shutdown,
                watching_since: Instant::now(),
            },
            table,
            health,
        }
    }

    /// Runs every sweep on its interval until `shutdown`; a sweep under way ends its batch, and
    /// other replicas take over at once.
    pub async fn run(mut self, shutdown: CancellationToken) {
        self.parts.shutdown = shutdown;
        schedule::run(&self.parts, &self.health, self.table).await;
    }
}

/// Runs a sweep, which leaves out what is broken, does the rest, and then says so: `Ok` = how many rows
/// it moved, `Err` also if some were left out.
pub(crate) async fn sweep(parts: &Parts, sweep: &Sweep) -> (u64, Result<(), Error>) {
    let broken = Broken::default();
    let parts = Parts {
        store: parts.store.leaving_out(&broken),
        ..parts.clone()
    };
    match (sweep.run)(parts).await {
        Err(error) => (0, Err(error)),
        Ok(moved) => match broken.rows() {
            rows if rows.is_empty() => (moved, Ok(())),
            rows => (moved, Err(Error::Broken(rows))),
        },
    }
}

fn table(config: &Config) -> Vec<Sweep> {
    let sweep = |name, interval, run| Sweep {
        name,
        interval,
        run,
    };
    vec![
        sweep("requeue", config.reconcile_interval, |p| {
            Box::pin(sweeps::requeue::run(p))
        }),
        sweep("holds", config.deadline_interval, |p| {
            Box::pin(sweeps::holds::run(p))
        }),
        sweep("expire", config.deadline_interval, |p| {
            Box::pin(sweeps::expire::run(p))
        }),
        sweep("inputs", config.deadline_interval, |p| {
            Box::pin(sweeps::inputs::run(p))
        }),
        sweep("stopped", config.deadline_interval, |p| {
            Box::pin(sweeps::stopped::run(p))
        }),
        sweep(sweeps::versions::NAME, config.purge_interval, |p| {
            Box::pin(sweeps::versions::run(p))
        }),
        sweep(sweeps::catalogue::NAME, config.purge_interval, |p| {
            Box::pin(sweeps::catalogue::run(p))
        }),
        sweep("alerts", config.alerts_interval, |p| {
            Box::pin(alerts::raise(p))
        }),
        sweep("deliveries", config.deadline_interval, |p| {
            Box::pin(alerts::deliver(p))
        }),
        sweep("purge", config.purge_interval, |p| {
            Box::pin(sweeps::purge::run(p))
        }),
        sweep("rewrap", config.purge_interval, |p| {
            Box::pin(sweeps::rewrap::run(p))
        }),
        sweep("consumers", config.purge_interval, |p| {
            Box::pin(sweeps::consumers::run(p))
        }),
        sweep(sweeps::gauges::NAME, config.gauges_interval, |p| {
            Box::pin(sweeps::gauges::run(p))
        }),
    ]
}
