//! What the checker says of a run, told with the few events that show it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use harness::{Error, Result};

use crate::checker::{self, Rule};
use crate::history::{self, Event};
use crate::{ledger, timeline};

/// The history's file in the folder of a run.
pub const HISTORY: &str = "history.jsonl";
/// The ledger's.
pub const LEDGER: &str = "ledger.jsonl";
/// So many of a kind are told with their timeline, and so many more with a line each.
const TIMELINES: usize = 2;
const LINES: usize = 10;

/// The checker's word.
#[derive(Debug)]
pub struct Judgement {
    /// How many promises were broken.
    pub violations: usize,
    /// Each of them, for people.
    pub report: String,
}

/// Judges a run whose folder was kept.
///
/// # Errors
/// If history or ledger can't be read.
pub fn of_folder(dir: &Path) -> Result<Judgement> {
    let history = history::read(&dir.join(HISTORY)).map_err(Error::io("read the history"))?;
    of(&history, &dir.join(LEDGER))
}

/// Judges a history with the ledger in this file.
///
/// # Errors
/// If the ledger can't be read.
pub fn of(history: &[Event], ledger: &Path) -> Result<Judgement> {
    let acts = ledger::read(ledger).map_err(Error::io("read the ledger"))?;
    let violations = checker::check(history, &acts);
    let mut report = format!("  acts in the ledger: {}\n", acts.len());
    let mut told: BTreeMap<Rule, usize> = BTreeMap::new();
    for violation in &violations {
        let count = told.entry(violation.rule).or_default();
        *count += 1;
        if *count <= TIMELINES {
            report.push_str(&timeline::of(violation, history, &acts));
        } else if *count <= LINES {
            let _ = writeln!(report, "{violation}");
        }
    }
    for (rule, count) in told {
        let _ = writeln!(report, "  violations of {rule}: {count}");
    }
    Ok(Judgement {
        violations: violations.len(),
        report,
    })
}
