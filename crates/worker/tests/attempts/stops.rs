//! Cancels, limits and drains: the work ends before the status says so.

use std::time::{Duration, Instant};

use store::ToolPolicy;
use worker::{Step, ToolError};

use crate::world::{SOON, World, done, reason};

#[tokio::test(flavor = "multi_thread")]
async fn a_polite_tool_is_told() {
    let world = World::new().await;
    let _worker = world.worker(ToolPolicy::default(), |world, context| {
        Box::pin(async move {
            world.act("working");
            context.cancelled().cancelled().await;
            world.act("tidied up");
            Err(ToolError::retryable("stopped in the middle"))
        })
    });
    let id = world.start(&ToolPolicy::default()).await;
    world.wait_column(id, "phase", "running").await;
    let told = Instant::now();
    assert_eq!(
        world.store.cancel(&world.alice, id).await.unwrap(),
        store::Cancel::Requested
    );
    world.queue.stop(id).await;
    world.wait(id, &["cancelled"]).await;
    assert!(told.elapsed() < SOON / 2);
    assert_eq!(world.acts(), ["working", "tidied up"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deaf_tool_is_dropped_and_only_then_cancelled() {
    struct Ghost<'a>(&'a World);
    impl Drop for Ghost<'_> {
        fn drop(&mut self) {
            self.0.act("dropped");
        }
    }
    let world = World::new().await;
    let _worker = world.worker(ToolPolicy::default(), |world, _| {
        Box::pin(async move {
            let _ghost = Ghost(world);
            std::future::pending::<()>().await;
            done()
        })
    });
    let id = world.start(&ToolPolicy::default()).await;
    world.wait_column(id, "phase", "running").await;
    world.store.cancel(&world.alice, id).await.unwrap();
    // Nobody tells the worker: its next heartbeat does.
    world.wait(id, &["cancelled"]).await;
    assert_eq!(
        world.acts(),
        ["dropped"],
        "the work had ended before the status showed"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn no_step_begins_after_a_cancel() {
    let world = World::new().await;
    let _worker = world.worker(ToolPolicy::default(), |world, context| {
        Box::pin(async move {
            world.go.cancelled().await;
            context
                .step(Step::new("launch"), |_| async {
                    world.act("launch");
                    Ok(())
                })
                .await?;
            done()
        })
    });
    let id = world.start(&ToolPolicy::default()).await;
    world.wait_column(id, "phase", "running").await;
    world.store.cancel(&world.alice, id).await.unwrap();
    world.go.cancel();
    world.wait(id, &["cancelled"]).await;
    assert!(world.acts().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_in_the_middle_of_an_act_is_in_doubt() {
    let world = World::new().await;
    let _worker = world.worker(ToolPolicy::default(), |_, context| {
        Box::pin(async move {
            context
                .step(Step::new("launch"), |_| async {
                    std::future::pending::<()>().await;
                    Ok(())
                })
                .await?;
            done()
        })
    });
    let id = world.start(&ToolPolicy::default()).await;
    world.wait_column(id, "open_step", "launch").await;
    world.store.cancel(&world.alice, id).await.unwrap();
    let task = world.wait(id, &["cancelled", "failed"]).await;
    assert_eq!(task.status.as_str(), "failed", "the act may still land");
    assert_eq!(reason(&task), "step_in_doubt");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_work_limit_ends_a_tool_that_hangs() {
    let world = World::new().await;
    let policy = ToolPolicy {
        work_limit: Duration::from_millis(700),
        ..ToolPolicy::default()
    };
    let _worker = world.worker(policy.clone(), |_, _| {
        Box::pin(async move {
            std::future::pending::<()>().await;
            done()
        })
    });
    let id = world.start(&policy).await;
    let task = world.wait(id, &["failed"]).await;
    assert_eq!(reason(&task), "work_limit");
    assert!(task.status_message.unwrap().contains("700 ms"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_hands_back_without_spending_a_try() {
    let world = World::new().await;
    let policy = ToolPolicy::default();
    let body: crate::world::Body = |world, context| {
        Box::pin(async move {
            context
                .step(Step::new("first"), |_| async {
                    world.act("first");
                    Ok(())
                })
                .await?;
            world.go.cancelled().await;
            done()
        })
    };
    let first = world.worker(policy.clone(), body);
    let id = world.start(&policy).await;
    world.wait_column(id, "phase", "running").await;
    harness::wait::until("the step", SOON, async || {
        (world.acts().len() == 1).then_some(())
    })
    .await
    .unwrap();
    first.drain().await.unwrap();
    assert_eq!(world.column(id, "phase").await, "queued");
    let _second = world.worker(policy, body);
    world.wait_column(id, "phase", "running").await;
    world.go.cancel();
    world.wait(id, &["completed"]).await;
    assert_eq!(world.column(id, "tries").await, "0");
    assert_eq!(world.acts(), ["first"]);
}

/// From the acknowledged cancel to the tool's token. The heartbeat is far away, so that it is
/// Redis that tells it.
#[tokio::test(flavor = "multi_thread")]
async fn redis_tells_of_a_cancel_at_once() {
    let database = harness::postgres::test_database(crate::world::migrate)
        .await
        .unwrap();
    let rare = store::Config {
        lease: Duration::from_secs(90),
        heartbeat: Duration::from_secs(30),
        ..crate::world::config(database.url())
    };
    let world = World::over(rare).await;
    let _worker = world.worker(ToolPolicy::default(), WAITS);
    let id = world.start(&ToolPolicy::default()).await;
    world.wait_act("working").await;
    // The look at the row with which listening begins is over.
    tokio::time::sleep(Duration::from_millis(500)).await;
    world.store.cancel(&world.alice, id).await.unwrap();
    let acknowledged = Instant::now();
    world.queue.stop(id).await;
    world.wait_act("told").await;
    let latency = acknowledged.elapsed();
    println!("cancel to token with redis: {latency:?}");
    assert!(latency < Duration::from_secs(5), "{latency:?}");
    world.wait(id, &["cancelled"]).await;
}

/// Without Redis the next heartbeat tells it.
#[tokio::test(flavor = "multi_thread")]
async fn without_redis_the_next_heartbeat_tells_of_a_cancel() {
    let world = World::new().await;
    let worker = world.worker(ToolPolicy::default(), WAITS);
    let id = world.start(&ToolPolicy::default()).await;
    world.wait_act("working").await;
    world.redis.lock().unwrap().kill9();
    let beats = || worker.counter("mcp_tasks_worker_heartbeats_total", "result=\"ok\"");
    let before = beats();
    harness::wait::until("a heartbeat without redis", SOON, async || {
        (beats() > before + 1).then_some(())
    })
    .await
    .unwrap();
    world.store.cancel(&world.alice, id).await.unwrap();
    let (acknowledged, before) = (Instant::now(), beats());
    world.wait_act("told").await;
    let (latency, heartbeats) = (acknowledged.elapsed(), beats() - before);
    println!("cancel to token without redis: {latency:?}, {heartbeats} heartbeats");
    // One may have been under way.
    assert!(heartbeats <= 2, "{heartbeats} heartbeats");
    world.wait(id, &["cancelled"]).await;
}

const WAITS: crate::world::Body = |world, context| {
    Box::pin(async move {
        world.act("working");
        context.cancelled().cancelled().await;
        world.act("told");
        Err(ToolError::retryable("told to stop"))
    })
};

/// An act that happened is in no doubt because its tool was dropped while the journal was slow.
#[tokio::test(flavor = "multi_thread")]
async fn an_act_on_its_way_into_the_journal_is_in_no_doubt() {
    let database = harness::postgres::test_database(crate::world::migrate)
        .await
        .unwrap();
    let patient = store::Config {
        lease: Duration::from_secs(9),
        heartbeat: Duration::from_millis(300),
        ..crate::world::config(database.url())
    };
    let world = World::over(patient).await;
    let _worker = world.worker(ToolPolicy::default(), |world, context| {
        Box::pin(async move {
            let stop = context.cancelled();
            context
                .step(Step::new("launch"), |_| async {
                    stop.cancelled().await;
                    world.act("launch");
                    Ok(())
                })
                .await?;
            done()
        })
    });
    let id = world.start(&ToolPolicy::default()).await;
    world.wait_column(id, "open_step", "launch").await;
    // Longer than the grace after which the tool is dropped.
    let slow = format!(
        "WITH held AS MATERIALIZED (SELECT 1 FROM steps WHERE task_id = '{id}' FOR UPDATE) \
         SELECT pg_sleep(2) FROM held"
    );
    let cancelled = async {
        let sleeps = format!(
            "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND query LIKE '%{id}%'"
        );
        harness::wait::until("the lock", SOON, async || {
            (!world.rows(&sleeps).await.is_empty()).then_some(())
        })
        .await
        .unwrap();
        world.store.cancel(&world.alice, id).await.unwrap();
        world.wait(id, &["cancelled", "failed"]).await
    };
    let (_, task) = tokio::join!(world.rows(&slow), cancelled);
    assert_eq!(world.acts(), ["launch"]);
    assert_eq!(task.status.as_str(), "cancelled");
}
