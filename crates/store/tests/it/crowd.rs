//! Thousands of principals whose jobs are not due hide nothing that is: whose turn it is, who gets a
//! slot, how long others wait.

use bytes::Bytes;
use protocol::TaskId;
use store::{Awaited, Claim, Hinted, Limits, NewCallback, Open, ToolPolicy, Wait, Waiting};

use crate::operate::unhinted;
use crate::support::{HOUR, NO_WORK, World, principal};
use crate::turns::{flood, next, served};

const MANY: Limits = Limits {
    all: Some(1_000),
    each: None,
};

/// A task of Alice's that waits for a service.
async fn waiter(world: &World) -> Claim {
    let claim = world.running().await;
    let new = NewCallback {
        key: "call".to_owned(),
        seq: 0,
        wait: HOUR,
        signed_by: "one".to_owned(),
        proves: None::<(String, Bytes)>,
    };
    let opened = world.store.open_callback(&claim, &new).await.unwrap();
    assert!(matches!(opened, Open::Open(_)));
    let wait = Wait {
        key: "call",
        in_doubt: false,
        message: None,
    };
    let awaited = world.store.wait_callback(&claim, wait, NO_WORK).await;
    assert_eq!(awaited.unwrap(), Awaited::Waiting);
    claim
}

/// The same job, for each of 3,000 other principals.
async fn crowd_of(world: &World, id: TaskId) {
    let copies = format!(
        "INSERT INTO tasks SELECT copy.* FROM tasks t, generate_series(1, 3000) n,
             LATERAL jsonb_populate_record(t, jsonb_build_object(
                 'id', gen_random_uuid(), 'subject', 'crowd-' || n)) copy
         WHERE t.id = '{id}'"
    );
    world.run(&copies).await;
    world.run("ANALYZE tasks").await;
}

/// Pages that one look at whose turn it is reads.
async fn pages(world: &World) -> u64 {
    let client = world.raw().await;
    let look = include_str!("../../src/sql/claim_best.sql");
    let explain = format!(
        "SET plan_cache_mode = force_generic_plan; PREPARE look AS {look};
         EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE look ('default', ARRAY['report'],
             ARRAY[1], ARRAY[1000], ARRAY[NULL]::int[], ARRAY['report'], ARRAY[1],
             ARRAY[gen_random_uuid()], 60000, 0, 60000, 'worker-1', 0, false, 'look', 1)"
    );
    let rows = client.simple_query(&explain).await.unwrap();
    let plan = rows.iter().find_map(|message| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    let plan: serde_json::Value = serde_json::from_str(plan.unwrap()).unwrap();
    let read = |key| plan[0]["Plan"][key].as_u64().unwrap();
    read("Shared Hit Blocks") + read("Shared Read Blocks")
}

/// Every look finds the principal whose turn it is, and every free slot somebody who takes it.
async fn nobody_is_hidden(world: &World) {
    let policy = ToolPolicy::default();
    flood(world, &principal("one"), &policy, 30).await;
    flood(world, &principal("two"), &policy, 30).await;
    let read = pages(world).await;
    assert!(read < 600, "{read} pages for one look");
    let tool = served("report", MANY);
    for _ in 0..30 {
        let next_one = world.store.next_waiting("default", &tool).await.unwrap();
        assert!(matches!(next_one, Waiting::Next { .. }), "{next_one:?}");
        let mut pair = Vec::new();
        for _ in 0..2 {
            let claim = next(&world.store).await.expect("jobs are due");
            pair.push(claim.principal.subject.clone());
        }
        pair.sort_unstable();
        assert_eq!(pair, ["one", "two"]);
    }
    assert!(next(&world.store).await.is_none());
    let next_one = world.store.next_waiting("default", &tool).await.unwrap();
    assert_eq!(next_one, Waiting::Nobody);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_a_service_hides_nobody() {
    let world = World::new().await;
    let claim = waiter(&world).await;
    crowd_of(&world, claim.id()).await;
    nobody_is_hidden(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_backs_off_hides_nobody() {
    let world = World::new().await;
    let claim = world.running().await;
    let retried = world.store.retry(&claim, "no", HOUR, NO_WORK).await;
    assert_eq!(retried.unwrap(), store::Write::Done);
    crowd_of(&world, claim.id()).await;
    nobody_is_hidden(&world).await;
    // Backoffs that are short, or that release 0.1.0 wrote.
    world.run("UPDATE tasks SET asleep = false").await;
    nobody_is_hidden(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_waits_of_others_are_seen_behind_a_crowd() {
    let world = World::new().await;
    let id = world.queued().await;
    world
        .set(id, "tool = 'early', run_at = now() + interval '1 hour'")
        .await;
    crowd_of(&world, id).await;
    flood(&world, &world.mallory, &ToolPolicy::default(), 2).await;
    let waits = world.store.queue_waits().await.unwrap();
    let seen: Vec<_> = waits
        .iter()
        .map(|wait| (wait.tool.as_str(), wait.subject.as_str(), wait.runs))
        .collect();
    assert_eq!(seen, [("report", "mallory", false)]);
}

/// A wait whose time is over is found by reconcile; its hint leads to it, and it has its turn again.
#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_is_over_is_found() {
    let world = World::new().await;
    let id = waiter(&world).await.id();
    assert_eq!(unhinted(&world).await, []);
    flood(&world, &world.mallory, &ToolPolicy::default(), 1).await;
    world.set(id, "run_at = now() - interval '1 second'").await;
    // A hint that release 0.1.0 pushed: nothing but the hint leads to the job.
    let hinted = async || world.store.hinted(id).await.unwrap();
    assert_eq!(hinted().await, Hinted::Named);
    assert_eq!(unhinted(&world).await, [id]);
    assert_eq!(hinted().await, Hinted::Turn("default".to_owned()));
    let claim = next(&world.store).await.expect("both are due");
    assert_eq!(claim.id(), id, "it has waited longest");
    // Nor is it passed over when its next attempt waits for nothing.
    let waits = world.column(id, "asleep").await;
    assert_eq!(waits.as_deref(), Some("f"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_an_operator_ends_has_its_turn() {
    let world = World::new().await;
    let id = waiter(&world).await.id();
    assert!(next(&world.store).await.is_none());
    let client = world.raw().await;
    let requeue = include_str!("../../src/sql/requeue_task.sql");
    client.query(requeue, &[id.as_uuid()]).await.unwrap();
    assert_eq!(next(&world.store).await.unwrap().id(), id);
}

/// Where each slot is taken at once by those who wait, what was asleep gets its own: also of a limited
/// tool, of which reconcile hints no more than have a slot.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_asleep_waits_for_a_slot_like_others() {
    let world = World::new().await;
    let id = waiter(&world).await.id();
    flood(&world, &world.mallory, &ToolPolicy::default(), 2).await;
    let one = Limits {
        all: Some(1),
        each: None,
    };
    let running = next(&world.store).await.unwrap();
    world.set(id, "run_at = now() - interval '1 hour'").await;
    let tool = served("report", one);
    unhinted(&world).await;
    let written = world.store.complete(&running, b"{}", NO_WORK).await;
    assert_eq!(written.unwrap(), store::Write::Done);
    match world.store.next_waiting("default", &tool).await.unwrap() {
        Waiting::Next { id: waits, .. } => assert_eq!(waits, id),
        other => panic!("{other:?}"),
    }
}
