//! Limits of tools: never exceeded, whoever races, and no slot is lost.

use std::sync::Arc;
use std::time::Duration;

use protocol::TaskId;
use store::{
    Claim, ClaimRequest, Limits, Parked, ParkedFor, Served, Slots, Store, ToolPolicy, Turn,
    TurnRequest, UnhintedFilter, Waiting, Write,
};
use tokio::task::JoinSet;

use crate::support::{self, NO_WORK, SECOND, World, principal, question, token};
use crate::turns::{flood, next_of, served};

const THREE: Limits = Limits {
    all: Some(3),
    each: None,
};
const TWO_EACH: Limits = Limits {
    all: Some(3),
    each: Some(2),
};

/// As a worker does it, with or without a hint.
async fn take(store: &Store, limits: Limits, hint: Option<TaskId>) -> Option<Claim> {
    if let Some(id) = hint {
        let request = ClaimRequest {
            id,
            tool: "report",
            version: 1,
            resumes: &[1],
            token: token(),
            worker: "worker-1",
        };
        return store.claim_limited(&request, limits).await.unwrap();
    }
    let tools = [served("report", limits)];
    let request = || TurnRequest {
        queue: "default",
        tools: &tools,
        token: token(),
        worker: "worker-1",
        oldest_first: false,
    };
    loop {
        match store.claim_best(&request()).await.unwrap() {
            Turn::Limited { tool, queue, .. } => {
                assert_eq!((tool.as_str(), queue.as_str()), ("report", "default"));
            }
            Turn::Busy => continue,
            Turn::Nothing => return None,
            other => panic!("a limited job is not taken without the lock: {other:?}"),
        }
        match store.claim_slot(&request()).await.unwrap() {
            Turn::Claimed { claim, .. } => return Some(*claim),
            Turn::Busy | Turn::Nothing => {}
            other => panic!("{other:?}"),
        }
    }
}

async fn running(world: &World) -> String {
    let running = "SELECT count(*) FROM tasks WHERE phase = 'running' AND lease_until > now()";
    world.value(running).await.unwrap()
}

async fn listed(world: &World, limits: Limits) {
    let policy = ToolPolicy {
        concurrency: limits.all,
        concurrency_per_principal: limits.each,
        ..ToolPolicy::default()
    };
    let definition = protocol::tools::Tool::new("report", &serde_json::json!({"type": "object"}));
    let spec = store::ToolSpec {
        policy,
        ..store::ToolSpec::new(definition)
    };
    world
        .store
        .register_tools(&[spec], 60 * SECOND)
        .await
        .unwrap();
}

