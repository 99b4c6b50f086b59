//! What the checker says of a run, told with the few events that show it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use harness::{Error, Result};

use crate::checker::{self, Rule, Violation};
use crate::history::{self, Event};
use crate::ledger::Line;
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

/// The same of a ledger that others write to as well: only acts of calls whose names begin like this count.
///
/// # Errors
/// As [`of`].
pub fn of_calls(history: &[Event], ledger: &Path, prefix: &str) -> Result<Judgement> {
    let mut acts = ledger::read(ledger).map_err(Error::io("read the ledger"))?;
    acts.retain(|line| line.call.starts_with(prefix));
    Ok(judged(history, &acts))
}

/// Judges a history whose tools' acts nobody saw: what only a ledger can tell is left out.
#[must_use]
pub fn without_ledger(history: &[Event]) -> Judgement {
    const UNSEEN: [Rule; 4] = [
        Rule::AtMostOnce,
        Rule::EveryStep,
        Rule::NoActAfterCancel,
        Rule::Undone,
    ];
    let mut violations = checker::check(history, &[]);
    violations.retain(|violation| !UNSEEN.contains(&violation.rule));
    let mut report = "  acts of tools: not seen (no ledger)\n".to_owned();
    told(&violations, history, &[], &mut report);
    Judgement {
        violations: violations.len(),
        report,
    }
}

/// Judges a history with the ledger in this file.
///
/// # Errors
/// If the ledger can't be read.
pub fn of(history: &[Event], ledger: &Path) -> Result<Judgement> {
    let acts = ledger::read(ledger).map_err(Error::io("read the ledger"))?;
    Ok(judged(history, &acts))
}

fn judged(history: &[Event], acts: &[Line]) -> Judgement {
    let violations = checker::check(history, acts);
    let mut report = format!("  acts in the ledger: {}\n", acts.len());
    told(&violations, history, acts, &mut report);
    Judgement {
        violations: violations.len(),
        report,
    }
}

fn told(violations: &[Violation], history: &[Event], acts: &[Line], report: &mut String) {
    let mut told: BTreeMap<Rule, usize> = BTreeMap::new();
    for violation in violations {
        let count = told.entry(violation.rule).or_default();
        *count += 1;
        if *count <= TIMELINES {
            report.push_str(&timeline::of(violation, history, acts));
        } else if *count <= LINES {
            let _ = writeln!(report, "{violation}");
        }
    }
    for (rule, count) in told {
        let _ = writeln!(report, "  violations of {rule}: {count}");
    }
}
