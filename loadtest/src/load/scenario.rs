//! The scenario file: how much of what, for how long, what breaks when, and what must hold.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use harness::{Error, Result};
use serde::{Deserialize, Serialize};

/// A scenario, as its TOML file says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// For how long operations begin, the warm-up included.
    #[serde(with = "humantime_serde")]
    pub duration: Duration,
    /// The first part of it, which no figure counts.
    #[serde(with = "humantime_serde", default)]
    pub warmup: Duration,
    /// Operations begun each second, whatever became of earlier ones (an open loop).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// Instead of it: so many clients, each of which begins an operation when its last one is over (a
    /// closed loop).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clients: Option<usize>,
    /// On behalf of so many principals.
    #[serde(default = "one")]
    pub principals: u64,
    /// Operations under way at most; what would be more counts as an error.
    #[serde(default = "in_flight")]
    pub in_flight_max: usize,
    /// Which operations, each with its weight.
    pub mix: BTreeMap<Kind, u64>,
    /// What must hold.
    #[serde(default)]
    pub objectives: Objectives,
    /// What breaks.
    #[serde(default, rename = "break")]
    pub breaks: Vec<Break>,
}

/// What a client does in one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A short call, answered with its result.
    Inline,
    /// A call that becomes a task, polled to its end.
    Task,
    /// A task that asks, is answered, and ends.
    Question,
    /// A task that is cancelled.
    Cancel,
    /// A task whose end is heard on a listen.
    Listen,
    /// One read of an earlier task.
    #[serde(alias = "poll")]
    Read,
}

/// What must hold for a run to be good. What is left out is not judged.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Objectives {
    /// Broken promises, at most; tasks that are gone are such.
    pub lost: Option<u64>,
    /// Errors other than on connections that a killed gateway held, at most.
    pub errors_elsewhere: Option<u64>,
    /// Of calls, milliseconds until the answer at the 99th percentile, breaks left out.
    #[serde(with = "humantime_serde")]
    pub call_p99: Option<Duration>,
    /// The same of reads.
    #[serde(with = "humantime_serde")]
    pub read_p99: Option<Duration>,
    /// How long after a break's end the 99th percentile of all requests may differ from before.
    #[serde(with = "humantime_serde")]
    pub recovery: Option<Duration>,
    /// How many times as long counts as different (3).
    pub recovered_ratio: Option<f64>,
    /// What is no longer than this is never different (0).
    #[serde(with = "humantime_serde")]
    pub recovered_above: Option<Duration>,
}

/// Something that is killed and comes back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Break {
    /// When, from the start of the run.
    #[serde(with = "humantime_serde")]
    pub at: Duration,
    /// `gateway-N`, `worker-N`, `cron-N`, `postgres` or `redis`; of a system on Kubernetes `pods:LABEL`.
    pub target: String,
    /// How it breaks: `killed` (SIGKILL, the default), `drained` (SIGTERM) or `frozen` (SIGSTOP).
    #[serde(default)]
    pub how: How,
    /// For how long it stays away.
    #[serde(with = "humantime_serde")]
    pub lasts: Duration,
    /// The line of the file that it begins in.
    #[serde(skip)]
    pub line: Option<usize>,
}

impl Break {
    /// What is wrong with it, and where.
    #[must_use]
    pub fn told(&self, why: &str) -> String {
        let line = self.line.map(|line| format!("line {line}: "));
        format!(
            "{}break of {}: {why}",
            line.unwrap_or_default(),
            self.target
        )
    }
}

/// How something breaks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "told where they are used")]
pub enum How {
    #[default]
    Killed,
    Drained,
    Frozen,
}

fn one() -> u64 {
    1
}

fn in_flight() -> usize {
    10_000
}

/// Longer than anybody waits for a report.
const LONGEST: Duration = Duration::from_secs(7 * 24 * 3_600);

/// What is wrong with a scenario.
struct Wrong {
    key: Option<&'static str>,
    told: String,
}

