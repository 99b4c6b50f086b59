//! The only place that reads task columns.

use std::fmt::Display;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use protocol::{TaskId, TaskStatus};
use tokio_postgres::row::RowIndex;
use tokio_postgres::{Column, Row};
use uuid::Uuid;

use crate::error::Error;
use crate::keyring::Wrapped;
use crate::task::{ParkedFor, StopReason, Task};

pub(crate) fn bytes(row: &Row, column: impl RowIndex + Display) -> Option<Bytes> {
    row.get::<_, Option<&[u8]>>(column)
        .map(Bytes::copy_from_slice)
}

/// The key of a task as its row keeps it; `None`: nothing of the task is sealed.
pub(crate) fn sealed(row: &Row) -> Option<Arc<Wrapped>> {
    wrapped(row, "data_key", "sealed_by")
}

fn wrapped(
    row: &Row,
    data_key: impl RowIndex + Display,
    sealed_by: impl RowIndex + Display,
) -> Option<Arc<Wrapped>> {
    let bytes: &[u8] = row.get::<_, Option<&[u8]>>(data_key)?;
    Some(Arc::new(Wrapped {
        by: row.get::<_, Option<String>>(sealed_by).unwrap_or_default(),
        bytes: bytes.to_vec(),
    }))
}

pub(crate) fn status(text: &str, id: TaskId) -> Result<TaskStatus, Error> {
    text.parse().map_err(|_| Error::Corrupt {
        table: "tasks",
        column: "status",
        id: id.to_string(),
    })
}

/// The task of the only row of an answer.
pub(crate) fn task(row: &Row) -> Result<Task, Error> {
    Columns::of(row.columns()).task(row)
}

macro_rules! columns {
    ($($name:ident),* $(,)?) => {
        /// Where the columns of a task are in the rows of an answer. Names are compared once for all of
        /// them: for each row it took longer than reading them.
        pub(crate) struct Columns {
            $($name: usize),*
        }

        impl Columns {
            pub(crate) fn of(columns: &[Column]) -> Self {
                let at = |name: &str| columns.iter().position(|column| column.name() == name);
                Self {
                    $($name: at(stringify!($name)).expect("statements of tasks select it")),*
                }
            }
        }
    };
}

columns!(
    id,
    tool,
    tool_version,
    status,
    status_message,
    created_at,
    last_updated_at,
    ttl_ms,
    input_requests,
    result,
    error,
    phase,
    stop_reason,
    parked_for,
    rounds,
    fetched,
    handed_out,
    keyed,
    data_key,
    sealed_by,
);

impl Columns {
    pub(crate) fn task(&self, row: &Row) -> Result<Task, Error> {
        let id = TaskId::from_uuid(row.get::<_, Uuid>(self.id));
        let corrupt = |column| Error::Corrupt {
            table: "tasks",
            column,
            id: id.to_string(),
        };
        let stop = match row.get::<_, Option<&str>>(self.stop_reason) {
            None => None,
            Some(text) => Some(StopReason::parse(text).ok_or_else(|| corrupt("stop_reason"))?),
        };
        let parked_for = match row.get::<_, Option<&str>>(self.parked_for) {
            None => None,
            Some("caller") => Some(ParkedFor::Caller),
            Some("task") => Some(ParkedFor::Task),
            Some(_) => return Err(corrupt("parked_for")),
        };
        let status = status(row.get(self.status), id)?;
        Ok(Task {
            id,
            tool: row.get(self.tool),
            tool_version: row.get(self.tool_version),
            status,
            status_message: row.get(self.status_message),
            created_at: row.get::<_, SystemTime>(self.created_at),
            last_updated_at: row.get::<_, SystemTime>(self.last_updated_at),
            ttl_ms: row.get(self.ttl_ms),
            input_requests: bytes(row, self.input_requests),
            result: bytes(row, self.result),
            withheld: 0,
            // While finished steps are undone, the error waits in its column.
            error: bytes(row, self.error).filter(|_| status == TaskStatus::Failed),
            queued: row.get::<_, Option<&str>>(self.phase) == Some("queued"),
            fetched: row.get(self.fetched),
            handed_out: row.get(self.handed_out),
            keyed: row.get(self.keyed),
            stop,
            parked_for,
            rounds: row.get(self.rounds),
            sealed: wrapped(row, self.data_key, self.sealed_by),
        })
    }
}
