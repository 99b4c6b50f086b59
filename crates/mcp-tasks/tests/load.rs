//! The load test against a system that somebody else runs: processes killed by the names of a
//! `processes.json`, pods deleted by `kubectl`, several endpoints, a closed loop, and an objective that
//! can't be met. No figure is judged but that one: this machine is busy.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use harness::dev::Processes;
use harness::process::{Process, Spec};
use harness::temp::Temp;
use harness::{ports, wait};
use loadtest::load::outside::Outside;
use loadtest::load::pods::Kubectl;
use loadtest::load::report::Report;
use loadtest::load::run::{self, Options, Outcome};
use loadtest::load::scenario::Scenario;
use loadtest::schedule::Numbers;
use nix::sys::signal::Signal;

/// Used up by failures only.
const SOON: Duration = Duration::from_secs(120);

const BREAKS: &str = r#"
duration = "14s"
warmup = "2s"
rate = 6.0
principals = 5
mix = { inline = 3, task = 3, question = 1, cancel = 1, listen = 1, poll = 2 }
objectives = { lost = 0, errors_elsewhere = 0 }
break = [
    { at = "4s", target = "gateway-1", lasts = "1s" },
    { at = "6s", target = "worker-1", how = "frozen", lasts = "1s" },
    { at = "8s", target = "pods:part=gateway", how = "drained", lasts = "1s" },
    { at = "10s", target = "worker-2", lasts = "1s" },
]
"#;

/// No read is as fast as that.
const TOO_MUCH: &str = r#"
duration = "4s"
clients = 4
mix = { inline = 2, task = 1, poll = 3 }
objectives = { lost = 0, errors_elsewhere = 0, call_p99 = "1us" }
"#;

/// What `make dev` starts.
struct Dev {
    process: Process,
    folder: Temp,
    data: PathBuf,
}

impl Dev {
    async fn start() -> Dev {
        let folder = Temp::new().expect("a folder");
        let (data, log) = (folder.path().join("data"), folder.path().join("dev.log"));
        let port = ports::free().expect("a port");
        let spec = Spec::new("dev", env!("CARGO_BIN_EXE_mcp-tasks").as_ref(), &log)
            .args(["dev", "--fresh", "--fixtures", "chaos"])
            .args(["--port", &port.to_string()])
            .args(["--gateways", "2", "--workers", "2"])
            .args(["--data-dir", &data.to_string_lossy()]);
        let process = Process::spawn(&spec).expect("mcp-tasks dev starts");
        let mut dev = Dev {
            process,
            folder,
            data,
        };
        let read = || std::fs::read_to_string(&log).unwrap_or_default();
        wait::until("everything is up", SOON, async || {
            assert_eq!(dev.process.ended(), None, "it ended: {}", read());
            read().contains("Everything is up").then_some(())
        })
        .await
        .unwrap_or_else(|error| panic!("{error}: {}", read()));
        dev
    }

    fn processes(&self) -> Processes {
        let text = std::fs::read(self.data.join("processes.json")).expect("it is written");
        serde_json::from_slice(&text).expect("JSON")
    }

