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
/// So many of a kind are told with their timeline; of the others there is a line each.
const TIMELINES: usize = 2;

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
        let _ = writeln!(report, "violation: {violation}");
        let before = told.entry(violation.rule).or_default();
        if *before < TIMELINES {
            *before += 1;
            report.push_str(&timeline::of(violation, history, &acts));
        }
    }
    for (rule, _) in told {
        let count = violations.iter().filter(|one| one.rule == rule).count();
        let _ = writeln!(report, "  violations of {rule}: {count}");
    }
    Ok(Judgement {
        violations: violations.len(),
        report,
    })
}
