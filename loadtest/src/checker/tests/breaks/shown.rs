//! What is shown changes, or is shown to strangers.

use super::{caught, terminal};
use crate::checker::Rule;
use crate::checker::tests::honest::Fate;
use crate::history::{ForeignAnswer, Kind, RpcError, TaskAnswer, View};

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
