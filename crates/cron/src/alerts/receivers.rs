//! What is known of a receiver between two sendings: one that is away is asked with one message now
//! and then, and gets the rest when it takes that one.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Pause of a receiver that is away, doubling to the longer one.
const REST: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Why a message did not arrive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The receiver does not want this message; others it may take.
    Refused(String),
    /// The receiver took nothing: it is away, overloaded, or does not know us.
    Away(String),
}

impl Failure {
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Refused(text) | Self::Away(text) => text,
        }
    }
}

/// The receivers that are away.
#[derive(Default)]
pub(crate) struct Absent {
    since: Mutex<HashMap<String, Absence>>,
}

#[derive(Clone, Copy)]
struct Absence {
    until: Instant,
    tries: u32,
}

impl Absent {
    /// How many messages a receiver may get now, of `many`: none while it is left alone, and one
    /// to find out whether it is back.
    pub(crate) fn allows(&self, receiver: &str, many: i64, now: Instant) -> i64 {
        match self.since().get(receiver) {
            Some(absence) if absence.until > now => 0,
            Some(_) => many.min(1),
            None => many,
        }
    }

    /// The receiver answered.
    pub(crate) fn answered(&self, receiver: &str) {
        self.since().remove(receiver);
    }

    /// The receiver is away.
    pub(crate) fn away(&self, receiver: &str, now: Instant) {
        let mut since = self.since();
        let tries = since.get(receiver).map_or(0, |absence| absence.tries);
        let rest = REST.0.saturating_mul(1 << tries.min(16)).min(REST.1);
        let absence = Absence {
            until: now + rest,
            tries: tries + 1,
        };
        since.insert(receiver.to_owned(), absence);
    }

    fn since(&self) -> std::sync::MutexGuard<'_, HashMap<String, Absence>> {
        self.since.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_away_gets_one_message_now_and_then() {
        let absent = Absent::default();
        let now = Instant::now();
        assert_eq!(absent.allows("a", 8, now), 8);
        absent.away("a", now);
        assert_eq!(absent.allows("a", 8, now), 0);
        assert_eq!(absent.allows("b", 8, now), 8, "another one");
        assert_eq!(absent.allows("a", 8, now + REST.0), 1);
        for _ in 0..40 {
            absent.away("a", now);
        }
        let almost = REST.1 - Duration::from_millis(1);
        assert_eq!(absent.allows("a", 8, now + almost), 0);
        assert_eq!(absent.allows("a", 8, now + REST.1), 1);
        absent.answered("a");
        assert_eq!(absent.allows("a", 8, now), 8);
    }
}
