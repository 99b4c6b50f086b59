//! Tasks that are lost, or end as they should not.

use super::{caught, plan, terminal};
use crate::checker::Rule;
use crate::checker::tests::honest::{Fate, altered};
use crate::history::{CallAnswer, Kind, RpcError, TaskAnswer};
use crate::ledger::What;

#[test]
fn a_task_that_is_gone() {
    caught(Rule::Resolvable, Fate::Completes, |tale| {
        let Some(last) = tale.events.last_mut() else {
            return false;
        };
        let error = r#"{"code":-32602,"message":"Failed to retrieve task: Task not found"}"#;
        let error = RpcError {
            code: -32602,
            error: error.to_owned(),
        };
        last.kind = Kind::Read {
            task: "task-0".into(),
            answer: TaskAnswer::Error(error),
        };
        true
    });
}

#[test]
fn a_task_that_is_another() {
    caught(Rule::Resolvable, Fate::Completes, |tale| {
        let last = tale
            .events
            .last_mut()
            .and_then(|event| terminal(&mut event.kind));
        last.is_some_and(|view| {
            view.id = "task-1".into();
            true
        })
    });
}

#[test]
fn a_task_that_never_ends() {
    caught(Rule::Ends, Fate::Completes, |tale| {
        tale.events
            .retain_mut(|event| terminal(&mut event.kind).is_none());
        true
    });
}

#[test]
fn a_result_of_other_digest() {
    caught(Rule::RightEnd, Fate::Completes, |tale| {
        for event in &mut tale.events {
            if let Some(view) = terminal(&mut event.kind) {
                let result = view.result.take().unwrap();
                view.result = Some(altered(&result, r#"digest\":\""#, r#"digest\":\"0"#));
            }
        }
        true
    });
}

#[test]
fn an_inline_result_that_says_nothing() {
    caught(Rule::RightEnd, Fate::Inline, |tale| {
        for event in &mut tale.events {
            if let Kind::Called {
                answer: CallAnswer::Inline { result },
                ..
            } = &mut event.kind
            {
                *result = r#"{"content":[]}"#.to_owned();
            }
        }
        true
    });
}

#[test]
fn a_failure_that_no_plan_asked_for() {
    caught(Rule::RightEnd, Fate::Completes, |tale| {
        if tale.lines.iter().any(|line| line.step.starts_with('s')) {
            // What is undone, or not, is another matter.
            tale.events.iter_mut().for_each(|event| {
                if let Kind::Called { arguments, .. } = &mut event.kind {
                    for item in arguments["items"].as_array_mut().unwrap() {
                        item.as_object_mut().unwrap().values_mut().for_each(|step| {
                            step.as_object_mut().map(|step| step.remove("undo"));
                        });
                    }
                }
            });
        }
        for event in &mut tale.events {
            if let Some(view) = terminal(&mut event.kind) {
                view.status = "failed".into();
                view.result = None;
                let error =
                    r#"{"code":-32603,"message":"drift","data":{"reason":"journal_drift"}}"#;
                view.error = Some(error.to_owned());
            }
        }
        true
    });
}

#[test]
fn a_cancel_that_nobody_asked_for() {
    caught(Rule::RightEnd, Fate::Cancelled, |tale| {
        tale.events
            .retain(|event| !matches!(event.kind, Kind::Cancelled { .. }));
        true
    });
}

#[test]
fn a_step_that_acts_after_the_one_in_doubt() {
    caught(Rule::RightEnd, Fate::InDoubt, |tale| {
        let plan = plan(tale);
        let steps: Vec<_> = plan.steps().collect();
        let Some(last) = tale.lines.iter().rev().find(|line| line.what == What::Act) else {
            return false;
        };
        let at = steps.iter().position(|step| step.key == last.step);
        let Some(next) = at.and_then(|at| steps.get(at + 1)) else {
            return false;
        };
        let end = tale
            .events
            .last()
            .map(|event| serde_json::to_string(event).unwrap());
        let mut line = last.clone();
        line.key = line.key.replace(&line.step, &next.key);
        line.step.clone_from(&next.key);
        line.at_us += 1;
        let in_doubt = format!(r#"\"step\":\"{}\""#, last.step);
        let can = next.undo.is_none()
            && tale.lines.iter().all(|line| line.what == What::Act)
            && end.is_some_and(|end| end.contains(&in_doubt));
        tale.lines.push(line);
        can
    });
}
