//! What an attempt asks for that takes finished steps back.

use super::rules::done;
use super::state::*;

impl Model {
    pub(super) fn next_undo(&mut self, claim: u32) -> String {
        let task = self.tasks.get(&self.claims[&claim].slot);
        let next = task.and_then(Task::next_undo);
        let said = next.map(|(key, step)| {
            let started = step.undo == Some(Undo::Started);
            format!("{} started {started} tries {}", key.name(), step.undo_tries)
        });
        let undo = next.map(|(key, step)| (key, step.undo_tries));
        self.claims.get_mut(&claim).unwrap().undo = undo;
        or_none(said)
    }

    pub(super) fn undo(&mut self, claim: u32, change: impl FnOnce(Undo) -> Option<Undo>) -> String {
        let Some((key, _)) = self.claims[&claim].undo else {
            return "nothing to undo".to_owned();
        };
        let undoing = |task: &&mut Task| task.phase == Some(Phase::Undoing);
        let task = self.owned_mut(claim).filter(undoing);
        let step = task.and_then(|task| task.steps.get_mut(&key));
        let Some(step) = step else {
            return done(false);
        };
        let changed = step.undo.and_then(change);
        step.undo = changed.or(step.undo);
        done(changed.is_some())
    }

    pub(super) fn begin_undo(&mut self, claim: u32) -> String {
        let mine = self
            .owned(claim)
            .is_some_and(|task| task.lease_until.is_some());
        if self.claims[&claim].undo.is_some() && !mine {
            return done(false);
        }
        let said = self.undo(claim, |undo| match undo {
            Undo::Pending | Undo::Started => Some(Undo::Started),
            Undo::Finished | Undo::Failed => None,
        });
        if let ("Done", Some((key, tries))) = (said.as_str(), self.claims[&claim].undo) {
            let task = self.owned_mut(claim).unwrap();
            task.steps.get_mut(&key).unwrap().undo_tries = tries + 1;
        }
        said
    }

    pub(super) fn retry_undo(&mut self, claim: u32, backoff: i64) -> String {
        if self.claims[&claim].undo.is_none() {
            return "nothing to undo".to_owned();
        }
        let now = self.now;
        let undoing = |task: &&mut Task| task.phase == Some(Phase::Undoing);
        let Some(task) = self.owned_mut(claim).filter(undoing) else {
            return done(false);
        };
        if task.lease_until.take().is_some() {
            task.run_at = now + backoff;
            self.undo(claim, |undo| match undo {
                Undo::Pending | Undo::Started => Some(Undo::Pending),
                Undo::Finished | Undo::Failed => None,
            });
        }
        done(true)
    }

    pub(super) fn undone(&mut self, claim: u32) -> String {
        let now = self.now;
        let over = self.owned_mut(claim).is_some_and(|task| task.undone(now));
        done(over || self.repeated(claim, Task::terminal))
    }
}
