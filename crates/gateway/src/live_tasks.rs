//! Room for live tasks: how many more a principal and its tenant may have, by what Postgres said last.
//!
//! A count walks up to as many rows as may be live, so it is asked for rarely: what it found is believed
//! for a while, room as well as its lack; of those who need to know the same, one asks and the others wait
//! for its answer; and the tenant's rows are not counted again because one of its principals has reached
//! its own limit, or is new here.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use store::Live;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::admission::limited;
use crate::error::Error;

/// Rooms, before those that say nothing any more are thrown out.
const ROOMS_MIN: usize = 1024;
/// Of the room that a count found, this process fills so much before it counts again: the other
/// replicas fill it, too.
const SHARE: u64 = 4;

/// How long what is known is good for.
struct Times {
    /// A count that found room is believed so long.
    believed: Duration,
    /// And so much longer by the others, while one counts again.
    meanwhile: Duration,
    /// There is no room for so long, where a count found none: who was refused is told to come again then.
    full: Duration,
    /// One who counts is waited for so long; then another one tries.
    counting: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            believed: Duration::from_secs(2),
            meanwhile: Duration::from_millis(250),
            full: Duration::from_secs(1),
            counting: Duration::from_secs(1),
        }
    }
}

/// Whose live tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// The principal's own.
    Principal,
    /// Of all principals of its tenant.
    Tenant,
}

/// How many live tasks somebody may have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    pub(crate) whose: Whose,
    /// Who that is, in this process.
    pub(crate) key: u64,
    pub(crate) max: u64,
}

/// What this process knows of the room of all principals and tenants that it has met lately.
#[derive(Default)]
pub(crate) struct LiveTasks {
    times: Times,
    book: Mutex<Book>,
}

#[derive(Default)]
struct Book {
    rooms: HashMap<u64, Room>,
    next_sweep: usize,
    counts: u64,
}

/// Of one principal, or of one tenant.
#[derive(Default)]
struct Room {
    found: Found,
    /// The count that found it, by its number.
    by: u64,
    counting: Option<Counting>,
}

/// What a count found.
#[derive(Clone, Copy, Default)]
enum Found {
    /// Nobody has counted.
    #[default]
    Nothing,
    /// So many may be made before it is counted again.
    Free { left: u64, until: Instant },
    /// There are as many as there may be.
    Full { until: Instant },
}

/// Somebody counts.
struct Counting {
    number: u64,
    since: Instant,
    over: CancellationToken,
}

/// What is to be done about a new task.
enum Look<'book> {
    /// It has its room.
    Fits,
    /// There is none.
    Full(Whose),
    /// Nobody knows, and the caller is the one to count.
    Count(Count<'book>),
    /// Somebody else counts, and is waited for until then at most.
    Wait(CancellationToken, Instant),
}

/// The right, and the duty, to count. Dropped, it goes to the next one.
struct Count<'book> {
    book: &'book LiveTasks,
    limits: Vec<Limit>,
    number: u64,
    over: CancellationToken,
}

impl LiveTasks {
    /// Room for one task more within all of `limits`. `count` asks Postgres: up to so many of the
    /// principal and of its tenant, waiting so long at most.
    ///
    /// # Errors
    /// If there is none; or when Postgres could not be asked within `patience`.
    pub(crate) async fn take<F>(
        &self,
        limits: &[Limit],
        patience: Duration,
        count: impl Fn((i64, i64), Duration) -> F,
    ) -> Result<(), Error>
    where
        F: Future<Output = Result<Live, store::Error>>,
    {
        let deadline = Instant::now() + patience;
        loop {
            let now = Instant::now();
            match self.look(now, limits) {
                Look::Fits => return Ok(()),
                Look::Full(whose) => return Err(full(whose)),
                Look::Count(turn) => {
                    let live = count(turn.maxima(), deadline - now).await?;
                    if let Some(whose) = turn.found(Instant::now(), live) {
                        return Err(full(whose));
                    }
                }
                Look::Wait(..) if now >= deadline => {
                    let why = "nobody could count the live tasks in time";
                    return Err(Error::Store(store::Error::Unavailable(why.into())));
                }
                Look::Wait(over, until) => {
                    let waiting = over.cancelled_owned();
                    // Whichever it was, what is known by now decides.
                    let _ = tokio::time::timeout_at(until.min(deadline), waiting).await;
                }
            }
        }
    }

