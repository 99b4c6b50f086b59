//! Jobs that Redis does not know of.

use std::time::Duration;

use protocol::TaskId;

use crate::config::ms;
use crate::pool::{sql, with_connection};
use crate::{Error, Store};

/// A due job without a trustworthy hint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unhinted {
    /// The task.
    pub id: TaskId,
    /// Its tool.
    pub tool: String,
    /// The version whose workers can run it.
    pub version: i32,
    /// Its attempt: raised by the claim that uses the hint up.
    pub attempt: i32,
    /// It waits for a slot of a limited tool: any hint of its stream leads to who gets it.
    pub limited: bool,
}

/// Which jobs count as unhinted.
#[derive(Clone, Debug)]
pub struct UnhintedFilter<'a> {
    /// The epochs of Redis' shards now; rows hinted under another one are unhinted.
    pub epochs: &'a [String],
    /// After this a hint may be lost; doubles with each further hint.
    pub age: Duration,
    /// Only jobs of these tools in these versions.
    pub tools: Option<&'a [(String, i32)]>,
    /// At most so many.
    pub limit: i64,
}

/// After an outage, by how much others may have come back later than this process.
const OTHERS_LATER_MS: i64 = 1_000;

impl Store {
    /// Due jobs that Redis does not know of, the most urgent first.
    ///
    /// # Errors
    /// When Postgres could not be asked.
    pub async fn unhinted(&self, filter: &UnhintedFilter<'_>) -> Result<Vec<Unhinted>, Error> {
        // Without it a hint leads to the job all the same (`named` in claim_best.sql): a row that
        // cannot be written keeps nothing else from being found.
        drop(self.wake().await);
        // Whoever gets the hint must be past its own grace, or it drops it.
        let (age, grace_ms) = (
            ms(filter.age),
            self.config.lease_grace_ms() + OTHERS_LATER_MS,
        );
        let tools = filter.tools.unwrap_or_default();
        let names: Vec<&str> = tools.iter().map(|(name, _)| name.as_str()).collect();
        let names = filter.tools.map(|_| names);
        let versions: Vec<i32> = tools.iter().map(|(_, version)| *version).collect();
        with_connection!(self, "unhinted", |connection| {
            let statement = connection.prepare_cached(sql!("unhinted")).await?;
            let rows = connection
                .query(
                    &statement,
                    &[
                        &filter.epochs,
                        &age,
                        &self.connected_ms(connection),
                        &grace_ms,
                        &names,
                        &filter.limit,
                        &versions,
                    ],
                )
                .await?;
            Ok(rows
                .iter()
                .map(|row| Unhinted {
                    id: TaskId::from_uuid(row.get("id")),
                    tool: row.get("tool"),
                    version: row.get("version"),
                    attempt: row.get("attempt"),
                    limited: row.get("limited"),
                })
                .collect())
        })
    }

    async fn wake(&self) -> Result<(), Error> {
        with_connection!(self, "wake", |connection| {
            let statement = connection.prepare_cached(sql!("wake")).await?;
            connection.execute(&statement, &[]).await?;
            Ok(())
        })
    }

    /// Records that these jobs' hints are in Redis, each under its epoch.
    ///
    /// # Errors
    /// When Postgres could not be asked; they are then hinted once more.
    pub async fn mark_hinted(&self, hinted: &[(TaskId, Option<String>)]) -> Result<(), Error> {
        let hinted = hinted.iter();
        let hinted = hinted.map(|(id, epoch)| (*id, None, epoch.as_deref()));
        self.mark(&hinted.collect::<Vec<_>>()).await
    }

    /// The same for jobs that were found by [`Store::unhinted`]. One that was claimed since has
    /// used its hint up: if it is queued again by now, it is left to be found again.
    ///
    /// # Errors
    /// As [`Store::mark_hinted`].
    pub async fn mark_found_hinted(
        &self,
        found: &[(Unhinted, Option<String>)],
    ) -> Result<(), Error> {
        let found = found.iter();
        let found = found.map(|(job, epoch)| (job.id, Some(job.attempt), epoch.as_deref()));
        self.mark(&found.collect::<Vec<_>>()).await
    }

    /// Task, attempt (`None` = any) and epoch.
    async fn mark(&self, hinted: &[(TaskId, Option<i32>, Option<&str>)]) -> Result<(), Error> {
        match self.mark_all(hinted).await {
            Err(error) => {
                let ids: Vec<TaskId> = hinted.iter().map(|(id, ..)| *id).collect();
                let act = async |id| {
                    let one = hinted.iter().filter(|(one, ..)| *one == id);
                    self.mark_all(&one.copied().collect::<Vec<_>>()).await?;
                    Ok(vec![()])
                };
                self.each(error, &ids, act).await.map(drop)
            }
            Ok(()) => Ok(()),
        }
    }

    async fn mark_all(&self, hinted: &[(TaskId, Option<i32>, Option<&str>)]) -> Result<(), Error> {
        let ids: Vec<_> = hinted.iter().map(|(id, ..)| id.as_uuid()).collect();
        let epochs: Vec<Option<&str>> = hinted.iter().map(|(.., epoch)| *epoch).collect();
        let attempts: Vec<Option<i32>> = hinted.iter().map(|(_, attempt, _)| *attempt).collect();
        with_connection!(self, "mark_hinted", |connection| {
            let statement = connection.prepare_cached(sql!("mark_hinted")).await?;
            connection
                .execute(&statement, &[&ids, &epochs, &attempts])
                .await?;
            Ok(())
        })
    }
}
