//! The few events that show a violation: all that is known of its task, and the faults around it.

use std::fmt::Write as _;

use serde::Deserialize as _;
use serde_json::Value;

use crate::checker::Violation;
use crate::history::{Acknowledgement, CallAnswer, Event, ForeignAnswer, Kind, TaskAnswer, View};
use crate::ledger::{Line, What};
use crate::plan::Plan;

/// Faults so long before a task began are shown with it, µs.
const BEFORE_US: u64 = 2_000_000;
/// Texts longer than this are cut.
const SHOWN_BYTES_MAX: usize = 300;

/// One line of a timeline.
struct Entry {
    at_us: u64,
    until_us: Option<u64>,
    who: String,
    what: String,
}

/// The violation and its timeline, as text. Times are milliseconds since the task's first event;
/// `a–b` means asked at a and answered at b. Reads that show the same are one line.
#[must_use]
pub fn of(violation: &Violation, history: &[Event], ledger: &[Line]) -> String {
    let about = About::new(violation, history, ledger);
    let mut entries: Vec<Entry> = history
        .iter()
        .filter(|event| about.concerns(event))
        .map(entry)
        .collect();
    entries.extend(ledger.iter().filter(|line| about.acted(line)).map(act));
    entries.sort_by_key(|entry| entry.at_us);
    let from = entries.first().map_or(0, |entry| entry.at_us);
    let until = entries
        .last()
        .map_or(0, |entry| entry.until_us.unwrap_or(entry.at_us));
    let faults = history.iter().filter(|event| {
        matches!(event.kind, Kind::Fault { .. })
            && event.at_us <= until
            && event.until_us + BEFORE_US >= from
    });
    entries.extend(faults.map(entry));
    entries.sort_by_key(|entry| entry.at_us);
    let mut text = format!("{violation}\n");
    for (entry, times) in folded(entries) {
        let at = ms(entry.at_us, from);
        let span = match entry.until_us {
            Some(until_us) => format!("{at}–{}", ms(until_us, from)),
            None => at,
        };
        let again = if times > 1 {
            format!(" (×{times})")
        } else {
            String::new()
        };
        let _ = writeln!(
            text,
            "  {span:>17}  {:<12} {}{again}",
            entry.who, entry.what
        );
    }
    text
}

struct About<'a> {
    task: &'a str,
    /// Plans that the task, or its key, was called with.
    calls: Vec<&'a str>,
    key: Option<(&'a str, &'a str)>,
    /// Tasks of the same call: a violation may be that there are two.
    tasks: Vec<&'a str>,
}

impl<'a> About<'a> {
    fn new(violation: &'a Violation, history: &'a [Event], ledger: &'a [Line]) -> Self {
        let mut about = Self {
            task: &violation.task,
            calls: vec![&violation.call],
            key: None,
            tasks: vec![&violation.task],
        };
        for event in history {
            if let Kind::Called { arguments, key, .. } = &event.kind
                && arguments["call"] == violation.call.as_str()
                && let Some(key) = key
            {
                about.key = Some((&event.principal, key));
            }
        }
        for event in history {
            if let Kind::Called {
                arguments,
                key,
                answer,
                ..
            } = &event.kind
            {
                let same_key = about.key.is_some_and(|(principal, of)| {
                    event.principal == principal && key.as_deref() == Some(of)
                });
                let name = arguments["call"].as_str().unwrap_or_default();
                if same_key && !about.calls.contains(&name) {
                    about.calls.push(name);
                }
                if (same_key || name == violation.call)
                    && let CallAnswer::Handle { task } = answer
                {
                    about.tasks.push(task);
                }
            }
        }
        about.calls.retain(|call| !call.is_empty());
        let of_calls = ledger
            .iter()
            .filter(|line| about.calls.contains(&line.call.as_str()));
        about.tasks.extend(of_calls.map(|line| line.task.as_str()));
        about.tasks.retain(|task| !task.is_empty());
        about
    }

    fn concerns(&self, event: &Event) -> bool {
        match &event.kind {
            Kind::Called { arguments, .. } => arguments["call"]
                .as_str()
                .is_some_and(|call| self.calls.contains(&call)),
            Kind::Read { task, .. }
            | Kind::Updated { task, .. }
            | Kind::Cancelled { task, .. }
            | Kind::Notified { task, .. }
            | Kind::Foreign { task, .. } => {
                task == self.task || self.tasks.contains(&task.as_str())
            }
            Kind::Fault { .. } => false,
        }
    }

