//! What finished steps did is undone before a task ends other than completed.

use protocol::tools::Tool;
use store::{
    Begin, Cancel, Claim, Ended, Forsaken, OnLost, ParkedFor, StepSpec, Store, ToolPolicy,
    ToolSpec, UndoSpec, Write,
};

use crate::support::{HOUR, NO_WORK, SECOND, World, question, step};

fn undoable(key: &str, seq: i32) -> StepSpec<'_> {
    StepSpec {
        seq,
        undo: Some(UndoSpec {
            how: b"{\"how\":  1}",
            idempotent: key.starts_with("again"),
        }),
        ..step(key)
    }
}

/// A running task with these finished steps, each with an undo.
async fn done(world: &World, keys: &[&str]) -> Claim {
    let claim = world.running().await;
    do_steps(&world.store, &claim, keys).await;
    claim
}

async fn do_steps(store: &Store, claim: &Claim, keys: &[&str]) {
    for (seq, key) in (0..).zip(keys) {
        let begun = store.begin_step(claim, undoable(key, seq)).await.unwrap();
        let Begin::Act(permit) = begun else {
            panic!("{begun:?}")
        };
        let finished = store.finish_step(claim, permit, b"\"out\"").await.unwrap();
        assert_eq!(finished, Write::Done);
    }
}

/// Undoes everything that is left, in the order in which the store says it.
async fn undo_all(store: &Store, claim: &Claim) -> Vec<String> {
    let mut undone = Vec::new();
    while let Some(next) = store.next_undo(claim).await.unwrap() {
        assert_eq!(&next.how[..], b"{\"how\":  1}");
        assert_eq!(&next.output[..], b"\"out\"");
        assert_eq!(store.undone(claim).await.unwrap(), Write::Lost, "{next:?}");
        assert_eq!(store.begin_undo(claim, &next).await.unwrap(), Write::Done);
        let finished = store.finish_undo(claim, &next.key).await.unwrap();
        assert_eq!(finished, Write::Done);
        undone.push(next.key);
    }
    undone
}

