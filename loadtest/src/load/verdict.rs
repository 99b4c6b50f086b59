//! Whether a run was good: its figures against the scenario's objectives.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::scenario::{Break, How, Objectives, Scenario};
use super::series::{Fault, Second, Series, ms, together};

/// After a killed gateway is back, somebody may still hold a connection to the one that was.
const AFTERMATH: Duration = Duration::from_secs(1);
/// Seconds looked at together: one alone holds too few requests for a 99th percentile.
const WINDOW: usize = 3;

/// One objective and what became of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Judged {
    /// The objective.
    pub objective: String,
    /// What was demanded.
    pub wanted: String,
    /// What came of it.
    pub got: String,
    /// Whether it was met.
    pub met: bool,
}

/// Judges a run in which the checker found so many broken promises.
#[must_use]
pub fn judge(scenario: &Scenario, series: &Series, violations: usize) -> Vec<Judged> {
    let objectives = &scenario.objectives;
    let (seconds, faults) = (series.seconds(), series.faults());
    let mut all = Vec::new();
    if let Some(most) = objectives.lost {
        all.push(at_most("broken promises", violations as u64, most));
    }
    if let Some(most) = objectives.errors_elsewhere {
        let elsewhere = faults
            .iter()
            .filter(|fault| !excused(fault, &scenario.breaks));
        let count = elsewhere.count() as u64;
        all.push(at_most(
            "errors but on connections of killed gateways",
            count,
            most,
        ));
    }
    for (name, wanted, kinds) in [
        ("call p99", objectives.call_p99, &["call", "create"][..]),
        ("read p99", objectives.read_p99, &["read"][..]),
    ] {
        if let Some(wanted) = wanted {
            all.push(p99(name, wanted, &quiet(scenario, &seconds, kinds)));
        }
    }
    if let Some(within) = objectives.recovery {
        for planned in &scenario.breaks {
            all.push(recovery(scenario, planned, within, &seconds));
        }
    }
    all
}

fn at_most(objective: &str, got: u64, most: u64) -> Judged {
    Judged {
        objective: objective.to_owned(),
        wanted: format!("at most {most}"),
        got: got.to_string(),
        met: got <= most,
    }
}

fn p99(name: &str, wanted: Duration, seconds: &[&Second]) -> Judged {
    let got = ms(&together(seconds.iter().copied()), 99.0);
    Judged {
        objective: name.to_owned(),
        wanted: format!("at most {} ms", wanted.as_millis()),
        got: format!("{got:.1} ms"),
        met: got <= wanted.as_secs_f64() * 1_000.0,
    }
}

/// Whether a killed gateway's connections explain it.
#[must_use]
pub fn excused(fault: &Fault, breaks: &[Break]) -> bool {
    let name = format!("gateway-{}", fault.gateway + 1);
    fault.connection
        && breaks.iter().any(|planned| {
            let over = planned.at + planned.lasts + AFTERMATH;
            // Which endpoint leads to a pod nobody here knows.
            (planned.target == name || planned.target.starts_with("pods:"))
                && planned.how != How::Drained
                && fault.at + Duration::from_millis(50) >= planned.at
                && fault.at <= over
        })
}

/// The seconds of these kinds after the warm-up in which nothing was broken or just mended.
fn quiet<'a>(
    scenario: &Scenario,
    seconds: &'a BTreeMap<&'static str, Vec<Second>>,
    kinds: &[&str],
) -> Vec<&'a Second> {
    let recovery = scenario.objectives.recovery.unwrap_or_default();
    let is_quiet = |second: usize| {
        let at = Duration::from_secs(second as u64);
        let begun = at >= scenario.warmup && at < scenario.duration;
        let broken = scenario.breaks.iter().any(|planned| {
            at + Duration::from_secs(1) > planned.at && at < planned.at + planned.lasts + recovery
        });
        begun && !broken
    };
    let of_kinds = seconds.iter().filter(|(kind, _)| kinds.contains(kind));
    of_kinds
        .flat_map(|(_, all)| all.iter().enumerate())
        .filter(|(second, _)| is_quiet(*second))
        .map(|(_, second)| second)
        .collect()
}

