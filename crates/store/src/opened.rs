//! What was read is opened here, at the edge: by whoever asked, after the statement, so that nobody
//! waits for another's contents, and one row that cannot be opened fails no other.

use std::time::Duration;

use protocol::TaskId;

use crate::claim::Claim;
use crate::config::ms;
use crate::pool::{sql, with_connection};
use crate::seal::{self, Place, RowKey};
use crate::task::Task;
use crate::turn::Turn;
use crate::{Encryption, Error, Lookup, Store};

/// When a job is due again that could not be opened here.
const PUT_OFF: Duration = Duration::from_secs(30);

impl Store {
    /// The same store, which seals what tasks are about, and opens it, by these settings.
    #[must_use]
    pub fn with_encryption(self, settings: &Encryption) -> Self {
        Self {
            keys: crate::keyring::Keyring::new(settings),
            ..self
        }
    }

    /// Tells operators of a key that rows need and this process lacks, once each.
    pub(crate) fn complain(&self, error: &Error) {
        match error {
            Error::KeyMissing { id, key } => {
                self.metrics.unopened("key_missing");
                if self.keys.is_news(key) {
                    tracing::error!(task.id = %id, key, "encryption.keys lacks a key that tasks are sealed with, or has another one of this name: they cannot be read until it is there");
                }
            }
            Error::Corrupt { table, column, id } => {
                self.metrics.unopened("damaged");
                tracing::error!(task.id = %id, table, column, "what is stored is not what was sealed");
            }
            _ => {}
        }
    }

    pub(crate) fn noted<T>(&self, opened: Result<T, Error>) -> Result<T, Error> {
        if let Err(error) = &opened {
            self.complain(error);
        }
        opened
    }

    /// A task as its owner sees it.
    pub(crate) fn open_task(&self, mut task: Task) -> Result<Task, Error> {
        let Some(sealed) = task.sealed.take() else {
            return Ok(task);
        };
        let payloads = [&task.input_requests, &task.result];
        let none = payloads
            .iter()
            .all(|payload| !payload.as_deref().is_some_and(seal::is_sealed))
            && task.error.is_none()
            && !task.status_message.as_deref().is_some_and(seal::has_token);
        if none {
            return Ok(task);
        }
        let key = self.keys.unwrap(task.id, Some(&sealed));
        self.noted(open_task(&key, task))
    }

    pub(crate) fn open_lookup(&self, lookup: Lookup) -> Result<Lookup, Error> {
        match lookup {
            Lookup::Found(task) => Ok(Lookup::Found(Box::new(self.open_task(*task)?))),
            gone @ (Lookup::Expired { .. } | Lookup::Unknown) => Ok(gone),
        }
    }

    /// A claim that can be worked with. What cannot be opened here is put off, and is no job of this
    /// worker's.
    pub(crate) async fn open_claim(&self, claim: Claim) -> Result<Option<Claim>, Error> {
        if claim.sealed.is_none() {
            return Ok(Some(claim));
        }
        let key = self.keys.unwrap(claim.id, claim.sealed.as_deref());
        let (id, attempt, token) = (claim.id, claim.attempt, claim.token);
        match self.noted(open_claim(key, claim)) {
            Ok(claim) => Ok(Some(claim)),
            Err(error) => {
                self.put_off((id, attempt, token), &error.to_string())
                    .await?;
                Ok(None)
            }
        }
    }

    /// The same for a job that was taken by turn: where it is put off, there may be others.
    pub(crate) async fn open_turn(&self, turn: Turn) -> Result<Turn, Error> {
        let Turn::Claimed {
            claim,
            alone,
            priorities,
        } = turn
        else {
            return Ok(turn);
        };
        Ok(match self.open_claim(*claim).await? {
            Some(claim) => Turn::Claimed {
                claim: Box::new(claim),
                alone,
                priorities,
            },
            None => Turn::Busy,
        })
    }

    /// The key of a task, where it must be known before the statement that writes. Also asked where no
    /// key is set: who has none must not write clear text into a task that is sealed.
    pub(crate) async fn task_key(&self, id: TaskId) -> Result<RowKey, Error> {
        let row = with_connection!(self, "task_key", |connection| {
            let statement = connection.prepare_cached(sql!("task_key")).await?;
            Ok(connection.query_opt(&statement, &[&id.as_uuid()]).await?)
        })?;
        let key = row.map_or(RowKey::Clear, |row| self.keys.of(id, &row));
        match key.missing() {
            Some(missing) => self.noted(Err(missing)),
            None => Ok(key),
        }
    }

    async fn put_off(
        &self,
        (id, attempt, token): (TaskId, i32, uuid::Uuid),
        why: &str,
    ) -> Result<(), Error> {
        let put_off_ms = ms(PUT_OFF);
        with_connection!(self, "put_off", |connection| {
            let statement = connection.prepare_cached(sql!("put_off")).await?;
            connection
                .execute(
                    &statement,
                    &[&id.as_uuid(), &attempt, &token, &put_off_ms, &why],
                )
                .await?;
            Ok(())
        })
    }
}

pub(crate) const ARGUMENTS: Place<'_> = Place::task("tasks.arguments");
pub(crate) const CAPABILITIES: Place<'_> = Place::task("tasks.client_capabilities");
pub(crate) const OFFERED: Place<'_> = Place::task("tasks.offered_responses");
pub(crate) const REQUESTS: Place<'_> = Place::task("tasks.input_requests");
pub(crate) const RESULT: Place<'_> = Place::task("tasks.result");

fn open_task(key: &RowKey, task: Task) -> Result<Task, Error> {
    Ok(Task {
        status_message: task.status_message.map(|text| key.open_text(text)),
        input_requests: key.open_some(REQUESTS, task.input_requests.as_deref())?,
        result: key.open_some(RESULT, task.result.as_deref())?,
        error: task.error.map(|error| key.open_error(&error)).transpose()?,
        ..task
    })
}

fn open_claim(key: RowKey, claim: Claim) -> Result<Claim, Error> {
    if let Some(missing) = key.missing() {
        return Err(missing);
    }
    Ok(Claim {
        arguments: key.open(ARGUMENTS, &claim.arguments)?,
        client_capabilities: key.open(CAPABILITIES, &claim.client_capabilities)?,
        offered_responses: key.open_some(OFFERED, claim.offered_responses.as_deref())?,
        trace_context: key.open_trace(claim.trace_context),
        status_message: claim.status_message.map(|text| key.open_text(text)),
        sealed: None,
        key,
        ..claim
    })
}