const ERROR: &[u8] = b"{\"code\": 7,  \"message\":\"no \\u0000\"}";

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_task_is_undone_in_reverse_before_it_shows() {
    let world = World::new().await;
    let store = &world.store;
    let claim = done(&world, &["a", "b", "c"]).await;
    let id = claim.id();
    for _ in 0..2 {
        let failed = store.fail(&claim, ERROR, "no", NO_WORK).await.unwrap();
        assert_eq!(failed, Ended::Undoing, "a repeat as well");
    }
    let seen = world.get(id).await;
    assert_eq!(seen.status.as_str(), "working");
    assert!(seen.error.is_none(), "the error waits");
    let undoing = world.claim(id).await.unwrap();
    assert!(undoing.undoing);
    assert_eq!(undoing.attempt(), claim.attempt() + 1);
    assert_eq!(undo_all(store, &undoing).await, ["c", "b", "a"]);
    for _ in 0..2 {
        assert_eq!(store.undone(&undoing).await.unwrap(), Write::Done);
    }
    let seen = world.get(id).await;
    assert_eq!(seen.status.as_str(), "failed");
    assert_eq!(seen.error.unwrap(), ERROR, "byte for byte");
    assert_eq!(seen.status_message.unwrap(), "no \u{fffd}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parked_task_that_is_cancelled_is_undone_first() {
    let world = World::new().await;
    let store = &world.store;
    let claim = done(&world, &["a"]).await;
    let id = claim.id();
    let mut asked = question("q");
    asked.seq = 1;
    let _ = store
        .park(&claim, ParkedFor::Task, &[asked], NO_WORK)
        .await
        .unwrap();
    let cancelled = store.cancel(&world.alice, id).await.unwrap();
    assert!(matches!(cancelled, Cancel::Undoing { .. }), "{cancelled:?}");
    let again = store.cancel(&world.alice, id).await.unwrap();
    assert_eq!(again, Cancel::Requested);
    let seen = world.get(id).await;
    assert_eq!(seen.status.as_str(), "working");
    assert!(seen.input_requests.is_none());
    world.set(id, "expires_at = now()").await;
    assert_eq!(
        store.expire(10).await.unwrap(),
        [],
        "undoing is not cut short"
    );
    let undoing = world.claim(id).await.expect("claimed beyond its TTL");
    assert_eq!(undo_all(store, &undoing).await, ["a"]);
    assert_eq!(store.undone(&undoing).await.unwrap(), Write::Done);
    let seen = world.get(id).await;
    assert_eq!(seen.status.as_str(), "cancelled");
    assert_eq!(store.purge(10, HOUR).await.unwrap(), 0, "shown for a grace");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_completed_task_is_not_undone() {
    let world = World::new().await;
    let claim = done(&world, &["a"]).await;
    let completed = world.store.complete(&claim, b"{}", NO_WORK).await.unwrap();
    assert_eq!(completed, Write::Done);
    assert_eq!(world.get(claim.id()).await.status.as_str(), "completed");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_undone_is_said() {
    let world = World::new().await;
    let store = &world.store;
    for cancel in [true, false] {
        let claim = done(&world, &["a", "b"]).await;
        let id = claim.id();
        if cancel {
            let _ = store.cancel(&world.alice, id).await.unwrap();
            let ended = store.confirm_stopped(&claim).await.unwrap();
            assert_eq!(ended, Ended::Undoing);
        } else {
            let error = b"{\"code\":7,\"message\":\"broke\",\"data\":[1]}";
            let _ = store.fail(&claim, error, "broke", NO_WORK).await.unwrap();
        }
        let undoing = world.claim(id).await.unwrap();
        let next = store.next_undo(&undoing).await.unwrap().unwrap();
        let _ = store.begin_undo(&undoing, &next).await.unwrap();
        let failed = store.fail_undo(&undoing, "b", "it is gone \0").await;
        assert_eq!(failed.unwrap(), Write::Done);
        assert_eq!(undo_all(store, &undoing).await, ["a"]);
        assert_eq!(store.undone(&undoing).await.unwrap(), Write::Done);
        let seen = world.get(id).await;
        assert_eq!(seen.status.as_str(), "failed");
        let error: serde_json::Value = serde_json::from_slice(&seen.error.unwrap()).unwrap();
        let listed = serde_json::json!([{"step": "b", "error": "it is gone \u{fffd}"}]);
        assert_eq!(error["data"]["undoFailed"], listed);
        if cancel {
            assert_eq!(error["data"]["reason"], "undo_failed");
        } else {
            assert_eq!(error["data"]["data"], serde_json::json!([1]));
            assert_eq!(error["code"], 7);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_lost_while_undoing_writes_nothing_more() {
    let world = World::new().await;
    let store = &world.store;
    let claim = done(&world, &["again"]).await;
    let id = claim.id();
    let _ = store.fail(&claim, ERROR, "no", NO_WORK).await.unwrap();
    let first = world.claim(id).await.unwrap();
    let step = store.next_undo(&first).await.unwrap().unwrap();
    assert!(!step.started && step.idempotent);
    for _ in 0..2 {
        assert_eq!(store.begin_undo(&first, &step).await.unwrap(), Write::Done);
    }
    assert!(world.claim(id).await.is_none(), "it has an owner");
    let second = world.steal(id).await;
    let step = store.next_undo(&second).await.unwrap().unwrap();
    assert_eq!(
        (step.started, step.tries),
        (true, 1),
        "a repeat counts once"
    );
    for late in [
        store.finish_undo(&first, "again").await,
        store.fail_undo(&first, "again", "late").await,
        store.retry_undo(&first, "again", "late", NO_WORK).await,
        store.undone(&first).await,
        store.release(&first, None, NO_WORK).await,
    ] {
        assert_eq!(late.unwrap(), Write::Lost);
    }
    for _ in 0..2 {
        let retried = store.retry_undo(&second, "again", "not now", HOUR).await;
        assert_eq!(retried.unwrap(), Write::Done);
    }
    assert!(world.claim(id).await.is_none(), "not before the backoff");
    world.set(id, "run_at = now()").await;
    let third = world.claim(id).await.unwrap();
    let released = store.release(&third, None, NO_WORK).await.unwrap();
    assert_eq!(released, Write::Done);
    let fourth = world.claim(id).await.unwrap();
    let step = store.next_undo(&fourth).await.unwrap().unwrap();
    assert_eq!(
        (step.started, step.tries),
        (false, 1),
        "a drain costs nothing"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_worker_fails_a_tool_that_is_not_tried_again() {
    let world = World::new().await;
    let policy = ToolPolicy {
        on_lost: OnLost::Fail,
        ..ToolPolicy::default()
    };
    let claim = world.running_with(&policy).await;
    world.lose_lease(claim.id()).await;
    assert!(world.claim(claim.id()).await.is_none());
    let settled = harness::wait::until("settled", 10 * SECOND, async || {
        let ids = world.store.stoppable(10).await.unwrap();
        world.store.settle_stopped(&ids).await.unwrap().pop()
    });
    assert_eq!(settled.await.unwrap().reason, "worker_lost");
    assert_eq!(world.error_reason(claim.id()).await, "worker_lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_attempt_has_worked() {
    let world = World::new().await;
    let claim = world.running().await;
    world
        .set(claim.id(), "claimed_at = now() - interval '20 minutes'")
        .await;
    let next = world.steal(claim.id()).await;
    let lost = claim.work_left - next.work_left;
    assert!(
        lost > 19 * 60 * SECOND && lost < 21 * 60 * SECOND,
        "{lost:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_repeat_of_an_abandoned_act_erases_no_other() {
    let world = World::new().await;
    let store = &world.store;
    let claim = world.running().await;
    let spec = StepSpec {
        idempotent: true,
        ..step("s")
    };
    let mut acts = Vec::new();
    for _ in 0..2 {
        match store.begin_step(&claim, spec).await.unwrap() {
            Begin::Act(permit) => acts.push(permit),
            other => panic!("{other:?}"),
        }
    }
    let second = acts.pop().unwrap();
    let late = store.abandon_step(&claim, acts.pop().unwrap()).await;
    assert_eq!(late.unwrap(), Write::Lost);
    assert_eq!(
        world.column(claim.id(), "open_step").await.as_deref(),
        Some("s")
    );
    let abandoned = store.abandon_step(&claim, second).await.unwrap();
    assert_eq!(abandoned, Write::Done);
    assert_eq!(world.column(claim.id(), "open_step").await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_nobody_serves_ends_its_tasks_by_name() {
    let world = World::new().await;
    let store = &world.store;
    let mut newer = ToolSpec::new(Tool::new("report", &serde_json::json!({"type": "object"})));
    newer.version = 2;
    newer.resumes = vec![1];
    store.register_tools(&[newer.clone()], HOUR).await.unwrap();
    let queued = done(&world, &["a"]).await;
    let _ = store.release(&queued, None, NO_WORK).await.unwrap();
    let undoing = done(&world, &["a"]).await;
    let _ = store.fail(&undoing, ERROR, "no", NO_WORK).await.unwrap();
    let fresh = world.queued().await;
    world
        .run("UPDATE tasks SET run_at = now() - interval '2 hours'")
        .await;
    let gone = store.version_gone(HOUR, 10).await.unwrap();
    assert_eq!(gone, Forsaken::default(), "version 2 resumes them");
    newer.resumes = vec![];
    store.register_tools(&[newer], HOUR).await.unwrap();
    let gone = store.version_gone(HOUR, 10).await.unwrap();
    // A task without a journal is run by any version.
    assert_eq!(gone.stopped, [queued.id()], "{fresh}");
    let ended = gone.ended.iter().map(|task| (task.id, &*task.was));
    assert_eq!(ended.collect::<Vec<_>>(), [(undoing.id(), "undoing")]);
    let seen = world.get(undoing.id()).await;
    let error: serde_json::Value = serde_json::from_slice(&seen.error.unwrap()).unwrap();
    assert_eq!(error["data"]["undoFailed"][0]["step"], "a");
    let settled = store.settle_stopped(&[queued.id()]).await.unwrap();
    assert_eq!(settled[0].reason, "version_gone");
    assert!(settled[0].undoing);
    world
        .run("UPDATE tasks SET run_at = now() - interval '2 hours'")
        .await;
    let gone = store.version_gone(HOUR, 10).await.unwrap();
    assert_eq!(gone.ended[0].id, queued.id());
    assert_eq!(world.error_reason(queued.id()).await, "version_gone");
}
