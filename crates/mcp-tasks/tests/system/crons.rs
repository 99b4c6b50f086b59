//! Cron dies, freezes, or runs twice: promises are kept late, and by one at a time.

use std::time::{Duration, Instant};

use harness::config::Role;
use harness::node::Node;
use serde_json::{Value, json};

use crate::support::{SOON, System};

/// Finished tasks to purge, ten at a time: long enough to be killed in the middle.
const MANY: i64 = 3_000;
const SLOW_PURGE: &str = "[cron]\nbatch = 10\npurge_interval = \"200ms\"\n";

/// Two replicas sweep: no statement of a sweep ever runs twice at the same time, even if it takes
/// longer than the lease of 6 s. A lock holds each one up, so that a second would be seen.
#[tokio::test(flavor = "multi_thread")]
async fn one_replica_sweeps_at_a_time() {
    let settings = "[cron]\ndeadline_interval = \"200ms\"\nreconcile_interval = \"200ms\"\n\
                    [postgres]\nstatement_timeout = \"20s\"";
    let mut system = System::with(1, 0, settings).await;
    system
        .cluster
        .add(Role::Cron)
        .unwrap()
        .ready()
        .await
        .unwrap();
    let lock = "BEGIN; LOCK TABLE tasks IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep(8); COMMIT";
    let look = async {
        let mut most = Vec::new();
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(7_800) {
            let sql = "SELECT query, count(*) FROM pg_stat_activity
                       WHERE datname = current_database() AND state = 'active'
                         AND wait_event_type = 'Lock' GROUP BY query";
            for row in system.database.rows(sql).await.unwrap() {
                let [query, count] = [0, 1].map(|n| row[n].clone().unwrap_or_default());
                most.push((count.parse::<i64>().unwrap(), query));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        most
    };
    let (locked, seen) = tokio::join!(system.database.rows(lock), look);
    locked.unwrap();
    // The gateway's look at its queues is not a sweep.
    let sweeps = |(_, query): &&(i64, String)| query.contains("FOR NO KEY UPDATE SKIP LOCKED");
    let sweeps: Vec<_> = seen.iter().filter(sweeps).collect();
    assert!(!sweeps.is_empty(), "no sweep was held up: {seen:?}");
    for (count, query) in sweeps {
        assert_eq!(*count, 1, "at the same time: {query}");
    }
    let leading = join_leading(&system.cluster.crons).await;
    assert!(leading.iter().all(|one| one.1 <= 1.0), "{leading:?}");
}

/// A sweep killed half way is gone on with by another replica, and one that was frozen half way
/// thaws without harm: every row is purged once.
#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_killed_or_frozen_half_way_is_finished_by_another() {
    let mut system = System::with(1, 1, SLOW_PURGE).await;
    let alice = system.cluster.client(0, "alice");
    let id = alice
        .start("slow_compute", json!({"seconds": 0}))
        .await
        .unwrap();
    alice.wait_status(&id, "completed", SOON).await.unwrap();
    let mut tombstones = 0;
    for frozen in [false, true] {
        system
            .cluster
            .add(Role::Cron)
            .unwrap()
            .ready()
            .await
            .unwrap();
        expire_copies(&system, &id).await;
        let leader = leader(&system, "purge").await;
        let left = async || count_copies(&system).await;
        let half = |left: &i64| (1..MANY * 3 / 4).contains(left);
        let seen = harness::wait::for_state("half way", SOON, left, half)
            .await
            .unwrap();
        let node = &mut system.cluster.crons[leader];
        if frozen {
            node.freeze();
        } else {
            node.kill9();
        }
        assert!(seen > 0);
        // Stands for the time after which a silent leader is replaced.
        let sql = "UPDATE sweep_leases SET lease_until = now() RETURNING 1";
        system.database.rows(sql).await.unwrap();
        let done = async || count_copies(&system).await;
        harness::wait::for_state("purged", SOON, done, |left| *left == 0)
            .await
            .unwrap();
        system.cluster.crons[leader].thaw();
        tombstones += MANY;
        let all = "SELECT count(*) FROM tombstones";
        assert_eq!(system.count(all).await, tombstones);
    }
    // The thawed one swept no row twice and complained of nothing.
    tokio::time::sleep(Duration::from_millis(500)).await;
    system.cluster.quiet(&[]).unwrap();
}

/// With every replica of cron dead, clients notice nothing but lateness; it is made up for when one
/// is back.
#[tokio::test(flavor = "multi_thread")]
async fn without_cron_promises_are_only_late() {
    let mut system = System::of(1, 1).await;
    let alice = system.cluster.client(0, "alice");
    let asking = alice
        .start("confirm_delete", json!({"filename": "a"}))
        .await
        .unwrap();
    alice
        .wait_status(&asking, "input_required", SOON)
        .await
        .unwrap();
    system.cluster.crons[0].kill9();
    let sql = "UPDATE tasks SET expires_at = now() - interval '1 s' RETURNING 1";
    system.database.rows(sql).await.unwrap();
    let id = alice
        .start("slow_compute", json!({"seconds": 0}))
        .await
        .unwrap();
    alice.wait_status(&id, "completed", SOON).await.unwrap();
    let late = alice
        .request("tasks/get", json!({"taskId": asking}))
        .send()
        .await
        .unwrap();
    assert_eq!(late.message["result"]["status"], "input_required");
    system.cluster.crons[0].start_again().unwrap();
    let failed = alice.wait_status(&asking, "failed", SOON).await.unwrap();
    assert_eq!(
        failed["error"]["data"]["reason"],
        Value::from("task_expired")
    );
}

/// A worker that dies without a word leaves consumers behind in Redis, one for each stream: cron
/// forgets them.
#[tokio::test(flavor = "multi_thread")]
async fn consumers_of_dead_workers_are_forgotten() {
    let settings = "[cron]\nconsumer_idle = \"4s\"\npurge_interval = \"500ms\"";
    let mut system = System::with(1, 1, settings).await;
    let names = "local names, count = {}, 0
        for _, key in ipairs(redis.call('KEYS', '{mcp-tasks:s*}:jobs:*')) do
          local consumers = redis.pcall('XINFO', 'CONSUMERS', key, 'workers')
          for _, consumer in ipairs(consumers.err and {} or consumers) do
            if not names[consumer[2]] then
              names[consumer[2]] = true
              count = count + 1
            end
          end
        end
        return count";
    let count = async |system: &System| {
        let asked = system.redis.number(&["EVAL", names, "0"]).await;
        asked.unwrap()
    };
    for _ in 0..3 {
        system.cluster.workers[0].restart().await.unwrap();
    }
    assert!(count(&system).await >= 3, "the dead ones were there");
    let look = async || count(&system).await;
    // The living one may be forgotten too, as long as nothing is pending for it.
    harness::wait::for_state("the living one", SOON, look, |left| *left <= 1)
        .await
        .unwrap();
    let alice = system.cluster.client(0, "alice");
    let begun = Instant::now();
    let id = alice
        .start("slow_compute", json!({"seconds": 0}))
        .await
        .unwrap();
    alice.wait_status(&id, "completed", SOON).await.unwrap();
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(3), "{took:?}");
}

