//! Whose turn it is: priorities, and fairness between principals.

use std::collections::BTreeSet;

use protocol::TaskId;
use store::{
    Created, Hinted, Limits, Principal, Served, Store, ToolPolicy, Turn, TurnRequest, Write,
};
use tokio::task::JoinSet;

use crate::support::{self, NO_WORK, World, principal, token};

pub fn served(tool: &str, limits: Limits) -> Served<'_> {
    Served {
        tool,
        version: 1,
        resumes: vec![1],
        limits,
    }
}

/// What a worker of these tools gets that has no hint.
pub async fn next_of(store: &Store, queue: &str, tools: &[Served<'_>]) -> Turn {
    let request = TurnRequest {
        queue,
        tools,
        token: token(),
        worker: "worker-1",
        oldest_first: false,
    };
    store.claim_best(&request).await.unwrap()
}

pub async fn next(store: &Store) -> Option<store::Claim> {
    match next_of(store, "default", &[served("report", Limits::default())]).await {
        Turn::Claimed { claim, .. } => Some(*claim),
        Turn::Nothing => None,
        other => panic!("{other:?}"),
    }
}

pub async fn flood(world: &World, owner: &Principal, policy: &ToolPolicy, jobs: usize) -> TaskId {
    let mut last = None;
    for _ in 0..jobs {
        match support::create(&world.store, owner, policy, |_| ()).await {
            Created::New(task) => last = Some(task.id),
            other => panic!("{other:?}"),
        }
    }
    last.unwrap()
}

/// Whichever way a job is taken, a worker gets what was said, and not what is stored.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_sealed_is_opened_for_whoever_takes_it_by_turn() {
    let world = World::new().await;
    let with = |ids: &[&str]| {
        let config = support::config(world.database.url());
        support::store(config).with_encryption(&support::encryption(ids))
    };
    let (here, lacking) = (with(&["k1"]), with(&["k2"]));
    let (policy, tools) = (ToolPolicy::default(), [served("report", Limits::default())]);
    let request = |token| TurnRequest {
        queue: "default",
        tools: &tools,
        token,
        worker: "worker-1",
        oldest_first: false,
    };
    for by_slot in [false, true] {
        let take = async |store: &Store| match by_slot {
            false => store.claim_best(&request(token())).await.unwrap(),
            true => store.claim_slot(&request(token())).await.unwrap(),
        };
        let said = support::create(&here, &world.alice, &policy, |new| {
            new.arguments = "{\"said\":1}".into();
        });
        let Created::New(task) = said.await else {
            panic!("it is new")
        };
        // Not tried, and there for whoever has the key.
        assert!(matches!(take(&lacking).await, Turn::Busy));
        let put_off = "phase || ' ' || tries || ' ' || (run_at > now())";
        let put_off = world.column(task.id, put_off).await;
        assert_eq!(put_off.as_deref(), Some("queued 0 true"));
        world.set(task.id, "run_at = now(), asleep = false").await;
        let Turn::Claimed { claim, .. } = take(&here).await else {
            panic!("it is due")
        };
        assert_eq!(claim.arguments, "{\"said\":1}");
        let written = here.complete(&claim, b"\"done\"", NO_WORK).await;
        assert_eq!(written.unwrap(), Write::Done);
        let sealed = world.column(task.id, "substr(result, 1, 1) = '\\xff'");
        assert_eq!(sealed.await.as_deref(), Some("t"));
    }
}

async fn subjects(world: &World, jobs: usize) -> Vec<String> {
    let mut subjects = Vec::new();
    for _ in 0..jobs {
        let claim = next(&world.store).await.unwrap();
        subjects.push(claim.principal.subject.clone());
    }
    subjects
}

