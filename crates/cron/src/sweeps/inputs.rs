//! I10: questions past their deadline are answered by their default, or end their task.

use crate::{Parts, Swept};

pub(crate) async fn run(parts: Parts) -> Swept {
    let mut last = None;
    let mut swept = 0;
    while let Some(id) = parts.store.fail_unanswered(last).await? {
        // Settles a stopped one; one that resumed by its default gets its hint by requeue.
        super::settle(&parts, &[id]).await?;
        parts.queue.wake(id).await;
        last = Some(id);
        swept += 1;
        if parts.shutdown.is_cancelled() {
            break;
        }
    }
    Ok(swept)
}
