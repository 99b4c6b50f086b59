//! The backend of a real attempt: Postgres for the truth, Redis for progress.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use protocol::progress::Progress;
use queue::Queue;
use store::{Begin, Claim, Parked, ParkedFor, StepSpec, Store, Write};

use crate::backend::{Backend, Begun, Ticket, Unreachable};

/// One attempt's claim, and what it writes through.
pub(crate) struct StoreBackend {
    pub(crate) store: Store,
    pub(crate) queue: Queue,
    pub(crate) claim: Arc<Claim>,
    pub(crate) started: Instant,
    pub(crate) status_bytes_max: usize,
}

fn done(write: Result<Write, store::Error>) -> Result<bool, Unreachable> {
    write.map(|write| write == Write::Done).map_err(Unreachable)
}

#[async_trait]
impl Backend for StoreBackend {
    async fn begin_step(&self, step: StepSpec<'_>) -> Result<Begun, Unreachable> {
        Ok(
            match self
                .store
                .begin_step(&self.claim, step)
                .await
                .map_err(Unreachable)?
            {
                Begin::Act(permit) => Begun::Act(Ticket::Stored(permit)),
                Begin::InDoubt => Begun::InDoubt,
                Begin::Stop => Begun::Stop,
            },
        )
    }

    async fn finish_step(&self, ticket: Ticket, output: &[u8]) -> Result<bool, Unreachable> {
        let Ticket::Stored(permit) = ticket else {
            return Ok(false);
        };
        done(self.store.finish_step(&self.claim, permit, output).await)
    }

    async fn abandon_step(&self, ticket: Ticket) -> Result<bool, Unreachable> {
        let Ticket::Stored(permit) = ticket else {
            return Ok(false);
        };
        done(self.store.abandon_step(&self.claim, permit).await)
    }

    async fn park(
        &self,
        parked_for: ParkedFor,
        questions: &[store::Question],
    ) -> Result<bool, Unreachable> {
        let worked = self.started.elapsed();
        let parked = self
            .store
            .park(&self.claim, parked_for, questions, worked)
            .await;
        parked
            .map(|parked| parked == Parked::Parked)
            .map_err(Unreachable)
    }

    async fn record_answer(
        &self,
        question: &store::Question,
        response: &[u8],
        answered_by: &str,
    ) -> Result<bool, Unreachable> {
        done(
            self.store
                .record_answer(&self.claim, question, response, answered_by)
                .await,
        )
    }

    async fn status(&self, message: &str) -> Result<bool, Unreachable> {
        let message = cut(message, self.status_bytes_max);
        let written = done(self.store.progress(&self.claim, message).await)?;
        if written {
            self.queue.wake(self.claim.id()).await;
        }
        Ok(written)
    }

    async fn publish(&self, progress: &Progress) {
        if let Ok(json) = serde_json::to_vec(progress) {
            self.queue.progress(self.claim.id(), &json).await;
        }
    }
}

/// The longest beginning of at most `max` bytes.
fn cut(text: &str, max: usize) -> &str {
    let mut end = text.len().min(max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
