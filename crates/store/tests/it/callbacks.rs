//! Callbacks: a task waits for a service, and what the service sends is kept once, whenever it comes.

use bytes::Bytes;
use store::{
    Awaited, Begin, Called, Cancel, Claim, Created, Error, Lookup, NewCallback, Open, Opened, Pace,
    Progressed, Received, StepSpec, ToolPolicy, Wait, Write,
};

use crate::support::{
    HOUR, NO_WORK, SECOND, World, claim_as, config, create, encryption, step, store, token,
};

const BODY: &[u8] = br#"{"text":"done"}"#;

fn new(wait: std::time::Duration) -> NewCallback {
    NewCallback {
        key: "call".to_owned(),
        seq: 0,
        wait,
        signed_by: "one".to_owned(),
        proves: Some(("call".to_owned(), Bytes::from_static(b"\"proven\""))),
    }
}

fn wait(in_doubt: bool) -> Wait<'static> {
    Wait {
        key: "call",
        in_doubt,
        message: Some("waiting"),
    }
}

async fn open(world: &World, claim: &Claim, wait: std::time::Duration) -> Opened {
    match world.store.open_callback(claim, &new(wait)).await.unwrap() {
        Open::Open(opened) => opened,
        Open::Stop => panic!("stopped"),
    }
}

fn called<'a>(claim: &Claim, opened: &Opened) -> Called<'a> {
    Called {
        id: claim.id(),
        key: "call",
        expires_ms: opened.expires_ms,
    }
}

async fn receive(world: &World, called: Called<'_>, body: &[u8]) -> Received {
    let mut digest = [0; 32];
    digest[..body.len().min(32)].copy_from_slice(&body[..body.len().min(32)]);
    let received = world
        .store
        .receive_callback(called, (body, &digest), Some("epoch"));
    received.await.unwrap()
}

/// A task that waits, and its address.
async fn waiting(world: &World, in_doubt: bool) -> (Claim, Opened) {
    let claim = world.running().await;
    let opened = open(world, &claim, HOUR).await;
    let permit = world.begin(&claim, "call").await;
    let written = world
        .store
        .finish_step(&claim, permit, b"\"accepted\"")
        .await;
    assert_eq!(written.unwrap(), Write::Done);
    let awaited = world
        .store
        .wait_callback(&claim, wait(in_doubt), NO_WORK)
        .await;
    assert_eq!(awaited.unwrap(), Awaited::Waiting);
    (claim, opened)
}

