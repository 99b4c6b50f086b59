//! The history of ratios, one line a bench, kept with the sources so that a regression shows.

use std::fmt::Write as _;
use std::path::Path;

use harness::{Error, Result};
use serde_json::{Map, Value, json};

use super::report::Report;

/// A ratio that is worse than the last recorded one by more than this is a regression: less than
/// 85 % of what shall be much, more than 115 % of what shall be little.
const WORSE: f64 = 0.15;

/// The line of a bench.
#[must_use]
pub fn line(report: &Report) -> Value {
    let ratios = report.rows.iter().map(|row| {
        let told = json!({"ratio": round(row.ratio.median), "min": round(row.ratio.min),
                          "max": round(row.ratio.max), "met": row.met()});
        (row.key.to_owned(), told)
    });
    let machine = &report.machine;
    json!({
        "at": report.at, "commit": machine.commit, "cores": machine.cores, "cpu": machine.cpu,
        "postgres": machine.postgres, "loadBefore": machine.load_before, "how": report.how,
        "ratios": ratios.collect::<Map<_, _>>(),
    })
}

/// Adds a line to the file.
///
/// # Errors
/// If it can't be written.
pub fn record(file: &Path, report: &Report) -> Result<()> {
    let mut text = read(file)?;
    let _ = writeln!(text, "{}", line(report));
    std::fs::write(file, text).map_err(Error::io(format!("write {}", file.display())))
}

/// What became worse since the last line with the same work on as many cores of the same kind.
///
/// # Errors
/// If the file can't be read, or a line of it is no JSON.
pub fn compare(file: &Path, report: &Report) -> Result<String> {
    let text = read(file)?;
    let mut lines: Vec<Value> = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let parsed = serde_json::from_str(line).map_err(|error| {
            Error::Other(format!("{}, line {}: {error}", file.display(), at + 1))
        })?;
        lines.push(parsed);
    }
    let lines: Vec<Value> = lines
        .into_iter()
        .filter(|line: &Value| {
            line["cpu"] == json!(report.machine.cpu) && line["cores"] == json!(report.machine.cores)
        })
        .collect();
    let mut told = String::new();
    if lines.is_empty() {
        let _ = writeln!(
            told,
            "nothing recorded in {} on {} cores of {}",
            file.display(),
            report.machine.cores,
            report.machine.cpu
        );
    }
    for row in &report.rows {
        let last = lines
            .iter()
            .rev()
            .find(|line| line["ratios"][row.key].is_object());
        let Some(last) = last else { continue };
        let Some(before) = last["ratios"][row.key]["ratio"].as_f64() else {
            continue;
        };
        let now = row.ratio.median;
        let upwards = !matches!(
            super::table::target(row.key),
            Some(super::table::Target::AtMost(_)) | None
        );
        let change = now / before - 1.0;
        let worse = if upwards { -change } else { change };
        if worse > WORSE {
            let _ = writeln!(
                told,
                "REGRESSION: {} {now:.2}, {:.0} % worse than {before:.2} at {} ({})",
                row.key,
                worse * 100.0,
                last["commit"].as_str().unwrap_or_default(),
                last["at"].as_str().unwrap_or_default()
            );
        }
    }
    Ok(told)
}

fn read(file: &Path) -> Result<String> {
    match std::fs::read_to_string(file) {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(Error::io(format!("read {}", file.display()))(error)),
    }
}

fn round(figure: f64) -> f64 {
    (figure * 1_000.0).round() / 1_000.0
}

#[cfg(test)]
mod tests {
    use super::super::measure::Spread;
    use super::super::report::Row;
    use super::*;

    fn report(ratios: &[(&'static str, f64)]) -> Report {
        let row = |(key, ratio): &(&'static str, f64)| Row {
            key,
            unit: "/s",
            baseline: None,
            ours: Spread::one(1.0),
            ratio: Spread::one(*ratio),
            errors: 0,
            notes: Vec::new(),
            cores: super::super::processors::Cores::new(),
        };
        Report {
            machine: super::super::machine::Machine::default(),
            at: "2026-11-30T12:00:00Z".to_owned(),
            how: String::new(),
            rows: ratios.iter().map(row).collect(),
            failed: std::collections::BTreeMap::new(),
        }
    }

    #[test]
    fn only_what_is_much_worse_on_such_a_machine_is_a_regression() {
        let temp = harness::temp::Temp::new().unwrap();
        let file = temp.path().join("history.jsonl");
        let of = |ratios: &[(&'static str, f64)]| compare(&file, &report(ratios)).unwrap();
        assert!(of(&[("get", 1.0)]).starts_with("nothing recorded"));
        record(&file, &report(&[("get", 3.0), ("inline_p50", 9.0)])).unwrap();
        record(&file, &report(&[("get", 2.0), ("inline_p50", 5.0)])).unwrap();
        // The last line counts, up to 15 % either way is chance, and better is no news.
        assert_eq!(of(&[("get", 1.72), ("inline_p50", 5.7)]), "");
        assert_eq!(of(&[("get", 3.0), ("inline_p50", 1.0)]), "");
        let told = of(&[("get", 1.68), ("inline_p50", 5.8)]);
        assert!(
            told.contains("REGRESSION: get 1.68, 16 % worse than 2.00"),
            "{told}"
        );
        assert!(told.contains("REGRESSION: inline_p50 5.80, 16 %"), "{told}");
        let mut other = report(&[("get", 1.0)]);
        other.machine.cores = 64;
        assert!(
            compare(&file, &other)
                .unwrap()
                .starts_with("nothing recorded")
        );
        std::fs::write(&file, "{}\nno JSON\n").unwrap();
        let why = compare(&file, &other).unwrap_err().to_string();
        assert!(why.contains("line 2"), "{why}");
    }
}
