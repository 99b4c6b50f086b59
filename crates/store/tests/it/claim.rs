//! I3: one owner, whatever races or comes back late.

use std::time::Duration;

use store::{Beat, Begin, Ended, Parked, ParkedFor, StepSpec, StopReason, ToolPolicy, Write};
use tokio::task::JoinSet;

use crate::support::{HOUR, NO_WORK, SECOND, World, claim_as, question, step, token};

#[tokio::test(flavor = "multi_thread")]
async fn of_twenty_workers_one_wins() {
    let world = World::new().await;
    for _ in 0..5 {
        let id = world.queued().await;
        let mut workers = JoinSet::new();
        for _ in 0..20 {
            let store = world.store.clone();
            workers.spawn(async move { claim_as(&store, id, token()).await });
        }
        let claims: Vec<_> = workers.join_all().await.into_iter().flatten().collect();
        assert_eq!(claims.len(), 1);
        assert_eq!(claims[0].attempt(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_twenty_workers_one_takes_over_a_lost_job() {
    let world = World::new().await;
    let id = world.running().await.id();
    // Once one look was let through, the connections are old enough to judge.
    let stolen = world.steal(id).await;
    world.lose_lease(id).await;
    let mut workers = JoinSet::new();
    for _ in 0..20 {
        let store = world.store.clone();
        workers.spawn(async move {
            for _ in 0..40 {
                if let Some(claim) = claim_as(&store, id, token()).await {
                    return Some(claim);
                }
                tokio::time::sleep(SECOND / 20).await;
            }
            None
        });
    }
    let claims: Vec<_> = workers.join_all().await.into_iter().flatten().collect();
    // The lease is 600 ms and nobody renews it: every winner's attempt is one higher.
    let mut attempts: Vec<_> = claims.iter().map(store::Claim::attempt).collect();
    attempts.sort_unstable();
    let first = stolen.attempt() + 1;
    let expected: Vec<_> = (first..).take(attempts.len()).collect();
    assert_eq!(attempts, expected, "no attempt is owned twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeat_by_the_same_token_is_the_same_claim() {
    let world = World::new().await;
    let id = world.queued().await;
    let token = token();
    let first = claim_as(&world.store, id, token).await.unwrap();
    let again = claim_as(&world.store, id, token).await.unwrap();
    assert_eq!((first.attempt(), again.attempt()), (1, 1));
    assert_eq!(again.tries, 0);
    let _ = world.store.complete(&again, b"{}", NO_WORK).await.unwrap();
    assert!(claim_as(&world.store, id, token).await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_is_due_and_served_is_claimed() {
    let world = World::new().await;
    let ask = async |id, tool, version, resumes: &[i32]| {
        let request = store::ClaimRequest {
            id,
            tool,
            version,
            resumes,
            token: token(),
            worker: "w",
        };
        world.store.claim(&request).await.unwrap()
    };
    let id = world.queued().await;
    assert!(ask(id, "other", 1, &[1]).await.is_none(), "another tool");
    assert!(
        ask(crate::support::task_id(), "report", 1, &[1])
            .await
            .is_none(),
        "unknown"
    );
    world.set(id, "run_at = now() + interval '1 hour'").await;
    assert!(ask(id, "report", 1, &[1]).await.is_none(), "not due");
    world.set(id, "run_at = now(), expires_at = now()").await;
    assert!(ask(id, "report", 1, &[1]).await.is_none(), "expired");
    world
        .set(id, "expires_at = now() + interval '1 hour'")
        .await;
    // Without a journal any version runs it, and that version is then the task's.
    let claim = ask(id, "report", 2, &[2]).await.unwrap();
    assert_eq!(claim.tool_version, 2);
    let permit = world.begin(&claim, "s").await;
    let _ = world.store.finish_step(&claim, permit, b"1").await.unwrap();
    assert_eq!(
        world.store.release(&claim, None, NO_WORK).await.unwrap(),
        Write::Done
    );
    // With a journal, only those that can resume it; the pin stays.
    assert!(ask(id, "report", 3, &[3]).await.is_none(), "pinned");
    let claim = ask(id, "report", 3, &[2, 3]).await.unwrap();
    assert_eq!(claim.tool_version, 2);
    assert!(claim.journaled);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_write_of_a_lost_attempt_is_lost() {
    let world = World::new().await;
    let stale = world.running().await;
    let id = stale.id();
    let spec = StepSpec {
        idempotent: true,
        ..step("first")
    };
    let begin = async || match world.store.begin_step(&stale, spec).await.unwrap() {
        Begin::Act(permit) => permit,
        other => panic!("{other:?}"),
    };
    let (abandoned, permit) = (begin().await, begin().await);
    let owner = world.steal(id).await;
    assert_eq!((owner.attempt(), owner.tries), (2, 1), "a loss is a try");
    assert_eq!(owner.open_step.as_deref(), Some("first"));
    let row = format!("SELECT t::text FROM tasks t WHERE id = '{id}'");
    let steps = "SELECT s::text FROM steps s";
    let before = (world.value(&row).await, world.value(steps).await);

    let store = &world.store;
    assert_eq!(store.progress(&stale, "late").await.unwrap(), Write::Lost);
    assert!(matches!(
        store.begin_step(&stale, step("first")).await.unwrap(),
        Begin::Stop
    ));
    assert!(matches!(
        store.begin_step(&stale, step("second")).await.unwrap(),
        Begin::Stop
    ));
    assert_eq!(
        store.finish_step(&stale, permit, b"1").await.unwrap(),
        Write::Lost
    );
    assert_eq!(
        store.abandon_step(&stale, abandoned).await.unwrap(),
        Write::Lost
    );
    let parked = store
        .park(&stale, ParkedFor::Task, &[question("q")], NO_WORK)
        .await;
    assert_eq!(parked.unwrap(), Parked::Stop);
    let recorded = store
        .record_answer(&stale, &question("q"), b"{}", "offered")
        .await;
    assert_eq!(recorded.unwrap(), Write::Lost);
    assert_eq!(
        store.complete(&stale, b"{}", NO_WORK).await.unwrap(),
        Write::Lost
    );
    assert_eq!(
        store.fail(&stale, b"{}", "late", NO_WORK).await.unwrap(),
        Ended::Lost
    );
    assert_eq!(
        store.retry(&stale, "late", NO_WORK, NO_WORK).await.unwrap(),
        Write::Lost
    );
    assert_eq!(
        store.release(&stale, None, NO_WORK).await.unwrap(),
        Write::Lost
    );
    let own = store.stop_own(&stale, StopReason::WorkLimit, None).await;
    assert_eq!(own.unwrap(), Write::Lost);
    assert_eq!(store.confirm_stopped(&stale).await.unwrap(), Ended::Lost);
    assert_eq!(store.heartbeat([&stale]).await.unwrap(), []);

    assert_eq!((world.value(&row).await, world.value(steps).await), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_heartbeat_renews_what_is_owned_and_tells_of_stops() {
    let world = World::new().await;
    let (kept, lost, stopped) = (
        world.running().await,
        world.running().await,
        world.running().await,
    );
    // First: once its lease ran out, a cancel ends it at once.
    let _ = world
        .store
        .cancel(&world.alice, stopped.id())
        .await
        .unwrap();
    let _owner = world.steal(lost.id()).await;
    world.lose_lease(kept.id()).await;
    let mut beats = world
        .store
        .heartbeat([&kept, &lost, &stopped])
        .await
        .unwrap();
    beats.sort_by_key(|beat| beat.id);
    let mut expected = vec![
        Beat {
            id: kept.id(),
            stop: None,
        },
        Beat {
            id: stopped.id(),
            stop: Some(StopReason::Cancelled),
        },
    ];
    expected.sort_by_key(|beat| beat.id);
    assert_eq!(beats, expected);
    assert_eq!(
        world
            .column(kept.id(), "lease_until > now()")
            .await
            .as_deref(),
        Some("t")
    );
    assert_eq!(world.store.heartbeat([]).await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_released_job_is_due_at_once_and_costs_no_try() {
    let world = World::new().await;
    let claim = world.running().await;
    let worked = Duration::from_secs(10);
    assert_eq!(
        world
            .store
            .release(&claim, Some("new"), worked)
            .await
            .unwrap(),
        Write::Done
    );
    // The reply may be lost: the same release again is the same answer.
    assert_eq!(
        world
            .store
            .release(&claim, Some("new"), worked)
            .await
            .unwrap(),
        Write::Done
    );
    assert_eq!(
        world.column(claim.id(), "hint_epoch").await.as_deref(),
        Some("new")
    );
    let next = world.claim(claim.id()).await.unwrap();
    assert_eq!((next.attempt(), next.tries), (2, 0));
    assert_eq!(next.work_left, HOUR - worked, "counted once");
    assert_eq!(
        world.store.release(&claim, None, NO_WORK).await.unwrap(),
        Write::Lost
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_waits_in_postgres_and_the_last_try_is_refused() {
    let world = World::new().await;
    let policy = ToolPolicy {
        tries_max: 2,
        ..ToolPolicy::default()
    };
    let claim = world.running_with(&policy).await;
    let store = &world.store;
    assert_eq!(
        store
            .retry(&claim, "nul \0 byte", HOUR, NO_WORK)
            .await
            .unwrap(),
        Write::Done
    );
    assert_eq!(
        store.retry(&claim, "again", HOUR, NO_WORK).await.unwrap(),
        Write::Done,
        "a repeat"
    );
    assert_eq!(
        world.column(claim.id(), "last_error").await.as_deref(),
        Some("nul \u{fffd} byte")
    );
    assert!(world.claim(claim.id()).await.is_none(), "not due");
    world.set(claim.id(), "run_at = now()").await;
    let last = world.claim(claim.id()).await.unwrap();
    assert_eq!(last.tries, 1);
    assert_eq!(
        store.retry(&last, "e", NO_WORK, NO_WORK).await.unwrap(),
        Write::Lost
    );
    assert_eq!(
        store
            .fail(&last, b"{\"code\":1,\"message\":\"m\"}", "m", NO_WORK)
            .await
            .unwrap(),
        Ended::Done
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_attempt_that_is_lost_ends_the_task() {
    let world = World::new().await;
    let policy = ToolPolicy {
        tries_max: 2,
        ..ToolPolicy::default()
    };
    let first = world.running_with(&policy).await;
    let second = world.steal(first.id()).await;
    world.lose_lease(first.id()).await;
    harness::wait::until("tries are used up", 10 * SECOND, async || {
        (world.store.stoppable(10).await.unwrap() == [first.id()]).then_some(())
    })
    .await
    .unwrap();
    assert!(
        world.claim(first.id()).await.is_none(),
        "there is no third try"
    );
    let settled = harness::wait::until("settled", 10 * SECOND, async || {
        world
            .store
            .settle_stopped(&[first.id()])
            .await
            .unwrap()
            .pop()
    })
    .await
    .unwrap();
    assert_eq!(settled.reason, "attempts_exhausted");
    assert_eq!(world.error_reason(first.id()).await, "attempts_exhausted");
    let message = world.get(first.id()).await.status_message.unwrap();
    assert_eq!(message, "gave up after 2 tries: the worker was lost");
    assert_eq!(
        world.store.complete(&second, b"{}", NO_WORK).await.unwrap(),
        Write::Lost
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_get_one_grace_after_an_outage() {
    let mut server = harness::postgres::Postgres::temporary().await.unwrap();
    let url = server.create_database("grace").await.unwrap();
    crate::support::migrate(url.clone()).await.unwrap();
    let config = store::Config {
        lease: 3 * SECOND,
        heartbeat: SECOND,
        ..crate::support::config(&url)
    };
    let store = crate::support::store(config);
    let alice = crate::support::principal("alice");
    let created = crate::support::create(&store, &alice, &ToolPolicy::default(), |_| ()).await;
    let store::Created::New(task) = created else {
        panic!()
    };
    let claim = claim_as(&store, task.id, token()).await.unwrap();
    let lose = format!(
        "UPDATE tasks SET lease_until = now() - interval '1 s' WHERE id = '{}'",
        task.id
    );
    server.restart().await.unwrap();
    harness::postgres::rows(&url, &lose).await.unwrap();
    let other = token();
    assert!(
        claim_as(&store, task.id, other).await.is_none(),
        "right after the start"
    );
    assert_eq!(store.stoppable(10).await.unwrap(), []);
    // The owner lives: its next heartbeat is in time.
    assert_eq!(store.heartbeat([&claim]).await.unwrap().len(), 1);
    harness::postgres::rows(&url, &lose).await.unwrap();
    let taken = harness::wait::until("the grace ends", 10 * SECOND, async || {
        claim_as(&store, task.id, other).await
    })
    .await
    .unwrap();
    assert_eq!(taken.attempt(), 2);
    // A looker whose own connection is new must wait as well, though Postgres is old.
    harness::postgres::rows(&url, &lose).await.unwrap();
    let newcomer = crate::support::store(store.config().clone());
    assert!(claim_as(&newcomer, task.id, token()).await.is_none());
}
