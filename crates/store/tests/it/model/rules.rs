//! The rules by which tasks change, as a pure function: what is asked, the state before → the
//! answer, the state after.

use store::StopReason;

use super::action::Action;
use super::state::{
    BACKOFF, Failure, HOLD, Key, Kind, LEASE, Model, Phase, SHOWN, Status, Step, Task, Undo,
    or_none,
};

/// Everything else about a step that begins.
pub(super) const NEW_STEP: Step = Step {
    seq: 0,
    act: 0,
    finished: false,
    undo: None,
    undo_tries: 0,
};

pub(super) fn list(slots: &[usize]) -> String {
    format!("{slots:?}")
}

pub(super) fn done(written: bool) -> String {
    if written { "Done" } else { "Lost" }.to_owned()
}

pub(super) fn ended(task: &Task) -> &'static str {
    if task.phase == Some(Phase::Undoing) {
        "Undoing"
    } else {
        "Done"
    }
}

impl Task {
    pub(super) fn change(&mut self) {
        self.changes += 1;
    }

    /// The end, or undoing on the way to it.
    pub(super) fn end(&mut self, status: Status, failure: Option<Failure>, now: i64) {
        self.lease_until = None;
        self.deadline = None;
        self.run_at = now;
        self.failure = failure;
        if self.has_undo {
            self.status = Status::Working;
            self.phase = Some(Phase::Undoing);
            self.pending = Some(status);
        } else {
            self.status = status;
            self.phase = None;
            self.finished_at = now;
        }
        self.change();
    }

    pub(super) fn tell_to_stop(&mut self, reason: StopReason) {
        self.stop = self.stop.or(Some(reason));
    }

    /// May be ended though nobody says that its work has stopped.
    pub(super) fn nothing_runs(&self, now: i64) -> bool {
        match self.phase {
            Some(Phase::Queued | Phase::Parked) => self.stop.is_some(),
            Some(Phase::Running) => {
                let over = self.stop.is_some() || self.kind == Kind::Fragile || self.last_try();
                self.lapsed(now) && over
            }
            Some(Phase::Undoing) | None => false,
        }
    }

    pub(super) fn may_be_taken_over(&self, now: i64) -> bool {
        !self.stopping(now) && self.kind != Kind::Fragile && !self.last_try()
    }

    /// Due, and nobody has it.
    pub(super) fn free(&self, now: i64) -> bool {
        match self.phase {
            Some(Phase::Queued) => self.run_at <= now && !self.stopping(now),
            Some(Phase::Running) => self.lapsed(now) && self.may_be_taken_over(now),
            Some(Phase::Undoing) if self.lease_until.is_none() => self.run_at <= now,
            Some(Phase::Undoing) => self.lapsed(now),
            Some(Phase::Parked) | None => false,
        }
    }

    /// Says how many questions are left.
    pub(super) fn answer(
        &mut self,
        answers: Vec<(String, String)>,
        who: &'static str,
        now: i64,
    ) -> usize {
        for (key, answer) in answers {
            let input = self.inputs.get_mut(&key).unwrap();
            input.answer = Some((answer, who));
        }
        let open = self.inputs.values().filter(|input| input.answer.is_none());
        self.deadline = open.clone().map(|input| input.deadline).min();
        let left = open.count();
        if left == 0 {
            self.status = Status::Working;
            self.phase = Some(Phase::Queued);
            self.run_at = now;
        }
        self.change();
        left
    }

    pub(super) fn undone(&mut self, now: i64) -> bool {
        let undoes = |undo| self.steps.values().any(|step| step.undo == Some(undo));
        if self.phase != Some(Phase::Undoing) || undoes(Undo::Pending) || undoes(Undo::Started) {
            return false;
        }
        let mut failed: Vec<_> = self
            .steps
            .iter()
            .filter(|(_, step)| step.undo == Some(Undo::Failed))
            .map(|(key, step)| (-step.seq, *key))
            .collect();
        failed.sort();
        let undo_failed: Vec<Key> = failed.into_iter().map(|(_, key)| key).collect();
        let pending = self.pending.take();
        if pending == Some(Status::Cancelled) && !undo_failed.is_empty() {
            self.failure = Some(Failure::new("undo_failed"));
        }
        if let Some(failure) = &mut self.failure {
            failure.undo_failed = undo_failed;
        }
        self.status = match &self.failure {
            Some(_) => Status::Failed,
            None => Status::Cancelled,
        };
        self.phase = None;
        self.finished_at = now;
        self.lease_until = None;
        if self.expired(now) {
            self.expires_at = now + SHOWN;
        }
        self.change();
        true
    }
}

