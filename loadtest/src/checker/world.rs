//! History and ledger, sorted by task.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;

use super::expect::Told;
use crate::history::{CallAnswer, Event, Kind, TaskAnswer, View};
use crate::ledger::{Line, What};
use crate::plan::{Plan, Step};

/// How long after a fault was over things may still go other ways because of it, µs.
const AFTERMATH_US: u64 = 30_000_000;

/// Everything, by task and by call.
#[derive(Debug, Default)]
pub(super) struct World<'a> {
    stories: BTreeMap<String, Story<'a>>,
    calls: BTreeMap<&'a str, Vec<Called<'a>>>,
    faults: Vec<&'a Event>,
}

/// A `tools/call`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Called<'a> {
    pub(super) event: &'a Event,
    pub(super) tool: &'a str,
    pub(super) arguments: &'a Value,
    pub(super) key: Option<&'a str>,
    pub(super) answer: &'a CallAnswer,
}

/// What is known of one task.
#[derive(Debug, Default)]
pub(super) struct Story<'a> {
    pub(super) id: String,
    /// The call that made it; `None` if nobody knows (the ledger tells of such tasks).
    pub(super) called: Option<Called<'a>>,
    pub(super) plan: Plan,
    /// When its handle was first there, if it ever was.
    pub(super) acknowledged_us: Option<u64>,
    /// `tasks/get` by its owner.
    pub(super) reads: Vec<(&'a Event, &'a TaskAnswer)>,
    /// Notifications to its owner.
    pub(super) notified: Vec<(&'a Event, &'a View)>,
    /// Whatever else was asked about it.
    pub(super) others: Vec<&'a Event>,
    /// What it did and undid.
    pub(super) lines: Vec<&'a Line>,
    /// Answers to calls that show how it ended.
    pub(super) inline: Vec<(&'a Event, &'a CallAnswer)>,
}

/// The task as an owner saw it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sight<'a> {
    pub(super) event: &'a Event,
    pub(super) view: &'a View,
}

impl<'a> World<'a> {
    pub(super) fn new(history: &'a [Event], ledger: &'a [Line]) -> Self {
        let mut events: Vec<&Event> = history.iter().collect();
        events.sort_by_key(|event| (event.at_us, event.until_us));
        let mut lines: Vec<&Line> = ledger.iter().collect();
        lines.sort_by_key(|line| line.at_us);
        let mut world = Self::default();
        for event in &events {
            world.take_call(event);
        }
        world.begin_stories();
        for event in &events {
            world.take(event);
        }
        for line in lines {
            world.story(&line.task).lines.push(line);
            world.belongs(&line.task, &line.call);
        }
        world
    }

    fn take_call(&mut self, event: &'a Event) {
        let Kind::Called {
            tool,
            arguments,
            key,
            answer,
        } = &event.kind
        else {
            return;
        };
        let name = arguments["call"].as_str().unwrap_or_default();
        self.calls.entry(name).or_default().push(Called {
            event,
            tool,
            arguments,
            key: key.as_deref(),
            answer,
        });
    }

    /// Every task that an answer to a call names.
    fn begin_stories(&mut self) {
        let all: Vec<Called<'a>> = self.calls.values().flatten().copied().collect();
        for called in all {
            let name = called.arguments["call"].as_str().unwrap_or_default();
            match called.answer {
                CallAnswer::Handle { task } => {
                    self.belongs(task, name);
                    let story = self.story(task);
                    let first = story.acknowledged_us.unwrap_or(u64::MAX);
                    story.acknowledged_us = Some(first.min(called.event.until_us));
                }
                ended => {
                    if let Some(told) = Told::of_call(ended) {
                        self.belongs(&told.task, name);
                        let story = self.story(&told.task);
                        story.inline.push((called.event, ended));
                    }
                }
            }
        }
    }

    fn take(&mut self, event: &'a Event) {
        match &event.kind {
            Kind::Called { .. } => {}
            Kind::Read { task, answer } => self.story(task).reads.push((event, answer)),
            Kind::Notified { task, view } => self.story(task).notified.push((event, view)),
            Kind::Updated { task, .. }
            | Kind::Cancelled { task, .. }
            | Kind::Foreign { task, .. } => self.story(task).others.push(event),
            Kind::Fault { .. } => self.faults.push(event),
        }
    }

