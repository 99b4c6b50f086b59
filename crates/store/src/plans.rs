//! Plans of prepared statements, made anew now and then.
//!
//! A plan that Postgres keeps was made for as many rows as there were: where a table was next to empty, it
//! reads all of it, and would go on with that until Postgres counts the rows again, a minute or more after
//! a burst began. A plan made anew looks how large the table is.

use std::pin::pin;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use deadpool_postgres::{ClientWrapper, Hook, Metrics};

/// Plans of a connection in use are no older. Making those of all hot statements takes Postgres some
/// milliseconds.
const AGE_MAX: Duration = Duration::from_secs(10);

/// Throws a connection's plans away once in [`AGE_MAX`], before it is used again.
pub(crate) fn renewed() -> Hook {
    Hook::sync_fn(|client: &mut ClientWrapper, metrics: &Metrics| {
        if is_due(metrics, Instant::now()) {
            // Sent ahead of the next statement, in whose time a server that hangs is noticed; nobody
            // waits for its answer.
            let sending = pin!(client.batch_execute("DISCARD PLANS"));
            let _ = sending.poll(&mut Context::from_waker(Waker::noop()));
        }
        Ok(())
    })
}

/// Whether it was last used in an earlier span of its age than the one that is now.
fn is_due(metrics: &Metrics, now: Instant) -> bool {
    let span = |at: Instant| at.duration_since(metrics.created).as_secs() / AGE_MAX.as_secs();
    span(metrics.recycled.unwrap_or(metrics.created)) < span(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn once_in_each_span_of_its_age() {
        let created = Instant::now();
        let at = |seconds| created + Duration::from_secs(seconds);
        let used = |last: Option<u64>| Metrics {
            created,
            recycled: last.map(at),
            recycle_count: 1,
        };
        assert!(!is_due(&used(None), at(9)));
        assert!(is_due(&used(None), at(10)));
        assert!(!is_due(&used(Some(10)), at(19)));
        assert!(is_due(&used(Some(19)), at(20)));
        assert!(is_due(&used(Some(20)), at(95)), "long unused");
    }
}
