//! What a command writes: kept up to a bound, and read to its end whatever the bound, so that
//! the command never waits for a reader.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio_util::sync::CancellationToken;

/// Which part is kept when there is more than may be kept.
#[derive(Clone, Copy, Debug)]
pub(super) enum Keep {
    First,
    Last,
}

/// What a command wrote to one of its outputs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Captured {
    /// What was kept (bytes, not necessarily UTF-8).
    pub bytes: Vec<u8>,
    /// How many bytes were written in all.
    pub bytes_written: u64,
}

impl Captured {
    /// Whether more was written than was kept.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        usize::try_from(self.bytes_written).map_or(true, |written| written > self.bytes.len())
    }

    /// What was kept, as text; what is not UTF-8 becomes U+FFFD.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    fn take(&mut self, new: &[u8], bytes_max: usize, keep: Keep) {
        self.bytes_written += u64::try_from(new.len()).unwrap_or(u64::MAX);
        match keep {
            Keep::First => {
                let room = bytes_max - self.bytes.len();
                self.bytes.extend_from_slice(&new[..new.len().min(room)]);
            }
            Keep::Last => {
                let new = &new[new.len().saturating_sub(bytes_max)..];
                let over = (self.bytes.len() + new.len()).saturating_sub(bytes_max);
                self.bytes.drain(..over);
                self.bytes.extend_from_slice(new);
            }
        }
    }
}

/// A capture that is still being written; can be looked at before its end.
#[derive(Clone)]
pub(super) struct Capture {
    captured: Arc<Mutex<Captured>>,
    bytes_max: usize,
    keep: Keep,
    full: CancellationToken,
}

impl Capture {
    pub(super) fn new(bytes_max: usize, keep: Keep) -> Self {
        Self {
            captured: Arc::default(),
            bytes_max,
            keep,
            full: CancellationToken::new(),
        }
    }

    /// Waits until there is more than may be kept.
    pub(super) async fn full(&self) {
        self.full.cancelled().await;
    }

    /// Takes what was read elsewhere.
    pub(super) fn take(&self, bytes: &[u8]) {
        let mut captured = self.captured.lock().unwrap_or_else(PoisonError::into_inner);
        captured.take(bytes, self.bytes_max, self.keep);
        if captured.is_cut() {
            self.full.cancel();
        }
    }

    /// Reads to the end. An output that breaks has ended.
    pub(super) async fn read(&self, from: Option<impl AsyncRead + Unpin>) {
        let Some(mut from) = from else {
            return;
        };
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(read) = from.read(&mut buffer).await
            && read > 0
        {
            self.take(&buffer[..read]);
        }
    }

    pub(super) fn taken(&self) -> Captured {
        std::mem::take(&mut *self.captured.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_or_the_last_part_is_kept() {
        for (keep, kept) in [(Keep::First, &b"abcd"[..]), (Keep::Last, b"fghi")] {
            let mut captured = Captured::default();
            for part in [&b"ab"[..], b"cde", b"", b"fghi"] {
                captured.take(part, 4, keep);
            }
            assert_eq!(captured.bytes, kept);
            assert_eq!(captured.bytes_written, 9);
            assert!(captured.is_cut());
        }
    }

    #[test]
    fn what_fits_is_whole() {
        for keep in [Keep::First, Keep::Last] {
            let mut captured = Captured::default();
            captured.take(b"abcd", 4, keep);
            assert_eq!(captured.text(), "abcd");
            assert!(!captured.is_cut());
        }
    }
}
