//! How the store fares.

use std::time::Duration;

use telemetry::metrics::{HistogramVec, IntCounterVec};

telemetry::metrics! {
    /// Metrics of the store.
    pub(crate) struct Metrics {
        /// Seconds that operations on Postgres took, waiting for it included, by operation.
        operations: HistogramVec = "mcp_tasks_store_operation_seconds" ["operation"],
        /// Operations repeated because Postgres was away, by operation.
        retries: IntCounterVec = "mcp_tasks_store_retries_total" ["operation"],
        /// Operations that failed, by operation.
        errors: IntCounterVec = "mcp_tasks_store_errors_total" ["operation"],
    }
}

impl Metrics {
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
