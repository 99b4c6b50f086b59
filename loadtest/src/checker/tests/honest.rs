//! Histories as a correct system would leave them.
//!
//! A tale knows the true moment of everything; what clients record spreads around it by more than
//! the pace of the story, so that questions and answers overlap in every way.

mod record;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::checker::expect::Expected;
use crate::history::{
    Acknowledgement, CallAnswer, Event, Kind, NoAnswer, RpcError, TaskAnswer, View,
};
use crate::ledger::{Line, What};
use crate::plan::{End, Item, PLANNED, Plan, Question, Step, Undo};
use crate::rng::Rng;

/// Observations spread so far around the true moment, µs.
const SPREAD_US: u64 = 60_000;
/// An act is written so long after its time at most, µs.
const CLOCK_US: u64 = 100;
/// From one true moment to the next, µs.
const PACE_US: u64 = 10_000;

/// How a task goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// To the end of its plan.
    Completes,
    /// Answered inline, under a key, and asked for again.
    Inline,
    /// The plan asks for an error.
    Fails,
    /// Cancelled on the way.
    Cancelled,
    /// A worker dies between an act and its journal.
    InDoubt,
    /// A call without an answer, whose work goes on for a while.
    Orphan,
}

impl Fate {
    pub(super) const ALL: [Self; 6] = [
        Self::Completes,
        Self::Inline,
        Self::Fails,
        Self::Cancelled,
        Self::InDoubt,
        Self::Orphan,
    ];
}

/// What is recorded of a run.
#[derive(Debug)]
pub(super) struct Tale {
    pub(super) events: Vec<Event>,
    pub(super) lines: Vec<Line>,
    rng: Rng,
    now: u64,
}

/// A task of a tale.
struct Task {
    id: String,
    owner: String,
    plan: Plan,
    fate: Fate,
    attempt: i32,
    answers: BTreeMap<String, String>,
    done: Vec<Step>,
}

impl Tale {
    /// A few tasks of any fate.
    pub(super) fn random(seed: u64) -> Self {
        let mut tale = Self::new(seed);
        for number in 0..4 {
            let fate = *tale.rng.pick(&Fate::ALL);
            tale.now = 1_000_000;
            tale.task(number, fate);
        }
        tale.sorted()
    }

    /// One task.
    pub(super) fn of(fate: Fate, seed: u64) -> Self {
        let mut tale = Self::new(seed);
        tale.task(0, fate);
        tale.sorted()
    }

    fn new(seed: u64) -> Self {
        Self {
            events: Vec::new(),
            lines: Vec::new(),
            rng: Rng::new(seed),
            now: 1_000_000,
        }
    }

    fn sorted(mut self) -> Self {
        self.events
            .sort_by_key(|event| (event.at_us, event.until_us));
        self.lines.sort_by_key(|line| line.at_us);
        self
    }

    fn task(&mut self, number: u32, fate: Fate) {
        let mut task = Task {
            id: format!("task-{number}"),
            owner: format!("owner-{}", number % 2),
            plan: self.plan(number, fate),
            fate,
            attempt: 1,
            answers: BTreeMap::new(),
            done: Vec::new(),
        };
        self.begin(&task);
        let stop_at = self.rng.below(task.plan.items.len());
        for (place, item) in task.plan.items.clone().into_iter().enumerate() {
            self.look(&task, "working", &[]);
            if place == stop_at && fate == Fate::Orphan {
                return;
            }
            if place == stop_at && fate == Fate::Cancelled {
                return self.cancelled(&mut task, &item);
            }
            match item {
                Item::Step(step)
                    if place == stop_at && fate == Fate::InDoubt && !step.idempotent =>
                {
                    return self.in_doubt(&mut task, &step);
                }
                Item::Step(step) => self.step(&mut task, &step),
                Item::Ask(questions) => self.ask(&mut task, &questions),
                Item::Pause(_) => self.tick(),
                Item::Retry(times) | Item::Panic(times) => {
                    task.attempt += i32::try_from(times).unwrap()
                }
            }
        }
        let expected = Expected::of(&task.plan, &task.answers);
        let told = json!({
            "task": task.id, "call": task.plan.call, "digest": expected.digest, "answers": task.answers,
        });
        if task.plan.end == End::Failed {
            let mut told = told;
            told["undoFailed"] = self.undo(&mut task).into();
            let error = json!({ "code": PLANNED, "message": "planned", "data": told });
            return self.ended(&task, "failed", None, Some(error.to_string()));
        }
        let is_error = task.plan.end == End::ToolError;
        let content = json!([{ "type": "text", "text": told.to_string() }]);
        let result = json!({ "content": content, "isError": is_error }).to_string();
        self.ended(&task, "completed", Some(result), None);
    }