    fn look(&self, now: Instant, limits: &[Limit]) -> Look<'_> {
        let mut book = self.lock();
        book.sweep(now, &self.times);
        let is_full = |limit: &&Limit| {
            let room = book.rooms.get(&limit.key);
            room.is_some_and(|room| room.is_full(now))
        };
        if let Some(limit) = limits.iter().find(is_full) {
            return Look::Full(limit.whose);
        }
        let mut unknown = Vec::new();
        let mut awaited = None;
        for limit in limits {
            let room = book.rooms.entry(limit.key).or_default();
            if room.is_free(now) {
                continue;
            }
            let counting = room.counting.as_ref();
            let until = counting.map(|counting| (counting, counting.since + self.times.counting));
            match until.filter(|(_, until)| now < *until) {
                None => unknown.push(*limit),
                Some(_) if room.was_free(now, self.times.meanwhile) => {}
                Some((counting, until)) => awaited = Some((counting.over.clone(), until)),
            }
        }
        if !unknown.is_empty() {
            return Look::Count(self.begin(&mut book, now, unknown));
        }
        if let Some((over, until)) = awaited {
            return Look::Wait(over, until);
        }
        for limit in limits {
            if let Some(room) = book.rooms.get_mut(&limit.key) {
                room.take();
            }
        }
        Look::Fits
    }

    fn begin(&self, book: &mut Book, now: Instant, limits: Vec<Limit>) -> Count<'_> {
        book.counts += 1;
        let (number, over) = (book.counts, CancellationToken::new());
        for limit in &limits {
            book.rooms.entry(limit.key).or_default().counting = Some(Counting {
                number,
                since: now,
                over: over.clone(),
            });
        }
        Count {
            book: self,
            limits,
            number,
            over,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn full(whose: Whose) -> Error {
    limited(match whose {
        Whose::Principal => "live tasks",
        Whose::Tenant => "live tasks of your tenant",
    })
}

impl Count<'_> {
    /// Up to so many need be counted, of the principal and of its tenant: 0 of whom it is known.
    fn maxima(&self) -> (i64, i64) {
        let max = |whose: Whose| {
            let limit = self.limits.iter().find(|limit| limit.whose == whose);
            limit.map_or(0, |limit| i64::try_from(limit.max).unwrap_or(i64::MAX))
        };
        (max(Whose::Principal), max(Whose::Tenant))
    }

    /// Says at `now` what was found, and returns who has as many as it may.
    fn found(self, now: Instant, live: Live) -> Option<Whose> {
        let mut book = self.book.lock();
        let mut full = None;
        for limit in &self.limits {
            let live = match limit.whose {
                Whose::Principal => live.of_principal,
                Whose::Tenant => live.of_tenant,
            };
            let free = limit.max.saturating_sub(live);
            if free == 0 {
                full = full.or(Some(limit.whose));
            }
            let room = book.rooms.entry(limit.key).or_default();
            // Somebody who began later was faster.
            if room.by > self.number {
                continue;
            }
            let times = &self.book.times;
            room.by = self.number;
            room.found = match free {
                0 => Found::Full {
                    until: now + times.full,
                },
                free => Found::Free {
                    left: (free / SHARE).max(1),
                    until: now + times.believed,
                },
            };
        }
        full
    }
}

impl Drop for Count<'_> {
    fn drop(&mut self) {
        let mut book = self.book.lock();
        for limit in &self.limits {
            if let Some(room) = book.rooms.get_mut(&limit.key) {
                let is_this = |counting: &mut Counting| counting.number == self.number;
                drop(room.counting.take_if(is_this));
            }
        }
        drop(book);
        self.over.cancel();
    }
}

impl Book {
    fn sweep(&mut self, now: Instant, times: &Times) {
        if self.rooms.len() >= self.next_sweep.max(ROOMS_MIN) {
            self.rooms.retain(|_, room| !room.rests(now, times));
            self.next_sweep = 2 * self.rooms.len();
        }
    }
}

impl Room {
    fn is_full(&self, now: Instant) -> bool {
        matches!(self.found, Found::Full { until } if now < until)
    }

    fn is_free(&self, now: Instant) -> bool {
        self.was_free(now, Duration::ZERO)
    }

    /// Whether it would be, had it been found that much later.
    fn was_free(&self, now: Instant, later: Duration) -> bool {
        matches!(self.found, Found::Free { left, until } if left > 0 && now < until + later)
    }

    fn take(&mut self) {
        if let Found::Free { left, .. } = &mut self.found {
            *left = left.saturating_sub(1);
        }
    }

    /// A new one would be as good.
    fn rests(&self, now: Instant, times: &Times) -> bool {
        let says_nothing = match self.found {
            Found::Nothing => true,
            Found::Free { until, .. } => until + times.meanwhile <= now,
            Found::Full { until } => until <= now,
        };
        self.counting.is_none() && says_nothing
    }
}

#[cfg(test)]
mod tests;