    fn acted(&self, line: &Line) -> bool {
        self.tasks.contains(&line.task.as_str()) || self.calls.contains(&line.call.as_str())
    }
}

fn act(line: &Line) -> Entry {
    let what = match line.what {
        What::Act => "acted",
        What::Undo => "undone",
    };
    Entry {
        at_us: line.at_us,
        until_us: None,
        who: format!("pid {}", line.pid),
        what: format!(
            "step {} {what} ({}), attempt {}, task {}",
            line.step, line.value, line.attempt, line.task
        ),
    }
}

fn entry(event: &Event) -> Entry {
    let said = match &event.kind {
        Kind::Called {
            tool,
            arguments,
            key,
            answer,
        } => format!(
            "call {tool} {}{} -> {}",
            planned(arguments),
            key.as_ref()
                .map(|key| format!(" key {key}"))
                .unwrap_or_default(),
            match answer {
                CallAnswer::Inline { result } | CallAnswer::Asked { result } => cut(result),
                CallAnswer::Handle { task } => format!("task {task}"),
                CallAnswer::Error(error) => cut(&error.error),
                CallAnswer::NoAnswer(none) => cut(&none.why),
            }
        ),
        Kind::Read { answer, .. } => format!(
            "get -> {}",
            match answer {
                TaskAnswer::Task(view) => shown(view),
                TaskAnswer::Error(error) => cut(&error.error),
                TaskAnswer::NoAnswer(none) => cut(&none.why),
            }
        ),
        Kind::Updated {
            answers, answer, ..
        } => {
            let answers = serde_json::to_string(answers).unwrap_or_default();
            format!("update {} -> {}", cut(&answers), acknowledged(answer))
        }
        Kind::Cancelled { answer, .. } => format!("cancel -> {}", acknowledged(answer)),
        Kind::Notified { view, .. } => format!("notified {}", shown(view)),
        Kind::Foreign { method, answer, .. } => format!(
            "foreign {method} -> {}",
            match answer {
                ForeignAnswer::Refused(error) => cut(&error.error),
                ForeignAnswer::Shown { result } => cut(result),
                ForeignAnswer::NoAnswer(none) => cut(&none.why),
            }
        ),
        Kind::Fault { what, target } => format!("FAULT {what} {target}"),
    };
    let at = if event.gateway.is_empty() {
        String::new()
    } else {
        format!(" @{}", event.gateway)
    };
    Entry {
        at_us: event.at_us,
        until_us: (event.until_us != event.at_us).then_some(event.until_us),
        who: event.client.clone(),
        what: format!("{said}{at}"),
    }
}

/// The plan of a call.
fn planned(arguments: &Value) -> String {
    match Plan::deserialize(arguments) {
        Ok(plan) => plan.to_string(),
        Err(_) => cut(&arguments.to_string()),
    }
}

fn acknowledged(answer: &Acknowledgement) -> String {
    match answer {
        Acknowledgement::Done => "acknowledged".to_owned(),
        Acknowledgement::Error(error) => cut(&error.error),
        Acknowledgement::NoAnswer(none) => cut(&none.why),
    }
}

fn shown(view: &View) -> String {
    let payload = view.result.as_deref().or(view.error.as_deref());
    let payload = payload.map(cut).unwrap_or_default();
    format!("{} {}{payload}", view.status, view.keys.join(" "))
}

fn cut(text: &str) -> String {
    if text.len() <= SHOWN_BYTES_MAX {
        return text.to_owned();
    }
    let head: String = text.chars().take(SHOWN_BYTES_MAX).collect();
    format!("{head}…")
}

/// Neighbours that say the same become one.
fn folded(entries: Vec<Entry>) -> Vec<(Entry, usize)> {
    let mut folded: Vec<(Entry, usize)> = Vec::new();
    for entry in entries {
        match folded.last_mut() {
            Some((last, times)) if last.what == entry.what && last.who == entry.who => {
                last.until_us = entry.until_us.or(last.until_us);
                *times += 1;
            }
            _ => folded.push((entry, 1)),
        }
    }
    folded
}

/// Milliseconds since `from`, with one digit behind the point.
fn ms(at_us: u64, from: u64) -> String {
    let (sign, us) = match at_us.checked_sub(from) {
        Some(us) => ("", us),
        None => ("-", from - at_us),
    };
    format!("{sign}{}.{}", us / 1000, us % 1000 / 100)
}
