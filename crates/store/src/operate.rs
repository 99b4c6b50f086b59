//! What operators do to tasks. They act on anybody's, so each act is written down in the transaction
//! that does it, and a repeat of an act whose reply was lost finds what it did before.

use std::time::Duration;

use deadpool_postgres::Transaction;
use protocol::TaskId;
use uuid::Uuid;

use crate::cancel::{Cancel, stop_locked};
use crate::config::ms;
use crate::error::Fault;
use crate::pool::{sql, with_connection};
use crate::{Error, OnLost, StopReason, Store};

/// Said of a task that a new one repeats, until its work says something.
const QUEUED_AGAIN: &str = "queued again by an operator; there is no result yet";

/// An act on one task: by whom, and as part of which command.
#[derive(Clone, Copy, Debug)]
pub struct Act<'a> {
    /// The command, as [`Store::audit`] wrote it down.
    pub audit: Uuid,
    /// Who.
    pub operator: &'a str,
    /// The task.
    pub id: TaskId,
}

/// How a finished task is repeated.
#[derive(Clone, Copy, Debug)]
pub struct Repeat {
    /// The new task's id, chosen before the first try.
    pub new_id: TaskId,
    /// Also if nobody knows what a step did, or if it was repeated before.
    pub force: bool,
}

/// What an act came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Touched {
    /// There is no such task (any more).
    Missing,
    /// Nothing was changed; this is why.
    Refused(String),
    /// It is over now.
    Ended,
    /// A worker is told to stop; over when it has stopped.
    Stopping,
    /// Finished steps are undone first: push a hint for a worker to do it.
    Undoing {
        /// The task's tool, for the hint.
        tool: String,
        /// The version, for the hint.
        version: i32,
    },
    /// What was kept of it is gone, and a tombstone stays.
    Buried,
    /// It is due now: push a hint.
    Due {
        /// The task's tool, for the hint.
        tool: String,
        /// The version, for the hint.
        version: i32,
    },
    /// A new task repeats it: push a hint.
    Repeated {
        /// The new task.
        new_id: TaskId,
        /// Its tool, for the hint.
        tool: String,
        /// Its version, for the hint.
        version: i32,
        /// Finished steps of the old task that act again.
        acted: i64,
    },
    /// This very act was done before, and its reply was lost.
    Before {
        /// What it came to.
        outcome: String,
        /// The task that repeats it.
        new_id: Option<TaskId>,
    },
}

impl Touched {
    /// In a word, as it is written down.
    #[must_use]
    pub fn outcome(&self) -> &str {
        match self {
            Self::Missing => "missing",
            Self::Refused(_) => "refused",
            Self::Ended => "ended",
            Self::Stopping => "stopping",
            Self::Undoing { .. } => "undoing",
            Self::Buried => "buried",
            Self::Due { .. } => "due",
            Self::Repeated { .. } => "repeated",
            Self::Before { outcome, .. } => outcome,
        }
    }
}

fn refused(why: &str) -> Touched {
    Touched::Refused(why.to_owned())
}

/// What this command did to the task before, if it did.
async fn before(transaction: &Transaction<'_>, act: Act<'_>) -> Result<Option<Touched>, Fault> {
    let done = transaction.prepare_cached(sql!("audit_done")).await?;
    let row = transaction
        .query_opt(&done, &[&act.audit, &act.id.as_uuid()])
        .await?;
    Ok(row.map(|row| Touched::Before {
        outcome: row.get("outcome"),
        new_id: row
            .get::<_, Option<Uuid>>("new_task_id")
            .map(TaskId::from_uuid),
    }))
}

async fn write_down(
    transaction: &Transaction<'_>,
    act: Act<'_>,
    touched: &Touched,
) -> Result<(), Fault> {
    let new_id = match touched {
        Touched::Missing | Touched::Refused(_) | Touched::Before { .. } => return Ok(()),
        Touched::Repeated { new_id, .. } => Some(*new_id.as_uuid()),
        _ => None,
    };
    let task = transaction.prepare_cached(sql!("audit_task")).await?;
    transaction
        .execute(
            &task,
            &[&act.audit, &act.id.as_uuid(), &touched.outcome(), &new_id],
        )
        .await?;
    Ok(())
}

