//! What the stock worker tells of its own settings.

use telemetry::Registry;
use telemetry::metrics::{IntCounterVec, IntGaugeVec};
use tools::upstream::{OUTCOMES, Observer};

telemetry::metrics! {
    /// Metrics of the stock worker.
    pub(crate) struct Metrics {
        /// Times that the tools file was read, by result: `ok`, or `refused` because it is broken.
        tools_file: IntCounterVec = "mcp_tasks_worker_tools_file_reads_total" ["result"],
        /// Whether upstream servers are connected and listed (1) or not (0), by their names in the
        /// tools file.
        upstreams: IntGaugeVec = "mcp_tasks_worker_upstream_up" ["upstream"],
        /// Requests to upstream servers that ended, by outcome: `answered`, `error` (the server's
        /// own), `not_sent` (nothing happened), `refused` (for good), `cut_off`, `garbage`, `stopped`.
        upstream_requests: IntCounterVec = "mcp_tasks_worker_upstream_requests_total" ["upstream", "outcome"],
        /// Times that an upstream's lists were read, by result: `ok` or `failed`.
        upstream_lists: IntCounterVec = "mcp_tasks_worker_upstream_lists_total" ["upstream", "result"],
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

/// The results of reading an upstream's lists.
const LISTED: [&str; 2] = ["ok", "failed"];

impl Metrics {
    /// How an upstream goes; `None`: it is none any more. Its zeros show from the start.
    pub(crate) fn upstream(&self, name: &str, up: Option<bool>) {
        let Some(up) = up else {
            // What was never shown need not be taken away.
            let _ = self.upstreams.remove_label_values(&[name]);
            for outcome in OUTCOMES {
                let _ = self.upstream_requests.remove_label_values(&[name, outcome]);
            }
            for result in LISTED {
                let _ = self.upstream_lists.remove_label_values(&[name, result]);
            }
            return;
        };
        self.upstreams.with_label_values(&[name]).set(up.into());
        for outcome in OUTCOMES {
            self.upstream_requests.with_label_values(&[name, outcome]);
        }
        for result in LISTED {
            self.upstream_lists.with_label_values(&[name, result]);
        }
    }
}

impl Observer for Metrics {
    fn asked(&self, upstream: &str, outcome: &'static str) {
        let labels = [upstream, outcome];
        self.upstream_requests.with_label_values(&labels).inc();
    }

    fn listed(&self, upstream: &str, ok: bool) {
        let labels = [upstream, LISTED[usize::from(!ok)]];
        self.upstream_lists.with_label_values(&labels).inc();
    }
}
