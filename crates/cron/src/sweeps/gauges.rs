//! Counts and ages of live tasks, of unread failures and of what stands in Redis, for dashboards
//! and alerts.

use std::collections::BTreeMap;
use std::time::Duration;

use queue::Standing;
use telemetry::metrics::IntGaugeVec;

use crate::metrics::Metrics;
use crate::{Parts, Swept};

/// The sweep's name: its leader tells the state, and whoever stops leading falls silent.
pub(crate) const NAME: &str = "gauges";

pub(crate) async fn run(parts: Parts) -> Swept {
    let live = parts.store.gauges().await?;
    let due = parts.store.queue_ages().await?;
    let unfetched = parts.store.unfetched().await?;
    let streams = parts.queue.streams().await;
    let metrics = &parts.metrics;
    // A tool without live tasks has no row: forget what was said of it before.
    metrics.forget_state();
    for row in live {
        let labels = [row.tool.as_str(), row.phase.as_str()];
        set(&metrics.live, &labels, row.tasks);
        set(&metrics.oldest, &labels, seconds(row.oldest));
    }
    for row in due {
        set(&metrics.due, &[&row.tool], row.jobs);
        set(&metrics.due_age, &[&row.tool], seconds(row.waited));
    }
    for row in unfetched {
        set(&metrics.unfetched, &[&row.tool], row.failures);
        set(&metrics.unfetched_age, &[&row.tool], seconds(row.oldest));
    }
    match streams {
        Ok(lanes) => show_streams(metrics, lanes),
        // Nothing depends on it, and that Redis is away is told elsewhere.
        Err(error) => tracing::debug!(error = %error, "redis does not say how its streams stand"),
    }
    Ok(0)
}

/// All versions of a tool together.
fn show_streams(metrics: &Metrics, lanes: Vec<(queue::Lane, Standing)>) {
    let mut tools: BTreeMap<String, Standing> = BTreeMap::new();
    for (lane, standing) in lanes {
        let sum = tools.entry(lane.tool).or_default();
        sum.entries += standing.entries;
        sum.pending += standing.pending;
        // A worker that serves several versions is one.
        sum.consumers = sum.consumers.max(standing.consumers);
    }
    for (tool, sum) in &tools {
        set(&metrics.hints, &[tool], whole(sum.entries));
        set(&metrics.hints_pending, &[tool], whole(sum.pending));
        set(&metrics.consumers, &[tool], whole(sum.consumers));
    }
}

fn set(gauge: &IntGaugeVec, labels: &[&str], value: i64) {
    gauge.with_label_values(labels).set(value);
}

fn seconds(duration: Duration) -> i64 {
    whole(duration.as_secs())
}

fn whole(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