/// One act: not twice, in one transaction with its line in the audit.
macro_rules! act {
    ($store:expr, $operation:literal, $act:expr, |$transaction:ident, $age:ident| $body:block) => {
        with_connection!($store, $operation, |connection| {
            let $age = $store.connected_ms(connection);
            let $transaction = connection.transaction().await?;
            if let Some(before) = before(&$transaction, $act).await? {
                return Ok(before);
            }
            let touched: Touched = $body;
            write_down(&$transaction, $act, &touched).await?;
            $transaction.commit().await?;
            Ok(touched)
        })
    };
}

impl Store {
    /// Asks for a stop, as the owner's `tasks/cancel` does.
    ///
    /// # Errors
    /// When Postgres could not be asked; repeating the same act is safe.
    pub async fn operator_cancel(&self, act: Act<'_>) -> Result<Touched, Error> {
        act!(self, "operator_cancel", act, |transaction, age| {
            match self
                .stop_any(&transaction, (act, age), StopReason::Cancelled)
                .await?
            {
                Some(touched) => touched,
                None => refused("it is over: terminal is final"),
            }
        })
    }

    /// Ends a task's time: a live one is stopped and fails (`task_expired`), of a finished one a
    /// tombstone stays, for `keep`.
    ///
    /// # Errors
    /// When Postgres could not be asked; repeating the same act is safe.
    pub async fn operator_expire(&self, act: Act<'_>, keep: Duration) -> Result<Touched, Error> {
        let keep_ms = ms(keep);
        act!(self, "operator_expire", act, |transaction, age| {
            match self
                .stop_any(&transaction, (act, age), StopReason::Expired)
                .await?
            {
                Some(touched) => touched,
                None => {
                    let bury = transaction.prepare_cached(sql!("bury")).await?;
                    transaction
                        .execute(&bury, &[&act.id.as_uuid(), &keep_ms])
                        .await?;
                    Touched::Buried
                }
            }
        })
    }

