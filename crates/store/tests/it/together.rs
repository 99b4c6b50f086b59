//! What concurrent callers ask together: whoever is at fault is alone with it, whoever is let down asks
//! again, and nobody is told of a commit that is none.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use protocol::{TaskId, TaskStatus};
use store::{ClaimRequest, Created, Error, NewTask, Store, ToolPolicy, Write};
use tokio::task::JoinSet;

use crate::support::{
    HOUR, NO_WORK, SECOND, World, claim_as, config, principal, store, task_id, token,
};

/// More than are in flight at once, so that most have to gather.
const CALLERS: usize = 40;
/// Statements in flight at once, of one kind and one process.
const IN_FLIGHT: u32 = 2;

/// How many writes of this kind went over the wire, and in how many commits.
fn shared(registry: &telemetry::Registry, operation: &str) -> (f64, f64) {
    let text = registry.render();
    let read = |what: &str| {
        let name = format!("mcp_tasks_store_writes_together_{what}{{operation=\"{operation}\"}} ");
        let line = text.lines().find_map(|line| line.strip_prefix(&name));
        line.map_or(0.0, |value| value.parse().unwrap())
    };
    (read("sum"), read("count"))
}

fn watched(world: &World) -> (Store, telemetry::Registry) {
    let registry = telemetry::Registry::new();
    let store = Store::new(config(world.database.url()), &registry).unwrap();
    (store, registry)
}

/// Creates as a caller would that may be refused.
async fn try_create(store: &Store, id: TaskId, key: Option<&str>) -> Result<Created, Error> {
    let (alice, policy) = (principal("alice"), ToolPolicy::default());
    let new = NewTask {
        id,
        principal: &alice,
        tool: "report",
        tool_version: 1,
        policy: &policy,
        arguments: bytes::Bytes::from_static(b"{}"),
        arguments_digest: [7; 32],
        client_capabilities: bytes::Bytes::from_static(b"{}"),
        offered_responses: None,
        trace_context: None,
        idempotency_key: key,
        status_message: "queued",
        hold: HOUR,
        handed_out: true,
        hint_epoch: None,
    };
    store.create(&new).await
}

async fn tasks(world: &World) -> HashSet<String> {
    let rows = world.database.rows("SELECT id::text FROM tasks").await;
    rows.unwrap().into_iter().flatten().flatten().collect()
}

/// Keeps all writes to tasks waiting until it is dropped.
async fn dam(world: &World) -> tokio_postgres::Client {
    let client = world.raw().await;
    let lock = "BEGIN; LOCK TABLE tasks IN SHARE ROW EXCLUSIVE MODE";
    client.batch_execute(lock).await.unwrap();
    client
}

