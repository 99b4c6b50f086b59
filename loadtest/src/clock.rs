//! The one clock of a run: `CLOCK_MONOTONIC`, which all processes of a machine share and which no
//! change of the wall clock moves.

use nix::time::{ClockId, clock_gettime};

/// Microseconds since the machine started.
///
/// # Panics
/// On a system without a monotonic clock.
#[must_use]
pub fn now_us() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("every Linux has a monotonic clock");
    let seconds = u64::try_from(now.tv_sec()).expect("a monotonic clock does not go negative");
    let nanos = u64::try_from(now.tv_nsec()).expect("nanoseconds are positive");
    seconds * 1_000_000 + nanos / 1_000
}
