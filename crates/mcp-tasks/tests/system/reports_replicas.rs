//! Any request may go to any replica, and restarts lose nothing.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::future::join_all;
use serde_json::{Value, json};

use crate::support::{SOON, System, keyed};

/// Two callers of one key wait on two gateways: both hear of the end, not only the one whose
/// gateway made the task.
#[tokio::test(flavor = "multi_thread")]
async fn two_gateways_wait_for_one_result() {
    let system = System::of(2, 1).await;
    let params = keyed("slow_compute", json!({"seconds": 2}), "both");
    let clients = [0, 1].map(|n| system.cluster.client(n, "alice").undeclared());
    let begun = Instant::now();
    let calls = clients.iter().map(|client| {
        let params = params.clone();
        async move {
            let sent = client.request("tools/call", params).send().await;
            sent.unwrap().into_result().unwrap()
        }
    });
    let results = join_all(calls).await;
    assert_eq!(results[0], results[1]);
    assert_eq!(results[0]["resultType"], "complete");
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert_eq!(system.count("SELECT attempt FROM tasks").await, 1);
}

/// Thirteen clients, three replicas, and a load balancer that sends no two requests of a client
/// to the same one: nobody notices.
#[tokio::test(flavor = "multi_thread")]
async fn every_request_goes_to_another_replica() {
    let system = System::of(3, 1).await;
    let turn = AtomicUsize::new(0);
    let clients = (0..13).map(|n| {
        let (turn, system) = (&turn, &system);
        async move {
            let name = format!("client-{n}");
            // A client of its own for every request: a connection of its own, too.
            let next = || {
                let gateway = turn.fetch_add(1, Ordering::Relaxed) % 3;
                system.cluster.client(gateway, &name)
            };
            let id = next()
                .start("confirm_delete", json!({"filename": name}))
                .await
                .unwrap();
            let deadline = Instant::now() + SOON;
            let asked = loop {
                let task = next().get(&id).await.unwrap();
                if task["status"] == "input_required" {
                    break task;
                }
                assert!(Instant::now() < deadline, "{task}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            };
            let key = first_key(&asked);
            let yes = json!({key: {"action": "accept", "content": {"confirm": true}}});
            next().update(&id, yes).await.unwrap();
            loop {
                let task = next().get(&id).await.unwrap();
                if task["status"] == "completed" {
                    let said = &task["result"]["content"][0]["text"];
                    assert_eq!(*said, format!("Deleted {name}."));
                    return;
                }
                assert!(Instant::now() < deadline, "{task}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    });
    join_all(clients).await;
    system.cluster.quiet(&[]).unwrap();
}

/// Everything but Postgres is killed while work is under way, and Redis forgets all: every id
/// resolves as soon as a gateway answers, on any, and all the work is done.
#[tokio::test(flavor = "multi_thread")]
async fn everything_restarts_in_the_middle() {
    let mut system = System::of(2, 2).await;
    let alice = system.cluster.client(0, "alice");
    let ids = join_all((0..8).map(|_| alice.start("slow_compute", json!({"seconds": 1})))).await;
    let ids: Vec<String> = ids.into_iter().map(Result::unwrap).collect();
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
        for read in join_all(ids.iter().map(|id| client.get(id))).await {
            assert!(!read.unwrap()["status"].is_null());
        }
    }
    let other = system.cluster.client(1, "alice");
    for id in &ids {
        other.wait_status(id, "completed", SOON).await.unwrap();
    }
}

/// An id is good for the whole announced TTL, the result with it; then its owner is told that it
/// expired.
#[tokio::test(flavor = "multi_thread")]
async fn an_id_is_good_for_its_whole_ttl() {
    let settings = "[cron]\npurge_interval = \"200ms\"\ndeadline_interval = \"200ms\"";
    let system = System::with(2, 1, settings).await;
    let alice = system.cluster.client(0, "alice");
    let id = alice
        .start("slow_compute", json!({"seconds": 0}))
        .await
        .unwrap();
    let done = alice.wait_status(&id, "completed", SOON).await.unwrap();
    let ttl = done["ttlMs"].as_u64().unwrap();
    assert!(ttl > 3_600_000, "milliseconds, not seconds: {ttl}");
    // The TTL is a day and more, so the end of it is moved to be near.
    let near = format!(
        "UPDATE tasks SET expires_at = now() + interval '1500 ms' WHERE id = '{id}' RETURNING 1"
    );
    let moved = Instant::now();
    system.database.rows(&near).await.unwrap();
    let other = system.cluster.client(1, "alice");
    while moved.elapsed() < Duration::from_millis(1400) {
        let began = moved.elapsed();
        let task = other
            .get(&id)
            .await
            .unwrap_or_else(|error| panic!("{error} after {began:?}"));
        assert_eq!(task["result"], done["result"]);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let gone = harness::wait::until("the end of the TTL", SOON, async || {
        let answer = alice
            .request("tasks/get", json!({"taskId": id}))
            .send()
            .await
            .ok()?;
        (answer.error_code() == Some(-32602)).then_some(answer)
    });
    assert_eq!(
        gone.await.unwrap().error()["data"]["reason"],
        "task_expired"
    );
}

fn first_key(task: &Value) -> String {
    let requests = task["inputRequests"].as_object().expect("questions");
    requests.keys().next().expect("a question").clone()
}