/// Makes many more of a finished task, whose TTL is over.
async fn expire_copies(system: &System, id: &str) {
    let sql = format!(
        "INSERT INTO tasks
         SELECT (jsonb_populate_record(t, jsonb_build_object(
                     'id', gen_random_uuid(), 'expires_at', now() - interval '1 s'))).*
         FROM tasks t, generate_series(1, {MANY}) WHERE t.id = '{id}' RETURNING 1"
    );
    assert_eq!(
        i64::try_from(system.database.rows(&sql).await.unwrap().len()).unwrap(),
        MANY
    );
}

async fn count_copies(system: &System) -> i64 {
    let sql = "SELECT count(*) FROM tasks WHERE expires_at < now()";
    system.count(sql).await
}

/// The index of the replica that leads this sweep.
async fn leader(system: &System, sweep: &str) -> usize {
    let look = async || {
        for (index, node) in system.cluster.crons.iter().enumerate() {
            let label = format!("sweep=\"{sweep}\"");
            let leading = node.metric("mcp_tasks_cron_leading", &label).await;
            if leading.is_ok_and(|leading| leading > 0.5) {
                return Some(index);
            }
        }
        None
    };
    harness::wait::until("a leader", SOON, look).await.unwrap()
}

/// For each sweep: how many replicas say that they lead it.
async fn join_leading(crons: &[Node]) -> Vec<(String, f64)> {
    let mut sums: std::collections::BTreeMap<String, f64> = std::collections::BTreeMap::new();
    for node in crons {
        for line in node.metrics().await.unwrap().lines() {
            let Some(rest) = line.strip_prefix("mcp_tasks_cron_leading{") else {
                continue;
            };
            let (labels, value) = rest.rsplit_once(' ').unwrap();
            *sums.entry(labels.to_owned()).or_default() += value.parse::<f64>().unwrap();
        }
    }
    sums.into_iter().collect()
}
