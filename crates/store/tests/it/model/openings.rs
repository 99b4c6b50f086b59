//! Where sequences begin that chance alone would seldom get to.

use proptest::prelude::RngExt;
use proptest::test_runner::TestRng;

use super::action::{Action, Ask, Who};
use super::state::{Key, Kind, WAITS};

pub fn ask(has_default: bool) -> Ask {
    Ask {
        has_default,
        wait: WAITS[0],
    }
}

pub const CREATE: Action = Action::Create {
    slot: 0,
    key: None,
    arguments: 0,
    handed_out: true,
    kind: Kind::Plain,
};
pub const CLAIM: Action = Action::Claim { slot: 0, token: 1 };
pub const TAKE_OVER: Action = Action::Claim { slot: 0, token: 2 };
pub const CANCEL: Action = Action::Cancel(0, Who::Owner);

pub fn running() -> Vec<Action> {
    vec![CREATE, CLAIM]
}

pub fn with_step(key: Key) -> Vec<Action> {
    vec![CREATE, CLAIM, Action::Begin(1, key)]
}

pub fn parked(has_default: bool) -> Vec<Action> {
    let asks = vec![ask(has_default), ask(has_default)];
    vec![CREATE, CLAIM, Action::Park(1, asks)]
}

pub fn after(mut before: Vec<Action>, more: &[Action]) -> Vec<Action> {
    before.extend_from_slice(more);
    before
}

/// It runs, and has something to undo.
pub fn undoable() -> Vec<Action> {
    after(with_step(Key::AgainUndo), &[Action::Finish(1)])
}

/// An attempt is about to undo it.
pub fn undoing() -> Vec<Action> {
    let more = [Action::Fail(1), TAKE_OVER, Action::NextUndo(2)];
    after(undoable(), &more)
}

/// It is undone, but not over.
pub fn undone() -> Vec<Action> {
    after(undoing(), &[Action::BeginUndo(2), Action::FinishUndo(2)])
}

/// The worker of its last try is lost.
pub fn last_try() -> Vec<Action> {
    let more = [Action::Retry(1, 0), TAKE_OVER, Action::Advance(2 * 60)];
    after(running(), &more)
}

/// Half of the sequences begin where chance alone would seldom get.
pub fn opening(rng: &mut TestRng) -> Vec<Action> {
    match rng.random_range(0..10) {
        0 => parked(rng.random()),
        1 => undoable(),
        2 => undoing(),
        3 => undone(),
        4 => last_try(),
        _ => Vec::new(),
    }
}
