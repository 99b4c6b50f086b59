//! How the store fares.

use std::time::Duration;

use deadpool_postgres::Pool;
use telemetry::Registry;
use telemetry::metrics::{Histogram, HistogramVec, IntCounterVec, IntGauge};

use crate::Store;

/// Histogram buckets for calls that share a round trip.
const TOGETHER: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0];

/// Histogram buckets for the lives of tasks: from 50 ms to a week, in seconds. People may be asked.
const LIFE: &[f64] = &[
    0.05, 0.25, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0, 86_400.0, 604_800.0,
];

/// How tasks end: a result that says `isError` is a `tool_error`.
const ENDS: [&str; 4] = ["completed", "tool_error", "failed", "cancelled"];

/// What a task may be when its TTL runs out.
const STATUSES: [&str; 5] = [
    "working",
    "input_required",
    "completed",
    "failed",
    "cancelled",
];

/// Fenced writes that are counted.
const FENCED: [&str; 9] = [
    "complete",
    "confirm_stopped",
    "fail",
    "finish_step",
    "park",
    "release",
    "retry",
    "retry_undo",
    "undone",
];

telemetry::metrics! {
    /// Metrics of the store.
    pub(crate) struct Metrics {
        /// Seconds that operations on Postgres took, waiting for it included, by operation.
        operations: HistogramVec = "mcp_tasks_store_operation_seconds" ["operation"],
        /// Operations repeated because Postgres was away, by operation.
        retries: IntCounterVec = "mcp_tasks_store_retries_total" ["operation"],
        /// Operations that failed, by operation.
        errors: IntCounterVec = "mcp_tasks_store_errors_total" ["operation"],
        /// Seconds that tries waited for a connection, making a new one included.
        connection_wait: Histogram = "mcp_tasks_store_connection_wait_seconds",
        /// Connections in use.
        in_use: IntGauge = "mcp_tasks_store_connections_in_use",
        /// Connections there, in use or not.
        open: IntGauge = "mcp_tasks_store_connections_open",
        /// Connections that may be there.
        max: IntGauge = "mcp_tasks_store_connections_max",
        /// Tries that wait for a connection now.
        waiting: IntGauge = "mcp_tasks_store_connections_waiting",
        /// Reads of tasks, and looks at where hints lead, that shared one round trip.
        reads_together: Histogram = "mcp_tasks_store_reads_together" in TOGETHER,
        /// Writes that shared one commit, by operation (`create`, `claim_queued`, `claim_best`, `complete`).
        writes_together: HistogramVec = "mcp_tasks_store_writes_together" ["operation"] in TOGETHER,
        /// Writes that were refused because their attempt no longer owned its task, by operation.
        fenced: IntCounterVec = "mcp_tasks_store_fenced_writes_total" ["operation"],
        /// Leases that ran out, because their worker died, hung or was cut off, by tool; told by the process that took the task over or ended it.
        leases: IntCounterVec = "mcp_tasks_leases_run_out_total" ["tool"],
        /// Seconds from a task's creation to its end, by tool and outcome (`completed`, `tool_error`, `failed`, `cancelled`); told by the process that ended it.
        life: HistogramVec = "mcp_tasks_task_duration_seconds" ["tool", "outcome"] in LIFE,
        /// Steps that began and whose end stayed unknown, so that their task failed, by tool; told by the process that found it.
        doubts: IntCounterVec = "mcp_tasks_steps_in_doubt_total" ["tool"],
        /// Contents of tasks that could not be opened, by why: the `encryption.keys` of this process lack the key (`key_missing`), or what is stored is not what was sealed (`damaged`).
        unopened: IntCounterVec = "mcp_tasks_store_unopened_total" ["why"],
        /// Tasks whose TTL ran out, by what they were then: live ones (`working`, `input_required`) are stopped, of the others (`completed`, `failed`, `cancelled`) a tombstone is left.
        expired: IntCounterVec = "mcp_tasks_tasks_expired_total" ["status"],
    }
}

impl Metrics {
    /// With the pool's state, as it is at every scrape.
    pub(crate) fn watching(registry: &Registry, pool: &Pool) -> Self {
        let metrics = Self::new(registry);
        let (shown, pool) = (metrics.clone(), pool.clone());
        registry.before_scrape(move || shown.pool(&pool));
        for operation in FENCED {
            metrics.fenced.with_label_values(&[operation]);
        }
        for why in ["key_missing", "damaged"] {
            metrics.unopened.with_label_values(&[why]);
        }
        for status in STATUSES {
            metrics.expired.with_label_values(&[status]);
        }
        metrics
    }

    fn pool(&self, pool: &Pool) {
        let status = pool.status();
        let count = |number| i64::try_from(number).unwrap_or(i64::MAX);
        // The state is read in one go, but counts what is about to be made as well.
        self.in_use
            .set(count(status.size.saturating_sub(status.available)));
        self.open.set(count(status.size));
        self.max.set(count(status.max_size));
        self.waiting.set(count(status.waiting));
    }

    /// An operation begins. Its counts of trouble exist before there is any, so that the first
    /// shows as an increase.
    pub(crate) fn begin(&self, operation: &str) {
        self.retries.with_label_values(&[operation]);
        self.errors.with_label_values(&[operation]);
    }

    pub(crate) fn seconds(&self, operation: &str, took: Duration) {
        self.operations
            .with_label_values(&[operation])
            .observe(took.as_secs_f64());
    }

    /// So many calls share one round trip.
    pub(crate) fn together(&self, operation: &str, calls: usize) {
        let calls = f64::from(u32::try_from(calls).unwrap_or(u32::MAX));
        match operation {
            "get" | "hinted" => self.reads_together.observe(calls),
            write => self
                .writes_together
                .with_label_values(&[write])
                .observe(calls),
        }
    }

    pub(crate) fn retry(&self, operation: &str) {
        self.retries.with_label_values(&[operation]).inc();
    }

    pub(crate) fn error(&self, operation: &str) {
        self.errors.with_label_values(&[operation]).inc();
    }

    /// A write found that its attempt no longer owns the task.
    pub(crate) fn fenced(&self, operation: &str) {
        self.fenced.with_label_values(&[operation]).inc();
    }

    /// A task of this tool ended, so long after it was created.
    pub(crate) fn ended(&self, tool: &str, outcome: &str, age: Duration) {
        self.life
            .with_label_values(&[tool, outcome])
            .observe(age.as_secs_f64());
    }

    /// Nobody renewed the lease of a job of this tool.
    pub(crate) fn lease_ran_out(&self, tool: &str) {
        self.leases.with_label_values(&[tool]).inc();
    }

    /// The end of a step is unknown, and its task fails for it.
    pub(crate) fn in_doubt(&self, tool: &str) {
        self.doubts.with_label_values(&[tool]).inc();
    }

    /// What a task holds could not be opened.
    pub(crate) fn unopened(&self, why: &str) {
        self.unopened.with_label_values(&[why]).inc();
    }

    /// The TTL of a task ran out.
    pub(crate) fn expired(&self, status: &str) {
        self.expired.with_label_values(&[status]).inc();
    }
}

impl Store {
    /// Tasks of this tool may end here: its series exist from now on, so that the first end shows as
    /// an increase.
    pub fn prepare_metrics(&self, tool: &str) {
        for outcome in ENDS {
            self.metrics.life.with_label_values(&[tool, outcome]);
        }
        self.metrics.doubts.with_label_values(&[tool]);
        self.metrics.leases.with_label_values(&[tool]);
    }
}
