//! Another's task is as if it had never been.

use serde_json::{Value, json};

use super::world::Story;
use super::{Found, Rule};
use crate::history::{ForeignAnswer, Kind, TaskAnswer};

pub(super) fn check(story: &Story<'_>, found: &mut Found) {
    for event in &story.others {
        let Kind::Foreign { method, answer, .. } = &event.kind else {
            continue;
        };
        match answer {
            ForeignAnswer::Shown { result } => {
                let said = format!("{method} of {} showed {result}", event.principal);
                found.add(Rule::Foreign, story, said);
            }
            ForeignAnswer::Refused(error) => {
                if !tells_nothing(error.code, &error.error) {
                    let said = format!("{method} of {}: {}", event.principal, error.error);
                    found.add(Rule::Foreign, story, said);
                }
            }
            ForeignAnswer::NoAnswer(_) => {}
        }
    }
    let Some(called) = story.called else {
        return;
    };
    let owner = &called.event.principal;
    let read = story
        .reads
        .iter()
        .filter_map(|(event, answer)| match answer {
            TaskAnswer::Task(_) => Some(*event),
            TaskAnswer::Error(_) | TaskAnswer::NoAnswer(_) => None,
        });
    let notified = story.notified.iter().map(|(event, _)| *event);
    let stranger = read.chain(notified).find(|event| event.principal != *owner);
    if let Some(stranger) = stranger {
        let said = format!("{} saw the task of {owner}", stranger.principal);
        found.add(Rule::Foreign, story, said);
    }
}

/// A task that never was has these very words; what is wrong with the server is no word about a
/// task.
fn tells_nothing(code: i64, error: &str) -> bool {
    const INVALID_PARAMS: i64 = -32602;
    if error.is_empty() || code != INVALID_PARAMS {
        return true;
    }
    let error: Value = serde_json::from_str(error).unwrap_or_default();
    error == json!({ "code": INVALID_PARAMS, "message": "Failed to retrieve task: Task not found" })
}
