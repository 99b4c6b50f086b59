//! How the store fares.

use std::time::Duration;

use deadpool_postgres::Pool;
use telemetry::Registry;
use telemetry::metrics::{Histogram, HistogramVec, IntCounterVec, IntGauge};

/// Histogram buckets for reads that share a round trip.
const TOGETHER: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0];

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
        /// Reads of tasks that shared one round trip.
        together: Histogram = "mcp_tasks_store_reads_together" in TOGETHER,
    }
}

impl Metrics {
    /// With the pool's state, as it is at every scrape.
    pub(crate) fn watching(registry: &Registry, pool: &Pool) -> Self {
        let metrics = Self::new(registry);
        let (shown, pool) = (metrics.clone(), pool.clone());
        registry.before_scrape(move || shown.pool(&pool));
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

    pub(crate) fn retry(&self, operation: &str) {
        self.retries.with_label_values(&[operation]).inc();
    }

    pub(crate) fn error(&self, operation: &str) {
        self.errors.with_label_values(&[operation]).inc();
    }
}
