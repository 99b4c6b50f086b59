//! Outcomes that reached their caller, recorded in batches after the bytes were written.

use std::time::Duration;

use protocol::TaskId;
use store::Store;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;

/// Marks that wait to be recorded, at most; more are lost and counted.
const WAITING_MAX: usize = 16 * 1024;
/// Recorded in one statement, at most.
const BATCH_MAX: usize = 512;
/// How long the first mark of a batch waits for others.
const GATHER: Duration = Duration::from_millis(20);

/// What a delivery means for a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// Its outcome was read by its owner.
    Fetched(TaskId),
    /// Its outcome was the answer to the call, and nobody can name it: forget it.
    Inline(TaskId),
}

/// Takes marks of written answers.
#[derive(Clone)]
pub(crate) struct Deliveries {
    sender: mpsc::Sender<Mark>,
    metrics: Metrics,
}

impl Deliveries {
    pub(crate) fn new(metrics: Metrics) -> (Self, mpsc::Receiver<Mark>) {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        (Self { sender, metrics }, receiver)
    }

    /// The bytes of these answers were written.
    pub(crate) fn record(&self, marks: impl IntoIterator<Item = Mark>) {
        for mark in marks {
            if self.sender.try_send(mark).is_err() {
                self.metrics.marks_lost.inc();
            }
        }
    }
}

/// Records marks until `ended` and none is left.
pub(crate) async fn keep(
    mut marks: mpsc::Receiver<Mark>,
    store: &Store,
    metrics: &Metrics,
    ended: CancellationToken,
) {
    let store = store.with_wait(Duration::from_secs(2));
    let mut batch = Vec::new();
    loop {
        tokio::select! {
            biased;
            received = marks.recv_many(&mut batch, BATCH_MAX) => if received == 0 { return },
            () = ended.cancelled() => return,
        }
        if batch.len() < BATCH_MAX && !ended.is_cancelled() {
            tokio::time::sleep(GATHER).await;
            while batch.len() < BATCH_MAX
                && let Ok(mark) = marks.try_recv()
            {
                batch.push(mark);
            }
        }
        let (mut fetched, mut inline) = (Vec::new(), Vec::new());
        for mark in batch.drain(..) {
            match mark {
                Mark::Fetched(id) => fetched.push(id),
                Mark::Inline(id) => inline.push(id),
            }
        }
        if !fetched.is_empty()
            && let Err(error) = store.mark_fetched(&fetched).await
        {
            lost(metrics, fetched.len(), &error);
        }
        if !inline.is_empty()
            && let Err(error) = store.delivered_inline(&inline).await
        {
            lost(metrics, inline.len(), &error);
        }
    }
}

fn lost(metrics: &Metrics, marks: usize, error: &store::Error) {
    metrics.marks_lost.inc_by(marks as u64);
    tracing::warn!(error = %error, marks, "deliveries could not be recorded");
}
