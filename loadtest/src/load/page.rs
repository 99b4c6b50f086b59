//! The report of a run: a page that needs nothing else, and the same figures as JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Value, json};

use super::chart::{Line, Mark, chart, escape};
use super::scenario::Scenario;
use super::series::{Fault, Second, Series, ms, together};
use super::usage::Look;
use super::verdict::{self, Judged};

/// Everything that a report tells.
#[derive(Debug)]
pub struct Told {
    /// What was played.
    pub scenario: Scenario,
    /// Seconds of every kind of request.
    pub seconds: BTreeMap<&'static str, Vec<Second>>,
    /// Operations begun, by kind.
    pub operations: BTreeMap<&'static str, u64>,
    /// Errors that clients saw.
    pub faults: Vec<Fault>,
    /// What processes used.
    pub usage: BTreeMap<String, Vec<Look>>,
    /// The objectives.
    pub judged: Vec<Judged>,
    /// Tasks acknowledged.
    pub tasks: u64,
    /// What the checker said.
    pub checker: String,
    /// Which machine.
    pub machine: String,
}

impl Told {
    /// Of a run that is over.
    #[must_use]
    pub fn of(scenario: Scenario, series: &Series) -> Told {
        Told {
            scenario,
            seconds: series.seconds(),
            operations: series.operations(),
            faults: series.faults(),
            usage: BTreeMap::new(),
            judged: Vec::new(),
            tasks: 0,
            checker: String::new(),
            machine: String::new(),
        }
    }

    /// Whether all objectives were met.
    #[must_use]
    pub fn good(&self) -> bool {
        self.judged.iter().all(|judged| judged.met)
    }

    fn end(&self) -> f64 {
        self.scenario.duration.as_secs_f64()
    }

    fn marks(&self) -> Vec<Mark> {
        let marks = self.scenario.breaks.iter().map(|planned| Mark {
            from: planned.at.as_secs_f64(),
            to: (planned.at + planned.lasts).as_secs_f64(),
            name: format!("{} {:?}", planned.target, planned.how).to_lowercase(),
        });
        marks.collect()
    }

    /// The seconds after the warm-up and before the end.
    fn counted<'a>(&'a self, all: &'a [Second]) -> impl Iterator<Item = &'a Second> {
        let first = whole(self.scenario.warmup);
        all.iter().skip(first)
    }