    /// `None`: the task is over.
    async fn stop_any(
        &self,
        transaction: &Transaction<'_>,
        (act, age): (Act<'_>, i64),
        reason: StopReason,
    ) -> Result<Option<Touched>, Fault> {
        let owner = transaction.prepare_cached(sql!("task_owner")).await?;
        let id = act.id.as_uuid();
        let Some(owner) = transaction.query_opt(&owner, &[&id]).await? else {
            return Ok(Some(Touched::Missing));
        };
        let (issuer, subject): (String, String) = (owner.get("issuer"), owner.get("subject"));
        let lock = transaction.prepare_cached(sql!("lock_task")).await?;
        let locked = transaction
            .query_opt(&lock, &[&id, &issuer, &subject])
            .await?;
        let Some(locked) = locked else {
            return Ok(Some(Touched::Missing));
        };
        match locked.get::<_, Option<&str>>("phase") {
            None => return Ok(None),
            Some("undoing") => {
                return Ok(Some(refused(
                    "it is ending: what its finished steps did is being undone",
                )));
            }
            Some(_) => {}
        }
        let (first, stopped) =
            stop_locked(transaction, &self.config, (act.id, age), reason).await?;
        if first {
            let by = transaction.prepare_cached(sql!("stopped_by")).await?;
            transaction.execute(&by, &[&id, &act.operator]).await?;
        }
        Ok(Some(match Cancel::of(stopped) {
            Cancel::Requested if !first => refused("it was told to stop before"),
            Cancel::Requested => Touched::Stopping,
            Cancel::Undoing { tool, version } => Touched::Undoing { tool, version },
            Cancel::Cancelled => Touched::Ended,
            Cancel::AlreadyTerminal | Cancel::Gone(_) => return Ok(None),
        }))
    }

    /// Makes a waiting job due now, as if Redis had never heard of it.
    ///
    /// # Errors
    /// When Postgres could not be asked; repeating the same act is safe.
    pub async fn operator_requeue(&self, act: Act<'_>) -> Result<Touched, Error> {
        act!(self, "operator_requeue", act, |transaction, _age| {
            let requeue = transaction.prepare_cached(sql!("requeue_task")).await?;
            let id = act.id.as_uuid();
            match transaction.query_opt(&requeue, &[&id]).await? {
                Some(row) => Touched::Due {
                    tool: row.get("tool"),
                    version: row.get("version"),
                },
                None => {
                    let owner = transaction.prepare_cached(sql!("task_owner")).await?;
                    match transaction.query_opt(&owner, &[&id]).await? {
                        None => Touched::Missing,
                        Some(_) => refused("it does not wait in the queue, or it is stopping"),
                    }
                }
            }
        })
    }

    /// Repeats a failed task by a new one of the same owner, with the same tool and arguments, by
    /// the rules of the tool as it is now: a terminal task is never changed.
    ///
    /// # Errors
    /// When Postgres could not be asked; repeating the same act is safe.
    pub async fn operator_repeat(&self, act: Act<'_>, repeat: Repeat) -> Result<Touched, Error> {
        let tools = self.tools().await?;
        act!(self, "operator_repeat", act, |transaction, _age| {
            let id = act.id.as_uuid();
            let lock = transaction.prepare_cached(sql!("repeatable")).await?;
            let Some(old) = transaction.query_opt(&lock, &[&id]).await? else {
                return Ok(Touched::Missing);
            };
            if !old.get::<_, bool>("failed") {
                let status: &str = old.get("status");
                return Ok(Touched::Refused(format!(
                    "it is {status}: only what failed is repeated"
                )));
            }
            if old.get::<_, bool>("doubt") && !repeat.force {
                return Ok(refused(
                    "a step is in doubt: look at what it did, then use --force",
                ));
            }
            let earlier = transaction.prepare_cached(sql!("repeats")).await?;
            if let Some(earlier) = transaction.query_opt(&earlier, &[&id]).await?
                && !repeat.force
            {
                let earlier = TaskId::from_uuid(earlier.get("new_task_id"));
                return Ok(Touched::Refused(format!(
                    "task {earlier} repeats it already; --force makes another one"
                )));
            }
            let name: &str = old.get("tool");
            let now = tools.iter().find(|entry| entry.spec.name() == name);
            let now = now.map(|entry| (entry.spec.version, &entry.spec.policy));
            let version = now.map(|(version, _)| version);
            let ttl_ms = now.and_then(|(_, policy)| policy.ttl_ms(false));
            let ttl_ms_max = now.and_then(|(_, policy)| policy.ttl_max.map(ms));
            let tries_max = now.map(|(_, policy)| i32::from(policy.tries_max));
            let work_ms_max = now.map(|(_, policy)| ms(policy.work_limit));
            let lost_fails = now.map(|(_, policy)| policy.on_lost == OnLost::Fail);
            let alert_ms = now.and_then(|(_, policy)| policy.alert_after.map(ms));
            let queue = now.map(|(_, policy)| policy.queue.as_str());
            let priority = now.map(|(_, policy)| policy.priority);
            let make = transaction.prepare_cached(sql!("repeat_task")).await?;
            let made = transaction
                .query_opt(
                    &make,
                    &[
                        &id,
                        &repeat.new_id.as_uuid(),
                        &version,
                        &ttl_ms,
                        &ttl_ms_max,
                        &tries_max,
                        &work_ms_max,
                        &lost_fails,
                        &alert_ms,
                        &QUEUED_AGAIN,
                        &queue,
                        &priority,
                    ],
                )
                .await?;
            let Some(made) = made else {
                let taken = format!("task id {} belongs to another task", repeat.new_id);
                return Err(Error::Bug(taken.into()).into());
            };
            self.reseal(&transaction, (act.id, repeat.new_id)).await?;
            Touched::Repeated {
                new_id: repeat.new_id,
                tool: made.get("tool"),
                version: made.get("tool_version"),
                acted: old.get("acted"),
            }
        })
    }
}
