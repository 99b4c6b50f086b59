//! Counts and ages of live tasks, for dashboards and alerts.

use crate::{Parts, Swept};

pub(crate) async fn run(parts: Parts) -> Swept {
    let live = parts.store.gauges().await?;
    // A tool without live tasks has no row: forget what was said of it before.
    parts.metrics.live.reset();
    parts.metrics.oldest.reset();
    for row in live {
        let labels = [row.tool.as_str(), row.phase.as_str()];
        parts.metrics.live.with_label_values(&labels).set(row.tasks);
        let oldest = i64::try_from(row.oldest.as_secs()).unwrap_or(i64::MAX);
        parts.metrics.oldest.with_label_values(&labels).set(oldest);
    }
    Ok(0)
}
