//! What the stock worker tells of its own settings.

use telemetry::Registry;
use telemetry::metrics::IntCounterVec;

telemetry::metrics! {
    /// Metrics of the stock worker.
    pub(crate) struct Metrics {
        /// Times that the tools file was read, by result: `ok`, or `refused` because it is broken.
        tools_file: IntCounterVec = "mcp_tasks_worker_tools_file_reads_total" ["result"],
    }
}

impl Metrics {
    /// With both results, so that the first one shows as an increase.
    pub(crate) fn prepared(registry: &Registry) -> Self {
        let metrics = Self::new(registry);
        for result in ["ok", "refused"] {
            metrics.tools_file.with_label_values(&[result]);
        }
        metrics
    }
}
