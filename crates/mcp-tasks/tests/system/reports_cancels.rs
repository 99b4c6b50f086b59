//! Cancelling: the work stops within a stated bound, and only then the task says so.

use std::time::{Duration, Instant};

use futures::future::join_all;
use serde_json::json;

use crate::reports_tools::{self, Ledger};
use crate::support::{SOON, System};

/// Told to another replica than the one that made the task: the work ends within a second, and
/// nothing is done after `cancelled` was shown.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_on_another_replica_stops_the_work() {
    let (system, ledger, _tools) = reports_tools::system(2, "").await;
    let [alice, other] = [0, 1].map(|n| system.cluster.client(n, "alice"));
    let work = json!({"label": "billed", "steps": 1000, "pause_ms": 20});
    let id = alice.start("toil", work).await.unwrap();
    ledger.acted("billed", 5).await;
    other.cancel(&id).await.unwrap();
    let acknowledged = Ledger::now_ms();
    alice.wait_status(&id, "cancelled", SOON).await.unwrap();
    let shown = Ledger::now_ms();
    assert!(
        shown - acknowledged < 1_500,
        "took {} ms",
        shown - acknowledged
    );
    tokio::time::sleep(Duration::from_millis(500)).await;
    let last = ledger.acts("billed").last().unwrap().at_ms;
    // A step that began before the acknowledgement may end after it; none begins.
    assert!(
        last <= acknowledged + 100,
        "acted {} ms after",
        last - acknowledged
    );
    assert!(last <= shown, "acted after `cancelled`");
}

/// Work that does not listen is dropped after its grace, and only then called cancelled; twenty
/// cancels from two replicas are one.
#[tokio::test(flavor = "multi_thread")]
async fn deaf_work_is_over_before_it_is_called_cancelled() {
    let (system, ledger, mut tools) = reports_tools::system(2, "").await;
    let clients = [0, 1].map(|n| system.cluster.client(n, "alice"));
    let id = clients[0]
        .start("deaf", json!({"label": "deaf"}))
        .await
        .unwrap();
    ledger.acted("deaf", 5).await;
    let cancels = (0..20).map(|n| clients[n % 2].cancel(&id));
    for acknowledged in join_all(cancels).await {
        assert_eq!(acknowledged.unwrap()["resultType"], "complete");
    }
    let acknowledged = Ledger::now_ms();
    clients[1]
        .wait_status(&id, "cancelled", SOON)
        .await
        .unwrap();
    let shown = Ledger::now_ms();
    // Half a second of grace.
    assert!(
        shown - acknowledged < 3_000,
        "took {} ms",
        shown - acknowledged
    );
    tokio::time::sleep(Duration::from_millis(300)).await;
    let acts = ledger.acts("deaf");
    assert!(
        acts.last().unwrap().at_ms <= shown,
        "acted after `cancelled`"
    );
    assert!(acts.iter().all(|act| act.attempt == 1), "it never ran anew");
    assert!(!tools.ended(), "the worker lives on");
    let row = format!("SELECT count(*) FROM tasks WHERE id = '{id}' AND attempt = 1 AND tries = 0");
    assert_eq!(system.count(&row).await, 1, "twenty cancels are one");
}

/// A finished task is not cancelled any more: it reads as before, byte for byte.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_cancel_changes_nothing() {
    let system = System::of(2, 1).await;
    let [alice, other] = [0, 1].map(|n| system.cluster.client(n, "alice"));
    let id = alice
        .start("slow_compute", json!({"seconds": 0}))
        .await
        .unwrap();
    alice.wait_status(&id, "completed", SOON).await.unwrap();
    let read = || async {
        let request = alice
            .request("tasks/get", json!({"taskId": id}))
            .id(json!(1));
        request.send().await.unwrap().body
    };
    let before = read().await;
    for cancelled in join_all((0..5).map(|_| other.cancel(&id))).await {
        cancelled.unwrap();
    }
    assert_eq!(read().await, before);
}

/// Cancels that arrive about when the work ends: every task is one or the other, with what belongs
/// to it, and stays so.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_and_the_end_of_the_work_agree() {
    let (system, ledger, _tools) = reports_tools::system(2, "").await;
    let clients = [0, 1].map(|n| system.cluster.client(n, "alice"));
    let begun = Instant::now();
    let runs = (0..40_u64).map(|n| {
        let clients = &clients;
        async move {
            let work = json!({"label": format!("race-{n}"), "steps": 1, "pause_ms": 400});
            let id = clients[0].start("toil", work).await.unwrap();
            tokio::time::sleep(Duration::from_millis(250 + n * 10)).await;
            clients[1].cancel(&id).await.unwrap();
            id
        }
    });
    let ids = join_all(runs).await;
    let mut seen = [0, 0];
    for (n, id) in ids.iter().enumerate() {
        let end = clients[0].wait_end(id, SOON).await.unwrap();
        match end["status"].as_str() {
            Some("completed") => {
                seen[0] += 1;
                assert_eq!(
                    end["result"]["content"][0]["text"],
                    format!("1 acts for race-{n}")
                );
            }
            Some("cancelled") => {
                seen[1] += 1;
                assert!(
                    end.get("result").is_none() && end.get("error").is_none(),
                    "{end}"
                );
            }
            _ => assert_eq!(end["error"]["data"]["reason"], "step_in_doubt", "{end}"),
        }
        let again = clients[1].get(id).await.unwrap();
        for field in ["status", "result", "error", "lastUpdatedAt"] {
            assert_eq!(again[field], end[field]);
        }
        assert!(ledger.acts(&format!("race-{n}")).len() <= 1);
    }
    assert!(
        seen.iter().all(|count| *count > 0),
        "{seen:?} in {:?}",
        begun.elapsed()
    );
}
