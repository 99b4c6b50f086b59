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

/// Longer than a healthy round trip takes: one that hangs (a lock, a connection that is cut off) holds nobody
/// up for longer.
const IMPATIENT: Duration = Duration::from_millis(100);

/// Between the beginnings of two round trips of one kind: who comes sooner gathers with others. Whoever is alone never
/// comes so soon, and where many do, a few of them together cost Postgres little more than one.
const PACE: Duration = Duration::from_millis(2);

/// The same of reads, which cost less, and only after one that was shared: whoever reads alone, again and again, waits
/// for nobody.
const PACE_OF_READS: Duration = Duration::from_micros(500);
/// So many reads wait before a round trip begins beside another one: they gain by company for longer.
const CROWD_OF_READS: usize = 32;

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
    pace: Arc<Pace>,
}

impl<Q, A> Kind<Q, A> {
    /// Of what commits.
    fn writes(batches: Batches<Q, A>) -> Self {
        Self {
            batches,
            pace: Arc::new(Pace::new(PACE, 1)),
        }
    }

    fn reads(batches: Batches<Q, A>) -> Self {
        Self {
            batches,
            pace: Arc::new(Pace::new(PACE_OF_READS, 2)),
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

/// When the last round trip of a kind began, and for how many.
struct Pace {
    every: Duration,
    /// It is kept after a round trip for so many.
    company: usize,
    last: Mutex<Option<(Instant, usize)>>,
}

impl Pace {
    fn new(every: Duration, company: usize) -> Self {
        Self {
            every,
            company,
            last: Mutex::default(),
        }
    }

    /// Waits until another one may begin.
    async fn keep(&self) {
        let last = *self.last();
        let kept = last.filter(|(began, questions)| {
            *questions >= self.company && began.elapsed() < self.every
        });
        if let Some((began, _)) = kept {
            tokio::time::sleep_until((began + self.every).into()).await;
        }
    }

    /// One begins now.
    fn begin(&self, questions: usize) {
        *self.last() = Some((Instant::now(), questions));
    }

    fn last(&self) -> MutexGuard<'_, Option<(Instant, usize)>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
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
            crowd: CROWD_OF_READS,
            ..limits
        };
        Self {
            reads: Kind::reads(Batches::new(reads, |_| 0)),
            creates: Kind::writes(Batches::new(limits, |row: &Arc<Row>| row.bytes())),
            claims: Kind::writes(Batches::new(limits, |_| 0)),
            results: Kind::writes(Batches::new(limits, |finished: &Arc<Finished>| {
                finished.bytes()
            })),
            hints: Kind::reads(Batches::new(limits, |_| 0)),
            turns: Kind::writes(Batches::new(turns, |_| 0)),
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
        let pause = kind.pace.keep();
        let asking = kind
            .batches
            .ask(question, impatient, pause, |questions: Vec<Q>| {
                kind.pace.begin(questions.len());
                self.metrics.together(operation, questions.len());
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

    /// Whoever comes soon waits for the rest of the time; whoever comes later, or first, for nothing. Of reads only
    /// after one that was shared.
    #[tokio::test]
    async fn a_pace_is_kept_by_those_who_come_too_soon() {
        let (writes, reads) = (Pace::new(PACE, 1), Pace::new(PACE_OF_READS, 2));
        let is_ready = |pace: &Pace| {
            let mut context = Context::from_waker(Waker::noop());
            std::pin::pin!(pace.keep()).poll(&mut context).is_ready()
        };
        for pace in [&writes, &reads] {
            assert!(is_ready(pace));
            pace.begin(1);
        }
        assert!(is_ready(&reads));
        reads.begin(2);
        for pace in [&writes, &reads] {
            let (began, _) = (*pace.last()).unwrap();
            pace.keep().await;
            assert!(began.elapsed() >= pace.every);
            assert!(is_ready(pace));
        }
    }
}
