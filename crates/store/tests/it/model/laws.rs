//! What must never happen, said of what is asked and answered, and not of how it is decided: laws
//! that hold for the model whatever its rules are, and so for the database that agrees with it.

use std::collections::{BTreeMap, BTreeSet};

use super::action::{Action, Who};
use super::state::{Key, Model, Phase, Status, Task, Undo};

/// Everything that was seen of one sequence.
#[derive(Default)]
pub struct Laws {
    /// Acts of steps that may act once, less those that were said not to have happened.
    acts: BTreeMap<(usize, Key), i32>,
    /// Tasks whose owner was told that they end.
    cancelled: BTreeSet<usize>,
    /// Steps that were undone.
    undone: BTreeMap<usize, Vec<Key>>,
}

macro_rules! law {
    ($holds:expr, $($said:tt)+) => {
        if !$holds {
            return Err(format!($($said)+));
        }
    };
}

impl Laws {
    pub fn check(
        &mut self,
        (before, after): (&Model, &Model),
        action: &Action,
        said: &str,
    ) -> Result<(), String> {
        for (slot, old) in &before.tasks {
            match after.tasks.get(slot) {
                Some(new) => unchanging(*slot, old, new)?,
                None => gone(*slot, old, (before, after), action)?,
            }
        }
        for (slot, task) in &after.tasks {
            consistent(*slot, task)?;
        }
        if let Action::Answer(_, Who::Foreign, _)
        | Action::Cancel(_, Who::Foreign)
        | Action::Get(_, Who::Foreign) = action
        {
            law!(said == "-" && before == after, "a stranger was told {said}");
        }
        if let Some(claim) = action.claim() {
            self.fenced((before, after), action, said, claim)?;
        }
        if let Action::Cancel(slot, Who::Owner) = action
            && matches!(said, "Requested" | "Cancelled" | "Undoing")
        {
            self.cancelled.insert(*slot);
        }
        Ok(())
    }

    fn fenced(
        &mut self,
        (before, after): (&Model, &Model),
        action: &Action,
        said: &str,
        claim: u32,
    ) -> Result<(), String> {
        let slot = before.claims[&claim].slot;
        let Some(task) = before.owned(claim) else {
            // Whoever asks, what was told to stop and is run by nobody may be ended.
            let mut swept = before.clone();
            if let Action::ConfirmStopped(_) = action {
                swept.act(&Action::SettleStopped(slot));
            }
            law!(
                swept.tasks == after.tasks,
                "an attempt that lost the task changed it by {action:?}"
            );
            let refused = matches!(said, "Lost" | "Stop") || swept != *before;
            let reading = matches!(action, Action::NextUndo(_));
            law!(
                refused || reading,
                "an attempt that lost the task was told {said}"
            );
            return Ok(());
        };
        match (action, said) {
            (Action::Begin(_, key), "Act") => {
                let running = task.phase == Some(Phase::Running);
                law!(
                    running && !task.stopping(before.now),
                    "{key:?} acts though it must not"
                );
                law!(
                    !self.cancelled.contains(&slot),
                    "{key:?} acts after a cancel"
                );
                let acts = self.acts.entry((slot, *key)).or_default();
                *acts += 1;
                law!(key.idempotent() || *acts == 1, "{key:?} acts {acts} times");
            }
            (Action::AbandonStep(_), "Done") => {
                let (key, _) = before.claims[&claim].permits[0];
                *self.acts.entry((slot, key)).or_default() -= 1;
            }
            (Action::BeginUndo(_), "Done") => {
                let (key, _) = before.claims[&claim].undo.unwrap_or((Key::Once, 0));
                let next = task.next_undo().map(|(next, _)| next);
                law!(next == Some(key), "{key:?} is undone before {next:?}");
                let undone = self.undone.entry(slot).or_default();
                law!(!undone.contains(&key), "{key:?} is undone twice");
            }
            (Action::FinishUndo(_), "Done") => {
                let (key, _) = before.claims[&claim].undo.unwrap_or((Key::Once, 0));
                self.undone.entry(slot).or_default().push(key);
            }
            _ => {}
        }
        Ok(())
    }
}

