//! I6: terminal is final, under every function there is.

use store::{Begin, Cancel, Claim, Ended, Parked, ParkedFor, Permit, StepSpec, StopReason, Write};

use crate::support::{HOUR, NO_WORK, SECOND, World, YES, answers, question, step};

async fn attack(world: &World, claim: &Claim, permits: [Permit; 2]) {
    let (store, id) = (&world.store, claim.id());
    let [finish, abandon] = permits;
    assert!(matches!(
        store.begin_step(claim, step("s")).await.unwrap(),
        Begin::Stop
    ));
    assert_eq!(
        store.finish_step(claim, finish, b"2").await.unwrap(),
        Write::Lost
    );
    assert_eq!(
        store.abandon_step(claim, abandon).await.unwrap(),
        Write::Lost
    );
    assert_eq!(store.progress(claim, "late").await.unwrap(), Write::Lost);
    let parked = store
        .park(claim, ParkedFor::Task, &[question("q")], NO_WORK)
        .await;
    assert_eq!(parked.unwrap(), Parked::Stop);
    let recorded = store
        .record_answer(claim, &question("q"), b"{}", "offered")
        .await;
    assert_eq!(recorded.unwrap(), Write::Lost);
    // A repeat may be told that it is done; nothing is written.
    let _ = store
        .complete(claim, b"{\"late\":1}", SECOND)
        .await
        .unwrap();
    let _ = store
        .fail(claim, b"{\"late\":1}", "late", SECOND)
        .await
        .unwrap();
    assert_eq!(
        store.retry(claim, "late", NO_WORK, SECOND).await.unwrap(),
        Write::Lost
    );
    assert_eq!(
        store.release(claim, Some("e"), SECOND).await.unwrap(),
        Write::Lost
    );
    let own = store.stop_own(claim, StopReason::WorkLimit, None).await;
    assert_eq!(own.unwrap(), Write::Lost);
    let _ = store.confirm_stopped(claim).await.unwrap();
    assert_eq!(store.heartbeat([claim]).await.unwrap(), []);
    assert!(world.claim(id).await.is_none());
    assert_eq!(
        store.cancel(&world.alice, id).await.unwrap(),
        Cancel::AlreadyTerminal
    );
    let answered = store
        .answer(&world.alice, id, &answers(&[("q", YES)]), None)
        .await;
    assert_eq!(answered.unwrap(), store::Answer::Ignored);
    assert!(store.hand_out(id).await.unwrap().is_none());
    store.hold(&[id], 24 * HOUR).await.unwrap();
    assert_eq!(store.abandon(&[id], HOUR).await.unwrap(), []);
    assert_eq!(store.end_holds(10).await.unwrap(), []);
    assert_eq!(store.expire(10).await.unwrap(), []);
    assert_eq!(store.fail_unanswered(None).await.unwrap(), None);
    assert_eq!(store.stoppable(10).await.unwrap(), []);
    assert_eq!(store.settle_stopped(&[id]).await.unwrap(), []);
    store
        .mark_hinted(&[(id, Some("e".to_owned()))])
        .await
        .unwrap();
    store.mark_fetched(&[id]).await.unwrap();
}

/// Each time another act of the same step, which may be repeated.
async fn begin(world: &World, claim: &Claim) -> Permit {
    let spec = StepSpec {
        idempotent: true,
        ..step("s")
    };
    match world.store.begin_step(claim, spec).await.unwrap() {
        Begin::Act(permit) => permit,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_function_changes_a_terminal_row() {
    let world = World::new().await;
    for end in ["completed", "failed", "cancelled", "in doubt"] {
        let claim = world.running().await;
        let permits = [begin(&world, &claim).await, begin(&world, &claim).await];
        if end != "in doubt" {
            let permit = begin(&world, &claim).await;
            let _ = world.store.finish_step(&claim, permit, b"1").await.unwrap();
        }
        let done = match end {
            "completed" => {
                let result = b"{\"n\":  1}";
                let write = world.store.complete(&claim, result, NO_WORK).await.unwrap();
                write == Write::Done
            }
            "failed" => {
                let error = b"{\"code\": 1}";
                let failed = world.store.fail(&claim, error, "nul \0 byte", NO_WORK);
                failed.await.unwrap() == Ended::Done
            }
            _ => {
                let _ = world.store.cancel(&world.alice, claim.id()).await.unwrap();
                world.store.confirm_stopped(&claim).await.unwrap() == Ended::Done
            }
        };
        assert!(done, "{end}");
        world.store.mark_fetched(&[claim.id()]).await.unwrap();
        let row = format!("SELECT t::text FROM tasks t WHERE id = '{}'", claim.id());
        let steps = format!(
            "SELECT s::text FROM steps s WHERE task_id = '{}'",
            claim.id()
        );
        let before = (world.value(&row).await, world.value(&steps).await);
        assert!(before.0.is_some());
        attack(&world, &claim, permits).await;
        assert_eq!(
            (world.value(&row).await, world.value(&steps).await),
            before,
            "{end}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeat_of_the_end_is_done_and_any_other_end_is_lost() {
    let world = World::new().await;
    let store = &world.store;
    let claim = world.running().await;
    for _ in 0..2 {
        assert_eq!(
            store
                .complete(&claim, b"{\"n\":  1}", NO_WORK)
                .await
                .unwrap(),
            Write::Done
        );
    }
    assert_eq!(
        store.fail(&claim, b"{}", "late", NO_WORK).await.unwrap(),
        Ended::Lost
    );
    assert_eq!(
        world.get(claim.id()).await.result.as_deref(),
        Some(&b"{\"n\":  1}"[..])
    );
    let claim = world.running().await;
    for _ in 0..2 {
        assert_eq!(
            store
                .fail(&claim, b"{\"code\": 1}", "m", NO_WORK)
                .await
                .unwrap(),
            Ended::Done
        );
    }
    assert_eq!(
        store.complete(&claim, b"{}", NO_WORK).await.unwrap(),
        Write::Lost
    );
    assert_eq!(
        world.get(claim.id()).await.error.as_deref(),
        Some(&b"{\"code\": 1}"[..])
    );
}
