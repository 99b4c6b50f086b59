//! Redis restarts empty, forgets, hangs or is out of reach, while the system is at work.

use std::time::{Duration, Instant};

use futures::future::join_all;
use harness::node::Node;
use harness::proxy::{Mode, Proxy};
use harness::redis::Redis;
use serde_json::json;

use crate::support::{SOON, System, migrate};

/// How long a request may take while Redis is away: the one that notices waits a command's time.
const QUICK: Duration = Duration::from_millis(2_500);

/// Redis is emptied, loses its groups, and restarts empty, again and again while calls come in: no
/// caller sees an error, every task is done, and the logs stay short.
#[tokio::test(flavor = "multi_thread")]
async fn redis_loses_everything_under_load() {
    // One job at a time and worker, so that there is always something to lose.
    let mut system = System::with(2, 2, "[worker]\nslots = 1").await;
    let clients = [0, 1].map(|n| system.cluster.client(n, "alice"));
    let calls = (0..120_u64).map(|n| {
        let client = &clients[usize::from(n % 2 == 0)];
        async move {
            tokio::time::sleep(Duration::from_millis(n * 40)).await;
            client.start("slow_compute", json!({"seconds": 0.1})).await
        }
    });
    let losses = async {
        for loss in 0..6 {
            tokio::time::sleep(Duration::from_millis(800)).await;
            match loss % 3 {
                0 => system.redis.flush().await.unwrap(),
                1 => destroy_groups(&system.redis).await,
                _ => {
                    system.redis.kill9();
                    system.redis.start_again().await.unwrap();
                }
            }
        }
    };
    let (ids, ()) = tokio::join!(join_all(calls), losses);
    let ended = Instant::now();
    let ids: Vec<String> = ids.into_iter().map(Result::unwrap).collect();
    for id in &ids {
        clients[0].wait_status(id, "completed", SOON).await.unwrap();
    }
    // Reconcile intervals (2 s), the age at which a hint is doubted (5 s), and the work itself.
    let took = ended.elapsed();
    assert!(took < Duration::from_secs(20), "{took:?}");
    let before: Vec<usize> = system
        .cluster
        .nodes()
        .map(|node| complaints(node))
        .collect();
    println!("done after {took:?}; {before:?} complaints for six losses");
    assert!(before.iter().all(|lines| *lines < 20), "{before:?} lines");
    tokio::time::sleep(Duration::from_secs(2)).await;
    let after: Vec<usize> = system
        .cluster
        .nodes()
        .map(|node| complaints(node))
        .collect();
    assert_eq!(before, after, "nobody complains any more");
}

/// Redis hangs, then refuses every connection: calls become tasks, reads, answers and cancels are
/// answered as ever, work is done, readiness stays and says what is missing.
#[tokio::test(flavor = "multi_thread")]
async fn redis_is_out_of_reach() {
    let redis = Redis::temporary().await.unwrap();
    let proxy = Proxy::to_port(redis.port()).await.unwrap();
    let url = proxy.through(&redis.url());
    let database = harness::postgres::test_database(migrate).await.unwrap();
    let mut system = System::over_redis((2, 1), "", database, (redis, &url)).await;
    for mode in [Mode::Stall, Mode::Cut] {
        proxy.set(mode);
        work_goes_on(&system).await;
        for node in system.cluster.nodes() {
            degraded(node, true).await;
        }
        proxy.set(Mode::Pass);
        for node in system.cluster.nodes() {
            degraded(node, false).await;
        }
    }
    work_goes_on(&system).await;
    for node in system.cluster.nodes() {
        let lines = complaints(node);
        assert!(lines <= 20, "{} complained {lines} times", node.name());
    }
}

/// A client's day over two gateways: nothing fails and nothing takes long.
async fn work_goes_on(system: &System) {
    let [alice, other] = [0, 1].map(|n| system.cluster.client(n, "alice"));
    let mut slowest = (Duration::ZERO, "nothing");
    let mut time = |begun: Instant, what| slowest = slowest.max((begun.elapsed(), what));

    let begun = Instant::now();
    let quick = alice
        .start("slow_compute", json!({"seconds": 0}))
        .await
        .unwrap();
    time(begun, "create");
    let long = alice
        .start("slow_compute", json!({"seconds": 60}))
        .await
        .unwrap();
    let asking = other
        .start("confirm_delete", json!({"filename": "a"}))
        .await
        .unwrap();
    let begun = Instant::now();
    assert_eq!(other.get(&long).await.unwrap()["status"], "working");
    time(begun, "read");
    alice.wait_status(&quick, "completed", SOON).await.unwrap();
    let asked = other
        .wait_status(&asking, "input_required", SOON)
        .await
        .unwrap();
    let key = asked["inputRequests"]
        .as_object()
        .unwrap()
        .keys()
        .next()
        .unwrap();
    let yes = json!({key: {"action": "accept", "content": {"confirm": true}}});
    let begun = Instant::now();
    alice.update(&asking, yes).await.unwrap();
    time(begun, "update");
    let begun = Instant::now();
    other.cancel(&long).await.unwrap();
    time(begun, "cancel");
    alice.wait_status(&long, "cancelled", SOON).await.unwrap();
    alice.wait_status(&asking, "completed", SOON).await.unwrap();
    let begun = Instant::now();
    let inline = alice
        .call("reindex_corpus", json!({"collection": "small"}))
        .await
        .unwrap();
    assert!(
        inline["resultType"] == "complete" || inline["resultType"] == "task",
        "{inline}"
    );
    time(begun, "call");
    assert!(slowest.0 < QUICK * 2, "{slowest:?}");
}

/// Waits until the process is ready and says that Redis is away, or that nothing is missing.
async fn degraded(node: &Node, expected: bool) {
    let http = harness::http::Http::new(Duration::from_secs(5));
    let url = format!("{}/readyz", node.admin());
    let look = async || {
        let reply = http.get(&url).await.unwrap();
        (
            reply.status,
            String::from_utf8_lossy(&reply.body).into_owned(),
        )
    };
    let good = |seen: &(u16, String)| {
        assert_eq!(seen.0, 200, "{}: {}", node.name(), seen.1);
        seen.1.contains("degraded") == expected && seen.1.contains("\"redis\"") == expected
    };
    harness::wait::for_state("readiness", SOON, look, good)
        .await
        .unwrap();
    let labels = r#"check="redis",state="degraded""#;
    let shown = async || node.metric("mcp_tasks_health_check", labels).await.unwrap();
    let as_told = |value: &f64| (*value > 0.5) == expected;
    harness::wait::for_state("the metric", SOON, shown, as_told)
        .await
        .unwrap();
}

async fn destroy_groups(redis: &Redis) {
    let script = "local gone = 0
        for _, key in ipairs(redis.call('KEYS', '{mcp-tasks:s*}:jobs:*')) do
          gone = gone + redis.call('XGROUP', 'DESTROY', key, 'workers')
        end
        return gone";
    // A stream that was made again since the last loss may have no group yet.
    drop(redis.number(&["EVAL", script, "0"]).await);
}

/// Warnings and errors of a process.
fn complaints(node: &Node) -> usize {
    harness::logs::unexpected(node.log(), &[]).unwrap().len()
}
