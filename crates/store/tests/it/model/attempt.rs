//! What an attempt asks for: every write of it is fenced.

use store::StopReason;

use super::action::{Ask, Reply, question};
use super::rules::{NEW_STEP, done, ended};
use super::state::*;

impl Model {
    pub(super) fn claim(&mut self, slot: usize, token: u32) -> String {
        let mut claimed = None;
        self.change_live(slot, |task, now| {
            let again = task.lease_until.is_some() && task.token == Some(token);
            if !again && !task.free(now) {
                return false;
            }
            if !again {
                if task.phase == Some(Phase::Running) {
                    task.tries += 1;
                    task.work += task.lease_until.unwrap() - task.claimed_at;
                }
                task.attempt += 1;
                task.claimed_at = now;
                task.token = Some(token);
            }
            if task.phase == Some(Phase::Queued) {
                task.phase = Some(Phase::Running);
            }
            task.lease_until = Some(now + LEASE);
            claimed = Some((
                task.attempt,
                format!(
                    "attempt {} tries {} open {} undoing {} journaled {}",
                    task.attempt,
                    task.tries,
                    or_none(task.open_step.map(Key::name)),
                    task.phase == Some(Phase::Undoing),
                    task.journaled,
                ),
            ));
            true
        });
        let Some((attempt, said)) = claimed else {
            return "-".to_owned();
        };
        // The same token again is the same claim, unless it got another attempt meanwhile.
        let same = |claim: &Claim| claim.attempt == attempt;
        if !self.claims.get(&token).is_some_and(same) {
            let claim = Claim {
                slot,
                attempt,
                token,
                permits: Vec::new(),
                undo: None,
            };
            self.claims.insert(token, claim);
        }
        said
    }

    pub(super) fn heartbeat(&mut self, claim: u32) -> String {
        let now = self.now;
        match self.owned_mut(claim) {
            Some(task) if task.lease_until.is_some() => {
                task.lease_until = Some(now + LEASE);
                format!("beat {}", or_none(task.stop.map(StopReason::as_str)))
            }
            _ => done(false),
        }
    }

    pub(super) fn begin(&mut self, claim: u32, key: Key) -> String {
        let (act, seq) = (self.acts + 1, self.seq(claim, key));
        let mut begun = None;
        self.change_running(claim, |task, now| {
            if task.stopping(now) || task.open_step.is_some_and(|open| open != key) {
                return false;
            }
            begun = Some(match task.steps.get_mut(&key) {
                None => {
                    task.steps.insert(
                        key,
                        Step {
                            seq,
                            act,
                            ..NEW_STEP
                        },
                    );
                    true
                }
                Some(step) if !step.finished && key.idempotent() => {
                    step.act = act;
                    true
                }
                Some(_) => false,
            });
            if begun == Some(true) {
                task.open_step = Some(key);
                task.journaled = true;
            }
            true
        });
        match begun {
            None => "Stop",
            Some(false) => "InDoubt",
            Some(true) => {
                self.acts = act;
                self.claims
                    .get_mut(&claim)
                    .unwrap()
                    .permits
                    .push((key, act));
                "Act"
            }
        }
        .to_owned()
    }

    pub(super) fn finish(&mut self, claim: u32) -> String {
        let (key, act) = self.claims.get_mut(&claim).unwrap().permits.remove(0);
        done(self.change_running(claim, |task, _| {
            let Some(step) = task.steps.get_mut(&key).filter(|step| step.act == act) else {
                return false;
            };
            step.finished = true;
            if key.undoable() {
                step.undo = Some(Undo::Pending);
                task.has_undo = true;
            }
            task.open_step = task.open_step.filter(|open| *open != key);
            true
        }))
    }

    pub(super) fn abandon_step(&mut self, claim: u32) -> String {
        let (key, act) = self.claims.get_mut(&claim).unwrap().permits.remove(0);
        done(self.change_running(claim, |task, _| {
            let open = |step: &&mut Step| step.act == act && !step.finished;
            if task.steps.get_mut(&key).filter(open).is_none() {
                return false;
            }
            task.steps.remove(&key);
            task.open_step = task.open_step.filter(|open| *open != key);
            true
        }))
    }

