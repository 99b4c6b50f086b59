//! What Postgres is told of who waits here: holds are renewed while somebody does, and a task whose
//! only caller went away is told to stop.

use std::time::Duration;

use queue::Queue;
use store::Store;
use tokio_util::sync::CancellationToken;

use crate::waiters::{Left, Waiters};

/// Tries to tell Postgres of one batch; then the hold has run out by itself.
const TRIES: u32 = 5;

impl Waiters {
    /// Renews the holds of all waiting calls until `ended`, in one statement a turn.
    pub(crate) async fn renew(&self, store: &Store, hold: Duration, ended: CancellationToken) {
        // Callers wait for Postgres to come back: their holds must not run out for want of a try
        // at the right moment.
        let store = store.with_wait(hold);
        while !ended.is_cancelled() {
            tokio::select! {
                () = ended.cancelled() => return,
                () = tokio::time::sleep(hold / 3) => {}
            }
            let ids = self.ids();
            if ids.is_empty() {
                continue;
            }
            let renewed = tokio::select! {
                () = ended.cancelled() => return,
                renewed = store.hold(&ids, hold) => renewed,
            };
            if let Err(error) = renewed {
                tracing::warn!(error = %error, calls = ids.len(), "holds could not be renewed");
            }
        }
    }

    /// Tells tasks to stop that were left alone, until `ended` and all of them are told.
    pub(crate) async fn stop_abandoned(
        &self,
        mut left: Left,
        (store, queue): (&Store, &Queue),
        (hold, ended): (Duration, CancellationToken),
    ) {
        let store = store.with_wait(Duration::from_secs(1));
        while let Some(ids) = left.next(&ended).await {
            for _ in 0..TRIES {
                let Ok(stopped) = store.abandon(&ids, hold).await else {
                    continue;
                };
                self.metrics.abandoned.inc_by(stopped.len() as u64);
                for id in stopped {
                    queue.stop(id).await;
                }
                break;
            }
        }
    }
}
