//! The history of ratios, one line a bench, kept with the sources so that a regression shows.

use std::fmt::Write as _;
use std::path::Path;

use harness::{Error, Result};
use serde_json::{Map, Value, json};

use super::report::Report;

/// A ratio that is worse than the last recorded one by this much is worth a look.
const WORSE: f64 = 0.9;

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

/// What became worse since the last line with the same work and the same processor.
///
/// # Errors
/// If the file can't be read.
pub fn compare(file: &Path, report: &Report) -> Result<String> {
    let text = read(file)?;
    let lines: Vec<Value> = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .filter(|line: &Value| line["cpu"] == json!(report.machine.cpu))
        .collect();
    let mut told = String::new();
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
        let change = if upwards { now / before } else { before / now };
        if change < WORSE {
            let _ = writeln!(
                told,
                "worse than recorded: {} {now:.2}, was {before:.2} at {} ({})",
                row.key,
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
