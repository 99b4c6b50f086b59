//! All that is known of one task but what it is about: never arguments, questions, answers, results.

use std::time::SystemTime;

use protocol::TaskId;

use crate::error::Fault;
use crate::operate_list::{reason, shown};
use crate::pool::{sql, with_connection};
use crate::seal::RowKey;
use crate::task::Principal;
use crate::{Error, Store, row};

/// What is known of a task. Times are Postgres'.
#[derive(Clone, Debug)]
pub struct TaskShown {
    /// The task.
    pub id: TaskId,
    /// Its owner.
    pub principal: Principal,
    /// Its tool, and the tool's version.
    pub tool: (String, i32),
    /// Its journal has entries: it is bound to its version.
    pub journaled: bool,
    /// Name of its queue, and its priority.
    pub queue: (String, i16),
    /// What a client sees.
    pub status: String,
    /// What the system does; `None` once it is over.
    pub phase: Option<String>,
    /// What the work says of itself.
    pub status_message: Option<String>,
    /// Now.
    pub now: SystemTime,
    /// Creation.
    pub created_at: SystemTime,
    /// Last change that a client can see.
    pub last_updated_at: SystemTime,
    /// When its TTL runs out.
    pub expires_at: Option<SystemTime>,
    /// Its end.
    pub finished_at: Option<SystemTime>,
    /// When its owner first read the end.
    pub first_fetched_at: Option<SystemTime>,
    /// When a handle was given out.
    pub handed_out_at: Option<SystemTime>,
    /// When it is, or was, due.
    pub run_at: SystemTime,
    /// Attempts begun.
    pub attempt: i32,
    /// Tries spent, and those there are.
    pub tries: (i32, i32),
    /// The worker of the current or last attempt.
    pub worker: Option<String>,
    /// When the current attempt began.
    pub claimed_at: Option<SystemTime>,
    /// When the first attempt began.
    pub started_at: Option<SystemTime>,
    /// Until when an attempt owns it.
    pub lease_until: Option<SystemTime>,
    /// That lease has run out.
    pub lease_over: bool,
    /// What the last try came to.
    pub last_error: Option<String>,
    /// Work done, and the limit, ms; without what the current attempt has done.
    pub work_ms: (i64, i64),
    /// The step that has started and not finished.
    pub open_step: Option<String>,
    /// The end that waits for undoing.
    pub pending_status: Option<String>,
    /// When everything was undone.
    pub undone_at: Option<SystemTime>,
    /// When it was told to stop.
    pub stop_requested_at: Option<SystemTime>,
    /// Why.
    pub stop_reason: Option<String>,
    /// More of why.
    pub stop_detail: Option<String>,
    /// The operator who asked; `None` = the owner, or time.
    pub stopped_by: Option<String>,
    /// When the questions' time runs out.
    pub input_deadline_at: Option<SystemTime>,
    /// How often it has parked.
    pub rounds: i32,
    /// When Redis was told, and how often since it was queued.
    pub hinted: (Option<SystemTime>, i16),
    /// Made with an idempotency key.
    pub keyed: bool,
    /// Its result says `isError`.
    pub is_error: bool,
    /// Why it failed: `data.reason` of its error.
    pub reason: Option<String>,
    /// The trace of the creating call (JSON object).
    pub trace_context: Option<bytes::Bytes>,
    /// Name of the key that the task is sealed with.
    pub sealed_by: Option<String>,
    /// Sizes of arguments and result, as they are stored.
    pub bytes: (i32, Option<i32>),
    /// How its earlier attempts ended, in order; of very many the last ones.
    pub attempts: Vec<AttemptShown>,
    /// Its steps, in order.
    pub steps: Vec<StepShown>,
    /// Its questions, in order.
    pub inputs: Vec<InputShown>,
}

/// An attempt that another one followed, or will.
#[derive(Clone, Debug)]
pub struct AttemptShown {
    /// Which, from 1.
    pub attempt: i32,
    /// Its worker.
    pub worker: Option<String>,
    /// It undid finished steps.
    pub undoing: bool,
    /// When it began, if its worker said so.
    pub claimed_at: Option<SystemTime>,
    /// When it ended; a lost one, when its lease ran out.
    pub ended_at: SystemTime,
    /// `lost`, `retried`, `released`, `parked`, `failed` or `stopped`.
    pub how: String,
    /// Why.
    pub reason: Option<String>,
}

