//! Callbacks: a task waits for a service, without a worker, until the service says what came of its
//! work, or for as long as it may take.
//!
//! A waiting task is a queued one that is due when its callback's time is over: whoever calls makes
//! it due at once, and if nobody does, the usual look at due jobs finds it.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use deadpool_postgres::Transaction;
use protocol::TaskId;

use crate::claim::{Claim, repeated};
use crate::config::{ms, text};
use crate::error::Fault;
use crate::gauges::{QueueAge, queue_age};
use crate::input::answering;
use crate::journal::{output_of, sent_of};
use crate::pool::{sql, with_connection};
use crate::{Error, Store, row};

/// A callback to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewCallback {
    /// Unique among the task's callbacks.
    pub key: String,
    /// Position in the journal.
    pub seq: i32,
    /// How long the result may take.
    pub wait: Duration,
    /// Fingerprint of the key that signs from now on.
    pub signed_by: String,
    /// The step that has happened if somebody calls, and the output (JSON) it then has.
    pub proves: Option<(String, Bytes)>,
}

/// Whether there is an address.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Open {
    /// There is.
    Open(Opened),
    /// A stop is requested, the task expired, or this attempt lost the task.
    Stop,
}

/// An open callback, the same for every attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Fingerprint of the key that signs its address.
    pub signed_by: String,
    /// Until when it can be called, ms since 1970 by Postgres' clock.
    pub expires_ms: i64,
    /// Somebody has called already.
    pub received: bool,
}

/// What waiting comes to.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// It has come.
    Received(Bytes),
    /// The task waits now; the attempt is over.
    Waiting,
    /// Its time is over.
    Overdue,
    /// Refused: a stop is requested, the task expired, or this attempt lost the task.
    Stop,
}

/// How a task waits.
#[derive(Clone, Copy, Debug)]
pub struct Wait<'a> {
    /// Which callback.
    pub key: &'a str,
    /// What the service does meanwhile may take effect though the task is stopped.
    pub in_doubt: bool,
    /// What the task says meanwhile, if nothing was said since the address was made.
    pub message: Option<&'a str>,
}

/// Which call, as its signed address says.
#[derive(Clone, Copy, Debug)]
pub struct Called<'a> {
    /// The task.
    pub id: TaskId,
    /// Which of its callbacks.
    pub key: &'a str,
    /// The expiry that was signed, ms since 1970.
    pub expires_ms: i64,
}

/// What came of a call.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// It is kept; a task that waits is queued: push a hint for its tool and version.
    Kept(Option<(String, i32)>),
    /// The same body came before, and was kept.
    Repeated(Option<(String, i32)>),
    /// Another body came before.
    Used,
    /// Nobody waits for it any more.
    Gone,
}

/// Whether progress that comes soon after the last change is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// No: four changes a second are enough.
    Spare,
    /// Yes: it was waited for.
    Insist,
}

/// What came of progress.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progressed {
    /// There is something new to see.
    News,
    /// There is not.
    NoNews,
    /// Not written: say it again a quarter of a second later.
    Early,
    /// Nobody waits for this any more.
    Gone,
}

/// A callback without what it brought.
#[derive(Clone, Debug)]
pub struct CallbackShown {
    /// Its name.
    pub key: String,
    /// When its address was made.
    pub opened_at: SystemTime,
    /// Until when it can be called.
    pub expires_at: SystemTime,
    /// Since when the task waits.
    pub waiting_since: Option<SystemTime>,
    /// When it was called.
    pub received_at: Option<SystemTime>,
}

struct Found {
    response: Option<Bytes>,
    digest: Option<Vec<u8>>,
    expires_ms: i64,
    overdue: bool,
}

