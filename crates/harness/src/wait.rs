//! Waiting for a state, with a deadline: level-triggered, so that no missed event can hang a test.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// How long a test waits for something that must happen, unless it says otherwise: generous, since
/// it is only ever used up by a failure.
pub const DEFAULT: Duration = Duration::from_secs(30);

const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// Calls `look` until it gives `Some`, pausing 5 to 100 ms in between.
///
/// # Errors
/// [`Error::Timeout`] naming `what` when `within` is over.
pub async fn until<T, F>(what: &str, within: Duration, mut look: F) -> Result<T>
where
    F: AsyncFnMut() -> Option<T>,
{
    let deadline = Instant::now() + within;
    let mut pause = FIRST_PAUSE;
    loop {
        if let Some(value) = look().await {
            return Ok(value);
        }
        if Instant::now() >= deadline {
            return Err(Error::Timeout {
                what: what.to_owned(),
                after: within,
                log: None,
            });
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Calls `look` until `good` accepts what it saw, and returns that. The message of a timeout shows
/// the last thing seen.
///
/// # Errors
/// [`Error::Timeout`] when `within` is over.
pub async fn for_state<T, F>(
    what: &str,
    within: Duration,
    mut look: F,
    good: impl Fn(&T) -> bool,
) -> Result<T>
where
    T: Debug,
    F: AsyncFnMut() -> T,
{
    let deadline = Instant::now() + within;
    let mut pause = FIRST_PAUSE;
    loop {
        let seen = look().await;
        if good(&seen) {
            return Ok(seen);
        }
        if Instant::now() >= deadline {
            let what = format!("{what} (last seen: {seen:?})");
            return Err(Error::Timeout {
                what,
                after: within,
                log: None,
            });
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
