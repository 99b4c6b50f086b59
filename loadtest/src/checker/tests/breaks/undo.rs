//! What is not undone, or not as it should be.

use std::collections::BTreeMap;

use super::{caught, plan};
use crate::checker::Rule;
use crate::checker::tests::honest::{Fate, Tale};
use crate::ledger::What;

/// The steps that were undone.
fn undone(tale: &Tale) -> BTreeMap<String, usize> {
    let mut undone = BTreeMap::new();
    for line in tale.lines.iter().filter(|line| line.what == What::Undo) {
        *undone.entry(line.step.clone()).or_default() += 1;
    }
    undone
}

#[test]
fn a_step_that_is_not_undone() {
    caught(Rule::Undone, Fate::Fails, |tale| {
        let Some((step, _)) = undone(tale).pop_first() else {
            return false;
        };
        tale.lines
            .retain(|line| line.what == What::Act || line.step != step);
        true
    });
}

#[test]
fn steps_that_are_undone_in_their_own_order() {
    caught(Rule::Undone, Fate::Fails, |tale| {
        let steps: Vec<String> = undone(tale).into_keys().collect();
        let [first, second, ..] = &steps[..] else {
            return false;
        };
        for line in tale.lines.iter_mut().filter(|line| line.what == What::Undo) {
            if line.step == *first {
                line.step.clone_from(second);
                line.key = line.key.replace(first.as_str(), second);
            } else if line.step == *second {
                line.step.clone_from(first);
                line.key = line.key.replace(second.as_str(), first);
            }
        }
        true
    });
}

#[test]
fn a_completed_task_that_is_undone() {
    caught(Rule::Undone, Fate::Completes, |tale| {
        let plan = plan(tale);
        let Some(step) = plan.steps().find(|step| step.undo.is_some()) else {
            return false;
        };
        let done = tale
            .lines
            .iter()
            .rev()
            .find(|line| line.step == step.key)
            .cloned();
        done.is_some_and(|mut line| {
            line.what = What::Undo;
            line.at_us = tale.lines.last().unwrap().at_us + 1;
            tale.lines.push(line);
            true
        })
    });
}

#[test]
fn a_step_that_is_undone_after_the_end_was_shown() {
    caught(Rule::Undone, Fate::Fails, |tale| {
        let last_us = tale.events.last().unwrap().until_us;
        let first = plan(tale)
            .steps()
            .find(|step| step.undo.is_some())
            .map(|s| s.key.clone());
        let mut moved = false;
        for line in tale.lines.iter_mut().filter(|line| line.what == What::Undo) {
            if Some(&line.step) == first.as_ref() {
                line.at_us = last_us + 1;
                moved = true;
            }
        }
        moved
    });
}
