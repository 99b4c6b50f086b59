//! Connections to Redis break, again and again: whoever used them goes on reading, and hears of
//! what was said meanwhile.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::reports_tools::{self, Ledger};
use crate::support::{SOON, System};

/// Every connection is killed five times in three seconds; then a hint is taken as fast as ever,
/// from Redis.
#[tokio::test(flavor = "multi_thread")]
async fn killed_connections_are_made_again() {
    let system = System::of(1, 1).await;
    let alice = system.cluster.client(0, "alice");
    for _ in 0..5 {
        for kind in ["normal", "pubsub"] {
            let killed = system
                .redis
                .number(&["CLIENT", "KILL", "TYPE", kind])
                .await
                .unwrap();
            assert!(killed >= 1, "{kind}");
        }
        tokio::time::sleep(Duration::from_millis(600)).await;
    }
    let worker = &system.cluster.workers[0];
    let from_redis = async || {
        let jobs = worker
            .metric("mcp_tasks_worker_jobs_total", "source=\"redis\"")
            .await;
        jobs.unwrap_or_default()
    };
    let before = from_redis().await;
    let begun = Instant::now();
    let id = alice
        .start("slow_compute", json!({"seconds": 0}))
        .await
        .unwrap();
    alice.wait_status(&id, "completed", SOON).await.unwrap();
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(3), "{took:?}");
    assert!(from_redis().await > before, "it was taken from Redis");
    let http = harness::http::Http::new(Duration::from_secs(5));
    let alive = http
        .get(&format!("{}/livez", worker.admin()))
        .await
        .unwrap();
    assert_eq!(alive.status, 200);
}

/// How the word of a cancel may get lost.
#[derive(Clone, Copy, Debug)]
enum Lost {
    Nothing,
    Subscriptions,
    Everything,
}

/// The request to stop is in the row. Redis makes it quick; without it, the next heartbeat (here 1 s)
/// brings it.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_is_heard_without_redis() {
    let (mut system, ledger, _tools) = reports_tools::system(2, "").await;
    let [alice, other] = [0, 1].map(|n| system.cluster.client(n, "alice"));
    let slack = Duration::from_millis(500);
    for (lost, bound) in [
        (Lost::Nothing, Duration::from_millis(1_000)),
        (Lost::Subscriptions, Duration::from_secs(1) + slack),
        (Lost::Everything, Duration::from_secs(1) + slack),
    ] {
        let label = format!("{lost:?}");
        // In its pause it hears of nothing but the stop.
        let work = json!({"label": label, "steps": 2, "pause_ms": 60_000});
        let id = alice.start("toil", work).await.unwrap();
        ledger.acted(&label, 1).await;
        match lost {
            Lost::Nothing => {}
            Lost::Subscriptions => {
                let kill = ["CLIENT", "KILL", "TYPE", "pubsub"];
                assert!(system.redis.number(&kill).await.unwrap() >= 3);
            }
            Lost::Everything => system.redis.freeze(),
        }
        other.cancel(&id).await.unwrap();
        let acknowledged = Ledger::now_ms();
        alice.wait_status(&id, "cancelled", SOON).await.unwrap();
        let took = Duration::from_millis(Ledger::now_ms() - acknowledged);
        println!("{lost:?}: cancelled after {took:?}");
        assert!(took < bound, "{lost:?}: {took:?}");
    }
    system.redis.thaw();
}
