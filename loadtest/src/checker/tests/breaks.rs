//! One promise broken at a time.

use std::collections::BTreeMap;

use super::honest::{Fate, Tale, altered};
use crate::checker::{Rule, check};
use crate::history::{
    Acknowledgement, CallAnswer, ForeignAnswer, Kind, RpcError, TaskAnswer, View,
};
use crate::ledger::What;
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

#[test]
fn a_terminal_result_of_other_bytes() {
    caught(Rule::TerminalIsFinal, Fate::Completes, |tale| {
        let mut ends = tale
            .events
            .iter_mut()
            .filter_map(|event| terminal(&mut event.kind));
        let last = ends.next_back();
        last.is_some_and(|last| {
            last.result.as_mut().unwrap().insert(1, ' ');
            ends.next().is_some()
        })
    });
}

#[test]
fn a_task_that_works_again() {
    caught(Rule::TerminalIsFinal, Fate::Completes, |tale| {
        let mut again = tale.events.last().unwrap().clone();
        (again.at_us, again.until_us) = (again.until_us + 1, again.until_us + 2);
        let mut last = again.clone();
        (last.at_us, last.until_us) = (again.until_us + 1, again.until_us + 2);
        let view = View {
            id: "task-0".into(),
            status: "working".into(),
            ..View::default()
        };
        again.kind = Kind::Read {
            task: "task-0".into(),
            answer: TaskAnswer::Task(view),
        };
        tale.events.extend([again, last]);
        true
    });
}

#[test]
fn a_stranger_who_is_shown_a_task() {
    caught(Rule::Foreign, Fate::Completes, |tale| {
        tale.events.iter_mut().any(|event| match &mut event.kind {
            Kind::Foreign { answer, .. } => {
                *answer = ForeignAnswer::Shown {
                    result: "{}".to_owned(),
                };
                true
            }
            _ => false,
        })
    });
}

#[test]
fn a_stranger_who_is_told_that_a_task_expired() {
    caught(Rule::Foreign, Fate::Completes, |tale| {
        tale.events.iter_mut().any(|event| match &mut event.kind {
            Kind::Foreign { answer, .. } => {
                let error =
                    r#"{"code":-32602,"message":"Failed to retrieve task: Task has expired"}"#;
                *answer = ForeignAnswer::Refused(RpcError {
                    code: -32602,
                    error: error.to_owned(),
                });
                true
            }
            _ => false,
        })
    });
}

#[test]
fn a_stranger_who_reads_as_if_it_were_his() {
    caught(Rule::Foreign, Fate::Completes, |tale| {
        let mut read = tale.events.last().unwrap().clone();
        read.principal = "stranger".to_owned();
        read.at_us -= 1;
        tale.events.push(read);
        true
    });
}

/// The question that was asked first, and when its answer was certainly in.
fn answered(tale: &Tale) -> Option<(String, u64)> {
    tale.events.iter().find_map(|event| match &event.kind {
        Kind::Updated {
            answers,
            answer: Acknowledgement::Done,
            ..
        } => {
            let key = answers.keys().next()?.clone();
            let shown = tale.events.iter().any(|seen| match &seen.kind {
                Kind::Read {
                    answer: TaskAnswer::Task(view),
                    ..
                } => seen.until_us <= event.at_us && view.keys.contains(&key),
                _ => false,
            });
            shown.then_some((key, event.until_us))
        }
        _ => None,
    })
}

#[test]
fn a_second_answer_that_wins() {
    caught(Rule::FirstAnswer, Fate::Completes, |tale| {
        let Some((key, until_us)) = answered(tale) else {
            return false;
        };
        // The one that is used was sent when another had been acknowledged.
        let mut moved = false;
        let mut used = String::new();
        for event in &mut tale.events {
            if let Some(view) = terminal(&mut event.kind) {
                let result: serde_json::Value =
                    serde_json::from_str(view.result.as_ref().unwrap()).unwrap();
                let told = result["content"][0]["text"].as_str().unwrap();
                let told: serde_json::Value = serde_json::from_str(told).unwrap();
                used = told["answers"][&key].as_str().unwrap().to_owned();
            }
        }
        let used = Plan::response(&used);
        let mut others = false;
        let last_us = tale.events.last().unwrap().at_us;
        for event in &mut tale.events {
            if let Kind::Updated { answers, .. } = &event.kind
                && answers.contains_key(&key)
            {
                if answers[&key] == used {
                    (event.at_us, event.until_us) = (last_us - 1, last_us);
                    moved = true;
                } else if event.until_us <= until_us {
                    others = true;
                }
            }
        }
        moved && others && until_us < last_us - 1 && answered(tale).is_some()
    });
}

