//! I5: nothing acts after a cancel was acknowledged, and `cancelled` is said only when that is so.

use protocol::TaskStatus;
use store::{Begin, Cancel, Ended, Parked, ParkedFor, StopReason, Write};

use crate::support::{NO_WORK, SECOND, World, question, step, task_id};

#[tokio::test(flavor = "multi_thread")]
async fn a_queued_task_is_over_at_once() {
    let world = World::new().await;
    let id = world.queued().await;
    assert_eq!(
        world.store.cancel(&world.alice, id).await.unwrap(),
        Cancel::Cancelled
    );
    let task = world.get(id).await;
    assert_eq!(
        (task.status, task.stop),
        (TaskStatus::Cancelled, Some(StopReason::Cancelled))
    );
    assert_eq!(
        world.store.cancel(&world.alice, id).await.unwrap(),
        Cancel::AlreadyTerminal
    );
    assert!(world.claim(id).await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_task_is_cancelled_when_its_work_has_stopped() {
    let world = World::new().await;
    let claim = world.running().await;
    let id = claim.id();
    for _ in 0..2 {
        assert_eq!(
            world.store.cancel(&world.alice, id).await.unwrap(),
            Cancel::Requested
        );
        assert_eq!(world.get(id).await.status, TaskStatus::Working);
    }
    assert!(matches!(
        world.store.begin_step(&claim, step("s")).await.unwrap(),
        Begin::Stop
    ));
    let parked = world
        .store
        .park(&claim, ParkedFor::Task, &[question("q")], NO_WORK)
        .await;
    assert_eq!(parked.unwrap(), Parked::Stop);
    assert_eq!(
        world
            .store
            .retry(&claim, "e", NO_WORK, NO_WORK)
            .await
            .unwrap(),
        Write::Lost
    );
    assert_eq!(
        world.store.confirm_stopped(&claim).await.unwrap(),
        Ended::Done
    );
    assert_eq!(
        world.store.confirm_stopped(&claim).await.unwrap(),
        Ended::Done,
        "a lost reply"
    );
    let task = world.get(id).await;
    assert_eq!((task.status, task.error), (TaskStatus::Cancelled, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_stopped_job_can_be_confirmed() {
    let world = World::new().await;
    let claim = world.running().await;
    assert_eq!(
        world.store.confirm_stopped(&claim).await.unwrap(),
        Ended::Lost
    );
    assert_eq!(world.get(claim.id()).await.status, TaskStatus::Working);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_whose_end_is_unknown_is_never_called_cancelled() {
    let world = World::new().await;
    // Confirmed by its worker while the step is open.
    let claim = world.running().await;
    let _open = world.begin(&claim, "deploy").await;
    assert_eq!(
        world.store.cancel(&world.alice, claim.id()).await.unwrap(),
        Cancel::Requested
    );
    assert_eq!(
        world.store.confirm_stopped(&claim).await.unwrap(),
        Ended::Done
    );
    assert_eq!(world.error_reason(claim.id()).await, "step_in_doubt");
    let task = world.get(claim.id()).await;
    assert!(task.status_message.unwrap().contains("\"deploy\""));
    let error: serde_json::Value = serde_json::from_slice(&task.error.unwrap()).unwrap();
    assert_eq!(error["data"]["step"], "deploy");
    // Back in the queue with the step open, then cancelled: it can still not be known.
    let claim = world.running().await;
    let _open = world.begin(&claim, "deploy").await;
    assert_eq!(
        world.store.release(&claim, None, NO_WORK).await.unwrap(),
        Write::Done
    );
    assert_eq!(
        world.store.cancel(&world.alice, claim.id()).await.unwrap(),
        Cancel::Cancelled
    );
    assert_eq!(world.error_reason(claim.id()).await, "step_in_doubt");
    // Finished after the cancel: it did happen, and is over.
    let claim = world.running().await;
    let permit = world.begin(&claim, "deploy").await;
    assert_eq!(
        world.store.cancel(&world.alice, claim.id()).await.unwrap(),
        Cancel::Requested
    );
    assert_eq!(
        world.store.finish_step(&claim, permit, b"1").await.unwrap(),
        Write::Done
    );
    assert_eq!(
        world.store.confirm_stopped(&claim).await.unwrap(),
        Ended::Done
    );
    assert_eq!(world.get(claim.id()).await.status, TaskStatus::Cancelled);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_task_without_a_live_lease_is_settled_by_the_next_sweep() {
    let world = World::new().await;
    let claim = world.running().await;
    let id = claim.id();
    let _ = world.store.cancel(&world.alice, id).await.unwrap();
    assert_eq!(
        world.store.settle_stopped(&[id]).await.unwrap(),
        [],
        "its owner lives"
    );
    world.lose_lease(id).await;
    assert!(
        world.claim(id).await.is_none(),
        "stopped work is not taken over"
    );
    let settled = harness::wait::until("settled", 10 * SECOND, async || {
        let ids = world.store.stoppable(10).await.unwrap();
        world.store.settle_stopped(&ids).await.unwrap().pop()
    })
    .await
    .unwrap();
    assert_eq!((settled.id, settled.reason.as_str()), (id, "cancelled"));
    assert_eq!(
        world.store.complete(&claim, b"{}", NO_WORK).await.unwrap(),
        Write::Lost
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_reason_wins() {
    let world = World::new().await;
    let claim = world.running().await;
    let detail = Some("nul \0 byte");
    let own = world
        .store
        .stop_own(&claim, StopReason::WorkLimit, detail)
        .await;
    assert_eq!(own.unwrap(), Write::Done);
    assert_eq!(
        world.store.cancel(&world.alice, claim.id()).await.unwrap(),
        Cancel::Requested
    );
    assert_eq!(
        world.store.confirm_stopped(&claim).await.unwrap(),
        Ended::Done
    );
    assert_eq!(world.error_reason(claim.id()).await, "work_limit");
    let message = world.get(claim.id()).await.status_message.unwrap();
    assert_eq!(
        message,
        "the work was stopped after its limit of 3600000 ms"
    );
    // And the other way round.
    let claim = world.running().await;
    let _ = world.store.cancel(&world.alice, claim.id()).await.unwrap();
    let own = world
        .store
        .stop_own(&claim, StopReason::WorkLimit, Some("late"))
        .await;
    assert_eq!(own.unwrap(), Write::Done);
    assert_eq!(world.column(claim.id(), "stop_detail").await, None);
    assert_eq!(
        world.store.confirm_stopped(&claim).await.unwrap(),
        Ended::Done
    );
    assert_eq!(world.get(claim.id()).await.status, TaskStatus::Cancelled);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_principal_cancels_nothing() {
    let world = World::new().await;
    let id = world.queued().await;
    let foreign = world.store.cancel(&world.mallory, id).await.unwrap();
    let unknown = world.store.cancel(&world.mallory, task_id()).await.unwrap();
    assert_eq!(foreign, Cancel::Gone(None));
    assert_eq!(foreign, unknown);
    assert_eq!(world.get(id).await.stop, None);
}