impl Model {
    /// Does it, and says what the store answers.
    pub fn act(&mut self, action: &Action) -> String {
        match action {
            Action::Create {
                slot,
                key,
                arguments,
                handed_out,
                kind,
            } => self.create(*slot, *key, *arguments, (*handed_out, *kind)),
            Action::CreateTwice {
                slot,
                key,
                arguments,
                kind,
            } => {
                let mut said =
                    [0, 1].map(|_| self.create(*slot, Some(*key), *arguments, (true, *kind)));
                said.sort();
                said.join(" ")
            }
            Action::HandOut(slot) => done(self.change_live(*slot, |task, _| {
                let allowed = task.stop.is_none() || task.handed_out;
                task.handed_out = allowed;
                allowed
            })),
            Action::Hold(slot) => {
                self.change_live(*slot, |task, now| {
                    if !task.handed_out {
                        task.held_until = task.held_until.max(now + HOLD);
                    }
                    true
                });
                done(true)
            }
            Action::Abandon(slot) => self.abandon(*slot),
            Action::Claim { slot, token } => self.claim(*slot, *token),
            Action::Heartbeat(claim) => self.heartbeat(*claim),
            Action::Begin(claim, key) => self.begin(*claim, *key),
            Action::Finish(claim) => self.finish(*claim),
            Action::AbandonStep(claim) => self.abandon_step(*claim),
            Action::Progress(claim, message) => done(self.change_running(*claim, |task, _| {
                if task.said != *message {
                    (*message).clone_into(&mut task.said);
                    task.change();
                }
                true
            })),
            Action::Park(claim, asks) => self.park(*claim, asks),
            Action::RecordAnswer(claim) => self.record_answer(*claim),
            Action::Answer(slot, who, replies) => self.answer(*slot, *who, replies),
            Action::Cancel(slot, who) => self.cancel(*slot, *who),
            Action::StopOwn(claim) => done(self.change_running(*claim, |task, _| {
                task.tell_to_stop(StopReason::WorkLimit);
                true
            })),
            Action::ConfirmStopped(claim) => self.confirm_stopped(*claim),
            Action::SettleStopped(slot) => or_none(self.settle(*slot, None)),
            Action::Stoppable => {
                let now = self.now;
                let slots = self.live().filter(|(_, task)| task.nothing_runs(now));
                list(&slots.map(|(slot, _)| slot).collect::<Vec<_>>())
            }
            Action::Complete(claim) => self.complete(*claim),
            Action::Fail(claim) => self.fail(*claim),
            Action::Retry(claim, backoff) => self.retry(*claim, *backoff),
            Action::Release(claim) => self.release(*claim),
            Action::Expire => self.stop_all(StopReason::Expired, |task, now| task.expired(now)),
            Action::EndHolds => self.stop_all(StopReason::Abandoned, |task, now| {
                !task.handed_out && task.held_until < now
            }),
            Action::FailUnanswered => self.fail_unanswered(),
            Action::VersionGone => self.version_gone(),
            Action::Unhinted => {
                let now = self.now;
                let slots = self.live().filter(|(_, task)| task.free(now));
                list(&slots.map(|(slot, _)| slot).collect::<Vec<_>>())
            }
            Action::RaiseUnfetched => self.raise_unfetched(),
            Action::Purge => self.purge(),
            Action::PurgeTombstones => {
                let (before, now) = (self.tombstones.len(), self.now);
                self.tombstones.retain(|_, left| left.purge_at > now);
                (before - self.tombstones.len()).to_string()
            }
            Action::MarkFetched(slot) => {
                if let Some(task) = self.slot(*slot) {
                    task.fetched |= task.terminal();
                }
                done(true)
            }
            Action::DeliveredInline(slot) => self.delivered_inline(*slot),
            Action::Get(slot, who) => self.get(*slot, *who),
            Action::NextUndo(claim) => self.next_undo(*claim),
            Action::BeginUndo(claim) => self.begin_undo(*claim),
            Action::FinishUndo(claim) => self.undo(*claim, |undo| match undo {
                Undo::Started | Undo::Finished => Some(Undo::Finished),
                Undo::Pending | Undo::Failed => None,
            }),
            Action::RetryUndo(claim, backoff) => self.retry_undo(*claim, *backoff),
            Action::FailUndo(claim) => self.undo(*claim, |undo| match undo {
                Undo::Pending | Undo::Started | Undo::Failed => Some(Undo::Failed),
                Undo::Finished => None,
            }),
            Action::Undone(claim) => self.undone(*claim),
            Action::Advance(by) => {
                self.now += by;
                done(true)
            }
        }
    }

    pub(super) fn slot(&mut self, slot: usize) -> Option<&mut Task> {
        self.tasks.get_mut(&slot)
    }

    pub(super) fn change_live(
        &mut self,
        slot: usize,
        change: impl FnOnce(&mut Task, i64) -> bool,
    ) -> bool {
        let now = self.now;
        match self.slot(slot) {
            Some(task) if !task.terminal() => change(task, now),
            _ => false,
        }
    }

    pub(super) fn owned_mut(&mut self, claim: u32) -> Option<&mut Task> {
        self.owned(claim)?;
        let slot = self.claims[&claim].slot;
        self.slot(slot)
    }

    pub(super) fn change_running(
        &mut self,
        claim: u32,
        change: impl FnOnce(&mut Task, i64) -> bool,
    ) -> bool {
        let now = self.now;
        match self.owned_mut(claim) {
            Some(task) if task.phase == Some(Phase::Running) => change(task, now),
            _ => false,
        }
    }

    pub(super) fn repeated(&self, claim: u32, before: impl FnOnce(&Task) -> bool) -> bool {
        self.owned(claim).is_some_and(before)
    }
}

/// Never on a whole hour.
const _: () = assert!(BACKOFF % 60 != 0 && LEASE % 60 != 0 && SHOWN % 60 != 0);
