//! The report of a run as a page that needs nothing else: no script, no font, no address.

use std::fmt::Write as _;

use super::chart::{About, Line, Mark, Shape, chart, escape};
use super::report::{ALL, LIVES, Percentiles, Report};
use super::usage::Look;

/// The page.
#[must_use]
pub fn html(report: &Report) -> String {
    let mut body = String::new();
    let word = if report.objectives.is_empty() {
        "no objectives stated"
    } else if report.good {
        "all objectives met"
    } else {
        "objectives missed"
    };
    let _ = writeln!(
        body,
        "<h1 class=\"{}\">Load run: {word}</h1>\n<p>{}. {} for {} s; {} tasks acknowledged.<br>\n\
         System: {}. Clients: {}.</p>",
        if report.good { "met" } else { "missed" },
        escape(&report.at),
        report.scenario.pace(),
        report.scenario.duration.as_secs(),
        report.tasks,
        escape(&report.system),
        escape(&report.machine),
    );
    body.push_str(&objectives(report));
    body.push_str(&requests(report));
    body.push_str(&charts(report));
    let _ = writeln!(
        body,
        "<h2>Checker</h2>\n<pre>{}</pre>",
        escape(&report.checker)
    );
    let scenario = toml::to_string(&report.scenario).unwrap_or_default();
    let _ = writeln!(body, "<h2>Scenario</h2>\n<pre>{}</pre>", escape(&scenario));
    format!("{HEAD}{body}</body></html>\n")
}

