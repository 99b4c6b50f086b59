//! How far the slots of limited tools go, and what a new call must wait for.

use std::time::Duration;

use crate::claim::millis;
use crate::pool::{sql, with_connection};
use crate::{Error, Store};

/// A tool of which only so many jobs may run at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slots {
    /// The tool.
    pub tool: String,
    /// Jobs at once; `None` = no limit.
    pub all: Option<i64>,
    /// Jobs of one principal at once; `None` = no limit.
    pub each: Option<i64>,
    /// Jobs that run.
    pub running: i64,
    /// Jobs that are due.
    pub due: i64,
    /// Those of them that have a slot now; the others wait for one.
    pub able: i64,
    /// How long the first of those has waited, or would have if a slot were free.
    pub waited: Duration,
}

/// How long a principal's first job in a tool's queue has waited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueWait {
    /// The tool.
    pub tool: String,
    /// Issuer of the principal.
    pub issuer: String,
    /// Subject of the principal.
    pub subject: String,
    /// Since it was due.
    pub waited: Duration,
    /// Another job of the principal's runs in this tool.
    pub runs: bool,
}

impl Store {
    /// Limited tools, and how far their slots go.
    ///
    /// # Errors
    /// When Postgres could not be asked.
    pub async fn slots(&self) -> Result<Vec<Slots>, Error> {
        with_connection!(self, "slots", |connection| {
            let statement = connection.prepare_cached(sql!("slots")).await?;
            let rows = connection.query(&statement, &[]).await?;
            Ok(rows
                .iter()
                .map(|row| Slots {
                    tool: row.get("tool"),
                    all: row.get("slots"),
                    each: row.get("slots_each"),
                    running: row.get("running"),
                    due: row.get("due"),
                    able: row.get("able"),
                    waited: millis(row.get("waited_ms")),
                })
                .collect())
        })
    }

    /// How long the first due job of each principal in each tool has waited; of 2,000 at most.
    ///
    /// # Errors
    /// When Postgres could not be asked.
    pub async fn queue_waits(&self) -> Result<Vec<QueueWait>, Error> {
        with_connection!(self, "queue_waits", |connection| {
            let statement = connection.prepare_cached(sql!("queue_waits")).await?;
            let rows = connection.query(&statement, &[]).await?;
            Ok(rows
                .iter()
                .map(|row| QueueWait {
                    tool: row.get("tool"),
                    issuer: row.get("issuer"),
                    subject: row.get("subject"),
                    waited: millis(row.get("waited_ms")),
                    runs: row.get("runs"),
                })
                .collect())
        })
    }
}
