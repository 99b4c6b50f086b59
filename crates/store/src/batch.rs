//! Coalesces concurrent questions: one round trip for all that wait, no added wait when idle.
//!
//! A lone question is asked at once. While its round trip is in flight the next ones gather, and
//! the first of them to get its turn asks for all. Whoever leads does it inside its own
//! request, so nothing is spawned; a leader that is dropped half way fails nobody, because
//! its followers notice and ask again. Those who went away before their turn are not asked for.
//!
//! Architecture invariant: knows neither Postgres nor time, so that tests can run it in every
//! order of events (`tests/interleavings`).

use std::collections::VecDeque;

use crate::sync::{Arc, Mutex, MutexGuard, PoisonError, Semaphore, oneshot};

/// Bounds of the coalescing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Questions in one round trip, at most.
    pub(crate) batch_max: usize,
    /// Round trips in flight, at most.
    pub(crate) in_flight_max: usize,
    /// Questions that wait for a round trip, at most.
    pub(crate) waiting_max: usize,
}

/// What came of a question.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Asked<A> {
    /// Its answer.
    Answered(A),
    /// The round trip failed, or whoever led it was dropped: ask alone, and see the error oneself.
    Alone,
    /// As many wait as may: it was not asked.
    Full,
}

type Question<Q, A> = (Q, oneshot::Sender<A>);

/// The questions of a process that wait for a round trip.
pub(crate) struct Batches<Q, A> {
    waiting: Arc<Mutex<VecDeque<Question<Q, A>>>>,
    turns: Arc<Semaphore>,
    limits: Limits,
}

impl<Q, A> Clone for Batches<Q, A> {
    fn clone(&self) -> Self {
        Self {
            waiting: Arc::clone(&self.waiting),
            turns: Arc::clone(&self.turns),
            limits: self.limits,
        }
    }
}

impl<Q, A> Batches<Q, A> {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            waiting: Arc::new(Mutex::new(VecDeque::new())),
            turns: Arc::new(Semaphore::new(limits.in_flight_max)),
            limits,
        }
    }

    /// The answer to a question, asked together with those that wait beside it. `round_trip`
    /// answers in the order of the questions.
    pub(crate) async fn ask<F, E>(&self, question: Q, round_trip: impl Fn(Vec<Q>) -> F) -> Asked<A>
    where
        F: Future<Output = Result<Vec<A>, E>>,
    {
        let (sender, mut answer) = oneshot::channel();
        if !self.enter(question, sender) {
            return Asked::Full;
        }
        loop {
            tokio::select! {
                biased;
                found = &mut answer => return found.map_or(Asked::Alone, Asked::Answered),
                turn = self.turns.acquire() => {
                    let turn = turn.expect("the semaphore is never closed");
                    let batch = self.take();
                    if batch.is_empty() {
                        // Somebody else asks for us: wait for that, and take no turn meanwhile.
                        drop(turn);
                        return answer.await.map_or(Asked::Alone, Asked::Answered);
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

    /// Joins those who wait, if there is room.
    fn enter(&self, question: Q, sender: oneshot::Sender<A>) -> bool {
        let mut waiting = self.lock();
        if waiting.len() >= self.limits.waiting_max {
            // Those who went away take nobody's place.
            waiting.retain(|(_, sender)| !sender.is_closed());
            if waiting.len() >= self.limits.waiting_max {
                return false;
            }
        }
        waiting.push_back((question, sender));
        true
    }

    /// The next ones, in the order in which they came.
    fn take(&self) -> Vec<Question<Q, A>> {
        let mut waiting = self.lock();
        let mut batch = Vec::with_capacity(waiting.len().min(self.limits.batch_max));
        while batch.len() < self.limits.batch_max
            && let Some((question, sender)) = waiting.pop_front()
        {
            if !sender.is_closed() {
                batch.push((question, sender));
            }
        }
        batch
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Question<Q, A>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
