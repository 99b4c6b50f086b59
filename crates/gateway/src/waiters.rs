//! Who waits for which task in this process, and which task is left alone when its last caller goes
//! away.
//!
//! Nothing here is needed by another replica: when this process dies, its holds run out in
//! Postgres, and cron stops what nobody holds.
//!
//! Architecture invariant: talks to nobody (`holds.rs` does), so that tests can run it in every
//! order of events (`tests/interleavings`).

use std::collections::HashMap;

use protocol::TaskId;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::metrics::{Level, Metrics};
use crate::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Tasks in one batch, at most.
const BATCH_MAX: usize = 256;

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
    pub(crate) metrics: Metrics,
}

impl Waiters {
    /// The register, and where to learn what was left alone.
    pub(crate) fn new(metrics: Metrics) -> (Arc<Self>, Left) {
        let (left, receiver) = mpsc::unbounded_channel();
        let waiters = Self {
            held: Mutex::new(HashMap::new()),
            left,
            metrics,
        };
        (Arc::new(waiters), Left(receiver))
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

    /// The tasks that are waited for.
    pub(crate) fn ids(&self) -> Vec<TaskId> {
        self.held().keys().copied().collect()
    }

    fn held(&self) -> MutexGuard<'_, HashMap<TaskId, usize>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tasks that were left alone.
pub(crate) struct Left(mpsc::UnboundedReceiver<TaskId>);

impl Left {
    /// The next ones; `None` when `ended` and all are told.
    pub(crate) async fn next(&mut self, ended: &CancellationToken) -> Option<Vec<TaskId>> {
        let mut ids = Vec::new();
        tokio::select! {
            biased;
            _ = self.0.recv_many(&mut ids, BATCH_MAX) => Some(ids),
            () = ended.cancelled() => None,
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
