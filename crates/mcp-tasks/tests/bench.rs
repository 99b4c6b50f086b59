//! The bench runs and its figures are figures, and floods end nothing. How fast anything is, is not judged:
//! this machine is busy, and this build is not optimised. The real ones are `make bench` and `make flood`.

use std::time::Duration;

use loadtest::bench::run::{self, Options};
use loadtest::bench::{capacity, history, table};
use loadtest::flood::latency::{generate, quiet};
use loadtest::flood::memory::{self, Kind};
use loadtest::flood::target::Target;

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
    for work in table::ALL {
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

/// How long each flood is held.
const HELD: Duration = Duration::from_secs(1);
/// What docs/limits.md says of the memory of floods that are ten times as large.
const MEMORY_MAX: u64 = 700 * 1024 * 1024;

/// One after the other, on one gateway with its own limits: another principal's reads are all answered, and
/// memory stays bounded. Small enough that no limit of the whole process is reached, which would be everybody's.
#[tokio::test(flavor = "multi_thread")]
async fn floods_of_one_principal_leave_others_their_answers() {
    let target = Target::start(env!("CARGO_BIN_EXE_mcp-tasks").as_ref(), "")
        .await
        .expect("the gateway starts");
    let address = target.address().expect("it listens");
    let during = tokio::select! {
        during = quiet(&target, 2 * HELD) => during.expect("others are answered"),
        // Five times what one principal may send.
        ended = generate(address, 5_000) => panic!("the flood ended: {ended:?}"),
    };
    println!("requests: {during}");
    assert!(during.count > 0 && during.refused == 0, "{during}");
    for flood in [
        (Kind::Idle, 900),
        (Kind::Heads, 900),
        (Kind::Bodies, 150),
        (Kind::Unread, 50),
        (Kind::Streams, 10),
    ] {
        let taken = memory::flood(&target, flood, HELD).await;
        let taken = taken.expect("others are answered");
        println!("{flood:?}: {taken:?}");
        let seen = taken.seen.expect("somebody reads meanwhile");
        assert!(seen.count > 0, "{flood:?}");
        assert_eq!(seen.refused, 0, "{flood:?}");
        let there = usize::try_from(taken.connections).unwrap();
        let kept = !flood.0.is_kept() || there * 100 >= flood.1 * 95;
        assert!(kept, "{flood:?}: {there} were there");
        assert!(taken.most < MEMORY_MAX, "{flood:?}: {} bytes", taken.most);
    }
}
