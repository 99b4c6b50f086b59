//! How jobs fare.

use telemetry::metrics::{Histogram, HistogramVec, IntCounterVec, IntGauge, WORK_SECONDS};

telemetry::metrics! {
    /// Metrics of a worker.
    pub(crate) struct Metrics {
        /// Attempts that ended, by tool and outcome.
        attempts: IntCounterVec = "mcp_tasks_worker_attempts_total" ["tool", "outcome"],
        /// Seconds that attempts took, by tool.
        seconds: HistogramVec = "mcp_tasks_worker_attempt_seconds" ["tool"] in WORK_SECONDS,
        /// Seconds that jobs were due before they were claimed.
        waited: Histogram = "mcp_tasks_worker_queue_wait_seconds" in WORK_SECONDS,
        /// Jobs that run now.
        running: IntGauge = "mcp_tasks_worker_jobs_running",
        /// Places for jobs.
        slots: IntGauge = "mcp_tasks_worker_slots",
        /// Claims by result: `won` or `refused`.
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
        /// Steps that began and whose end stayed unknown, so that their task failed, by tool.
        steps_in_doubt: IntCounterVec = "mcp_tasks_steps_in_doubt_total" ["tool"],
    }
}
