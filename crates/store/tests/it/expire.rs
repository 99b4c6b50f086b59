//! I11: time ends what nobody ends.

use protocol::TaskStatus;
use store::{Cancel, Created, Ended, Lookup, StopReason, ToolPolicy};

use crate::support::{HOUR, NO_WORK, World, create, question, token};

#[tokio::test(flavor = "multi_thread")]
async fn a_task_expires_is_shown_as_failed_and_leaves_a_tombstone() {
    let world = World::new().await;
    let claim = world.running().await;
    let (id, store) = (claim.id(), &world.store);
    assert_eq!(store.expire(10).await.unwrap(), []);
    world.set(id, "expires_at = now()").await;
    let expired = store.expire(10).await.unwrap();
    assert_eq!(expired[0].id, id);
    assert_eq!(
        (&*expired[0].status, &*expired[0].phase),
        ("working", "running")
    );
    assert_eq!(store.expire(10).await.unwrap(), [], "told once");
    assert_eq!(
        store.heartbeat([&claim]).await.unwrap()[0].stop,
        Some(StopReason::Expired)
    );
    assert_eq!(store.purge(10, HOUR).await.unwrap(), 0, "live");
    assert_eq!(store.confirm_stopped(&claim).await.unwrap(), Ended::Done);
    assert_eq!(world.error_reason(id).await, "task_expired");
    assert_eq!(
        store.purge(10, HOUR).await.unwrap(),
        0,
        "shown for the grace"
    );
    // Whether somebody must be told of the failure is settled before it goes.
    store.mark_fetched(&[id]).await.unwrap();
    world.set(id, "expires_at = now()").await;
    assert_eq!(store.purge(10, HOUR).await.unwrap(), 1);

    let gone = store.get(&world.alice, id).await.unwrap();
    assert!(
        matches!(
            gone,
            Lookup::Expired {
                final_status: TaskStatus::Failed,
                ..
            }
        ),
        "{gone:?}"
    );
    assert_eq!(
        store.get(&world.mallory, id).await.unwrap(),
        Lookup::Unknown
    );
    assert_eq!(
        store.cancel(&world.alice, id).await.unwrap(),
        Cancel::Gone(Some(gone.clone()))
    );
    assert_eq!(
        store.cancel(&world.mallory, id).await.unwrap(),
        Cancel::Gone(None)
    );
    let given = crate::support::answers(&[("q", "{}")]);
    let answered = store.answer(&world.alice, id, &given, None).await.unwrap();
    assert_eq!(answered, store::Answer::Gone(Some(gone)));
    assert_eq!(
        store
            .answer(&world.mallory, id, &given, None)
            .await
            .unwrap(),
        store::Answer::Gone(None)
    );

    assert_eq!(store.purge_tombstones(10).await.unwrap(), 0);
    world.run("UPDATE tombstones SET purge_at = now()").await;
    assert_eq!(store.purge_tombstones(10).await.unwrap(), 1);
    assert_eq!(store.get(&world.alice, id).await.unwrap(), Lookup::Unknown);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parked_or_queued_task_that_expires_is_settled_by_the_sweep() {
    let world = World::new().await;
    let (parked, _) = world.parked(&[question("q")]).await;
    let queued = world.queued().await;
    for id in [parked, queued] {
        world
            .set(
                id,
                "created_at = created_at - interval '1 hour', expires_at = now()",
            )
            .await;
    }
    let mut expired = world.store.expire(1).await.unwrap();
    assert_eq!(expired.len(), 1, "in batches");
    expired.extend(world.store.expire(10).await.unwrap());
    expired.sort_by_key(|task| task.phase.clone());
    let seen = expired.iter().map(|task| (&*task.phase, &*task.status));
    let seen: Vec<_> = seen.collect();
    assert_eq!(seen, [("parked", "input_required"), ("queued", "working")]);
    assert!(expired.iter().all(|task| task.age > HOUR), "{expired:?}");
    let ids = world.store.stoppable(10).await.unwrap();
    let mut settled = world.store.settle_stopped(&ids).await.unwrap();
    settled.sort_by_key(|task| task.was.clone());
    let was: Vec<_> = settled.iter().map(|task| &*task.was).collect();
    assert_eq!(was, ["parked", "queued"]);
    for task in &settled {
        assert_eq!(task.stop, Some(StopReason::Expired));
        assert!(task.age > HOUR && !task.in_doubt(), "{task:?}");
    }
    for id in [parked, queued] {
        assert_eq!(world.error_reason(id).await, "task_expired");
        let shown =
            "expires_at BETWEEN now() + interval '59 minutes' AND now() + interval '61 minutes'";
        assert_eq!(world.column(id, shown).await.as_deref(), Some("t"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_belongs_to_a_task_goes_with_it() {
    let world = World::new().await;
    let policy = ToolPolicy::default();
    let created = world
        .create(&policy, |new| new.idempotency_key = Some("key"))
        .await;
    let Created::New(task) = created else {
        panic!()
    };
    let claim = world.claim(task.id).await.unwrap();
    let permit = world.begin(&claim, "s").await;
    let _ = world.store.finish_step(&claim, permit, b"1").await.unwrap();
    let _ = world
        .store
        .record_answer(&claim, &question("q"), b"{}", "offered")
        .await
        .unwrap();
    let _ = world.store.complete(&claim, b"{}", NO_WORK).await.unwrap();
    let other = world.running().await;
    let _open = world.begin(&other, "s").await;
    world.set(task.id, "expires_at = now()").await;
    assert_eq!(world.store.purge(10, HOUR).await.unwrap(), 1);
    for (table, left) in [
        ("tasks", "1"),
        ("steps", "1"),
        ("inputs", "0"),
        ("idempotency_keys", "0"),
    ] {
        let count = world.value(&format!("SELECT count(*) FROM {table}")).await;
        assert_eq!(count.as_deref(), Some(left), "{table}");
    }
    // The key is free again.
    let created = world
        .create(&policy, |new| new.idempotency_key = Some("key"))
        .await;
    assert!(matches!(created, Created::New(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_can_name_leaves_no_tombstone() {
    let world = World::new().await;
    let policy = ToolPolicy::default();
    let created = world.create(&policy, |new| new.handed_out = false).await;
    let Created::New(task) = created else {
        panic!()
    };
    let claim = world.claim(task.id).await.unwrap();
    let _ = world.store.complete(&claim, b"{}", NO_WORK).await.unwrap();
    world.set(task.id, "expires_at = now()").await;
    assert_eq!(world.store.purge(10, HOUR).await.unwrap(), 1);
    assert_eq!(
        world.store.get(&world.alice, task.id).await.unwrap(),
        Lookup::Unknown
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_holds_and_nobody_has_is_stopped() {
    let world = World::new().await;
    let make = async |key: Option<&'static str>, handed_out: bool| {
        let created = create(&world.store, &world.alice, &ToolPolicy::default(), |new| {
            new.handed_out = handed_out;
            new.idempotency_key = key;
            new.hold = std::time::Duration::ZERO;
        })
        .await;
        match created {
            Created::New(task) => task.id,
            other => panic!("{other:?}"),
        }
    };
    let (orphan, keyed, held, handed) = (
        make(None, false).await,
        make(Some("key"), false).await,
        make(None, false).await,
        make(None, true).await,
    );
    world.store.hold(&[held], HOUR).await.unwrap();
    let mut ended = world.store.end_holds(10).await.unwrap();
    ended.sort_unstable();
    let mut expected = [orphan, keyed];
    expected.sort_unstable();
    assert_eq!(ended, expected);
    assert_eq!(world.store.end_holds(10).await.unwrap(), []);
    let settled = world
        .store
        .settle_stopped(&[orphan, keyed, held, handed])
        .await
        .unwrap();
    assert!(
        settled.iter().all(|s| s.reason == "abandoned"),
        "{settled:?}"
    );
    assert_eq!(world.get(orphan).await.status, TaskStatus::Cancelled);
    assert_eq!(world.get(held).await.status, TaskStatus::Working);
    assert_eq!(world.get(handed).await.status, TaskStatus::Working);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_replica_leads_a_sweep_at_a_time() {
    let world = World::new().await;
    let (a, b) = (token(), token());
    let lead = async |who, lease| world.store.lead_sweep("expire", who, lease).await.unwrap();
    assert!(lead(a, HOUR).await);
    assert!(lead(a, HOUR).await, "renewed");
    assert!(!lead(b, HOUR).await);
    assert_eq!(world.store.sweep_success("expire").await.unwrap(), None);
    world.store.swept("expire", b).await.unwrap();
    assert_eq!(
        world
            .value("SELECT last_success_at FROM sweep_leases")
            .await,
        None
    );
    world.store.swept("expire", a).await.unwrap();
    assert!(
        world
            .value("SELECT last_success_at FROM sweep_leases")
            .await
            .is_some()
    );
    let success = world.store.sweep_success("expire").await.unwrap();
    assert!(success.unwrap() < HOUR);
    world
        .run("UPDATE sweep_leases SET lease_until = now() - interval '1 s'")
        .await;
    assert!(lead(b, HOUR).await, "the leader's lease ran out");
    assert!(!lead(a, HOUR).await);
}
