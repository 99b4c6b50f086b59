//! How the sweeps fare.

use telemetry::metrics::{HistogramVec, IntCounter, IntCounterVec, IntGaugeVec};

telemetry::metrics! {
    /// Metrics of cron.
    pub(crate) struct Metrics {
        /// Rows that a sweep moved, by sweep.
        swept: IntCounterVec = "mcp_tasks_cron_swept_total" ["sweep"],
        /// Sweeps that did not end well, by sweep.
        failures: IntCounterVec = "mcp_tasks_cron_failures_total" ["sweep"],
        /// Seconds that a sweep took, by sweep.
        seconds: HistogramVec = "mcp_tasks_cron_sweep_seconds" ["sweep"],
        /// 1 while this replica leads the sweep, by sweep.
        leading: IntGaugeVec = "mcp_tasks_cron_leading" ["sweep"],
        /// Live tasks, by tool and phase; set by the leader of the gauges sweep.
        live: IntGaugeVec = "mcp_tasks_tasks_live" ["tool", "phase"],
        /// Age in seconds of the oldest live task, by tool and phase; set by the leader of the gauges sweep.
        oldest: IntGaugeVec = "mcp_tasks_tasks_oldest_age_seconds" ["tool", "phase"],
        /// Alerts raised.
        raised: IntCounter = "mcp_tasks_alerts_raised_total",
        /// Messages to receivers, by receiver and outcome (`delivered`, `failed`).
        deliveries: IntCounterVec = "mcp_tasks_alert_deliveries_total" ["receiver", "outcome"],
        /// Failures that their owner has not read, by tool; set by the leader of the gauges sweep.
        unfetched: IntGaugeVec = "mcp_tasks_unfetched_failures" ["tool"],
        /// Age in seconds of the oldest failure that its owner has not read, by tool; set by the leader of the gauges sweep.
        unfetched_age: IntGaugeVec = "mcp_tasks_unfetched_failures_oldest_age_seconds" ["tool"],
        /// Tasks that were ended without their work being done, by reason.
        settled: IntCounterVec = "mcp_tasks_tasks_settled_total" ["reason"],
    }
}
