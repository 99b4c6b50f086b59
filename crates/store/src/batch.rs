//! Coalesces concurrent questions: one round trip for all that wait, no added wait when idle.
//!
//! A lone question is asked at once. While its round trip is in flight the next ones gather, and
//! the first of them to get its turn asks for all. Whoever leads does it inside its own
//! request, so nothing is spawned; a leader that is dropped half way fails nobody, because
//! its followers notice and ask again.
//!
//! Architecture invariant: knows neither Postgres nor time, so that tests can run it in every
//! order of events (`tests/interleavings`).

use crate::sync::{Arc, Mutex, MutexGuard, PoisonError, Semaphore, oneshot};

/// Bounds of the coalescing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Questions in one round trip, at most.
    pub(crate) batch_max: usize,
    /// Round trips in flight, at most.
    pub(crate) in_flight_max: usize,
}

type Waiting<Q, A> = Vec<(Q, oneshot::Sender<A>)>;

/// The questions of a process that wait for a round trip.
pub(crate) struct Batches<Q, A> {
    waiting: Arc<Mutex<Waiting<Q, A>>>,
    turns: Arc<Semaphore>,
    batch_max: usize,
}

impl<Q, A> Clone for Batches<Q, A> {
    fn clone(&self) -> Self {
        Self {
            waiting: Arc::clone(&self.waiting),
            turns: Arc::clone(&self.turns),
            batch_max: self.batch_max,
        }
    }
}

impl<Q, A> Batches<Q, A> {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            waiting: Arc::new(Mutex::new(Vec::new())),
            turns: Arc::new(Semaphore::new(limits.in_flight_max)),
            batch_max: limits.batch_max,
        }
    }

    /// The answer to a question, asked together with those that wait beside it. `round_trip`
    /// answers in the order of the questions. `None`: the round trip failed, or whoever led it
    /// was dropped; ask alone, and see the error oneself.
    pub(crate) async fn ask<F, E>(&self, question: Q, round_trip: impl Fn(Vec<Q>) -> F) -> Option<A>
    where
        F: Future<Output = Result<Vec<A>, E>>,
    {
        let (sender, mut answer) = oneshot::channel();
        self.lock().push((question, sender));
        loop {
            tokio::select! {
                biased;
                found = &mut answer => return found.ok(),
                turn = self.turns.acquire() => {
                    let turn = turn.expect("the semaphore is never closed");
                    let batch = self.take();
                    if batch.is_empty() {
                        // Somebody else asks for us: wait for that, and take no turn meanwhile.
                        drop(turn);
                        return answer.await.ok();
                    }
                    let (questions, senders): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
                    // On an error the senders are dropped, and everyone asks by themselves.
                    if let Ok(answers) = round_trip(questions).await {
                        for (sender, answer) in senders.into_iter().zip(answers) {
                            // Whoever asked may be gone.
                            let _ = sender.send(answer);
                        }
                    }
                }
            }
        }
    }

    fn take(&self) -> Waiting<Q, A> {
        let mut waiting = self.lock();
        let taken = waiting.len().min(self.batch_max);
        waiting.drain(..taken).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Waiting<Q, A>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
