//! The history of attempts: each that another one followed is there, once, without content.

use std::time::Duration;

use store::{AttemptShown, Begin, Ended, Parked, ParkedFor, StepSpec, ToolPolicy, UndoSpec, Write};

use crate::support::{HOUR, NO_WORK, SECOND, World, answers, question, step, token};

async fn history(world: &World, id: protocol::TaskId) -> Vec<AttemptShown> {
    let shown = world.store.show_task(id).await.unwrap().unwrap();
    for attempt in &shown.attempts {
        assert!(
            attempt.claimed_at.unwrap() <= attempt.ended_at,
            "{attempt:?}"
        );
        assert_eq!(attempt.worker.as_deref(), Some("worker-1"));
    }
    shown.attempts
}

fn short(history: &[AttemptShown]) -> Vec<(i32, &str, bool, Option<&str>)> {
    history
        .iter()
        .map(|a| (a.attempt, a.how.as_str(), a.undoing, a.reason.as_deref()))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_attempt_that_another_one_followed_is_told_of() {
    let world = World::new().await;
    let store = &world.store;
    let policy = ToolPolicy {
        tries_max: 9,
        ..ToolPolicy::default()
    };
    let first = world.running_with(&policy).await;
    let id = first.id();
    world
        .set(id, "claimed_at = now() - interval '1 minute'")
        .await;
    let second = world.steal(id).await;
    // A repeat whose first reply was lost is not told of twice.
    for _ in 0..2 {
        let retried = store.retry(&second, "no luck", NO_WORK, NO_WORK).await;
        assert_eq!(retried.unwrap(), Write::Done);
    }
    let third = world.claim(id).await.unwrap();
    for _ in 0..2 {
        let released = store.release(&third, None, NO_WORK).await.unwrap();
        assert_eq!(released, Write::Done);
    }
    let fourth = world.claim(id).await.unwrap();
    for _ in 0..2 {
        let asked = [question("q")];
        let parked = store.park(&fourth, ParkedFor::Task, &asked, NO_WORK).await;
        assert_eq!(parked.unwrap(), Parked::Parked);
    }
    let given = answers(&[("q", crate::support::YES)]);
    let _ = store.answer(&world.alice, id, &given, None).await.unwrap();
    let fifth = world.claim(id).await.unwrap();
    // Writes of those before change nothing in the history.
    for lost in [&first, &second, &third, &fourth] {
        let again = store.retry(lost, "late", NO_WORK, NO_WORK).await.unwrap();
        assert_eq!(again, Write::Lost);
    }
    let done = store.complete(&fifth, b"{}", NO_WORK).await.unwrap();
    assert_eq!(done, Write::Done);
    let history = history(&world, id).await;
    assert_eq!(
        short(&history),
        [
            (1, "lost", false, None),
            (2, "retried", false, Some("no luck")),
            (3, "released", false, None),
            (4, "parked", false, None),
        ]
    );
    // With its task it goes.
    world.set(id, "expires_at = now()").await;
    assert_eq!(store.purge(10, HOUR).await.unwrap(), 1);
    let left = world.value("SELECT count(*) FROM attempts").await;
    assert_eq!(left.as_deref(), Some("0"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_attempt_before_undoing_is_told_of() {
    let world = World::new().await;
    let store = &world.store;
    let undoable = StepSpec {
        undo: Some(UndoSpec {
            how: b"{}",
            idempotent: true,
        }),
        ..step("a")
    };
    for how in ["failed", "stopped", "lost"] {
        let claim = world.running().await;
        let id = claim.id();
        world
            .set(id, "claimed_at = now() - interval '1 minute'")
            .await;
        let Begin::Act(permit) = store.begin_step(&claim, undoable).await.unwrap() else {
            panic!()
        };
        let finished = store.finish_step(&claim, permit, b"1").await.unwrap();
        assert_eq!(finished, Write::Done);
        let reason = match how {
            "failed" => {
                let failed = store.fail(&claim, b"{\"code\":1}", "m", NO_WORK).await;
                assert_eq!(failed.unwrap(), Ended::Undoing);
                None
            }
            "stopped" => {
                let _ = store.cancel(&world.alice, id).await.unwrap();
                let stopped = store.confirm_stopped(&claim).await.unwrap();
                assert_eq!(stopped, Ended::Undoing);
                Some("cancelled")
            }
            _ => {
                let _ = store.cancel(&world.alice, id).await.unwrap();
                world.lose_lease(id).await;
                let settled = harness::wait::until("settled", SECOND * 10, async || {
                    store.settle_stopped(&[id]).await.unwrap().pop()
                });
                assert!(settled.await.unwrap().undoing);
                Some("cancelled")
            }
        };
        let undoing = world.claim(id).await.unwrap();
        let next = store.next_undo(&undoing).await.unwrap().unwrap();
        let begun = store.begin_undo(&undoing, &next).await.unwrap();
        assert_eq!(begun, Write::Done);
        let again = store
            .retry_undo(&undoing, "a", "not now", Duration::ZERO)
            .await;
        assert_eq!(again.unwrap(), Write::Done);
        let undoing = world.claim(id).await.unwrap();
        let released = store.release(&undoing, None, NO_WORK).await.unwrap();
        assert_eq!(released, Write::Done);
        assert_eq!(
            short(&history(&world, id).await),
            [
                (1, how, false, reason),
                (2, "retried", true, Some("not now")),
                (3, "released", true, None),
            ]
        );
    }
}

/// A task that is handed back at every deploy, or asks every minute, does not grow without end.
#[tokio::test(flavor = "multi_thread")]
async fn the_history_is_bounded() {
    let world = World::new().await;
    let id = world.queued().await;
    world.set(id, "attempt = 1000").await;
    world
        .run(&format!(
            "INSERT INTO attempts SELECT '{id}', n, 'worker-1', false, now(), now(), 'released' \
             FROM generate_series(1, 1000) n"
        ))
        .await;
    let claim = crate::support::claim_as(&world.store, id, token()).await;
    assert_eq!(claim.unwrap().attempt(), 1001);
    let history = history(&world, id).await;
    assert_eq!(history.len(), 200);
    assert_eq!(history.last().unwrap().attempt, 1000);
}

/// A task that completes at its first try writes nothing here.
#[tokio::test(flavor = "multi_thread")]
async fn the_usual_task_has_no_history() {
    let world = World::new().await;
    let claim = world.running().await;
    let done = world.store.complete(&claim, b"{}", NO_WORK).await.unwrap();
    assert_eq!(done, Write::Done);
    assert!(history(&world, claim.id()).await.is_empty());
}
