//! Queues in which all that is due is one principal's: there, hints are as good as turns.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Whoever comes while somebody is alone in a queue waits so much longer for its turn, at most.
const FOR: Duration = Duration::from_millis(200);

/// For each queue in which somebody was found alone, how many hints may be followed still, and until when.
///
/// A hint costs Postgres a tenth of a turn. It is followed for as many jobs as the worker has places, and not
/// for long: then a turn looks again who waits.
pub(crate) struct Alone {
    places: usize,
    book: Mutex<HashMap<String, (usize, Instant)>>,
}

impl Alone {
    /// `places`: jobs that the worker runs at once.
    pub(crate) fn new(places: usize) -> Self {
        Self {
            places,
            book: Mutex::default(),
        }
    }

    /// Remembers what a turn saw at `now`: whether everything that is due in `queue` is of one principal and
    /// one priority.
    pub(crate) fn note(&self, queue: &str, alone: bool, now: Instant) {
        let mut book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        if alone {
            book.insert(queue.to_owned(), (self.places, now + FOR));
        } else {
            book.remove(queue);
        }
    }

    /// Whether a hint of `queue` may be followed at `now`: it counts as followed.
    pub(crate) fn takes(&self, queue: &str, now: Instant) -> bool {
        let mut book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        match book.get_mut(queue) {
            Some((left, until)) if *left > 0 && *until > now => {
                *left -= 1;
                true
            }
            Some(_) | None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Alone, FOR};
    use std::time::{Duration, Instant};

    #[test]
    fn hints_are_followed_for_as_many_jobs_as_there_are_places() {
        let (alone, now) = (Alone::new(3), Instant::now());
        assert!(!alone.takes("q", now), "nobody has looked");
        alone.note("q", true, now);
        for job in 0..3 {
            assert!(alone.takes("q", now), "job {job}");
        }
        assert!(!alone.takes("q", now), "a turn looks again");
        alone.note("q", true, now);
        assert!(alone.takes("q", now));
    }

    #[test]
    fn not_for_long() {
        let (alone, now) = (Alone::new(3), Instant::now());
        alone.note("q", true, now);
        assert!(alone.takes("q", now + FOR - Duration::from_nanos(1)));
        assert!(!alone.takes("q", now + FOR));
    }

    #[test]
    fn who_is_not_alone_any_more_waits_for_its_turn_at_once() {
        let (alone, now) = (Alone::new(3), Instant::now());
        alone.note("q", true, now);
        alone.note("q", false, now);
        assert!(!alone.takes("q", now));
    }

    #[test]
    fn each_queue_by_itself() {
        let (alone, now) = (Alone::new(1), Instant::now());
        alone.note("q", true, now);
        assert!(!alone.takes("r", now));
        alone.note("r", false, now);
        assert!(alone.takes("q", now));
    }
}
