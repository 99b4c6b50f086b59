//! The whole system over a real Redis Cluster of three primaries: work flows, replicas hear of each
//! other's tasks, and nothing is lost when a server dies or all of them forget.

use std::process::Command;
use std::time::Duration;

use futures::future::join_all;
use harness::cluster::Cluster;
use harness::postgres::Database;
use harness::redis_cluster::{Plan, RedisCluster};
use harness::temp::Temp;
use serde_json::{Value, json};

use crate::support::{SOON, migrate, plan};

/// Shards enough for each server to keep some.
const SETTINGS: &str =
    "[redis]\ncluster = true\nshards = 8\n[worker]\nslots = 2\n[gateway]\ninline_budget = \"60s\"";

async fn system(redis: &RedisCluster) -> (Cluster, Database) {
    let database = harness::postgres::test_database(migrate).await.unwrap();
    let cluster = plan(database.url(), &redis.url())
        .of(2, 2, 1)
        .settings(SETTINGS)
        .start()
        .await
        .unwrap();
    cluster.wait_for_tools(0, &["slow_compute"]).await.unwrap();
    cluster.wait_for_tools(1, &["slow_compute"]).await.unwrap();
    (cluster, database)
}

/// Calls spread over the gateways and over time, each a task with a handle.
async fn calls(cluster: &Cluster, count: u64) -> Vec<String> {
    let clients = [0, 1].map(|n| cluster.client(n, "alice"));
    let calls = (0..count).map(|n| {
        let client = &clients[usize::from(n % 2 == 0)];
        async move {
            tokio::time::sleep(Duration::from_millis(n * 50)).await;
            client.start("slow_compute", json!({"seconds": 0.1})).await
        }
    });
    let ids = join_all(calls).await;
    ids.into_iter().map(Result::unwrap).collect()
}

async fn all_are_done(cluster: &Cluster, ids: &[String]) {
    // Read where they were not made, too.
    let clients = [0, 1].map(|n| cluster.client(n, "alice"));
    for (n, id) in ids.iter().enumerate() {
        clients[n % 2]
            .wait_status(id, "completed", SOON)
            .await
            .unwrap();
    }
}

/// Until this process reaches all shards, both ways.
async fn connected(cluster: &mut Cluster) {
    for node in cluster.nodes() {
        let links = async || {
            let mut up = 0.0;
            for link in ["commands", "subscriber"] {
                let labels = format!("link=\"{link}\"");
                let metric = node.metric("mcp_tasks_queue_connected", &labels).await;
                up += metric.unwrap_or_default();
            }
            up
        };
        harness::wait::for_state("all shards are reached", SOON, links, |up| *up == 2.0)
            .await
            .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn work_and_wakes_flow_through_a_redis_cluster() {
    let redis = Plan::of(3, 0).start().await.unwrap();
    let (mut cluster, _database) = system(&redis).await;
    connected(&mut cluster).await;
    // Held by one gateway, run by either worker, carried by any server.
    let received = async |gateway: usize| {
        let node = &cluster.gateways[gateway];
        let labels = "kind=\"changed\"";
        let metric = node.metric("mcp_tasks_queue_received_total", labels).await;
        metric.unwrap_or_default()
    };
    let before = received(1).await;
    let bob = cluster.client(1, "bob");
    for _ in 0..8 {
        let small = json!({"collection": "small"});
        let result = bob.call("reindex_corpus", small).await.unwrap();
        assert_ne!(result["resultType"], "task", "held until its end");
    }
    let after = received(1).await;
    assert!(after > before, "told of ends by the workers: {after}");
    let ids = calls(&cluster, 40).await;
    all_are_done(&cluster, &ids).await;
    // By hints, and not by looks into Postgres.
    let mut hints = 0.0;
    for worker in &cluster.workers {
        let metric = worker.metric("mcp_tasks_queue_hints_total", "source=\"new\"");
        hints += metric.await.unwrap_or_default();
    }
    assert!(hints >= 24.0, "{hints} hints for 48 jobs");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_killed_and_all_forget_under_load() {
    let mut redis = Plan::of(3, 1).start().await.unwrap();
    let (mut cluster, _database) = system(&redis).await;
    connected(&mut cluster).await;
    let faults = async {
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        let victim = redis.keeper("{mcp-tasks:s0}:epoch").await.unwrap();
        redis.nodes[victim].kill9();
        // Its replica takes its place meanwhile.
        tokio::time::sleep(Duration::from_millis(4_000)).await;
        redis.nodes[victim].start_again().await.unwrap();
        redis.agreed().await.unwrap();
        for _ in 0..2 {
            redis.flush().await.unwrap();
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    // Every call is acknowledged, whatever Redis does.
    let (ids, ()) = tokio::join!(calls(&cluster, 160), faults);
    all_are_done(&cluster, &ids).await;
    connected(&mut cluster).await;
    let ids = calls(&cluster, 10).await;
    all_are_done(&cluster, &ids).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_looks_at_every_server() {
    let redis = Plan::of(3, 0).start().await.unwrap();
    let database = harness::postgres::test_database(migrate).await.unwrap();
    let dir = Temp::new().unwrap();
    let config = dir.path().join("doctor.toml");
    let diagnose = |redis: &str| {
        let text = format!("[postgres]\nurl = \"{}\"\n[redis]\n{redis}", database.url());
        std::fs::write(&config, text).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_mcp-tasks"))
            .args(["doctor", "--output", "json", "--config"])
            .arg(&config)
            .output()
            .unwrap();
        let findings: Value = serde_json::from_slice(&output.stdout).unwrap();
        let of_redis = findings.as_array().unwrap().iter().filter(|finding| {
            let check = finding["check"].as_str();
            check.is_some_and(|check| check.starts_with("redis"))
        });
        of_redis.cloned().collect::<Vec<_>>()
    };
    let seen = diagnose(&format!("url = \"{}\"\ncluster = true", redis.url()));
    for node in &redis.nodes {
        let at = format!("127.0.0.1:{}: version 7", node.port());
        let versions = seen.iter().filter(|finding| {
            let seen = finding["seen"].as_str();
            seen.is_some_and(|seen| seen.starts_with(&at))
        });
        assert_eq!(versions.count(), 1, "{seen:#?}");
    }
    let of_cluster = seen.iter().filter(|one| one["check"] == "redis cluster");
    // None has a replica here.
    assert!(of_cluster.clone().all(|one| one["verdict"] == "warn"));
    assert_eq!(of_cluster.count(), 3, "{seen:#?}");
    // Nobody said that it is a cluster.
    let seen = diagnose(&format!("url = \"{}\"", redis.nodes[0].url()));
    let told = seen.iter().find(|one| one["check"] == "redis cluster");
    assert_eq!(told.unwrap()["verdict"], "fail", "{seen:#?}");
}
