//! The sweeps. Each is safe to kill half way and to repeat.

pub(crate) mod catalogue;
pub(crate) mod consumers;
pub(crate) mod expire;
pub(crate) mod gauges;
pub(crate) mod holds;
pub(crate) mod inputs;
pub(crate) mod purge;
pub(crate) mod requeue;
pub(crate) mod rewrap;
pub(crate) mod stopped;
pub(crate) mod versions;

use protocol::TaskId;
use queue::Lane;
use store::Settled;

use crate::Parts;

/// Ends those of the stopped tasks that nothing runs, and says how many; wakes whoever works on or
/// waits for the others.
pub(crate) async fn settle(parts: &Parts, stopped: &[TaskId]) -> crate::Swept {
    if stopped.is_empty() {
        return Ok(0);
    }
    let settled = parts.store.settle_stopped(stopped).await?;
    tell(parts, &settled).await;
    for id in stopped
        .iter()
        .filter(|id| settled.iter().all(|task| task.id != **id))
    {
        parts.queue.stop(*id).await;
    }
    Ok(settled.len() as u64)
}

/// Counts the ends, and wakes whoever waits for them.
pub(crate) async fn tell(parts: &Parts, settled: &[Settled]) {
    for task in settled {
        parts
            .metrics
            .settled
            .with_label_values(&[task.reason.as_str()])
            .inc();
        if task.undoing {
            tracing::info!(task.id = %task.id, reason = task.reason, "task is undone before it ends");
            let lane = Lane {
                tool: task.tool.clone(),
                version: task.version,
            };
            if parts.queue.push(&lane, task.id).await.is_err() {
                tracing::debug!(task.id = %task.id, "no hint yet: the next reconcile gives it one");
            }
        } else {
            tracing::info!(task.id = %task.id, reason = task.reason, "task ended");
        }
        parts.queue.wake(task.id).await;
    }
}

/// Repeats a batch until it comes back short, looking at shutdown in between.
pub(crate) async fn batches<F>(parts: &Parts, mut batch: impl FnMut() -> F) -> crate::Swept
where
    F: Future<Output = crate::Swept>,
{
    let mut total = 0;
    loop {
        let moved = batch().await?;
        total += moved;
        if moved < u64::from(parts.config.batch) || parts.shutdown.is_cancelled() {
            return Ok(total);
        }
    }
}