/// A step without its output.
#[derive(Clone, Debug)]
pub struct StepShown {
    /// Its name.
    pub key: String,
    /// The attempt that began it last.
    pub attempt: i32,
    /// `started` or `finished`.
    pub state: String,
    /// May act again.
    pub idempotent: bool,
    /// When it began.
    pub started_at: SystemTime,
    /// When it was journaled as finished.
    pub finished_at: Option<SystemTime>,
    /// How far its undo is: `pending`, `started`, `finished` or `failed`; `None` = it has none.
    pub undo_state: Option<String>,
    /// Tries of the undo.
    pub undo_tries: i32,
    /// What the last of them came to.
    pub undo_error: Option<String>,
}

/// A question without its text and answer.
#[derive(Clone, Debug)]
pub struct InputShown {
    /// Its name.
    pub key: String,
    /// When it was asked.
    pub asked_at: SystemTime,
    /// Until when it waits.
    pub deadline_at: SystemTime,
    /// When it was answered.
    pub answered_at: Option<SystemTime>,
    /// By whom: `owner`, `offered` (it came with the call) or `default` (nobody).
    pub answered_by: Option<String>,
}

/// What is left of a purged task.
#[derive(Clone, Debug)]
pub struct TombstoneShown {
    /// Its owner.
    pub principal: Principal,
    /// Its tool.
    pub tool: String,
    /// How it ended.
    pub final_status: String,
    /// Creation.
    pub created_at: SystemTime,
    /// Its end.
    pub finished_at: SystemTime,
    /// When its time was over.
    pub expired_at: SystemTime,
    /// When it is forgotten.
    pub purge_at: SystemTime,
}

/// What was said of a task.
#[derive(Clone, Debug)]
pub struct Told {
    /// Which alert.
    pub kind: String,
    /// Why.
    pub reason: String,
    /// When it was raised.
    pub raised_at: SystemTime,
    /// When it was over.
    pub resolved_at: Option<SystemTime>,
    /// To whom, if to anybody.
    pub delivery: Option<Delivered>,
}

/// How far an alert came with one receiver.
#[derive(Clone, Debug)]
pub struct Delivered {
    /// The receiver.
    pub receiver: String,
    /// `firing`, `resolving`, `done` or `given_up`.
    pub state: String,
    /// Tries since the last that arrived.
    pub tries: i32,
    /// When it arrived.
    pub at: Option<SystemTime>,
    /// Why it last did not.
    pub last_error: Option<String>,
}

impl Store {
    /// A task with its journal and questions; `None` if there is none of this id (any more).
    ///
    /// # Errors
    /// When Postgres could not be asked.
    pub async fn show_task(&self, id: TaskId) -> Result<Option<TaskShown>, Error> {
        with_connection!(self, "show_task", |connection| {
            let uuid = id.as_uuid();
            let statement = connection.prepare_cached(sql!("show_task")).await?;
            let Some(task) = connection.query_opt(&statement, &[&uuid]).await? else {
                return Ok(None);
            };
            let statement = connection.prepare_cached(sql!("show_attempts")).await?;
            let attempts = connection.query(&statement, &[&uuid]).await?;
            let statement = connection.prepare_cached(sql!("show_steps")).await?;
            let steps = connection.query(&statement, &[&uuid]).await?;
            let statement = connection.prepare_cached(sql!("show_inputs")).await?;
            let inputs = connection.query(&statement, &[&uuid]).await?;
            let key = self.operators_key(&task);
            Ok::<_, Fault>(Some(TaskShown {
                attempts: attempts.iter().map(|row| attempt(row, &key)).collect(),
                steps: steps.iter().map(|row| step(row, &key)).collect(),
                inputs: inputs.iter().map(input).collect(),
                ..task_shown(id, &task, &key)
            }))
        })
    }

    /// What is left of a purged task.
    ///
    /// # Errors
    /// When Postgres could not be asked.
    pub async fn show_tombstone(&self, id: TaskId) -> Result<Option<TombstoneShown>, Error> {
        with_connection!(self, "show_tombstone", |connection| {
            let statement = connection.prepare_cached(sql!("show_tombstone")).await?;
            let row = connection.query_opt(&statement, &[&id.as_uuid()]).await?;
            Ok(row.map(|row| TombstoneShown {
                principal: Principal {
                    issuer: row.get("issuer"),
                    subject: row.get("subject"),
                    tenant: None,
                },
                tool: row.get("tool"),
                final_status: row.get("final_status"),
                created_at: row.get("created_at"),
                finished_at: row.get("finished_at"),
                expired_at: row.get("expired_at"),
                purge_at: row.get("purge_at"),
            }))
        })
    }

