//! What cron asks for.

use store::StopReason;

use super::action::Reply;
use super::rules::list;
use super::state::*;

impl Model {
    pub(super) fn stop_all(
        &mut self,
        reason: StopReason,
        due: impl Fn(&Task, i64) -> bool,
    ) -> String {
        let now = self.now;
        let mut told = Vec::new();
        for (slot, task) in &mut self.tasks {
            let ending = task.terminal() || task.phase == Some(Phase::Undoing);
            if !ending && task.stop.is_none() && due(task, now) {
                task.stop = Some(reason);
                told.push(*slot);
            }
        }
        list(&told)
    }

    pub(super) fn settle(&mut self, slot: usize, by: Option<u32>) -> Option<String> {
        let now = self.now;
        let confirmed = by.and_then(|claim| self.owned(claim)).is_some();
        let task = self.slot(slot)?;
        let running = task.phase == Some(Phase::Running);
        if !(task.nothing_runs(now) || confirmed && running && task.stop.is_some()) {
            return None;
        }
        let reason = match (task.open_step, task.stop) {
            (Some(_), _) => "step_in_doubt",
            (None, Some(StopReason::Expired)) => "task_expired",
            (None, Some(reason)) => reason.as_str(),
            (None, None) if task.kind == Kind::Fragile => "worker_lost",
            (None, None) => "attempts_exhausted",
        };
        if matches!(reason, "worker_lost" | "attempts_exhausted") {
            task.tries += 1;
        }
        let failure = Failure {
            step: task.open_step,
            ..Failure::new(reason)
        };
        if reason == "task_expired" || task.expired(now) {
            task.expires_at = task.expires_at.max(now + SHOWN);
        }
        match reason {
            "cancelled" | "abandoned" => task.end(Status::Cancelled, None, now),
            _ => task.end(Status::Failed, Some(failure), now),
        }
        let undoing = task.phase.is_some();
        Some(format!("{reason} undoing {undoing}"))
    }

    pub(super) fn fail_unanswered(&mut self) -> String {
        let now = self.now;
        let mut slots = Vec::new();
        for (slot, task) in &mut self.tasks {
            let due = task.deadline.is_some_and(|deadline| deadline <= now);
            if task.phase != Some(Phase::Parked) || task.stop.is_some() || !due {
                continue;
            }
            slots.push(*slot);
            let overdue = |input: &Input| input.answer.is_none() && input.deadline <= now;
            let overdue: Vec<_> = task.inputs.iter().filter(|(_, i)| overdue(i)).collect();
            if overdue.iter().any(|(_, input)| !input.has_default) {
                task.stop = Some(StopReason::InputDeadline);
                continue;
            }
            let defaults = overdue.into_iter();
            let defaults = defaults.map(|(key, _)| (key.clone(), format!("{:?}", Reply::No)));
            let defaults = defaults.collect();
            task.answer(defaults, "default", now);
        }
        list(&slots)
    }

    pub(super) fn version_gone(&mut self) -> String {
        let now = self.now;
        let mut slots = Vec::new();
        for (slot, task) in &mut self.tasks {
            let waits = task.run_at < now - GONE;
            let unowned = task.lease_until.is_none() || task.lapsed(now);
            let gone = waits && unowned;
            match task.phase {
                Some(Phase::Queued | Phase::Running)
                    if task.stop.is_none() && task.journaled && gone =>
                {
                    task.stop = Some(StopReason::VersionGone);
                    slots.push(*slot);
                }
                Some(Phase::Undoing) if gone => {
                    for step in task.steps.values_mut() {
                        if matches!(step.undo, Some(Undo::Pending | Undo::Started)) {
                            step.undo = Some(Undo::Failed);
                        }
                    }
                    task.undone(now);
                    slots.push(*slot);
                }
                _ => {}
            }
        }
        list(&slots)
    }

    /// Says how many were judged, and how many of them are told of.
    pub(super) fn raise_unfetched(&mut self) -> String {
        let now = self.now;
        let (mut judged, mut raised) = (0, 0);
        for task in self.tasks.values_mut() {
            let old = task.finished_at + UNREAD <= now || task.expires_at <= now;
            let unjudged = task.terminal() && task.status == Status::Failed && !task.judged;
            if unjudged && (old || task.open_step.is_some() || task.fetched) {
                task.judged = true;
                judged += 1;
                raised += i32::from(!task.fetched || task.open_step.is_some());
            }
        }
        format!("{judged} judged {raised} raised")
    }

    pub(super) fn purge(&mut self) -> String {
        let now = self.now;
        let over = |task: &Task| {
            let unread = task.status == Status::Failed && !task.fetched && !task.judged;
            task.terminal() && task.expired(now) && !unread
        };
        let over = self.tasks.iter().filter(|(_, task)| over(task));
        let slots: Vec<usize> = over.map(|(slot, _)| *slot).collect();
        for slot in &slots {
            let task = self.tasks.remove(slot).unwrap();
            if let Some(key) = task.key {
                self.keys.remove(&key);
            }
            if task.handed_out {
                let left = Tombstone {
                    status: task.status,
                    purge_at: now + TOMBSTONE,
                };
                self.tombstones.insert(*slot, left);
            }
        }
        slots.len().to_string()
    }
}