impl Store {
    /// Makes an address at which a result may arrive, or finds the one that an earlier attempt made.
    ///
    /// # Errors
    /// When Postgres could not be asked; repeating is safe.
    pub async fn open_callback(&self, claim: &Claim, new: &NewCallback) -> Result<Open, Error> {
        let (step, output) = match &new.proves {
            Some((step, output)) => (Some(step), Some(&output[..])),
            None => (None, None),
        };
        // Sealed for where it is put when somebody calls.
        let place = output_of(step.map_or("", String::as_str));
        let output = claim.key.seal_some(place, output)?;
        let output = output.as_deref();
        with_connection!(self, "open_callback", |connection| {
            let statement = connection.prepare_cached(sql!("open_callback")).await?;
            let row = connection
                .query_opt(
                    &statement,
                    &[
                        &claim.id.as_uuid(),
                        &claim.attempt,
                        &claim.token,
                        &new.key,
                        &new.seq,
                        &new.signed_by,
                        &ms(new.wait),
                        &step,
                        &output,
                    ],
                )
                .await?;
            Ok(row.map_or(Open::Stop, |row| {
                Open::Open(Opened {
                    signed_by: row.get("signed_by"),
                    expires_ms: row.get("expires_ms"),
                    received: row.get("received"),
                })
            }))
        })
    }

    /// Takes what has come, or ends the attempt to wait for it.
    ///
    /// # Errors
    /// When Postgres could not be asked; repeating is safe.
    pub async fn wait_callback(
        &self,
        claim: &Claim,
        wait: Wait<'_>,
        worked: Duration,
    ) -> Result<Awaited, Error> {
        let (worked_ms, message) = (ms(worked), wait.message.map(text));
        let message = message.as_deref();
        let message = message.map(|text| claim.key.seal_text("tasks.status_message", text));
        with_connection!(self, "wait_callback", |connection| {
            let transaction = connection.transaction().await?;
            let lock = transaction.prepare_cached(sql!("lock_running")).await?;
            let locked = transaction
                .query_opt(&lock, &[&claim.id.as_uuid(), &claim.attempt, &claim.token])
                .await?;
            if locked.is_none() {
                drop(transaction);
                // Queued: it began to wait by the first try, whose reply was lost.
                let before = repeated((self, "wait_callback"), connection, claim).await?;
                let before = before.and_then(|row| row.phase);
                return Ok(match before.as_deref() {
                    Some("queued") => Awaited::Waiting,
                    _ => Awaited::Stop,
                });
            }
            let Some(found) = find(&transaction, claim.id, wait.key).await? else {
                return Ok(Awaited::Stop);
            };
            if let Some(response) = found.response {
                let response = claim.key.open(sent_of(wait.key), &response)?;
                return Ok(Awaited::Received(response));
            }
            if found.overdue {
                return Ok(Awaited::Overdue);
            }
            let statement = transaction.prepare_cached(sql!("wait_callback")).await?;
            let waiting = transaction
                .query_opt(
                    &statement,
                    &[
                        &claim.id.as_uuid(),
                        &claim.attempt,
                        &claim.token,
                        &wait.key,
                        &wait.in_doubt,
                        &worked_ms,
                        &message,
                    ],
                )
                .await?;
            transaction.commit().await?;
            Ok(match waiting {
                Some(_) => Awaited::Waiting,
                None => Awaited::Stop,
            })
        })
    }