impl Wrong {
    fn new(key: &'static str, why: &str) -> Wrong {
        Wrong {
            key: Some(key),
            told: format!("{key}: {why}"),
        }
    }

    /// With the line that the key stands in, if it does in this text.
    fn told(self, text: &str) -> String {
        let begins = |line: &str| {
            let key = self.key.unwrap_or("?");
            let rest = line.trim_start().trim_start_matches('[');
            let rest = rest.strip_prefix(key).map(str::trim_start);
            rest.is_some_and(|rest| rest.starts_with(['=', ']']))
        };
        match text.lines().position(begins) {
            Some(at) => format!("line {}: {}", at + 1, self.told),
            None => self.told,
        }
    }
}

impl Scenario {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// With what is wrong and where.
    pub fn read(path: &Path) -> Result<Scenario> {
        let text =
            std::fs::read_to_string(path).map_err(Error::io(format!("read {}", path.display())))?;
        Scenario::parse(&text).map_err(|why| Error::Other(format!("{}: {why}", path.display())))
    }

    /// # Errors
    /// With what is wrong, and in which line.
    fn parse(text: &str) -> std::result::Result<Scenario, String> {
        let mut scenario: Scenario = toml::from_str(text).map_err(|error| error.to_string())?;
        let begins = text.lines().enumerate();
        let begins = begins.filter(|(_, line)| line.trim_start().starts_with("[[break]]"));
        for (planned, (at, _)) in scenario.breaks.iter_mut().zip(begins) {
            planned.line = Some(at + 1);
        }
        scenario.wrong().map_err(|wrong| wrong.told(text))?;
        Ok(scenario)
    }

    /// Checks that it can be played.
    ///
    /// # Errors
    /// With what is wrong.
    pub fn check(&self) -> std::result::Result<(), String> {
        self.wrong().map_err(|wrong| wrong.told(""))
    }

    fn wrong(&self) -> std::result::Result<(), Wrong> {
        let wrong = |key, why: &str| Err(Wrong::new(key, why));
        match (self.rate, self.clients) {
            (Some(rate), None) if rate > 0.0 && rate <= 100_000.0 => {}
            (None, Some(1..=100_000)) => {}
            (Some(rate), None) => {
                return wrong("rate", &format!("{rate} is not above 0 and at most 100000"));
            }
            (None, Some(clients)) => {
                return wrong("clients", &format!("{clients} is not from 1 to 100000"));
            }
            (None, None) => return wrong("rate", "that or clients is needed"),
            (Some(_), Some(_)) => {
                return wrong(
                    "rate",
                    "not beside clients: either a rate or a number of clients",
                );
            }
        }
        if self.duration < Duration::from_secs(1) || self.duration > LONGEST {
            return wrong("duration", "it must be from 1s to 7days");
        }
        if self.warmup >= self.duration {
            return wrong("warmup", "it must be shorter than duration");
        }
        if !(1..=1_000_000).contains(&self.principals) {
            return wrong("principals", "it must be from 1 to 1000000");
        }
        if self.in_flight_max == 0 {
            return wrong("in_flight_max", "at least 1");
        }
        let weights = self.mix.values();
        let sum = weights.fold(0_u64, |sum, weight| sum.saturating_add(*weight));
        if sum == 0 || sum > u64::from(u32::MAX) {
            return wrong("mix", "the weights together must be from 1 to 4294967295");
        }
        let ratio = self.objectives.recovered_ratio;
        if ratio.is_some_and(|ratio| !(1.0..=1_000.0).contains(&ratio)) {
            return wrong("recovered_ratio", "it must be from 1 to 1000");
        }
        for planned in &self.breaks {
            let why = if planned.at + planned.lasts > self.duration {
                "it is not over by the end"
            } else if self.objectives.recovery.is_some()
                && planned.at < self.warmup + Duration::from_secs(1)
            {
                "recovery is judged by what was before, so it must be a second after the warm-up"
            } else {
                continue;
            };
            return Err(Wrong {
                key: None,
                told: planned.told(why),
            });
        }
        Ok(())
    }

