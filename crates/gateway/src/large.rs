//! Room for large results, errors and questions: who asks for many at once gets them one after another, as it takes them in.
//!
//! A result is counted from before it is read until its answer was given to the system or thrown away.
//! One always fits, of a principal and of all: what waits goes on when that one is gone, which takes no
//! longer than a client may take to read.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use protocol::TaskId;
use store::{Lookup, Principal};
use tokio::sync::Notify;

use crate::Shared;
use crate::config::Limits;
use crate::error::Error;

/// An answer that is shorter holds up no other.
pub(crate) const FEW: usize = 64 * 1024;

/// The large results that are in memory.
pub(crate) struct Large {
    book: Mutex<Book>,
    freed: Notify,
    max: usize,
    of_principal_max: usize,
}

#[derive(Default)]
struct Book {
    all: usize,
    of_principal: HashMap<u64, usize>,
}

impl Large {
    pub(crate) fn new(limits: &Limits) -> Arc<Self> {
        Arc::new(Self {
            book: Mutex::default(),
            freed: Notify::new(),
            max: limits.memory_bytes_max,
            of_principal_max: limits.memory_bytes_of_principal_max,
        })
    }

    /// Waits until whom `key` stands for may take in so many bytes more.
    pub(crate) async fn room(self: &Arc<Self>, key: u64, bytes: usize) -> Room {
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            // Before the look: room that comes free after it is heard of.
            freed.as_mut().enable();
            if let Some(room) = self.try_room(key, bytes) {
                return room;
            }
            freed.await;
        }
    }

    fn try_room(self: &Arc<Self>, key: u64, bytes: usize) -> Option<Room> {
        let mut book = self.lock();
        let own = book.of_principal.get(&key).copied().unwrap_or(0);
        let fits = |taken: usize, max: usize| taken == 0 || taken.saturating_add(bytes) <= max;
        if !fits(book.all, self.max) || !fits(own, self.of_principal_max) {
            return None;
        }
        Some(self.enter(&mut book, key, bytes))
    }

    /// Room for an answer that is there already.
    pub(crate) fn count(self: &Arc<Self>, key: u64, bytes: usize) -> Room {
        self.enter(&mut self.lock(), key, bytes)
    }

    fn enter(self: &Arc<Self>, book: &mut Book, key: u64, bytes: usize) -> Room {
        book.all += bytes;
        *book.of_principal.entry(key).or_default() += bytes;
        Room {
            large: Arc::clone(self),
            key,
            bytes,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Room for one result, as long as this lives.
pub(crate) struct Room {
    large: Arc<Large>,
    key: u64,
    bytes: usize,
}

impl Room {
    /// The result, which keeps its room.
    fn around(self, result: Bytes) -> Bytes {
        Bytes::from_owner(Held {
            result,
            _room: self,
        })
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut book = self.large.lock();
        book.all -= self.bytes;
        if let Some(own) = book.of_principal.get_mut(&self.key) {
            *own -= self.bytes;
            if *own == 0 {
                book.of_principal.remove(&self.key);
            }
        }
        drop(book);
        self.large.freed.notify_waiters();
    }
}

struct Held {
    result: Bytes,
    _room: Room,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.result
    }
}

/// Reads a task of `principal`, and a large result, error or question once there is room for it.
pub(crate) async fn read(
    shared: &Shared,
    principal: &Principal,
    id: TaskId,
) -> Result<Lookup, Error> {
    let seen = shared.store.look(principal, id).await?;
    whole(shared, principal, seen).await
}

/// The same, of a task that was read without what it holds, because that is large.
pub(crate) async fn whole(
    shared: &Shared,
    principal: &Principal,
    seen: Lookup,
) -> Result<Lookup, Error> {
    let Lookup::Found(task) = &seen else {
        return Ok(seen);
    };
    if task.withheld == 0 {
        return Ok(seen);
    }
    let key = shared.admission.key(principal);
    let room = shared.memory.large().room(key, task.withheld).await;
    let mut read = shared.store.get_whole(principal, task.id).await?;
    if let Lookup::Found(task) = &mut read {
        // It holds one of them at a time.
        let payloads = [&mut task.result, &mut task.error, &mut task.input_requests];
        if let Some(payload) = payloads.into_iter().find_map(Option::as_mut) {
            *payload = room.around(std::mem::take(payload));
        }
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1024 * 1024;

    fn large() -> Arc<Large> {
        Large::new(&Limits {
            memory_bytes_max: 8 * MIB,
            memory_bytes_of_principal_max: 4 * MIB,
            ..Limits::default()
        })
    }

    #[test]
    fn results_have_room_up_to_the_share_of_their_principal() {
        let large = large();
        let rooms: Vec<_> = (0..5).map(|_| large.try_room(1, MIB)).collect();
        assert_eq!(rooms.iter().flatten().count(), 4);
        assert!(large.try_room(2, MIB).is_some());
        drop(rooms);
        assert!(large.lock().of_principal.is_empty());
        assert_eq!(large.lock().all, 0);
    }

    #[test]
    fn and_all_of_them_up_to_the_whole() {
        let large = large();
        let rooms: Vec<_> = (0..9).map(|key| large.try_room(key, MIB)).collect();
        assert_eq!(rooms.iter().flatten().count(), 8);
        assert!(large.try_room(9, 1).is_none());
    }

    #[test]
    fn one_always_fits() {
        let large = large();
        let one = large.try_room(1, 100 * MIB);
        assert!(one.is_some());
        assert!(large.try_room(1, 1).is_none());
        assert!(large.try_room(2, 1).is_none());
        drop(one);
        assert!(large.try_room(2, 1).is_some());
    }

    #[tokio::test]
    async fn who_waits_goes_on_when_a_result_is_gone() {
        let large = large();
        let first = large.room(1, 4 * MIB).await;
        let result = first.around(Bytes::from_static(b"{}"));
        let waits = tokio_util::task::TaskTracker::new().spawn({
            let large = Arc::clone(&large);
            async move { large.room(1, MIB).await }
        });
        tokio::task::yield_now().await;
        assert!(!waits.is_finished());
        let part = result.slice(..1);
        drop(result);
        tokio::task::yield_now().await;
        assert!(!waits.is_finished(), "a part of it is there");
        drop(part);
        waits.await.unwrap();
    }
}
