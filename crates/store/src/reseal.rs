//! The key of a task that stays when the keys of the settings rotate, and what moves from one task to
//! another.

use deadpool_postgres::Transaction;
use protocol::TaskId;
use uuid::Uuid;

use crate::error::Fault;
use crate::opened::{ARGUMENTS, CAPABILITIES, OFFERED};
use crate::pool::{sql, with_connection};
use crate::seal::RowKey;
use crate::{Error, Store};

/// So many rows of each key are counted; then it is enough that there are more.
const COUNTED_MAX: i64 = 100_000;

/// Tasks whose keys one key of the settings wraps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedBy {
    /// Name of the key.
    pub key: String,
    /// How many; of more than 100,000 the rest is not counted.
    pub tasks: i64,
    /// This process has it.
    pub here: bool,
}

impl Store {
    /// Wraps the keys of at most `limit` tasks by the first key of the settings that another one of them
    /// wraps; says of how many. What is sealed stays as it is, and so do claims.
    ///
    /// # Errors
    /// When Postgres could not be asked; repeating is safe.
    pub async fn rewrap(&self, limit: i64) -> Result<u64, Error> {
        let Some((first, others)) = self.keys.names() else {
            return Ok(0);
        };
        let left_out = self.left_out();
        let found = with_connection!(self, "rewrappable", |connection| {
            let statement = connection.prepare_cached(sql!("rewrappable")).await?;
            Ok(connection
                .query(&statement, &[&others, &limit, &left_out])
                .await?)
        })?;
        let (mut ids, mut before, mut after) = (Vec::new(), Vec::new(), Vec::new());
        for row in &found {
            let id: Uuid = row.get("id");
            let (by, wrapped): (&str, &[u8]) = (row.get("sealed_by"), row.get("data_key"));
            match self.keys.rewrap(TaskId::from_uuid(id), by, wrapped) {
                Some(again) => {
                    ids.push(id);
                    before.push(wrapped);
                    after.push(again);
                }
                None => self.leave_out(
                    TaskId::from_uuid(id),
                    Error::KeyMissing {
                        id: TaskId::from_uuid(id),
                        key: by.to_owned(),
                    },
                )?,
            }
        }
        if ids.is_empty() {
            return Ok(0);
        }
        with_connection!(self, "rewrap", |connection| {
            let statement = connection.prepare_cached(sql!("rewrap")).await?;
            Ok(connection
                .execute(&statement, &[&ids, &before, &after, &first])
                .await?)
        })
    }

    /// Which keys tasks need.
    ///
    /// # Errors
    /// When Postgres could not be asked.
    pub async fn sealed_by(&self) -> Result<Vec<SealedBy>, Error> {
        let here = self.keys.names();
        with_connection!(self, "sealed_by", |connection| {
            let statement = connection.prepare_cached(sql!("sealed_by")).await?;
            let rows = connection.query(&statement, &[&COUNTED_MAX]).await?;
            Ok(rows
                .iter()
                .map(|row| {
                    let key: String = row.get("sealed_by");
                    SealedBy {
                        tasks: row.get("tasks"),
                        here: here
                            .as_ref()
                            .is_some_and(|(first, others)| *first == key || others.contains(&key)),
                        key,
                    }
                })
                .collect())
        })
    }

    /// The names of the keys of the settings, the one that seals first.
    #[must_use]
    pub fn encryption_keys(&self) -> Vec<String> {
        self.keys
            .names()
            .map(|(first, others)| [vec![first], others].concat())
            .unwrap_or_default()
    }

    /// Seals for a new task what it was given of an old one; within the transaction that copied it.
    pub(crate) async fn reseal(
        &self,
        transaction: &Transaction<'_>,
        (old, new): (TaskId, TaskId),
    ) -> Result<(), Fault> {
        let statement = transaction.prepare_cached(sql!("call_of")).await?;
        let row = transaction.query_one(&statement, &[&old.as_uuid()]).await?;
        let from = self.keys.of(old, &row);
        let made = self.keys.make(new)?;
        if matches!((&from, &made), (RowKey::Clear, None)) {
            return Ok(());
        }
        if let Some(missing) = from.missing() {
            return Err(missing.into());
        }
        let (to, wrapped) = made.unzip();
        let to = to.unwrap_or(RowKey::Clear);
        let arguments = from.open(ARGUMENTS, row.get("arguments"))?;
        let capabilities = from.open(CAPABILITIES, row.get("client_capabilities"))?;
        let offered = from.open_some(OFFERED, row.get("offered_responses"))?;
        let trace = from.open_trace(crate::row::bytes(&row, "trace_context"));
        // Of a task without an idempotency key, nothing is compared with it.
        let digest = to.digest(row.get("arguments_digest"))?;
        let statement = transaction.prepare_cached(sql!("reseal")).await?;
        transaction
            .execute(
                &statement,
                &[
                    &new.as_uuid(),
                    &&*to.seal(ARGUMENTS, &arguments)?,
                    &&*to.seal(CAPABILITIES, &capabilities)?,
                    &to.seal_some(OFFERED, offered.as_deref())?.as_deref(),
                    &trace
                        .as_deref()
                        .map(|trace| to.seal_trace(trace))
                        .as_deref(),
                    &digest,
                    &wrapped.as_ref().map(|wrapped| &wrapped.bytes),
                    &wrapped.as_ref().map(|wrapped| &wrapped.by),
                ],
            )
            .await?;
        Ok(())
    }
}