#[tokio::test(flavor = "multi_thread")]
async fn one_job_does_not_wait_for_a_flood_of_another_principal() {
    let world = World::new().await;
    let policy = ToolPolicy::default();
    flood(&world, &world.alice, &policy, 200).await;
    // Half of the places are Alice's already.
    assert_eq!(subjects(&world, 3).await, ["alice"; 3]);
    flood(&world, &world.mallory, &policy, 1).await;
    assert_eq!(subjects(&world, 2).await, ["mallory", "alice"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn places_are_shared_evenly_and_the_longest_waiting_goes_first() {
    let world = World::new().await;
    let policy = ToolPolicy::default();
    for subject in ["a", "b", "c"] {
        flood(&world, &principal(subject), &policy, 30).await;
    }
    let mut got = subjects(&world, 12).await;
    assert_eq!(got[..3], ["a", "b", "c"], "as they came");
    got.sort_unstable();
    let expected = [["a"; 4], ["b"; 4], ["c"; 4]].concat();
    assert_eq!(got, expected);
    // A job that ends makes room for its principal's next one.
    let claim = next(&world.store).await.unwrap();
    let subject = claim.principal.subject.clone();
    let completed = world.store.complete(&claim, b"{}", NO_WORK).await;
    assert_eq!(completed.unwrap(), Write::Done);
    assert_eq!(subjects(&world, 1).await, [subject]);
}

/// More principals than are looked at for one claim.
#[tokio::test(flavor = "multi_thread")]
async fn of_many_principals_each_gets_its_turn() {
    let world = World::new().await;
    let policy = ToolPolicy::default();
    for n in 0..60 {
        flood(&world, &principal(&format!("p{n}")), &policy, 2).await;
    }
    let got = subjects(&world, 120).await;
    let first: BTreeSet<&String> = got[..60].iter().collect();
    // Those that are looked at are drawn by lot: nearly all are served once before any is twice.
    assert!(first.len() >= 50, "{} of 60", first.len());
    let all: BTreeSet<&String> = got.iter().collect();
    assert_eq!(all.len(), 60);
    assert!(next(&world.store).await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn of_twenty_workers_each_gets_another_job() {
    let world = World::new().await;
    for subject in ["a", "b"] {
        flood(&world, &principal(subject), &ToolPolicy::default(), 10).await;
    }
    let mut workers = JoinSet::new();
    for _ in 0..30 {
        let store = world.store.clone();
        workers.spawn(async move {
            loop {
                let tools = [served("report", Limits::default())];
                match next_of(&store, "default", &tools).await {
                    Turn::Claimed { claim, .. } => return Some(claim.id()),
                    Turn::Nothing => return None,
                    Turn::Busy => {}
                    other => panic!("{other:?}"),
                }
            }
        });
    }
    let got: Vec<TaskId> = workers.join_all().await.into_iter().flatten().collect();
    let different: BTreeSet<TaskId> = got.iter().copied().collect();
    assert_eq!((got.len(), different.len()), (20, 20));
    let attempts = "SELECT count(*) FROM tasks WHERE attempt = 1 AND phase = 'running'";
    assert_eq!(world.value(attempts).await.as_deref(), Some("20"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_higher_priority_goes_first_and_the_lower_one_is_not_forgotten() {
    let world = World::new().await;
    let of = |priority| ToolPolicy {
        priority,
        ..ToolPolicy::default()
    };
    let low = flood(&world, &world.alice, &of(-5), 1).await;
    let middle = flood(&world, &world.alice, &of(0), 1).await;
    flood(&world, &world.alice, &of(7), 3).await;
    let tools = [served("report", Limits::default())];
    let take = async |oldest_first| {
        let request = TurnRequest {
            queue: "default",
            tools: &tools,
            token: token(),
            worker: "worker-1",
            oldest_first,
        };
        match world.store.claim_best(&request).await.unwrap() {
            Turn::Claimed { claim, .. } => claim.id(),
            other => panic!("{other:?}"),
        }
    };
    let first = take(false).await;
    assert_ne!((first, first), (low, middle));
    assert_eq!(take(true).await, low, "it has waited longest");
    assert_eq!(take(true).await, middle);
    let rest = [take(false).await, take(false).await];
    assert!(!rest.contains(&low) && !rest.contains(&middle));
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_is_due_and_served_is_taken() {
    let world = World::new().await;
    let id = world.queued().await;
    let tools = [served("report", Limits::default())];
    let nothing = async |queue: &str, tools: &[Served<'_>]| {
        let turn = next_of(&world.store, queue, tools).await;
        assert!(matches!(turn, Turn::Nothing), "{turn:?}");
    };
    nothing("gpu", &tools).await;
    nothing("default", &[served("other", Limits::default())]).await;
    for (not, again) in [
        ("run_at = now() + interval '1 hour'", "run_at = now()"),
        (
            "stop_requested_at = now(), stop_reason = 'cancelled'",
            "stop_requested_at = NULL, stop_reason = NULL",
        ),
        (
            "expires_at = now()",
            "expires_at = now() + interval '1 hour'",
        ),
        (
            "journaled = true, tool_version = 2",
            "journaled = false, tool_version = 1",
        ),
    ] {
        world.set(id, not).await;
        nothing("default", &tools).await;
        world.set(id, again).await;
    }
    world
        .run("INSERT INTO tool_pauses (tool, jobs, changed_by) VALUES ('report', true, 'x')")
        .await;
    nothing("default", &tools).await;
    world.run("DELETE FROM tool_pauses").await;
    assert_eq!(next(&world.store).await.unwrap().id(), id);
    assert!(next(&world.store).await.is_none());
}

/// A hint leads to the queue of its job, also where the tool's policy names another one by now; to its job, which
/// must be taken over, or undone; or nowhere, because its job does not wait.
#[tokio::test(flavor = "multi_thread")]
async fn a_hint_leads_to_its_jobs_queue() {
    let world = World::new().await;
    let policy = ToolPolicy {
        queue: "old".to_owned(),
        ..ToolPolicy::default()
    };
    let id = flood(&world, &world.alice, &policy, 1).await;
    let hinted = async |id| world.store.hinted(id).await.unwrap();
    let turn = Hinted::Turn("old".to_owned());
    let gone = Hinted::Gone(Some("old".to_owned()));
    assert_eq!(hinted(id).await, turn);
    for (change, leads_to) in [
        ("run_at = now() + interval '1 s'", &gone),
        ("asleep = true", &gone),
        ("run_at = now()", &Hinted::Named),
        ("asleep = false", &turn),
        // Others end it, or it waits for a worker.
        ("expires_at = now()", &turn),
        ("expires_at = NULL", &turn),
        ("journaled = true, tool_version = 7", &turn),
        (
            "phase = 'undoing', pending_status = 'failed'",
            &Hinted::Named,
        ),
        ("run_at = now() + interval '1 s'", &gone),
        (
            "run_at = now(), lease_until = now() + interval '1 s', claim_token = id, attempt = 1",
            &gone,
        ),
        ("lease_until = now() - interval '1 s'", &Hinted::Named),
        ("phase = 'running', pending_status = NULL", &Hinted::Named),
        ("lease_until = now() + interval '1 s'", &gone),
        (
            "phase = 'parked', status = 'input_required', input_requests = '{}', parked_for = 'task', lease_until = NULL",
            &gone,
        ),
    ] {
        world.set(id, change).await;
        assert_eq!(&hinted(id).await, leads_to, "{change}");
    }
    assert_eq!(hinted(TaskId::new(0)).await, Hinted::Gone(None));
    let ended = world.running().await;
    let written = world.store.complete(&ended, b"{}", NO_WORK).await;
    assert_eq!(written.unwrap(), Write::Done);
    let gone = Hinted::Gone(Some("default".to_owned()));
    assert_eq!(hinted(ended.id()).await, gone);
}

/// Whether hints may be followed instead: told only where one principal's jobs of one priority are due. And whether
/// one of several priorities may be forgotten.
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_tells_whether_somebody_is_alone() {
    const ALONE: (bool, bool) = (true, false);
    const TOGETHER: (bool, bool) = (false, false);
    const URGENT: (bool, bool) = (false, true);
    let world = World::new().await;
    let tools = [served("report", Limits::default())];
    let seen = async || match next_of(&world.store, "default", &tools).await {
        Turn::Claimed {
            alone, priorities, ..
        } => (alone, priorities),
        other => panic!("{other:?}"),
    };
    let policy = ToolPolicy::default();
    flood(&world, &world.alice, &policy, 3).await;
    assert_eq!(seen().await, ALONE);
    flood(&world, &world.mallory, &policy, 1).await;
    assert_eq!(seen().await, TOGETHER, "somebody else waits");
    assert_eq!(seen().await, ALONE, "and has been served");
    let urgent = ToolPolicy {
        priority: 5,
        ..ToolPolicy::default()
    };
    flood(&world, &world.alice, &policy, 2).await;
    flood(&world, &world.alice, &urgent, 1).await;
    assert_eq!(seen().await, URGENT, "something more urgent waits");
    assert_eq!(seen().await, ALONE);
}

/// What is locked is left to whoever is at it, and not said to be nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_locked_job_is_no_reason_to_drop_its_hint() {
    let world = World::new().await;
    let id = world.queued().await;
    let client = world.raw().await;
    client
        .batch_execute(&format!(
            "BEGIN; SELECT FROM tasks WHERE id = '{id}' FOR UPDATE"
        ))
        .await
        .unwrap();
    let tools = [served("report", Limits::default())];
    let turn = next_of(&world.store, "default", &tools).await;
    assert!(matches!(turn, Turn::Busy), "{turn:?}");
    client.batch_execute("COMMIT").await.unwrap();
    assert_eq!(next(&world.store).await.unwrap().id(), id);
}

/// Many who ask in one moment share a statement. Each gets a job of its own, or none; whoever has few
/// waits no longer than if they had asked one after another; and each job knows whose it is.
#[tokio::test(flavor = "multi_thread")]
async fn who_asks_together_gets_what_is_each_ones_turn() {
    let world = World::new().await;
    let policy = ToolPolicy::default();
    flood(&world, &world.alice, &policy, 100).await;
    flood(&world, &world.mallory, &policy, 3).await;
    flood(&world, &principal("bob"), &policy, 1).await;
    let ask = async |workers: usize, times: usize| {
        let mut asking = JoinSet::new();
        for n in 0..times {
            let store = world.store.clone();
            let worker = format!("worker-{}", n % workers);
            asking.spawn(async move {
                let tools = [served("report", Limits::default())];
                let request = TurnRequest {
                    queue: "default",
                    tools: &tools,
                    token: token(),
                    worker: &worker,
                    oldest_first: n % 8 == 7,
                };
                let turn = loop {
                    match store.claim_best(&request).await.unwrap() {
                        Turn::Busy => {}
                        turn => break turn,
                    }
                };
                match turn {
                    Turn::Claimed { claim, .. } => {
                        let subject = claim.principal.subject.clone();
                        Some((claim.id(), subject, worker))
                    }
                    Turn::Nothing => None,
                    other => panic!("{other:?}"),
                }
            });
        }
        asking.join_all().await
    };
    let first: Vec<_> = ask(1, 24).await.into_iter().flatten().collect();
    assert_eq!(first.len(), 24);
    let of = |who: &str| first.iter().filter(|job| job.1 == who).count();
    assert_eq!((of("mallory"), of("bob")), (3, 1), "{first:?}");
    let rest: Vec<_> = ask(4, 100).await.into_iter().flatten().collect();
    assert_eq!(rest.len(), 80, "twenty get nothing");
    let mut jobs = BTreeSet::new();
    for (id, _, worker) in first.iter().chain(&rest) {
        assert!(jobs.insert(*id), "{id} was given twice");
        let claimed_by = world.column(*id, "claimed_by").await;
        assert_eq!(claimed_by.as_deref(), Some(worker.as_str()));
    }
}
