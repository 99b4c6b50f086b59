//! What dies, and what must hold all the same. Each test is a row of the failure table.

use std::time::Duration;

use futures::future::join_all;
use serde_json::json;

use crate::support::{SOON, System, keyed, over_own_postgres};

/// The gateway that made the task and the worker that runs it are killed: the task completes.
#[tokio::test(flavor = "multi_thread")]
async fn gateway_and_worker_killed() {
    let mut system = System::of(2, 1).await;
    let id = system
        .cluster
        .client(0, "alice")
        .start("slow_compute", json!({"seconds": 3}))
        .await
        .unwrap();
    let other = system.cluster.client(1, "alice");
    system.cluster.gateways[0].kill9();
    assert_eq!(other.get(&id).await.unwrap()["status"], "working");
    harness::wait::until("the worker owns it", SOON, async || {
        let running = format!("SELECT count(*) FROM tasks WHERE id = '{id}' AND phase = 'running'");
        (system.count(&running).await == 1).then_some(())
    })
    .await
    .unwrap();
    system.cluster.workers[0].kill9();
    system.cluster.workers[0].start_again().unwrap();
    let done = other.wait_status(&id, "completed", SOON).await.unwrap();
    assert!(!done["result"]["content"].as_array().unwrap().is_empty());
    let attempts = system
        .count(&format!("SELECT attempt FROM tasks WHERE id = '{id}'"))
        .await;
    assert_eq!(attempts, 2, "one attempt was lost, one completed");
}

/// A worker frozen for longer than its lease wakes up to find that it owns nothing.
#[tokio::test(flavor = "multi_thread")]
async fn worker_frozen() {
    let mut system = System::of(1, 1).await;
    let client = system.cluster.client(0, "alice");
    let id = client
        .start("slow_compute", json!({"seconds": 4}))
        .await
        .unwrap();
    harness::wait::until("the worker owns it", SOON, async || {
        let running = format!("SELECT count(*) FROM tasks WHERE id = '{id}' AND phase = 'running'");
        (system.count(&running).await == 1).then_some(())
    })
    .await
    .unwrap();
    system.cluster.workers[0].freeze();
    system.cluster.add(harness::config::Role::Worker).unwrap();
    let done = client.wait_status(&id, "completed", SOON).await.unwrap();
    let row = format!("SELECT attempt FROM tasks WHERE id = '{id}'");
    assert_eq!(system.count(&row).await, 2);
    system.cluster.workers[0].thaw();
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(
        client.get(&id).await.unwrap()["result"],
        done["result"],
        "terminal is final"
    );
    assert_eq!(
        system.count(&row).await,
        2,
        "the frozen attempt wrote nothing"
    );
}

/// A worker frozen while a job of it is ending is late with everything when it thaws: that is
/// no tool that cannot be stopped, and it lives on.
#[tokio::test(flavor = "multi_thread")]
async fn worker_frozen_in_a_stop() {
    let mut system = System::with(1, 1, "[worker]\nstop_grace = \"500ms\"").await;
    let client = system.cluster.client(0, "alice");
    // Deaf for a second: longer than it takes to be told.
    let ids = join_all((0..40).map(|_| client.start("failing_job", json!({})))).await;
    let ids: Vec<String> = ids.into_iter().map(Result::unwrap).collect();
    for cancelled in join_all(ids.iter().map(|id| client.cancel(id))).await {
        cancelled.unwrap();
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    system.cluster.workers[0].freeze();
    tokio::time::sleep(Duration::from_secs(8)).await;
    system.cluster.workers[0].thaw();
    for id in &ids {
        client.wait_end(id, SOON).await.unwrap();
    }
    let next = client
        .start("slow_compute", json!({"seconds": 4}))
        .await
        .unwrap();
    client.wait_status(&next, "completed", SOON).await.unwrap();
    assert!(
        system.cluster.workers[0].ended().is_none(),
        "the worker gave up"
    );
}

/// Redis loses everything while jobs are queued: all complete.
#[tokio::test(flavor = "multi_thread")]
async fn redis_emptied() {
    let mut system = System::of(1, 1).await;
    let client = system.cluster.client(0, "alice");
    // Frozen, so that the ten are still queued when Redis loses them.
    system.cluster.workers[0].freeze();
    let ids = join_all((0..10).map(|_| client.start("slow_compute", json!({"seconds": 0})))).await;
    let ids: Vec<String> = ids.into_iter().map(Result::unwrap).collect();
    system.redis.flush().await.unwrap();
    system.cluster.workers[0].thaw();
    for id in &ids {
        client.wait_status(id, "completed", SOON).await.unwrap();
    }
}

/// Redis is killed, and comes back empty: creates go on meanwhile, and everything completes.
#[tokio::test(flavor = "multi_thread")]
async fn redis_killed() {
    let mut system = System::of(1, 1).await;
    let client = system.cluster.client(0, "alice");
    system.redis.kill9();
    let id = client
        .start("slow_compute", json!({"seconds": 0}))
        .await
        .unwrap();
    let done = client.wait_status(&id, "completed", SOON).await.unwrap();
    assert_eq!(
        done["status"], "completed",
        "without Redis, workers take work from Postgres"
    );
    system.redis.start_again().await.unwrap();
    let id = client
        .start("slow_compute", json!({"seconds": 0}))
        .await
        .unwrap();
    client.wait_status(&id, "completed", SOON).await.unwrap();
}

/// Postgres is killed and comes back: requests wait for it, nothing acknowledged is lost.
#[tokio::test(flavor = "multi_thread")]
async fn postgres_restarted() {
    let (cluster, mut postgres, _redis) = over_own_postgres(1, 1).await;
    let client = cluster.client(0, "alice");
    let id = client
        .start("slow_compute", json!({"seconds": 5}))
        .await
        .unwrap();
    postgres.kill9().await;
    let reading = tokio::time::timeout(SOON, client.get(&id));
    let (read, started) = tokio::join!(reading, async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        postgres.start_again().await
    });
    started.unwrap();
    assert_eq!(
        read.unwrap().unwrap()["taskId"],
        json!(id),
        "the poll waited and was answered"
    );
    client.wait_status(&id, "completed", SOON).await.unwrap();
}

