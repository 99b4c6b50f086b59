//! Promises that hold whatever happens, attacked from outside.

use std::collections::BTreeSet;

use futures::future::join_all;
use serde_json::{Value, json};

use crate::support::{SOON, System, keyed};

/// I7: a hundred racing calls with one key over three gateways are one task.
#[tokio::test(flavor = "multi_thread")]
async fn i07_a_hundred_racing_calls_make_one_task() {
    let system = System::of(3, 1).await;
    let clients = [0, 1, 2].map(|n| system.cluster.client(n, "alice"));
    let calls = (0..100).map(|n| {
        let client = &clients[n % 3];
        let params = keyed("slow_compute", json!({"seconds": 20}), "nightly");
        async move {
            client
                .request("tools/call", params)
                .send()
                .await
                .unwrap()
                .into_result()
                .unwrap()
        }
    });
    let ids: BTreeSet<String> = join_all(calls)
        .await
        .iter()
        .map(|handle| {
            handle["taskId"]
                .as_str()
                .unwrap_or_else(|| panic!("{handle}"))
                .to_owned()
        })
        .collect();
    assert_eq!(ids.len(), 1, "{ids:?}");
    assert_eq!(system.count("SELECT count(*) FROM tasks").await, 1);
    // Other arguments under the same key are refused, and say so.
    let changed = keyed("slow_compute", json!({"seconds": 21}), "nightly");
    let refused = clients[0]
        .request("tools/call", changed)
        .send()
        .await
        .unwrap();
    assert_eq!((refused.status, refused.error_code()), (200, Some(-32602)));
    // Another principal's key is another key.
    let other = keyed("slow_compute", json!({"seconds": 20}), "nightly");
    let bob = system
        .cluster
        .client(1, "bob")
        .request("tools/call", other)
        .send()
        .await
        .unwrap();
    let bob = bob.into_result().unwrap();
    assert!(!ids.contains(bob["taskId"].as_str().unwrap()));
    for (client, id) in [
        (&clients[0], ids.first().unwrap().as_str()),
        (
            &system.cluster.client(1, "bob"),
            bob["taskId"].as_str().unwrap(),
        ),
    ] {
        client.cancel(id).await.unwrap();
        client.wait_status(id, "cancelled", SOON).await.unwrap();
    }
    // A cancelled task under a key stays what it is.
    let again = keyed("slow_compute", json!({"seconds": 20}), "nightly");
    let repeat = clients[2]
        .request("tools/call", again)
        .send()
        .await
        .unwrap();
    assert_eq!(repeat.error_code(), Some(-32603), "{}", repeat.message);
    assert_eq!(repeat.error()["data"]["reason"], "cancelled");
}

/// I7: answered inline, a repeat gets the same result and never a second run.
#[tokio::test(flavor = "multi_thread")]
async fn i07_an_inline_result_is_repeated() {
    let system = System::of(2, 1).await;
    let mut results = Vec::new();
    for gateway in [0, 1, 0] {
        let client = system.cluster.client(gateway, "alice");
        let params = keyed("reindex_corpus", json!({"collection": "small"}), "once");
        results.push(
            client
                .request("tools/call", params)
                .send()
                .await
                .unwrap()
                .into_result()
                .unwrap(),
        );
    }
    assert_eq!(results[0], results[1]);
    assert_eq!(results[0], results[2]);
    assert_eq!(system.count("SELECT count(*) FROM tasks").await, 1);
    assert_eq!(system.count("SELECT attempt FROM tasks").await, 1);
}

/// I5: twenty cancels at once are one cancel, and the work stops before the status says so.
#[tokio::test(flavor = "multi_thread")]
async fn i05_twenty_cancels_are_one() {
    let system = System::of(3, 1).await;
    let clients = [0, 1, 2].map(|n| system.cluster.client(n, "alice"));
    let id = clients[0]
        .start("slow_compute", json!({"seconds": 60}))
        .await
        .unwrap();
    let cancels = (0..20).map(|n| clients[n % 3].cancel(&id));
    for acknowledged in join_all(cancels).await {
        let acknowledged = acknowledged.unwrap();
        assert_eq!(acknowledged["resultType"], "complete");
        for absent in ["taskId", "status", "result", "error"] {
            assert!(acknowledged.get(absent).is_none());
        }
    }
    let ended = clients[1]
        .wait_status(&id, "cancelled", SOON)
        .await
        .unwrap();
    let again = clients[2].cancel(&id).await.unwrap();
    assert_eq!(
        again["resultType"], "complete",
        "cancelling a finished task is acknowledged too"
    );
    assert_eq!(
        without_pace(clients[0].get(&id).await.unwrap()),
        without_pace(ended)
    );
}

