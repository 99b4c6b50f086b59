//! Who waits for which task in this process: holds are renewed while somebody does, and a task
//! whose only caller went away is told to stop.
//!
//! Nothing here is needed by another replica: when this process dies, its holds run out in
//! Postgres, and cron stops what nobody holds.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use protocol::TaskId;
use queue::Queue;
use store::Store;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::metrics::{Level, Metrics};

/// Told to stop in one statement, at most.
const BATCH_MAX: usize = 256;
/// Tries to tell Postgres of one batch; then the hold has run out by itself.
const TRIES: u32 = 5;

/// What becomes of a task whose caller goes away before it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// It is told to stop: nobody can ever name it.
    Abandon,
    /// It goes on until its hold runs out: a key lets the caller come back.
    Keep,
}

/// The waiting calls of this process.
pub(crate) struct Waiters {
    held: Mutex<HashMap<TaskId, usize>>,
    left: mpsc::UnboundedSender<TaskId>,
    metrics: Metrics,
}

impl Waiters {
    /// The register, and where [`Waiters::stop_abandoned`] learns what was left alone.
    pub(crate) fn new(metrics: Metrics) -> (Arc<Self>, mpsc::UnboundedReceiver<TaskId>) {
        let (left, receiver) = mpsc::unbounded_channel();
        let waiters = Self {
            held: Mutex::default(),
            left,
            metrics,
        };
        (Arc::new(waiters), receiver)
    }

    /// Begins to wait for a task.
    pub(crate) fn hold(self: &Arc<Self>, id: TaskId, unanswered: Unanswered) -> Holding {
        *self.held().entry(id).or_default() += 1;
        Holding {
            waiters: Arc::clone(self),
            id,
            unanswered,
            _level: Level::raise(&self.metrics.held_calls, 1),
        }
    }

    /// How many tasks are waited for.
    pub(crate) fn len(&self) -> usize {
        self.held().len()
    }

    fn held(&self) -> MutexGuard<'_, HashMap<TaskId, usize>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

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
            let ids: Vec<TaskId> = self.held().keys().copied().collect();
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
        mut left: mpsc::UnboundedReceiver<TaskId>,
        (store, queue): (&Store, &Queue),
        (hold, ended): (Duration, CancellationToken),
    ) {
        let store = store.with_wait(Duration::from_secs(1));
        loop {
            let mut ids = Vec::new();
            tokio::select! {
                biased;
                _ = left.recv_many(&mut ids, BATCH_MAX) => {}
                () = ended.cancelled() => return,
            }
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

/// One call that waits for a task. Dropped before [`Holding::answered`], its caller went away.
pub(crate) struct Holding {
    waiters: Arc<Waiters>,
    id: TaskId,
    unanswered: Unanswered,
    _level: Level,
}

impl Holding {
    /// The caller gets an answer: an outcome, a handle or a question.
    pub(crate) fn answered(mut self) {
        self.unanswered = Unanswered::Keep;
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        let mut held = self.waiters.held();
        let others = held.get(&self.id).copied().unwrap_or(1) - 1;
        if others == 0 {
            held.remove(&self.id);
        } else {
            held.insert(self.id, others);
        }
        drop(held);
        if others == 0 && self.unanswered == Unanswered::Abandon {
            // Nobody listens any more only when the process ends; then the hold runs out.
            let _ = self.waiters.left.send(self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_unanswered_caller_abandons() {
        let (waiters, mut left) = Waiters::new(Metrics::prepared(&telemetry::Registry::new()));
        let id = TaskId::new(0);
        let (first, second) = (
            waiters.hold(id, Unanswered::Abandon),
            waiters.hold(id, Unanswered::Abandon),
        );
        assert_eq!(waiters.len(), 1);
        drop(first);
        assert!(left.try_recv().is_err(), "another one waits");
        drop(second);
        assert_eq!(left.try_recv(), Ok(id));
        assert_eq!(waiters.len(), 0);
    }

    #[test]
    fn answered_and_keyed_calls_leave_the_task_alone() {
        let (waiters, mut left) = Waiters::new(Metrics::prepared(&telemetry::Registry::new()));
        waiters.hold(TaskId::new(0), Unanswered::Abandon).answered();
        drop(waiters.hold(TaskId::new(0), Unanswered::Keep));
        assert!(left.try_recv().is_err());
        assert_eq!(waiters.len(), 0);
    }
}
