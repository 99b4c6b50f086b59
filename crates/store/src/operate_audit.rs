//! What operators did: written before they do it, and kept when the tasks are gone.

use std::time::{Duration, SystemTime};

use protocol::TaskId;
use serde::Deserialize;
use uuid::Uuid;

use crate::config::ms;
use crate::pool::{sql, with_connection};
use crate::{Error, Store};

/// One command of an operator.
#[derive(Clone, Debug)]
pub struct Audit {
    /// Its id, chosen by whoever gave it.
    pub id: Uuid,
    /// When, by Postgres' clock.
    pub at: SystemTime,
    /// Who.
    pub operator: String,
    /// What, in words of the command line.
    pub command: String,
    /// For what (JSON object): a filter, or a name.
    pub target: serde_json::Value,
    /// What became of it, in a word or a few; [`Audit::BEGUN`] until it has ended.
    pub outcome: String,
    /// What it did to each task.
    pub tasks: Vec<AuditTask>,
}

impl Audit {
    /// Outcome of a command that has not ended, or was killed.
    pub const BEGUN: &str = "begun";
    /// Outcome of a command of a release that did not write it down.
    pub const UNRECORDED: &str = "unrecorded";
}

/// What a command did to one task.
#[derive(Clone, Debug, Deserialize)]
pub struct AuditTask {
    /// The task.
    pub task_id: Uuid,
    /// As [`crate::Touched::outcome`] says.
    pub outcome: String,
    /// The task that repeats it.
    pub new_task_id: Option<Uuid>,
}

/// Which commands are asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct AuditFilter<'a> {
    /// Of this operator.
    pub operator: Option<&'a str>,
    /// That did something to this task.
    pub task: Option<TaskId>,
    /// At most so many.
    pub limit: i64,
}

impl Store {
    /// Writes down what an operator is about to do.
    ///
    /// # Errors
    /// When Postgres could not be asked; repeating with the same id is safe.
    pub async fn audit(
        &self,
        id: Uuid,
        (operator, command): (&str, &str),
        target: &serde_json::Value,
    ) -> Result<(), Error> {
        with_connection!(self, "audit_begin", |connection| {
            let statement = connection.prepare_cached(sql!("audit_begin")).await?;
            connection
                .execute(&statement, &[&id, &operator, &command, target])
                .await?;
            Ok(())
        })
    }

    /// Writes down what became of a command.
    ///
    /// # Errors
    /// When Postgres could not be asked; repeating is safe.
    pub async fn audit_ended(&self, id: Uuid, outcome: &str) -> Result<(), Error> {
        with_connection!(self, "audit_end", |connection| {
            let statement = connection.prepare_cached(sql!("audit_end")).await?;
            connection.execute(&statement, &[&id, &outcome]).await?;
            Ok(())
        })
    }

    /// Forgets what operators did longer than `keep` ago, unless a task they did it to is still
    /// there; says how many commands.
    ///
    /// # Errors
    /// When Postgres could not be asked; repeating is safe.
    pub async fn purge_audit(&self, limit: i64, keep: Duration) -> Result<u64, Error> {
        let keep_ms = ms(keep);
        with_connection!(self, "purge_audit", |connection| {
            let statement = connection.prepare_cached(sql!("purge_audit")).await?;
            Ok(connection.execute(&statement, &[&limit, &keep_ms]).await?)
        })
    }

    /// What operators did, the last first.
    ///
    /// # Errors
    /// When Postgres could not be asked.
    pub async fn audits(&self, filter: AuditFilter<'_>) -> Result<Vec<Audit>, Error> {
        let task = filter.task.map(|id| *id.as_uuid());
        with_connection!(self, "audit_list", |connection| {
            let statement = connection.prepare_cached(sql!("audit_list")).await?;
            let rows = connection
                .query(&statement, &[&filter.operator, &task, &filter.limit])
                .await?;
            let mut audits = Vec::with_capacity(rows.len());
            for row in &rows {
                let id: Uuid = row.get("id");
                let tasks = serde_json::from_value(row.get("tasks"));
                audits.push(Audit {
                    id,
                    at: row.get("at"),
                    operator: row.get("operator"),
                    command: row.get("command"),
                    target: row.get("target"),
                    outcome: row.get("outcome"),
                    tasks: tasks.map_err(|_| Error::Corrupt {
                        table: "audit_tasks",
                        column: "task_id",
                        id: id.to_string(),
                    })?,
                });
            }
            Ok(audits)
        })
    }
}