    fn story(&mut self, task: &str) -> &mut Story<'a> {
        self.stories
            .entry(task.to_owned())
            .or_insert_with(|| Story {
                id: task.to_owned(),
                ..Story::default()
            })
    }

    /// The task was made by the call of this name.
    fn belongs(&mut self, task: &str, call: &str) {
        let first = self
            .calls
            .get(call)
            .and_then(|calls| calls.first().copied());
        let story = self.story(task);
        if let (None, Some(first)) = (story.called, first) {
            story.called = Some(first);
            story.plan = serde_json::from_value(first.arguments.clone()).unwrap_or_default();
        }
    }

    pub(super) fn stories(&self) -> impl Iterator<Item = &Story<'a>> {
        self.stories.values()
    }

    pub(super) fn calls(&self) -> impl Iterator<Item = (&'a str, &[Called<'a>])> {
        self.calls.iter().map(|(name, calls)| (*name, &calls[..]))
    }

    /// The tasks that acted for a call, by its name.
    pub(super) fn acted_for(&self) -> HashMap<&str, Vec<&str>> {
        let mut acted: HashMap<&str, Vec<&str>> = HashMap::new();
        for story in self.stories.values() {
            for line in &story.lines {
                let tasks = acted.entry(&line.call).or_default();
                if !tasks.contains(&story.id.as_str()) {
                    tasks.push(&story.id);
                }
            }
        }
        acted
    }

    /// Whether a fault may have touched what happened in this time.
    pub(super) fn disturbed(&self, from_us: u64, until_us: u64) -> bool {
        self.faults
            .iter()
            .any(|f| f.at_us <= until_us && f.until_us + AFTERMATH_US >= from_us)
    }
}

impl<'a> Story<'a> {
    /// The plan's name; empty if unknown.
    pub(super) fn call(&self) -> &str {
        &self.plan.call
    }

    /// When it was first asked for, at the earliest.
    pub(super) fn began_us(&self) -> u64 {
        self.called.map_or(0, |called| called.event.at_us)
    }

    /// The task as reads showed it.
    pub(super) fn read(&self) -> impl Iterator<Item = Sight<'a>> {
        self.reads
            .iter()
            .filter_map(|(event, answer)| match answer {
                TaskAnswer::Task(view) => Some(Sight { event, view }),
                TaskAnswer::Error(_) | TaskAnswer::NoAnswer(_) => None,
            })
    }

    /// The task as reads and notifications showed it. What a notification tells was true some
    /// time before it came.
    pub(super) fn seen(&self) -> impl Iterator<Item = Sight<'a>> {
        let notified = self.notified.iter();
        let notified = notified.map(|(event, view)| Sight { event, view });
        self.read().chain(notified)
    }

    /// An end that was shown.
    pub(super) fn end(&self) -> Option<Sight<'a>> {
        self.seen().find(|sight| sight.view.is_terminal())
    }

    /// The acts (or what undid them) of a step.
    pub(super) fn of_step(&self, step: &str, what: What) -> impl Iterator<Item = &'a Line> {
        self.lines
            .iter()
            .copied()
            .filter(move |line| line.step == step && line.what == what)
    }

    pub(super) fn step(&self, key: &str) -> Option<&Step> {
        self.plan.steps().find(|step| step.key == key)
    }

    /// Whether the owner ever asked for a stop, up to then.
    pub(super) fn cancel_asked(&self, until_us: u64) -> bool {
        self.others
            .iter()
            .any(|e| matches!(e.kind, Kind::Cancelled { .. }) && e.at_us <= until_us)
    }

    /// What changed the outside: an idempotent act that is repeated under its key does not.
    pub(super) fn visible(&self) -> Vec<&'a Line> {
        let mut seen: Vec<(&str, What)> = Vec::new();
        let mut visible = Vec::new();
        for line in &self.lines {
            let idempotent = self.step(&line.step).is_some_and(|step| match line.what {
                What::Act => step.idempotent,
                What::Undo => step.undo.as_ref().is_some_and(|undo| undo.idempotent),
            });
            let key = (line.key.as_str(), line.what);
            if idempotent && seen.contains(&key) {
                continue;
            }
            seen.push(key);
            visible.push(*line);
        }
        visible
    }
}