    fn plan(&mut self, number: u32, fate: Fate) -> Plan {
        let mut items = Vec::new();
        for place in 0..self.rng.between(2, 6) {
            let chosen = if fate == Fate::Inline {
                0
            } else {
                self.rng.between(0, 8)
            };
            items.push(match chosen {
                5 => Item::Retry(1),
                6 => Item::Pause(5),
                7 => {
                    let count = self.rng.between(1, 4);
                    Item::Ask((0..count).map(|n| question(place, n)).collect())
                }
                _ => Item::Step(Step {
                    key: format!("s{place}"),
                    idempotent: self.rng.percent(40),
                    undo: self.rng.percent(40).then(|| Undo {
                        idempotent: self.rng.percent(50),
                        ..Undo::default()
                    }),
                    ..Step::default()
                }),
            });
        }
        let end = match fate {
            Fate::Fails => End::Failed,
            _ if self.rng.percent(20) => End::ToolError,
            _ => End::Result,
        };
        Plan {
            call: format!("call-{number}"),
            items,
            end,
        }
    }

    fn begin(&mut self, task: &Task) {
        self.tick();
        let answer = match task.fate {
            Fate::Inline => return,
            Fate::Orphan => CallAnswer::NoAnswer(NoAnswer::default()),
            _ => CallAnswer::Handle {
                task: task.id.clone(),
            },
        };
        let key = self.rng.percent(50).then(|| format!("key of {}", task.id));
        self.call(task, key, answer);
    }

    fn step(&mut self, task: &mut Task, step: &Step) {
        self.act(task, step, What::Act);
        while step.idempotent && self.rng.percent(25) {
            task.attempt += 1;
            self.act(task, step, What::Act);
        }
        if step.idempotent && self.rng.percent(10) {
            self.late(task, step, What::Act);
        }
        task.done.push(step.clone());
    }

    /// Two devices answer; the first to come wins. What comes before it was asked is acknowledged,
    /// and counts for nothing.
    fn ask(&mut self, task: &mut Task, questions: &[Question]) {
        let mut open: Vec<String> = questions.iter().map(|q| q.key.clone()).collect();
        if self.rng.percent(30) {
            self.tick();
            let early = Plan::response("too early");
            self.record(
                &task.owner,
                Kind::Updated {
                    task: task.id.clone(),
                    answers: BTreeMap::from([(open[0].clone(), early)]),
                    answer: Acknowledgement::Done,
                },
            );
            self.now += 3 * SPREAD_US;
        }
        self.look(task, "input_required", &open);
        let mut answers: Vec<(String, String)> = Vec::new();
        for key in &open {
            for device in 0..self.rng.between(1, 4) {
                answers.push((key.clone(), format!("{key} by {device}")));
            }
        }
        self.rng.shuffle(&mut answers);
        for (key, text) in answers {
            self.tick();
            let lost = self.rng.percent(15);
            let taken = !lost || self.rng.percent(50);
            if taken && open.contains(&key) {
                open.retain(|other| *other != key);
                task.answers.insert(key.clone(), text.clone());
            }
            let answer = if lost {
                Acknowledgement::NoAnswer(NoAnswer::default())
            } else {
                Acknowledgement::Done
            };
            let answers = BTreeMap::from([(key, Plan::response(&text))]);
            let kind = Kind::Updated {
                task: task.id.clone(),
                answers,
                answer,
            };
            self.record(&task.owner, kind);
            if !open.is_empty() {
                self.look(task, "input_required", &open);
            }
        }
        for key in open {
            self.tick();
            let text = format!("{key} in the end");
            let answers = BTreeMap::from([(key.clone(), Plan::response(&text))]);
            task.answers.insert(key, text);
            let answer = Acknowledgement::Done;
            self.record(
                &task.owner,
                Kind::Updated {
                    task: task.id.clone(),
                    answers,
                    answer,
                },
            );
        }
        task.attempt += 1;
    }

