//! Tools and providers that no worker serves any more are taken off the lists, and of each tool a
//! version is current that somebody serves.

use std::time::Duration;

use crate::{Parts, Swept};

/// The sweep's name: it looks on over time.
pub(crate) const NAME: &str = "catalogue";

/// No list is emptied by a process that has not looked on: see the sweep of versions.
const NOBODY_YET: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// Every listener has looked at its resources many times in between.
const RESOURCES_KEPT: Duration = Duration::from_secs(3600);

pub(crate) async fn run(parts: Parts) -> Swept {
    let wait = parts.config.tool_wait;
    let watched = parts.watching_since.elapsed() >= wait;
    let unserved = if watched { wait } else { NOBODY_YET };
    let swept = parts.store.sweep_tools(unserved).await?;
    for (tool, version) in &swept.delisted {
        tracing::warn!(
            tool.name = tool,
            version,
            "no worker serves it any more: not listed"
        );
    }
    for (tool, version) in &swept.elected {
        tracing::info!(tool.name = tool, version, "this version is current now");
    }
    let providers = parts.store.sweep_providers(unserved).await?;
    for (provider, version) in &providers {
        tracing::warn!(
            provider,
            version,
            "no worker provides it any more: not listed"
        );
    }
    let changed = swept.delisted.len() + swept.elected.len() + providers.len();
    if changed > 0 {
        parts.queue.catalogue_changed().await;
    }
    let rows = parts.config.batch_rows();
    let forgotten = super::batches(&parts, async || {
        Ok(parts.store.forget_resources(RESOURCES_KEPT, rows).await?)
    })
    .await?;
    Ok(changed as u64 + forgotten)
}
