//! Whose turn it is, over several workers and shards: a flood starves nobody, whatever becomes of
//! Redis meanwhile; and queues have workers of their own.

use std::time::Duration;

use harness::config::Role;
use serde_json::{Value, json};

use crate::support::{SOON, System, set};

/// Two places a worker. The shards are the default four.
const DRILLS: &str = r#"
[tools]
drills = 1
[worker]
slots = 2
drain_deadline = "1s"
"#;

/// Places of all workers.
const PLACES: i64 = 4;
/// Claims that may be under way when a task is made, and those by hints that came while there were places.
const SLACK: i64 = 3 * PLACES;
const FLOOD: i64 = 5_000;

fn work(ms: u64) -> Value {
    json!({"steps": 1, "ms": ms, "manner": "polite"})
}

/// Makes copies of a queued task, of which Redis has not been told.
pub async fn multiply(system: &System, id: &str, copies: i64) {
    let copy = format!(
        "INSERT INTO tasks SELECT (jsonb_populate_record(t, jsonb_build_object( \
            'id', gen_random_uuid(), 'phase', 'queued', 'attempt', 0, 'run_at', now(), 'journaled', false, \
            'status', 'working', 'hinted_at', NULL, 'claim_token', NULL, 'lease_until', NULL, 'open_step', NULL, \
            'started_at', NULL, 'created_at', now(), 'finished_at', NULL, 'result', NULL))).* \
         FROM tasks t, generate_series(1, {copies}) WHERE t.id = '{id}'"
    );
    system.database.rows(&copy).await.unwrap();
}

/// How many jobs of Alice's began between this task's creation and its beginning.
async fn overtaken(system: &System, id: &str) -> i64 {
    let before = format!(
        "SELECT count(*) FROM tasks a, tasks t WHERE t.id = '{id}' AND a.subject = 'alice' \
         AND a.started_at > t.created_at AND a.started_at < t.started_at"
    );
    system.count(&before).await
}

async fn started(system: &System, at_least: i64) {
    let begun = "SELECT count(*) FROM tasks WHERE subject = 'alice' AND started_at IS NOT NULL";
    harness::wait::for_state(
        "the flood is being worked on",
        SOON,
        async || system.count(begun).await,
        |count| *count >= at_least,
    )
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_one_principal_does_not_keep_another_one_waiting() {
    let mut system = System::with(1, 2, DRILLS).await;
    let alice = system.cluster.client(0, "alice");
    let first = alice.start("drill_work", work(50)).await.unwrap();
    multiply(&system, &first, FLOOD).await;
    started(&system, 20).await;
    let fair = async |system: &System, who: &str| {
        let client = system.cluster.client(0, who);
        let id = client.start("drill_work", work(1)).await.unwrap();
        let task = client.wait_end(&id, SOON).await.unwrap();
        assert_eq!(task["status"], "completed", "{task}");
        let overtaken = overtaken(system, &id).await;
        let left = "SELECT count(*) FROM tasks WHERE subject = 'alice' AND phase = 'queued'";
        let left = system.count(left).await;
        println!("{who} let {overtaken} of alice's jobs pass; {left} are left");
        assert!(overtaken <= PLACES + SLACK, "{who} waited for {overtaken}");
        assert!(left > FLOOD / 4, "there is no flood any more: {left}");
    };
    fair(&system, "bob").await;
    // All hints are lost, those of the flood as well.
    system.redis.flush().await.unwrap();
    fair(&system, "carol").await;
    // And without Redis.
    system.redis.stop().await.unwrap();
    fair(&system, "dave").await;
    system.redis.start_again().await.unwrap();
    fair(&system, "erin").await;
}

/// A worker serves the queues that it is told to, and leaves the rest to others.
#[tokio::test(flavor = "multi_thread")]
async fn workers_serve_their_queues_only() {
    let folder = harness::temp::Temp::new().unwrap();
    let tool = |name: &str, queue: &str| {
        format!(
            "[[command]]\nname = \"{name}\"\ndescription = \"D.\"\nprogram = \"true\"\n\
             annotations = {{ readOnlyHint = true }}\n\
             policy = {{ queue = \"{queue}\", inline_budget = \"0s\" }}\n"
        )
    };
    let file = folder.path().join("tools.toml");
    let tools = tool("render", "gpu") + &tool("plain", "default");
    std::fs::write(&file, tools).unwrap();
    let settings = format!(
        "[tools]\nfile = \"{}\"\n[worker]\nqueues = [\"default\"]\n",
        file.display()
    );
    let mut system = System::with(1, 1, &settings).await;
    let alice = system.cluster.client(0, "alice");
    let names = alice.list().await.unwrap();
    let names: Vec<&str> = names
        .iter()
        .filter_map(|tool| tool["name"].as_str())
        .collect();
    assert!(names.contains(&"plain") && !names.contains(&"render"));
    let over = "[worker]\nqueues = [\"gpu\"]".parse().unwrap();
    let gpu = system
        .cluster
        .add_with(Role::Worker, |plan| {
            harness::config::merge(&mut plan.common.settings, &over);
        })
        .unwrap();
    gpu.ready().await.unwrap();
    system.cluster.wait_for_tools(0, &["render"]).await.unwrap();
    for name in ["render", "plain"] {
        let id = alice.start(name, json!({})).await.unwrap();
        let task = alice.wait_end(&id, SOON).await.unwrap();
        assert_eq!(task["status"], "completed", "{name}: {task}");
        let place = "SELECT count(*) FROM tasks t JOIN workers w ON w.name = t.claimed_by";
        let at = format!("{place} WHERE t.id = '{id}' AND w.tools = ARRAY['{name} 1']");
        let at_both = format!("{place} WHERE t.id = '{id}' AND '{name} 1' = ANY (w.tools)");
        assert_eq!(system.count(&at_both).await, 1);
        if name == "render" {
            assert_eq!(system.count(&at).await, 1, "it serves nothing else");
        }
    }
    // Jobs of a queue that nobody serves wait for somebody who does.
    system.cluster.workers[1]
        .stop(Duration::from_secs(20))
        .await
        .unwrap();
    let id = alice.start("render", json!({})).await.unwrap();
    let plain = alice.start("plain", json!({})).await.unwrap();
    alice.wait_end(&plain, SOON).await.unwrap();
    assert_eq!(alice.get(&id).await.unwrap()["status"], "working");
    set(&mut system.cluster.workers[0], "[worker]\nqueues = []");
    system.cluster.workers[0].restart().await.unwrap();
    let task = alice.wait_end(&id, SOON).await.unwrap();
    assert_eq!(task["status"], "completed", "{task}");
}
