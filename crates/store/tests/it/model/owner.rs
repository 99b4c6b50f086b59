//! What callers and their gateways ask for.

use store::StopReason;

use super::action::{Reply, Who, question};
use super::rules::{done, list};
use super::state::*;

impl Model {
    pub(super) fn create(
        &mut self,
        slot: usize,
        key: Option<u8>,
        arguments: u8,
        (handed_out, kind): (bool, Kind),
    ) -> String {
        if let Some(slot) = key.and_then(|key| self.keys.get(&key)) {
            let known = &self.tasks[slot];
            return if known.arguments == arguments {
                format!("Existing({slot})")
            } else {
                "KeyReused".to_owned()
            };
        }
        let now = self.now;
        let ttl = match key {
            Some(_) => kind.ttl().max(KEYED_TTL_MIN),
            None => kind.ttl(),
        };
        if let Some(key) = key {
            self.keys.insert(key, slot);
        }
        let task = Task {
            kind,
            key,
            arguments,
            status: Status::Working,
            phase: Some(Phase::Queued),
            created_at: now,
            expires_at: now + ttl,
            run_at: now,
            attempt: 0,
            tries: 0,
            token: None,
            claimed_at: now,
            lease_until: None,
            work: 0,
            journaled: false,
            open_step: None,
            has_undo: false,
            pending: None,
            stop: None,
            rounds: 0,
            deadline: None,
            held_until: now + HOLD,
            handed_out,
            fetched: false,
            finished_at: now,
            judged: false,
            result: None,
            failure: None,
            said: "queued".to_owned(),
            steps: Default::default(),
            inputs: Default::default(),
            changes: 0,
        };
        self.slots.insert(slot);
        self.tasks.insert(slot, task);
        format!("New({slot})")
    }

    pub(super) fn abandon(&mut self, slot: usize) -> String {
        let mut told = Vec::new();
        self.change_live(slot, |task, now| {
            if task.stop.is_some() || task.handed_out || task.key.is_some() {
                return false;
            }
            if task.phase == Some(Phase::Parked) {
                // Whoever was asked has the whole time that the question has.
            } else if task.rounds > 0 {
                task.held_until = now + HOLD;
            } else {
                task.stop = Some(StopReason::Abandoned);
                told.push(slot);
            }
            true
        });
        list(&told)
    }

    pub(super) fn gone(&self, slot: usize) -> String {
        let left = self.tombstones.get(&slot);
        or_none(left.map(|left| format!("Gone({})", left.status)))
    }

    pub(super) fn answer(&mut self, slot: usize, who: Who, replies: &[(usize, Reply)]) -> String {
        if who == Who::Foreign {
            return "-".to_owned();
        }
        let (now, gone) = (self.now, self.gone(slot));
        let Some(task) = self.slot(slot) else {
            return gone;
        };
        if task.phase != Some(Phase::Parked) || task.stopping(now) {
            return "Ignored".to_owned();
        }
        let mut answers = Vec::new();
        for key in task.outstanding() {
            match replies.iter().find(|(n, _)| question(*n) == key) {
                Some((_, Reply::Malformed)) => return format!("Malformed({key})"),
                Some((_, reply)) => answers.push((key, format!("{reply:?}"))),
                None => {}
            }
        }
        if answers.is_empty() {
            return "Ignored".to_owned();
        }
        match task.answer(answers, "owner", now) {
            0 => "Resumed".to_owned(),
            _ => "Waiting".to_owned(),
        }
    }

    pub(super) fn cancel(&mut self, slot: usize, who: Who) -> String {
        if who == Who::Foreign {
            return "-".to_owned();
        }
        let gone = self.gone(slot);
        let Some(task) = self.slot(slot) else {
            return gone;
        };
        if task.terminal() {
            return "AlreadyTerminal".to_owned();
        }
        task.tell_to_stop(StopReason::Cancelled);
        if self.settle(slot, None).is_none() {
            return "Requested".to_owned();
        }
        match self.tasks.get(&slot).and_then(|task| task.phase) {
            Some(_) => "Undoing".to_owned(),
            None => "Cancelled".to_owned(),
        }
    }

    pub(super) fn get(&self, slot: usize, who: Who) -> String {
        match self.tasks.get(&slot) {
            _ if who == Who::Foreign => "-".to_owned(),
            None => self.gone(slot),
            Some(task) => {
                let asked = (task.phase == Some(Phase::Parked)).then(|| task.outstanding().len());
                let failed = task.failure.is_some() && task.status == Status::Failed;
                format!(
                    "Found({}) asks {} failed {failed}",
                    task.status,
                    or_none(asked)
                )
            }
        }
    }

    pub(super) fn delivered_inline(&mut self, slot: usize) -> String {
        let now = self.now;
        if let Some(task) = self.slot(slot)
            && task.terminal()
            && !task.handed_out
            && task.key.is_none()
        {
            if task.rounds > 0 && task.held_until > now {
                task.expires_at = task.held_until;
                task.fetched = true;
            } else if task.journaled {
                task.expires_at = now;
                task.fetched = true;
            } else {
                self.tasks.remove(&slot);
            }
        }
        done(true)
    }
}