fn objectives(report: &Report) -> String {
    if report.objectives.is_empty() {
        return String::new();
    }
    let rows = report.objectives.iter().map(|judged| {
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

fn requests(report: &Report) -> String {
    let rows = report.requests.iter().map(|(kind, all)| {
        let figures = [all.p50_ms, all.p90_ms, all.p99_ms, all.p999_ms, all.max_ms];
        let figures = figures.map(|ms| format!("<td class=\"number\">{ms:.1}</td>"));
        format!(
            "<tr><td>{}</td><td class=\"number\">{}</td>{}</tr>\n",
            escape(kind),
            all.count,
            figures.concat()
        )
    });
    let rows: String = rows.collect();
    let heads = ["count", "p50", "p90", "p99", "p99.9", "max"];
    let heads = heads.map(|head| format!("<th class=\"number\">{head}</th>"));
    format!(
        "<table><tr><th>request, ms</th>{}</tr>\n{rows}</table>\n<p>{}; the warm-up of {} s does not count. \
         Latencies are from when a request was due, and stand in the second in which it was.</p>\n",
        heads.concat(),
        report.errors_told(),
        report.scenario.warmup.as_secs()
    )
}

fn charts(report: &Report) -> String {
    let end = report.scenario.duration.as_secs_f64();
    let marks: Vec<Mark> = report
        .breaks
        .iter()
        .map(|span| Mark {
            from: span.from,
            to: span.to,
            name: format!("{} {}", span.target, span.how),
        })
        .collect();
    let draw = |title, unit, shape, lines: &[Line]| {
        let about = About {
            title,
            unit,
            shape,
            end,
        };
        chart(about, lines, &marks)
    };
    let lines = |title, unit, lines: &[Line]| draw(title, unit, Shape::Lines, lines);
    [
        lines("Throughput", "answers a second", &throughput(report)),
        lines("Latency of all requests", "ms", &percentiles(report)),
        lines("99th percentile", "ms", &latencies(report, |ms| ms.p99)),
        lines("Median", "ms", &latencies(report, |ms| ms.p50)),
        lines(
            "Until its owner knows how a task ended",
            "ms, from when its call was due",
            &lives(report),
        ),
        draw(
            "Errors that clients saw",
            "each second",
            Shape::Bars,
            &errors(report),
        ),
        lines("Processors", "cores", &usage(report, |look| look.cpu)),
        lines(
            "Memory",
            "MiB",
            &usage(report, |look| Some(mebibytes(look.memory))),
        ),
    ]
    .concat()
}

/// A point for every second in which there is a value.
fn line(
    report: &Report,
    (kind, name): (&str, &str),
    value: impl Fn(u64, Option<Percentiles>) -> Option<f64>,
) -> Line {
    let seconds = report.requests.get(kind).map(|all| all.seconds.as_slice());
    let seconds = seconds.unwrap_or_default().iter().enumerate();
    let last = report.scenario.duration.as_secs();
    let points = seconds
        .map(|(at, second)| (float(at as u64), value(second.answered, second.ms)))
        .filter(|(at, _)| *at < float(last));
    Line {
        name: name.to_owned(),
        points: points
            .filter_map(|(at, value)| Some((at, value?)))
            .collect(),
    }
}

fn of_requests(report: &Report) -> impl Iterator<Item = &str> {
    let kinds = report.requests.keys().map(String::as_str);
    kinds.filter(|kind| !LIVES.contains(kind) && *kind != ALL)
}

fn throughput(report: &Report) -> Vec<Line> {
    let each = [ALL].into_iter().chain(of_requests(report));
    let answered = |kind| line(report, (kind, kind), |answered, _| Some(float(answered)));
    each.map(answered).collect()
}

fn latencies(report: &Report, of: impl Fn(Percentiles) -> f64 + Copy) -> Vec<Line> {
    of_requests(report)
        .map(|kind| line(report, (kind, kind), move |_, ms| ms.map(of)))
        .collect()
}

/// A percentile by its name.
type Named = (&'static str, fn(Percentiles) -> f64);

fn percentiles(report: &Report) -> Vec<Line> {
    let of: [Named; 4] = [
        ("median", |ms| ms.p50),
        ("90th percentile", |ms| ms.p90),
        ("99th percentile", |ms| ms.p99),
        ("longest", |ms| ms.max),
    ];
    of.map(|(name, of)| line(report, (ALL, name), |_, ms| ms.map(of)))
        .into()
}

/// Whole lives, on a scale of their own.
fn lives(report: &Report) -> Vec<Line> {
    let of: [Named; 2] = [("median", |ms| ms.p50), ("99th percentile", |ms| ms.p99)];
    let kinds = [("life", "polled"), ("heard", "heard on a listen")];
    let kinds = kinds
        .into_iter()
        .filter(|(kind, _)| report.requests.contains_key(*kind));
    let lines = kinds.flat_map(|(kind, name)| {
        of.map(|(percentile, of)| {
            line(report, (kind, &format!("{name}, {percentile}")), |_, ms| {
                ms.map(of)
            })
        })
    });
    lines.collect()
}

fn errors(report: &Report) -> Vec<Line> {
    let seconds = report.scenario.duration.as_secs();
    let kinds = [("connection lost", true), ("answered with an error", false)];
    let line = |(name, connection): (&str, bool)| {
        let of_kind = report
            .errors
            .iter()
            .filter(|error| error.connection == connection);
        let points = (0..=seconds).map(|at| {
            let at = float(at);
            let count = of_kind.clone().filter(|error| error.at.floor() == at);
            (at, float(count.count() as u64))
        });
        Line {
            name: name.to_owned(),
            points: points.collect(),
        }
    };
    kinds.map(line).into()
}

fn usage(report: &Report, value: impl Fn(&Look) -> Option<f64>) -> Vec<Line> {
    let line = |(name, looks): (&String, &Vec<Look>)| Line {
        name: name.clone(),
        points: looks
            .iter()
            .filter_map(|look| Some((look.at, value(look)?)))
            .collect(),
    };
    report.usage.iter().map(line).collect()
}

#[expect(clippy::cast_precision_loss, reason = "few enough to be exact")]
fn float(count: u64) -> f64 {
    count as f64
}

fn mebibytes(bytes: u64) -> f64 {
    float(bytes) / 1_048_576.0
}

const HEAD: &str = "<!doctype html>
<html lang=\"en\"><head><meta charset=\"utf-8\"><title>mcp-tasks load run</title>
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">
<style>
body { font: 15px/1.45 system-ui, sans-serif; max-width: 62rem; margin: 1.5rem auto; padding: 0 1rem; color: #222; }
h1 { font-size: 1.6rem; border-left: .5rem solid #009e73; padding-left: .7rem; } h1.missed { border-color: #d00; }
section { break-inside: avoid; } section > svg { width: 100%; height: auto; display: block; }
h2 { font-size: 1.1rem; margin: 1.6rem 0 .3rem; } h2 small { font-weight: normal; color: #666; }
.grid { stroke: #ddd; } .mark { fill: #d55e00; opacity: .16; } .small { font-size: 11px; fill: #555; }
.key { margin: .1rem 0 0 4rem; font-size: .85rem; } .key span { margin-right: 1.2em; white-space: nowrap; }
.swatch { width: 22px; height: 10px; margin-right: .35em; } .none { color: #777; }
table { border-collapse: collapse; margin: 1rem 0; }
td, th { padding: .2rem .8rem; text-align: left; border-bottom: 1px solid #ddd; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
.met td:first-child::before { content: \"✓ \"; color: #009e73; }
.missed td:first-child::before { content: \"✗ \"; color: #d00; } .missed td { background: #fdecea; }
pre { overflow-x: auto; font-size: .85rem; background: #f6f6f6; padding: .6rem; }
</style></head><body>
";
