//! I4: a step acts once, as far as anyone can know.

use store::{Begin, Claim, Ended, JournalKind, StepSpec, Write};
use tokio_postgres::Client;
use uuid::Uuid;

use crate::support::{NO_WORK, World, question, step};

#[tokio::test(flavor = "multi_thread")]
async fn the_journal_is_what_happened_in_order() {
    let world = World::new().await;
    let claim = world.running().await;
    assert!(world.store.journal(&claim).await.unwrap().is_empty());
    for (seq, key) in [(0, "b"), (1, "a")] {
        let spec = StepSpec {
            key,
            seq,
            idempotent: seq == 1,
            undo: None,
        };
        let Begin::Act(permit) = world.store.begin_step(&claim, spec).await.unwrap() else {
            panic!()
        };
        let output = format!("{{\"n\":  {seq}}}");
        assert_eq!(
            world
                .store
                .finish_step(&claim, permit, output.as_bytes())
                .await
                .unwrap(),
            Write::Done
        );
    }
    let mut offered = question("q");
    offered.seq = 2;
    for _ in 0..2 {
        let recorded = world
            .store
            .record_answer(&claim, &offered, b"{\"action\":\"decline\"}", "offered")
            .await;
        assert_eq!(recorded.unwrap(), Write::Done);
    }
    let _open = world
        .store
        .begin_step(
            &claim,
            StepSpec {
                key: "c",
                seq: 3,
                idempotent: false,
                undo: None,
            },
        )
        .await
        .unwrap();
    let journal = world.store.journal(&claim).await.unwrap();
    let short: Vec<_> = journal
        .iter()
        .map(|e| {
            (
                e.kind,
                e.key.as_str(),
                e.seq,
                e.done,
                e.idempotent,
                e.value.as_deref(),
            )
        })
        .collect();
    assert_eq!(
        short,
        [
            (
                JournalKind::Step,
                "b",
                0,
                true,
                false,
                Some(&b"{\"n\":  0}"[..])
            ),
            (
                JournalKind::Step,
                "a",
                1,
                true,
                true,
                Some(&b"{\"n\":  1}"[..])
            ),
            (
                JournalKind::Input,
                "q",
                2,
                true,
                false,
                Some(&b"{\"action\":\"decline\"}"[..])
            ),
            (JournalKind::Step, "c", 3, false, false, None),
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeat_of_a_begin_is_the_same_permission() {
    let world = World::new().await;
    let claim = world.running().await;
    let permit = world.begin(&claim, "s").await;
    assert_eq!(begin_again(&world, &claim, "s").await, (1, 1));
    let other = world.store.begin_step(&claim, step("s")).await.unwrap();
    assert!(matches!(other, Begin::InDoubt), "another act: {other:?}");
    assert_eq!(
        world.store.finish_step(&claim, permit, b"1").await.unwrap(),
        Write::Done
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn one_step_at_a_time_and_no_end_before_its_end() {
    let world = World::new().await;
    let claim = world.running().await;
    let permit = world.begin(&claim, "s").await;
    assert!(matches!(
        world.store.begin_step(&claim, step("t")).await.unwrap(),
        Begin::Stop
    ));
    assert_eq!(
        world.store.complete(&claim, b"{}", NO_WORK).await.unwrap(),
        Write::Lost
    );
    let parked = world
        .store
        .park(&claim, store::ParkedFor::Task, &[question("q")], NO_WORK)
        .await;
    assert_eq!(parked.unwrap(), store::Parked::Stop);
    assert_eq!(
        world.store.finish_step(&claim, permit, b"1").await.unwrap(),
        Write::Done
    );
    assert_eq!(
        world.store.complete(&claim, b"{}", NO_WORK).await.unwrap(),
        Write::Done
    );
}

/// What the store sent when the step began, once more; how many rows allowed it, and began.
async fn begin_again(world: &World, claim: &Claim, key: &str) -> (i64, i64) {
    let client = world.raw().await;
    let (token, act) = tokens(&client, claim, key).await;
    let (id, attempt) = (*claim.id().as_uuid(), claim.attempt());
    let no_undo: Option<&[u8]> = None;
    let sql = include_str!("../../src/sql/begin_step.sql");
    let row = client
        .query_one(
            sql,
            &[
                &id, &attempt, &token, &key, &0_i32, &act, &false, &no_undo, &false,
            ],
        )
        .await
        .unwrap();
    (row.get("allowed"), row.get("begun"))
}

async fn finish_again(world: &World, claim: &Claim, key: &str) -> u64 {
    let client = world.raw().await;
    let (token, act) = tokens(&client, claim, key).await;
    let (id, attempt) = (*claim.id().as_uuid(), claim.attempt());
    let sql = include_str!("../../src/sql/finish_step.sql");
    let output: &[u8] = b"1";
    client
        .execute(sql, &[&id, &attempt, &token, &key, &act, &output])
        .await
        .unwrap()
}

async fn tokens(client: &Client, claim: &Claim, key: &str) -> (Uuid, Uuid) {
    let sql = "SELECT claim_token, act FROM steps WHERE task_id = $1 AND key = $2";
    let row = client
        .query_one(sql, &[claim.id().as_uuid(), &key])
        .await
        .unwrap();
    (row.get(0), row.get(1))
}

/// A connection that was cut keeps its statement: it may run after its own repeat, and after
/// whatever the worker did next.
#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_arrives_late_opens_and_closes_nothing() {
    let world = World::new().await;
    let claim = world.running().await;
    let permit = world.begin(&claim, "a").await;
    let _ = world.store.finish_step(&claim, permit, b"1").await.unwrap();
    // Begin, again, after the finish: the journal has it, nothing is open.
    assert_eq!(begin_again(&world, &claim, "a").await, (1, 0));
    assert_eq!(world.column(claim.id(), "open_step").await, None);
    // Finish, again, after the next begin: that one stays open.
    let next = world.begin(&claim, "b").await;
    assert_eq!(finish_again(&world, &claim, "a").await, 1);
    assert_eq!(
        world.column(claim.id(), "open_step").await.as_deref(),
        Some("b")
    );
    let _ = world.store.finish_step(&claim, next, b"2").await.unwrap();
    assert_eq!(
        world.store.complete(&claim, b"{}", NO_WORK).await.unwrap(),
        Write::Done
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_step_is_in_doubt_for_the_next_attempt_unless_it_may_be_repeated() {
    let world = World::new().await;
    for idempotent in [false, true] {
        let spec = StepSpec {
            key: "s",
            seq: 0,
            idempotent,
            undo: None,
        };
        let claim = world.running().await;
        let _lost = world.store.begin_step(&claim, spec).await.unwrap();
        let next = world.steal(claim.id()).await;
        assert_eq!(next.open_step.as_deref(), Some("s"));
        let begin = world.store.begin_step(&next, spec).await.unwrap();
        match begin {
            Begin::Act(permit) if idempotent => {
                assert_eq!(
                    world.store.finish_step(&next, permit, b"1").await.unwrap(),
                    Write::Done
                );
                assert_eq!(
                    world.store.complete(&next, b"{}", NO_WORK).await.unwrap(),
                    Write::Done
                );
            }
            Begin::InDoubt if !idempotent => {
                assert_eq!(
                    world.store.complete(&next, b"{}", NO_WORK).await.unwrap(),
                    Write::Lost
                );
                assert_eq!(
                    world
                        .store
                        .fail(&next, b"{}", "in doubt", NO_WORK)
                        .await
                        .unwrap(),
                    Ended::Done
                );
            }
            other => panic!("{idempotent} {other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_act_that_did_not_happen_leaves_no_trace() {
    let world = World::new().await;
    let claim = world.running().await;
    let permit = world.begin(&claim, "s").await;
    assert_eq!(
        world.store.abandon_step(&claim, permit).await.unwrap(),
        Write::Done
    );
    assert!(world.store.journal(&claim).await.unwrap().is_empty());
    let permit = world.begin(&claim, "s").await;
    assert_eq!(
        world.store.finish_step(&claim, permit, b"1").await.unwrap(),
        Write::Done
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn no_step_begins_after_the_ttl() {
    let world = World::new().await;
    let claim = world.running().await;
    world.set(claim.id(), "expires_at = now()").await;
    assert!(matches!(
        world.store.begin_step(&claim, step("s")).await.unwrap(),
        Begin::Stop
    ));
    assert_eq!(
        world.value("SELECT count(*) FROM steps").await.as_deref(),
        Some("0")
    );
}
