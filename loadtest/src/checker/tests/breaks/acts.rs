//! Steps that act when, or as often as, they must not.

use super::{caught, not_idempotent, plan};
use crate::checker::Rule;
use crate::checker::tests::honest::{Fate, Tale};
use crate::history::{Acknowledgement, Kind};

#[test]
fn a_step_that_acts_twice() {
    caught(Rule::AtMostOnce, Fate::Completes, |tale| {
        let steps = not_idempotent(tale);
        let once = tale
            .lines
            .iter()
            .find(|line| steps.contains(&line.step))
            .cloned();
        once.is_some_and(|mut again| {
            again.attempt += 1;
            again.at_us += 1;
            tale.lines.push(again);
            true
        })
    });
}

#[test]
fn a_step_that_never_acts() {
    caught(Rule::EveryStep, Fate::Completes, |tale| {
        let Some(last) = tale.lines.last().map(|line| line.step.clone()) else {
            return false;
        };
        tale.lines.retain(|line| line.step != last);
        true
    });
}

#[test]
fn a_step_under_two_keys() {
    caught(Rule::EveryStep, Fate::Completes, |tale| {
        let steps = not_idempotent(tale);
        let idempotent = tale
            .lines
            .iter()
            .find(|line| !steps.contains(&line.step))
            .cloned();
        idempotent.is_some_and(|mut again| {
            again.key.push('!');
            again.at_us += 1;
            tale.lines.push(again);
            true
        })
    });
}

#[test]
fn steps_out_of_order() {
    caught(Rule::EveryStep, Fate::Completes, |tale| {
        let plan = plan(tale);
        let steps: Vec<_> = plan.steps().collect();
        let [first, second, ..] = steps[..] else {
            return false;
        };
        if first.idempotent || second.idempotent {
            return false;
        }
        let at = |tale: &Tale, key: &str| tale.lines.iter().position(|line| line.step == key);
        let (a, b) = (
            at(tale, &first.key).unwrap(),
            at(tale, &second.key).unwrap(),
        );
        let a_us = tale.lines[a].at_us;
        tale.lines[a].at_us = tale.lines[b].at_us;
        tale.lines[b].at_us = a_us;
        true
    });
}

#[test]
fn an_act_after_cancelled_was_shown() {
    caught(Rule::NoActAfterCancel, Fate::Cancelled, |tale| {
        let steps = not_idempotent(tale);
        if plan(tale).steps().any(|step| step.undo.is_some()) {
            return false;
        }
        let Some(last) = tale.lines.last_mut() else {
            return false;
        };
        last.at_us += 60_000_000;
        steps.contains(&last.step)
    });
}

#[test]
fn steps_that_begin_after_a_cancel_was_acknowledged() {
    caught(Rule::NoActAfterCancel, Fate::Completes, |tale| {
        let steps: Vec<String> = plan(tale).steps().map(|step| step.key.clone()).collect();
        let [.., before, _] = &steps[..] else {
            return false;
        };
        let before = tale.lines.iter().find(|line| line.step == *before);
        let at_us = before.map(|line| line.at_us - 1).unwrap();
        let mut cancel = tale.events[0].clone();
        (cancel.at_us, cancel.until_us) = (at_us - 1, at_us);
        cancel.kind = Kind::Cancelled {
            task: "task-0".to_owned(),
            answer: Acknowledgement::Done,
        };
        tale.events.push(cancel);
        true
    });
}
