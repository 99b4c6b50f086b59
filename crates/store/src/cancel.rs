//! Stops: asked for by the owner, by the work itself or by time; `cancelled` only once nothing
//! runs.

use std::time::Duration;

use deadpool_postgres::Transaction;
use protocol::TaskId;

use crate::claim::{Claim, Ended, Write, millis, repeated};
use crate::config::{ms, text};
use crate::error::Fault;
use crate::pool::{sql, with_connection};
use crate::read::{Lookup, tombstone};
use crate::task::{Principal, StopReason};
use crate::{Config, Error, Store};

/// What came of `tasks/cancel`.
#[derive(Debug, PartialEq, Eq)]
pub enum Cancel {
    /// Nothing ran: it is over now.
    Cancelled,
    /// A worker owns it: it is told to stop, and over when it has stopped.
    Requested,
    /// Nothing ran, but finished steps are undone first: push a hint for a worker to do it.
    Undoing {
        /// The task's tool, for the hint.
        tool: String,
        /// The task's version, for the hint.
        version: i32,
    },
    /// It was over before.
    AlreadyTerminal,
    /// The task is gone; `None` = the caller has no such task.
    Gone(Option<Lookup>),
}

/// A task that was ended for its stop reason, or because its tries were used up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settled {
    /// The task.
    pub id: TaskId,
    /// `cancelled`, `abandoned`, `task_expired`, `work_limit`, `input_deadline`,
    /// `version_gone`, `attempts_exhausted`, `worker_lost` or `step_in_doubt`.
    pub reason: String,
    /// Finished steps are undone first: push a hint for a worker to do it.
    pub undoing: bool,
    /// The task's tool, for the hint.
    pub tool: String,
    /// The task's version, for the hint.
    pub version: i32,
    /// Its phase until now: `queued`, `running`, `parked` or `undoing`.
    pub was: String,
    /// Why it was told to stop; `None` = it was not, its tries were used up.
    pub stop: Option<StopReason>,
    /// How long ago the task was created, by Postgres' clock.
    pub age: Duration,
}

impl Settled {
    /// A step had begun whose end is unknown.
    #[must_use]
    pub fn in_doubt(&self) -> bool {
        self.reason == "step_in_doubt"
    }

    /// The status that its reason calls for.
    fn status(&self) -> &'static str {
        match self.reason.as_str() {
            "cancelled" | "abandoned" => "cancelled",
            _ => "failed",
        }
    }

    fn from_row(row: &tokio_postgres::Row) -> Self {
        Self {
            id: TaskId::from_uuid(row.get("id")),
            reason: row.get("reason"),
            undoing: row.get("undoing"),
            tool: row.get("tool"),
            version: row.get("tool_version"),
            was: row.get("was"),
            stop: row
                .get::<_, Option<&str>>("stop")
                .and_then(StopReason::parse),
            age: millis(row.get("age_ms")),
        }
    }
}

/// Asks for a stop of a live task whose row is locked, and ends it if nothing runs. Says whether this
/// was the first who asked, and what was ended. `age`: see [`Store::connected_ms`].
pub(crate) async fn stop_locked(
    transaction: &Transaction<'_>,
    config: &Config,
    (id, age): (TaskId, i64),
    reason: StopReason,
) -> Result<(bool, Option<Settled>), Fault> {
    let stop = transaction.prepare_cached(sql!("request_stop")).await?;
    let first = transaction
        .execute(&stop, &[&id.as_uuid(), &reason.as_str(), &None::<&str>])
        .await?
        == 1;
    let settle = transaction.prepare_cached(sql!("settle_stopped")).await?;
    let settled = transaction
        .query(
            &settle,
            &[
                &[id.as_uuid()].as_slice(),
                &[None::<i32>].as_slice(),
                &[None::<uuid::Uuid>].as_slice(),
                &age,
                &config.lease_grace_ms(),
                &ms(config.expired_grace),
            ],
        )
        .await?;
    Ok((first, settled.first().map(Settled::from_row)))
}

impl Cancel {
    /// `None`: a worker owns it.
    pub(crate) fn of(settled: Option<Settled>) -> Self {
        match settled {
            None => Self::Requested,
            Some(task) if task.undoing => Self::Undoing {
                tool: task.tool,
                version: task.version,
            },
            Some(_) => Self::Cancelled,
        }
    }
}

impl Store {
    /// Asks for a stop, on behalf of the owner. Any number of times is once.
    ///
    /// # Errors
    /// When Postgres could not be asked; repeating is safe.
    pub async fn cancel(&self, principal: &Principal, id: TaskId) -> Result<Cancel, Error> {
        with_connection!(self, "cancel", |connection| {
            let age = self.connected_ms(connection);
            let transaction = connection.transaction().await?;
            let lock = transaction.prepare_cached(sql!("lock_task")).await?;
            let locked = transaction
                .query_opt(
                    &lock,
                    &[&id.as_uuid(), &principal.issuer, &principal.subject],
                )
                .await?;
            let Some(locked) = locked else {
                return Ok(Cancel::Gone(tombstone(&transaction, principal, id).await?));
            };
            if locked.get::<_, Option<&str>>("phase").is_none() {
                return Ok(Cancel::AlreadyTerminal);
            }
            let (_, settled) =
                stop_locked(&transaction, &self.config, (id, age), StopReason::Cancelled).await?;
            transaction.commit().await?;
            if let Some(task) = &settled {
                self.count(task);
                self.count_loss(task);
            }
            Ok(Cancel::of(settled))
        })
    }

