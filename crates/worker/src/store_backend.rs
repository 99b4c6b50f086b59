//! The backend of a real attempt: Postgres for the truth, Redis for progress.
//!
//! Tools run on threads of their own, but what they ask for is done on the worker's: a connection
//! is driven by the runtime that opened it, and one opened among tools would stall with them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use protocol::progress::Progress;
use queue::Queue;
use store::{
    Awaited, Begin, Claim, NewCallback, Open, Parked, ParkedFor, StepSpec, Store, UndoSpec, Wait,
    Write,
};
use tokio::runtime::Handle;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};
use tracing::Instrument;

use crate::attempt::Parts;
use crate::backend::{Backend, Begun, Ticket, Unreachable};
use crate::lease::Job;
use crate::short::cut;
use crate::trace;

/// One attempt's claim, and what it writes through.
pub(crate) struct StoreBackend {
    store: Store,
    queue: Queue,
    job: Arc<Job>,
    started: Instant,
    status_bytes_max: usize,
    /// The worker's own runtime.
    home: Handle,
    /// How acts ended, on the way to the journal: not given up when the tool is.
    records: TaskTracker,
    open: Arc<Mutex<Option<OpenStep>>>,
}

/// A step that began and whose end is not in the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OpenStep {
    pub(crate) key: String,
    pub(crate) idempotent: bool,
}

fn done(write: Result<Write, store::Error>) -> Result<bool, Unreachable> {
    write.map(|write| write == Write::Done).map_err(Unreachable)
}

impl StoreBackend {
    /// `open`: a step that an earlier attempt left open.
    pub(crate) fn new(
        parts: &Parts,
        job: &Arc<Job>,
        started: Instant,
        open: Option<String>,
    ) -> Self {
        // One that may not be repeated does not come this far.
        let open = open.map(|key| OpenStep {
            key,
            idempotent: true,
        });
        Self {
            store: parts.store.clone(),
            queue: parts.queue.clone(),
            job: Arc::clone(job),
            started,
            status_bytes_max: parts.config.status_bytes_max,
            home: Handle::current(),
            records: TaskTracker::new(),
            open: Arc::new(Mutex::new(open)),
        }
    }

    /// The step that is open now that the tool has ended: an act that it dropped, or whose end
    /// could not be journaled.
    pub(crate) async fn open_step(&self) -> Option<OpenStep> {
        self.records.close();
        self.records.wait().await;
        lock(&self.open).clone()
    }

    /// Journals how an act ended, also when the tool is dropped meanwhile: that it acted stays
    /// true, and what the journal knows of is in no doubt.
    async fn record(
        &self,
        write: impl Future<Output = Result<Write, store::Error>> + Send + 'static,
    ) -> Result<bool, Unreachable> {
        let open = Arc::clone(&self.open);
        let recording = async move {
            let written = write.await;
            if matches!(written, Ok(Write::Done)) {
                *lock(&open) = None;
            }
            done(written)
        };
        let recording = recording.in_current_span();
        match self.records.spawn_on(recording, &self.home).await {
            Ok(recorded) => recorded,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            // The worker's runtime ends, and this process with it.
            Err(_) => std::future::pending().await,
        }
    }

    fn claim(&self) -> Arc<Claim> {
        Arc::clone(&self.job.claim)
    }

    /// Does the work on the worker's own runtime; given up when the caller is.
    async fn at_home<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> T {
        let running = self.home.spawn(work.in_current_span());
        match AbortOnDropHandle::new(running).await {
            Ok(value) => value,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            // The worker's runtime ends, and this process with it.
            Err(_) => std::future::pending().await,
        }
    }
}

#[async_trait]
impl Backend for StoreBackend {
    async fn begin_step(&self, step: StepSpec<'_>) -> Result<Begun, Unreachable> {
        let (store, claim) = (self.store.clone(), self.claim());
        let (key, seq, idempotent) = (step.key.to_owned(), step.seq, step.idempotent);
        let undo = step.undo.map(|undo| (undo.how.to_vec(), undo.idempotent));
        let begun = self.at_home(async move {
            let undo = undo.as_ref().map(|(how, idempotent)| UndoSpec {
                how,
                idempotent: *idempotent,
            });
            let step = StepSpec {
                key: &key,
                seq,
                idempotent,
                undo,
            };
            store.begin_step(&claim, step).await
        });
        Ok(match begun.await.map_err(Unreachable)? {
            Begin::Act(permit) => {
                *lock(&self.open) = Some(OpenStep {
                    key: step.key.to_owned(),
                    idempotent,
                });
                Begun::Act(Ticket::Stored(permit))
            }
            Begin::InDoubt => Begun::InDoubt,
            Begin::Stop => Begun::Stop,
        })
    }

