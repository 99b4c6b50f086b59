//! Postgres goes away and comes back within the time that requests wait for it: a slower answer is
//! all that anybody sees.

use std::time::{Duration, Instant};

use futures::future::join_all;
use harness::postgres::Postgres;
use serde_json::json;

use crate::postgres_load::{Load, World, accept, now_us};
use crate::support::{SOON, migrate};

/// After it went: what was allowed before may still act.
const LAST_ACTS: Duration = Duration::from_millis(500);
/// Measured are some tenths of a second on an idle machine; on a busy one this says enough.
const BACK: Duration = Duration::from_secs(4);

async fn postgres() -> (Postgres, String) {
    let postgres = Postgres::temporary().await.unwrap();
    let url = postgres.create_database("system").await.unwrap();
    migrate(url.clone()).await.unwrap();
    (postgres, url)
}

/// Killed under load and away for eight seconds: calls, reads, updates, cancels and subscriptions
/// of all gateways wait, nothing acknowledged is lost, no step acts meanwhile, no process restarts.
#[tokio::test(flavor = "multi_thread")]
async fn killed_for_eight_seconds() {
    let (mut postgres, url) = postgres().await;
    let mut world = World::start(&url, (2, 2), "").await;
    let load = Load::start(&world.cluster, 2);
    load.once_more().await;
    let asked = [asks(&world, 0).await, asks(&world, 1).await];
    let processes = world.processes();

    let gone = Instant::now();
    let gone_us = now_us();
    postgres.kill9().await;
    let everything = join_all([0, 1].map(|gateway| every_method(&world, gateway, &asked[gateway])));
    let (answers, (back_us, back)) = tokio::join!(everything, async {
        tokio::time::sleep(Duration::from_secs(7).saturating_sub(gone.elapsed())).await;
        // It takes up to a second to come back.
        let back_us = now_us();
        postgres.start_again().await.unwrap();
        (back_us, Instant::now())
    });
    load.once_more().await;
    let report = load.finish().await;

    report.assert_nothing_seen();
    assert_eq!(world.processes(), processes, "no process was restarted");
    let quiet = gone_us + u64::try_from(LAST_ACTS.as_micros()).unwrap();
    assert_eq!(world.ledger.between(quiet, back_us), 0, "no step acted");
    let mut waited = report.waited_after(back);
    for (method, answered) in answers.into_iter().flatten() {
        let waited = waited.entry(method).or_default();
        *waited = answered.saturating_duration_since(back).max(*waited);
    }
    println!(
        "figure: Postgres was away for {:?}; what waited for it was answered after {waited:?}",
        back - gone
    );
    // This one also waits for a worker, which may have lost its lease.
    let inline = waited.remove("tools/call inline").unwrap_or_default();
    assert!(inline < 3 * BACK, "{inline:?}");
    assert_eq!(waited.len(), 5, "every method: {waited:?}");
    for (method, waited) in waited {
        assert!(waited < BACK, "{method}: {waited:?}");
    }
}

/// Two parked tasks.
async fn asks(world: &World, gateway: usize) -> [String; 2] {
    let alice = world.cluster.client(gateway, "alice");
    let ask = async |call: &str| {
        let plan = json!({"call": call, "items": [{"ask": [{"key": "q"}]}]});
        let id = alice.start("chaos_ask", plan).await.unwrap();
        alice
            .wait_status(&id, "input_required", SOON)
            .await
            .unwrap();
        id
    };
    [ask("to be answered").await, ask("to be cancelled").await]
}

/// Asks everything at once, and says when each was answered. What was acknowledged took effect.
async fn every_method(
    world: &World,
    gateway: usize,
    [answered, cancelled]: &[String; 2],
) -> Vec<(&'static str, Instant)> {
    let alice = world.cluster.client(gateway, "alice");
    // Two tries for Postgres later, so that it is known to be away.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let calls = async {
        let plan = json!({"call": format!("called {gateway}")});
        let id = alice.start("chaos_steps", plan).await.unwrap();
        (id, Instant::now())
    };
    let gets = async {
        alice.get(answered).await.unwrap();
        Instant::now()
    };
    let updates = async {
        let answers = json!({"q": accept("yes")});
        alice.update(answered, answers).await.unwrap();
        Instant::now()
    };
    let cancels = async {
        alice.cancel(cancelled).await.unwrap();
        Instant::now()
    };
    let listens = async {
        let filter = json!({"taskIds": [answered]});
        let mut stream = alice.listen(filter).await.unwrap();
        let first = stream.next(SOON).await.unwrap().unwrap();
        assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
        Instant::now()
    };
    let ((id, called), got, updated, stopped, heard) =
        tokio::join!(calls, gets, updates, cancels, listens);
    for (id, status) in [
        (&id, "completed"),
        (answered, "completed"),
        (cancelled, "cancelled"),
    ] {
        let task = alice.wait_end(id, SOON).await.unwrap();
        assert_eq!(task["status"], status, "{task}");
    }
    vec![
        ("tools/call", called),
        ("tasks/get", got),
        ("tasks/update", updated),
        ("tasks/cancel", stopped),
        ("subscriptions/listen", heard),
    ]
}

/// Restarted in good order, three times in a row, as an upgrade does.
#[tokio::test(flavor = "multi_thread")]
async fn restarted_again_and_again() {
    let (mut postgres, url) = postgres().await;
    let mut world = World::start(&url, (2, 1), "").await;
    let load = Load::start(&world.cluster, 2);
    load.once_more().await;
    let processes = world.processes();
    for _ in 0..3 {
        postgres.restart().await.unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    load.once_more().await;
    load.finish().await.assert_nothing_seen();
    assert_eq!(world.processes(), processes, "no process was restarted");
}
