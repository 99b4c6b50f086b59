//! What is tried again, how often, and what never is.

use std::time::Duration;

use serde_json::json;
use store::{Backoff, OnPanic, ToolPolicy};
use worker::{Step, ToolError};

use crate::world::{World, done, error, reason};

/// So many tries, one soon after the other.
pub fn soon(tries_max: u16) -> ToolPolicy {
    ToolPolicy {
        tries_max,
        backoff: Backoff {
            first: Duration::from_millis(50),
            max: Duration::from_millis(200),
        },
        ..ToolPolicy::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn codes_of_the_policy_are_tried_again() {
    let world = World::new().await;
    let policy = ToolPolicy {
        retry_codes: vec![503, 504],
        ..soon(5)
    };
    let _worker = world.worker(policy.clone(), |world, _| {
        Box::pin(async move {
            match world.run() {
                1 => Err(ToolError::failed(503, "upstream is busy")),
                2 => Err(ToolError::failed(504, "upstream is slow")),
                3 => Err(ToolError::failed(404, "no such thing")),
                _ => done(),
            }
        })
    });
    let id = world.start(&policy).await;
    let task = world.wait_over(id).await;
    assert_eq!(
        error(&task),
        json!({ "code": 404, "message": "no such thing" })
    );
    assert_eq!(world.run(), 3);
    assert_eq!(world.column(id, "tries").await, "2");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_error_stays_readable_when_tries_run_out() {
    let world = World::new().await;
    let policy = ToolPolicy {
        retry_codes: vec![503],
        ..soon(2)
    };
    let _worker = world.worker(policy.clone(), |world, _| {
        Box::pin(async move {
            let data = json!({ "run": world.run() });
            Err(ToolError::failed_with(503, "upstream is busy", data))
        })
    });
    let id = world.start(&policy).await;
    let task = world.wait_over(id).await;
    let last = json!({ "code": 503, "message": "upstream is busy", "data": { "run": 2 } });
    assert_eq!(
        error(&task)["data"],
        json!({ "reason": "attempts_exhausted", "tries": 2, "lastError": last })
    );
    let message = task.status_message.unwrap();
    assert_eq!(message, "gave up after 2 tries: upstream is busy");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_may_be_the_end() {
    let world = World::new().await;
    let policy = ToolPolicy {
        on_panic: OnPanic::Fail,
        ..soon(5)
    };
    let _worker = world.worker(policy.clone(), |_, _| {
        Box::pin(async move { panic!("the table is gone") })
    });
    let id = world.start(&policy).await;
    let task = world.wait_over(id).await;
    assert_eq!(reason(&task), "tool_panicked");
    assert!(task.status_message.unwrap().contains("the table is gone"));
    assert_eq!(world.run(), 1);
}

/// What the worker itself refuses would be refused again, and a doubt is no reason to act again.
#[tokio::test(flavor = "multi_thread")]
async fn a_doubt_is_never_tried_again() {
    let world = World::new().await;
    let policy = ToolPolicy {
        retry_codes: vec![-32603],
        ..soon(5)
    };
    let worker = world.worker(policy.clone(), |world, context| {
        Box::pin(async move {
            context
                .step(Step::new("charge"), |_| async {
                    world.act("charge");
                    Err::<(), _>(ToolError::outcome_unknown("no answer"))
                })
                .await?;
            done()
        })
    });
    let id = world.start(&policy).await;
    let task = world.wait_over(id).await;
    assert_eq!(reason(&task), "step_in_doubt");
    assert_eq!(world.acts(), ["charge"]);
    let doubts = || worker.counter("mcp_tasks_steps_in_doubt_total", "tool=\"scripted\"");
    crate::retries::counted(doubts, 1).await;
}

/// On the very last try, too, the doubt is what the task says.
#[tokio::test(flavor = "multi_thread")]
async fn a_panic_in_the_middle_of_an_act_leaves_it_in_doubt() {
    let world = World::new().await;
    let policy = soon(1);
    let worker = world.worker(policy.clone(), |world, context| {
        Box::pin(async move {
            context
                .step(Step::new("charge"), |_| async {
                    world.act("charge");
                    assert!(world.run() > 1, "the card reader is on fire");
                    Ok(())
                })
                .await?;
            done()
        })
    });
    let id = world.start(&policy).await;
    let task = world.wait_over(id).await;
    assert_eq!(reason(&task), "step_in_doubt");
    assert_eq!(error(&task)["data"]["step"], "charge");
    let doubts = || worker.counter("mcp_tasks_steps_in_doubt_total", "tool=\"scripted\"");
    counted(doubts, 1).await;
}

/// A tool that gives up waiting for its own act cannot have a result: nobody knows what the act
/// did. The lease need not run out for that.
#[tokio::test(flavor = "multi_thread")]
async fn an_act_that_its_tool_dropped_is_in_doubt_at_once() {
    let world = World::new().await;
    let policy = soon(5);
    let _worker = world.worker(policy.clone(), |world, context| {
        Box::pin(async move {
            let charged = context.step(Step::new("charge").idempotent(), |_| async {
                world.act("charge");
                std::future::pending::<()>().await;
                Ok(())
            });
            let impatient = tokio::time::timeout(Duration::from_millis(100), charged);
            drop(impatient.await);
            done()
        })
    });
    let id = world.start(&policy).await;
    let task = world.wait(id, &["completed", "failed"]).await;
    assert_eq!(reason(&task), "step_in_doubt");
    assert_eq!(world.run(), 1);
    assert_eq!(world.column(id, "attempt").await, "1");
}

/// Counters are raised after the row was written.
pub async fn counted(look: impl Fn() -> u64, wanted: u64) {
    let look = async || look();
    harness::wait::for_state("the count", crate::world::SOON, look, |n| *n == wanted)
        .await
        .unwrap();
}
