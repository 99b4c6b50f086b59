//! How often steps acted, and in which order.

use std::collections::BTreeSet;

use super::world::Story;
use super::{Found, Rule};
use crate::ledger::What;

pub(super) fn check(story: &Story<'_>, found: &mut Found) {
    if story.called.is_none() {
        return;
    }
    let strays = story
        .lines
        .iter()
        .find(|line| story.step(&line.step).is_none());
    if let Some(stray) = strays {
        let said = format!("step {} acted, which its plan does not have", stray.step);
        found.add(Rule::AtMostOnce, story, said);
    }
    let shown_completed = story
        .end()
        .is_some_and(|end| end.view.status == "completed");
    let completed = shown_completed || !story.inline.is_empty();
    // When the step before first acted; later ones cannot have acted without it.
    let mut before: Option<(&str, Option<u64>)> = None;
    for step in story.plan.steps() {
        let acts: Vec<_> = story.of_step(&step.key, What::Act).collect();
        let keys: BTreeSet<&str> = acts.iter().map(|act| act.key.as_str()).collect();
        let first = acts.iter().map(|act| act.at_us).min();
        if !step.idempotent && acts.len() > 1 {
            let said = format!("step {} acted {} times", step.key, acts.len());
            found.add(Rule::AtMostOnce, story, said);
        }
        if step.idempotent && keys.len() > 1 {
            let said = format!("step {} acted under the keys {keys:?}", step.key);
            found.add(Rule::EveryStep, story, said);
        }
        if completed && acts.is_empty() {
            let said = format!("completed, and step {} never acted", step.key);
            found.add(Rule::EveryStep, story, said);
        }
        if let (Some((earlier, earlier_us)), Some(first)) = (before, first)
            && earlier_us.is_none_or(|earlier_us| earlier_us > first)
        {
            let said = format!("step {} acted before step {earlier} did", step.key);
            found.add(Rule::EveryStep, story, said);
        }
        before = Some((&step.key, first));
    }
    let distinct: BTreeSet<(&str, &str)> = story
        .lines
        .iter()
        .map(|line| (line.key.as_str(), line.step.as_str()))
        .collect();
    let keys: BTreeSet<&str> = distinct.iter().map(|(key, _)| *key).collect();
    if keys.len() < distinct.len() {
        found.add(
            Rule::EveryStep,
            story,
            "two steps had the same idempotency key",
        );
    }
}