fn kept() -> Received {
    Received::Kept(Some(("report".to_owned(), 1)))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_waits_without_a_worker_and_goes_on_when_it_is_called() {
    let world = World::new().await;
    let (claim, opened) = waiting(&world, false).await;
    let id = claim.id();
    let task = world.get(id).await;
    assert_eq!(task.status.to_string(), "working");
    assert_eq!(task.status_message.as_deref(), Some("waiting"));
    assert_eq!(world.column(id, "phase").await.as_deref(), Some("queued"));
    assert_eq!(world.column(id, "lease_until").await, None);
    assert!(world.claim(id).await.is_none(), "nobody takes it meanwhile");
    let waiting = world.store.waiting_callbacks().await.unwrap();
    assert_eq!((waiting[0].tool.as_str(), waiting[0].jobs), ("report", 1));
    // The lost reply: asked again by the same owner, it still waits.
    let again = world
        .store
        .wait_callback(&claim, wait(false), NO_WORK)
        .await;
    assert_eq!(again.unwrap(), Awaited::Waiting);

    let told = async |message: &str, pace| {
        let call = called(&claim, &opened);
        let told = world.store.progress_callback(call, message, pace);
        told.await.unwrap()
    };
    assert_eq!(told("half", Pace::Insist).await, Progressed::News);
    assert_eq!(told("half", Pace::Spare).await, Progressed::NoNews);
    assert_eq!(told("more", Pace::Insist).await, Progressed::News);
    let said = world.get(id).await.status_message;
    assert_eq!(said.as_deref(), Some("more"));
    assert_eq!(receive(&world, called(&claim, &opened), BODY).await, kept());
    let repeated = Received::Repeated(Some(("report".to_owned(), 1)));
    assert_eq!(
        receive(&world, called(&claim, &opened), BODY).await,
        repeated
    );
    assert_eq!(
        receive(&world, called(&claim, &opened), b"{}").await,
        Received::Used
    );
    let next = world.claim(id).await.unwrap();
    assert_eq!(next.attempt(), 2);
    assert_eq!(
        world.column(id, "tries").await.as_deref(),
        Some("0"),
        "waiting costs no try"
    );
    let same = open(&world, &next, SECOND).await;
    assert_eq!((same.expires_ms, same.received), (opened.expires_ms, true));
    let awaited = world.store.wait_callback(&next, wait(false), NO_WORK).await;
    assert_eq!(
        awaited.unwrap(),
        Awaited::Received(Bytes::from_static(BODY))
    );
    let journal = world.store.journal(&next).await.unwrap();
    assert_eq!(journal.len(), 2);
    assert!(journal.iter().all(|entry| entry.done));
    let written = world.store.complete(&next, b"{}", NO_WORK).await.unwrap();
    assert_eq!(written, Write::Done);
    // Over, and still told apart.
    assert_eq!(
        receive(&world, called(&claim, &opened), BODY).await,
        Received::Repeated(None)
    );
    assert_eq!(
        receive(&world, called(&claim, &opened), b"{}").await,
        Received::Used
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_before_the_wait_is_not_lost() {
    let world = World::new().await;
    let claim = world.running().await;
    let opened = open(&world, &claim, HOUR).await;
    let permit = world.begin(&claim, "call").await;
    // Called in the middle of the request that announced the address.
    let received = receive(&world, called(&claim, &opened), BODY).await;
    assert_eq!(received, Received::Kept(None));
    let written = world
        .store
        .finish_step(&claim, permit, b"\"accepted\"")
        .await;
    assert_eq!(written.unwrap(), Write::Done);
    let awaited = world.store.wait_callback(&claim, wait(true), NO_WORK).await;
    assert_eq!(
        awaited.unwrap(),
        Awaited::Received(Bytes::from_static(BODY))
    );
    assert_eq!(world.column(claim.id(), "open_step").await, None);
    assert_eq!(
        world.column(claim.id(), "phase").await.as_deref(),
        Some("running")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_proves_the_step_that_announced_it() {
    let world = World::new().await;
    let claim = world.running().await;
    let opened = open(&world, &claim, HOUR).await;
    let undo = store::UndoSpec {
        how: b"{}",
        idempotent: true,
    };
    let spec = StepSpec {
        seq: 1,
        undo: Some(undo),
        ..step("call")
    };
    let begun = world.store.begin_step(&claim, spec).await.unwrap();
    assert!(matches!(begun, Begin::Act(_)));
    // The worker dies; the service has the request all the same.
    world.lose_lease(claim.id()).await;
    let received = receive(&world, called(&claim, &opened), BODY).await;
    assert_eq!(received, Received::Kept(None));
    let next = world.steal(claim.id()).await;
    assert_eq!(next.open_step, None, "no doubt is left");
    let journal = world.store.journal(&next).await.unwrap();
    let act = journal
        .iter()
        .find(|entry| entry.kind == store::JournalKind::Step);
    assert_eq!(act.unwrap().value.as_deref(), Some(&b"\"proven\""[..]));
    assert_eq!(
        world.column(claim.id(), "has_undo").await.as_deref(),
        Some("t")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_has_an_end() {
    let world = World::new().await;
    let (claim, opened) = waiting(&world, true).await;
    let id = claim.id();
    let over = "UPDATE callbacks SET expires_at = now() - interval '1 second'";
    world.run(over).await;
    world.set(id, "run_at = now() - interval '1 second'").await;
    assert_eq!(
        receive(&world, called(&claim, &opened), BODY).await,
        Received::Gone
    );
    let next = world.claim(id).await.unwrap();
    let awaited = world.store.wait_callback(&next, wait(true), NO_WORK).await;
    assert_eq!(awaited.unwrap(), Awaited::Overdue);
    let now_ms = world
        .value("SELECT (extract(epoch FROM expires_at) * 1000)::bigint::text FROM callbacks")
        .await;
    let late = Called {
        expires_ms: now_ms.unwrap().parse().unwrap(),
        ..called(&claim, &opened)
    };
    assert_eq!(receive(&world, late, BODY).await, Received::Gone);
    let told = world.store.progress_callback(late, "x", Pace::Insist).await;
    assert_eq!(told.unwrap(), Progressed::Gone);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_is_cancelled_by_what_the_service_may_still_do() {
    let world = World::new().await;
    for (in_doubt, status) in [(false, "cancelled"), (true, "failed")] {
        let (claim, opened) = waiting(&world, in_doubt).await;
        let cancelled = world.store.cancel(&world.alice, claim.id()).await.unwrap();
        assert_eq!(cancelled, Cancel::Cancelled);
        assert_eq!(world.get(claim.id()).await.status.to_string(), status);
        if in_doubt {
            assert_eq!(world.error_reason(claim.id()).await, "step_in_doubt");
        }
        assert_eq!(
            receive(&world, called(&claim, &opened), BODY).await,
            Received::Gone
        );
        let sql = format!(
            "SELECT response::text FROM callbacks WHERE task_id = '{}'",
            claim.id()
        );
        let response = world.value(&sql).await;
        assert_eq!(response, None, "nothing changes");
    }
    // Once it has come, there is no doubt any more.
    let (claim, opened) = waiting(&world, true).await;
    assert_eq!(receive(&world, called(&claim, &opened), BODY).await, kept());
    let _ = world.store.cancel(&world.alice, claim.id()).await.unwrap();
    assert_eq!(world.get(claim.id()).await.status.to_string(), "cancelled");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_or_stale_owner_changes_nothing() {
    let world = World::new().await;
    let claim = world.running().await;
    let opened = open(&world, &claim, HOUR).await;
    let next = world.steal(claim.id()).await;
    let stale = world.store.open_callback(&claim, &new(HOUR)).await.unwrap();
    assert_eq!(stale, Open::Stop);
    let awaited = world
        .store
        .wait_callback(&claim, wait(false), NO_WORK)
        .await;
    assert_eq!(awaited.unwrap(), Awaited::Stop);
    assert_eq!(
        open(&world, &next, SECOND).await.expires_ms,
        opened.expires_ms
    );
    // An address of another expiry, key or task was never made.
    for wrong in [
        Called {
            expires_ms: opened.expires_ms + 1,
            ..called(&claim, &opened)
        },
        Called {
            key: "other",
            ..called(&claim, &opened)
        },
        Called {
            id: crate::support::task_id(),
            ..called(&claim, &opened)
        },
    ] {
        assert_eq!(receive(&world, wrong, BODY).await, Received::Gone);
        let told = world
            .store
            .progress_callback(wrong, "x", Pace::Insist)
            .await;
        assert_eq!(told.unwrap(), Progressed::Gone);
    }
    assert!(claim_as(&world.store, claim.id(), token()).await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_calls_at_once_one_is_kept() {
    let world = World::new().await;
    let (claim, opened) = waiting(&world, false).await;
    let calls = (0..20_u8).map(|n| {
        let (world, claim, opened) = (&world, &claim, &opened);
        async move {
            receive(
                world,
                called(claim, opened),
                &[b'{', b'0' + n % 10, b'a' + n],
            )
            .await
        }
    });
    let all = futures_of(calls).await;
    let won = all
        .iter()
        .filter(|received| matches!(received, Received::Kept(_)));
    assert_eq!(won.count(), 1, "{all:?}");
    assert!(
        all.iter()
            .all(|r| matches!(r, Received::Kept(_) | Received::Used))
    );
}

/// All of them at once, in their order.
async fn futures_of<F: Future<Output = Received>>(calls: impl Iterator<Item = F>) -> Vec<Received> {
    let mut calls: Vec<_> = calls.map(Box::pin).collect();
    let mut done: Vec<Option<Received>> = calls.iter().map(|_| None).collect();
    std::future::poll_fn(|cx| {
        for (call, done) in calls.iter_mut().zip(&mut done) {
            if done.is_none()
                && let std::task::Poll::Ready(received) = call.as_mut().poll(cx)
            {
                *done = Some(received);
            }
        }
        if done.iter().all(Option::is_some) {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
    done.into_iter().flatten().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ttl_grows_by_the_wait_and_all_goes_with_the_task() {
    let world = World::new().await;
    let policy = ToolPolicy {
        ttl: Some(HOUR),
        work_limit: SECOND,
        tries_max: 1,
        client_absence: SECOND,
        queue_wait: SECOND,
        ..ToolPolicy::default()
    };
    let claim = world.running_with(&policy).await;
    let before = world.get(claim.id()).await.ttl_ms.unwrap();
    let opened = open(&world, &claim, HOUR).await;
    let awaited = world
        .store
        .wait_callback(&claim, wait(false), NO_WORK)
        .await;
    assert_eq!(awaited.unwrap(), Awaited::Waiting);
    let after = world.get(claim.id()).await.ttl_ms.unwrap();
    assert!(
        (3_590_000..=3_600_000).contains(&(after - before)),
        "{before} {after}"
    );
    let shown = world.store.show_callbacks(claim.id()).await.unwrap();
    assert!(shown[0].waiting_since.is_some() && shown[0].received_at.is_none());

    let cancelled = world.store.cancel(&world.alice, claim.id()).await.unwrap();
    assert_eq!(cancelled, Cancel::Cancelled);
    world
        .set(claim.id(), "expires_at = now() - interval '1 second'")
        .await;
    world.store.purge(10, HOUR).await.unwrap();
    let looked = world.store.get(&world.alice, claim.id()).await.unwrap();
    assert!(!matches!(looked, Lookup::Found(_)));
    let left = world.value("SELECT count(*)::text FROM callbacks").await;
    assert_eq!(left.as_deref(), Some("0"));
    assert_eq!(
        receive(&world, called(&claim, &opened), BODY).await,
        Received::Gone
    );
}

/// Release 0.1.0's cron runs beside the current one: what it purges takes callbacks along.
#[tokio::test(flavor = "multi_thread")]
async fn the_first_release_leaves_nothing_behind() {
    let world = World::new().await;
    let (claim, _) = waiting(&world, true).await;
    let client = world.raw().await;
    let cancelled = world.store.cancel(&world.alice, claim.id()).await.unwrap();
    assert_eq!(cancelled, Cancel::Cancelled);
    let over = "expires_at = now() - interval '1 second', first_fetched_at = now()";
    world.set(claim.id(), over).await;
    let purge = include_str!("../released/0.1.0/purge.sql");
    client.query(purge, &[&10_i64, &1_000_i64]).await.unwrap();
    let left = world.value("SELECT count(*)::text FROM callbacks").await;
    assert_eq!(left.as_deref(), Some("0"));
}

/// Whoever has no keys at all must not write clear text into a task that is sealed.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_key_nothing_is_said_in_a_sealed_task() {
    let world = World::new().await;
    let keys = encryption(&["k1"]);
    let sealing = store(config(world.database.url())).with_encryption(&keys);
    let policy = ToolPolicy::default();
    let created = create(&sealing, &world.alice, &policy, |_| ()).await;
    let Created::New(task) = created else {
        panic!("{created:?}")
    };
    let claim = claim_as(&sealing, task.id, token()).await.unwrap();
    let opened = sealing.open_callback(&claim, &new(HOUR)).await.unwrap();
    let Open::Open(opened) = opened else {
        panic!("stopped")
    };
    let before = world.column(task.id, "status_message").await;
    for keys in [None, Some(encryption(&["k2"]))] {
        let mut blind = world.store.clone();
        if let Some(keys) = keys {
            blind = blind.with_encryption(&keys);
        }
        let call = called(&claim, &opened);
        let told = blind.progress_callback(call, "half", Pace::Insist).await;
        let missing = matches!(&told, Err(Error::KeyMissing { key, .. }) if key == "k1");
        assert!(missing, "{told:?}");
        let kept = blind
            .receive_callback(called(&claim, &opened), (BODY, &[0; 32]), None)
            .await;
        assert!(matches!(kept, Err(Error::KeyMissing { .. })), "{kept:?}");
        assert_eq!(world.column(task.id, "status_message").await, before);
    }
    let call = called(&claim, &opened);
    let told = sealing.progress_callback(call, "half", Pace::Insist).await;
    assert_eq!(told.unwrap(), Progressed::News);
    let stored = world.column(task.id, "status_message").await.unwrap();
    assert!(!stored.contains("half"), "{stored}");
    // A clear task needs no key.
    let (claim, opened) = waiting(&world, false).await;
    let call = called(&claim, &opened);
    let told = world.store.progress_callback(call, "half", Pace::Insist);
    assert_eq!(told.await.unwrap(), Progressed::News);
}
