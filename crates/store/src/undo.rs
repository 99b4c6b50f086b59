//! Undoing: what finished steps did is taken back before a task ends other than completed.

use std::time::Duration;

use bytes::Bytes;
use deadpool_postgres::Transaction;
use protocol::TaskId;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::cancel::Settled;
use crate::claim::{Claim, Write, millis, repeated};
use crate::config::{ms, text};
use crate::error::Fault;
use crate::journal::{output_of, undo_of};
use crate::keyring::Keyring;
use crate::pool::{sql, with_connection};
use crate::seal::{Place, RowKey};
use crate::settle::short;
use crate::task::StopReason;
use crate::{Error, Store};

/// A finished step that is still to be undone.
#[derive(Clone, Debug)]
pub struct UndoStep {
    /// Key of the step.
    pub key: String,
    /// What the tool journaled to undo it with (JSON).
    pub how: Bytes,
    /// What the step put out (JSON).
    pub output: Bytes,
    /// Undoing may act again when its end is unknown.
    pub idempotent: bool,
    /// An earlier try began and its end is unknown.
    pub started: bool,
    /// Tries begun so far.
    pub tries: i32,
}

/// A step whose undo was given up.
struct Failure {
    step: String,
    error: String,
}

/// How a task ends whose undoing is over.
struct End {
    status: &'static str,
    error: Option<Vec<u8>>,
    message: String,
}

impl Store {
    /// The last finished step that is still to be undone; `None` when none is left.
    ///
    /// # Errors
    /// When Postgres could not be asked.
    pub async fn next_undo(&self, claim: &Claim) -> Result<Option<UndoStep>, Error> {
        with_connection!(self, "next_undo", |connection| {
            let statement = connection.prepare_cached(sql!("next_undo")).await?;
            let found = connection
                .query_opt(&statement, &[&claim.id.as_uuid()])
                .await?;
            let Some(row) = found else { return Ok(None) };
            let key: String = row.get("key");
            Ok(Some(UndoStep {
                how: opened(&claim.key, undo_of(&key), row.get("undo"))?,
                output: opened(&claim.key, output_of(&key), row.get("output"))?,
                idempotent: row.get("undo_idempotent"),
                started: row.get("started"),
                tries: row.get("undo_tries"),
                key,
            }))
        })
    }

    /// Journals that this step's undo begins. `Lost`: it must not act.
    ///
    /// # Errors
    /// When Postgres could not be asked; it must then not act.
    pub async fn begin_undo(&self, claim: &Claim, step: &UndoStep) -> Result<Write, Error> {
        let tries = step.tries + 1;
        with_connection!(self, "begin_undo", |connection| {
            let statement = connection.prepare_cached(sql!("begin_undo")).await?;
            let rows = connection
                .execute(
                    &statement,
                    &[
                        &claim.id.as_uuid(),
                        &claim.attempt,
                        &claim.token,
                        &step.key,
                        &tries,
                    ],
                )
                .await?;
            Ok(Write::from_rows(rows))
        })
    }

    /// The step is undone.
    ///
    /// # Errors
    /// When Postgres could not be asked; repeating is safe, else its end is unknown.
    pub async fn finish_undo(&self, claim: &Claim, key: &str) -> Result<Write, Error> {
        with_connection!(self, "finish_undo", |connection| {
            let statement = connection.prepare_cached(sql!("finish_undo")).await?;
            let rows = connection
                .execute(
                    &statement,
                    &[&claim.id.as_uuid(), &claim.attempt, &claim.token, &key],
                )
                .await?;
            Ok(Write::from_rows(rows))
        })
    }

