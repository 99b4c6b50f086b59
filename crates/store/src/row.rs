//! The only place that reads task columns.

use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use protocol::{TaskId, TaskStatus};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::error::Error;
use crate::keyring::Wrapped;
use crate::task::{ParkedFor, StopReason, Task};

pub(crate) fn bytes(row: &Row, column: &str) -> Option<Bytes> {
    row.get::<_, Option<&[u8]>>(column)
        .map(Bytes::copy_from_slice)
}

/// The key of a task as its row keeps it; `None`: nothing of the task is sealed.
pub(crate) fn sealed(row: &Row) -> Option<Arc<Wrapped>> {
    let bytes: &[u8] = row.get::<_, Option<&[u8]>>("data_key")?;
    Some(Arc::new(Wrapped {
        by: row
            .get::<_, Option<String>>("sealed_by")
            .unwrap_or_default(),
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

pub(crate) fn task(row: &Row) -> Result<Task, Error> {
    let id = TaskId::from_uuid(row.get::<_, Uuid>("id"));
    let corrupt = |column| Error::Corrupt {
        table: "tasks",
        column,
        id: id.to_string(),
    };
    let stop = match row.get::<_, Option<&str>>("stop_reason") {
        None => None,
        Some(text) => Some(StopReason::parse(text).ok_or_else(|| corrupt("stop_reason"))?),
    };
    let parked_for = match row.get::<_, Option<&str>>("parked_for") {
        None => None,
        Some("caller") => Some(ParkedFor::Caller),
        Some("task") => Some(ParkedFor::Task),
        Some(_) => return Err(corrupt("parked_for")),
    };
    let status = status(row.get("status"), id)?;
    Ok(Task {
        id,
        tool: row.get("tool"),
        tool_version: row.get("tool_version"),
        status,
        status_message: row.get("status_message"),
        created_at: row.get::<_, SystemTime>("created_at"),
        last_updated_at: row.get::<_, SystemTime>("last_updated_at"),
        ttl_ms: row.get("ttl_ms"),
        input_requests: bytes(row, "input_requests"),
        result: bytes(row, "result"),
        // While finished steps are undone, the error waits in its column.
        error: bytes(row, "error").filter(|_| status == TaskStatus::Failed),
        queued: row.get::<_, Option<&str>>("phase") == Some("queued"),
        fetched: row.get("fetched"),
        handed_out: row.get("handed_out"),
        keyed: row.get("keyed"),
        stop,
        parked_for,
        rounds: row.get("rounds"),
        sealed: sealed(row),
    })
}
