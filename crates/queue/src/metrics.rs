//! The queue's metrics.

use telemetry::Registry;
use telemetry::metrics::{Histogram, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

telemetry::metrics! {
    /// What the queue did and saw.
    pub(crate) struct Metrics {
        /// Hints pushed, by outcome (`ok`, `unavailable`, `timeout`, `connection`, `refused`). A failed push delays its task until the next reconcile.
        pushes: IntCounterVec = "mcp_tasks_queue_pushes_total" ["outcome"],
        /// Seconds a push took, successful or not.
        push_seconds: Histogram = "mcp_tasks_queue_push_seconds",
        /// Hints taken, by source: `new`, `recovered` (delivered before, reply lost), `reclaimed` (another worker left it).
        hints: IntCounterVec = "mcp_tasks_queue_hints_total" ["source"],
        /// Hints given back, by outcome: `acked`, `handed_back` (for another worker), `not_ours` (taken over meanwhile), `failed`.
        returns: IntCounterVec = "mcp_tasks_queue_returns_total" ["outcome"],
        /// Hints delivered to this process and not yet given back.
        held: IntGauge = "mcp_tasks_queue_hints_held",
        /// Entries dropped because they hold no task id.
        malformed: IntCounter = "mcp_tasks_queue_malformed_entries_total",
        /// Consumer groups made again after Redis lost them.
        groups_made: IntCounter = "mcp_tasks_queue_groups_made_total",
        /// Failed reads of job streams, by kind: `group_gone`, `moved` (to another server of the cluster), `timeout`, `connection`, `refused`.
        read_errors: IntCounterVec = "mcp_tasks_queue_read_errors_total" ["kind"],
        /// Dead consumers removed.
        consumers_reaped: IntCounter = "mcp_tasks_queue_consumers_reaped_total",
        /// 1 while this process's connection works, by use: `commands`, `subscriber`. In a cluster: while those to all shards do.
        connected: IntGaugeVec = "mcp_tasks_queue_connected" ["link"],
        /// Shards whose server takes commands, of as many as `redis.shards` says.
        shards_up: IntGauge = "mcp_tasks_queue_shards_connected",
        /// Answers of a Redis Cluster that somebody else keeps what was asked for, by kind: `moved`, and `ask`, `try_again` while it is on its way.
        redirects: IntCounterVec = "mcp_tasks_queue_redirects_total" ["kind"],
        /// Reading connections that work, of as many as there are shards in a worker.
        readers: IntGauge = "mcp_tasks_queue_readers_connected",
        /// Connections made, by use: `commands`, `subscriber`, `reader`. More than one each is a disruption.
        connects: IntCounterVec = "mcp_tasks_queue_connects_total" ["link"],
        /// Changes of a shard's epoch that this process saw: each is a loss of data in Redis.
        epoch_changes: IntCounter = "mcp_tasks_queue_epoch_changes_total",
        /// 1 if Redis may evict keys when memory runs short (`maxmemory-policy` other than `noeviction`): queued hints would vanish.
        eviction: IntGauge = "mcp_tasks_queue_eviction_possible",
        /// Messages published, by kind (`changed`, `stop`, `progress`, `catalogue`, `resource`, `wanted`) and outcome as for pushes, and `too_large`.
        published: IntCounterVec = "mcp_tasks_queue_published_total" ["kind", "outcome"],
        /// Messages received for a watch, by kind (`changed`, `progress`).
        received: IntCounterVec = "mcp_tasks_queue_received_total" ["kind"],
        /// Progress messages dropped because their watcher is slower.
        progress_dropped: IntCounter = "mcp_tasks_queue_progress_dropped_total",
        /// Watches open.
        watches: IntGauge = "mcp_tasks_queue_watches",
        /// Watches that began without a subscription, because Redis was not reachable.
        watches_degraded: IntCounter = "mcp_tasks_queue_watches_degraded_total",
    }
}

impl Metrics {
    /// With every label value present from the start, so that a first failure shows as an increase.
    pub(crate) fn prepared(registry: &Registry) -> Metrics {
        let metrics = Metrics::new(registry);
        let outcomes = ["ok", "unavailable", "timeout", "connection", "refused"];
        for outcome in outcomes {
            metrics.pushes.with_label_values(&[outcome]);
            for kind in [
                "changed",
                "stop",
                "progress",
                "catalogue",
                "resource",
                "wanted",
            ] {
                metrics.published.with_label_values(&[kind, outcome]);
            }
        }
        metrics
            .published
            .with_label_values(&["progress", "too_large"]);
        for source in ["new", "recovered", "reclaimed"] {
            metrics.hints.with_label_values(&[source]);
        }
        for outcome in ["acked", "handed_back", "not_ours", "failed"] {
            metrics.returns.with_label_values(&[outcome]);
        }
        for kind in ["group_gone", "moved", "timeout", "connection", "refused"] {
            metrics.read_errors.with_label_values(&[kind]);
        }
        for link in ["commands", "subscriber"] {
            metrics.connected.with_label_values(&[link]);
            metrics.connects.with_label_values(&[link]);
        }
        metrics.connects.with_label_values(&["reader"]);
        for kind in ["moved", "ask", "try_again"] {
            metrics.redirects.with_label_values(&[kind]);
        }
        for kind in ["changed", "progress"] {
            metrics.received.with_label_values(&[kind]);
        }
        metrics
    }
}
