//! Creation: exactly one task per idempotency key, committed before anyone hears of it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use protocol::TaskId;

use crate::config::ms;
use crate::create_rows::{Columns, Row};
use crate::pool::{sql, with_connection};
use crate::read::READ_WITH_OTHERS_MAX;
use crate::task::{Principal, Task};
use crate::{Error, Store, ToolPolicy, row};

/// What a task is created from.
#[derive(Clone, Debug)]
pub struct NewTask<'a> {
    /// Chosen by the caller before the first try, so that a lost reply makes no second task.
    pub id: TaskId,
    /// The owner.
    pub principal: &'a Principal,
    /// Name of the tool.
    pub tool: &'a str,
    /// Its current version.
    pub tool_version: i32,
    /// The tool's policy: TTL, limits, tries, queue.
    pub policy: &'a ToolPolicy,
    /// The arguments (JSON object), as they came.
    pub arguments: Bytes,
    /// SHA-256 of the arguments' canonical JSON (RFC 8785).
    pub arguments_digest: [u8; 32],
    /// The call's client capabilities (JSON object).
    pub client_capabilities: Bytes,
    /// `inputResponses` that came with the call (JSON object).
    pub offered_responses: Option<Bytes>,
    /// W3C trace context (JSON object).
    pub trace_context: Option<Bytes>,
    /// Idempotency key.
    pub idempotency_key: Option<&'a str>,
    /// First status message; says that the result does not exist yet.
    pub status_message: &'a str,
    /// For how long the caller's wait keeps the task from being abandoned, until renewed.
    pub hold: Duration,
    /// The handle is sent at once, without waiting for an outcome.
    pub handed_out: bool,
    /// The epoch of Redis' data under which the hint will be pushed; `None` when unknown.
    pub hint_epoch: Option<String>,
}

/// What came of a creation.
#[derive(Debug)]
pub enum Created {
    /// A new task, committed.
    New(Task),
    /// The key names an earlier task with the same arguments; this is it, without its result.
    Existing(Task),
    /// The key names an earlier task with other arguments.
    KeyReused,
}

impl Store {
    /// Commits a task, or finds the one its key names. Creations that meet share a commit.
    ///
    /// # Errors
    /// When Postgres could not be asked.
    pub async fn create(&self, new: &NewTask<'_>) -> Result<Created, Error> {
        let started = Instant::now();
        let row = Arc::new(self.noted(Row::of(new, &self.keys))?);
        let together = self.together(
            "create",
            &self.together.creates,
            Arc::clone(&row),
            async |rows| self.create_many(&rows).await,
        );
        if let Some(Some(task)) = together.await? {
            return Ok(Created::New(task));
        }
        // Its key is taken, or whoever asked for us was let down: by ourselves, in the time that is left.
        let created = self
            .with_wait(self.time_left(started))
            .create_alone(&row)
            .await?;
        Ok(match created {
            Created::New(task) => Created::New(self.open_task(task)?),
            Created::Existing(task) => Created::Existing(self.open_task(task)?),
            Created::KeyReused => Created::KeyReused,
        })
    }

    /// Commits those tasks whose key is new, or that have none; the answers are in the order of the rows.
    async fn create_many(&self, rows: &[Arc<Row>]) -> Result<Vec<Option<Task>>, Error> {
        with_connection!(self, "create", |connection| {
            let insert = match rows {
                [row] if row.idempotency_key.is_none() => sql!("create_one"),
                _ => sql!("create"),
            };
            let insert = connection.prepare_cached(insert).await?;
            let arguments = Columns::of(rows);
            let created = connection.query(&insert, &arguments.arguments()).await?;
            let columns = row::Columns::of(insert.columns());
            let mut tasks: HashMap<TaskId, Task> = HashMap::with_capacity(created.len());
            for task in &created {
                let task = columns.task(task)?;
                tasks.insert(task.id, task);
            }
            Ok(rows.iter().map(|row| tasks.remove(&row.id)).collect())
        })
    }

