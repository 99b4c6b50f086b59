//! What is recorded of a moment: around it, or late, or not at all.

use serde_json::json;

use super::{CLOCK_US, Fate, PACE_US, SPREAD_US, Tale, Task};
use crate::checker::expect::Expected;
use crate::history::{
    CallAnswer, Event, ForeignAnswer, Kind, NoAnswer, RpcError, TaskAnswer, View,
};
use crate::ledger::{Line, What};
use crate::plan::Step;

impl Tale {
    pub(super) fn call(&mut self, task: &Task, key: Option<String>, answer: CallAnswer) {
        let arguments = serde_json::to_value(&task.plan).unwrap();
        let tool = "chaos_steps".to_owned();
        let kind = Kind::Called {
            tool,
            arguments,
            key,
            answer,
        };
        self.record(&task.owner, kind);
    }

    /// Something true at this moment was recorded.
    pub(super) fn record(&mut self, principal: &str, kind: Kind) {
        let at_us = self.now - self.rng.between(0, SPREAD_US);
        let until_us = self.now + self.rng.between(0, SPREAD_US);
        self.record_at(principal, kind, (at_us, until_us));
    }

    pub(super) fn record_at(&mut self, principal: &str, kind: Kind, (at_us, until_us): (u64, u64)) {
        self.events.push(Event {
            at_us,
            until_us,
            client: format!("client of {principal}"),
            principal: principal.to_owned(),
            gateway: "gateway-1".to_owned(),
            kind,
        });
    }

    pub(super) fn tick(&mut self) {
        self.now += self.rng.between(CLOCK_US, PACE_US);
        if self.rng.percent(10) {
            // Now and then it takes so long that what comes after is after.
            self.now += 3 * SPREAD_US;
        }
    }

    /// Its owner looks, now and then; what is asked during the handle's way is not acknowledged.
    pub(super) fn look(&mut self, task: &Task, status: &str, keys: &[String]) {
        self.tick();
        if task.fate == Fate::Inline || task.fate == Fate::Orphan {
            return;
        }
        self.show(
            task,
            View {
                id: task.id.clone(),
                status: status.to_owned(),
                keys: keys.to_vec(),
                ..View::default()
            },
        );
    }

    pub(super) fn show(&mut self, task: &Task, view: View) {
        let id = task.id.clone();
        if self.rng.percent(30) {
            // Late, in the order of its stream.
            let late = self.now + SPREAD_US;
            let kind = Kind::Notified {
                task: id.clone(),
                view: view.clone(),
            };
            self.record_at(&task.owner, kind, (late, late));
        }
        if self.rng.percent(60) {
            let kind = Kind::Read {
                task: id.clone(),
                answer: TaskAnswer::Task(view),
            };
            self.record(&task.owner, kind);
        }
        if self.rng.percent(10) {
            let answer = TaskAnswer::NoAnswer(NoAnswer::default());
            self.record(
                &task.owner,
                Kind::Read {
                    task: id.clone(),
                    answer,
                },
            );
        }
        if self.rng.percent(20) {
            let error =
                json!({"code": -32602, "message": "Failed to retrieve task: Task not found"});
            let error = RpcError {
                code: -32602,
                error: error.to_string(),
            };
            let answer = ForeignAnswer::Refused(error);
            let method = "tasks/get".to_owned();
            self.record(
                "stranger",
                Kind::Foreign {
                    task: id,
                    method,
                    answer,
                },
            );
        }
    }

    pub(super) fn act(&mut self, task: &Task, step: &Step, what: What) {
        self.tick();
        let values = Expected::of(&task.plan, &task.answers).values;
        self.lines.push(Line {
            at_us: self.now - self.rng.between(0, CLOCK_US),
            pid: 1,
            task: task.id.clone(),
            call: task.plan.call.clone(),
            step: step.key.clone(),
            key: format!("{}:{}", task.id, step.key),
            attempt: task.attempt,
            what,
            value: values[&step.key].clone(),
        });
    }

    /// A frozen worker acts long after, when it thaws.
    pub(super) fn late(&mut self, task: &Task, step: &Step, what: What) {
        let now = self.now;
        self.now += 10_000_000;
        self.act(task, step, what);
        self.now = now;
    }

    pub(super) fn fault(&mut self) {
        let (what, target) = ("kill9".to_owned(), "worker-1".to_owned());
        self.record("", Kind::Fault { what, target });
    }
}
