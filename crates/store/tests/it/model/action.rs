//! What can be asked of the store. The model and the database are given the same.

use super::state::{Claim, Key, Kind, Minutes, Model, Task};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    Owner,
    Foreign,
}

/// How a question is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    Yes,
    No,
    /// Does not fit the question.
    Malformed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    pub has_default: bool,
    pub wait: Minutes,
}

/// `slot` names a task, `claim` a claim that was ever asked for, current or not, by its token.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    Create {
        slot: usize,
        key: Option<u8>,
        arguments: u8,
        handed_out: bool,
        kind: Kind,
    },
    /// Two calls at once with one key.
    CreateTwice {
        slot: usize,
        key: u8,
        arguments: u8,
        kind: Kind,
    },
    HandOut(usize),
    Hold(usize),
    Abandon(usize),
    Claim {
        slot: usize,
        token: u32,
    },
    Heartbeat(u32),
    Begin(u32, Key),
    /// With the oldest permit that the claim has not used.
    Finish(u32),
    AbandonStep(u32),
    Progress(u32, &'static str),
    Park(u32, Vec<Ask>),
    RecordAnswer(u32),
    /// To the questions `q0`, `q1`, … in the order in which the task ever asked.
    Answer(usize, Who, Vec<(usize, Reply)>),
    Cancel(usize, Who),
    StopOwn(u32),
    ConfirmStopped(u32),
    SettleStopped(usize),
    Stoppable,
    Complete(u32),
    Fail(u32),
    Retry(u32, Minutes),
    Release(u32),
    Expire,
    EndHolds,
    FailUnanswered,
    VersionGone,
    Unhinted,
    RaiseUnfetched,
    Purge,
    PurgeTombstones,
    MarkFetched(usize),
    DeliveredInline(usize),
    Get(usize, Who),
    NextUndo(u32),
    /// As the last three, of the step that [`Action::NextUndo`] last named.
    BeginUndo(u32),
    FinishUndo(u32),
    RetryUndo(u32, Minutes),
    FailUndo(u32),
    Undone(u32),
    /// Time passes, for everything in the database.
    Advance(Minutes),
}

impl Action {
    /// The claim that it is made with.
    pub fn claim(&self) -> Option<u32> {
        match self {
            Action::Heartbeat(claim)
            | Action::Begin(claim, _)
            | Action::Finish(claim)
            | Action::AbandonStep(claim)
            | Action::Progress(claim, _)
            | Action::Park(claim, _)
            | Action::RecordAnswer(claim)
            | Action::StopOwn(claim)
            | Action::ConfirmStopped(claim)
            | Action::Complete(claim)
            | Action::Fail(claim)
            | Action::Retry(claim, _)
            | Action::Release(claim)
            | Action::NextUndo(claim)
            | Action::BeginUndo(claim)
            | Action::FinishUndo(claim)
            | Action::RetryUndo(claim, _)
            | Action::FailUndo(claim)
            | Action::Undone(claim) => Some(*claim),
            _ => None,
        }
    }

    /// The task that it names itself.
    pub fn slot(&self) -> Option<usize> {
        match self {
            Action::HandOut(slot)
            | Action::Hold(slot)
            | Action::Abandon(slot)
            | Action::Claim { slot, .. }
            | Action::Answer(slot, ..)
            | Action::Cancel(slot, _)
            | Action::SettleStopped(slot)
            | Action::MarkFetched(slot)
            | Action::DeliveredInline(slot)
            | Action::Get(slot, _) => Some(*slot),
            _ => None,
        }
    }
}

/// The name of the n-th question of a task.
pub fn question(n: usize) -> String {
    format!("q{n}")
}

impl Model {
    /// Whether it can be asked at all: of a task and with a claim that there are.
    pub fn possible(&self, action: &Action) -> bool {
        if let Action::Create { slot, .. } | Action::CreateTwice { slot, .. } = action {
            return !self.slots.contains(slot);
        }
        if let Action::Claim { slot, token } = action {
            let other = |claim: &Claim| claim.slot != *slot;
            return self.slots.contains(slot) && !self.claims.get(token).is_some_and(other);
        }
        if action
            .slot()
            .is_some_and(|slot| !self.slots.contains(&slot))
        {
            return false;
        }
        let Some(token) = action.claim() else {
            return true;
        };
        let Some(claim) = self.claims.get(&token) else {
            return false;
        };
        match action {
            Action::Finish(_) | Action::AbandonStep(_) => !claim.permits.is_empty(),
            Action::BeginUndo(_)
            | Action::FinishUndo(_)
            | Action::RetryUndo(..)
            | Action::FailUndo(_) => claim.undo.is_some(),
            _ => true,
        }
    }

    /// Where in the journal a step stands, or would stand.
    pub fn seq(&self, claim: u32, key: Key) -> i32 {
        let task = self.tasks.get(&self.claims[&claim].slot);
        let known = task.and_then(|task| task.steps.get(&key));
        known.map_or_else(|| self.next_seq(claim), |step| step.seq)
    }

    pub fn next_seq(&self, claim: u32) -> i32 {
        let task = self.tasks.get(&self.claims[&claim].slot);
        task.map_or(0, Task::next_seq)
    }

    /// How many questions this task has asked so far.
    pub fn asked(&self, claim: u32) -> usize {
        let task = self.tasks.get(&self.claims[&claim].slot);
        task.map_or(0, |task| task.inputs.len())
    }
}
