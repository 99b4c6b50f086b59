//! The time of day, which tokens and cursors of lists expire by: an issuer's clock and ours, not Postgres'.

use std::time::UNIX_EPOCH;

/// Seconds since 1970-01-01 UTC.
#[expect(
    clippy::disallowed_methods,
    reason = "a token says by the time of day when it expires, and nothing of ours is decided by it"
)]
pub(crate) fn now() -> i64 {
    let since = std::time::SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}
