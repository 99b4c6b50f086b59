//! The tool without servers, by a clock that is paused: hours pass at once.

use std::time::Duration;

use rust_worker::{Machines, Provision};
use serde_json::{Value, json};
use worker::testkit::{Kit, Run};

const HOUR: Duration = Duration::from_secs(3600);

fn kit(arguments: Value) -> (Kit, Machines) {
    let machines = Machines::default();
    let tool = Provision {
        machines: machines.clone(),
    };
    (Kit::new(tool).arguments(arguments), machines)
}

fn text(run: &Run) -> &str {
    run.result().unwrap().content[0].as_text().unwrap()
}

fn go(go: bool) -> Value {
    json!({ "action": "accept", "content": { "go": go } })
}

#[tokio::test(start_paused = true)]
async fn small_ones_are_rented_at_once() {
    let (kit, machines) = kit(json!({ "cores": 4, "packages": ["git", "curl"] }));
    let run = kit.simulate().await;
    assert!(text(&run).ends_with("is ready"));
    assert_eq!(run.acts(), ["rent", "install git", "install curl"]);
    assert_eq!(
        run.progress()[1].message.as_deref(),
        Some("installing curl")
    );
    assert_eq!(machines.count(), 1);
    assert!(run.elapsed() >= Duration::from_secs(120));
}

#[tokio::test(start_paused = true)]
async fn large_ones_are_asked_for() {
    let large = || kit(json!({ "cores": 96 })).0;
    let run = large()
        .answer_after("approve", HOUR, go(true))
        .simulate()
        .await;
    assert_eq!(run.acts(), ["rent"]);
    let run = large().answer("approve", go(false)).simulate().await;
    assert_eq!(text(&run), "not provisioned");
    // Nobody answers for a day.
    let run = large().silent("approve").simulate().await;
    assert_eq!(text(&run), "not provisioned");
    assert!(run.elapsed() >= HOUR * 24);
    // A client that cannot be asked.
    let run = large().capabilities(json!({})).simulate().await;
    assert_eq!(text(&run), "not provisioned");
    assert!(run.asked().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_lost_worker_costs_no_second_machine() {
    for lost in [
        |kit: Kit| kit.lost_in("rent"),
        |kit: Kit| kit.lost_after("rent"),
    ] {
        let (kit, machines) = kit(json!({ "cores": 4, "packages": ["git"] }));
        let run = lost(kit).simulate().await;
        assert_eq!(run.status(), "completed");
        assert_eq!(run.tries().len(), 1);
        assert_eq!(machines.count(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn what_comes_to_nothing_is_given_back() {
    // Tried again three times, with pauses that double.
    let (flaky, machines) = kit(json!({ "cores": 4, "packages": ["flaky"] }));
    let run = flaky.simulate().await;
    assert_eq!(run.reason().as_deref(), Some("attempts_exhausted"));
    let pauses: Vec<u64> = run.tries().iter().map(|t| t.pause.as_secs()).collect();
    assert_eq!(pauses, [1, 2]);
    assert_eq!((run.undone(), machines.count()), (vec!["rent"], 0));

    let (wrong, machines) = kit(json!({ "cores": 4, "packages": ["no-such"] }));
    let run = wrong.simulate().await;
    assert_eq!(run.error().unwrap().code, 404);
    assert_eq!(machines.count(), 0);

    let (cancelled, machines) = kit(json!({ "cores": 4, "packages": ["git", "curl"] }));
    let run = cancelled
        .cancel_after(Duration::from_secs(90))
        .simulate()
        .await;
    assert_eq!(run.status(), "cancelled");
    assert_eq!(run.acts(), ["rent", "install git", "install curl"]);
    assert_eq!(machines.count(), 0);

    let packages: Vec<String> = (0..60).map(|n| format!("p{n}")).collect();
    let (long, machines) = kit(json!({ "cores": 4, "packages": packages }));
    let run = long.simulate().await;
    assert_eq!(run.reason().as_deref(), Some("work_limit"));
    assert_eq!(machines.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn another_version_must_fit_the_journal() {
    let (first, _) = kit(json!({ "cores": 96 }));
    let waiting = first.simulate().await;
    assert_eq!(waiting.status(), "input_required");
    // The same arguments at a version that would not ask: it comes to `rent` where the journal
    // holds a question.
    let (small, machines) = kit(json!({ "cores": 4 }));
    let run = small
        .after(&waiting)
        .answer("approve", go(true))
        .simulate()
        .await;
    assert_eq!(run.reason().as_deref(), Some("journal_drift"));
    assert_eq!(machines.count(), 0);
}
