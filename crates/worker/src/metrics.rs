//! How the worker fares.

use telemetry::Registry;
use telemetry::metrics::{HistogramVec, IntCounter, IntCounterVec, IntGauge, WORK_SECONDS};

telemetry::metrics! {
    /// Metrics of a worker.
    pub(crate) struct Metrics {
        /// Jobs that this process runs at once, at most.
        slots: IntGauge = "mcp_tasks_worker_slots",
        /// Jobs that this process holds now.
        slots_busy: IntGauge = "mcp_tasks_worker_slots_busy",
        /// Looks at hinted jobs, by outcome (`claimed`, `refused`, `error`).
        claims: IntCounterVec = "mcp_tasks_worker_claims_total" ["outcome"],
        /// Attempts that ended, by tool and outcome (`completed`, `failed`, `retried`, `exhausted`, `parked`, `stopped`, `released`, `lost`).
        attempts: IntCounterVec = "mcp_tasks_worker_attempts_total" ["tool", "outcome"],
        /// Seconds that attempts took from claim to end, by tool.
        attempt_seconds: HistogramVec = "mcp_tasks_worker_attempt_seconds" ["tool"] in WORK_SECONDS,
        /// Seconds that jobs were due before they were claimed, by tool.
        wait_seconds: HistogramVec = "mcp_tasks_worker_wait_seconds" ["tool"] in WORK_SECONDS,
        /// Steps, by tool and outcome (`acted`, `replayed`, `failed`, `refused`, `in_doubt`).
        steps: IntCounterVec = "mcp_tasks_worker_steps_total" ["tool", "outcome"],
        /// Renewals of all leases together, by outcome (`ok`, `error`).
        heartbeats: IntCounterVec = "mcp_tasks_worker_heartbeats_total" ["outcome"],
        /// Jobs dropped because their lease was lost or could not be renewed in time.
        lost: IntCounter = "mcp_tasks_worker_leases_lost_total",
        /// Tools that ended in a panic, by tool.
        panics: IntCounterVec = "mcp_tasks_worker_panics_total" ["tool"],
        /// Tools dropped because they did not end within the grace after a stop, by tool.
        dropped: IntCounterVec = "mcp_tasks_worker_dropped_total" ["tool"],
        /// Dropped tools that neither wait nor return. Above 0, the process is about to exit.
        stuck: IntGauge = "mcp_tasks_worker_stuck",
        /// Looks for work in Postgres because Redis could not be reached, by outcome (`ok`, `error`).
        fallback: IntCounterVec = "mcp_tasks_worker_fallback_polls_total" ["outcome"],
        /// Status messages of tasks that were written.
        progress: IntCounter = "mcp_tasks_worker_progress_written_total",
        /// Publications of the tools that are served, by outcome (`ok`, `error`).
        registrations: IntCounterVec = "mcp_tasks_worker_registrations_total" ["outcome"],
    }
}

impl Metrics {
    /// With the series that an alert may look at, so that they exist before the first event.
    pub(crate) fn prepared(registry: &Registry) -> Self {
        let metrics = Self::new(registry);
        for outcome in ["claimed", "refused", "error"] {
            metrics.claims.with_label_values(&[outcome]);
        }
        for outcome in ["ok", "error"] {
            metrics.heartbeats.with_label_values(&[outcome]);
            metrics.fallback.with_label_values(&[outcome]);
            metrics.registrations.with_label_values(&[outcome]);
        }
        metrics
    }
}
