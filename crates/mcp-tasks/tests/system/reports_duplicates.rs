//! Calls that are sent more than once, and clients that ask at once.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use futures::future::join_all;
use serde_json::{Value, json};

use crate::reports_tools;
use crate::support::{SOON, System, keyed};

/// A client whose answers get lost sends each call up to four times, the second one two to four
/// milliseconds after the first, over two servers: each is done once.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_sent_twice_is_done_once() {
    let (system, ledger, _tools) = reports_tools::system(2, "").await;
    let clients = [0, 1].map(|n| system.cluster.client(n, "alice"));
    let calls = (0..30_u64).map(|n| {
        let clients = &clients;
        async move {
            let label = format!("twice-{n}");
            let work = json!({"label": label, "steps": 1, "pause_ms": 100});
            let repeats = (0..4_u64).map(|repeat| {
                let params = keyed("toil", work.clone(), &label);
                async move {
                    let pause = [0, 2 + n % 3, 4 + n % 3, 300][usize::try_from(repeat).unwrap()];
                    tokio::time::sleep(Duration::from_millis(pause)).await;
                    let client = &clients[usize::try_from(repeat % 2).unwrap()];
                    let sent = client.request("tools/call", params).send().await.unwrap();
                    sent.into_result().unwrap()
                }
            });
            join_all(repeats).await
        }
    });
    for (n, answers) in join_all(calls).await.into_iter().enumerate() {
        let ids: BTreeSet<&str> = answers
            .iter()
            .filter_map(|one| one["taskId"].as_str())
            .collect();
        assert_eq!(ids.len(), 1, "{answers:?}");
        let id = ids.first().expect("one");
        clients[0].wait_status(id, "completed", SOON).await.unwrap();
        assert_eq!(ledger.acts(&format!("twice-{n}")).len(), 1);
    }
    assert_eq!(system.count("SELECT count(*) FROM tasks").await, 30);
}

/// The key is as durable as the task: after a restart of everything it leads to the same task, and
/// other arguments are still refused.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_survives_a_restart_of_everything() {
    let mut system = System::of(2, 1).await;
    let call = |seconds: u32| keyed("slow_compute", json!({"seconds": seconds}), "nightly");
    let alice = system.cluster.client(0, "alice");
    let made = alice.request("tools/call", call(60)).send().await.unwrap();
    let id = made.into_result().unwrap()["taskId"].clone();
    system.redis.kill9();
    for node in system.cluster.nodes() {
        node.kill9();
    }
    system.redis.start_again().await.unwrap();
    for node in system.cluster.nodes() {
        node.start_again().unwrap();
    }
    system.cluster.ready().await.unwrap();
    for gateway in [0, 1] {
        let client = system.cluster.client(gateway, "alice");
        let again = client.request("tools/call", call(60)).send().await.unwrap();
        assert_eq!(again.into_result().unwrap()["taskId"], id);
        let changed = client.request("tools/call", call(61)).send().await.unwrap();
        assert_eq!(changed.error_code(), Some(-32602));
    }
    assert_eq!(system.count("SELECT count(*) FROM tasks").await, 1);
}

/// A read right after the handle, long before the first poll interval is over, on any replica: it
/// is answered, and at once.
#[tokio::test(flavor = "multi_thread")]
async fn the_first_read_is_never_punished() {
    let system = System::of(2, 1).await;
    let [alice, other] = [0, 1].map(|n| system.cluster.client(n, "alice"));
    let mut slowest = Duration::ZERO;
    for _ in 0..20 {
        let id = alice
            .start("slow_compute", json!({"seconds": 30}))
            .await
            .unwrap();
        for client in [&alice, &other] {
            let asked = Instant::now();
            let read = client
                .request("tasks/get", json!({"taskId": id}))
                .send()
                .await
                .unwrap();
            slowest = slowest.max(asked.elapsed());
            assert_eq!(read.status, 200);
            assert_eq!(read.message["result"]["status"], Value::from("working"));
        }
        alice.cancel(&id).await.unwrap();
        // So is the one after the caller's own cancel.
        let asked = Instant::now();
        alice.get(&id).await.unwrap();
        slowest = slowest.max(asked.elapsed());
    }
    assert!(slowest < Duration::from_millis(500), "{slowest:?}");
}
