//! Redis consumers of workers that are gone are forgotten, once nothing is pending for them.

use crate::{Parts, Swept};

pub(crate) async fn run(parts: Parts) -> Swept {
    // Housekeeping of hints only: Redis being away is no failure.
    Ok(parts
        .queue
        .reap_consumers(parts.config.consumer_idle)
        .await
        .unwrap_or(0))
}
