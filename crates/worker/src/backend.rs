//! What a running tool stands on: journal, questions, status. Small, so that tools can be
//! tested without servers ([`crate::testkit`]).

use async_trait::async_trait;
use store::{Awaited, NewCallback, Open, ParkedFor, StepSpec, Wait};

/// Whether a step may act.
#[derive(Debug)]
pub(crate) enum Begun {
    Act(Ticket),
    InDoubt,
    Stop,
}

/// Permission to act once.
#[derive(Debug)]
pub(crate) enum Ticket {
    Stored(store::Permit),
    Kit(String),
}

/// The backend could not be asked: nothing may act (fail closed).
#[derive(Debug, thiserror::Error)]
#[error("the journal cannot be reached")]
pub(crate) struct Unreachable(#[source] pub(crate) store::Error);

/// One attempt's way to its task. Every write is fenced: `false` means that this attempt no
/// longer owns the task.
#[async_trait]
pub(crate) trait Backend: Send + Sync {
    async fn begin_step(&self, step: StepSpec<'_>) -> Result<Begun, Unreachable>;
    async fn finish_step(&self, ticket: Ticket, output: &[u8]) -> Result<bool, Unreachable>;
    async fn abandon_step(&self, ticket: Ticket) -> Result<bool, Unreachable>;
    async fn park(
        &self,
        parked_for: ParkedFor,
        questions: &[store::Question],
    ) -> Result<bool, Unreachable>;
    async fn record_answer(
        &self,
        question: &store::Question,
        response: &[u8],
        answered_by: &str,
    ) -> Result<bool, Unreachable>;
    /// Nobody is called back without settings for it.
    async fn open_callback(&self, _new: &NewCallback) -> Result<Open, Unreachable> {
        Ok(Open::Stop)
    }
    async fn wait_callback(&self, _wait: Wait<'_>) -> Result<Awaited, Unreachable> {
        Ok(Awaited::Stop)
    }
    /// Another try, if there is one, waits at least so long.
    fn retry_after(&self, _pause: std::time::Duration) {}
    async fn status(&self, message: &str) -> Result<bool, Unreachable>;
    /// Tells whoever holds the call; may be lost.
    async fn publish(&self, progress: &protocol::progress::Progress);
}
