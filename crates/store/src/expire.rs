//! Time: what cron does when a TTL, a hold or a tombstone runs out.

use std::time::Duration;

use protocol::TaskId;
use tokio_postgres::Row;
use uuid::Uuid;

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
        match self.expire_due(limit, None).await {
            Err(error) => {
                let find = |tried| self.expiring(limit, tried);
                let act = |id| self.expire_due(1, Some(id));
                self.one_by_one(error, limit, find, act).await
            }
            expired => expired,
        }
    }

    async fn expire_due(&self, limit: i64, only: Option<TaskId>) -> Result<Vec<Expired>, Error> {
        let only = only.map(|id| *id.as_uuid());
        with_connection!(self, "expire", |connection| {
            let statement = connection.prepare_cached(sql!("expire")).await?;
            let rows = connection.query(&statement, &[&limit, &only]).await?;
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

    async fn expiring(&self, limit: i64, tried: Vec<Uuid>) -> Result<Vec<TaskId>, Error> {
        with_connection!(self, "expiring", |connection| {
            let statement = connection.prepare_cached(sql!("expiring")).await?;
            Ok(ids(&connection
                .query(&statement, &[&limit, &tried])
                .await?))
        })
    }

    /// Tells live tasks to stop that nobody has an id of and nobody waits for.
    ///
    /// # Errors
    /// When Postgres could not be asked; repeating is safe.
    pub async fn end_holds(&self, limit: i64) -> Result<Vec<TaskId>, Error> {
        match self.end_due_holds(limit, None).await {
            Err(error) => {
                let find = |tried| self.unheld(limit, tried);
                let act = |id| self.end_due_holds(1, Some(id));
                self.one_by_one(error, limit, find, act).await
            }
            ended => ended,
        }
    }

    async fn end_due_holds(&self, limit: i64, only: Option<TaskId>) -> Result<Vec<TaskId>, Error> {
        let only = only.map(|id| *id.as_uuid());
        with_connection!(self, "end_holds", |connection| {
            let statement = connection.prepare_cached(sql!("end_holds")).await?;
            Ok(ids(&connection.query(&statement, &[&limit, &only]).await?))
        })
    }

    async fn unheld(&self, limit: i64, tried: Vec<Uuid>) -> Result<Vec<TaskId>, Error> {
        with_connection!(self, "unheld", |connection| {
            let statement = connection.prepare_cached(sql!("unheld")).await?;
            Ok(ids(&connection
                .query(&statement, &[&limit, &tried])
                .await?))
        })
    }

    /// Tasks that [`Store::settle_stopped`] would end now.
    ///
    /// # Errors
    /// When Postgres could not be asked.
    pub async fn stoppable(&self, limit: i64) -> Result<Vec<TaskId>, Error> {
        let (grace_ms, broken) = (self.config.lease_grace_ms(), self.left_out());
        with_connection!(self, "stoppable", |connection| {
            let statement = connection.prepare_cached(sql!("stoppable")).await?;
            let age = self.connected_ms(connection);
            let rows = connection
                .query(&statement, &[&limit, &age, &grace_ms, &broken])
                .await?;
            Ok(ids(&rows))
        })
    }

    /// Turns finished tasks past their TTL into tombstones that are kept for `keep`; says how
    /// many.
    ///
    /// # Errors
    /// When Postgres could not be asked; repeating is safe.
    pub async fn purge(&self, limit: i64, keep: Duration) -> Result<u64, Error> {
        match self.purge_due(limit, keep, None).await {
            Err(error) => {
                let find = |tried| self.purgeable(limit, tried);
                let act = async |id| {
                    let purged = self.purge_due(1, keep, Some(id)).await?;
                    Ok((0..purged).collect())
                };
                let purged = self.one_by_one(error, limit, find, act).await?;
                Ok(purged.len() as u64)
            }
            purged => purged,
        }
    }

    async fn purge_due(
        &self,
        limit: i64,
        keep: Duration,
        only: Option<TaskId>,
    ) -> Result<u64, Error> {
        let (keep_ms, only) = (ms(keep), only.map(|id| *id.as_uuid()));
        with_connection!(self, "purge", |connection| {
            let statement = connection.prepare_cached(sql!("purge")).await?;
            let rows = connection
                .query(&statement, &[&limit, &keep_ms, &only])
                .await?;
            for row in &rows {
                if let Some(status) = row.get("expired") {
                    self.metrics.expired(status);
                }
            }
            Ok(rows.len() as u64)
        })
    }

    async fn purgeable(&self, limit: i64, tried: Vec<Uuid>) -> Result<Vec<TaskId>, Error> {
        with_connection!(self, "purgeable", |connection| {
            let statement = connection.prepare_cached(sql!("purgeable")).await?;
            Ok(ids(&connection
                .query(&statement, &[&limit, &tried])
                .await?))
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

pub(crate) fn ids(rows: &[Row]) -> Vec<TaskId> {
    rows.iter()
        .map(|row| TaskId::from_uuid(row.get("id")))
        .collect()
}