#[test]
fn an_answer_that_nobody_gave() {
    caught(Rule::FirstAnswer, Fate::Completes, |tale| {
        let before = tale.events.len();
        tale.events
            .retain(|event| !matches!(event.kind, Kind::Updated { .. }));
        tale.events.len() < before
    });
}

#[test]
fn a_question_that_is_still_asked_when_it_is_answered() {
    caught(Rule::AskedOnce, Fate::Completes, |tale| {
        let Some((key, until_us)) = answered(tale) else {
            return false;
        };
        let mut read = tale.events.last().unwrap().clone();
        (read.at_us, read.until_us) = (until_us, until_us + 1);
        let (id, status, keys) = ("task-0".to_owned(), "input_required".to_owned(), vec![key]);
        let view = View {
            id,
            status,
            keys,
            ..View::default()
        };
        read.kind = Kind::Read {
            task: "task-0".into(),
            answer: TaskAnswer::Task(view),
        };
        tale.events.push(read);
        true
    });
}

#[test]
fn a_question_that_comes_back() {
    caught(Rule::AskedOnce, Fate::Completes, |tale| {
        let shown = tale.events.iter().find(|event| match &event.kind {
            Kind::Read {
                answer: TaskAnswer::Task(view),
                ..
            } => !view.keys.is_empty(),
            _ => false,
        });
        let Some(shown) = shown.cloned() else {
            return false;
        };
        let mut gone = shown.clone();
        (gone.at_us, gone.until_us) = (shown.until_us, shown.until_us + 1);
        if let Kind::Read {
            answer: TaskAnswer::Task(view),
            ..
        } = &mut gone.kind
        {
            *view = View {
                id: view.id.clone(),
                status: "working".into(),
                ..View::default()
            };
        }
        let mut back = shown;
        (back.at_us, back.until_us) = (gone.until_us, gone.until_us + 1);
        // None of it is about answers.
        for event in &mut tale.events {
            if let Kind::Updated { answer, .. } = &mut event.kind {
                *answer = Acknowledgement::NoAnswer(Default::default());
            }
        }
        tale.events.extend([gone, back]);
        true
    });
}

#[test]
fn a_key_of_two_tasks() {
    caught(Rule::OneTask, Fate::Inline, |tale| {
        let mut second = tale.events.iter().rev().find(|event| {
            matches!(
                &event.kind,
                Kind::Called {
                    answer: CallAnswer::Inline { .. },
                    ..
                }
            )
        });
        let mut second = second.take().unwrap().clone();
        if let Kind::Called {
            answer: CallAnswer::Inline { result },
            ..
        } = &mut second.kind
        {
            *result = altered(result, "task-0", "task-9");
        }
        let mut lines = tale.lines.clone();
        for line in &mut lines {
            line.task = "task-9".to_owned();
            line.key = line.key.replace("task-0", "task-9");
        }
        tale.lines.extend(lines);
        tale.events.push(second);
        true
    });
}

#[test]
fn a_call_that_acts_for_two_tasks() {
    caught(Rule::OneTask, Fate::Completes, |tale| {
        let mut lines = tale.lines.clone();
        for line in &mut lines {
            line.task = "task-9".to_owned();
            line.key = line.key.replace("task-0", "task-9");
        }
        tale.lines.extend(lines);
        !tale.lines.is_empty()
    });
}

#[test]
fn a_key_with_other_arguments_that_is_taken() {
    caught(Rule::OneTask, Fate::Inline, |tale| {
        let result = tale.events.iter().find_map(|event| match &event.kind {
            Kind::Called {
                answer: CallAnswer::Inline { result },
                ..
            } => Some(result.clone()),
            _ => None,
        });
        let task = CallAnswer::Handle {
            task: "task-0".to_owned(),
        };
        let refused = tale
            .events
            .iter_mut()
            .find_map(|event| match &mut event.kind {
                Kind::Called {
                    answer: answer @ CallAnswer::Error(_),
                    ..
                } => Some(answer),
                _ => None,
            });
        // As a handle the task must be read, too.
        *refused.unwrap() = task;
        let mut read = tale.events.last().unwrap().clone();
        read.at_us += 1_000_000;
        read.until_us += 1_000_000;
        let (id, status) = ("task-0".to_owned(), "completed".to_owned());
        let view = View {
            id,
            status,
            result,
            ..View::default()
        };
        read.kind = Kind::Read {
            task: "task-0".into(),
            answer: TaskAnswer::Task(view),
        };
        tale.events.push(read);
        true
    });
}

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
