//! Two tasks where there is to be one.

use super::caught;
use crate::checker::Rule;
use crate::checker::tests::honest::{Fate, altered};
use crate::history::{CallAnswer, Kind, TaskAnswer, View};

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
