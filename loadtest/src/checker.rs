//! Decides from the history and the ledger alone whether a promise was broken.
//!
//! A pure function: it asks nobody and knows no clock. Every rule is sound, that is, it speaks up
//! only if no order of the recorded events is allowed: an answer tells what was true at some moment
//! between question and answer, a request without an answer may or may not have been taken, and an
//! act is written after the time it carries.

mod acts;
mod answers;
mod cancelled;
mod ends;
mod expect;
mod foreign;
mod keys;
mod resolved;
mod terminal;
#[cfg(test)]
mod tests;
mod undo;
mod world;

use serde::{Deserialize, Serialize};

use crate::history::Event;
use crate::ledger::Line;
use world::{Story, World};

/// A promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// A task that a client was given a handle of can always be read by its owner.
    Resolvable,
    /// Such a task ends.
    Ends,
    /// It ends as the plan, the answers and the client's wishes call for.
    RightEnd,
    /// A step that is not idempotent acts at most once.
    AtMostOnce,
    /// A completed task's steps have all acted, in order; an idempotent one under one key.
    EveryStep,
    /// No step begins once a cancel was acknowledged, and nothing acts once `cancelled` was shown.
    NoActAfterCancel,
    /// What an ended task shows never changes.
    TerminalIsFinal,
    /// Nobody else can tell that the task exists.
    Foreign,
    /// The first acknowledged answer to a question is the one that is used.
    FirstAnswer,
    /// A question that was answered is not shown again.
    AskedOnce,
    /// One call, or all calls under one key, make one task; a key with other arguments is refused.
    OneTask,
    /// What is not completed is undone, each step once, in reverse order.
    Undone,
}

impl Rule {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Resolvable,
        Self::Ends,
        Self::RightEnd,
        Self::AtMostOnce,
        Self::EveryStep,
        Self::NoActAfterCancel,
        Self::TerminalIsFinal,
        Self::Foreign,
        Self::FirstAnswer,
        Self::AskedOnce,
        Self::OneTask,
        Self::Undone,
    ];
}

impl std::fmt::Display for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Resolvable => "resolvable",
            Self::Ends => "ends",
            Self::RightEnd => "right_end",
            Self::AtMostOnce => "at_most_once",
            Self::EveryStep => "every_step",
            Self::NoActAfterCancel => "no_act_after_cancel",
            Self::TerminalIsFinal => "terminal_is_final",
            Self::Foreign => "foreign",
            Self::FirstAnswer => "first_answer",
            Self::AskedOnce => "asked_once",
            Self::OneTask => "one_task",
            Self::Undone => "undone",
        })
    }
}

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// Which.
    pub rule: Rule,
    /// Of which task; empty if it has none that is known.
    pub task: String,
    /// The plan's name; empty if it is not known.
    pub call: String,
    /// What happened, for people.
    pub said: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            rule,
            task,
            call,
            said,
        } = self;
        write!(f, "{rule}: task {task} ({call}): {said}")
    }
}

/// All broken promises. `history` holds at its end a last read of every acknowledged task.
#[must_use]
pub fn check(history: &[Event], ledger: &[Line]) -> Vec<Violation> {
    let world = World::new(history, ledger);
    let mut found = Found::default();
    for story in world.stories() {
        resolved::check(story, &mut found);
        ends::check(&world, story, &mut found);
        acts::check(story, &mut found);
        cancelled::check(story, &mut found);
        terminal::check(story, &mut found);
        foreign::check(story, &mut found);
        answers::check(story, &mut found);
        undo::check(story, &mut found);
    }
    ends::check_calls(&world, &mut found);
    keys::check(&world, &mut found);
    found.0
}

/// What was found, as it is found.
#[derive(Debug, Default)]
struct Found(Vec<Violation>);

impl Found {
    /// A broken promise to a task. One of a kind a task is enough.
    fn add(&mut self, rule: Rule, story: &Story<'_>, said: impl Into<String>) {
        self.push(rule, &story.id, story.call(), said.into());
    }

    fn push(&mut self, rule: Rule, task: &str, call: &str, said: String) {
        let again = self
            .0
            .iter()
            .rev()
            .take(Rule::ALL.len())
            .any(|v| v.rule == rule && v.task == task && v.call == call);
        if !again {
            self.0.push(Violation {
                rule,
                task: task.to_owned(),
                call: call.to_owned(),
                said,
            });
        }
    }
}