    /// The undo may be tried again after `backoff`; ends this attempt.
    ///
    /// # Errors
    /// When Postgres could not be asked; repeating is safe.
    pub async fn retry_undo(
        &self,
        claim: &Claim,
        key: &str,
        error: &str,
        backoff: Duration,
    ) -> Result<Write, Error> {
        let (error, backoff_ms) = (text(error), ms(backoff));
        let reason = claim.key.seal_text("attempts.reason", short(&error));
        let error = claim.key.seal_text("steps.undo_error", &error);
        with_connection!(self, "retry_undo", |connection| {
            let statement = connection.prepare_cached(sql!("retry_undo")).await?;
            let rows = connection
                .execute(
                    &statement,
                    &[
                        &claim.id.as_uuid(),
                        &claim.attempt,
                        &claim.token,
                        &key,
                        &error,
                        &backoff_ms,
                        &reason,
                    ],
                )
                .await?;
            if rows > 0 {
                return Ok(Write::Done);
            }
            let before = repeated((self, "retry_undo"), connection, claim).await?;
            let undoing = before.is_some_and(|row| row.phase.as_deref() == Some("undoing"));
            Ok(Write::from_rows(undoing.into()))
        })
    }

    /// The step cannot be undone: its task's error will say so. The others are still undone.
    ///
    /// # Errors
    /// When Postgres could not be asked; repeating is safe.
    pub async fn fail_undo(&self, claim: &Claim, key: &str, error: &str) -> Result<Write, Error> {
        let error = text(error);
        let error = claim.key.seal_text("steps.undo_error", &error);
        with_connection!(self, "fail_undo", |connection| {
            let statement = connection.prepare_cached(sql!("fail_undo")).await?;
            let rows = connection
                .execute(
                    &statement,
                    &[
                        &claim.id.as_uuid(),
                        &claim.attempt,
                        &claim.token,
                        &key,
                        &error,
                    ],
                )
                .await?;
            Ok(Write::from_rows(rows))
        })
    }

    /// All is undone or given up: the task gets the end that waited, or fails with reason
    /// `undo_failed` if it would have been cancelled and a step could not be undone. `Lost` also
    /// while a step is still to be undone.
    ///
    /// # Errors
    /// When Postgres could not be asked; repeating is safe.
    pub async fn undone(&self, claim: &Claim) -> Result<Write, Error> {
        let expired_grace_ms = ms(self.config.expired_grace);
        with_connection!(self, "undone", |connection| {
            let owner = (Some(claim.attempt), Some(claim.token));
            let transaction = connection.transaction().await?;
            let task = (&self.keys, claim.id);
            let ended = end(&transaction, task, owner, None, expired_grace_ms).await?;
            transaction.commit().await?;
            if let Some((settled, outcome)) = ended {
                self.metrics.ended(&settled.tool, outcome, settled.age);
                return Ok(Write::Done);
            }
            let before = repeated((self, "undone"), connection, claim).await?;
            let over = before.is_some_and(|row| row.phase.is_none());
            Ok(Write::from_rows(over.into()))
        })
    }
}

