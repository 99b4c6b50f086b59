//! One promise broken at a time.

mod acts;
mod answers;
mod ends;
mod keys;
mod shown;
mod undo;

use crate::checker::tests::honest::{Fate, Tale};
use crate::checker::{Rule, check};
use crate::history::{Kind, TaskAnswer, View};
use crate::plan::Plan;

/// Breaks the first tale of this fate that can be broken so, and sees this rule alone.
fn caught(rule: Rule, fate: Fate, breaking: impl Fn(&mut Tale) -> bool) {
    for seed in 0..200 {
        let mut tale = Tale::of(fate, seed);
        if !breaking(&mut tale) {
            continue;
        }
        let found = check(&tale.events, &tale.lines);
        let rules: Vec<Rule> = found.iter().map(|violation| violation.rule).collect();
        assert_eq!(rules, [rule], "seed {seed}: {}", super::told(&found, &tale));
        let told = super::told(&found, &tale);
        assert!(told.starts_with(&rule.to_string()), "{told}");
        return;
    }
    panic!("no tale of {fate:?} could be broken");
}

fn terminal(kind: &mut Kind) -> Option<&mut View> {
    match kind {
        Kind::Read {
            answer: TaskAnswer::Task(view),
            ..
        } if view.is_terminal() => Some(view),
        Kind::Notified { view, .. } if view.is_terminal() => Some(view),
        _ => None,
    }
}

fn plan(tale: &Tale) -> Plan {
    let arguments = tale.events.iter().find_map(|event| match &event.kind {
        Kind::Called { arguments, .. } => Some(arguments.clone()),
        _ => None,
    });
    serde_json::from_value(arguments.unwrap()).unwrap()
}

fn not_idempotent(tale: &Tale) -> Vec<String> {
    let plan = plan(tale);
    let steps = plan.steps().filter(|step| !step.idempotent);
    steps.map(|step| step.key.clone()).collect()
}
