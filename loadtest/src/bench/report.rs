//! What a bench tells: a table for people, a page of figures for machines.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;
use serde_json::{Value, json};

use super::machine::Machine;
use super::measure::Spread;
use super::processors::{Cores, told};
use super::table::{self, Target, When};

/// What was measured of one work.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// Which.
    pub key: &'static str,
    /// In what both are measured.
    pub unit: &'static str,
    /// The baseline; nothing where a figure stands for itself.
    pub baseline: Option<Spread>,
    /// Ours.
    pub ours: Spread,
    /// Ours divided by the baseline, each pair measured one right after the other.
    pub ratio: Spread,
    /// Requests of ours that failed: a figure with any is none.
    pub errors: u64,
    /// Whatever else was seen.
    pub notes: Vec<String>,
    /// Cores used on average while ours was measured.
    pub cores: Cores,
}

impl Row {
    /// Whether it is good enough; `None` where nothing is demanded.
    #[must_use]
    pub fn met(&self) -> Option<bool> {
        let good = table::target(self.key).map(|target| target.is_met(self.ratio.median));
        if self.errors > 0 {
            return Some(false);
        }
        good
    }
}

/// A whole bench.
#[derive(Debug)]
pub struct Report {
    /// Where.
    pub machine: Machine,
    /// When, by Postgres' clock.
    pub at: String,
    /// How it was measured.
    pub how: String,
    /// What came of it.
    pub rows: Vec<Row>,
    /// Works that were asked for and could not be measured, and why.
    pub failed: BTreeMap<&'static str, String>,
}

impl Report {
    /// For people.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!("{}{}\n\n", self.machine.told(), self.how);
        let _ = writeln!(
            text,
            "{:<46} {:>24} {:>24} {:>20} {:>7}  verdict",
            "work", "baseline", "ours", "ratio", "target"
        );
        for work in table::ALL {
            let Some(row) = self.rows.iter().find(|row| row.key == work.key) else {
                let why = match (self.failed.get(work.key), work.when) {
                    (Some(why), _) => format!("FAILED: {why}"),
                    (None, When::Asked(argument)) => format!("not run ({argument})"),
                    (None, When::Always) => "not run (--only)".to_owned(),
                };
                let _ = writeln!(text, "{:<46} {why}", work.name);
                continue;
            };
            let digits = if row.unit == "/s" { 0 } else { 2 };
            let shown = |spread: &Spread| format!("{} {}", spread.told(digits), row.unit);
            let target = table::target(row.key).map(Target::told).unwrap_or_default();
            let verdict = match row.met() {
                Some(true) => "met",
                Some(false) => "MISSED",
                None => "",
            };
            let _ = writeln!(
                text,
                "{:<46} {:>24} {:>24} {:>20} {:>7}  {verdict}",
                work.name,
                row.baseline.as_ref().map_or_else(|| "-".to_owned(), shown),
                shown(&row.ours),
                row.ratio.told(2),
                target
            );
        }
        text.push_str("\nbaselines, cores used meanwhile, notes\n");
        for row in &self.rows {
            let baseline = table::find(row.key).map_or("", |work| work.baseline);
            let _ = writeln!(
                text,
                "  {:<16} {baseline}; cores: {}",
                row.key,
                told(&row.cores)
            );
            if row.errors > 0 {
                let _ = writeln!(text, "  {:<16} {} requests FAILED", "", row.errors);
            }
            for note in &row.notes {
                let _ = writeln!(text, "  {:<16} {note}", "");
            }
        }
        text
    }

    /// For machines.
    #[must_use]
    pub fn json(&self) -> Value {
        let rows = self.rows.iter().map(|row| {
            let mut told = json!(row);
            told["target"] = json!(table::target(row.key));
            told["met"] = json!(row.met());
            told
        });
        json!({"at": self.at, "machine": self.machine, "how": self.how,
               "rows": rows.collect::<Vec<_>>(), "failed": self.failed})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_with_errors_is_none() {
        let mut row = Row {
            key: "get",
            unit: "/s",
            baseline: Some(Spread::one(1.0)),
            ours: Spread::one(2.0),
            ratio: Spread::one(2.0),
            errors: 0,
            notes: Vec::new(),
            cores: Cores::new(),
        };
        assert_eq!(row.met(), Some(true));
        row.errors = 1;
        assert_eq!(row.met(), Some(false));
        row.key = "lone";
        row.errors = 0;
        assert_eq!(row.met(), None);
    }
}