    /// An open step may act yet; then what is done is undone; then it shows.
    fn cancelled(&mut self, task: &mut Task, item: &Item) {
        self.tick();
        let kind = Kind::Cancelled {
            task: task.id.clone(),
            answer: Acknowledgement::Done,
        };
        self.record(&task.owner, kind);
        if let Item::Step(step) = item
            && self.rng.percent(50)
        {
            self.step(task, step);
        }
        let given_up = self.undo(task);
        if given_up.is_empty() {
            return self.ended(task, "cancelled", None, None);
        }
        let data = json!({ "reason": "undo_failed", "undoFailed": given_up });
        let error = json!({ "code": -32603, "message": "not undone", "data": data });
        self.ended(task, "failed", None, Some(error.to_string()));
    }

    fn in_doubt(&mut self, task: &mut Task, step: &Step) {
        match self.rng.between(0, 3) {
            0 => self.act(task, step, What::Act),
            1 => self.late(task, step, What::Act),
            _ => {}
        }
        self.fault();
        let given_up = self.undo(task);
        let data = json!({ "reason": "step_in_doubt", "step": step.key, "undoFailed": given_up });
        let error = json!({ "code": -32603, "message": "in doubt", "data": data });
        self.ended(task, "failed", None, Some(error.to_string()));
    }

    /// The steps that could not be undone: their worker was lost in the middle.
    fn undo(&mut self, task: &mut Task) -> Vec<Value> {
        let mut given_up = Vec::new();
        for step in task.done.clone().into_iter().rev() {
            let Some(undo) = &step.undo else { continue };
            if !undo.idempotent && self.rng.percent(15) {
                self.fault();
                given_up.push(json!({ "step": step.key, "error": "lost in the middle" }));
                if self.rng.percent(50) {
                    self.late(task, &step, What::Undo);
                }
                continue;
            }
            self.act(task, &step, What::Undo);
            if undo.idempotent && self.rng.percent(30) {
                task.attempt += 1;
                self.act(task, &step, What::Undo);
            }
            self.look(task, "working", &[]);
        }
        given_up
    }

    fn ended(&mut self, task: &Task, status: &str, result: Option<String>, error: Option<String>) {
        self.tick();
        if task.fate == Fate::Inline {
            return self.answered(task, result.unwrap());
        }
        let (id, status) = (task.id.clone(), status.to_owned());
        let view = View {
            id,
            status,
            result,
            error,
            keys: Vec::new(),
        };
        for _ in 0..3 {
            self.show(task, view.clone());
            self.tick();
        }
        self.now += 20 * SPREAD_US;
        let answer = TaskAnswer::Task(view);
        self.record(
            &task.owner,
            Kind::Read {
                task: task.id.clone(),
                answer,
            },
        );
    }

    /// Inline, twice; and refused with other arguments.
    fn answered(&mut self, task: &Task, result: String) {
        let key = Some("nightly".to_owned() + &task.id);
        for _ in 0..2 {
            let answer = CallAnswer::Inline {
                result: result.clone(),
            };
            self.call(task, key.clone(), answer);
            self.tick();
        }
        let other = Task {
            id: String::new(),
            owner: task.owner.clone(),
            plan: Plan {
                call: format!("other than {}", task.plan.call),
                ..Plan::default()
            },
            answers: BTreeMap::new(),
            done: Vec::new(),
            ..*task
        };
        let error = json!({ "code": -32602, "message": "the key was used with other arguments" });
        let error = RpcError {
            code: -32602,
            error: error.to_string(),
        };
        self.call(&other, key, CallAnswer::Error(error));
    }
}

fn question(place: u64, number: u64) -> Question {
    Question {
        key: format!("q{place}-{number}"),
        ..Question::default()
    }
}

/// The last JSON of a payload is replaced; for breaking it.
pub(super) fn altered(text: &str, from: &str, to: &str) -> String {
    let _: Value = serde_json::from_str(text).unwrap();
    let altered = text.replacen(from, to, 1);
    assert_ne!(altered, text);
    altered
}
