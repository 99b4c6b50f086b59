//! The figures of a run: what `report.json` holds, and all that the page is drawn from.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use harness::{Error, Result};
use serde::{Deserialize, Serialize};

use super::scenario::Scenario;
use super::series::{Fault, Second, Series, Span, ms, together};
use super::usage::Look;
use super::verdict::{self, Judged};

/// Of whole tasks, and not of requests.
pub const LIVES: [&str; 2] = ["life", "heard"];
/// All requests together, in [`Report::requests`].
pub const ALL: &str = "all requests";

/// Everything that a report tells.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// When it was, in UTC.
    pub at: String,
    /// Which machine the clients had.
    pub machine: String,
    /// What was put under load.
    pub system: String,
    /// What was played.
    pub scenario: Scenario,
    /// Whether all objectives were met.
    pub good: bool,
    /// The objectives.
    pub objectives: Vec<Judged>,
    /// Tasks acknowledged.
    pub tasks: u64,
    /// Operations begun, by kind.
    pub operations: BTreeMap<String, u64>,
    /// Latencies and answers of every kind of request, and of all together.
    pub requests: BTreeMap<String, Requests>,
    /// Errors that clients saw.
    pub errors: Vec<Fault>,
    /// What was broken.
    pub breaks: Vec<Span>,
    /// What processes used.
    pub usage: BTreeMap<String, Vec<Look>>,
    /// What the checker said.
    pub checker: String,
}

/// One kind of request. The warm-up does not count, but for its seconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "what names and units say")]
pub struct Requests {
    pub count: u64,
    pub p50_ms: f64,
    pub p90_ms: f64,
    pub p99_ms: f64,
    pub p999_ms: f64,
    pub max_ms: f64,
    pub seconds: Vec<OneSecond>,
}

/// One second of it. Percentiles are of what was due in that second; without any there are none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OneSecond {
    /// Answers that came.
    pub answered: u64,
    /// Percentiles, ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ms: Option<Percentiles>,
}

/// Milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "what their names say")]
pub struct Percentiles {
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub max: f64,
}

impl Requests {
    fn of(all: &[Second], warmup: usize) -> Requests {
        let whole = together(all.iter().skip(warmup));
        Requests {
            count: whole.len(),
            p50_ms: ms(&whole, 50.0),
            p90_ms: ms(&whole, 90.0),
            p99_ms: ms(&whole, 99.0),
            p999_ms: ms(&whole, 99.9),
            max_ms: ms(&whole, 100.0),
            seconds: all.iter().map(OneSecond::of).collect(),
        }
    }
}

impl OneSecond {
    fn of(second: &Second) -> OneSecond {
        let percentile = |percentile| ms(&second.latency, percentile);
        OneSecond {
            answered: second.answered,
            ms: (!second.latency.is_empty()).then(|| Percentiles {
                p50: percentile(50.0),
                p90: percentile(90.0),
                p99: percentile(99.0),
                max: percentile(100.0),
            }),
        }
    }
}

impl Report {
    /// Of a run that is over, with so many broken promises.
    #[must_use]
    pub fn of(scenario: Scenario, series: &Series, violations: usize) -> Report {
        let warmup = usize::try_from(scenario.warmup.as_secs()).unwrap_or(usize::MAX);
        let seconds = series.seconds();
        let requests = seconds.iter().filter(|(kind, _)| !LIVES.contains(*kind));
        let mut all: Vec<Second> = Vec::new();
        for (_, of_kind) in requests {
            if all.len() < of_kind.len() {
                all.resize_with(of_kind.len(), Second::default);
            }
            for (sum, second) in all.iter_mut().zip(of_kind) {
                sum.answered += second.answered;
                let added = sum.latency.add(&second.latency);
                added.expect("it grows as far as needed");
            }
        }
        let told = seconds
            .iter()
            .map(|(kind, of_kind)| ((*kind).to_owned(), Requests::of(of_kind, warmup)));
        let mut told: BTreeMap<String, Requests> = told.collect();
        told.insert(ALL.to_owned(), Requests::of(&all, warmup));
        let objectives = verdict::judge(&scenario, series, violations);
        Report {
            at: String::new(),
            machine: String::new(),
            system: String::new(),
            scenario,
            good: objectives.iter().all(|judged| judged.met),
            objectives,
            tasks: 0,
            operations: series
                .operations()
                .into_iter()
                .map(|(kind, count)| (kind.to_owned(), count))
                .collect(),
            requests: told,
            errors: series.faults(),
            breaks: series.spans(),
            usage: BTreeMap::new(),
            checker: String::new(),
        }
    }

    /// Reads a `report.json`.
    ///
    /// # Errors
    /// If it can't be read, or is no such file: with line and column.
    pub fn read(file: &Path) -> Result<Report> {
        let failed = format!("read {}", file.display());
        let text = std::fs::read_to_string(file).map_err(Error::io(failed))?;
        serde_json::from_str(&text).map_err(|error| {
            let told = format!("{}: no report of a load run: {error}", file.display());
            Error::Other(told)
        })
    }

    /// The figures for a terminal.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        let _ = writeln!(
            text,
            "{:<12} {:>8} {:>9} {:>9} {:>9} {:>9} {:>9}",
            "request", "count", "p50 ms", "p90 ms", "p99 ms", "p99.9 ms", "max ms"
        );
        for (kind, all) in &self.requests {
            let _ = writeln!(
                text,
                "{kind:<12} {:>8} {:>9.1} {:>9.1} {:>9.1} {:>9.1} {:>9.1}",
                all.count, all.p50_ms, all.p90_ms, all.p99_ms, all.p999_ms, all.max_ms
            );
        }
        let _ = writeln!(text, "{}", self.errors_told());
        for judged in &self.objectives {
            let met = if judged.met { "met   " } else { "MISSED" };
            let _ = writeln!(
                text,
                "{met} {}: {} ({})",
                judged.objective, judged.got, judged.wanted
            );
        }
        text
    }

    /// How many errors there were, and how many of them a killed gateway explains.
    #[must_use]
    pub fn errors_told(&self) -> String {
        let excused = |fault: &&Fault| verdict::excused(fault, &self.breaks);
        let held = self.errors.iter().filter(excused).count();
        format!(
            "errors: {} ({held} on connections that a killed gateway held)",
            self.errors.len()
        )
    }
}