/// Every task that was begun has run as far as it can. On one thread only.
async fn settled() {
    for _ in 0..4 * CALLERS {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn creations_that_meet_share_a_commit_and_a_broken_one_fails_alone() {
    let world = World::new().await;
    let (store, registry) = watched(&world);
    let dam = dam(&world).await;
    let mut calls = JoinSet::new();
    for n in 0..CALLERS {
        let store = store.clone();
        calls.spawn(async move {
            // Postgres knows no NUL in a text.
            let key = (n == CALLERS / 2).then_some("bro\0ken");
            (key.is_some(), try_create(&store, task_id(), key).await)
        });
    }
    world.waiting(IN_FLIGHT).await;
    settled().await;
    dam.batch_execute("ROLLBACK").await.unwrap();
    let mut created = HashSet::new();
    for (broken, result) in calls.join_all().await {
        match result {
            Ok(Created::New(task)) => assert!(!broken && created.insert(task.id.to_string())),
            Err(Error::Bug(_)) => assert!(broken, "only the broken one is refused"),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(created.len(), CALLERS - 1);
    assert_eq!(tasks(&world).await, created);
    let (writes, commits) = shared(&registry, "create");
    assert!(
        writes > 4.0 * commits,
        "{writes} writes in {commits} commits"
    );
}

#[tokio::test]
async fn whoever_leads_may_go_away_and_so_may_those_who_wait() {
    let world = World::new().await;
    let (store, _) = watched(&world);
    let dam = dam(&world).await;
    let begin = |n: usize| {
        let (store, id) = (store.clone(), task_id());
        let calling = async move { try_create(&store, id, None).await };
        let mut call = JoinSet::new();
        call.spawn(calling);
        (n, id, call)
    };
    let leaders: Vec<_> = (0..2).map(begin).collect();
    world.waiting(IN_FLIGHT).await;
    let waiting: Vec<_> = (2..CALLERS).map(begin).collect();
    settled().await;
    // Those who wait go first, so that nobody leads for them any more; then one who leads.
    let mut gone = HashSet::new();
    let mut staying = Vec::new();
    for (n, id, mut call) in waiting {
        if n % 2 == 0 {
            call.abort_all();
            gone.insert(id.to_string());
        } else {
            staying.push((id, call));
        }
    }
    settled().await;
    let mut leaders = leaders.into_iter();
    leaders.next().unwrap().2.abort_all();
    settled().await;
    dam.batch_execute("ROLLBACK").await.unwrap();
    for (id, mut call) in staying {
        let created = call.join_next().await.unwrap().unwrap().unwrap();
        assert!(matches!(created, Created::New(task) if task.id == id));
    }
    let other = leaders.next().unwrap().2.join_next().await;
    assert!(other.unwrap().unwrap().is_ok());
    let there = tasks(&world).await;
    assert_eq!(
        there.intersection(&gone).count(),
        0,
        "who went away in time is not asked for"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn crossing_keys_of_two_processes_make_one_task_each() {
    let world = World::new().await;
    let stores = [world.store.clone(), store(config(world.database.url()))];
    let mut calls = JoinSet::new();
    for n in 0..4 * CALLERS {
        // The two come to the same keys from opposite ends.
        let key = if n % 2 == 0 {
            n / 2
        } else {
            2 * CALLERS - 1 - n / 2
        };
        let store = stores[n % 2].clone();
        calls.spawn(async move {
            let key = format!("key-{key:03}");
            let created = try_create(&store, task_id(), Some(&key)).await.unwrap();
            (key, created)
        });
    }
    let mut by_key: HashMap<String, Vec<(bool, TaskId)>> = HashMap::new();
    for (key, created) in calls.join_all().await {
        let found = match created {
            Created::New(task) => (true, task.id),
            Created::Existing(task) => (false, task.id),
            Created::KeyReused => panic!("the arguments are the same"),
        };
        by_key.entry(key).or_default().push(found);
    }
    assert_eq!(by_key.len(), 2 * CALLERS);
    for (key, found) in &by_key {
        let new = found.iter().filter(|(new, _)| *new).count();
        let ids: HashSet<_> = found.iter().map(|(_, id)| id).collect();
        assert_eq!((found.len(), new, ids.len()), (2, 1, 1), "{key}: {found:?}");
    }
    assert_eq!(tasks(&world).await.len(), 2 * CALLERS);
    // Nobody waited for somebody who waited: a deadlock would have been broken by Postgres.
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    assert_eq!(world.value(deadlocks).await.as_deref(), Some("0"));
}

/// One key twice within one statement: one task, and everybody is told which.
#[tokio::test]
async fn one_key_many_times_in_one_statement_is_one_task() {
    let world = World::new().await;
    let (store, registry) = watched(&world);
    let dam = dam(&world).await;
    let mut calls = JoinSet::new();
    for _ in 0..CALLERS {
        let store = store.clone();
        calls.spawn(async move { try_create(&store, task_id(), Some("key")).await.unwrap() });
    }
    world.waiting(IN_FLIGHT).await;
    settled().await;
    dam.batch_execute("ROLLBACK").await.unwrap();
    let (mut new, mut ids) = (0, HashSet::new());
    for created in calls.join_all().await {
        match created {
            Created::New(task) => {
                new += 1;
                ids.insert(task.id);
            }
            Created::Existing(task) => drop(ids.insert(task.id)),
            Created::KeyReused => panic!("the arguments are the same"),
        }
    }
    assert_eq!((new, ids.len()), (1, 1));
    let (writes, commits) = shared(&registry, "create");
    assert!(
        writes > 4.0 * commits,
        "{writes} writes in {commits} commits"
    );
}

/// What was acknowledged is there, though every connection was cut again and again.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_acknowledged_outlives_connections_cut_half_way() {
    let world = Arc::new(World::new().await);
    let cutting = {
        let world = Arc::clone(&world);
        async move {
            let cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                       WHERE datname = current_database() AND application_name = 'mcp-tasks'";
            loop {
                world.run(cut).await;
                tokio::time::sleep(std::time::Duration::from_millis(30)).await;
            }
        }
    };
    let working = async {
        let mut calls = JoinSet::new();
        for _ in 0..4 * CALLERS {
            let store = world.store.clone();
            calls.spawn(async move {
                let id = task_id();
                let created = try_create(&store, id, None).await.ok()?;
                assert!(matches!(created, Created::New(task) if task.id == id));
                // A claim whose reply is lost is the same claim when it is asked for again.
                let claim = match claim_as(&store, id, token()).await {
                    Some(claim) => claim,
                    None => panic!("nobody else wants {id}"),
                };
                assert_eq!(claim.attempt(), 1);
                let written = store.complete(&claim, b"{\"content\":[]}", NO_WORK).await;
                Some((id, written.ok()))
            });
        }
        calls.join_all().await
    };
    let done = tokio::select! {
        done = working => done,
        () = cutting => unreachable!("it cuts for ever"),
    };
    let done: Vec<_> = done.into_iter().flatten().collect();
    assert!(!done.is_empty());
    for (id, written) in done {
        let task = world.get(id).await;
        match written {
            Some(Write::Done) => assert_eq!(task.status, TaskStatus::Completed),
            Some(Write::Lost) => panic!("nobody else owns {id}"),
            None => {}
        }
    }
}

#[tokio::test]
async fn claims_that_meet_share_a_commit_and_each_job_has_one_owner() {
    let world = World::new().await;
    let mut ids = Vec::new();
    for _ in 0..CALLERS {
        ids.push(world.queued().await);
    }
    let (first, registry) = watched(&world);
    let second = store(config(world.database.url()));
    let dam = dam(&world).await;
    let mut calls = JoinSet::new();
    for n in 0..CALLERS {
        // The two come to the same jobs from opposite ends; and the first one twice.
        for (store, id) in [
            (first.clone(), ids[n]),
            (first.clone(), ids[n]),
            (second.clone(), ids[CALLERS - 1 - n]),
        ] {
            calls.spawn(async move { claim_as(&store, id, token()).await });
        }
    }
    world.waiting(2 * IN_FLIGHT).await;
    settled().await;
    dam.batch_execute("ROLLBACK").await.unwrap();
    let claims: Vec<_> = calls.join_all().await.into_iter().flatten().collect();
    let owned: HashSet<_> = claims.iter().map(store::Claim::id).collect();
    assert_eq!((claims.len(), owned.len()), (CALLERS, CALLERS));
    for claim in &claims {
        assert_eq!(claim.attempt(), 1);
        // What is in the row is what its owner was told.
        let written = first.complete(claim, b"{}", NO_WORK).await.unwrap();
        assert_eq!(written, Write::Done);
    }
    let (writes, commits) = shared(&registry, "claim_queued");
    assert!(
        writes > 4.0 * commits,
        "{writes} writes in {commits} commits"
    );
}

/// What is no plain case is judged as if it were asked alone.
#[tokio::test(flavor = "multi_thread")]
async fn claims_that_are_not_plain_are_judged_one_by_one() {
    let world = World::new().await;
    let later = world.queued().await;
    world.set(later, "run_at = now() + interval '1 hour'").await;
    let stopped = world.queued().await;
    world
        .set(
            stopped,
            "stop_requested_at = now(), stop_reason = 'cancelled'",
        )
        .await;
    let expired = world.queued().await;
    world
        .set(expired, "expires_at = now() - interval '1 second'")
        .await;
    let elsewhere = world.queued().await;
    world.set(elsewhere, "tool = 'other'").await;
    let pinned = world.queued().await;
    world
        .set(pinned, "journaled = true, tool_version = 9")
        .await;
    let journaled = world.queued().await;
    world.set(journaled, "journaled = true").await;
    let running = world.running().await;
    let plain = world.queued().await;
    let refused = [
        later,
        stopped,
        expired,
        elsewhere,
        pinned,
        running.id(),
        task_id(),
    ];
    let mut calls = JoinSet::new();
    for id in refused.into_iter().chain([journaled, plain]) {
        let store = world.store.clone();
        calls.spawn(async move { (id, claim_as(&store, id, token()).await.is_some()) });
    }
    for (id, won) in calls.join_all().await {
        assert_eq!(won, !refused.contains(&id), "{id}");
    }
    // A paused tool begins no attempt.
    let paused = world.queued().await;
    world
        .run("INSERT INTO tool_pauses (tool, jobs, changed_by) VALUES ('report', true, 'me')")
        .await;
    assert!(world.claim(paused).await.is_none());
}

/// Of two who write the same result at the same time, only the owner's is written.
#[tokio::test]
async fn a_result_of_an_attempt_that_lost_its_task_is_refused_beside_the_owners() {
    let world = World::new().await;
    let lost = world.running().await;
    let owner = world.steal(lost.id()).await;
    let mut others = Vec::new();
    for _ in 0..CALLERS {
        others.push(world.running().await);
    }
    let (store, registry) = watched(&world);
    let dam = dam(&world).await;
    let mut calls = JoinSet::new();
    let claims = others.into_iter().map(|claim| (true, claim));
    for (owns, claim) in claims.chain([(false, lost), (true, owner)]) {
        let store = store.clone();
        calls.spawn(async move {
            let result = if owns { "{\"by\":\"owner\"}" } else { "{}" };
            let written = store.complete(&claim, result.as_bytes(), NO_WORK).await;
            (owns, claim.id(), written.unwrap())
        });
    }
    world.waiting(IN_FLIGHT).await;
    settled().await;
    dam.batch_execute("ROLLBACK").await.unwrap();
    for (owns, id, written) in calls.join_all().await {
        assert_eq!(written, if owns { Write::Done } else { Write::Lost });
        let result = world.get(id).await.result.unwrap();
        assert_eq!(&result[..], b"{\"by\":\"owner\"}");
    }
    let (writes, commits) = shared(&registry, "complete");
    assert!(
        writes > 4.0 * commits,
        "{writes} writes in {commits} commits"
    );
}

/// A lone caller waits for nobody: its statement goes out alone and at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_lone_write_is_a_statement_of_its_own() {
    let world = World::new().await;
    let (store, registry) = watched(&world);
    for _ in 0..3 {
        let id = task_id();
        assert!(try_create(&store, id, None).await.is_ok());
        let request = ClaimRequest {
            id,
            tool: "report",
            version: 1,
            resumes: &[1],
            token: token(),
            worker: "worker-1",
        };
        let claim = store.claim(&request).await.unwrap().unwrap();
        let written = store.complete(&claim, b"{}", SECOND).await.unwrap();
        assert_eq!(written, Write::Done);
    }
    for operation in ["create", "claim_queued", "complete"] {
        assert_eq!(shared(&registry, operation), (3.0, 3.0), "{operation}");
    }
}
