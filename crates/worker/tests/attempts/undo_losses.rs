//! Undoing outlives its workers, and belongs to one of them.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use store::Task;
use worker::{Step, ToolError, Undo};

use crate::undo::{build, script, take_back};
use crate::world::{Body, Script, UndoBody, World, error};

const IDEMPOTENT: Body = |_, context| {
    Box::pin(async move {
        let step = Step::new("rent").undo(Undo::new(Value::Null).idempotent());
        context.step(step, |_| async { Ok(()) }).await?;
        Err(ToolError::failed(7, "no room"))
    })
};
const ONCE: Body = |_, context| {
    Box::pin(async move {
        let step = Step::new("rent").undo(Undo::new(Value::Null));
        context.step(step, |_| async { Ok(()) }).await?;
        Err(ToolError::failed(7, "no room"))
    })
};
/// The first try never ends.
const HANGS_FIRST: UndoBody = |world, undoing| {
    Box::pin(async move {
        let nth = world.acts().len();
        world.act(&undoing.idempotency_key());
        if nth == 0 {
            world.go.cancelled().await;
        }
        Ok(())
    })
};

/// Loses the worker in the middle of its first undo.
async fn lost_in_an_undo(script: &Script) -> (Arc<World>, Task) {
    let world = World::new().await;
    let first = world.serve(script, |_| {});
    let id = world.start(&script.policy).await;
    world.wait_act(&format!("{id}:rent:undo")).await;
    drop(first);
    let _second = world.serve(script, |_| {});
    let task = world.wait_over(id).await;
    (world, task)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_undo_whose_worker_is_lost_is_repeated_with_the_same_key() {
    let (world, task) = lost_in_an_undo(&script(IDEMPOTENT, HANGS_FIRST)).await;
    let key = format!("{}:rent:undo", task.id);
    assert_eq!(world.acts(), [key.clone(), key]);
    assert!(error(&task)["data"].is_null(), "{}", error(&task));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_undo_whose_worker_is_lost_is_not_repeated_blindly() {
    let (world, task) = lost_in_an_undo(&script(ONCE, HANGS_FIRST)).await;
    assert_eq!(world.acts().len(), 1);
    let failed = error(&task)["data"]["undoFailed"].to_string();
    assert!(failed.contains("may have been undone"), "{failed}");
}

/// One that kills every worker does not do so for ever.
#[tokio::test(flavor = "multi_thread")]
async fn an_undo_that_loses_all_its_workers_is_given_up() {
    let world = World::new().await;
    let mut script = script(IDEMPOTENT, |world, undoing| {
        Box::pin(async move {
            world.act(&format!("try {}", undoing.tries()));
            std::future::pending().await
        })
    });
    script.policy.undo_tries_max = 2;
    let mut worker = world.serve(&script, |_| {});
    let id = world.start(&script.policy).await;
    for tries in 1..=2 {
        harness::wait::until("the try", crate::world::SOON, async || {
            world.hint(id).await;
            let seen = world.acts().contains(&format!("try {tries}"));
            seen.then_some(())
        })
        .await
        .unwrap();
        drop(worker);
        worker = world.serve(&script, |_| {});
    }
    let task = world.wait_over(id).await;
    assert_eq!(world.acts(), ["try 1", "try 2"]);
    let failed = error(&task)["data"]["undoFailed"].to_string();
    assert!(failed.contains("gave up after 2 tries"), "{failed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_hands_undoing_back() {
    let world = World::new().await;
    let body: Body = |world, context| {
        Box::pin(async move {
            build(world, context).await?;
            Err(ToolError::failed(7, "no room"))
        })
    };
    let script = script(body, |world, undoing| {
        Box::pin(async move {
            if !world.go.is_cancelled() {
                world.act("interrupted");
                undoing.pause(Duration::from_secs(60)).await?;
            }
            take_back(world, undoing)
        })
    });
    let first = world.serve(&script, |_| {});
    let id = world.start(&script.policy).await;
    world.wait_act("interrupted").await;
    first.drain().await.unwrap();
    assert_eq!(world.column(id, "phase").await, "undoing");
    assert_eq!(world.column(id, "lease_until").await, "", "nobody owns it");
    let tries = format!("SELECT undo_tries FROM steps WHERE task_id = '{id}' AND key = 'c'");
    let tries = world.rows(&tries).await;
    assert_eq!(tries[0][0].as_deref(), Some("0"), "a drain costs no try");
    world.go.cancel();
    // The drained worker hinted it.
    let _second = world.serve(&script, |_| {});
    let task = world.wait(id, &["failed"]).await;
    assert!(error(&task)["data"].is_null(), "{}", error(&task));
    let acts = world.acts().split_off(3);
    assert_eq!(acts, ["interrupted", "undo c", "undo a"]);
}

/// Whoever no longer owns the task takes nothing back.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_lease_ends_undoing() {
    let world = World::new().await;
    let script = script(ONCE, |world, _| {
        Box::pin(async move {
            world.act("begun");
            world.go.cancelled().await;
            world.act("late");
            Ok(())
        })
    });
    let _worker = world.serve(&script, |_| {});
    let id = world.start(&script.policy).await;
    world.wait_act("begun").await;
    let stolen = format!(
        "UPDATE tasks SET attempt = attempt + 1, claim_token = gen_random_uuid(), \
         lease_until = now() + interval '1 hour' WHERE id = '{id}' RETURNING 1"
    );
    world.rows(&stolen).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.go.cancel();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(world.acts(), ["begun"]);
    assert_eq!(world.column(id, "phase").await, "undoing");
}