/// The caller hangs up before it got an answer, and has no key to come back with: the work stops.
#[tokio::test(flavor = "multi_thread")]
async fn caller_gone() {
    let system = System::of(1, 1).await;
    let client = system.cluster.client(0, "alice").undeclared();
    let params = json!({"name": "slow_compute", "arguments": {"seconds": 60}});
    let stream = client.request("tools/call", params).stream().await.unwrap();
    assert_eq!(
        system
            .count("SELECT count(*) FROM tasks WHERE phase IS NOT NULL")
            .await,
        1
    );
    drop(stream);
    harness::wait::until("the work was stopped", SOON, async || {
        (system
            .count("SELECT count(*) FROM tasks WHERE phase IS NOT NULL")
            .await
            == 0)
            .then_some(())
    })
    .await
    .unwrap();
}

/// A caller timed out on one gateway and waits on another: the first connection's end does not
/// take the work from the second.
#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_callers_gone() {
    let mut system = System::of(2, 1).await;
    let params = json!({"name": "test_input_required_result_elicitation", "arguments": {}});
    let first = system.cluster.client(0, "alice");
    let asked = first.request("tools/call", params.clone());
    let asked = asked.send().await.unwrap().into_result().unwrap();
    system.cluster.workers[0].freeze();
    let mut again = params;
    again["inputResponses"] =
        json!({"user_name": {"action": "accept", "content": {"name": "Alice"}}});
    again["requestState"] = asked["requestState"].clone();
    let gone = first
        .request("tools/call", again.clone())
        .stream()
        .await
        .unwrap();
    let second = system.cluster.client(1, "alice");
    let waiting = second.request("tools/call", again);
    let (result, ()) = tokio::join!(waiting.send(), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        drop(gone);
        tokio::time::sleep(Duration::from_secs(1)).await;
        system.cluster.workers[0].thaw();
    });
    let result = result.unwrap().into_result().unwrap();
    assert_eq!(result["content"][0]["text"], "Hello, Alice!");
}

/// The gateway dies with a call in its hands: the hold runs out and the orphan is stopped; with a
/// key the caller finds its task again on another gateway.
#[tokio::test(flavor = "multi_thread")]
async fn gateway_killed_mid_call() {
    let mut system = System::of(2, 1).await;
    let first = system.cluster.client(0, "alice").undeclared();
    let call = |key: Option<&str>| {
        let params = match key {
            Some(key) => keyed("slow_compute", json!({"seconds": 4}), key),
            None => json!({"name": "slow_compute", "arguments": {"seconds": 60}}),
        };
        let first = first.clone();
        async move { first.request("tools/call", params).stream().await }
    };
    let (_with, _without) = (call(Some("k1")).await.unwrap(), call(None).await.unwrap());
    system.cluster.gateways[0].kill9();
    let again = system.cluster.client(1, "alice").undeclared();
    let params = keyed("slow_compute", json!({"seconds": 4}), "k1");
    let result = again
        .request("tools/call", params)
        .send()
        .await
        .unwrap()
        .into_result()
        .unwrap();
    assert_eq!(result["resultType"], "complete");
    assert_eq!(
        system
            .count("SELECT count(*) FROM tasks WHERE idempotency_key = 'k1'")
            .await,
        1
    );
    harness::wait::until(
        "the orphan was stopped",
        Duration::from_secs(90),
        async || {
            (system
                .count("SELECT count(*) FROM tasks WHERE phase IS NOT NULL")
                .await
                == 0)
                .then_some(())
        },
    )
    .await
    .unwrap();
}

/// Gateways and workers asked to end finish what they hold, and nothing is lost.
#[tokio::test(flavor = "multi_thread")]
async fn drained() {
    let mut system = System::of(2, 2).await;
    let client = system.cluster.client(1, "alice");
    let ids = join_all((0..6).map(|_| client.start("slow_compute", json!({"seconds": 2})))).await;
    let mut listen = system
        .cluster
        .client(0, "alice")
        .listen(json!({"toolsListChanged": true}))
        .await
        .unwrap();
    listen.next(SOON).await.unwrap();
    system.cluster.workers[0].stop(SOON).await.unwrap();
    system.cluster.gateways[0].stop(SOON).await.unwrap();
    let mut last = None;
    while let Some(message) = listen.next(SOON).await.unwrap() {
        last = Some(message);
    }
    assert_eq!(
        last.unwrap()["result"]["resultType"],
        "complete",
        "the stream ended with its final response"
    );
    for id in ids {
        client
            .wait_status(&id.unwrap(), "completed", SOON)
            .await
            .unwrap();
    }
    let tries = system
        .count("SELECT coalesce(max(tries), 0) FROM tasks")
        .await;
    assert_eq!(tries, 0, "a drain spends no try");
}
