//! The attempts at a task, for `mcp-tasks tasks show`: the earlier ones from their history, the current
//! or last one from the task itself.

use std::time::SystemTime;

use serde_json::{Value, json};
use store::TaskShown;

use super::operator::{at, at_maybe, object};

/// Columns of the table.
pub const COLUMNS: [&str; 7] = [
    "attempt",
    "worker",
    "did",
    "claimed_at",
    "ended_at",
    "how",
    "reason",
];

/// The attempt that owns the task, or did last.
pub fn current(task: &TaskShown) -> Value {
    if task.attempt == 0 {
        return Value::Null;
    }
    object([
        ("number", json!(task.attempt)),
        ("worker", json!(task.worker)),
        ("claimed_at", at_maybe(task.claimed_at)),
        ("lease_until", at_maybe(task.lease_until)),
        (
            "lease_over",
            json!(task.lease_until.is_some().then_some(task.lease_over)),
        ),
    ])
}

/// All attempts that are known of, the current or last one too.
pub fn rows(task: &TaskShown) -> Vec<Value> {
    let mut all: Vec<Value> = task
        .attempts
        .iter()
        .map(|attempt| {
            object([
                ("attempt", json!(attempt.attempt)),
                ("worker", json!(attempt.worker)),
                ("did", json!(if attempt.undoing { "undo" } else { "run" })),
                ("claimed_at", at_maybe(attempt.claimed_at)),
                ("ended_at", at(attempt.ended_at)),
                ("how", json!(attempt.how)),
                ("reason", json!(attempt.reason)),
            ])
        })
        .collect();
    if let Some(how) = last_how(task) {
        all.push(object([
            ("attempt", json!(task.attempt)),
            ("worker", json!(task.worker)),
            ("did", json!(if undoes(task) { "undo" } else { "run" })),
            ("claimed_at", at_maybe(task.claimed_at)),
            ("ended_at", at_maybe(task.finished_at)),
            ("how", json!(how)),
            ("reason", json!(task.reason)),
        ]));
    }
    all
}

/// How the last attempt stands, if it is not told of as an earlier one.
fn last_how(task: &TaskShown) -> Option<&'static str> {
    let told = task.attempts.iter().any(|a| a.attempt == task.attempt);
    // Given back by a worker of release 0.1.0, or by nobody: when and how is not known.
    if told || task.attempt == 0 || task.claimed_at.is_none() {
        return None;
    }
    match (task.phase.as_deref(), task.status.as_str()) {
        (Some("running" | "undoing"), _) if task.lease_over => Some("lost"),
        (Some("running" | "undoing"), _) if task.lease_until.is_some() => Some("running"),
        (Some(_), _) => None,
        (None, _) if task.undone_at.is_some() => Some("undone"),
        (None, "completed") => Some("completed"),
        (None, "failed") => Some("failed"),
        (None, _) => Some("stopped"),
    }
}

/// What the attempts add to the timeline.
pub fn events(task: &TaskShown) -> Vec<(SystemTime, &'static str, String)> {
    let mut events = Vec::new();
    let first = task.attempts.first().map(|attempt| attempt.claimed_at);
    if first.unwrap_or(task.claimed_at) != task.started_at {
        // Of a worker of release 0.1.0, or forgotten.
        events.extend(
            task.started_at
                .map(|at| (at, "first attempt", String::new())),
        );
    }
    for attempt in &task.attempts {
        let claimed = claimed(attempt.attempt, attempt.worker.as_deref(), attempt.undoing);
        events.extend(attempt.claimed_at.map(|at| (at, "claimed", claimed)));
        let reason = attempt.reason.as_deref();
        let reason = reason.map_or_else(String::new, |reason| format!(": {reason}"));
        let how = format!("attempt {} {}{reason}", attempt.attempt, attempt.how);
        events.push((attempt.ended_at, "attempt ended", how));
    }
    if last_how(task).is_some() {
        let claimed = claimed(task.attempt, task.worker.as_deref(), undoes(task));
        events.extend(task.claimed_at.map(|at| (at, "claimed", claimed)));
    }
    events
}

/// A task that was undone ended by an attempt to undo.
fn undoes(task: &TaskShown) -> bool {
    task.undone_at.is_some() || task.phase.as_deref() == Some("undoing")
}

fn claimed(attempt: i32, worker: Option<&str>, undo: bool) -> String {
    let worker = worker.unwrap_or("?");
    let what = if undo { ", to undo" } else { "" };
    format!("attempt {attempt} by worker {worker}{what}")
}
