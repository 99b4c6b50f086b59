//! Whether a run was good: its figures against the scenario's objectives.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::scenario::{Objectives, Scenario};
use super::series::{Fault, Second, Series, Span, ms, together};

/// After a killed gateway is back, somebody may still hold a connection to the one that was (seconds).
const AFTERMATH: f64 = 1.0;
/// A break begins a moment after its signal was sent, or a moment before it is noted (seconds).
const BEFORE: f64 = 0.05;
/// Seconds looked at together: one alone holds too few requests for a 99th percentile.
const WINDOW: usize = 3;

/// One objective and what became of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
    let (seconds, faults, spans) = (series.seconds(), series.faults(), series.spans());
    let mut all = Vec::new();
    if let Some(most) = objectives.lost {
        all.push(at_most("broken promises", violations as u64, most));
    }
    if let Some(most) = objectives.errors_elsewhere {
        let elsewhere = faults.iter().filter(|fault| !excused(fault, &spans));
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
            all.push(p99(name, wanted, &quiet(scenario, &spans, &seconds, kinds)));
        }
    }
    if let Some(within) = objectives.recovery {
        for span in &spans {
            all.push(recovery(scenario, span, within, &seconds));
        }
    }
    // What did not break, or never came back, was no test of anything.
    for span in &spans {
        if let Some(trouble) = &span.trouble {
            all.push(Judged {
                objective: format!("break of {}", span.target),
                wanted: "broken and mended".to_owned(),
                got: trouble.clone(),
                met: false,
            });
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
    let all = together(seconds.iter().copied());
    let got = ms(&all, 99.0);
    Judged {
        objective: name.to_owned(),
        wanted: format!("at most {} ms", wanted.as_millis()),
        got: if all.is_empty() {
            "there were none".to_owned()
        } else {
            format!("{got:.1} ms of {}", all.len())
        },
        met: !all.is_empty() && got <= wanted.as_secs_f64() * 1_000.0,
    }
}

/// Whether a killed gateway's connections explain it.
#[must_use]
pub fn excused(fault: &Fault, spans: &[Span]) -> bool {
    let gateway = |name: &str| name.starts_with("gateway-");
    fault.connection
        && spans.iter().any(|span| {
            // Which endpoint leads to a pod, or a proxy to, nobody here knows.
            let hidden = !gateway(&fault.endpoint)
                && (gateway(&span.target) || span.target.starts_with("pods:"));
            (span.target == fault.endpoint || hidden)
                && span.how != "drained"
                && fault.at + BEFORE >= span.from
                && fault.at <= span.to + AFTERMATH
        })
}

/// The seconds of these kinds after the warm-up in which nothing was broken or just mended.
fn quiet<'a>(
    scenario: &Scenario,
    spans: &[Span],
    seconds: &'a BTreeMap<&'static str, Vec<Second>>,
    kinds: &[&str],
) -> Vec<&'a Second> {
    let recovery = scenario.objectives.recovery.unwrap_or_default();
    let is_quiet = |second: usize| {
        let at = Duration::from_secs(second as u64);
        let begun = at >= scenario.warmup && at < scenario.duration;
        let at = at.as_secs_f64();
        let broken = spans
            .iter()
            .any(|span| at + 1.0 > span.from && at < span.to + recovery.as_secs_f64());
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

/// The moment from which the 99th percentile of what was due is as it was before and stays so, counted
/// from the break's end.
fn recovery(
    scenario: &Scenario,
    broken: &Span,
    within: Duration,
    seconds: &BTreeMap<&'static str, Vec<Second>>,
) -> Judged {
    let before = whole(broken.from);
    let first = whole(scenario.warmup.as_secs_f64()).min(before.saturating_sub(1));
    let usual = ms(&span(seconds, first, before), 99.0);
    let most = allowed(&scenario.objectives, usual);
    let over = whole(broken.to);
    let limit = over + whole(within.as_secs_f64());
    let p99_from = |from: usize| {
        let window = span(seconds, from, from + WINDOW);
        (!window.is_empty()).then(|| ms(&window, 99.0))
    };
    let good = |from: usize| p99_from(from).is_some_and(|p99| p99 <= most);
    // The latest moment that was not good yet; a window in which nothing was answered is not.
    let last_bad = (over..=limit).rev().find(|from| !good(*from));
    let found = last_bad.map_or(over, |bad| bad + 1);
    let met = found <= limit;
    Judged {
        objective: format!("p99 as before {} {}", broken.target, broken.how),
        wanted: format!(
            "within {} s, at most {most:.0} ms (before: {usual:.0} ms)",
            within.as_secs()
        ),
        got: match (met, p99_from(limit)) {
            (true, _) => format!("after {} s", found - over),
            (false, Some(p99)) => format!("{p99:.0} ms then"),
            (false, None) => "no answers then".to_owned(),
        },
        met,
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

/// The second that this moment lies in.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "seconds of a run"
)]
fn whole(seconds: f64) -> usize {
    seconds.max(0.0) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn killed(target: &str) -> Span {
        Span {
            target: target.to_owned(),
            how: "killed".to_owned(),
            from: 10.0,
            to: 12.0,
            trouble: None,
        }
    }

    fn fault(at: f64, endpoint: &str, connection: bool) -> Fault {
        Fault {
            at,
            endpoint: endpoint.to_owned(),
            connection,
            request: "read".to_owned(),
        }
    }

    #[test]
    fn only_connections_of_the_killed_gateway_are_excused() {
        let breaks = [killed("gateway-2"), killed("redis")];
        assert!(excused(&fault(11.0, "gateway-2", true), &breaks));
        assert!(excused(&fault(11.0, "http://proxy/mcp", true), &breaks));
        assert!(!excused(
            &fault(11.0, "http://proxy/mcp", true),
            &breaks[1..]
        ));
        assert!(!excused(&fault(11.0, "gateway-1", true), &breaks));
        assert!(!excused(&fault(11.0, "gateway-2", false), &breaks));
        assert!(!excused(&fault(9.0, "gateway-2", true), &breaks));
        assert!(!excused(&fault(14.0, "gateway-2", true), &breaks));
    }

    fn scenario() -> Scenario {
        let text = "duration = \"40s\"\nrate = 1.0\n[mix]\ntask = 1\n";
        toml::from_str(text).unwrap()
    }

    /// What was due in each second took so long.
    fn took(us: impl Fn(usize) -> Option<u64>) -> BTreeMap<&'static str, Vec<Second>> {
        let second = |at: usize| {
            let mut second = Second::default();
            if let Some(us) = us(at) {
                second.latency.record_n(us, 100).unwrap();
            }
            second
        };
        BTreeMap::from([("read", (0..40).map(second).collect())])
    }

    #[test]
    fn a_slow_time_after_a_break_is_no_recovery() {
        let slow_until = |until: usize| {
            took(move |at| {
                Some(if (10..until).contains(&at) {
                    900_000
                } else {
                    9_000
                })
            })
        };
        let within = Duration::from_secs(5);
        let judged = |until| recovery(&scenario(), &killed("redis"), within, &slow_until(until));
        assert_eq!(judged(16).got, "after 4 s");
        assert!(judged(16).met);
        assert!(!judged(25).met);
    }

    /// A moment without answers is no good one, and a good one before a stall is none either.
    #[test]
    fn silence_is_no_recovery() {
        let within = Duration::from_secs(5);
        let silent = took(|at| (!(10..30).contains(&at)).then_some(9_000));
        let judged = recovery(&scenario(), &killed("redis"), within, &silent);
        assert_eq!(
            (judged.met, judged.got.as_str()),
            (false, "no answers then")
        );
        let late = took(|at| Some(if at == 15 { 900_000 } else { 9_000 }));
        let judged = recovery(&scenario(), &killed("redis"), within, &late);
        assert_eq!((judged.met, judged.got.as_str()), (true, "after 4 s"));
    }

    #[test]
    fn what_was_not_measured_is_not_met() {
        let mut scenario = scenario();
        scenario.objectives.call_p99 = Some(Duration::from_secs(1));
        let series = Series::new(Vec::new());
        let judged = judge(&scenario, &series, 0);
        assert_eq!((judged.len(), judged[0].met), (1, false));
        series.broke(
            ("redis".to_owned(), "killed".to_owned()),
            (0, 1),
            Some("no such process".to_owned()),
        );
        let judged = judge(&scenario, &series, 0);
        assert_eq!((judged.len(), judged[1].met), (2, false));
        assert_eq!(judged[1].got, "no such process");
    }
}
