//! How the sweeps fare, and what they see of everybody's work.

use std::ops::Deref;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use telemetry::Registry;
use telemetry::metrics::{GaugeVec, HistogramVec, IntCounter, IntCounterVec, IntGaugeVec};

use crate::state::{Leads, State};
use crate::sweeps::gauges;

/// Why cron ends tasks (`settle_stopped.sql`).
const REASONS: [&str; 9] = [
    "abandoned",
    "attempts_exhausted",
    "cancelled",
    "input_deadline",
    "step_in_doubt",
    "task_expired",
    "version_gone",
    "work_limit",
    "worker_lost",
];

telemetry::metrics! {
    /// What is counted and told.
    pub(crate) struct Counts {
        /// Rows that a sweep moved, by sweep.
        swept: IntCounterVec = "mcp_tasks_cron_swept_total" ["sweep"],
        /// Sweeps that did not end well, by sweep.
        failures: IntCounterVec = "mcp_tasks_cron_failures_total" ["sweep"],
        /// Seconds that a sweep took, by sweep.
        seconds: HistogramVec = "mcp_tasks_cron_sweep_seconds" ["sweep"],
        /// 1 while this replica leads the sweep, by sweep.
        leading: IntGaugeVec = "mcp_tasks_cron_leading" ["sweep"],
        /// When this replica last ended the sweep well, by sweep, in seconds since 1970; 0 before the first time. The latest of all replicas counts.
        last_success: GaugeVec = "mcp_tasks_cron_last_success_timestamp_seconds" ["sweep"],
        /// Live tasks, by tool, phase (`queued`, `waiting` for a slot of a limited tool, `running`, `parked`, `undoing`) and the status that their owners see (`working`, `input_required`); set by the leader of the gauges sweep.
        live: IntGaugeVec = "mcp_tasks_tasks_live" ["tool", "phase", "status"],
        /// Age in seconds of the oldest live task, by tool and phase; set by the leader of the gauges sweep.
        oldest: IntGaugeVec = "mcp_tasks_tasks_oldest_age_seconds" ["tool", "phase"],
        /// Jobs that are due and not begun, by tool, without those that wait for a slot of a limited tool; set by the leader of the gauges sweep.
        due: IntGaugeVec = "mcp_tasks_tasks_due" ["tool"],
        /// Seconds for which the oldest due job has waited to begin, by tool, 0 where all wait for a slot of a limited tool; set by the leader of the gauges sweep.
        due_age: IntGaugeVec = "mcp_tasks_tasks_due_oldest_age_seconds" ["tool"],
        /// Jobs that are due and that Redis, as it is now, was not told of, by tool; set by the leader of the gauges sweep while Redis answers.
        unhinted: IntGaugeVec = "mcp_tasks_tasks_unhinted" ["tool"],
        /// Seconds for which the oldest of these jobs has been due, by tool; set by the leader of the gauges sweep while Redis answers.
        unhinted_age: IntGaugeVec = "mcp_tasks_tasks_unhinted_oldest_age_seconds" ["tool"],
        /// Tasks that wait for a service to call back, by tool; they hold no worker, and count as `queued`; set by the leader of the gauges sweep.
        waiting: IntGaugeVec = "mcp_tasks_tasks_waiting_for_service" ["tool"],
        /// Seconds for which the first of them has waited, by tool; set by the leader of the gauges sweep.
        waiting_age: IntGaugeVec = "mcp_tasks_tasks_waiting_for_service_oldest_age_seconds" ["tool"],
        /// Live workers that serve the tool's current version, by tool; set by the leader of the gauges sweep.
        workers: IntGaugeVec = "mcp_tasks_tools_workers" ["tool"],
        /// 1 if an operator paused the tool, by tool and what is paused (`calls`, `jobs`); set by the leader of the gauges sweep.
        paused: IntGaugeVec = "mcp_tasks_tools_paused" ["tool", "what"],
        /// Hints in Redis, by tool, those delivered to a worker among them; set by the leader of the gauges sweep while Redis answers.
        hints: IntGaugeVec = "mcp_tasks_queue_stream_entries" ["tool"],
        /// Hints delivered to a worker and not given back, by tool; set by the leader of the gauges sweep while Redis answers.
        hints_pending: IntGaugeVec = "mcp_tasks_queue_stream_pending_entries" ["tool"],
        /// Workers known to a tool's streams, by tool; set by the leader of the gauges sweep while Redis answers.
        consumers: IntGaugeVec = "mcp_tasks_queue_stream_consumers" ["tool"],
        /// Tasks that are sealed, by the key of the settings that wraps their keys, counted up to 100,000 of each; set by the leader of the gauges sweep.
        sealed: IntGaugeVec = "mcp_tasks_tasks_sealed" ["key"],
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

/// Metrics of cron.
#[derive(Clone)]
pub(crate) struct Metrics {
    counts: Counts,
    leads: Leads,
    /// What only the leader of the gauges sweep tells.
    pub(crate) state: State,
}

impl Deref for Metrics {
    type Target = Counts;

    fn deref(&self) -> &Counts {
        &self.counts
    }
}

impl Metrics {
    /// With every label value that is known beforehand, so that what happens first shows as an
    /// increase.
    pub(crate) fn prepared<'a>(
        registry: &Registry,
        sweeps: impl IntoIterator<Item = &'a str>,
        receivers: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let counts = Counts::new(registry);
        let metrics = Self {
            state: State::new(&counts),
            leads: Leads::default(),
            counts,
        };
        for sweep in sweeps {
            metrics.swept.with_label_values(&[sweep]);
            metrics.failures.with_label_values(&[sweep]);
            metrics.seconds.with_label_values(&[sweep]);
            metrics.leading.with_label_values(&[sweep]);
            metrics.last_success.with_label_values(&[sweep]);
        }
        for receiver in receivers {
            for outcome in ["delivered", "failed"] {
                metrics.deliveries.with_label_values(&[receiver, outcome]);
            }
        }
        for reason in REASONS {
            metrics.settled.with_label_values(&[reason]);
        }
        let shown = metrics.clone();
        registry.before_scrape(move || shown.look());
        metrics
    }

    /// This replica leads the sweep until then, if it says nothing more; `None`: it leads no more.
    pub(crate) fn leads(&self, sweep: &'static str, until: Option<Instant>) {
        self.leads.set(sweep, until);
        self.look();
    }

    /// Whether this replica leads the sweep, as far as it knows.
    pub(crate) fn is_leading(&self, sweep: &str) -> bool {
        self.leads.has(sweep)
    }

    /// By this process's clock alone, before every scrape: one that was frozen, or that Postgres does
    /// not answer, cannot be told that another replica leads now.
    fn look(&self) {
        for (sweep, leads) in self.leads.all() {
            let leading = self.counts.leading.with_label_values(&[sweep]);
            leading.set(i64::from(leads));
            if !leads && sweep == gauges::NAME {
                self.state.forget();
            }
        }
    }

    /// A sweep ended well, now.
    pub(crate) fn succeeded(&self, sweep: &str) {
        #[expect(
            clippy::disallowed_methods,
            reason = "shown to people and compared with Prometheus' clock; nothing is decided from it"
        )]
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        self.last_success
            .with_label_values(&[sweep])
            .set(now.as_secs_f64());
    }
}
