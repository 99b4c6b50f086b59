//! The units for systemd: such that systemd takes, that give up what no process of ours needs, and that
//! run beside each other on one machine.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use harness::temp::Temp;

/// Of ten times the exposure that systemd reckons; a unit without a word about it has 96.
const EXPOSURE_MAX: &str = "25";

#[test]
fn every_unit_is_taken_and_gives_up_what_it_does_not_need() {
    let copies = Temp::new().unwrap();
    for file in units() {
        // A unit whose program is missing is refused.
        let text = std::fs::read_to_string(&file).unwrap();
        let ours = text.replace("/usr/local/bin/mcp-tasks", env!("CARGO_BIN_EXE_mcp-tasks"));
        assert_ne!(text, ours, "{}", file.display());
        let copy = copies.path().join(file.file_name().unwrap());
        std::fs::write(&copy, ours).unwrap();
        let threshold = format!("--threshold={EXPOSURE_MAX}");
        for words in [
            &["verify", "--man=no"][..],
            &["security", "--offline=true", &threshold],
        ] {
            let output = Command::new("systemd-analyze")
                .args(words)
                .arg(&copy)
                .output();
            let output = output.unwrap();
            let said = [output.stdout, output.stderr].concat();
            let said = String::from_utf8_lossy(&said);
            assert!(output.status.success(), "{}: {said}", file.display());
            // Of keys that it does not know, it only warns.
            assert!(
                words[0] != "verify" || said.is_empty(),
                "{}: {said}",
                file.display()
            );
        }
    }
}

#[test]
fn no_two_processes_on_one_machine_listen_at_the_same_address() {
    let mut taken = BTreeSet::new();
    for unit in units().iter().map(|file| Unit::read(file)) {
        // All that the page allows of a kind, and one that is not for several.
        let numbers = if unit.name.contains('@') {
            1..=9
        } else {
            1..=1
        };
        for number in numbers {
            let settings = unit.settings(number);
            let mut places = vec!["admin.listen"];
            if unit.name.contains("gateway") {
                places.push("gateway.bind");
            }
            for place in places {
                let (section, key) = place.split_once('.').unwrap();
                let address = settings[section][key].as_str().unwrap();
                let address: SocketAddr = address.parse().unwrap();
                assert!(address.ip().is_loopback(), "{}: {address}", unit.name);
                let free = taken.insert(address);
                assert!(free, "{} {number}: {place} = {address}", unit.name);
            }
        }
    }
    // Nine gateways with two each, nine workers, cron.
    assert_eq!(taken.len(), 9 * 2 + 9 + 1);
}

#[test]
fn one_that_cannot_start_is_failed_in_the_end() {
    for unit in units().iter().map(|file| Unit::read(file)) {
        let number = |key| unit.one(key).parse::<u32>().unwrap();
        let interval = number("StartLimitIntervalSec");
        let waiting = number("StartLimitBurst") * number("RestartSec");
        // The time that each start takes counts, too.
        let name = &unit.name;
        assert!(interval >= waiting * 2, "{name}: {waiting} of {interval}");
    }
}

#[test]
fn workers_and_their_tools_are_apart_from_gateways_and_cron() {
    let (workers, others): (Vec<_>, Vec<_>) = units()
        .iter()
        .map(|file| Unit::read(file))
        .partition(|unit| unit.name.contains("worker"));
    let [worker] = &workers[..] else {
        panic!("{} units of workers", workers.len());
    };
    let hidden = Path::new(worker.one("InaccessiblePaths").trim_start_matches('-'));
    for file in worker.files() {
        assert!(!file.starts_with(hidden), "{}", file.display());
    }
    for other in &others {
        for key in ["User", "Group"] {
            assert_ne!(worker.one(key), other.one(key), "{}", other.name);
        }
        for file in other.files() {
            assert!(file.starts_with(hidden), "{}", file.display());
        }
    }
    // Where its tools may write.
    let home = worker.environment(1).remove("HOME").unwrap();
    let state = worker.one("StateDirectory").replace("%i", "1");
    assert_eq!(home, format!("/var/lib/{state}"));
}

/// The files of all units.
fn units() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/systemd");
    let entries = std::fs::read_dir(folder).unwrap();
    let files = entries.map(|entry| entry.unwrap().path());
    let units: Vec<_> = files
        .filter(|file| file.extension().is_some_and(|end| end == "service"))
        .collect();
    assert_eq!(units.len(), 3);
    units
}

/// What a unit says, each key with all that is said of it.
struct Unit {
    name: String,
    said: BTreeMap<String, Vec<String>>,
}

impl Unit {
    fn read(file: &Path) -> Self {
        let mut said = BTreeMap::<String, Vec<String>>::new();
        for line in std::fs::read_to_string(file).unwrap().lines() {
            if let Some((key, value)) = line.split_once('=').filter(|_| !line.starts_with('#')) {
                said.entry(key.to_owned())
                    .or_default()
                    .push(value.to_owned());
            }
        }
        let name = file.file_name().unwrap().to_str().unwrap().to_owned();
        Self { name, said }
    }

    /// What it says of a key once.
    fn one(&self, key: &str) -> &str {
        match self.said.get(key).map(Vec::as_slice) {
            Some([value]) => value,
            said => panic!("{}: {key}: {said:?}", self.name),
        }
    }

    /// The environment of the process with this number.
    fn environment(&self, number: u32) -> BTreeMap<String, String> {
        let pairs = self.said["Environment"].iter().map(|pair| {
            let (name, value) = pair.split_once('=').unwrap();
            let value = value.replace("%i", &number.to_string());
            (name.to_owned(), value.replace("%S", "/var/lib"))
        });
        pairs.collect()
    }

    /// Files of settings.
    fn files(&self) -> [PathBuf; 2] {
        let variables = self.one("EnvironmentFile").trim_start_matches('-');
        [self.environment(1)["MCP_TASKS_CONFIG"].as_str(), variables].map(PathBuf::from)
    }

    /// The settings that its process finds there, as the process itself reads them.
    fn settings(&self, number: u32) -> toml::Table {
        let mut environment = self.environment(number);
        // The machine's own file is another matter.
        environment.remove("MCP_TASKS_CONFIG");
        let output = Command::new(env!("CARGO_BIN_EXE_mcp-tasks"))
            .args(["config", "show"])
            .env_clear()
            .envs(environment)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {said}", self.name);
        String::from_utf8(output.stdout).unwrap().parse().unwrap()
    }
}
