//! Counts and ages, for decisions about load and for metrics.

use std::time::Duration;

use crate::pool::{sql, with_connection};
use crate::{Error, Store};

/// How long a tool's oldest due job has waited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueAge {
    /// The tool.
    pub tool: String,
    /// Since it was due.
    pub waited: Duration,
    /// Due jobs.
    pub jobs: i64,
}

pub(crate) fn queue_age(row: &tokio_postgres::Row) -> QueueAge {
    QueueAge {
        tool: row.get("tool"),
        waited: duration(row.get("waited_ms")),
        jobs: row.get("jobs"),
    }
}

/// Live tasks of one tool in one phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveTasks {
    /// The tool.
    pub tool: String,
    /// `queued`, `running`, `parked` or `undoing`.
    pub phase: String,
    /// How many.
    pub tasks: i64,
    /// Since the oldest was created.
    pub oldest: Duration,
}

fn duration(ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

impl Store {
    /// How long the oldest due job of each tool has waited for a worker.
    ///
    /// # Errors
    /// When Postgres could not be asked.
    pub async fn queue_ages(&self) -> Result<Vec<QueueAge>, Error> {
        with_connection!(self, "queue_ages", |connection| {
            let statement = connection.prepare_cached(sql!("queue_ages")).await?;
            let rows = connection.query(&statement, &[]).await?;
            Ok(rows.iter().map(queue_age).collect())
        })
    }

    /// The same of jobs that Redis, whose epochs are these, has not been told of.
    ///
    /// # Errors
    /// When Postgres could not be asked.
    pub async fn unhinted_ages(&self, epochs: &[String]) -> Result<Vec<QueueAge>, Error> {
        with_connection!(self, "unhinted_ages", |connection| {
            let statement = connection.prepare_cached(sql!("unhinted_ages")).await?;
            let rows = connection.query(&statement, &[&epochs]).await?;
            Ok(rows.iter().map(queue_age).collect())
        })
    }

    /// Live tasks by tool and phase.
    ///
    /// # Errors
    /// When Postgres could not be asked.
    pub async fn gauges(&self) -> Result<Vec<LiveTasks>, Error> {
        with_connection!(self, "gauges", |connection| {
            let statement = connection.prepare_cached(sql!("gauges")).await?;
            let rows = connection.query(&statement, &[]).await?;
            Ok(rows
                .iter()
                .map(|row| LiveTasks {
                    tool: row.get("tool"),
                    phase: row.get("phase"),
                    tasks: row.get("tasks"),
                    oldest: duration(row.get("oldest_ms")),
                })
                .collect())
        })
    }
}