fn gone(
    slot: usize,
    task: &Task,
    (before, after): (&Model, &Model),
    action: &Action,
) -> Result<(), String> {
    law!(task.terminal(), "{slot} is gone before its end");
    match action {
        Action::Purge => {
            law!(task.expired(before.now), "{slot} is purged before its TTL");
            let remembered = after.tombstones.contains_key(&slot);
            law!(remembered || !task.handed_out, "{slot} is forgotten");
        }
        Action::DeliveredInline(_) => {
            let nameless = !task.handed_out && task.key.is_none();
            law!(nameless, "{slot} is forgotten though it can be named");
        }
        _ => return Err(format!("{slot} is gone by {action:?}")),
    }
    Ok(())
}

/// What stays, and what only grows.
fn unchanging(slot: usize, old: &Task, new: &Task) -> Result<(), String> {
    if old.terminal() {
        let outcome = |task: &Task| (task.status, task.result.clone(), task.failure.clone());
        law!(
            outcome(old) == outcome(new),
            "the outcome of {slot} changes"
        );
        law!(
            old.steps == new.steps && old.inputs == new.inputs,
            "the journal of {slot} changes"
        );
    } else {
        law!(
            old.expires_at <= new.expires_at,
            "the TTL of {slot} shrinks"
        );
    }
    law!(
        old.stop.is_none() || old.stop == new.stop,
        "{slot} stops for another reason"
    );
    law!(
        old.handed_out <= new.handed_out,
        "the handle of {slot} is taken back"
    );
    law!(
        old.attempt <= new.attempt && old.tries <= new.tries,
        "{slot} counts back"
    );
    law!(
        old.work <= new.work && old.rounds <= new.rounds,
        "{slot} counts back"
    );
    law!(
        old.has_undo <= new.has_undo,
        "{slot} forgets what is to be undone"
    );
    let over = matches!(old.phase, Some(Phase::Undoing) | None);
    let back = matches!(
        new.phase,
        Some(Phase::Queued | Phase::Running | Phase::Parked)
    );
    law!(!(over && back), "{slot} comes back from its end");
    for (key, input) in &old.inputs {
        let answered = new.inputs.get(key).and_then(|input| input.answer.as_ref());
        let kept = input.answer.is_none() || input.answer.as_ref() == answered;
        law!(kept, "the answer to {key} of {slot} changes");
    }
    for (key, step) in &old.steps {
        let finished = new.steps.get(key).is_some_and(|step| step.finished);
        law!(
            !step.finished || finished,
            "{key:?} of {slot} is no longer finished"
        );
    }
    Ok(())
}

/// What is true of a task at any time.
fn consistent(slot: usize, task: &Task) -> Result<(), String> {
    let undo = |undo| task.steps.values().any(|step| step.undo == Some(undo));
    let untouched = task
        .steps
        .values()
        .all(|step| matches!(step.undo, None | Some(Undo::Pending)));
    match task.status {
        Status::Completed => {
            law!(
                task.open_step.is_none(),
                "{slot} completed with a step open"
            );
            law!(untouched, "{slot} completed though steps are undone");
        }
        Status::Cancelled => {
            law!(
                task.open_step.is_none(),
                "{slot} is called cancelled with a step open"
            );
            law!(task.stop.is_some(), "{slot} is cancelled by nobody");
            law!(
                !undo(Undo::Failed),
                "{slot} is called cancelled though a step stays"
            );
        }
        Status::Failed => law!(task.failure.is_some(), "{slot} failed for no reason"),
        Status::Working | Status::InputRequired => {}
    }
    if task.terminal() && task.status != Status::Completed {
        let left = undo(Undo::Pending) || undo(Undo::Started);
        law!(!left, "{slot} ended with a step that is to be undone");
    }
    if task.phase == Some(Phase::Parked) {
        law!(!task.outstanding().is_empty(), "{slot} waits for nothing");
        law!(
            task.lease_until.is_none(),
            "{slot} holds a worker while it waits"
        );
    }
    if task.phase != Some(Phase::Undoing) {
        law!(
            !undo(Undo::Started) || task.terminal(),
            "{slot} is undone while it runs"
        );
    }
    Ok(())
}
