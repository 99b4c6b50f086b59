//! How long things take after something died. Printed (`--nocapture`); the limits are generous,
//! because the machine may be busy.

use std::time::{Duration, Instant};

use futures::future::join_all;
use harness::postgres::{Postgres, rows};
use serde_json::json;

use crate::postgres_load::{Load, World, step};
use crate::support::{SOON, System, migrate};

const RECONCILE: Duration = Duration::from_secs(2);
/// What a busy machine may add to anything.
const SLACK: Duration = Duration::from_secs(4);

async fn over_postgres(gateways: usize, workers: usize, settings: &str) -> (World, Postgres) {
    let postgres = Postgres::temporary().await.unwrap();
    let url = postgres.create_database("system").await.unwrap();
    migrate(url.clone()).await.unwrap();
    let world = World::start(&url, (gateways, workers), settings).await;
    (world, postgres)
}

/// kill -9 of a worker in the middle of a job: from the kill to the claim by another.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_workers_job_is_claimed() {
    let lease = Duration::from_secs(2);
    let settings = "[postgres]\nlease = \"2s\"\nheartbeat = \"600ms\"";
    let (mut world, postgres) = over_postgres(1, 2, settings).await;
    let url = postgres.url("system");
    let alice = world.cluster.client(0, "alice");
    let items = json!([step("one", 0), {"pause": 20_000}]);
    let plan = json!({"call": "long", "items": items});
    let id = alice.start("chaos_steps", plan).await.unwrap();
    let sql = format!("SELECT attempt FROM tasks WHERE id = '{id}' AND phase = 'running'");
    let claimed = async |attempt: i32| {
        let look = async || {
            let by_now: i32 = rows(&url, &sql).await.ok()?.pop()?[0]
                .as_ref()?
                .parse()
                .ok()?;
            (by_now >= attempt).then_some(())
        };
        harness::wait::until("claimed", SOON, look).await.unwrap();
    };
    let mut longest = Duration::ZERO;
    for attempt in 1..=2 {
        claimed(attempt).await;
        // In the middle of a heartbeat interval or not, as it comes.
        tokio::time::sleep(Duration::from_millis(700)).await;
        let owner = owner(&world).await;
        let node = &mut world.cluster.workers[owner];
        node.kill9();
        let killed = Instant::now();
        claimed(attempt + 1).await;
        longest = longest.max(killed.elapsed());
        node.start_again().unwrap();
        node.ready().await.unwrap();
    }
    println!(
        "figure: a killed worker's job was claimed after {longest:?} at most (lease {lease:?}, reconcile {RECONCILE:?})"
    );
    assert!(longest < lease + RECONCILE + SLACK, "{longest:?}");
    assert_eq!(
        world.ledger.of("long")["one"],
        1,
        "a finished step is not repeated"
    );
}

/// Which worker runs the only job.
async fn owner(world: &World) -> usize {
    let look = async || {
        let running = world.cluster.workers.iter().map(async |node| {
            let running = node.metric("mcp_tasks_worker_jobs_running", "").await;
            running.is_ok_and(|running| running > 0.0)
        });
        join_all(running).await.into_iter().position(|runs| runs)
    };
    harness::wait::until("a worker runs it", SOON, look)
        .await
        .unwrap()
}

/// Redis loses everything while 200 jobs are queued: until the last has run, compared with the
/// same 200 when nothing is lost.
#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_queued_jobs_outlive_redis() {
    let mut system = System::of(1, 1).await;
    let client = system.cluster.client(0, "alice");
    let mut took = Vec::new();
    for lose in [false, true] {
        // Frozen, so that they are still queued when Redis loses them.
        system.cluster.workers[0].freeze();
        let calls = (0..200).map(|_| client.start("slow_compute", json!({"seconds": 0})));
        for started in join_all(calls).await {
            started.unwrap();
        }
        if lose {
            system.redis.flush().await.unwrap();
        }
        system.cluster.workers[0].thaw();
        let thawed = Instant::now();
        let none = async || {
            let live = "SELECT count(*) FROM tasks WHERE phase IS NOT NULL";
            (system.count(live).await == 0).then_some(())
        };
        harness::wait::until("all have run", SOON, none)
            .await
            .unwrap();
        took.push(thawed.elapsed());
    }
    let (kept, lost) = (took[0], took[1]);
    println!(
        "figure: 200 queued jobs ran in {kept:?}; with Redis emptied in {lost:?} (reconcile {RECONCILE:?})"
    );
    assert!(lost < kept + RECONCILE + SLACK, "{kept:?} {lost:?}");
}

/// From the moment that a restarted Postgres accepts connections to the answers of the requests
/// that waited for it.
#[tokio::test(flavor = "multi_thread")]
async fn service_is_back_after_postgres() {
    let (world, mut postgres) = over_postgres(3, 2, "").await;
    let load = Load::start(&world.cluster, 3);
    load.once_more().await;
    postgres.kill9().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    postgres.start_again().await.unwrap();
    let back = Instant::now();
    load.once_more().await;
    let report = load.finish().await;
    report.assert_nothing_seen();
    let mut waited = report.waited_after(back);
    // These also wait for a worker.
    waited.remove("tools/call inline");
    println!("figure: requests that waited for Postgres were answered after {waited:?} at most");
    assert!(waited.values().all(|waited| *waited < SLACK), "{waited:?}");
}
