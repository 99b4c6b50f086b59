//! `mcp-tasks tasks show`: what happened to one task, in order.

use std::process::ExitCode;
use std::time::SystemTime;

use protocol::TaskId;
use serde_json::{Value, json};
use store::{Audit, AuditFilter, TaskShown, Told, TombstoneShown};
use telemetry::TraceContext;

use super::operator::{Desk, Output, at, at_maybe, object, one_line, table};
use super::{Failure, tasks_attempts, tasks_callbacks};
use crate::out::{out, outln};

/// Commands of operators that are shown, at most.
const AUDITS: i64 = 100;

/// Prints what is known of a task; without its content.
///
/// # Errors
/// When nothing is known of it.
pub async fn show(desk: &Desk, (id, open): (TaskId, bool)) -> Result<ExitCode, Failure> {
    let store = &desk.reading(open);
    let task = store.show_task(id).await?;
    let tombstone = match task {
        Some(_) => None,
        None => store.show_tombstone(id).await?,
    };
    let told = store.show_alerts(id).await?;
    let callbacks = store.show_callbacks(id).await?;
    let filter = AuditFilter {
        task: Some(id),
        limit: AUDITS,
        ..AuditFilter::default()
    };
    let audits = store.audits(filter).await?;
    if task.is_none() && tombstone.is_none() && audits.is_empty() && told.is_empty() {
        return Err(format!("nothing is known of task {id}").into());
    }
    let mut events = Vec::new();
    if let Some(task) = &task {
        of_task(task, &mut events);
    }
    tasks_callbacks::events(&callbacks, |at, what, detail| {
        events.push(Event { at, what, detail });
    });
    if let Some(tombstone) = &tombstone {
        of_tombstone(tombstone, &mut events);
    }
    of_alerts(&told, &mut events);
    of_audits(id, &audits, &mut events);
    events.sort_by_key(|event| event.at);
    let head = match (&task, &tombstone) {
        (Some(task), _) => tasks_callbacks::waits(summary(task), task, &callbacks),
        (None, Some(tombstone)) => object([
            ("id", json!(id.to_string())),
            ("status", json!("expired")),
            ("final_status", json!(tombstone.final_status)),
            ("tool", json!(tombstone.tool)),
            ("principal", json!(tombstone.principal.subject)),
            ("issuer", json!(tombstone.principal.issuer)),
        ]),
        (None, None) => json!({"id": id.to_string(), "status": "forgotten"}),
    };
    match desk.output {
        Output::Json => {
            let timeline = events.iter().map(Event::to_json);
            let whole = object([
                ("task", head),
                (
                    "attempt",
                    task.as_ref().map_or(Value::Null, tasks_attempts::current),
                ),
                (
                    "attempts",
                    task.as_ref()
                        .map_or(Value::Null, |task| tasks_attempts::rows(task).into()),
                ),
                ("steps", task.as_ref().map_or(Value::Null, steps)),
                ("questions", task.as_ref().map_or(Value::Null, questions)),
                ("callbacks", tasks_callbacks::rows(&callbacks)),
                ("alerts", alerts(&told)),
                ("timeline", timeline.collect()),
            ]);
            desk.json(&whole);
        }
        Output::Table => {
            for (name, value) in head.as_object().into_iter().flatten() {
                outln!("{name:<18}  {}", plain(value));
            }
            let attempts = task.as_ref().map(tasks_attempts::rows);
            if let Some(attempts) = attempts.filter(|attempts| !attempts.is_empty()) {
                outln!();
                out!("{}", table(&tasks_attempts::COLUMNS, &attempts));
            }
            outln!();
            for event in &events {
                outln!(
                    "{}  {:<22}  {}",
                    plain(&at(event.at)),
                    event.what,
                    one_line(&event.detail)
                );
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), one_line)
}

/// Something that happened.
struct Event {
    at: SystemTime,
    what: &'static str,
    detail: String,
}

impl Event {
    fn to_json(&self) -> Value {
        json!({"at": at(self.at), "what": self.what, "detail": self.detail})
    }
}

/// The head of what is shown.
fn summary(task: &TaskShown) -> Value {
    let trace = task.trace_context.as_deref();
    let trace = trace.map_or_else(TraceContext::default, TraceContext::from_json);
    object([
        ("id", json!(task.id.to_string())),
        ("tool", json!(task.tool.0)),
        ("version", json!(task.tool.1)),
        ("status", json!(task.status)),
        ("phase", json!(task.phase)),
        ("status_message", json!(task.status_message)),
        ("reason", json!(task.reason)),
        ("is_error", json!(task.is_error.then_some(true))),
        ("principal", json!(task.principal.subject)),
        ("issuer", json!(task.principal.issuer)),
        ("tenant", json!(task.principal.tenant)),
        ("queue", json!(task.queue.0)),
        ("priority", json!(task.queue.1)),
        ("idempotency_key", json!(task.keyed)),
        ("journaled", json!(task.journaled)),
        ("tries", json!(task.tries.0)),
        ("tries_max", json!(task.tries.1)),
        ("last_error", json!(task.last_error)),
        ("open_step", json!(task.open_step)),
        ("pending_status", json!(task.pending_status)),
        ("work_ms", json!(task.work_ms.0)),
        ("work_ms_max", json!(task.work_ms.1)),
        ("rounds", json!(task.rounds)),
        ("expires_at", at_maybe(task.expires_at)),
        ("last_updated_at", at(task.last_updated_at)),
        ("hints", json!(task.hinted.1)),
        ("arguments_bytes", json!(task.bytes.0)),
        ("result_bytes", json!(task.bytes.1)),
        ("trace_id", json!(trace.trace_id())),
    ])
}

fn steps(task: &TaskShown) -> Value {
    let steps = task.steps.iter().map(|step| {
        object([
            ("key", json!(step.key)),
            ("state", json!(step.state)),
            ("attempt", json!(step.attempt)),
            ("idempotent", json!(step.idempotent)),
            ("started_at", at(step.started_at)),
            ("finished_at", at_maybe(step.finished_at)),
            ("undo", json!(step.undo_state)),
            (
                "undo_tries",
                json!(step.undo_state.is_some().then_some(step.undo_tries)),
            ),
            ("undo_error", json!(step.undo_error)),
        ])
    });
    steps.collect()
}

fn questions(task: &TaskShown) -> Value {
    let inputs = task.inputs.iter().map(|input| {
        object([
            ("key", json!(input.key)),
            ("asked_at", at(input.asked_at)),
            ("deadline_at", at(input.deadline_at)),
            ("answered_at", at_maybe(input.answered_at)),
            ("answered_by", json!(input.answered_by)),
        ])
    });
    inputs.collect()
}

fn alerts(told: &[Told]) -> Value {
    let alerts = told.iter().map(|told| {
        let delivery = told.delivery.as_ref();
        object([
            ("kind", json!(told.kind)),
            ("reason", json!(told.reason)),
            ("raised_at", at(told.raised_at)),
            ("resolved_at", at_maybe(told.resolved_at)),
            ("receiver", json!(delivery.map(|d| &d.receiver))),
            ("state", json!(delivery.map(|d| &d.state))),
            (
                "delivered_at",
                at_maybe(delivery.and_then(|delivery| delivery.at)),
            ),
            (
                "last_error",
                json!(delivery.and_then(|delivery| delivery.last_error.as_ref())),
            ),
        ])
    });
    alerts.collect()
}

fn of_task(task: &TaskShown, events: &mut Vec<Event>) {
    let mut add = |at: Option<SystemTime>, what, detail: String| {
        events.extend(at.map(|at| Event { at, what, detail }));
    };
    let owner = &task.principal;
    add(
        Some(task.created_at),
        "created",
        format!(
            "{} version {} for {}",
            task.tool.0, task.tool.1, owner.subject
        ),
    );
    add(task.handed_out_at, "handed out", String::new());
    for (at, what, detail) in tasks_attempts::events(task) {
        add(Some(at), what, detail);
    }
    if task.phase.as_deref() == Some("running") || task.phase.as_deref() == Some("undoing") {
        let over = if task.lease_over { "has run out" } else { "" };
        add(task.lease_until, "lease ends", over.to_owned());
    }
    for step in &task.steps {
        let again = format!("{} (attempt {})", step.key, step.attempt);
        add(Some(step.started_at), "step started", again);
        let undo = step.undo_state.as_deref();
        let undo = undo.map_or_else(String::new, |undo| format!(", undo {undo}"));
        let finished = format!("{}{undo}", step.key);
        add(step.finished_at, "step finished", finished);
    }
    for input in &task.inputs {
        add(Some(input.asked_at), "asked", input.key.clone());
        let by = input.answered_by.as_deref().unwrap_or("?");
        let answered = format!("{} by {by}", input.key);
        add(input.answered_at, "answered", answered);
    }
    if task.phase.as_deref() == Some("parked") {
        add(task.input_deadline_at, "answer due", String::new());
    }
    if task.phase.as_deref() == Some("queued") {
        let last = task.last_error.clone().unwrap_or_default();
        add(Some(task.run_at), "due", last);
    }
    let reason = task.stop_reason.as_deref().unwrap_or("?");
    let by = match (&task.stopped_by, reason) {
        (Some(operator), _) => format!("operator {operator}"),
        (None, "cancelled") => format!("its owner {}", owner.subject),
        (None, _) => "the system".to_owned(),
    };
    let detail = task.stop_detail.as_deref();
    let detail = detail.map_or_else(String::new, |detail| format!(": {detail}"));
    add(
        task.stop_requested_at,
        "told to stop",
        format!("{reason} by {by}{detail}"),
    );
    add(task.undone_at, "undone", String::new());
    let end = [Some(task.status.as_str()), task.reason.as_deref()];
    let end: Vec<&str> = end.into_iter().flatten().collect();
    add(task.finished_at, "ended", end.join(": "));
    add(task.first_fetched_at, "read by its owner", String::new());
}

fn of_tombstone(tombstone: &TombstoneShown, events: &mut Vec<Event>) {
    let mut add = |at, what, detail: &str| {
        events.push(Event {
            at,
            what,
            detail: detail.to_owned(),
        });
    };
    add(tombstone.created_at, "created", &tombstone.tool);
    add(tombstone.finished_at, "ended", &tombstone.final_status);
    add(tombstone.expired_at, "expired", "its content is gone");
    add(tombstone.purge_at, "forgotten", "");
}

fn of_alerts(told: &[Told], events: &mut Vec<Event>) {
    let mut raised = Vec::new();
    for alert in told {
        // One row a receiver.
        if !raised.contains(&(&alert.kind, alert.raised_at)) {
            raised.push((&alert.kind, alert.raised_at));
            events.push(Event {
                at: alert.raised_at,
                what: "alert raised",
                detail: format!("{}: {}", alert.kind, alert.reason),
            });
            events.extend(alert.resolved_at.map(|at| Event {
                at,
                what: "alert resolved",
                detail: alert.kind.clone(),
            }));
        }
        let delivery = alert.delivery.as_ref();
        if let Some((delivery, at)) = delivery.and_then(|d| Some((d, d.at?))) {
            events.push(Event {
                at,
                what: "alert delivered",
                detail: format!("{} to {}", alert.kind, delivery.receiver),
            });
        }
    }
}

fn of_audits(id: TaskId, audits: &[Audit], events: &mut Vec<Event>) {
    for audit in audits {
        for task in &audit.tasks {
            let operator = &audit.operator;
            let detail = match task.new_task_id.map(TaskId::from_uuid) {
                Some(new) if new == id => {
                    let old = TaskId::from_uuid(task.task_id);
                    format!("{} by {operator}: repeats {old}", audit.command)
                }
                _ if TaskId::from_uuid(task.task_id) != id => continue,
                Some(new) => format!("{} by {operator}: repeated by {new}", audit.command),
                None => format!("{} by {operator}: {}", audit.command, task.outcome),
            };
            events.push(Event {
                at: audit.at,
                what: "operator",
                detail,
            });
        }
    }
}
