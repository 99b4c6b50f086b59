//! Time: what cron does when a TTL, a hold or a tombstone runs out.

use std::time::Duration;

use protocol::TaskId;

use crate::config::ms;
use crate::pool::{sql, with_connection};
use crate::{Error, Store};

impl Store {
    /// Tells live tasks past their TTL to stop; answers with at most `limit` of them.
    ///
    /// # Errors
    /// When Postgres could not be asked; repeating is safe.
    pub async fn expire(&self, limit: i64) -> Result<Vec<TaskId>, Error> {
        with_connection!(self, "expire", |connection| {
            let statement = connection.prepare_cached(sql!("expire")).await?;
            let rows = connection.query(&statement, &[&limit]).await?;
            Ok(rows
                .iter()
                .map(|row| TaskId::from_uuid(row.get("id")))
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
            Ok(connection.execute(&statement, &[&limit, &keep_ms]).await?)
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