/// Ends a task under its row's lock; says with which status. With `give_up`, what is still to be undone is given up for
/// that reason; without, it keeps the task from ending.
pub(crate) async fn end(
    transaction: &Transaction<'_>,
    (keys, id): (&Keyring, TaskId),
    (attempt, token): (Option<i32>, Option<Uuid>),
    give_up: Option<&str>,
    expired_grace_ms: i64,
) -> Result<Option<(Settled, &'static str)>, Fault> {
    let lock = transaction.prepare_cached(sql!("lock_undoing")).await?;
    let locked = transaction
        .query_opt(&lock, &[&id.as_uuid(), &attempt, &token])
        .await?;
    let Some(locked) = locked else {
        return Ok(None);
    };
    let key = keys.of(id, &locked);
    if let Some(why) = give_up {
        let statement = transaction.prepare_cached(sql!("give_up_undos")).await?;
        transaction
            .execute(&statement, &[&id.as_uuid(), &why])
            .await?;
    }
    let statement = transaction.prepare_cached(sql!("undos")).await?;
    let mut failures = Vec::new();
    for row in transaction.query(&statement, &[&id.as_uuid()]).await? {
        match row.get("undo_state") {
            "finished" => {}
            "failed" => failures.push(Failure {
                step: row.get("key"),
                error: row
                    .get::<_, Option<String>>("undo_error")
                    .map(|error| key.open_text(error))
                    .unwrap_or_default(),
            }),
            _ => return Ok(None),
        }
    }
    let stop_reason = locked.get::<_, Option<&str>>("stop_reason");
    let end = match locked.get("pending_status") {
        "cancelled" => cancelled(&failures, stop_reason),
        _ => {
            let error = locked.get::<_, Option<&[u8]>>("error").unwrap_or_default();
            failed(&key.open_error(error)?, &failures)
        }
    };
    let error = end.error.as_deref();
    let error = error.map(|error| key.seal_error(error)).transpose()?;
    let message = text(&end.message);
    let message = match end.status {
        "cancelled" => message,
        _ => key.seal_text("tasks.status_message", &message),
    };
    let statement = transaction.prepare_cached(sql!("undone")).await?;
    let rows = transaction
        .execute(
            &statement,
            &[
                &id.as_uuid(),
                &end.status,
                &error.as_deref(),
                &message,
                &expired_grace_ms,
            ],
        )
        .await?;
    let settled = Settled {
        id,
        reason: StopReason::VersionGone.as_str().to_owned(),
        undoing: false,
        tool: locked.get("tool"),
        version: locked.get("tool_version"),
        was: "undoing".to_owned(),
        stop: stop_reason.and_then(StopReason::parse),
        age: millis(locked.get("age_ms")),
    };
    Ok((rows > 0).then_some((settled, end.status)))
}

fn opened(key: &RowKey, place: Place<'_>, stored: Option<&[u8]>) -> Result<Bytes, Error> {
    Ok(key.open_some(place, stored)?.unwrap_or_default())
}

fn cancelled(failures: &[Failure], stop_reason: Option<&str>) -> End {
    if failures.is_empty() {
        return End {
            status: "cancelled",
            error: None,
            message: "cancelled".to_owned(),
        };
    }
    let message = format!("cancelled, but {}", said(failures));
    let error = json!({
        "code": protocol::code::INTERNAL_ERROR,
        "message": message,
        "data": {
            "reason": protocol::code::reason::UNDO_FAILED,
            "stopReason": stop_reason,
            "undoFailed": listed(failures),
        },
    });
    End {
        status: "failed",
        error: Some(error.to_string().into_bytes()),
        message,
    }
}

fn failed(error: &[u8], failures: &[Failure]) -> End {
    let parsed = serde_json::from_slice::<Map<String, Value>>(error);
    let mut object = parsed.unwrap_or_default();
    let message = object.get("message").and_then(Value::as_str);
    let message = message.unwrap_or("failed").to_owned();
    if failures.is_empty() {
        return End {
            status: "failed",
            // Byte for byte as it was written.
            error: Some(error.to_vec()),
            message,
        };
    }
    let message = format!("{message}; {}", said(failures));
    object.insert("message".to_owned(), Value::from(message.as_str()));
    let mut data = match object.remove("data") {
        Some(Value::Object(data)) => data,
        None | Some(Value::Null) => Map::new(),
        Some(other) => Map::from_iter([("data".to_owned(), other)]),
    };
    data.insert("undoFailed".to_owned(), listed(failures));
    object.insert("data".to_owned(), Value::Object(data));
    End {
        status: "failed",
        error: Some(Value::Object(object).to_string().into_bytes()),
        message,
    }
}

fn said(failures: &[Failure]) -> String {
    let each: Vec<String> = failures
        .iter()
        .map(|failure| {
            format!(
                "step \"{}\" could not be undone: {}",
                failure.step, failure.error
            )
        })
        .collect();
    each.join("; ")
}

fn listed(failures: &[Failure]) -> Value {
    failures
        .iter()
        .map(|failure| json!({ "step": failure.step, "error": failure.error }))
        .collect()
}
