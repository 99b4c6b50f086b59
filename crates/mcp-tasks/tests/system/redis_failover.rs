//! Redis comes back with less than it had: a replica that lagged is promoted, a snapshot is loaded.
//! Acknowledged hints are gone, and Redis does not know it.

use std::time::{Duration, Instant};

use futures::future::join_all;
use harness::redis::{Options, Redis};
use serde_json::json;

use crate::support::{SOON, System, entries, migrate};

const EACH: usize = 10;

/// A replica that was cut off takes over its primary's address: what was hinted in between is
/// found again.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_lagged_is_promoted() {
    // A replica is sent the data at once, not after five seconds.
    let settings = vec![("repl-diskless-sync-delay".to_owned(), "0".to_owned())];
    let mut system = frozen_system(Options {
        settings,
        ..Options::test()
    })
    .await;
    let settings = vec![(
        "replicaof".to_owned(),
        format!("127.0.0.1 {}", system.redis.port()),
    )];
    let replica = Redis::temporary_with(Options {
        settings,
        ..Options::test()
    })
    .await
    .unwrap();
    let mut ids = queue_some(&system).await;
    harness::wait::until("the replica has them", SOON, async || {
        (entries(&replica).await == 10).then_some(())
    })
    .await
    .unwrap();
    replica.command(&["REPLICAOF", "NO", "ONE"]).await.unwrap();
    ids.extend(queue_some(&system).await);
    assert_eq!(entries(&system.redis).await, 20);
    system.redis.kill9();
    let port = system.redis.port().to_string();
    replica
        .command(&["CONFIG", "SET", "port", &port])
        .await
        .unwrap();
    assert_eq!(entries(&system.redis).await, 10, "half of them are lost");
    all_are_done(&mut system, &ids).await;
}

/// Redis dies and comes back as it was at its last snapshot.
#[tokio::test(flavor = "multi_thread")]
async fn an_old_snapshot_is_loaded() {
    let settings = vec![("save".to_owned(), "3600 1".to_owned())];
    let mut system = frozen_system(Options {
        settings,
        ..Options::test()
    })
    .await;
    let mut ids = queue_some(&system).await;
    system.redis.command(&["SAVE"]).await.unwrap();
    ids.extend(queue_some(&system).await);
    system.redis.kill9();
    system.redis.start_again().await.unwrap();
    assert_eq!(entries(&system.redis).await, 10, "half of them are lost");
    all_are_done(&mut system, &ids).await;
}

/// The worker is frozen, so that what is hinted stays in Redis.
async fn frozen_system(redis: Options) -> System {
    let redis = Redis::temporary_with(redis).await.unwrap();
    let url = redis.url();
    let database = harness::postgres::test_database(migrate).await.unwrap();
    // Nothing is found by its age here.
    let settings = "[cron]\nhint_age = \"1h\"";
    let mut system = System::over_redis((1, 1), settings, database, (redis, &url)).await;
    system.cluster.workers[0].freeze();
    system
}

async fn queue_some(system: &System) -> Vec<String> {
    let alice = system.cluster.client(0, "alice");
    let calls = (0..EACH).map(|_| alice.start("slow_compute", json!({"seconds": 0})));
    join_all(calls)
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect()
}

async fn all_are_done(system: &mut System, ids: &[String]) {
    let alice = system.cluster.client(0, "alice");
    system.cluster.workers[0].thaw();
    let begun = Instant::now();
    for id in ids {
        alice.wait_status(id, "completed", SOON).await.unwrap();
    }
    // The loss is noticed within a second, and the next look comes within two.
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(6), "{took:?}");
}
