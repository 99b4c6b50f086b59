//! An acknowledged task can be read at any time, and ends.

use super::world::Story;
use super::{Found, Rule};
use crate::history::{Acknowledgement, Kind, RpcError, TaskAnswer};

/// The code of "there is no such task", foreign, unknown or expired (SEP-2663 §Errors).
const INVALID_PARAMS: i64 = -32602;

pub(super) fn check(story: &Story<'_>, found: &mut Found) {
    let Some(acknowledged_us) = story.acknowledged_us else {
        return;
    };
    let mut gone = false;
    for (event, answer) in &story.reads {
        if event.at_us < acknowledged_us || !is_owners(story, &event.principal) {
            continue;
        }
        match answer {
            TaskAnswer::Error(error) if is_gone(error) => {
                gone = true;
                found.add(
                    Rule::Resolvable,
                    story,
                    format!("tasks/get: {}", error.message()),
                );
            }
            TaskAnswer::Task(view) if view.id != story.id => {
                let said = format!("tasks/get answered with task {}", view.id);
                found.add(Rule::Resolvable, story, said);
            }
            TaskAnswer::Task(_) | TaskAnswer::Error(_) | TaskAnswer::NoAnswer(_) => {}
        }
    }
    for event in &story.others {
        let (Kind::Updated { answer, .. } | Kind::Cancelled { answer, .. }) = &event.kind else {
            continue;
        };
        if let Acknowledgement::Error(error) = answer
            && is_gone(error)
            && is_owners(story, &event.principal)
        {
            gone = true;
            let said = format!("tasks/update or tasks/cancel: {}", error.message());
            found.add(Rule::Resolvable, story, said);
        }
    }
    if gone {
        return;
    }
    match story.reads.last() {
        Some((_, TaskAnswer::Task(view))) if view.is_terminal() => {}
        Some((_, TaskAnswer::Task(view))) => {
            found.add(Rule::Ends, story, format!("{} in the end", view.status));
        }
        Some((_, TaskAnswer::Error(error))) => {
            found.add(
                Rule::Ends,
                story,
                format!("in the end: {}", error.message()),
            );
        }
        Some((_, TaskAnswer::NoAnswer(none))) => {
            found.add(
                Rule::Ends,
                story,
                format!("no answer in the end: {}", none.why),
            );
        }
        None => found.add(Rule::Ends, story, "nobody read it"),
    }
}

fn is_owners(story: &Story<'_>, principal: &str) -> bool {
    story
        .called
        .is_none_or(|called| called.event.principal == principal)
}

/// A malformed answer has the same code, and says so.
fn is_gone(error: &RpcError) -> bool {
    error.code == INVALID_PARAMS && error.message().starts_with("Failed to retrieve task")
}
