//! What bodies and answers take of this process's memory: counted while they are read, kept and
//! written, and bounded, for one principal, for all services that call back, and for all together. Who
//! has taken its share is refused before anything more is read for it, so that a flood of large
//! messages ends no process.
//!
//! What is there is there: an answer is counted, never thrown away. It keeps its principal from
//! asking for more until it was read.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use telemetry::metrics::IntGauge;

use crate::admission::limited;
use crate::config::Limits;
use crate::error::Error;
use crate::large::{self, Large, Room};

/// Less than this of a body or an answer is not counted: so small ones are taken whatever the
/// large ones do, and their number is bounded elsewhere.
pub(crate) const FREE: usize = 16 * 1024;
/// A body is counted in steps, so that not every piece of it asks.
const STEP: usize = 64 * 1024;
/// Who waits for its own answers to be read looks so often.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// The memory that bodies and answers share.
pub(crate) struct Memory {
    book: Mutex<HashMap<u64, usize>>,
    all: AtomicUsize,
    of_services: AtomicUsize,
    max: usize,
    of_principal_max: usize,
    of_services_max: usize,
    large: Arc<Large>,
    gauge: IntGauge,
}

impl Memory {
    /// Whatever the settings say, two of the largest bodies fit: a buffer may be twice what it holds.
    /// Of services they are so long at most.
    pub(crate) fn new(limits: &Limits, callback_bytes_max: usize, gauge: IntGauge) -> Arc<Self> {
        let of_services_max = limits
            .memory_bytes_of_callbacks_max
            .max(callback_bytes_max.saturating_mul(2));
        let of_principal_max = limits
            .memory_bytes_of_principal_max
            .max(limits.body_bytes_max.saturating_mul(2));
        Arc::new(Self {
            book: Mutex::default(),
            all: AtomicUsize::new(0),
            of_services: AtomicUsize::new(0),
            max: limits
                .memory_bytes_max
                .max(of_principal_max)
                .max(of_services_max),
            of_principal_max,
            of_services_max,
            large: Large::new(limits),
            gauge,
        })
    }

    /// Large results, which wait for room before they are read.
    pub(crate) fn large(&self) -> &Arc<Large> {
        &self.large
    }

    /// Whether anything more may be taken on for whom `key` stands.
    ///
    /// # Errors
    /// If it, or all together, have taken what they may.
    pub(crate) fn check(&self, key: u64) -> Result<(), Error> {
        let all = self.all.load(Ordering::Relaxed);
        if all >= self.max {
            return Err(overloaded());
        }
        // Nobody can have taken more than all.
        if all >= self.of_principal_max && self.of(key) >= self.of_principal_max {
            return Err(over());
        }
        Ok(())
    }

    /// What one request of whom `key` stands for takes: nothing yet. `None`: of a service that calls
    /// back.
    pub(crate) fn load(self: &Arc<Self>, key: Option<u64>) -> Load {
        Load {
            memory: Arc::clone(self),
            key,
            bytes: 0,
        }
    }

    fn of(&self, key: u64) -> usize {
        self.lock().get(&key).copied().unwrap_or(0)
    }

    fn add(&self, key: Option<u64>, bytes: usize) {
        self.all.fetch_add(bytes, Ordering::Relaxed);
        self.gauge.add(i64::try_from(bytes).unwrap_or(i64::MAX));
        match key {
            Some(key) => *self.lock().entry(key).or_default() += bytes,
            None => drop(self.of_services.fetch_add(bytes, Ordering::Relaxed)),
        }
    }

