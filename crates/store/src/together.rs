//! What concurrent callers of one process ask of Postgres together, and what becomes of one who is
//! let down.
//!
//! All of it is safe to ask again: ids and tokens are chosen before the first try. So a caller whose
//! round trip failed asks alone, and of many only the one whose question is at fault gets its error.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use protocol::TaskId;

use crate::batch::{Asked, Batches, Limits};
use crate::claim::{Claim, Due};
use crate::create_rows::Row;
use crate::settle::Finished;
use crate::task::{Principal, Task};
use crate::turn::{Hinted, Pick, Turn};
use crate::{Error, Lookup, Store};

/// More connections at once would make the sum slower, not faster. Weights are bytes: what is large gains
/// nothing by company, and 64 of the largest results would fill a process. As many may wait as one process can
/// hold open, with room to spare; they cost some hundred bytes each.
const TOGETHER: Limits = Limits {
    batch_max: 64,
    weight_max: 1024 * 1024,
    in_flight_max: 2,
    crowd: 16,
    waiting_max: 32 * 1024,
};

/// Jobs that are taken by turn in one statement, at most: those of one principal are found by passing the ones before.
const TURNS_MAX: usize = 16;

/// So many reads wait before a second statement begins beside one. They wait for no disk, so there is little to be done
/// meanwhile.
const READS_CROWD: usize = 32;

/// Longer than a healthy round trip takes: one that hangs (a lock, a connection that is cut off) holds nobody
/// up for longer.
const IMPATIENT: Duration = Duration::from_millis(100);

/// Between the beginnings of two round trips of one kind, if the first was made for several: who comes sooner gathers with
/// others, since a few of them together cost Postgres little more than one. Whoever is alone waits for nothing, however
/// often it comes.
const PACE: Duration = Duration::from_millis(5);

/// Whoever asks for others may use its last try to the end.
const LEADER_LATE: Duration = Duration::from_secs(1);

/// Those who ask together, by what they ask.
#[derive(Clone)]
pub(crate) struct Together {
    pub(crate) reads: Kind<(Principal, TaskId), Lookup>,
    pub(crate) creates: Kind<Arc<Row>, Option<Task>>,
    pub(crate) claims: Kind<Arc<Due>, Option<Claim>>,
    pub(crate) results: Kind<Arc<Finished>, Option<Duration>>,
    pub(crate) hints: Kind<TaskId, Hinted>,
    pub(crate) turns: Kind<Arc<Pick>, Turn>,
}

/// One kind of question.
pub(crate) struct Kind<Q, A> {
    batches: Batches<Q, A>,
    /// What commits keeps a pace; reads cost too little for that.
    pace: Option<Arc<Pace>>,
}

impl<Q, A> Kind<Q, A> {
    fn unpaced(batches: Batches<Q, A>) -> Self {
        Self {
            batches,
            pace: None,
        }
    }

    fn paced(batches: Batches<Q, A>) -> Self {
        Self {
            batches,
            pace: Some(Arc::default()),
        }
    }
}

impl<Q, A> Clone for Kind<Q, A> {
    fn clone(&self) -> Self {
        Self {
            batches: self.batches.clone(),
            pace: self.pace.clone(),
        }
    }
}

/// When the last round trip of a kind began that was made for several.
#[derive(Default)]
struct Pace(Mutex<Option<Instant>>);

impl Pace {
    /// Waits until another one may begin.
    async fn keep(&self) {
        let last = *self.last();
        if let Some(last) = last.filter(|last| last.elapsed() < PACE) {
            tokio::time::sleep_until((last + PACE).into()).await;
        }
    }

    /// One begins, for so many.
    fn begins(&self, questions: usize) {
        *self.last() = (questions > 1).then(Instant::now);
    }

    fn last(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Together {
    pub(crate) fn new() -> Self {
        Self::within(TOGETHER)
    }

    fn within(limits: Limits) -> Self {
        let turns = Limits {
            batch_max: TURNS_MAX,
            ..limits
        };
        let reads = Limits {
            crowd: READS_CROWD,
            ..limits
        };
        Self {
            reads: Kind::unpaced(Batches::new(reads, |_| 0)),
            creates: Kind::paced(Batches::new(limits, |row: &Arc<Row>| row.bytes())),
            claims: Kind::paced(Batches::new(limits, |_| 0)),
            results: Kind::paced(Batches::new(limits, |finished: &Arc<Finished>| {
                finished.bytes()
            })),
            hints: Kind::unpaced(Batches::new(limits, |_| 0)),
            turns: Kind::paced(Batches::new(turns, |_| 0)),
        }
    }
}

/// Too many wait for Postgres.
#[derive(Debug, thiserror::Error)]
#[error("too many callers of this process wait for postgres")]
struct Crowded;

impl Store {
    /// The same store with room for so many callers that wait to be asked for, of each kind, so that a test
    /// need not be as many as a process has room for.
    #[must_use]
    pub fn with_waiting_max(self, waiting_max: usize) -> Self {
        let limits = Limits {
            waiting_max,
            ..TOGETHER
        };
        Self {
            together: Together::within(limits),
            ..self
        }
    }

    /// The answer to a question, asked together with those that wait beside it. `None`: ask alone, in the
    /// time that is left.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when too many wait.
    pub(crate) async fn together<Q, A, F>(
        &self,
        operation: &'static str,
        kind: &Kind<Q, A>,
        question: Q,
        round_trip: impl Fn(Vec<Q>) -> F,
    ) -> Result<Option<A>, Error>
    where
        F: Future<Output = Result<Vec<A>, Error>>,
    {
        let impatient = || tokio::time::sleep(IMPATIENT);
        let pause = async {
            if let Some(pace) = &kind.pace {
                pace.keep().await;
            }
            // Whoever is here already, but had no turn of a thread yet, comes along. It costs whoever is alone a look
            // at the sockets.
            tokio::task::yield_now().await;
        };
        let asking = kind
            .batches
            .ask(question, impatient, pause, |questions: Vec<Q>| {
                self.metrics.together(operation, questions.len());
                if let Some(pace) = &kind.pace {
                    pace.begins(questions.len());
                }
                round_trip(questions)
            });
        // In an outage whoever came before has its own time first; ours does not begin after it.
        let patience = self.wait_max + LEADER_LATE;
        match tokio::time::timeout(patience, asking).await {
            Ok(Asked::Answered(answer)) => Ok(Some(answer)),
            // Whoever asked for us failed or was dropped, or it took too long.
            Ok(Asked::Alone) | Err(_) => Ok(None),
            Ok(Asked::Full) => Err(Error::Unavailable(Box::new(Crowded))),
        }
    }

    /// What is left of a caller's time that began then.
    pub(crate) fn time_left(&self, started: Instant) -> Duration {
        self.wait_max.saturating_sub(started.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use super::*;

    /// Whoever comes soon after several waits for the rest of the time; whoever comes later, or after one who was alone, for
    /// nothing.
    #[tokio::test]
    async fn a_pace_is_kept_by_those_who_come_too_soon() {
        let pace = Pace::default();
        let is_ready = || {
            let mut context = Context::from_waker(Waker::noop());
            std::pin::pin!(pace.keep()).poll(&mut context).is_ready()
        };
        assert!(is_ready());
        pace.begins(1);
        assert!(is_ready());
        pace.begins(2);
        assert!(!is_ready());
        let last = (*pace.last()).unwrap();
        pace.keep().await;
        assert!(last.elapsed() >= PACE);
        assert!(is_ready());
    }
}
