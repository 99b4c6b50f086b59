//! Time: what cron does when a TTL, a hold or a tombstone runs out.

use std::time::Duration;

use protocol::TaskId;

use crate::claim::millis;
use crate::config::ms;
use crate::pool::{sql, with_connection};
use crate::{Error, Store};

/// A live task whose TTL ran out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expired {
    /// The task.
    pub id: TaskId,
    /// Its tool.
    pub tool: String,
    /// What its owner saw: `working` or `input_required`.
    pub status: String,
    /// What the system did: `queued`, `running` or `parked`.
    pub phase: String,
    /// How long ago the task was created, by Postgres' clock.
    pub age: Duration,
}

impl Store {
    /// Tells live tasks past their TTL to stop; answers with at most `limit` of them, each once.
    ///
    /// # Errors
    /// When Postgres could not be asked; repeating is safe.
    pub async fn expire(&self, limit: i64) -> Result<Vec<Expired>, Error> {
        with_connection!(self, "expire", |connection| {
            let statement = connection.prepare_cached(sql!("expire")).await?;
            let rows = connection.query(&statement, &[&limit]).await?;
            for row in &rows {
                self.metrics.expired(row.get("status"));
            }
            Ok(rows
                .iter()
                .map(|row| Expired {
                    id: TaskId::from_uuid(row.get("id")),
                    tool: row.get("tool"),
                    status: row.get("status"),
                    phase: row.get("phase"),
                    age: millis(row.get("age_ms")),
                })
                .collect())
        })
    }

    /// Tells live tasks to stop that nobody has an id of and nobody waits for.
    ///
    /// # Errors
    /// When Postgres could not be asked; repeating is safe.
    pub async fn end_holds(&self, limit: i64) -> Result<Vec<TaskId>, Error> {
        with_connection!(self, "end_holds", |connection| {
            let statement = connection.prepare_cached(sql!("end_holds")).await?;
            let rows = connection.query(&statement, &[&limit]).await?;
            Ok(rows
                .iter()
                .map(|row| TaskId::from_uuid(row.get("id")))
                .collect())
        })
    }

    /// Tasks that [`Store::settle_stopped`] would end now.
    ///
    /// # Errors
    /// When Postgres could not be asked.
    pub async fn stoppable(&self, limit: i64) -> Result<Vec<TaskId>, Error> {
        let grace_ms = self.config.lease_grace_ms();
        with_connection!(self, "stoppable", |connection| {
            let statement = connection.prepare_cached(sql!("stoppable")).await?;
            let rows = connection
                .query(
                    &statement,
                    &[&limit, &self.connected_ms(connection), &grace_ms],
                )
                .await?;
            Ok(rows
                .iter()
                .map(|row| TaskId::from_uuid(row.get("id")))
                .collect())
        })
    }

    /// Turns finished tasks past their TTL into tombstones that are kept for `keep`; says how
    /// many.
    ///
    /// # Errors
    /// When Postgres could not be asked; repeating is safe.
    pub async fn purge(&self, limit: i64, keep: Duration) -> Result<u64, Error> {
        let keep_ms = ms(keep);
        with_connection!(self, "purge", |connection| {
            let statement = connection.prepare_cached(sql!("purge")).await?;
            let rows = connection.query(&statement, &[&limit, &keep_ms]).await?;
            for row in &rows {
                if let Some(status) = row.get("expired") {
                    self.metrics.expired(status);
                }
            }
            Ok(rows.len() as u64)
        })
    }

    /// Forgets tombstones past their time; says how many.
    ///
    /// # Errors
    /// When Postgres could not be asked; repeating is safe.
    pub async fn purge_tombstones(&self, limit: i64) -> Result<u64, Error> {
        with_connection!(self, "purge_tombstones", |connection| {
            let statement = connection.prepare_cached(sql!("purge_tombstones")).await?;
            Ok(connection.execute(&statement, &[&limit]).await?)
        })
    }
}
