//! A short chaos run: the long one is `make chaos`.

use std::time::Duration;

use loadtest::run::{self, Options};

/// A handful of faults, always the same ones.
#[tokio::test(flavor = "multi_thread")]
async fn a_short_run_breaks_no_promise() {
    let outcome = run::run(&Options {
        binary: env!("CARGO_BIN_EXE_mcp-tasks").into(),
        duration: Duration::from_secs(45),
        seed: 2,
        clients: 16,
        tasks_min: 50,
        keep: None,
    })
    .await
    .expect("the system starts");
    println!("{}{}", outcome.report, outcome.verdict);
    assert!(outcome.good, "{}", outcome.verdict);
}
