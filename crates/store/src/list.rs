//! One principal's own tasks: `tasks/list` of MCP 2025-11-25, and of no other revision.

use protocol::TaskId;

use crate::pool::{sql, with_connection};
use crate::task::{Principal, Task};
use crate::{Error, Store, row};

/// A task without its payloads.
#[derive(Clone, Debug)]
pub struct Listed {
    /// The task; questions, result and error are left out whatever its status.
    pub task: Task,
    /// It is completed, and its result says `isError`.
    pub is_error: bool,
}

impl Store {
    /// At most `max` tasks that their owner may know, the newest first, from before the task
    /// `before` on.
    ///
    /// # Errors
    /// When Postgres could not be asked.
    pub async fn list_owned(
        &self,
        principal: &Principal,
        before: Option<TaskId>,
        max: usize,
    ) -> Result<Vec<Listed>, Error> {
        let before = before.as_ref().map(TaskId::as_uuid);
        let max = i64::try_from(max).unwrap_or(i64::MAX);
        with_connection!(self, "list_owned", |connection| {
            let statement = connection.prepare_cached(sql!("list_owned")).await?;
            let owner: [&(dyn tokio_postgres::types::ToSql + Sync); 4] =
                [&principal.issuer, &principal.subject, &before, &max];
            let rows = connection.query(&statement, &owner).await?;
            let columns = row::Columns::of(statement.columns());
            let listed = rows.iter().map(|read| {
                Ok(Listed {
                    // Without payloads there is nothing in it that must be opened.
                    task: self.open_task(columns.task(read)?)?,
                    is_error: read.get("is_error"),
                })
            });
            Ok(listed.collect::<Result<Vec<_>, Error>>()?)
        })
    }
}
