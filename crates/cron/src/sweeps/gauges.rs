//! Counts and ages of live tasks and of unread failures, for dashboards and alerts.

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
    let unfetched = parts.store.unfetched().await?;
    parts.metrics.unfetched.reset();
    parts.metrics.unfetched_age.reset();
    for row in unfetched {
        let (labels, age) = ([row.tool.as_str()], row.oldest.as_secs());
        let (count, age) = (row.failures, i64::try_from(age).unwrap_or(i64::MAX));
        parts
            .metrics
            .unfetched
            .with_label_values(&labels)
            .set(count);
        parts
            .metrics
            .unfetched_age
            .with_label_values(&labels)
            .set(age);
    }
    Ok(0)
}