    /// The figures as JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        let kinds = self.seconds.iter().map(|(kind, all)| {
            let whole = together(self.counted(all));
            let each = all.iter().map(|second| {
                json!({"count": second.latency.len(), "p50": ms(&second.latency, 50.0),
                       "p99": ms(&second.latency, 99.0), "max": ms(&second.latency, 100.0)})
            });
            let told = json!({
                "count": whole.len(),
                "p50Ms": ms(&whole, 50.0), "p90Ms": ms(&whole, 90.0), "p99Ms": ms(&whole, 99.0),
                "p999Ms": ms(&whole, 99.9), "maxMs": ms(&whole, 100.0),
                "seconds": each.collect::<Vec<_>>(),
            });
            ((*kind).to_owned(), told)
        });
        let requests: serde_json::Map<String, Value> = kinds.collect();
        let faults = self.faults.iter().map(|fault| {
            json!({"at": fault.at.as_secs_f64(), "gateway": format!("gateway-{}", fault.gateway + 1),
                   "request": fault.what, "connection": fault.connection})
        });
        json!({
            "machine": self.machine,
            "scenario": self.scenario,
            "tasks": self.tasks,
            "operations": self.operations,
            "requests": requests,
            "errors": faults.collect::<Vec<_>>(),
            "objectives": self.judged,
            "good": self.good(),
        })
    }

    /// The figures for a terminal.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        let _ = writeln!(
            text,
            "{:<10} {:>8} {:>9} {:>9} {:>9} {:>9}",
            "request", "count", "p50 ms", "p99 ms", "p99.9 ms", "max ms"
        );
        for (kind, all) in &self.seconds {
            let whole = together(self.counted(all));
            let _ = writeln!(
                text,
                "{kind:<10} {:>8} {:>9.1} {:>9.1} {:>9.1} {:>9.1}",
                whole.len(),
                ms(&whole, 50.0),
                ms(&whole, 99.0),
                ms(&whole, 99.9),
                ms(&whole, 100.0)
            );
        }
        let excused = |fault: &&Fault| verdict::excused(fault, &self.scenario.breaks);
        let held = self.faults.iter().filter(excused).count();
        let _ = writeln!(
            text,
            "errors: {} ({held} on connections that a killed gateway held)",
            self.faults.len()
        );
        for judged in &self.judged {
            let met = if judged.met { "met   " } else { "MISSED" };
            let _ = writeln!(
                text,
                "{met} {}: {} ({})",
                judged.objective, judged.got, judged.wanted
            );
        }
        text
    }

    /// The page.
    #[must_use]
    pub fn html(&self) -> String {
        let (end, marks) = (self.end(), self.marks());
        let draw = |title: &str, unit: &str, lines: &[Line]| chart(title, unit, end, lines, &marks);
        let mut body = String::new();
        let word = if self.good() {
            "all objectives met"
        } else {
            "objectives missed"
        };
        let _ = writeln!(
            body,
            "<h1>Load run: {word}</h1>\n<p>{} · {} for {} s · {} tasks acknowledged</p>",
            escape(&self.machine),
            self.scenario.pace(),
            self.scenario.duration.as_secs(),
            self.tasks
        );
        body.push_str(&self.objectives());
        let _ = writeln!(body, "<pre>{}</pre>", escape(&self.text()));
        let count = |second: &Second| count(second.latency.len());
        body.push_str(&draw("Throughput", "answers a second", &self.lines(count)));
        let p99 = |second: &Second| ms(&second.latency, 99.0);
        body.push_str(&draw("Latency, 99th percentile", "ms", &self.lines(p99)));
        let p50 = |second: &Second| ms(&second.latency, 50.0);
        body.push_str(&draw("Latency, median", "ms", &self.lines(p50)));
        let lives = self.lives();
        body.push_str(&draw(
            "Until its owner knows how a task ended",
            "ms",
            &lives,
        ));
        body.push_str(&draw(
            "Errors that clients saw",
            "a second",
            &self.error_lines(),
        ));
        let cpu = self.usage_lines(|look| look.cpu);
        body.push_str(&draw("Processors", "cores", &cpu));
        let memory = self.usage_lines(|look| mebibytes(look.memory));
        body.push_str(&draw("Memory", "MiB", &memory));
        let _ = writeln!(
            body,
            "<h2>Checker</h2>\n<pre>{}</pre>",
            escape(&self.checker)
        );
        let scenario = toml::to_string(&self.scenario).unwrap_or_default();
        let _ = writeln!(body, "<h2>Scenario</h2>\n<pre>{}</pre>", escape(&scenario));
        format!("{HEAD}{body}</body></html>\n")
    }

    fn objectives(&self) -> String {
        let rows = self.judged.iter().map(|judged| {
            format!(
                "<tr class=\"{}\"><td>{}</td><td>{}</td><td>{}</td></tr>\n",
                if judged.met { "met" } else { "missed" },
                escape(&judged.objective),
                escape(&judged.wanted),
                escape(&judged.got)
            )
        });
        let rows: String = rows.collect();
        format!("<table><tr><th>objective</th><th>wanted</th><th>got</th></tr>\n{rows}</table>\n")
    }

    fn lines(&self, value: impl Fn(&Second) -> f64) -> Vec<Line> {
        let line = |(kind, all): (&&'static str, &Vec<Second>)| Line {
            name: (*kind).to_owned(),
            points: all
                .iter()
                .enumerate()
                .take(whole(self.scenario.duration) + 1)
                .map(|(at, second)| (seconds(at), value(second)))
                .collect(),
        };
        self.seconds
            .iter()
            .filter(|(kind, _)| !LIVES.contains(*kind))
            .map(line)
            .collect()
    }

    /// Whole lives, on a scale of their own.
    fn lives(&self) -> Vec<Line> {
        let percentiles = [("median", 50.0), ("99th percentile", 99.0)];
        let lives = self
            .seconds
            .iter()
            .filter(|(kind, _)| LIVES.contains(*kind));
        let lines = lives.flat_map(|(kind, all)| {
            percentiles.map(|(name, percentile)| Line {
                name: format!("{kind}, {name}"),
                points: all
                    .iter()
                    .enumerate()
                    .take(whole(self.scenario.duration) + 1)
                    .filter(|(_, second)| !second.latency.is_empty())
                    .map(|(at, second)| (seconds(at), ms(&second.latency, percentile)))
                    .collect(),
            })
        });
        lines.collect()
    }

    fn error_lines(&self) -> Vec<Line> {
        let mut lines = Vec::new();
        for (name, connection) in [("connection lost", true), ("answered with an error", false)] {
            let mut counts = vec![0.0; whole(self.scenario.duration) + 1];
            for fault in self
                .faults
                .iter()
                .filter(|fault| fault.connection == connection)
            {
                if let Some(count) = counts.get_mut(whole(fault.at)) {
                    *count += 1.0;
                }
            }
            let points = counts
                .into_iter()
                .enumerate()
                .map(|(at, count)| (seconds(at), count));
            lines.push(Line {
                name: name.to_owned(),
                points: points.collect(),
            });
        }
        lines
    }

    fn usage_lines(&self, value: impl Fn(&Look) -> f64) -> Vec<Line> {
        let line = |(name, looks): (&String, &Vec<Look>)| Line {
            name: name.clone(),
            points: looks.iter().map(|look| (look.at, value(look))).collect(),
        };
        self.usage.iter().map(line).collect()
    }
}

/// Of whole tasks, and not of requests.
const LIVES: [&str; 2] = ["life", "heard"];

#[expect(clippy::cast_precision_loss, reason = "few enough to be exact")]
fn count(count: u64) -> f64 {
    count as f64
}

#[expect(clippy::cast_precision_loss, reason = "few enough to be exact")]
fn seconds(at: usize) -> f64 {
    at as f64
}

fn whole(time: std::time::Duration) -> usize {
    usize::try_from(time.as_secs()).unwrap_or(usize::MAX - 1)
}

fn mebibytes(bytes: u64) -> f64 {
    count(bytes) / 1_048_576.0
}

const HEAD: &str = "<!doctype html>
<html lang=\"en\"><head><meta charset=\"utf-8\"><title>mcp-tasks load run</title>
<style>
body { font: 15px/1.4 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
svg { width: 100%; height: auto; } .grid { stroke: #ddd; } .mark { fill: #f5c6c6; opacity: .6; }
.small { font-size: 11px; fill: #555; } .key span { margin-right: 1em; } h2 { margin: 1.5rem 0 0; }
table { border-collapse: collapse; } td, th { padding: .2rem .8rem; text-align: left; border-bottom: 1px solid #ddd; }
.met td:first-child::before { content: \"✓ \"; color: #009e73; }
.missed td:first-child::before { content: \"✗ \"; color: #d00; } pre { overflow-x: auto; }
</style></head><body>
";