/// I6: a finished task reads the same, byte for byte, from every replica.
#[tokio::test(flavor = "multi_thread")]
async fn i06_terminal_reads_are_identical() {
    let system = System::of(3, 1).await;
    let clients = [0, 1, 2].map(|n| system.cluster.client(n, "alice"));
    let id = clients[0]
        .start(
            "slow_compute",
            json!({"seconds": 0, "label": "\u{e9}\u{1F600} 1e2"}),
        )
        .await
        .unwrap();
    clients[0]
        .wait_status(&id, "completed", SOON)
        .await
        .unwrap();
    let mut bodies = BTreeSet::new();
    for round in 0..9 {
        let answer = clients[round % 3]
            .request("tasks/get", json!({"taskId": id}))
            .id(json!("same"))
            .send()
            .await
            .unwrap();
        bodies.insert(answer.body);
    }
    assert_eq!(bodies.len(), 1, "{bodies:?}");
}

/// I1, I11: an expired task is told apart from one that never existed, for its owner only.
#[tokio::test(flavor = "multi_thread")]
async fn i11_expired_is_not_unknown() {
    let system = System::with(
        2,
        1,
        "[postgres]\nexpired_grace = \"1s\"\n[cron]\npurge_interval = \"1s\"",
    )
    .await;
    let alice = system.cluster.client(0, "alice");
    let id = alice
        .start("slow_compute", json!({"seconds": 60}))
        .await
        .unwrap();
    // The tool's TTL is long; the clock that decides is Postgres' own, so move the row instead.
    let sql = format!("UPDATE tasks SET expires_at = now() WHERE id = '{id}' RETURNING 1");
    system.database.rows(&sql).await.unwrap();
    let failed = alice.wait_status(&id, "failed", SOON).await.unwrap();
    assert_eq!(
        failed["error"]["data"]["reason"], "task_expired",
        "{failed}"
    );
    let expired = harness::wait::until("the tombstone", SOON, async || {
        let answer = alice
            .request("tasks/get", json!({"taskId": id}))
            .send()
            .await
            .ok()?;
        (answer.error_code() == Some(-32602)).then_some(answer)
    })
    .await
    .unwrap();
    assert_eq!(expired.error()["data"]["reason"], "task_expired");
    assert_eq!(expired.error()["data"]["finalStatus"], "failed");
    assert_eq!(
        expired.error()["message"],
        "Failed to retrieve task: Task has expired"
    );
    let bob = system
        .cluster
        .client(1, "bob")
        .request("tasks/get", json!({"taskId": id}))
        .send()
        .await
        .unwrap();
    assert_eq!(
        bob.error()["message"],
        "Failed to retrieve task: Task not found"
    );
}

/// I10: a parked task holds nothing and is not touched by restarts of everything.
#[tokio::test(flavor = "multi_thread")]
async fn i10_parked_survives_restarts() {
    let mut system = System::of(1, 1).await;
    let alice = system.cluster.client(0, "alice");
    let id = alice.start("multi_input", json!({})).await.unwrap();
    let asked = alice
        .wait_status(&id, "input_required", SOON)
        .await
        .unwrap();
    let keys: Vec<String> = asked["inputRequests"]
        .as_object()
        .unwrap()
        .keys()
        .cloned()
        .collect();
    assert_eq!(keys.len(), 2);
    assert_eq!(
        system
            .count("SELECT count(*) FROM tasks WHERE lease_until IS NOT NULL")
            .await,
        0
    );
    system.redis.flush().await.unwrap();
    for node in system.cluster.nodes() {
        node.kill9();
        node.start_again().unwrap();
    }
    system.cluster.ready().await.unwrap();
    let answer = |n: usize| json!({keys[n].clone(): {"action": "accept", "content": {"name": "x", "confirm": true}}});
    alice.update(&id, answer(0)).await.unwrap();
    let partly = alice.get(&id).await.unwrap();
    assert_eq!(partly["status"], "input_required");
    assert!(partly["inputRequests"].get(&keys[0]).is_none());
    assert!(partly["inputRequests"].get(&keys[1]).is_some());
    alice.update(&id, answer(1)).await.unwrap();
    alice.wait_status(&id, "completed", SOON).await.unwrap();
}

fn without_pace(mut task: Value) -> Value {
    if let Some(fields) = task.as_object_mut() {
        fields.remove("pollIntervalMs");
    }
    task
}