/// Requests, not operations: how long a task takes is another thing.
const REQUESTS: [&str; 5] = ["call", "create", "read", "update", "cancel"];

/// The first moment from which the 99th percentile is as it was, counted from the break's end.
fn recovery(
    scenario: &Scenario,
    planned: &Break,
    within: Duration,
    seconds: &BTreeMap<&'static str, Vec<Second>>,
) -> Judged {
    let before = whole(planned.at);
    let first = whole(scenario.warmup).min(before.saturating_sub(1));
    let usual = ms(&span(seconds, first, before), 99.0);
    let most = allowed(&scenario.objectives, usual);
    let over = whole(planned.at + planned.lasts);
    let limit = over + whole(within);
    let as_before = |from: &usize| ms(&span(seconds, *from, from + WINDOW), 99.0) <= most;
    let found = (over..=limit).find(as_before);
    let last = ms(&span(seconds, limit, limit + WINDOW), 99.0);
    Judged {
        objective: format!("p99 as before {} {:?}", planned.target, planned.how).to_lowercase(),
        wanted: format!(
            "within {} s, at most {most:.0} ms (before: {usual:.0} ms)",
            within.as_secs()
        ),
        got: match found {
            Some(at) => format!("after {} s", at - over),
            None => format!("{last:.0} ms then"),
        },
        met: found.is_some(),
    }
}

fn allowed(objectives: &Objectives, usual: f64) -> f64 {
    let ratio = objectives.recovered_ratio.unwrap_or(3.0);
    let above = objectives.recovered_above.unwrap_or_default();
    (usual * ratio).max(above.as_secs_f64() * 1_000.0)
}

fn span(
    seconds: &BTreeMap<&'static str, Vec<Second>>,
    from: usize,
    to: usize,
) -> hdrhistogram::Histogram<u32> {
    let requests = seconds.iter().filter(|(kind, _)| REQUESTS.contains(kind));
    together(requests.flat_map(|(_, all)| all.iter().take(to).skip(from)))
}

fn whole(time: Duration) -> usize {
    usize::try_from(time.as_secs()).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn killed(target: &str) -> Break {
        Break {
            at: Duration::from_secs(10),
            target: target.to_owned(),
            how: How::Killed,
            lasts: Duration::from_secs(2),
        }
    }

    fn fault(at: u64, gateway: usize, connection: bool) -> Fault {
        Fault {
            at: Duration::from_secs(at),
            gateway,
            connection,
            what: "read",
        }
    }

    #[test]
    fn only_connections_of_the_killed_gateway_are_excused() {
        let breaks = [killed("gateway-2"), killed("redis")];
        assert!(excused(&fault(11, 1, true), &breaks));
        assert!(!excused(&fault(11, 0, true), &breaks));
        assert!(!excused(&fault(11, 1, false), &breaks));
        assert!(!excused(&fault(9, 1, true), &breaks));
        assert!(!excused(&fault(14, 1, true), &breaks));
    }

    #[test]
    fn a_slow_time_after_a_break_is_no_recovery() {
        let second = |us: u64| {
            let mut second = Second::default();
            second.latency.record_n(us, 100).unwrap();
            second
        };
        let scenario = |slow_until: usize| {
            let all = (0..40).map(|at| {
                second(if (10..slow_until).contains(&at) {
                    900_000
                } else {
                    9_000
                })
            });
            BTreeMap::from([("read", all.collect::<Vec<_>>())])
        };
        let text = "duration = \"40s\"\nrate = 1.0\n[mix]\ntask = 1\n";
        let planned = killed("redis");
        let told: Scenario = toml::from_str(text).unwrap();
        let within = Duration::from_secs(5);
        assert!(recovery(&told, &planned, within, &scenario(16)).met);
        assert!(!recovery(&told, &planned, within, &scenario(25)).met);
    }
}
