//! Tasks that are bound to a version which nobody serves any more.

use std::time::Duration;

use protocol::TaskId;
use uuid::Uuid;

use crate::cancel::Settled;
use crate::config::ms;
use crate::expire::ids;
use crate::pool::{sql, with_connection};
use crate::undo::end;
use crate::{Error, Store};

/// Why the undoing of such a task ends.
const NOBODY: &str = "no worker serves this version of the tool any more";

/// Tasks whose version nobody serves any more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forsaken {
    /// Told to stop: settle them.
    pub stopped: Vec<TaskId>,
    /// Over: they were being undone, and what was left of that is given up by name.
    pub ended: Vec<Settled>,
}

impl Store {
    /// Pinned tasks whose version no worker has served, or could resume, for `wait`: told to stop
    /// (settle them), or, while being undone, ended with what could not be undone. The caller
    /// must have been up for `wait` itself: after a common outage workers need time to come back.
    ///
    /// # Errors
    /// When Postgres could not be asked; repeating is safe.
    pub async fn version_gone(&self, wait: Duration, limit: i64) -> Result<Forsaken, Error> {
        let stopped = match self.stop_forsaken(wait, limit, None).await {
            Err(error) => {
                let find = |tried| self.forsaken(wait, limit, tried);
                let act = |id| self.stop_forsaken(wait, 1, Some(id));
                self.one_by_one(error, limit, find, act).await?
            }
            Ok(stopped) => stopped,
        };
        let mut ended = Vec::new();
        for id in self.undo_forsaken(wait, limit).await? {
            match self.end_forsaken(id).await {
                Ok(settled) => ended.extend(settled),
                Err(error) => self.leave_out(id, error)?,
            }
        }
        Ok(Forsaken { stopped, ended })
    }

    async fn stop_forsaken(
        &self,
        wait: Duration,
        limit: i64,
        only: Option<TaskId>,
    ) -> Result<Vec<TaskId>, Error> {
        let (wait_ms, grace_ms) = (ms(wait), self.config.lease_grace_ms());
        let only = only.map(|id| *id.as_uuid());
        with_connection!(self, "version_gone", |connection| {
            let age = self.connected_ms(connection);
            let statement = connection.prepare_cached(sql!("version_gone")).await?;
            let rows = connection
                .query(&statement, &[&wait_ms, &limit, &age, &grace_ms, &only])
                .await?;
            Ok(ids(&rows))
        })
    }

    async fn forsaken(
        &self,
        wait: Duration,
        limit: i64,
        tried: Vec<Uuid>,
    ) -> Result<Vec<TaskId>, Error> {
        let wait_ms = ms(wait);
        with_connection!(self, "forsaken", |connection| {
            let statement = connection.prepare_cached(sql!("forsaken")).await?;
            let rows = connection
                .query(&statement, &[&wait_ms, &limit, &tried])
                .await?;
            Ok(ids(&rows))
        })
    }

    async fn undo_forsaken(&self, wait: Duration, limit: i64) -> Result<Vec<TaskId>, Error> {
        let (wait_ms, broken) = (ms(wait), self.left_out());
        with_connection!(self, "undo_forsaken", |connection| {
            let statement = connection.prepare_cached(sql!("undo_forsaken")).await?;
            let rows = connection
                .query(&statement, &[&wait_ms, &limit, &broken])
                .await?;
            Ok(ids(&rows))
        })
    }

    async fn end_forsaken(&self, id: TaskId) -> Result<Option<Settled>, Error> {
        let expired_grace_ms = ms(self.config.expired_grace);
        with_connection!(self, "end_forsaken", |connection| {
            let transaction = connection.transaction().await?;
            let nobody = (None, None);
            let task = (&self.keys, id);
            let ended = end(&transaction, task, nobody, Some(NOBODY), expired_grace_ms).await?;
            transaction.commit().await?;
            Ok(ended.map(|(settled, outcome)| {
                self.metrics.ended(&settled.tool, outcome, settled.age);
                settled
            }))
        })
    }
}
