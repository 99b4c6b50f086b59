//! A short chaos run: the long one is `make chaos`.

use std::time::Duration;

use loadtest::run::{self, Options};
use loadtest::sabotage::drill;
use loadtest::schedule;

/// A handful of faults, always the same ones.
const DURATION: Duration = Duration::from_secs(45);
/// Chosen for the faults that it draws. With another deck, look for another: `mcp-tasks-loadtest
/// plan --duration 45s --seed N` shows what a seed draws.
const SEED: u64 = 785;
const DRAWN: [&str; 6] = [
    "gateway killed",
    "worker killed",
    "worker frozen",
    "worker stalled to postgres",
    "postgres killed",
    "redis killed",
];

#[tokio::test(flavor = "multi_thread")]
async fn a_short_run_breaks_no_promise() {
    let plan = schedule::plan(SEED, DURATION, run::NUMBERS);
    let kinds: Vec<String> = plan.iter().map(|planned| planned.fault.kind()).collect();
    for kind in DRAWN {
        assert!(kinds.iter().any(|drawn| drawn == kind), "{kind}: {kinds:?}");
    }
    let outcome = run::run(&Options {
        binary: env!("CARGO_BIN_EXE_mcp-tasks").into(),
        duration: DURATION,
        seed: SEED,
        clients: 16,
        tasks_min: 50,
        keep: None,
        sabotage: None,
    })
    .await
    .expect("the system starts");
    println!("{}{}", outcome.report, outcome.verdict);
    assert!(outcome.good, "{}", outcome.verdict);
}

/// The checker can fail: every promise is broken once, and each breach is found as what it is.
#[tokio::test(flavor = "multi_thread")]
async fn every_promise_broken_on_purpose_is_found() {
    let outcome = drill::run(&drill::Options {
        binary: env!("CARGO_BIN_EXE_mcp-tasks").into(),
        duration: Duration::from_secs(10),
        seed: 1,
        keep: None,
    })
    .await
    .expect("the system starts");
    println!("{}{}", outcome.report, outcome.verdict);
    assert!(outcome.good, "{}", outcome.verdict);
}
