//! Readiness of what a process leans on: Postgres decides, Redis being away only degrades.

use std::time::Duration;

use queue::Queue;
use store::Store;
use telemetry::Health;
use tokio_util::sync::CancellationToken;

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
            Err(error) => postgres.not_ready(error.to_string()),
        }
        if !*connected.borrow() {
            redis.degraded("cannot be reached: jobs start from Postgres, slower");
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