    async fn create_alone(&self, new: &Arc<Row>) -> Result<Created, Error> {
        let uuid = new.id.as_uuid();
        let principal = &new.principal;
        let columns = Columns::of(std::slice::from_ref(new));
        with_connection!(self, "create", |connection| {
            let insert = connection.prepare_cached(sql!("create")).await?;
            let found = connection.prepare_cached(sql!("existing")).await?;
            let mut missed = false;
            loop {
                let created = connection.query_opt(&insert, &columns.arguments()).await?;
                if let Some(created) = created {
                    return Ok(Created::New(row::task(&created)?));
                }
                let Some(key) = new.idempotency_key.as_deref() else {
                    // Only a repeat of this very insert meets its own id.
                    let get = connection.prepare_cached(sql!("get_one")).await?;
                    let mine = connection
                        .query_opt(
                            &get,
                            &[
                                &vec![uuid],
                                &vec![&principal.issuer],
                                &vec![&principal.subject],
                                &READ_WITH_OTHERS_MAX,
                            ],
                        )
                        .await?;
                    let Some(mine) = mine else {
                        // Ids carry 74 random bits: this one was not chosen by its caller alone.
                        let taken = format!("task id {} belongs to somebody else", new.id);
                        return Err(Error::Bug(taken.into()).into());
                    };
                    return Ok(Created::New(row::task(&mine)?));
                };
                let existing = connection
                    .query_opt(
                        &found,
                        &[&principal.issuer, &principal.subject, &new.tool, &key],
                    )
                    .await?;
                let Some(existing) = existing else {
                    // The key was purged between the two statements, so it is free now; if it is
                    // not, it is an orphan.
                    if missed {
                        let orphan = connection.prepare_cached(sql!("forget_orphan")).await?;
                        let key = (&principal.issuer, &principal.subject, &new.tool, &key);
                        connection
                            .execute(&orphan, &[key.0, key.1, key.2, key.3])
                            .await?;
                    }
                    missed = true;
                    continue;
                };
                let task = row::task(&existing)?;
                if task.id == new.id {
                    return Ok(Created::New(task));
                }
                let expected = self
                    .keys
                    .of(task.id, &existing)
                    .digest(&new.arguments_digest)?;
                if existing.get::<_, &[u8]>("key_digest") != expected {
                    return Ok(Created::KeyReused);
                }
                return Ok(Created::Existing(task));
            }
        })
    }

    /// The task that an idempotency key names, and whether its arguments have this digest.
    ///
    /// # Errors
    /// When Postgres could not be asked.
    pub async fn find_keyed(
        &self,
        principal: &Principal,
        tool: &str,
        (key, digest): (&str, &[u8; 32]),
    ) -> Result<Option<(TaskId, bool)>, Error> {
        with_connection!(self, "find_keyed", |connection| {
            let found = connection.prepare_cached(sql!("existing")).await?;
            let row = connection
                .query_opt(
                    &found,
                    &[&principal.issuer, &principal.subject, &tool, &key],
                )
                .await?;
            let Some(row) = row else { return Ok(None) };
            let id = TaskId::from_uuid(row.get("id"));
            let expected = self.keys.of(id, &row).digest(digest)?;
            Ok(Some((id, row.get::<_, &[u8]>("key_digest") == expected)))
        })
    }

    /// Says in the row that the handle is about to be sent. `None` when the task is over or
    /// told to stop: the caller then gets the outcome instead.
    ///
    /// # Errors
    /// When Postgres could not be asked.
    pub async fn hand_out(&self, id: TaskId) -> Result<Option<Task>, Error> {
        with_connection!(self, "hand_out", |connection| {
            let statement = connection.prepare_cached(sql!("hand_out")).await?;
            let handed = connection.query_opt(&statement, &[&id.as_uuid()]).await?;
            Ok(handed.as_ref().map(row::task).transpose()?)
        })
        .and_then(|handed: Option<Task>| handed.map(|task| self.open_task(task)).transpose())
    }

    /// Extends the holds of tasks whose callers still wait here.
    ///
    /// # Errors
    /// When Postgres could not be asked.
    pub async fn hold(&self, ids: &[TaskId], hold: Duration) -> Result<(), Error> {
        let ids: Vec<_> = ids.iter().map(TaskId::as_uuid).collect();
        let hold_ms = ms(hold);
        with_connection!(self, "hold", |connection| {
            let statement = connection.prepare_cached(sql!("hold")).await?;
            connection.execute(&statement, &[&ids, &hold_ms]).await?;
            Ok(())
        })
    }

    /// Holds the task of a caller that was asked, for as long as it has to come back. Answers with
    /// the end of that time: ms since 1970 by Postgres' clock, to be compared with [`Store::clock`].
    ///
    /// # Errors
    /// When Postgres could not be asked.
    pub async fn hold_asked(&self, id: TaskId, hold: Duration) -> Result<i64, Error> {
        let hold_ms = ms(hold);
        with_connection!(self, "hold_asked", |connection| {
            let statement = connection.prepare_cached(sql!("hold_asked")).await?;
            let row = connection
                .query_one(&statement, &[&id.as_uuid(), &hold_ms])
                .await?;
            Ok(row.get("until_ms"))
        })
    }

    /// Postgres' clock, in ms since 1970.
    ///
    /// # Errors
    /// When Postgres could not be asked.
    pub async fn clock(&self) -> Result<i64, Error> {
        with_connection!(self, "clock", |connection| {
            let statement = connection.prepare_cached(sql!("clock")).await?;
            let row = connection.query_one(&statement, &[]).await?;
            Ok(row.get("now_ms"))
        })
    }
}