    pub(super) fn park(&mut self, claim: u32, asks: &[Ask]) -> String {
        let (seq, asked) = (self.next_seq(claim), self.asked(claim));
        let parked = self.change_running(claim, |task, now| {
            if task.stopping(now) || task.open_step.is_some() {
                return false;
            }
            let waits = asks.iter().map(|ask| ask.wait);
            let (first, last) = (waits.clone().min().unwrap(), waits.max().unwrap());
            task.status = Status::InputRequired;
            task.phase = Some(Phase::Parked);
            task.lease_until = None;
            task.journaled = true;
            task.rounds += 1;
            task.deadline = Some(now + first);
            let cap = task.created_at + task.kind.ttl_max();
            task.expires_at = task.expires_at.max(cap.min(task.expires_at + last));
            task.work += WORKED;
            task.change();
            for (n, ask) in asks.iter().enumerate() {
                let input = Input {
                    seq,
                    has_default: ask.has_default,
                    deadline: now + ask.wait,
                    answer: None,
                };
                task.inputs.insert(question(asked + n), input);
            }
            true
        });
        let before = |task: &Task| matches!(task.phase, Some(Phase::Parked | Phase::Queued));
        if parked || self.repeated(claim, before) {
            "Parked".to_owned()
        } else {
            "Stop".to_owned()
        }
    }

    pub(super) fn record_answer(&mut self, claim: u32) -> String {
        let (seq, key) = (self.next_seq(claim), question(self.asked(claim)));
        done(self.change_running(claim, |task, now| {
            if task.stop.is_some() {
                return false;
            }
            task.journaled = true;
            let input = Input {
                seq,
                has_default: false,
                deadline: now,
                answer: Some((format!("{:?}", Reply::Yes), "call")),
            };
            task.inputs.insert(key, input);
            true
        }))
    }

    pub(super) fn confirm_stopped(&mut self, claim: u32) -> String {
        let slot = self.claims[&claim].slot;
        let settled = self.settle(slot, Some(claim)).is_some();
        let task = match settled {
            true => self.tasks.get(&slot),
            false => self.owned(claim),
        };
        match task {
            Some(task) if task.terminal() || task.phase == Some(Phase::Undoing) => {
                ended(task).to_owned()
            }
            _ => done(false),
        }
    }

    pub(super) fn complete(&mut self, claim: u32) -> String {
        let completed = self.change_running(claim, |task, now| {
            if task.open_step.is_some() {
                return false;
            }
            task.finished_at = now;
            task.status = Status::Completed;
            task.phase = None;
            task.lease_until = None;
            task.result = Some(format!("result of {}", task.attempt));
            task.work += WORKED;
            task.change();
            true
        });
        done(completed || self.repeated(claim, |task| task.status == Status::Completed))
    }

    pub(super) fn fail(&mut self, claim: u32) -> String {
        self.change_running(claim, |task, now| {
            task.work += WORKED;
            let failure = Failure::new(&format!("broke {}", task.attempt));
            task.end(Status::Failed, Some(failure), now);
            true
        });
        match self.owned(claim) {
            Some(task) if task.status == Status::Failed || task.phase == Some(Phase::Undoing) => {
                ended(task).to_owned()
            }
            _ => done(false),
        }
    }

    pub(super) fn retry(&mut self, claim: u32, backoff: i64) -> String {
        let retried = self.change_running(claim, |task, now| {
            if task.stop.is_some() || task.last_try() {
                return false;
            }
            task.phase = Some(Phase::Queued);
            task.lease_until = None;
            task.tries += 1;
            task.run_at = now + backoff;
            task.work += WORKED;
            true
        });
        done(retried || self.repeated(claim, |task| task.phase == Some(Phase::Queued)))
    }

    pub(super) fn release(&mut self, claim: u32) -> String {
        let now = self.now;
        if let Some(task) = self.owned_mut(claim)
            && task.lease_until.take().is_some()
        {
            task.run_at = now;
            if task.phase == Some(Phase::Running) {
                task.phase = Some(Phase::Queued);
                task.work += WORKED;
            }
        }
        let back = |task: &Task| matches!(task.phase, Some(Phase::Queued | Phase::Undoing));
        done(self.repeated(claim, back))
    }
}