    async fn finish_step(&self, ticket: Ticket, output: &[u8]) -> Result<bool, Unreachable> {
        let Ticket::Stored(permit) = ticket else {
            return Ok(false);
        };
        let (store, claim) = (self.store.clone(), self.claim());
        let output = output.to_vec();
        self.record(async move { store.finish_step(&claim, permit, &output).await })
            .await
    }

    async fn abandon_step(&self, ticket: Ticket) -> Result<bool, Unreachable> {
        let Ticket::Stored(permit) = ticket else {
            return Ok(false);
        };
        let (store, claim) = (self.store.clone(), self.claim());
        self.record(async move { store.abandon_step(&claim, permit).await })
            .await
    }

    async fn park(
        &self,
        parked_for: ParkedFor,
        questions: &[store::Question],
    ) -> Result<bool, Unreachable> {
        let (store, claim) = (self.store.clone(), self.claim());
        let (questions, worked) = (questions.to_vec(), self.started.elapsed());
        self.job.parks(true);
        let span = trace::park(questions.len(), parked_for.as_str());
        let parking = async move { store.park(&claim, parked_for, &questions, worked).await };
        let parked = self.at_home(parking.instrument(span));
        let parked = parked.await.map(|parked| parked == Parked::Parked);
        if !matches!(parked, Ok(true)) {
            self.job.parks(false);
        }
        parked.map_err(Unreachable)
    }

    async fn record_answer(
        &self,
        question: &store::Question,
        response: &[u8],
        answered_by: &str,
    ) -> Result<bool, Unreachable> {
        let (store, claim) = (self.store.clone(), self.claim());
        let (question, response) = (question.clone(), response.to_vec());
        let answered_by = answered_by.to_owned();
        let recorded = self.at_home(async move {
            store
                .record_answer(&claim, &question, &response, &answered_by)
                .await
        });
        done(recorded.await)
    }

    async fn open_callback(&self, new: &NewCallback) -> Result<Open, Unreachable> {
        let (store, claim, new) = (self.store.clone(), self.claim(), new.clone());
        let opened = self.at_home(async move { store.open_callback(&claim, &new).await });
        opened.await.map_err(Unreachable)
    }

    async fn wait_callback(&self, wait: Wait<'_>) -> Result<Awaited, Unreachable> {
        let (store, claim) = (self.store.clone(), self.claim());
        let (key, in_doubt) = (wait.key.to_owned(), wait.in_doubt);
        let message = wait
            .message
            .map(|m| cut(m, self.status_bytes_max).to_owned());
        let worked = self.started.elapsed();
        self.job.parks(true);
        let waiting = self.at_home(async move {
            let wait = Wait {
                key: &key,
                in_doubt,
                message: message.as_deref(),
            };
            store.wait_callback(&claim, wait, worked).await
        });
        let awaited = waiting.await;
        if !matches!(awaited, Ok(Awaited::Waiting)) {
            self.job.parks(false);
        }
        if matches!(awaited, Ok(Awaited::Received(_))) {
            // That it came has closed the step that asked for it.
            *lock(&self.open) = None;
        }
        awaited.map_err(Unreachable)
    }

    fn retry_after(&self, pause: Duration) {
        self.job.retry_after(pause);
    }

    async fn status(&self, message: &str) -> Result<bool, Unreachable> {
        let (store, claim) = (self.store.clone(), self.claim());
        let message = cut(message, self.status_bytes_max).to_owned();
        let queue = self.queue.clone();
        let written = self.at_home(async move {
            let written = done(store.progress(&claim, &message).await)?;
            if written {
                queue.wake(claim.id()).await;
            }
            Ok(written)
        });
        written.await
    }

    async fn publish(&self, progress: &Progress) {
        let Ok(json) = serde_json::to_vec(progress) else {
            return;
        };
        let (queue, id) = (self.queue.clone(), self.job.claim.id());
        self.at_home(async move { queue.progress(id, &json).await })
            .await;
    }
}

fn lock(open: &Mutex<Option<OpenStep>>) -> MutexGuard<'_, Option<OpenStep>> {
    open.lock().unwrap_or_else(PoisonError::into_inner)
}