    /// A `kubectl` that notes what it is told, and knows of one pod, which is another after a delete.
    fn kubectl(&self) -> (PathBuf, PathBuf) {
        let dir = self.folder.path();
        let (program, told) = (dir.join("kubectl"), dir.join("told"));
        let script = format!(
            r#"#!/bin/sh
cd '{}'
echo "$*" >> told
case "$*" in
    *' delete '*) echo gone >> deletes ;;
    *' get pods '*)
        printf '{{"items": [{{"metadata": {{"name": "gateway-a", "uid": "%s"}},' "$(cat deletes 2>/dev/null | wc -l)"
        echo '"status": {{"conditions": [{{"type": "Ready", "status": "True"}}]}}}}]}}' ;;
esac
"#,
            dir.display()
        );
        std::fs::write(&program, script).expect("it is written");
        let may_run = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&program, may_run).expect("it may be run");
        (program, told)
    }

    async fn play(&self, scenario: &str, outside: Outside, dir: &Path) -> Outcome {
        run::run(&Options {
            binary: "not/started".into(),
            outside: Some(outside),
            scenario: toml::from_str::<Scenario>(scenario).expect("a scenario"),
            numbers: Numbers {
                gateways: 0,
                workers: 0,
                crons: 0,
            },
            seed: 1,
            dir: Some(dir.to_owned()),
        })
        .await
        .unwrap_or_else(|error| panic!("it can be played: {error}"))
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        self.process.signal(Signal::SIGKILL);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_system_of_somebody_else_is_broken_and_judged() {
    let dev = Dev::start().await;
    let before = dev.processes();
    let (kubectl, told) = dev.kubectl();
    let dir = dev.folder.path().join("breaks");
    let outside = Outside {
        processes: Some(dev.data.join("processes.json")),
        ledger: Some(dev.data.join("ledger.jsonl")),
        kubectl: Kubectl {
            arguments: vec!["--namespace=mcp".to_owned()],
            program: Some(kubectl),
        },
        ..Outside::default()
    };
    let outcome = dev.play(BREAKS, outside.clone(), &dir).await;
    println!("{}", outcome.text);
    assert!(outcome.good, "{}", outcome.text);
    assert_eq!(run::exit_code(&Ok(outcome)), 0);

    // Those that were killed are others now; who was frozen, or is a pod, is the same.
    let after = dev.processes();
    assert_ne!(before.gateways[0].pid, after.gateways[0].pid);
    assert_eq!(before.gateways[1].pid, after.gateways[1].pid);
    assert_eq!(before.workers[0].pid, after.workers[0].pid);
    assert_ne!(before.workers[1].pid, after.workers[1].pid);
    let told = std::fs::read_to_string(told).expect("kubectl was run");
    let told: Vec<&str> = told.lines().collect();
    assert_eq!(told.len(), 3, "{told:?}");
    assert_eq!(told[1], "--namespace=mcp delete pod/gateway-a --wait=false");

    let report = Report::read(&dir.join("report.json")).expect("a report");
    let broken: Vec<_> = report
        .breaks
        .iter()
        .map(|span| span.target.as_str())
        .collect();
    assert_eq!(
        broken,
        ["gateway-1", "worker-1", "pods:part=gateway", "worker-2"]
    );
    assert!(report.breaks.iter().all(|span| span.to >= span.from + 1.0));
    assert!(report.usage.contains_key("postgres") && report.usage.contains_key("gateway-2"));
    assert_eq!(
        report.system.matches("http://").count(),
        2,
        "{}",
        report.system
    );

    // Drawn again from its figures, the page is the same.
    let page = std::fs::read_to_string(dir.join("report.html")).expect("a page");
    let again = dev.folder.path().join("again.html");
    run::draw(&dir.join("report.json"), Some(&again)).expect("it is drawn");
    assert_eq!(std::fs::read_to_string(again).expect("a page"), page);
    for part in ["gateway-1 killed", "worker-1 frozen", "<polyline"] {
        assert!(page.contains(part), "{part}");
    }

    // Endpoints by hand, clients without a pause, an objective that nobody meets.
    let urls = after.gateways.iter().map(|gateway| gateway.url.clone());
    let by_hand = Outside {
        urls: urls.collect(),
        ..Outside::default()
    };
    let dir = dev.folder.path().join("closed");
    let outcome = dev.play(TOO_MUCH, by_hand, &dir).await;
    println!("{}", outcome.text);
    assert!(!outcome.good, "{}", outcome.text);
    assert_eq!(run::exit_code(&Ok(outcome)), 1);
    let report = Report::read(&dir.join("report.json")).expect("a report");
    let missed: Vec<_> = report
        .objectives
        .iter()
        .filter(|judged| !judged.met)
        .collect();
    assert_eq!(missed.len(), 1, "{missed:?}");
    assert_eq!(missed[0].objective, "call p99");
    assert!(report.operations.values().sum::<u64>() >= 4);
}