    fn sub(&self, key: Option<u64>, bytes: usize) {
        self.all.fetch_sub(bytes, Ordering::Relaxed);
        self.gauge.sub(i64::try_from(bytes).unwrap_or(i64::MAX));
        let Some(key) = key else {
            self.of_services.fetch_sub(bytes, Ordering::Relaxed);
            return;
        };
        let mut book = self.lock();
        if let Some(taken) = book.get_mut(&key) {
            *taken = taken.saturating_sub(bytes);
            if *taken == 0 {
                book.remove(&key);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, usize>> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What one message takes, as long as this lives.
pub(crate) struct Load {
    memory: Arc<Memory>,
    key: Option<u64>,
    bytes: usize,
}

impl Load {
    /// A body is about to be so long in all.
    ///
    /// # Errors
    /// If there is no room for that.
    pub(crate) fn reach(&mut self, bytes: usize) -> Result<(), Error> {
        if bytes <= FREE || bytes <= self.bytes {
            return Ok(());
        }
        let more = bytes.next_multiple_of(STEP) - self.bytes;
        let memory = &self.memory;
        if memory.all.load(Ordering::Relaxed).saturating_add(more) > memory.max {
            return Err(overloaded());
        }
        let (taken, share) = match self.key {
            Some(key) => (memory.of(key), memory.of_principal_max),
            None => (
                memory.of_services.load(Ordering::Relaxed),
                memory.of_services_max,
            ),
        };
        if taken.saturating_add(more) > share {
            return Err(over());
        }
        memory.add(self.key, more);
        self.bytes += more;
        Ok(())
    }

    /// Waits until whom it belongs to has taken less than it may: before more is fetched for a stream
    /// that is read slowly.
    pub(crate) async fn room(&self) {
        let Some(key) = self.key else { return };
        while self.memory.check(key).is_err() {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// A message that is counted until its last byte was given to the system.
    pub(crate) fn weigh(&self, json: Bytes) -> Bytes {
        if json.len() <= FREE {
            return json;
        }
        self.memory.add(self.key, json.len());
        let load = Self {
            memory: Arc::clone(&self.memory),
            key: self.key,
            bytes: json.len(),
        };
        // Large ones keep others of their principal from being read.
        let large = self.key.filter(|_| json.len() > large::FEW);
        let room = large.map(|key| self.memory.large.count(key, json.len()));
        Bytes::from_owner(Weighed {
            json,
            _load: load,
            _room: room,
        })
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.memory.sub(self.key, self.bytes);
        }
    }
}

struct Weighed {
    json: Bytes,
    _load: Load,
    _room: Option<Room>,
}

impl AsRef<[u8]> for Weighed {
    fn as_ref(&self) -> &[u8] {
        &self.json
    }
}

fn over() -> Error {
    limited("bytes of messages in memory")
}

fn overloaded() -> Error {
    Error::Overloaded {
        what: "bytes of messages in memory",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1024 * 1024;

    fn memory() -> Arc<Memory> {
        let limits = Limits {
            body_bytes_max: MIB,
            memory_bytes_max: 8 * MIB,
            memory_bytes_of_principal_max: 4 * MIB,
            memory_bytes_of_callbacks_max: 2 * MIB,
            ..Limits::default()
        };
        Memory::new(&limits, MIB / 2, IntGauge::new("m", "m").unwrap())
    }

    #[test]
    fn bodies_have_room_up_to_the_share_of_their_principal() {
        let memory = memory();
        let mut loads: Vec<Load> = (0..5).map(|_| memory.load(Some(1))).collect();
        let fits: Vec<bool> = loads.iter_mut().map(|l| l.reach(MIB).is_ok()).collect();
        assert_eq!(fits, [true, true, true, true, false]);
        assert!(memory.check(1).is_err() && memory.check(2).is_ok());
        assert!(loads[4].reach(FREE).is_ok(), "small ones are free");
        let mut other = memory.load(Some(2));
        assert!(other.reach(MIB).is_ok());
        loads.clear();
        assert!(memory.check(1).is_ok());
        drop(other);
        assert_eq!(
            (memory.all.load(Ordering::Relaxed), memory.gauge.get()),
            (0, 0)
        );
        assert!(memory.lock().is_empty());
    }

    /// To the step in which bodies are counted, which is the last that fits.
    #[test]
    fn a_body_that_reaches_the_share_fits_and_one_beyond_does_not() {
        let memory = memory();
        let mut load = memory.load(Some(1));
        assert!(load.reach(4 * MIB - 1).is_ok());
        assert_eq!(memory.of(1), 4 * MIB, "whole steps");
        assert!(load.reach(4 * MIB).is_ok());
        assert!(load.reach(4 * MIB + 1).is_err());
        assert_eq!(
            memory.of(1),
            4 * MIB,
            "what was refused is not counted, what is there is"
        );
        let mut other = memory.load(Some(1));
        assert!(other.reach(FREE).is_ok() && other.reach(FREE + 1).is_err());
    }

    /// Answers are counted as they are, so the last byte of the whole can be told.
    #[test]
    fn the_whole_is_full_to_the_byte() {
        for (answer, fits) in [(STEP, true), (STEP + 1, false)] {
            let memory = memory();
            let mut loads: Vec<Load> = (0..8).map(|n| memory.load(Some(n))).collect();
            let last = loads[7].reach(MIB - 2 * STEP);
            let mut others = loads[..7].iter_mut().map(|load| load.reach(MIB));
            assert!(last.is_ok() && others.all(|reached| reached.is_ok()));
            let other = memory.load(Some(9));
            let _answer = other.weigh(Bytes::from(vec![b'x'; answer]));
            assert_eq!(memory.load(Some(10)).reach(STEP).is_ok(), fits, "{answer}");
        }
    }

    #[test]
    fn what_is_small_is_not_counted_and_what_is_larger_is() {
        let memory = memory();
        let mut load = memory.load(Some(1));
        assert!(load.reach(FREE).is_ok());
        let small = load.weigh(Bytes::from(vec![b'x'; FREE]));
        assert_eq!(memory.of(1), 0);
        let large = load.weigh(Bytes::from(vec![b'x'; FREE + 1]));
        assert_eq!(memory.of(1), FREE + 1);
        assert!(load.reach(FREE + 1).is_ok());
        assert_eq!(memory.of(1), FREE + 1 + STEP);
        drop((small, large, load));
        assert_eq!(memory.of(1), 0);
    }

    /// Else a principal with a share that is smaller could send none of the largest.
    #[test]
    fn two_of_the_largest_bodies_always_fit() {
        let limits = Limits {
            body_bytes_max: MIB,
            memory_bytes_max: 1,
            memory_bytes_of_principal_max: 1,
            memory_bytes_of_callbacks_max: 1,
            ..Limits::default()
        };
        for (key, of_services) in [(Some(1), 0), (None, MIB)] {
            let memory = Memory::new(&limits, of_services, IntGauge::new("m", "m").unwrap());
            let mut loads: Vec<Load> = (0..3).map(|_| memory.load(key)).collect();
            let fits: Vec<bool> = loads.iter_mut().map(|l| l.reach(MIB).is_ok()).collect();
            assert_eq!(fits, [true, true, false], "{key:?}");
        }
    }

    /// Whatever services send, there is room for principals.
    #[test]
    fn services_have_room_up_to_their_share() {
        let memory = memory();
        let mut loads: Vec<Load> = (0..5).map(|_| memory.load(None)).collect();
        let fits: Vec<bool> = loads
            .iter_mut()
            .map(|load| load.reach(MIB / 2).is_ok())
            .collect();
        assert_eq!(fits, [true, true, true, true, false]);
        assert!(loads[4].reach(FREE).is_ok(), "small ones are free");
        assert!(memory.check(1).is_ok() && memory.load(Some(1)).reach(MIB).is_ok());
        loads.pop();
        loads.pop();
        assert!(memory.load(None).reach(MIB / 2).is_ok());
        drop(loads);
        assert_eq!(
            (
                memory.of_services.load(Ordering::Relaxed),
                memory.gauge.get()
            ),
            (0, 0)
        );
    }

    #[tokio::test]
    async fn who_reads_slowly_waits_for_its_own_room_and_for_no_other() {
        let memory = memory();
        let (load, other) = (memory.load(Some(1)), memory.load(Some(2)));
        let answers: Vec<Bytes> = (0..4)
            .map(|_| load.weigh(Bytes::from(vec![b'x'; MIB])))
            .collect();
        let within = async |load: &Load, looks: u32| {
            let waits = tokio::time::timeout(looks * LOOK_AGAIN, load.room());
            waits.await.is_ok()
        };
        assert!(within(&other, 200).await);
        assert!(!within(&load, 3).await, "its share is full");
        drop(answers);
        assert!(within(&load, 200).await);
    }

    #[test]
    fn all_together_have_room_up_to_the_whole() {
        let memory = memory();
        let mut loads: Vec<Load> = (0..9).map(|n| memory.load(Some(n))).collect();
        let fits: Vec<bool> = loads.iter_mut().map(|l| l.reach(MIB).is_ok()).collect();
        assert_eq!(fits.iter().filter(|fits| **fits).count(), 8);
        let last = loads.swap_remove(7);
        drop(last);
        assert!(memory.check(99).is_ok(), "there is room for one");
        assert!(memory.load(Some(99)).reach(MIB).is_ok(), "which fits");
        assert!(loads[0].reach(2 * MIB).is_ok());
        assert!(matches!(memory.check(99), Err(Error::Overloaded { .. })));
        assert!(memory.load(None).reach(MIB).is_err(), "nor for services");
    }

    #[test]
    fn answers_count_until_they_are_dropped_and_are_never_refused() {
        let memory = memory();
        let load = memory.load(Some(1));
        let answers: Vec<Bytes> = (0..6)
            .map(|_| load.weigh(Bytes::from(vec![b'x'; MIB])))
            .collect();
        assert!(answers.iter().all(|answer| answer.len() == MIB));
        assert!(memory.check(1).is_err() && memory.check(2).is_ok());
        drop(load);
        assert!(memory.check(1).is_err(), "they are still there");
        let part = answers[0].slice(..10);
        drop(answers);
        assert_eq!(memory.of(1), MIB, "and so is one of which a part is left");
        drop(part);
        assert_eq!(memory.of(1), 0);
    }
}