/// A hundred claims at once, some by the hinted id and some by turn, from four workers.
#[tokio::test(flavor = "multi_thread")]
async fn of_a_hundred_racing_claims_as_many_win_as_there_are_slots() {
    let world = World::new().await;
    let workers: Vec<Store> = (0..4)
        .map(|_| {
            support::store(store::Config {
                lease: Duration::from_secs(60),
                ..support::config(world.database.url())
            })
        })
        .collect();
    let mut ids = Vec::new();
    for n in 0..100 {
        let owner = principal(&format!("p{}", n % 5));
        ids.push(flood(&world, &owner, &ToolPolicy::default(), 1).await);
    }
    let race = async |limits: Limits| {
        let mut claims = JoinSet::new();
        for (n, id) in ids.iter().copied().enumerate() {
            let store = workers[n % 4].clone();
            let hint = (n % 2 == 0).then_some(id);
            claims.spawn(async move { take(&store, limits, hint).await });
        }
        let won: Vec<Claim> = claims.join_all().await.into_iter().flatten().collect();
        won
    };
    let first = race(THREE).await;
    assert_eq!((first.len(), running(&world).await.as_str()), (3, "3"));
    assert!(race(THREE).await.is_empty(), "it is full");
    // Every slot that is given back is taken once more, and no other.
    for claim in &first[..2] {
        let done = world.store.complete(claim, b"{}", NO_WORK).await;
        assert_eq!(done.unwrap(), Write::Done);
    }
    assert_eq!(race(THREE).await.len(), 2);
    // A higher limit lets more in, and one for each principal counts each alone.
    let more = Limits {
        all: None,
        each: Some(3),
    };
    let _ = race(more).await;
    let most = "SELECT max(n) FROM (SELECT count(*) AS n FROM tasks WHERE phase = 'running' GROUP BY subject) x";
    assert_eq!(world.value(most).await.as_deref(), Some("3"));
    assert_eq!(running(&world).await, "15");
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_ends_an_attempt_frees_its_slot() {
    let world = World::new().await;
    let policy = ToolPolicy {
        tries_max: 9,
        ..ToolPolicy::default()
    };
    flood(&world, &world.alice, &policy, 12).await;
    let one = Limits {
        all: Some(1),
        each: None,
    };
    let store = &world.store;
    let full = async || assert!(take(store, one, None).await.is_none(), "one runs");
    let claim = take(store, one, None).await.unwrap();
    full().await;
    let asked = [question("q")];
    let parked = store.park(&claim, ParkedFor::Task, &asked, NO_WORK);
    assert_eq!(parked.await.unwrap(), Parked::Parked);
    let claim = take(store, one, None)
        .await
        .expect("a parked task has none");
    full().await;
    let tried = store.retry(&claim, "not yet", support::HOUR, NO_WORK).await;
    assert_eq!(tried.unwrap(), Write::Done);
    let claim = take(store, one, None).await.expect("nor one backing off");
    full().await;
    let released = store.release(&claim, None, NO_WORK).await;
    assert_eq!(released.unwrap(), Write::Done);
    let claim = take(store, one, None).await.expect("nor one handed back");
    full().await;
    let _ = store
        .fail(&claim, b"{\"code\":1}", "m", NO_WORK)
        .await
        .unwrap();
    let claim = take(store, one, None).await.expect("nor a failed one");
    full().await;
    // A killed worker: as soon as its lease may be judged.
    world.lose_lease(claim.id()).await;
    let next = harness::wait::until("a lost lease frees its slot", 20 * SECOND, async || {
        take(store, one, None).await
    });
    let next = next.await.unwrap();
    // The lost job itself waits for a slot like any other.
    assert!(take(store, one, Some(claim.id())).await.is_none());
    let done = store.complete(&next, b"{}", NO_WORK).await;
    assert_eq!(done.unwrap(), Write::Done);
    let again = take(store, one, Some(claim.id())).await.unwrap();
    assert_eq!(again.attempt(), claim.attempt() + 1);
    full().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeat_by_the_same_token_needs_no_second_slot() {
    let world = World::new().await;
    let id = world.queued().await;
    let one = Limits {
        all: Some(1),
        each: Some(1),
    };
    let request = ClaimRequest {
        id,
        tool: "report",
        version: 1,
        resumes: &[1],
        token: token(),
        worker: "worker-1",
    };
    for _ in 0..2 {
        let claim = world.store.claim_limited(&request, one).await.unwrap();
        assert_eq!(claim.unwrap().attempt(), 1);
    }
}

/// The flood of a principal that is at its own limit hides nobody.
#[tokio::test(flavor = "multi_thread")]
async fn who_is_at_the_limit_lets_others_pass() {
    let world = World::new().await;
    flood(&world, &world.alice, &ToolPolicy::default(), 50).await;
    for _ in 0..2 {
        assert!(take(&world.store, TWO_EACH, None).await.is_some());
    }
    assert!(take(&world.store, TWO_EACH, None).await.is_none());
    let offer = served("report", TWO_EACH);
    let next = async |offer: &Served<'_>| world.store.next_waiting("default", offer).await.unwrap();
    assert_eq!(
        next(&offer).await,
        Waiting::Nobody,
        "nobody waits who could run"
    );
    let id = flood(&world, &world.mallory, &ToolPolicy::default(), 1).await;
    assert_eq!(next(&offer).await, Waiting::Next { id, version: 1 });
    assert_eq!(
        take(&world.store, TWO_EACH, None).await.unwrap().id(),
        id,
        "looking took nothing"
    );
    assert_eq!(next(&offer).await, Waiting::Nobody);
}

/// Jobs that wait for a slot are not lost: as many are hinted as have one, and no more.
#[tokio::test(flavor = "multi_thread")]
async fn reconcile_hints_as_many_as_have_a_slot() {
    let world = World::new().await;
    listed(&world, TWO_EACH).await;
    let policy = ToolPolicy::default();
    flood(&world, &world.alice, &policy, 20).await;
    flood(&world, &world.mallory, &policy, 20).await;
    world
        .run("UPDATE tasks SET hinted_at = now() - interval '1 hour', hint_count = 9")
        .await;
    let epochs = ["epoch".to_owned()];
    let found = async |epochs: &[String]| {
        let filter = UnhintedFilter {
            epochs,
            age: 5 * SECOND,
            tools: None,
            limit: 1_000,
        };
        world.store.unhinted(&filter).await.unwrap()
    };
    let lost = async || {
        let epochs = ["another".to_owned()];
        let ages = world.store.unhinted_ages(&epochs).await.unwrap();
        ages.iter().map(|age| age.jobs).sum::<i64>()
    };
    assert_eq!(found(&epochs).await.len(), 3);
    assert_eq!(lost().await, 40, "none has a hint, and there are slots");
    let first = take(&world.store, TWO_EACH, None).await.unwrap();
    assert_eq!(found(&epochs).await.len(), 2);
    let shown = |slots: &Slots| (slots.running, slots.due, slots.able);
    assert_eq!(shown(&world.store.slots().await.unwrap()[0]), (1, 39, 2));
    for _ in 0..2 {
        assert!(take(&world.store, TWO_EACH, None).await.is_some());
    }
    // Nor does an emptied Redis make a storm of them.
    assert_eq!(found(&["another".to_owned()]).await, []);
    assert_eq!(lost().await, 0, "they wait for a slot");
    assert_eq!(shown(&world.store.slots().await.unwrap()[0]), (3, 37, 0));
    let _ = world.store.complete(&first, b"{}", NO_WORK).await.unwrap();
    let found = found(&epochs).await;
    assert_eq!(found.len(), 1);
    let hinted: Vec<_> = found
        .into_iter()
        .map(|job| (job, Some("epoch".to_owned())))
        .collect();
    world.store.mark_found_hinted(&hinted).await.unwrap();
    assert_eq!(lost().await, 37, "a hint of another epoch is none");
    let epochs = ["epoch".to_owned()];
    assert_eq!(world.store.unhinted_ages(&epochs).await.unwrap(), []);
}

/// Two stores count at the same time only if the lock is missing.
#[tokio::test(flavor = "multi_thread")]
async fn a_hung_client_does_not_keep_the_lock() {
    let world = World::new().await;
    let id = world.queued().await;
    let client = world.raw().await;
    client
        .batch_execute(
            "SET idle_in_transaction_session_timeout = '1s'; BEGIN; \
             SELECT pg_advisory_xact_lock(1836279924, hashtext('report'))",
        )
        .await
        .unwrap();
    let store = Arc::new(world.store.clone());
    let claim = take(&store, THREE, Some(id)).await;
    assert!(claim.is_some(), "it was waited for");
}

/// More ask together than there are slots: some are told whose the slot may be, the others that there is nothing, and
/// nobody that it is being taken, which would have them take their own.
#[tokio::test(flavor = "multi_thread")]
async fn who_finds_no_slot_is_not_told_to_look_again() {
    let world = World::new().await;
    let policy = ToolPolicy::default();
    flood(&world, &world.alice, &policy, 50).await;
    flood(&world, &world.mallory, &policy, 1).await;
    let one = Limits {
        all: Some(1),
        each: None,
    };
    let mut asking = JoinSet::new();
    for _ in 0..16 {
        let store = world.store.clone();
        asking.spawn(async move { next_of(&store, "default", &[served("report", one)]).await });
    }
    let told = asking.join_all().await;
    let limited = told
        .iter()
        .filter(|turn| matches!(turn, Turn::Limited { .. }));
    assert!(limited.count() >= 1, "{told:?}");
    let all = |turn: &Turn| matches!(turn, Turn::Limited { .. } | Turn::Nothing);
    assert!(told.iter().all(all), "{told:?}");
}
