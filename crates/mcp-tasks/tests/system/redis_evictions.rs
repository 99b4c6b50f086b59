//! A Redis that throws data away when its memory runs short.

use std::time::Duration;

use futures::future::join_all;
use harness::redis::{Options, Redis};
use serde_json::json;

use crate::support::{SOON, System, migrate};

/// It is told apart from a good one, by name of the setting, in readiness and log; and what it
/// evicts is found again.
#[tokio::test(flavor = "multi_thread")]
async fn an_evicting_redis_is_told_and_survived() {
    let settings = [("maxmemory", "5mb"), ("maxmemory-policy", "allkeys-lru")];
    let settings = settings
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
    let redis = Redis::temporary_with(Options {
        settings,
        ..Options::test()
    })
    .await
    .unwrap();
    let url = redis.url();
    let database = harness::postgres::test_database(migrate).await.unwrap();
    let mut system = System::over_redis((1, 1), "", database, (redis, &url)).await;
    let http = harness::http::Http::new(Duration::from_secs(5));
    for node in system.cluster.nodes() {
        let url = format!("{}/readyz", node.admin());
        let look = async || {
            let reply = http.get(&url).await.unwrap();
            (
                reply.status,
                String::from_utf8_lossy(&reply.body).into_owned(),
            )
        };
        let told = |seen: &(u16, String)| seen.0 == 200 && seen.1.contains("maxmemory-policy");
        harness::wait::for_state("readiness that names it", SOON, look, told)
            .await
            .unwrap();
        let lines = harness::logs::unexpected(node.log(), &[]).unwrap();
        let named = lines
            .iter()
            .filter(|line| line.contains("maxmemory-policy"))
            .count();
        // Who found it, and what it means for readiness; not at every look.
        assert!((1..=2).contains(&named), "{}: {lines:?}", node.name());
    }
    system.cluster.workers[0].freeze();
    let alice = system.cluster.client(0, "alice");
    let calls = (0..10).map(|_| alice.start("slow_compute", json!({"seconds": 0})));
    let ids: Vec<String> = join_all(calls)
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect();
    let streams = [
        "EVAL",
        "return #redis.call('KEYS', '{mcp-tasks:s*}:jobs:*')",
        "0",
    ];
    assert!(system.redis.number(&streams).await.unwrap() > 0);
    let filler = "x".repeat(500_000);
    let mut all = Vec::new();
    for n in 0..100 {
        let key = format!("filler-{n}");
        system.redis.command(&["SET", &key, &filler]).await.unwrap();
        all.push(system.redis.number(&streams).await.unwrap());
        if all.last() == Some(&0) {
            break;
        }
    }
    assert_eq!(
        all.last(),
        Some(&0),
        "all streams, and the hints in them, were evicted: {all:?}"
    );
    system.cluster.workers[0].thaw();
    for id in &ids {
        alice.wait_status(id, "completed", SOON).await.unwrap();
    }
}
