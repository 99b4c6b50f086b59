//! Machines whose clocks are an hour off, ahead and behind: only Postgres' clock decides.

use std::time::{Duration, Instant};

use futures::future::join_all;
use harness::cluster::Cluster;
use harness::config::Role;
use harness::postgres::{Postgres, rows};
use serde_json::json;

use crate::postgres_load::{Load, World, step};
use crate::support::{SOON, System, migrate};

const HOUR: i64 = 3_600;
/// Two processes of each kind, one ahead and one behind.
const OFF: [(Role, i64); 6] = [
    (Role::Gateway, HOUR),
    (Role::Gateway, -HOUR),
    (Role::Worker, HOUR),
    (Role::Worker, -HOUR),
    (Role::Cron, HOUR),
    (Role::Cron, -HOUR),
];

/// Adds processes whose clocks are off, and makes sure that they are.
async fn add(cluster: &mut Cluster, off: &[(Role, i64)]) {
    for (role, seconds) in off {
        let env = harness::clock::off_by(*seconds).unwrap();
        cluster.add_with(*role, |plan| plan.env = env).unwrap();
    }
    cluster.ready().await.unwrap();
    let true_now = true_now().await;
    for (role, seconds) in off {
        let nodes = match role {
            Role::Gateway => &cluster.gateways,
            Role::Worker => &cluster.workers,
            Role::Cron => &cluster.crons,
        };
        let shown = async |node: &harness::node::Node| {
            let said = harness::logs::lines(node.log()).unwrap();
            let said = said.first().unwrap()["timestamp"]
                .as_str()
                .unwrap()
                .to_owned();
            seconds_of(&said).await - true_now
        };
        let all = join_all(nodes.iter().map(shown)).await;
        let is_off = |by: &f64| (by - *seconds as f64).abs() < 120.0;
        assert!(all.iter().any(is_off), "{role:?} {seconds}: {all:?}");
    }
}

/// Seconds since 1970 of a timestamp, by a server that is not part of the test.
async fn seconds_of(timestamp: &str) -> f64 {
    let server = harness::postgres::shared().await.unwrap();
    let sql = format!("SELECT extract(epoch FROM {timestamp:?}::timestamptz)").replace('"', "'");
    let found = rows(&server.url("postgres"), &sql).await.unwrap();
    found[0][0].as_ref().unwrap().parse().unwrap()
}

async fn true_now() -> f64 {
    seconds_of("now").await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_hour_off_both_ways() {
    let postgres = Postgres::temporary().await.unwrap();
    let url = postgres.create_database("system").await.unwrap();
    migrate(url.clone()).await.unwrap();
    let settings = "[postgres]\nlease = \"5s\"\n[cron]\ndeadline_interval = \"500ms\"";
    let mut world = World::start_with(&url, settings, |plan| plan.of(1, 0, 0)).await;
    add(&mut world.cluster, &OFF).await;
    world.serves().await;
    let clients = [0, 1, 2].map(|gateway| world.cluster.client(gateway, "alice"));

    // Jobs of two leases' length, on every worker: none is taken away, none is taken for expired.
    let items = json!([step("a", 0), {"pause": 6_000}, step("b", 0)]);
    let long = clients.iter().enumerate().map(|(n, client)| {
        client.start(
            "chaos_steps",
            json!({"call": format!("long {n}"), "items": items}),
        )
    });
    let long: Vec<String> = join_all(long)
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect();
    // A retry is due by Postgres' clock. (The other worker may insist on one of its own.)
    let again = json!({"call": "again", "items": [{"retry": 1}, step("a", 0)]});
    let again = clients[0].start("chaos_steps", again).await.unwrap();
    // Questions: one whose deadline passes, one that has time.
    let ask = |call: &str, ms: u64| {
        let items = json!([{"ask": [{"key": "q", "wait_ms": ms}]}]);
        clients[1].start("chaos_ask", json!({"call": call, "items": items}))
    };
    let short_ms = 2_500;
    let asked = Instant::now();
    let (short, patient) = tokio::join!(ask("short", short_ms), ask("patient", 600_000));
    let (short, patient) = (short.unwrap(), patient.unwrap());
    let load = Load::start(&world.cluster, 1);

    let failed = clients[2].wait_end(&short, SOON).await.unwrap();
    let took = asked.elapsed();
    assert_eq!(
        failed["error"]["data"]["reason"], "input_deadline",
        "{failed}"
    );
    let due = Duration::from_millis(short_ms);
    assert!(
        took >= due && took < due + Duration::from_secs(10),
        "{took:?}"
    );
    let waiting = clients[0].get(&patient).await.unwrap();
    assert_eq!(waiting["status"], "input_required", "{waiting}");

    for id in &long {
        let task = clients[0].wait_end(id, SOON).await.unwrap();
        assert_eq!(task["status"], "completed", "{task}");
        let sql = format!("SELECT attempt, tries FROM tasks WHERE id = '{id}'");
        let row = rows(&url, &sql).await.unwrap().swap_remove(0);
        assert_eq!(
            row,
            [Some("1".to_owned()), Some("0".to_owned())],
            "nobody took it away"
        );
        for field in ["createdAt", "lastUpdatedAt"] {
            let shown = seconds_of(task[field].as_str().unwrap()).await;
            assert!((shown - true_now().await).abs() < 120.0, "{field}: {task}");
        }
    }
    let again = clients[1].wait_end(&again, SOON).await.unwrap();
    assert_eq!(again["status"], "completed", "{again}");
    load.once_more().await;
    load.finish().await.assert_nothing_seen();

    // A TTL that runs out does so for all, and not before.
    let sql =
        format!("UPDATE tasks SET expires_at = now() + interval '2 s' WHERE id = '{patient}'");
    rows(&url, &sql).await.unwrap();
    let moved = Instant::now();
    let expired = clients[1].wait_end(&patient, SOON).await.unwrap();
    assert_eq!(
        expired["error"]["data"]["reason"], "task_expired",
        "{expired}"
    );
    let took = moved.elapsed();
    assert!(
        took >= Duration::from_millis(1_900) && took < Duration::from_secs(12),
        "{took:?}"
    );
}

/// A question that is asked before the task exists: the state that one gateway sealed is good at
/// another, two hours apart.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_state_is_good_between_them() {
    let mut system = System::of(1, 1).await;
    add(&mut system.cluster, &[OFF[0], OFF[1]]).await;
    let tool = "test_input_required_result_elicitation";
    for gateway in [1, 2] {
        system
            .cluster
            .wait_for_tools(gateway, &[tool])
            .await
            .unwrap();
    }
    for (from, to) in [(1, 2), (2, 1)] {
        let params = json!({"name": tool, "arguments": {}});
        let asking = system.cluster.client(from, "alice");
        let asked = asking
            .request("tools/call", params.clone())
            .send()
            .await
            .unwrap();
        let asked = asked.into_result().unwrap();
        let mut again = params;
        again["inputResponses"] =
            json!({"user_name": {"action": "accept", "content": {"name": "Alice"}}});
        again["requestState"] = asked["requestState"].clone();
        let answering = system.cluster.client(to, "alice");
        let result = answering.request("tools/call", again).send().await.unwrap();
        let result = result.into_result().unwrap();
        assert_eq!(result["content"][0]["text"], "Hello, Alice!");
    }
}
