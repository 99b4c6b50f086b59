//! What turns saw of each queue: where all that is due is one principal's, hints are as good as turns; where it is
//! of several priorities, the lower ones get their share.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Whoever comes while somebody is alone in a queue waits so much longer for its turn, at most.
const FOR: Duration = Duration::from_millis(200);
/// Of so many jobs taken by turn, one is of the priority whose jobs have waited longest.
const OLDEST_EVERY: u32 = 8;

/// What a turn saw of all that was due in its queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    /// It was of one principal and of one priority.
    pub(crate) alone: bool,
    /// It was of several priorities.
    pub(crate) priorities: bool,
}

/// What is known of one queue.
#[derive(Default)]
struct Known {
    /// How many hints may be followed still, and until when: a hint costs Postgres a fraction of a turn. It is followed for
    /// as many jobs as the worker has places, and not for long: then a turn looks again who waits.
    alone: Option<(usize, Instant)>,
    priorities: bool,
    /// Turns since there are several priorities.
    turns: u32,
}

/// All queues of a worker.
pub(crate) struct Queues {
    places: usize,
    known: Mutex<HashMap<String, Known>>,
}

impl Queues {
    /// `places`: jobs that the worker runs at once.
    pub(crate) fn new(places: usize) -> Self {
        Self {
            places,
            known: Mutex::default(),
        }
    }

    /// Remembers what a turn saw at `now`.
    pub(crate) fn note(&self, queue: &str, seen: Seen, now: Instant) {
        let mut all = self.known();
        if !all.contains_key(queue) {
            all.insert(queue.to_owned(), Known::default());
        }
        if let Some(known) = all.get_mut(queue) {
            known.alone = seen.alone.then_some((self.places, now + FOR));
            known.priorities = seen.priorities;
        }
    }

    /// Whether a hint of `queue` may be followed at `now`: it counts as followed.
    pub(crate) fn follows_a_hint(&self, queue: &str, now: Instant) -> bool {
        let mut all = self.known();
        match all.get_mut(queue).and_then(|known| known.alone.as_mut()) {
            Some((left, until)) if *left > 0 && *until > now => {
                *left -= 1;
                true
            }
            Some(_) | None => false,
        }
    }

    /// Whether the next turn in `queue` is of the priority whose jobs have waited longest: it counts as taken.
    pub(crate) fn is_turn_of_the_oldest(&self, queue: &str) -> bool {
        let mut all = self.known();
        match all.get_mut(queue) {
            Some(known) if known.priorities => {
                known.turns = known.turns.wrapping_add(1);
                known.turns.is_multiple_of(OLDEST_EVERY)
            }
            Some(_) | None => false,
        }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::{FOR, OLDEST_EVERY, Queues, Seen};
    use std::time::{Duration, Instant};

    const ALONE: Seen = Seen {
        alone: true,
        priorities: false,
    };
    const TOGETHER: Seen = Seen {
        alone: false,
        priorities: false,
    };
    const URGENT: Seen = Seen {
        alone: false,
        priorities: true,
    };

    #[test]
    fn hints_are_followed_for_as_many_jobs_as_there_are_places() {
        let (queues, now) = (Queues::new(3), Instant::now());
        assert!(!queues.follows_a_hint("q", now), "nobody has looked");
        queues.note("q", ALONE, now);
        for job in 0..3 {
            assert!(queues.follows_a_hint("q", now), "job {job}");
        }
        assert!(!queues.follows_a_hint("q", now), "a turn looks again");
        queues.note("q", ALONE, now);
        assert!(queues.follows_a_hint("q", now));
    }

    #[test]
    fn not_for_long() {
        let (queues, now) = (Queues::new(3), Instant::now());
        queues.note("q", ALONE, now);
        assert!(queues.follows_a_hint("q", now + FOR - Duration::from_nanos(1)));
        assert!(!queues.follows_a_hint("q", now + FOR));
    }

    #[test]
    fn who_is_not_alone_any_more_waits_for_its_turn_at_once() {
        let (queues, now) = (Queues::new(3), Instant::now());
        queues.note("q", ALONE, now);
        queues.note("q", TOGETHER, now);
        assert!(!queues.follows_a_hint("q", now));
    }

    #[test]
    fn each_queue_by_itself() {
        let (queues, now) = (Queues::new(1), Instant::now());
        queues.note("q", ALONE, now);
        assert!(!queues.follows_a_hint("r", now));
        queues.note("r", URGENT, now);
        assert!(queues.follows_a_hint("q", now));
        for turn in 1..=2 * OLDEST_EVERY {
            assert!(!queues.is_turn_of_the_oldest("q"));
            let oldest = queues.is_turn_of_the_oldest("r");
            assert_eq!(oldest, turn % OLDEST_EVERY == 0, "turn {turn}");
        }
    }

    #[test]
    fn of_one_priority_nothing_is_the_oldest() {
        let (queues, now) = (Queues::new(1), Instant::now());
        queues.note("q", URGENT, now);
        queues.note("q", TOGETHER, now);
        assert!((0..OLDEST_EVERY).all(|_| !queues.is_turn_of_the_oldest("q")));
    }
}
