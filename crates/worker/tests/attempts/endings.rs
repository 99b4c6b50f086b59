//! Results, errors, tries and their ends.

use std::time::Duration;

use serde_json::Value;
use store::{Backoff, ToolPolicy};
use worker::{CallToolResult, ToolError};

use crate::world::{World, done, reason};

fn few_tries(tries_max: u16) -> ToolPolicy {
    let backoff = Backoff {
        first: Duration::from_millis(100),
        max: Duration::from_millis(400),
    };
    ToolPolicy {
        tries_max,
        backoff,
        ..ToolPolicy::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_completes() {
    let world = World::new().await;
    let _worker = world.worker(ToolPolicy::default(), |_, _| {
        Box::pin(async move { done() })
    });
    let id = world.start(&ToolPolicy::default()).await;
    let task = world.wait(id, &["completed"]).await;
    let result: Value = serde_json::from_slice(&task.result.unwrap()).unwrap();
    assert_eq!(result["content"][0]["text"], "done");
    assert_eq!(result["resultType"], "complete");
    let left = async || {
        let mut entries = 0;
        let lane = queue::Lane {
            tool: "scripted".to_owned(),
            version: 1,
        };
        entries += world.queue.depth(&lane).await.unwrap();
        entries
    };
    harness::wait::for_state("no hint left", crate::world::SOON, left, |n| *n == 0)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_of_the_tool_fails_the_task_as_it_is() {
    let world = World::new().await;
    let _worker = world.worker(ToolPolicy::default(), |_, _| {
        Box::pin(async move {
            Err(ToolError::failed_with(
                1234,
                "no such ledger",
                serde_json::json!({ "ledger": 7 }),
            ))
        })
    });
    let id = world.start(&ToolPolicy::default()).await;
    let task = world.wait(id, &["failed"]).await;
    let error: Value = serde_json::from_slice(&task.error.unwrap()).unwrap();
    assert_eq!(
        error,
        serde_json::json!({ "code": 1234, "message": "no such ledger", "data": { "ledger": 7 } })
    );
    assert_eq!(task.status_message.unwrap(), "no such ledger");
}

#[tokio::test(flavor = "multi_thread")]
async fn tries_are_repeated_and_end() {
    let world = World::new().await;
    let policy = few_tries(3);
    let _worker = world.worker(policy.clone(), |_, _| {
        Box::pin(async move { Err(ToolError::retryable("the printer is on fire")) })
    });
    let id = world.start(&policy).await;
    let task = world.wait(id, &["failed"]).await;
    assert_eq!(reason(&task), "attempts_exhausted");
    let message = task.status_message.unwrap();
    assert!(
        message.contains('3') && message.contains("the printer is on fire"),
        "{message}"
    );
    assert_eq!(world.run(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_is_a_failed_try() {
    let world = World::new().await;
    let policy = few_tries(2);
    let _worker = world.worker(policy.clone(), |world, _| {
        Box::pin(async move {
            assert!(world.run() > 1, "the first run panics");
            done()
        })
    });
    let id = world.start(&policy).await;
    world.wait(id, &["completed"]).await;
    assert_eq!(world.column(id, "tries").await, "1");
    assert!(world.column(id, "attempt").await == "2");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_beyond_the_limit_is_an_error() {
    let world = World::new().await;
    let policy = ToolPolicy {
        result_bytes_max: Some(1000),
        ..ToolPolicy::default()
    };
    let _worker = world.worker(policy.clone(), |_, _| {
        Box::pin(async move { Ok(CallToolResult::text("x".repeat(2000))) })
    });
    let id = world.start(&policy).await;
    let task = world.wait(id, &["failed"]).await;
    assert!(task.status_message.unwrap().contains("1000 are allowed"));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_redis_work_comes_from_postgres() {
    let world = World::new().await;
    world.redis.lock().unwrap().kill9();
    let _worker = world.worker(ToolPolicy::default(), |_, _| {
        Box::pin(async move { done() })
    });
    let id = world.start(&ToolPolicy::default()).await;
    world.wait(id, &["completed"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_status_message_is_never_lost() {
    let world = World::new().await;
    let _worker = world.worker(ToolPolicy::default(), |world, context| {
        Box::pin(async move {
            for n in 0..50 {
                context.progress(format!("message {n}")).await;
            }
            world.go.cancelled().await;
            done()
        })
    });
    let id = world.start(&ToolPolicy::default()).await;
    world.wait_column(id, "status_message", "message 49").await;
    world.go.cancel();
    world.wait(id, &["completed"]).await;
}

/// A worker whose places are all taken for long has nothing to ask for, and is not dead.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_worker_is_alive() {
    let world = World::new().await;
    let body: crate::world::Body = |world, _| {
        Box::pin(async move {
            world.go.cancelled().await;
            done()
        })
    };
    let policy = ToolPolicy::default();
    let worker = world.worker_with(policy.clone(), body, |settings| settings.slots = 1);
    let id = world.start(&policy).await;
    world.wait_column(id, "phase", "running").await;
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    let scraped = worker.registry.render();
    let prefix = "mcp_tasks_health_liveness_age_seconds{loop=\"poll\"} ";
    let age = scraped.lines().find_map(|line| line.strip_prefix(prefix));
    let age: f64 = age.expect("the loop is watched").parse().unwrap();
    assert!(age < 3.0, "last came round {age} s ago");
    assert!(worker.health.liveness_report().ok);
    world.go.cancel();
    world.wait(id, &["completed"]).await;
}

/// What gateways tell clients to poll by: how long a visible change takes, and a whole run.
#[tokio::test(flavor = "multi_thread")]
async fn the_pace_of_a_tool_is_published() {
    let world = World::new().await;
    let body: crate::world::Body = |_, context| {
        Box::pin(async move {
            for n in 0..4 {
                context.pause(Duration::from_millis(300)).await?;
                context.progress(format!("message {n}")).await;
            }
            context.pause(Duration::from_millis(300)).await?;
            done()
        })
    };
    let policy = ToolPolicy::default();
    let _worker = world.worker_with(policy.clone(), body, |settings| {
        settings.publish_interval = Duration::from_secs(1);
    });
    let id = world.start(&policy).await;
    world.wait(id, &["completed"]).await;
    let published = harness::wait::until("the pace", Duration::from_secs(20), async || {
        let entry = world.store.tools().await.unwrap().pop()?;
        Some((entry.run?, entry.change?))
    });
    let (run, change) = published.await.unwrap();
    assert!(run >= Duration::from_millis(1500), "{run:?}");
    assert!(
        change * 4 < run * 3 && change > Duration::from_millis(100),
        "five changes in a run: {change:?} of {run:?}"
    );
}