    /// Keeps the result that a service sends: the first one, once. `hint_epoch` is the epoch under
    /// which the caller will push the hint when the task goes on.
    ///
    /// # Errors
    /// When Postgres could not be asked; repeating is safe.
    pub async fn receive_callback(
        &self,
        called: Called<'_>,
        (response, digest): (&[u8], &[u8; 32]),
        hint_epoch: Option<&str>,
    ) -> Result<Received, Error> {
        with_connection!(self, "receive_callback", |connection| {
            let transaction = connection.transaction().await?;
            let lock = transaction.prepare_cached(sql!("lock_called")).await?;
            let locked = transaction
                .query_opt(&lock, &[&called.id.as_uuid()])
                .await?;
            let Some(locked) = locked else {
                return Ok(Received::Gone);
            };
            let found = find(&transaction, called.id, called.key).await?;
            let Some(found) = found.filter(|found| found.expires_ms == called.expires_ms) else {
                return Ok(Received::Gone);
            };
            let key = self.keys.of(called.id, &locked);
            let digest = key.digest(digest)?;
            let phase: Option<&str> = locked.get("phase");
            let lane = || {
                let lane = (locked.get("tool"), locked.get("tool_version"));
                (phase == Some("queued")).then_some(lane)
            };
            if let Some(before) = found.digest {
                return Ok(if before == digest {
                    Received::Repeated(lane())
                } else {
                    Received::Used
                });
            }
            let waits = matches!(phase, Some("queued" | "running"));
            if found.overdue || !waits || locked.get("stopping") {
                return Ok(Received::Gone);
            }
            let response = &*key.seal(sent_of(called.key), response)?;
            let statement = transaction.prepare_cached(sql!("receive_callback")).await?;
            transaction
                .query_one(
                    &statement,
                    &[
                        &called.id.as_uuid(),
                        &called.key,
                        &response,
                        &digest,
                        &hint_epoch,
                        &answering(),
                    ],
                )
                .await?;
            transaction.commit().await?;
            Ok(Received::Kept(lane()))
        })
    }

    /// Says how a service's work goes, while its result is awaited.
    ///
    /// # Errors
    /// When Postgres could not be asked; repeating is safe.
    pub async fn progress_callback(
        &self,
        called: Called<'_>,
        message: &str,
        pace: Pace,
    ) -> Result<Progressed, Error> {
        let (message, insists) = (text(message), pace == Pace::Insist);
        let key = self.task_key(called.id).await?;
        let message = key.seal_text("tasks.status_message", &message);
        with_connection!(self, "progress_callback", |connection| {
            let statement = connection.prepare_cached(sql!("progress_callback")).await?;
            let row = connection
                .query_opt(
                    &statement,
                    &[
                        &called.id.as_uuid(),
                        &called.key,
                        &message,
                        &called.expires_ms,
                        &insists,
                    ],
                )
                .await?;
            Ok(match row {
                None => Progressed::Gone,
                Some(row) if row.get("early") => Progressed::Early,
                Some(row) if row.get("told") => Progressed::News,
                Some(_) => Progressed::NoNews,
            })
        })
    }

    /// What a task waits for, or waited for, of services.
    ///
    /// # Errors
    /// When Postgres could not be asked.
    pub async fn show_callbacks(&self, id: TaskId) -> Result<Vec<CallbackShown>, Error> {
        with_connection!(self, "show_callbacks", |connection| {
            let statement = connection.prepare_cached(sql!("show_callbacks")).await?;
            let rows = connection.query(&statement, &[&id.as_uuid()]).await?;
            Ok(rows
                .iter()
                .map(|row| CallbackShown {
                    key: row.get("key"),
                    opened_at: row.get("opened_at"),
                    expires_at: row.get("expires_at"),
                    waiting_since: row.get("waiting_since"),
                    received_at: row.get("received_at"),
                })
                .collect())
        })
    }

    /// How many tasks of each tool wait for a service, and for how long the first of them has.
    ///
    /// # Errors
    /// When Postgres could not be asked.
    pub async fn waiting_callbacks(&self) -> Result<Vec<QueueAge>, Error> {
        with_connection!(self, "waiting_callbacks", |connection| {
            let statement = connection.prepare_cached(sql!("waiting_callbacks")).await?;
            let rows = connection.query(&statement, &[]).await?;
            Ok(rows.iter().map(queue_age).collect())
        })
    }
}

/// A callback of a task whose row is locked.
async fn find(
    transaction: &Transaction<'_>,
    id: TaskId,
    key: &str,
) -> Result<Option<Found>, Fault> {
    let statement = transaction.prepare_cached(sql!("find_callback")).await?;
    let row = transaction
        .query_opt(&statement, &[&id.as_uuid(), &key])
        .await?;
    Ok(row.map(|row| Found {
        response: row::bytes(&row, "response"),
        digest: row.get("response_digest"),
        expires_ms: row.get("expires_ms"),
        overdue: row.get("overdue"),
    }))
}
