//! A short chaos run and a short load run: the long ones are `make chaos` and `make loadtest`.

use std::time::Duration;

use loadtest::load::run as load;
use loadtest::load::scenario::Scenario;
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

/// Steady load while a gateway and a worker die. No figure is judged: this machine is busy.
#[tokio::test(flavor = "multi_thread")]
async fn load_goes_on_while_replicas_die() {
    let scenario = r#"
duration = "16s"
warmup = "2s"
rate = 8.0
principals = 10
mix = { inline = 3, task = 3, question = 1, cancel = 1, listen = 1, read = 2 }
objectives = { lost = 0, errors_elsewhere = 0 }
break = [
    { at = "5s", target = "gateway-1", lasts = "2s" },
    { at = "8s", target = "worker-1", lasts = "2s" },
    { at = "12s", target = "redis", lasts = "1s" },
]
"#;
    let scenario: Scenario = toml::from_str(scenario).expect("a scenario");
    let dir = tempfile::tempdir().expect("a folder");
    let outcome = load::run(&load::Options {
        binary: env!("CARGO_BIN_EXE_mcp-tasks").into(),
        outside: None,
        scenario,
        numbers: schedule::Numbers {
            gateways: 2,
            workers: 2,
            crons: 1,
        },
        seed: 1,
        dir: Some(dir.path().to_owned()),
    })
    .await
    .expect("the system starts");
    println!("{}", outcome.text);
    assert!(outcome.good, "{}", outcome.text);
    let report = std::fs::read_to_string(dir.path().join("report.json")).expect("a report");
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    for request in [
        "call", "create", "read", "update", "cancel", "life", "heard",
    ] {
        let count = report["requests"][request]["count"].as_u64();
        assert!(count.is_some_and(|count| count > 0), "{request}: {count:?}");
    }
    let page = std::fs::read_to_string(dir.path().join("report.html")).expect("a page");
    for part in [
        "gateway-1 killed",
        "redis killed",
        "<polyline",
        "objectives met",
    ] {
        assert!(page.contains(part), "{part}");
    }
}
