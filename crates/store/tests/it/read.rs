//! I8, I13: a read is one look-up by owner, and moves nothing.

use protocol::TaskStatus;
use store::{Created, Lookup, ParkedFor, ToolPolicy, Write};
use tokio::task::JoinSet;

use crate::support::{HOUR, NO_WORK, World, YES, answers, question, task_id};

#[tokio::test(flavor = "multi_thread")]
async fn another_principals_task_is_as_unknown_as_one_that_never_was() {
    let world = World::new().await;
    let id = world.queued().await;
    assert_eq!(
        world.store.get(&world.mallory, id).await.unwrap(),
        Lookup::Unknown
    );
    assert_eq!(
        world.store.get(&world.mallory, task_id()).await.unwrap(),
        Lookup::Unknown
    );
    // Same subject of another issuer; tenant neither widens nor narrows.
    let twin = store::Principal::verified("https://other".into(), "alice".into(), None);
    assert_eq!(world.store.get(&twin, id).await.unwrap(), Lookup::Unknown);
    let tenant =
        store::Principal::verified("https://issuer".into(), "alice".into(), Some("t".into()));
    assert!(matches!(
        world.store.get(&tenant, id).await.unwrap(),
        Lookup::Found(_)
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_that_meet_get_each_their_own_answer() {
    let world = World::new().await;
    let (mine, yours) = (world.queued().await, task_id());
    let mut reads = JoinSet::new();
    for n in 0..300 {
        let (store, alice) = (world.store.clone(), world.alice.clone());
        reads.spawn(async move {
            let id = if n % 3 == 0 { yours } else { mine };
            (n, store.get(&alice, id).await.unwrap())
        });
        if n % 50 == 0 {
            // A reader that goes away half way fails nobody.
            let (store, alice) = (world.store.clone(), world.alice.clone());
            let gone = reads.spawn(async move {
                let _ = store.get(&alice, mine).await;
                std::future::pending().await
            });
            tokio::task::yield_now().await;
            gone.abort();
        }
    }
    let mut seen = 0;
    while let Some(read) = reads.join_next().await {
        let Ok((n, found)) = read else { continue };
        seen += 1;
        match found {
            Lookup::Found(task) => assert!(n % 3 != 0 && task.id == mine),
            Lookup::Unknown => assert_eq!(n % 3, 0),
            other @ Lookup::Expired { .. } => panic!("{other:?}"),
        }
    }
    assert_eq!(seen, 300);
    let many = [
        (world.alice.clone(), mine),
        (world.mallory.clone(), mine),
        (world.alice.clone(), mine),
    ];
    let found = world.store.get_many(&many).await.unwrap();
    assert!(matches!(
        &found[..],
        [
            Ok(Lookup::Found(_)),
            Ok(Lookup::Unknown),
            Ok(Lookup::Found(_))
        ]
    ));
    assert!(world.store.get_many(&[]).await.unwrap().is_empty());
}

/// In one round trip with others, what tasks hold has 64 KiB at most; by itself, each is read whole.
#[tokio::test(flavor = "multi_thread")]
async fn large_payloads_are_read_by_themselves() {
    const MOST: usize = 64 * 1024;
    let world = World::new().await;
    let mut many = Vec::new();
    for (length, withheld) in [(MOST, 0), (MOST + 1, MOST + 1), (8 << 20, 8 << 20)] {
        for kind in ["result", "error", "question"] {
            let claim = world.running().await;
            let payload = format!("\"{}\"", "x".repeat(length - 2));
            match kind {
                "result" => {
                    let done = world.store.complete(&claim, payload.as_bytes(), NO_WORK);
                    assert_eq!(done.await.unwrap(), store::Write::Done);
                }
                "error" => {
                    let failed = world.store.fail(&claim, payload.as_bytes(), "m", NO_WORK);
                    assert_eq!(failed.await.unwrap(), store::Ended::Done);
                }
                _ => {
                    // `{"k":` and `}` stand around it.
                    let request = payload.replacen("xxxxxx", "", 1).into();
                    let asked = [store::Question {
                        request,
                        ..question("k")
                    }];
                    let parked = world.store.park(&claim, ParkedFor::Task, &asked, NO_WORK);
                    assert_eq!(parked.await.unwrap(), store::Parked::Parked);
                }
            }
            let id = claim.id();
            let seen = match withheld {
                0 => (0, Some(length)),
                _ => (withheld, None),
            };
            let whole = (0, Some(length));
            assert_eq!(
                held(world.store.look(&world.alice, id).await),
                seen,
                "{kind}"
            );
            assert_eq!(
                held(world.store.get(&world.alice, id).await),
                whole,
                "{kind}"
            );
            let read = world.store.get_whole(&world.alice, id).await;
            assert_eq!(held(read), whole, "{kind}");
            let foreign = world.store.get_whole(&world.mallory, id).await;
            assert!(matches!(foreign.unwrap(), Lookup::Unknown));
            many.push(((world.alice.clone(), id), seen));
        }
    }
    let (wanted, seen): (Vec<_>, Vec<_>) = many.into_iter().unzip();
    let read = world.store.get_many(&wanted).await.unwrap();
    assert_eq!(read.into_iter().map(held).collect::<Vec<_>>(), seen);
}

/// How long what was not read of a task is, and what was.
fn held(read: Result<Lookup, store::Error>) -> (usize, Option<usize>) {
    let Ok(Lookup::Found(task)) = read else {
        panic!("{read:?}")
    };
    let payload = task.result.or(task.error).or(task.input_requests);
    (task.withheld, payload.map(|payload| payload.len()))
}

#[tokio::test(flavor = "multi_thread")]
async fn fetching_is_marked_once_and_only_of_what_is_over() {
    let world = World::new().await;
    let claim = world.running().await;
    let id = claim.id();
    world.store.mark_fetched(&[id]).await.unwrap();
    assert!(!world.get(id).await.fetched);
    let _ = world.store.complete(&claim, b"{}", NO_WORK).await.unwrap();
    let before = world.get(id).await;
    world.store.mark_fetched(&[id]).await.unwrap();
    let first = world.column(id, "first_fetched_at").await;
    world.store.mark_fetched(&[id, task_id()]).await.unwrap();
    assert_eq!(world.column(id, "first_fetched_at").await, first);
    let after = world.get(id).await;
    assert!(after.fetched);
    assert_eq!(
        (after.last_updated_at, after.result),
        (before.last_updated_at, before.result)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outcome_delivered_inline_is_forgotten_if_nobody_can_name_it() {
    let world = World::new().await;
    let policy = ToolPolicy::default();
    let mut ids = Vec::new();
    for (key, handed_out, over, acts) in [
        (None, false, true, false),
        (Some("k"), false, true, true),
        (None, true, true, true),
        (None, false, false, true),
        // What has a journal goes with the next purge.
        (None, false, true, true),
    ] {
        let created = world
            .create(&policy, |new| {
                new.idempotency_key = key;
                new.handed_out = handed_out;
            })
            .await;
        let Created::New(task) = created else {
            panic!()
        };
        let claim = world.claim(task.id).await.unwrap();
        if acts {
            let permit = world.begin(&claim, "s").await;
            let _ = world.store.finish_step(&claim, permit, b"1").await.unwrap();
        }
        if over {
            assert_eq!(
                world.store.complete(&claim, b"{}", NO_WORK).await.unwrap(),
                Write::Done
            );
        }
        ids.push(task.id);
    }
    world.store.delivered_inline(&ids).await.unwrap();
    assert_eq!(
        world.store.get(&world.alice, ids[0]).await.unwrap(),
        Lookup::Unknown
    );
    assert_eq!(world.store.purge(10, HOUR).await.unwrap(), 1);
    assert_eq!(
        world.store.get(&world.alice, ids[4]).await.unwrap(),
        Lookup::Unknown
    );
    for id in &ids[1..4] {
        assert!(matches!(
            world.store.get(&world.alice, *id).await.unwrap(),
            Lookup::Found(_)
        ));
    }
    assert_eq!(
        world.value("SELECT count(*) FROM steps").await.as_deref(),
        Some("3")
    );
    assert_eq!(
        world
            .value("SELECT count(*) FROM tombstones")
            .await
            .as_deref(),
        Some("0")
    );
}

/// `lastUpdatedAt` is what clients and held polls compare: later with every visible change, and
/// with nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn last_updated_moves_with_what_a_client_can_see_and_with_nothing_else() {
    let world = World::new().await;
    let id = world.queued().await;
    let store = &world.store;
    let mut last = world.get(id).await.last_updated_at;
    let mut check = async |what: &str, moves: bool| {
        let now = world.get(id).await.last_updated_at;
        assert_eq!(now > last, moves, "{what}");
        assert!(now >= last, "{what}");
        last = now;
    };
    let claim = world.claim(id).await.unwrap();
    check("claim", false).await;
    let _ = store.heartbeat([&claim]).await.unwrap();
    check("heartbeat", false).await;
    store.hold(&[id], HOUR).await.unwrap();
    check("hold", false).await;
    let _ = store.hand_out(id).await.unwrap();
    check("hand_out", false).await;
    store.mark_hinted(&[(id, None)]).await.unwrap();
    check("mark_hinted", false).await;
    for n in 0..20 {
        assert_eq!(
            store.progress(&claim, &format!("{n} \0")).await.unwrap(),
            Write::Done
        );
        check("progress", true).await;
        assert_eq!(
            store.progress(&claim, &format!("{n} \0")).await.unwrap(),
            Write::Done,
            "still owned"
        );
        check("the same progress", false).await;
    }
    let permit = world.begin(&claim, "s").await;
    let _ = store.finish_step(&claim, permit, b"1").await.unwrap();
    check("step", false).await;
    let _ = store.release(&claim, None, NO_WORK).await.unwrap();
    check("release", false).await;
    let claim = world.claim(id).await.unwrap();
    let _ = store
        .park(
            &claim,
            store::ParkedFor::Task,
            &[question("a"), question("b")],
            NO_WORK,
        )
        .await
        .unwrap();
    check("park", true).await;
    let _ = store
        .answer(&world.alice, id, &answers(&[("a", YES)]), None)
        .await
        .unwrap();
    check("partial answer", true).await;
    let _ = store
        .answer(&world.alice, id, &answers(&[("a", YES)]), None)
        .await
        .unwrap();
    check("ignored answer", false).await;
    let _ = store
        .answer(&world.alice, id, &answers(&[("b", YES)]), None)
        .await
        .unwrap();
    check("last answer", true).await;
    let claim = world.claim(id).await.unwrap();
    let _ = store.cancel(&world.alice, id).await.unwrap();
    check("cancel requested", false).await;
    let _ = store.confirm_stopped(&claim).await.unwrap();
    check("cancelled", true).await;
    store.mark_fetched(&[id]).await.unwrap();
    check("fetched", false).await;
    assert_eq!(world.get(id).await.status, TaskStatus::Cancelled);
}
