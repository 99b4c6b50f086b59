//! Leases: a worker that no longer owns a task writes nothing, and one that cannot be stopped
//! ends.

use std::time::Duration;

use harness::postgres::Postgres;
use store::ToolPolicy;
use worker::Step;

use crate::world::{World, config, done, migrate};

/// The row says that somebody else owns it: the next heartbeat ends the work here.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_lease_ends_the_work() {
    let world = World::new().await;
    let _worker = world.worker(ToolPolicy::default(), |world, context| {
        Box::pin(async move {
            let stop = context.cancelled();
            tokio::select! {
                () = stop.cancelled() => world.act("told"),
                () = world.go.cancelled() => {
                    context.step(Step::new("late"), |_| async { world.act("late"); Ok(()) }).await?;
                }
            }
            done()
        })
    });
    let id = world.start(&ToolPolicy::default()).await;
    world.wait_column(id, "phase", "running").await;
    let stolen = format!(
        "UPDATE tasks SET attempt = attempt + 1, claim_token = gen_random_uuid(), \
         lease_until = now() + interval '1 hour' WHERE id = '{id}' RETURNING 1"
    );
    world.rows(&stolen).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.go.cancel();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(
        world.acts().is_empty(),
        "dropped at once, not politely: {:?}",
        world.acts()
    );
    assert_eq!(
        world.column(id, "phase").await,
        "running",
        "the other owner's row is untouched"
    );
}

/// A tool that neither awaits nor returns: the worker gives up its process.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_tool_that_cannot_be_stopped_ends_its_worker() {
    let world = World::new().await;
    let worker = world.worker(ToolPolicy::default(), |world, _| {
        Box::pin(async move {
            while !world.go.is_cancelled() {
                std::thread::sleep(Duration::from_millis(20));
            }
            done()
        })
    });
    let id = world.start(&ToolPolicy::default()).await;
    world.wait_column(id, "phase", "running").await;
    world.store.cancel(&world.alice, id).await.unwrap();
    let ended = worker.ended().await;
    world.go.cancel();
    assert!(
        matches!(ended, Err(worker::Error::Stuck { .. })),
        "{ended:?}"
    );
}

/// What can be stopped is handed back before the process ends for what can't be, and costs no
/// try; heartbeats go on meanwhile, so its lease is not lost either.
#[tokio::test(flavor = "multi_thread")]
async fn what_runs_beside_a_tool_that_cannot_be_stopped_is_handed_back() {
    let world = World::new().await;
    let policy = ToolPolicy::default();
    let worker = world.worker(policy.clone(), |world, context| {
        Box::pin(async move {
            if world.run() == 1 {
                while !world.go.is_cancelled() {
                    std::thread::sleep(Duration::from_millis(20));
                }
                return done();
            }
            context.cancelled().cancelled().await;
            Err(worker::ToolError::retryable("told to stop"))
        })
    });
    let stuck = world.start(&policy).await;
    world.wait_column(stuck, "phase", "running").await;
    let polite = world.start(&policy).await;
    world.wait_column(polite, "phase", "running").await;
    world.store.cancel(&world.alice, stuck).await.unwrap();
    let ended = worker.ended().await;
    let (phase, tries) = (
        world.column(polite, "phase").await,
        world.column(polite, "tries").await,
    );
    let shown = world.get(stuck).await.status;
    world.go.cancel();
    assert!(
        matches!(ended, Err(worker::Error::Stuck { .. })),
        "{ended:?}"
    );
    assert_eq!((phase.as_str(), tries.as_str()), ("queued", "0"));
    assert_eq!(
        shown.as_str(),
        "working",
        "not cancelled while its thread still runs"
    );
}

/// What a tool brought home waits for Postgres, longer than any request would: nothing runs
/// twice, and no try is spent.
#[tokio::test(flavor = "multi_thread")]
async fn a_result_waits_for_postgres_to_come_back() {
    let mut postgres = Postgres::temporary().await.unwrap();
    let url = postgres.create_database("attempts").await.unwrap();
    migrate(url.clone()).await.unwrap();
    let impatient = store::Config {
        wait_max: Duration::from_millis(500),
        lease: Duration::from_secs(4),
        heartbeat: Duration::from_secs(1),
        ..config(&url)
    };
    let world = World::over(impatient).await;
    let _worker = world.worker(ToolPolicy::default(), |world, _| {
        Box::pin(async move {
            world.go.cancelled().await;
            done()
        })
    });
    let id = world.start(&ToolPolicy::default()).await;
    world.wait_column(id, "phase", "running").await;
    postgres.kill9().await;
    world.go.cancel();
    tokio::time::sleep(Duration::from_secs(6)).await;
    postgres.start_again().await.unwrap();
    harness::wait::until("the result", crate::world::SOON, async || {
        let sql = format!("SELECT status FROM tasks WHERE id = '{id}'");
        let rows = harness::postgres::rows(&url, &sql).await.ok()?;
        (rows[0][0].as_deref() == Some("completed")).then_some(())
    })
    .await
    .unwrap();
    assert_eq!(world.run(), 1);
    assert_eq!(world.column(id, "attempt").await, "1");
    assert_eq!(world.column(id, "tries").await, "0");
}

/// A worker that is asked to end does not wait for a Postgres that is away, whatever its jobs
/// were told before.
#[tokio::test(flavor = "multi_thread")]
async fn a_drain_does_not_wait_for_postgres() {
    let mut postgres = Postgres::temporary().await.unwrap();
    let url = postgres.create_database("attempts").await.unwrap();
    migrate(url.clone()).await.unwrap();
    let impatient = store::Config {
        wait_max: Duration::from_millis(500),
        lease: Duration::from_secs(4),
        heartbeat: Duration::from_secs(1),
        ..config(&url)
    };
    let world = World::over(impatient).await;
    let worker = world.worker(ToolPolicy::default(), |world, context| {
        Box::pin(async move {
            context.cancelled().cancelled().await;
            world.act("told");
            world.go.cancelled().await;
            done()
        })
    });
    let id = world.start(&ToolPolicy::default()).await;
    world.wait_column(id, "phase", "running").await;
    world.store.cancel(&world.alice, id).await.unwrap();
    world.queue.stop(id).await;
    harness::wait::until("the tool is told", crate::world::SOON, async || {
        (!world.acts().is_empty()).then_some(())
    })
    .await
    .unwrap();
    postgres.kill9().await;
    world.go.cancel();
    let asked = std::time::Instant::now();
    worker.drain().await.unwrap();
    assert!(asked.elapsed() < Duration::from_secs(15));
}
