//! I2: jobs that Redis does not know of get a hint.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use queue::Lane;
use store::UnhintedFilter;

use crate::{Parts, Swept};

/// Where a tool has slots that nobody takes, because its workers are full, its jobs would be hinted again and again:
/// no more than to so many hints that nobody has read.
const HINTS_ENOUGH: u64 = 256;

pub(crate) async fn run(parts: Parts) -> Swept {
    // Without Redis there is nothing to hint; workers take the same jobs from Postgres.
    let Ok(epochs) = parts.queue.epochs().await else {
        return Ok(0);
    };
    super::batches(&parts, || requeue(&parts, &epochs)).await
}

async fn requeue(parts: &Parts, epochs: &[String]) -> Swept {
    let unhinted = parts
        .store
        .unhinted(&UnhintedFilter {
            epochs,
            age: parts.config.hint_age,
            tools: None,
            limit: parts.config.batch_rows(),
        })
        .await?;
    let mut hinted = Vec::with_capacity(unhinted.len());
    let mut enough = HashMap::new();
    for job in unhinted {
        let epoch = parts.queue.epoch(job.id);
        if epoch.is_none() {
            // Its server is down: those of others shall not wait for that.
            continue;
        }
        let lane = Lane {
            tool: job.tool.clone(),
            version: job.version,
        };
        if job.limited {
            let hints = match enough.entry(lane.clone()) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => new.insert(parts.queue.depth(&lane).await.unwrap_or(0)),
            };
            // Found again at the next sweep, if those do not suffice.
            if *hints >= HINTS_ENOUGH {
                continue;
            }
            *hints += 1;
        }
        if parts.queue.push(&lane, job.id).await.is_err() {
            break;
        }
        hinted.push((job, epoch));
    }
    if hinted.is_empty() {
        return Ok(0);
    }
    parts.store.mark_found_hinted(&hinted).await?;
    Ok(hinted.len() as u64)
}