    /// The only callers of these tasks went away before they got a handle, and no key lets
    /// them come back. Answers with those that were told to stop. Another caller may hold the
    /// `requestState` of a task that has asked: such a task gets `hold` to be held by that one.
    ///
    /// # Errors
    /// When Postgres could not be asked; the hold then runs out by itself.
    pub async fn abandon(&self, ids: &[TaskId], hold: Duration) -> Result<Vec<TaskId>, Error> {
        let ids: Vec<_> = ids.iter().map(TaskId::as_uuid).collect();
        let hold_ms = ms(hold);
        with_connection!(self, "abandon", |connection| {
            let statement = connection.prepare_cached(sql!("abandon")).await?;
            let rows = connection.query(&statement, &[&ids, &hold_ms]).await?;
            Ok(rows
                .iter()
                .map(|row| TaskId::from_uuid(row.get("id")))
                .collect())
        })
    }

    /// The owning worker tells its own job to stop.
    ///
    /// # Errors
    /// When Postgres could not be asked.
    pub async fn stop_own(
        &self,
        claim: &Claim,
        reason: StopReason,
        detail: Option<&str>,
    ) -> Result<Write, Error> {
        let (reason, detail) = (reason.as_str(), detail.map(text));
        let detail = detail.as_deref();
        let detail = detail.map(|detail| claim.key.seal_text("tasks.stop_detail", detail));
        with_connection!(self, "stop_own", |connection| {
            let statement = connection.prepare_cached(sql!("stop_own")).await?;
            let rows = connection
                .execute(
                    &statement,
                    &[
                        &claim.id.as_uuid(),
                        &claim.attempt,
                        &claim.token,
                        &reason,
                        &detail,
                    ],
                )
                .await?;
            Ok(Write::from_rows(rows))
        })
    }

    /// The owning worker says that the work of a stopped job has truly ended: the task gets
    /// the status its stop reason calls for, or `failed` when a step is in doubt; finished steps
    /// with an undo are undone first.
    ///
    /// # Errors
    /// When Postgres could not be asked; repeating is safe, else the next sweep settles it.
    pub async fn confirm_stopped(&self, claim: &Claim) -> Result<Ended, Error> {
        let claimed = [(claim.id, Some(claim.attempt), Some(claim.token))];
        let settled = self.settle(&claimed).await?;
        if let Some(settled) = settled.first() {
            return Ok(Ended::new(settled.undoing));
        }
        with_connection!(self, "confirm_stopped", |connection| {
            let before = repeated((self, "confirm_stopped"), connection, claim).await?;
            Ok(Ended::repeated(before.as_ref(), |row| row.phase.is_none()))
        })
    }

    /// Ends stopped tasks that nothing runs. One that expired is shown as failed for
    /// `expired_grace` of the settings.
    ///
    /// # Errors
    /// When Postgres could not be asked; repeating is safe.
    pub async fn settle_stopped(&self, ids: &[TaskId]) -> Result<Vec<Settled>, Error> {
        let unclaimed: Vec<_> = ids.iter().map(|id| (*id, None, None)).collect();
        match self.settle(&unclaimed).await {
            Err(error) => {
                let act = async |id| self.settle(&[(id, None, None)]).await;
                self.each(error, ids, act).await
            }
            settled => settled,
        }
    }

    fn count(&self, task: &Settled) {
        if !task.undoing {
            self.metrics.ended(&task.tool, task.status(), task.age);
        }
        if task.in_doubt() {
            self.metrics.in_doubt(&task.tool);
        }
    }

    /// A task that was running, and that not its worker settles.
    fn count_loss(&self, task: &Settled) {
        if task.was == "running" {
            self.metrics.lease_ran_out(&task.tool);
        }
    }

    async fn settle(
        &self,
        tasks: &[(TaskId, Option<i32>, Option<uuid::Uuid>)],
    ) -> Result<Vec<Settled>, Error> {
        let ids: Vec<_> = tasks.iter().map(|(id, ..)| id.as_uuid()).collect();
        let attempts: Vec<_> = tasks.iter().map(|(_, attempt, _)| *attempt).collect();
        let tokens: Vec<_> = tasks.iter().map(|(.., token)| *token).collect();
        let (grace_ms, expired_grace_ms) =
            (self.config.lease_grace_ms(), ms(self.config.expired_grace));
        with_connection!(self, "settle_stopped", |connection| {
            let age = self.connected_ms(connection);
            let statement = connection.prepare_cached(sql!("settle_stopped")).await?;
            let rows = connection
                .query(
                    &statement,
                    &[&ids, &attempts, &tokens, &age, &grace_ms, &expired_grace_ms],
                )
                .await?;
            let settled: Vec<_> = rows.iter().map(Settled::from_row).collect();
            for task in &settled {
                self.count(task);
                if tokens.iter().all(Option::is_none) {
                    self.count_loss(task);
                }
            }
            Ok::<_, Fault>(settled)
        })
    }
}
