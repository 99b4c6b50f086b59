//! Two who meet at one row: whoever comes second sees what the first one did.

use protocol::{TaskId, TaskStatus};
use store::{Begin, Cancel, Claim, Ended, Parked, ParkedFor, Write};
use tokio::task::{JoinHandle, JoinSet};
use tokio_postgres::Client;

use crate::support::{NO_WORK, World, question, step};

/// Another session holds the task's row until told otherwise.
async fn hold(world: &World, id: TaskId) -> Client {
    let holder = world.raw().await;
    holder.batch_execute("BEGIN").await.unwrap();
    let lock = "SELECT FROM tasks WHERE id = $1 FOR UPDATE";
    holder.execute(lock, &[id.as_uuid()]).await.unwrap();
    holder
}

/// Runs `f` beside the test; it waits at the row that somebody holds.
#[expect(clippy::disallowed_methods, reason = "joined by the test")]
fn beside<T: Send + 'static>(f: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    tokio::spawn(f)
}

fn cancel(world: &World, id: TaskId) -> JoinHandle<Cancel> {
    let (store, alice) = (world.store.clone(), world.alice.clone());
    beside(async move { store.cancel(&alice, id).await.unwrap() })
}

/// The same claim for a second task.
async fn twin(world: &World) -> (std::sync::Arc<Claim>, TaskId) {
    let claim = std::sync::Arc::new(world.running().await);
    let id = claim.id();
    (claim, id)
}

