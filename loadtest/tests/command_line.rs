//! What the load test says of files and arguments that it can't use: what, where, and exit code 2.

use std::path::PathBuf;
use std::process::{Command, Output};

use harness::temp::Temp;

fn load(arguments: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_mcp-tasks-load");
    let output = Command::new(program).args(arguments).output();
    output.expect("it runs")
}

#[track_caller]
fn refused(arguments: &[&str], told: &[&str]) {
    let output = load(arguments);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
    for part in told {
        assert!(
            said.contains(part),
            "{arguments:?}: {part} is not in {said}"
        );
    }
    assert!(!said.contains("panicked"), "{said}");
}

fn file(temp: &Temp, name: &str, text: &str) -> String {
    let path: PathBuf = temp.path().join(name);
    std::fs::write(&path, text).expect("it is written");
    path.display().to_string()
}

const GOOD: &str = "duration = \"10s\"\nrate = 1.0\n[mix]\ntask = 1\n";

#[test]
fn scenarios_that_cannot_be_played_are_refused_with_their_line() {
    let temp = Temp::new().expect("a folder");
    let scenario = |text: &str| file(&temp, "scenario.toml", text);
    let bad = |text: &str, told: &[&str]| {
        refused(&["--scenario", &scenario(text)], told);
    };
    bad(
        "duration = \"10s\"\nrate = fast\n",
        &["scenario.toml", "line 2"],
    );
    bad(
        &GOOD.replace("1.0", "-5.0"),
        &["scenario.toml", "line 2: rate: -5"],
    );
    bad(
        &GOOD.replace("task", "tusk"),
        &["line 4", "tusk", "`inline`"],
    );
    bad(&GOOD.replace("10s", "soon"), &["line 1", "soon"]);
    bad(
        &format!("{GOOD}[objective]\nlost = 0\n"),
        &["line 5", "objective", "`objectives`"],
    );
    let at = |target: &str| {
        format!("{GOOD}\n[[break]]\nat = \"2s\"\nlasts = \"1s\"\ntarget = \"{target}\"\n")
    };
    bad(
        &at("gateway-9"),
        &["line 6: break of gateway-9", "gateway-1 to -3"],
    );
    bad(
        &at("everything"),
        &["line 6: break of everything", "worker-N"],
    );
    bad(&at("pods:a=b"), &["line 6: break of pods:a=b"]);
    let late = at("redis").replace("2s", "9500ms");
    bad(
        &late,
        &["line 6: break of redis: it is not over by the end"],
    );
    refused(&["--scenario", "no/such/file.toml"], &["no/such/file.toml"]);
}

#[test]
fn arguments_that_do_not_fit_are_refused() {
    let temp = Temp::new().expect("a folder");
    let scenario = file(&temp, "scenario.toml", GOOD);
    let with = |more: &[&str], told: &[&str]| {
        refused(&[&["--scenario", scenario.as_str()], more].concat(), told);
    };
    with(&["--rate", "nan"], &["rate"]);
    with(&["--clients", "0"], &["clients: 0"]);
    with(&["--duration", "0s"], &["duration"]);
    with(&["--kubectl=--namespace=x"], &["--url or --processes"]);
    with(
        &["--url", "https://example.com/mcp"],
        &["https://example.com/mcp", "http://"],
    );
    with(&["--processes", "no/such.json"], &["no/such.json"]);
    let odd = file(&temp, "processes.json", "{\"gateways\": 3}");
    with(&["--processes", &odd], &["processes.json", "line 1"]);
    // Nobody listens there.
    with(&["--url", "http://127.0.0.1:9/mcp"], &["127.0.0.1:9"]);
}

#[test]
fn only_figures_of_a_run_are_drawn() {
    let temp = Temp::new().expect("a folder");
    let odd = file(&temp, "report.json", "{\"machine\": \"x\"}\n");
    refused(&["report", &odd], &["report.json", "line 1"]);
    refused(&["report", "no/such.json"], &["no/such.json"]);
}