    /// How much it asks for, for people.
    #[must_use]
    pub fn pace(&self) -> String {
        match (self.rate, self.clients) {
            (Some(rate), _) => format!("{rate} operations a second"),
            (None, clients) => format!("{} clients without a pause", clients.unwrap_or_default()),
        }
    }

    /// The mix as weights.
    #[must_use]
    pub fn weights(&self) -> Vec<(u64, Kind)> {
        self.mix
            .iter()
            .map(|(kind, weight)| (*weight, *kind))
            .collect()
    }
}

impl Kind {
    /// Its name in files and reports.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Inline => "inline",
            Kind::Task => "task",
            Kind::Question => "question",
            Kind::Cancel => "cancel",
            Kind::Listen => "listen",
            Kind::Read => "read",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: &str = "duration = \"10s\"\nrate = 1.0\n[mix]\ntask = 1\n";

    #[test]
    fn the_failover_scenario_is_whole() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/failover.toml");
        let scenario = Scenario::read(&path).unwrap();
        assert_eq!(scenario.breaks.len(), 3);
        assert_eq!(scenario.objectives.lost, Some(0));
    }

    #[test]
    fn mistakes_are_told() {
        assert!(Scenario::parse(LEAST).is_ok());
        let closed = LEAST
            .replace("rate = 1.0", "clients = 5")
            .replace("task", "poll");
        let closed = Scenario::parse(&closed).unwrap();
        assert_eq!(closed.pace(), "5 clients without a pause");
        for (wrong, told) in [
            (LEAST.replace("rate = 1.0", "rate = 0.0"), "line 2: rate"),
            (LEAST.replace("rate = 1.0", "rate = nan"), "line 2: rate"),
            (LEAST.replace("rate = 1.0", "rate = 1.0.0"), "line 2"),
            (LEAST.replace("rate = 1.0", ""), "clients"),
            (
                LEAST.replace("rate = 1.0", "clients = 0"),
                "line 2: clients",
            ),
            (LEAST.replace("10s", "10 parsecs"), "line 1"),
            (LEAST.replace("10s", "8days"), "line 1: duration"),
            (
                LEAST.replace("rate = 1.0", "rate = 1.0\nclients = 5"),
                "either",
            ),
            (LEAST.replace("task = 1", "task = 0"), "line 3: mix"),
            (LEAST.replace("task", "tusk"), "line 4"),
            (
                LEAST.replace("rate = 1.0", "rate = 1.0\nin_flight_max = 0"),
                "line 3: in_flight_max",
            ),
            (
                format!("{LEAST}[objectives]\nrecovered_ratio = 0.5\n"),
                "line 6: recovered_ratio",
            ),
            (format!("{LEAST}[objectives]\nlost = -1\n"), "line 6"),
            (format!("{LEAST}[objectives]\nloss = 1\n"), "line 6"),
            (
                LEAST.replace("rate = 1.0", "rate = 1.0\nprincipals = 0"),
                "line 3: principals",
            ),
            (
                LEAST.replace("rate = 1.0", "rate = 1.0\nwarmup = \"11s\""),
                "line 3: warmup",
            ),
            (
                format!("{LEAST}[[break]]\nat = \"8s\"\ntarget = \"redis\"\nlasts = \"3s\"\n"),
                "line 5: break of redis: it is not over",
            ),
            (
                format!(
                    "{LEAST}[objectives]\nrecovery = \"5s\"\n[[break]]\nat = \"0s\"\n\
                     target = \"redis\"\nlasts = \"3s\"\n"
                ),
                "line 7: break of redis: recovery",
            ),
        ] {
            let why = Scenario::parse(&wrong).unwrap_err();
            assert!(why.contains(told), "{why}");
        }
    }
}