#[tokio::test(flavor = "multi_thread")]
async fn no_step_begins_after_a_cancel_that_came_first() {
    let world = World::new().await;
    for _ in 0..5 {
        let (claim, id) = twin(&world).await;
        let holder = hold(&world, id).await;
        let cancelled = cancel(&world, id);
        world.waiting(1).await;
        let store = world.store.clone();
        let begun = beside(async move { store.begin_step(&claim, step("s")).await.unwrap() });
        world.waiting(2).await;
        holder.batch_execute("COMMIT").await.unwrap();
        assert_eq!(cancelled.await.unwrap(), Cancel::Requested);
        assert!(matches!(begun.await.unwrap(), Begin::Stop));
    }
    assert_eq!(
        world.value("SELECT count(*) FROM steps").await.as_deref(),
        Some("0")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_came_first_is_seen_by_the_cancel() {
    let world = World::new().await;
    let (claim, id) = twin(&world).await;
    let holder = hold(&world, id).await;
    let (store, owner) = (world.store.clone(), claim.clone());
    let begun = beside(async move { store.begin_step(&owner, step("deploy")).await.unwrap() });
    world.waiting(1).await;
    let cancelled = cancel(&world, id);
    world.waiting(2).await;
    holder.batch_execute("COMMIT").await.unwrap();
    assert!(matches!(begun.await.unwrap(), Begin::Act(_)));
    assert_eq!(cancelled.await.unwrap(), Cancel::Requested);
    assert_eq!(
        world.store.confirm_stopped(&claim).await.unwrap(),
        Ended::Done
    );
    assert_eq!(world.error_reason(id).await, "step_in_doubt");
}

/// Without the barrier: whatever the scheduler makes of it, an acknowledged cancel is the end.
#[tokio::test(flavor = "multi_thread")]
async fn no_step_begins_after_an_acknowledged_cancel() {
    let world = World::new().await;
    for _ in 0..20 {
        let (claim, id) = twin(&world).await;
        let (acknowledged, seen) = tokio::sync::watch::channel(false);
        let (store, alice) = (world.store.clone(), world.alice.clone());
        let canceller = beside(async move {
            store.cancel(&alice, id).await.unwrap();
            acknowledged.send(true).unwrap();
        });
        for n in 0.. {
            let too_late = *seen.borrow();
            let key = format!("s{n}");
            match world.store.begin_step(&claim, step(&key)).await.unwrap() {
                Begin::Act(permit) => {
                    assert!(
                        !too_late,
                        "step {n} began after the cancel was acknowledged"
                    );
                    let _ = world.store.finish_step(&claim, permit, b"1").await.unwrap();
                }
                Begin::Stop => break,
                Begin::InDoubt => panic!("{n}"),
            }
        }
        canceller.await.unwrap();
        assert_eq!(
            world.store.confirm_stopped(&claim).await.unwrap(),
            Ended::Done
        );
        assert_eq!(world.get(id).await.status, TaskStatus::Cancelled);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cancel_and_park_agree() {
    let world = World::new().await;
    for cancel_first in [true, false] {
        let (claim, id) = twin(&world).await;
        let holder = hold(&world, id).await;
        let (store, owner) = (world.store.clone(), claim.clone());
        let park = async move {
            store
                .park(&owner, ParkedFor::Task, &[question("q")], NO_WORK)
                .await
                .unwrap()
        };
        let (cancelled, parked) = if cancel_first {
            let cancelled = cancel(&world, id);
            world.waiting(1).await;
            (cancelled, beside(park))
        } else {
            let parked = beside(park);
            world.waiting(1).await;
            (cancel(&world, id), parked)
        };
        world.waiting(2).await;
        holder.batch_execute("COMMIT").await.unwrap();
        let outcome = (cancelled.await.unwrap(), parked.await.unwrap());
        if cancel_first {
            assert_eq!(outcome, (Cancel::Requested, Parked::Stop));
            assert_eq!(
                world.store.confirm_stopped(&claim).await.unwrap(),
                Ended::Done
            );
        } else {
            assert_eq!(outcome, (Cancel::Cancelled, Parked::Parked));
        }
        assert_eq!(world.get(id).await.status, TaskStatus::Cancelled);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cancel_and_complete_agree() {
    let world = World::new().await;
    for cancel_first in [true, false] {
        let (claim, id) = twin(&world).await;
        let holder = hold(&world, id).await;
        let store = world.store.clone();
        let complete = async move { store.complete(&claim, b"{}", NO_WORK).await.unwrap() };
        let (cancelled, completed) = if cancel_first {
            let cancelled = cancel(&world, id);
            world.waiting(1).await;
            (cancelled, beside(complete))
        } else {
            let completed = beside(complete);
            world.waiting(1).await;
            (cancel(&world, id), completed)
        };
        world.waiting(2).await;
        holder.batch_execute("COMMIT").await.unwrap();
        assert_eq!(
            completed.await.unwrap(),
            Write::Done,
            "a result may still come, as MCP allows"
        );
        let expected = if cancel_first {
            Cancel::Requested
        } else {
            Cancel::AlreadyTerminal
        };
        assert_eq!(cancelled.await.unwrap(), expected);
        assert_eq!(world.get(id).await.status, TaskStatus::Completed);
    }
}

/// The statement starts before the step is opened and ends after: it must judge, and speak, from
/// the row that it waited for.
#[tokio::test(flavor = "multi_thread")]
async fn a_settlement_names_the_step_that_it_waited_for() {
    let world = World::new().await;
    let (claim, id) = twin(&world).await;
    let _ = world.store.cancel(&world.alice, id).await.unwrap();
    let holder = hold(&world, id).await;
    let open = "UPDATE tasks SET open_step = 'deploy' WHERE id = $1";
    holder.execute(open, &[id.as_uuid()]).await.unwrap();
    let store = world.store.clone();
    let confirmed = beside(async move { store.confirm_stopped(&claim).await.unwrap() });
    world.waiting(1).await;
    holder.batch_execute("COMMIT").await.unwrap();
    assert_eq!(confirmed.await.unwrap(), Ended::Done);
    assert_eq!(world.error_reason(id).await, "step_in_doubt");
    let message = world.get(id).await.status_message.unwrap();
    assert!(message.starts_with("step \"deploy\" started"), "{message}");
}

/// A row that changed while the statement waited for it (a heartbeat, a hold) is still ours.
#[tokio::test(flavor = "multi_thread")]
async fn a_step_begins_on_the_newest_version_of_the_row() {
    let world = World::new().await;
    let (claim, id) = twin(&world).await;
    let holder = hold(&world, id).await;
    let touch = "UPDATE tasks SET lease_until = now() + interval '1 hour' WHERE id = $1";
    holder.execute(touch, &[id.as_uuid()]).await.unwrap();
    let store = world.store.clone();
    let begun = beside(async move { store.begin_step(&claim, step("s")).await.unwrap() });
    world.waiting(1).await;
    holder.batch_execute("COMMIT").await.unwrap();
    assert!(matches!(begun.await.unwrap(), Begin::Act(_)));
    assert_eq!(world.column(id, "open_step").await.as_deref(), Some("s"));
    assert_eq!(
        world
            .column(id, "lease_until > now() + interval '50 minutes'")
            .await
            .as_deref(),
        Some("t"),
        "and nothing of the other's is undone"
    );
}

/// The same write twice at once (its first connection was cut while it waited): both are told
/// that it is done.
#[tokio::test(flavor = "multi_thread")]
async fn a_repeat_that_overtakes_its_original_is_no_loss() {
    let world = World::new().await;
    let (claim, id) = twin(&world).await;
    let holder = hold(&world, id).await;
    let mut both = JoinSet::new();
    for _ in 0..2 {
        let (store, claim) = (world.store.clone(), claim.clone());
        both.spawn(async move { store.complete(&claim, b"{}", NO_WORK).await.unwrap() });
    }
    world.waiting(2).await;
    holder.batch_execute("COMMIT").await.unwrap();
    assert_eq!(both.join_all().await, [Write::Done, Write::Done]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hand_out_and_the_end_of_a_hold_agree() {
    let world = World::new().await;
    for hand_out_first in [true, false] {
        let created = world
            .create(&store::ToolPolicy::default(), |new| {
                new.handed_out = false;
                new.hold = std::time::Duration::ZERO;
            })
            .await;
        let store::Created::New(task) = created else {
            panic!()
        };
        let holder = hold(&world, task.id).await;
        let store = world.store.clone();
        if hand_out_first {
            let handed = beside(async move { store.hand_out(task.id).await.unwrap() });
            world.waiting(1).await;
            // The sweep never waits for a row that somebody works on.
            assert_eq!(world.store.end_holds(10).await.unwrap(), []);
            holder.batch_execute("COMMIT").await.unwrap();
            assert!(handed.await.unwrap().is_some());
            assert_eq!(world.store.end_holds(10).await.unwrap(), []);
        } else {
            holder.batch_execute("COMMIT").await.unwrap();
            assert_eq!(world.store.end_holds(10).await.unwrap(), [task.id]);
            assert!(world.store.hand_out(task.id).await.unwrap().is_none());
        }
    }
}
