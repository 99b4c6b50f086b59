//! The bench runs and its figures are figures. What they are is not judged: this machine is busy, and
//! this build is not optimised. The real one is `make bench`.

use std::time::Duration;

use loadtest::bench::run::{self, Options};
use loadtest::bench::{capacity, history};

fn options() -> Options {
    Options {
        binary: env!("CARGO_BIN_EXE_mcp-tasks").into(),
        rows: 0,
        many: Some(3_000),
        time: Duration::ZERO,
        repeats: 0,
        connections: 0,
        clients: 0,
        listens: 0,
        soak: Some(Duration::from_secs(8)),
        only: Vec::new(),
    }
    .quick()
}

#[tokio::test]
async fn every_work_is_measured() {
    let report = run::run(&options()).await.expect("the system starts");
    println!("{}", report.text());
    assert!(report.failed.is_empty(), "{:?}", report.failed);
    for work in loadtest::bench::table::ALL {
        let row = report.rows.iter().find(|row| row.key == work.key);
        let row = row.unwrap_or_else(|| panic!("{} is missing", work.key));
        assert_eq!(row.errors, 0, "{}: {:?}", row.key, row.notes);
        let ours = row.ours.median;
        assert!(ours.is_finite() && ours >= 0.0, "{}: {ours}", row.key);
        if row.unit == "/s" || row.unit == "ms" {
            assert!(ours > 0.0, "{}: nothing was done", row.key);
        }
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("history.jsonl");
    history::record(&file, &report).expect("it is written");
    history::record(&file, &report).expect("it is added to");
    let text = std::fs::read_to_string(&file).expect("a history");
    assert_eq!(text.lines().count(), 2);
    assert_eq!(history::compare(&file, &report).expect("it is read"), "");
}

#[tokio::test]
async fn what_a_task_costs_is_told() {
    let text = capacity::measure(&options())
        .await
        .expect("the system starts");
    println!("{text}");
    for told in [
        "finished task at rest:",
        "queued task:",
        "read of a task",
        "inline call",
        "a million of them:",
    ] {
        assert!(text.contains(told), "{told}");
    }
}
