//! Readiness of what a process leans on: Postgres decides, Redis being away only degrades.

use std::time::Duration;

use queue::Queue;
use store::Store;
use telemetry::Health;
use tokio_util::sync::CancellationToken;

use crate::commands::chain;

/// The readiness checks that it keeps.
pub const CHECKS: [&str; 2] = ["postgres", "redis"];
/// Between two looks at Postgres.
const INTERVAL: Duration = Duration::from_secs(1);

/// Keeps its checks true until `shutdown`.
pub async fn run(store: Store, queue: Queue, health: Health, shutdown: CancellationToken) {
    let [postgres, redis] = CHECKS.map(|name| health.check(name));
    let connected = queue.connected();
    loop {
        let pinged = tokio::select! {
            () = shutdown.cancelled() => return,
            pinged = store.ping() => pinged,
        };
        match pinged {
            Ok(()) => postgres.ready(),
            Err(error) => postgres.not_ready(reason(&error)),
        }
        if !*connected.borrow() {
            redis.degraded(format!(
                "{}; jobs start from Postgres meanwhile, slower",
                queue.refused().unwrap_or("cannot be reached")
            ));
        } else if queue.may_evict() {
            redis.degraded(
                "may evict hints when memory runs short, which delays jobs: \
                 set its maxmemory-policy to noeviction",
            );
        } else {
            redis.ready();
        }
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(INTERVAL) => {}
        }
    }
}

/// Why Postgres cannot be used, in a line: what it refuses for good is told apart from an outage.
pub fn reason(error: &store::Error) -> String {
    match error.refusal() {
        Some(refusal) => refusal.to_string(),
        None => chain(error),
    }
}
