//! How jobs fare.

use telemetry::Registry;
use telemetry::metrics::{Histogram, HistogramVec, IntCounterVec, IntGauge, WORK_SECONDS};

use crate::attempt::Outcome;

telemetry::metrics! {
    /// Metrics of a worker.
    pub(crate) struct Metrics {
        /// Attempts that ended, by tool and outcome.
        attempts: IntCounterVec = "mcp_tasks_worker_attempts_total" ["tool", "outcome"],
        /// Seconds that attempts took, by tool.
        seconds: HistogramVec = "mcp_tasks_worker_attempt_seconds" ["tool"] in WORK_SECONDS,
        /// Seconds that jobs were due before they were claimed, by tool.
        waited: HistogramVec = "mcp_tasks_worker_queue_wait_seconds" ["tool"] in WORK_SECONDS,
        /// Jobs that run now.
        running: IntGauge = "mcp_tasks_worker_jobs_running",
        /// Places for jobs.
        slots: IntGauge = "mcp_tasks_worker_slots",
        /// Claims by result: `won`, `refused`, or `gone`: the hint's job did not wait any more.
        claims: IntCounterVec = "mcp_tasks_worker_claims_total" ["result"],
        /// Where claimed jobs came from: `redis` or `postgres`.
        sources: IntCounterVec = "mcp_tasks_worker_jobs_total" ["source"],
        /// Leases that were lost while a job ran, by how it was noticed: `refused` or `clock`.
        leases_lost: IntCounterVec = "mcp_tasks_worker_leases_lost_total" ["noticed"],
        /// Heartbeats by result: `ok` or `failed`.
        heartbeats: IntCounterVec = "mcp_tasks_worker_heartbeats_total" ["result"],
        /// Seconds from the wish that a job stop to the end of its work.
        stop_seconds: Histogram = "mcp_tasks_worker_stop_seconds" in WORK_SECONDS,
        /// Tries to undo a finished step, by tool and outcome: `undone`, `retried` or `failed` (for good).
        undos: IntCounterVec = "mcp_tasks_undos_total" ["tool", "outcome"],
    }
}

impl Metrics {
    /// With every label value that is known beforehand, so that what happens first shows as an
    /// increase.
    pub(crate) fn prepared(registry: &Registry) -> Self {
        let metrics = Self::new(registry);
        for result in ["won", "refused"] {
            metrics.claims.with_label_values(&[result]);
        }
        for source in ["redis", "postgres"] {
            metrics.sources.with_label_values(&[source]);
        }
        for noticed in ["refused", "clock"] {
            metrics.leases_lost.with_label_values(&[noticed]);
        }
        for result in ["ok", "failed"] {
            metrics.heartbeats.with_label_values(&[result]);
        }
        metrics
    }

    /// The same for a tool that is served from now on.
    pub(crate) fn serving(&self, tool: &str) {
        self.seconds.with_label_values(&[tool]);
        self.waited.with_label_values(&[tool]);
        for outcome in Outcome::ALL {
            self.attempts.with_label_values(&[tool, outcome.as_str()]);
        }
        for outcome in ["undone", "retried", "failed"] {
            self.undos.with_label_values(&[tool, outcome]);
        }
    }
}
