//! Leases: a worker that no longer owns a task writes nothing, and one that cannot be stopped
//! ends.

use std::time::Duration;

use store::ToolPolicy;
use worker::Step;

use crate::world::{World, done};

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
    world.database.rows(&stolen).await.unwrap();
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
