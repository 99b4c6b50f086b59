//! Postgres goes away and comes back within the time that requests wait for it: a slower answer is
//! all that anybody sees.

use std::time::{Duration, Instant};

use harness::postgres::Postgres;

use crate::postgres_load::{Load, World, now_us};
use crate::support::migrate;

/// After it went: what was allowed before may still act.
const LAST_ACTS: Duration = Duration::from_millis(500);
/// Measured are some tenths of a second on an idle machine; on a busy one this says enough.
const BACK: Duration = Duration::from_secs(4);

async fn postgres() -> (Postgres, String) {
    let postgres = Postgres::temporary().await.unwrap();
    let url = postgres.create_database("system").await.unwrap();
    migrate(url.clone()).await.unwrap();
    (postgres, url)
}

/// Killed under load and away for eight seconds: calls, reads, updates, cancels and subscriptions
/// of all gateways wait, nothing acknowledged is lost, no step acts meanwhile, no process restarts.
#[tokio::test(flavor = "multi_thread")]
async fn killed_for_eight_seconds() {
    let (mut postgres, url) = postgres().await;
    let mut world = World::start(&url, (2, 2), "").await;
    let load = Load::start(&world.cluster, 2);
    load.once_more().await;
    let processes = world.processes();

    let gone = Instant::now();
    let gone_us = now_us();
    postgres.kill9().await;
    tokio::time::sleep(Duration::from_secs(8).saturating_sub(gone.elapsed())).await;
    let back_us = now_us();
    postgres.start_again().await.unwrap();
    let back = Instant::now();
    load.once_more().await;
    let report = load.finish().await;

    report.assert_nothing_seen();
    assert_eq!(world.processes(), processes, "no process was restarted");
    let quiet = gone_us + u64::try_from(LAST_ACTS.as_micros()).unwrap();
    assert_eq!(world.ledger.between(quiet, back_us), 0, "no step acted");
    let mut waited = report.waited_after(back);
    println!(
        "postgres away for {:?}; requests answered after it was back: {waited:?}",
        back - gone
    );
    // These also wait for a worker.
    waited.remove("tools/call inline");
    for kind in ["tasks/get", "tools/call"] {
        assert!(waited.contains_key(kind), "{kind} waited: {waited:?}");
    }
    for (kind, waited) in waited {
        assert!(waited < BACK, "{kind}: {waited:?}");
    }
}

/// Restarted in good order, three times in a row, as an upgrade does.
#[tokio::test(flavor = "multi_thread")]
async fn restarted_again_and_again() {
    let (mut postgres, url) = postgres().await;
    let mut world = World::start(&url, (2, 1), "").await;
    let load = Load::start(&world.cluster, 2);
    load.once_more().await;
    let processes = world.processes();
    for _ in 0..3 {
        postgres.restart().await.unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    load.once_more().await;
    load.finish().await.assert_nothing_seen();
    assert_eq!(world.processes(), processes, "no process was restarted");
}
