//! The clock of this machine, for what need not be right to the hour. What time it is, is Postgres' to
//! say.

use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970.
#[expect(
    clippy::disallowed_methods,
    reason = "it places ids of one period together in an index, and leaves a day to who is late"
)]
pub(crate) fn local_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_millis()).unwrap_or_default()
}
