//! Answers that a client takes long to read: each has so much time, by its length, after which its
//! connection is closed. Over HTTP/2, where a client may keep its window shut and answer every ping meanwhile, this
//! is the only sign of it, so that all answers are watched; over HTTP/1 the socket tells, and large ones are.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::admission::Place;
use crate::memory::FREE;

/// Who reads no faster than this holds up others.
const BYTES_A_SECOND: u64 = 16 * 1024;

/// The answers of one connection that are watched until they are written.
pub(crate) struct Unwritten {
    book: Mutex<Book>,
    more: Notify,
    patience: Duration,
}

#[derive(Default)]
struct Book {
    next: u64,
    due: BTreeMap<(Instant, u64), ()>,
}

impl Unwritten {
    pub(crate) fn new(patience: Duration) -> Arc<Self> {
        Arc::new(Self {
            book: Mutex::default(),
            more: Notify::new(),
            patience,
        })
    }

    /// A message that is about to be written, and is watched until it was if it is large.
    pub(crate) fn watch_large(self: &Arc<Self>, bytes: Bytes) -> Bytes {
        match bytes.len() > FREE {
            true => self.watch(bytes, None),
            false => bytes,
        }
    }

    /// The same of any length; `place` is kept until then.
    pub(crate) fn watch(self: &Arc<Self>, bytes: Bytes, place: Option<Place>) -> Bytes {
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let time = self.patience + Duration::from_secs(length / BYTES_A_SECOND);
        let key = {
            let mut book = self.lock();
            book.next += 1;
            let key = (Instant::now() + time, book.next);
            book.due.insert(key, ());
            key
        };
        self.more.notify_one();
        Bytes::from_owner(Watched {
            bytes,
            of: Arc::clone(self),
            key,
            _place: place,
        })
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.first().is_none()
    }

    /// When one of them is overdue.
    pub(crate) async fn overdue(&self) {
        loop {
            let Some(at) = self.first() else {
                self.more.notified().await;
                continue;
            };
            if at <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(at).await;
        }
    }

    fn first(&self) -> Option<Instant> {
        self.lock().due.keys().next().map(|(at, _)| *at)
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Watched {
    bytes: Bytes,
    of: Arc<Unwritten>,
    key: (Instant, u64),
    _place: Option<Place>,
}

impl AsRef<[u8]> for Watched {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.of.lock().due.remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_still_there_becomes_overdue() {
        let unwritten = Unwritten::new(Duration::from_secs(30));
        let large = || Bytes::from(vec![b'x'; 10 * 16 * 1024]);
        let overdue = |seconds| {
            let at = Instant::now() + Duration::from_secs(seconds);
            unwritten.first().is_some_and(|first| first <= at)
        };
        let small = unwritten.watch_large(Bytes::from(vec![b'x'; FREE]));
        assert!(!overdue(1_000), "nothing large");
        let tiny = unwritten.watch(Bytes::from_static(b"{}"), None);
        assert!(overdue(31), "it is to be watched however small it is");
        drop(tiny);
        let larger = unwritten.watch_large(Bytes::from(vec![b'x'; FREE + 1]));
        assert!(overdue(1_000), "this is");
        drop(larger);
        drop(unwritten.watch_large(large()));
        assert!(!overdue(1_000), "it was written");
        let slow = unwritten.watch_large(large());
        // 30 seconds, and one for each 16 KiB.
        assert!(!overdue(39) && overdue(41));
        let part = slow.slice(1..);
        drop((slow, small));
        assert!(overdue(41), "a part of it is there");
        drop(part);
        assert!(!overdue(41));
    }
    /// The first of them, and not before; and what comes later is seen by who waits already.
    #[tokio::test]
    async fn it_is_told_when_the_first_is_overdue() {
        let patience = Duration::from_millis(300);
        let unwritten = Unwritten::new(patience);
        let mut told = std::pin::pin!(unwritten.overdue());
        let soon = patience / 3;
        let waiting = tokio::time::timeout(soon, told.as_mut()).await;
        assert!(waiting.is_err(), "there is nothing");
        let begun = Instant::now();
        let slow = unwritten.watch_large(Bytes::from(vec![b'x'; FREE + 1]));
        let written = unwritten.watch_large(Bytes::from(vec![b'x'; FREE + 1]));
        drop(written);
        let told = tokio::time::timeout(100 * patience, told).await;
        assert!(told.is_ok(), "nobody is told");
        // And a second for the 16 KiB.
        assert!(begun.elapsed() >= patience + Duration::from_secs(1));
        drop(slow);
        let nothing = tokio::time::timeout(soon, unwritten.overdue()).await;
        assert!(nothing.is_err());
    }
}