    /// What was said of a task, and to whom.
    ///
    /// # Errors
    /// When Postgres could not be asked.
    pub async fn show_alerts(&self, id: TaskId) -> Result<Vec<Told>, Error> {
        with_connection!(self, "show_alerts", |connection| {
            let statement = connection.prepare_cached(sql!("show_alerts")).await?;
            let rows = connection.query(&statement, &[&id.as_uuid()]).await?;
            Ok(rows
                .iter()
                .map(|row| Told {
                    kind: row.get("kind"),
                    reason: row.get("reason"),
                    raised_at: row.get("raised_at"),
                    resolved_at: row.get("resolved_at"),
                    delivery: row
                        .get::<_, Option<String>>("receiver")
                        .map(|receiver| Delivered {
                            receiver,
                            state: row.get("state"),
                            tries: row.get("tries"),
                            at: row.get("delivered_at"),
                            last_error: row.get("last_error"),
                        }),
                })
                .collect())
        })
    }
}

fn task_shown(id: TaskId, row: &tokio_postgres::Row, key: &RowKey) -> TaskShown {
    TaskShown {
        id,
        principal: Principal {
            issuer: row.get("issuer"),
            subject: row.get("subject"),
            tenant: row.get("tenant"),
        },
        tool: (row.get("tool"), row.get("tool_version")),
        journaled: row.get("journaled"),
        queue: (row.get("queue"), row.get("priority")),
        status: row.get("status"),
        phase: row.get("phase"),
        status_message: shown(key, row.get("status_message")),
        now: row.get("now"),
        created_at: row.get("created_at"),
        last_updated_at: row.get("last_updated_at"),
        expires_at: row.get("expires_at"),
        finished_at: row.get("finished_at"),
        first_fetched_at: row.get("first_fetched_at"),
        handed_out_at: row.get("handed_out_at"),
        run_at: row.get("run_at"),
        attempt: row.get("attempt"),
        tries: (row.get("tries"), row.get("tries_max")),
        worker: row.get("claimed_by"),
        claimed_at: row.get("claimed_at"),
        started_at: row.get("started_at"),
        lease_until: row.get("lease_until"),
        lease_over: row.get::<_, Option<bool>>("lease_over").unwrap_or(false),
        last_error: shown(key, row.get("last_error")),
        work_ms: (row.get("work_ms_used"), row.get("work_ms_max")),
        open_step: row.get("open_step"),
        pending_status: row.get("pending_status"),
        undone_at: row.get("undone_at"),
        stop_requested_at: row.get("stop_requested_at"),
        stop_reason: row.get("stop_reason"),
        stop_detail: shown(key, row.get("stop_detail")),
        stopped_by: row.get("stopped_by"),
        input_deadline_at: row.get("input_deadline_at"),
        rounds: row.get("rounds"),
        hinted: (row.get("hinted_at"), row.get("hint_count")),
        keyed: row.get("keyed"),
        is_error: row.get("is_error"),
        reason: reason(row, key),
        trace_context: key.open_trace(row::bytes(row, "trace_context")),
        bytes: (row.get("arguments_bytes"), row.get("result_bytes")),
        sealed_by: row.get("sealed_by"),
        attempts: Vec::new(),
        steps: Vec::new(),
        inputs: Vec::new(),
    }
}

fn attempt(row: &tokio_postgres::Row, key: &RowKey) -> AttemptShown {
    AttemptShown {
        attempt: row.get("attempt"),
        worker: row.get("worker"),
        undoing: row.get("undoing"),
        claimed_at: row.get("claimed_at"),
        ended_at: row.get("ended_at"),
        how: row.get("how"),
        reason: shown(key, row.get("reason")),
    }
}

fn step(row: &tokio_postgres::Row, key: &RowKey) -> StepShown {
    StepShown {
        key: row.get("key"),
        attempt: row.get("attempt"),
        state: row.get("state"),
        idempotent: row.get("idempotent"),
        started_at: row.get("started_at"),
        finished_at: row.get("finished_at"),
        undo_state: row.get("undo_state"),
        undo_tries: row.get("undo_tries"),
        undo_error: shown(key, row.get("undo_error")),
    }
}

fn input(row: &tokio_postgres::Row) -> InputShown {
    InputShown {
        key: row.get("key"),
        asked_at: row.get("asked_at"),
        deadline_at: row.get("deadline_at"),
        answered_at: row.get("answered_at"),
        answered_by: row.get("answered_by"),
    }
}
