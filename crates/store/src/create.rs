//! Creation: exactly one task per idempotency key, committed before anyone hears of it.

use std::time::Duration;

use bytes::Bytes;
use protocol::TaskId;

use crate::config::ms;
use crate::pool::{sql, with_connection};
use crate::task::{Principal, Task};
use crate::{Error, OnLost, Store, ToolPolicy, row};

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
    /// The key names an earlier task with the same arguments; this is it.
    Existing(Task),
    /// The key names an earlier task with other arguments.
    KeyReused,
}

impl Store {
    /// Commits a task, or finds the one its key names.
    ///
    /// # Errors
    /// When Postgres could not be asked.
    pub async fn create(&self, new: &NewTask<'_>) -> Result<Created, Error> {
        let uuid = new.id.as_uuid();
        let principal = new.principal;
        let policy = new.policy;
        // A key is kept for at least a day, and exactly as long as its task.
        let ttl_ms = policy.ttl_ms(new.idempotency_key.is_some());
        let ttl_ms_max = policy.ttl_max.map(ms);
        let (arguments, digest) = (&new.arguments[..], &new.arguments_digest[..]);
        let (capabilities, offered, trace) = (
            &new.client_capabilities[..],
            new.offered_responses.as_deref(),
            new.trace_context.as_deref(),
        );
        let (tries_max, work_ms_max, hold_ms) = (
            i32::from(policy.tries_max),
            ms(policy.work_limit),
            ms(new.hold),
        );
        let lost_fails = policy.on_lost == OnLost::Fail;
        let alert_after_ms = policy.alert_after.map(ms);
        with_connection!(self, "create", |connection| {
            let insert = connection.prepare_cached(sql!("create")).await?;
            let found = connection.prepare_cached(sql!("existing")).await?;
            let mut missed = false;
            loop {
                let created = connection
                    .query_opt(
                        &insert,
                        &[
                            &uuid,
                            &principal.issuer,
                            &principal.subject,
                            &principal.tenant,
                            &new.tool,
                            &new.tool_version,
                            &policy.queue,
                            &policy.priority,
                            &arguments,
                            &digest,
                            &capabilities,
                            &offered,
                            &trace,
                            &new.idempotency_key,
                            &new.status_message,
                            &ttl_ms,
                            &ttl_ms_max,
                            &tries_max,
                            &work_ms_max,
                            &hold_ms,
                            &new.handed_out,
                            &new.hint_epoch,
                            &lost_fails,
                            &alert_after_ms,
                        ],
                    )
                    .await?;
                if let Some(created) = created {
                    return Ok(Created::New(row::task(&created)?));
                }
                let Some(key) = new.idempotency_key else {
                    // Only a repeat of this very insert meets its own id.
                    let get = connection.prepare_cached(sql!("get")).await?;
                    let ids = vec![uuid];
                    let mine = connection
                        .query_one(
                            &get,
                            &[&ids, &vec![&principal.issuer], &vec![&principal.subject]],
                        )
                        .await?;
                    if mine.get::<_, Option<uuid::Uuid>>("id").is_none() {
                        // Ids carry 74 random bits: this one was not chosen by its caller alone.
                        let taken = format!("task id {} belongs to somebody else", new.id);
                        return Err(Error::Bug(taken.into()).into());
                    }
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
                if existing.get::<_, &[u8]>("key_digest") != digest {
                    return Ok(Created::KeyReused);
                }
                return Ok(Created::Existing(task));
            }
        })
    }

    /// The task that an idempotency key names, and the digest of its arguments.
    ///
    /// # Errors
    /// When Postgres could not be asked.
    pub async fn find_keyed(
        &self,
        principal: &Principal,
        tool: &str,
        key: &str,
    ) -> Result<Option<(TaskId, Vec<u8>)>, Error> {
        with_connection!(self, "find_keyed", |connection| {
            let found = connection.prepare_cached(sql!("existing")).await?;
            let row = connection
                .query_opt(
                    &found,
                    &[&principal.issuer, &principal.subject, &tool, &key],
                )
                .await?;
            Ok(row.map(|row| (TaskId::from_uuid(row.get("id")), row.get("key_digest"))))
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
