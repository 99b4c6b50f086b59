//! I2: jobs that Redis does not know of get a hint.

use queue::Lane;
use store::UnhintedFilter;

use crate::{Parts, Swept};

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
