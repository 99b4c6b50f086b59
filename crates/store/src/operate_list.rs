//! Tasks by what they are, for operators: the protocol has no list, on purpose.

use std::time::{Duration, SystemTime};

use protocol::TaskId;
use uuid::Uuid;

use crate::config::ms;
use crate::pool::{sql, with_connection};
use crate::seal::RowKey;
use crate::task::Principal;
use crate::{Error, Store};

/// What tasks are asked for. Everything that is set must hold.
#[derive(Clone, Debug, Default)]
pub struct TaskFilter {
    /// One of these statuses; empty = any.
    pub statuses: Vec<String>,
    /// One of these phases; empty = any.
    pub phases: Vec<String>,
    /// Of this tool.
    pub tool: Option<String>,
    /// Of this subject, whoever issued it.
    pub subject: Option<String>,
    /// Of this issuer.
    pub issuer: Option<String>,
    /// Created longer ago.
    pub older_than: Option<Duration>,
    /// Ended, and not read by the owner.
    pub unread: bool,
    /// Ended `failed`, or `completed` with `isError`.
    pub errors: bool,
    /// One of these; empty = any.
    pub ids: Vec<TaskId>,
}

/// What the tasks are asked for: only those that it can be done to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskAct {
    /// [`Store::operator_cancel`].
    Cancel,
    /// [`Store::operator_expire`].
    Expire,
    /// [`Store::operator_requeue`].
    Requeue,
    /// [`Store::operator_repeat`].
    Retry,
}

impl TaskAct {
    /// As the command is called.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Expire => "expire",
            Self::Requeue => "requeue",
            Self::Retry => "retry",
        }
    }
}

/// A task in one line: nothing of arguments, answers or result.
#[derive(Clone, Debug)]
pub struct TaskSummary {
    /// The task.
    pub id: TaskId,
    /// Its owner.
    pub principal: Principal,
    /// Its tool.
    pub tool: String,
    /// The tool's version.
    pub version: i32,
    /// What a client sees.
    pub status: String,
    /// What the system does; `None` once it is over.
    pub phase: Option<String>,
    /// What the work says of itself.
    pub status_message: Option<String>,
    /// Creation.
    pub created_at: SystemTime,
    /// Since then, by Postgres' clock.
    pub age: Duration,
    /// Its end.
    pub finished_at: Option<SystemTime>,
    /// When its TTL runs out.
    pub expires_at: Option<SystemTime>,
    /// How long until a queued job is due; zero when it is.
    pub due_in: Duration,
    /// Attempts begun.
    pub attempt: i32,
    /// Tries spent.
    pub tries: i32,
    /// Tries there are.
    pub tries_max: i32,
    /// The worker of the current or last attempt.
    pub worker: Option<String>,
    /// Why it was told to stop.
    pub stop_reason: Option<String>,
    /// What the last try came to.
    pub last_error: Option<String>,
    /// Why it failed: `data.reason` of its error.
    pub reason: Option<String>,
    /// It completed with `isError: true`.
    pub is_error: bool,
    /// Asked for [`TaskAct::Retry`]: why that is refused unless it is forced.
    pub refusal: Option<String>,
    /// Its owner has read how it ended.
    pub fetched: bool,
    /// A handle is out.
    pub handed_out: bool,
}

pub(crate) fn seconds(value: i64) -> Duration {
    Duration::from_secs(u64::try_from(value).unwrap_or(0))
}

/// `data.reason` of a task's error. Read here: to Postgres, JSON may hold no NUL, and an error of a
/// tool's own may.
pub(crate) fn reason(row: &tokio_postgres::Row, key: &RowKey) -> Option<String> {
    let stored = row.get::<_, Option<&[u8]>>("error")?;
    let opened = key.open_error(stored);
    // A reason of ours is told in any case.
    let error = opened.as_deref().unwrap_or(stored);
    let error: serde_json::Value = serde_json::from_slice(error).ok()?;
    error["data"]["reason"].as_str().map(str::to_owned)
}

/// A text as an operator may see it.
pub(crate) fn shown(key: &RowKey, text: Option<String>) -> Option<String> {
    text.map(|text| key.open_text(text))
}

impl Store {
    /// The same store, which opens what is sealed also for operators, as far as it has the keys; another
    /// one shows them `(sealed)`.
    #[must_use]
    pub fn opening(&self) -> Self {
        Self {
            opens_for_operators: true,
            ..self.clone()
        }
    }

    /// The key with which an operator sees what a row tells.
    pub(crate) fn operators_key(&self, row: &tokio_postgres::Row) -> RowKey {
        let id = TaskId::from_uuid(row.get("id"));
        match crate::row::sealed(row) {
            None => RowKey::Clear,
            Some(sealed) if self.opens_for_operators => self.keys.unwrap(id, Some(&sealed)),
            Some(sealed) => RowKey::Missing {
                id,
                key: sealed.by.clone(),
            },
        }
    }

    /// At most `limit` tasks that fit the filter, and `act` if one is given; the newest first,
    /// from before the one of id `before` on.
    ///
    /// # Errors
    /// When Postgres could not be asked, or reading that many took longer than a statement may.
    pub async fn list_tasks(
        &self,
        filter: &TaskFilter,
        act: Option<TaskAct>,
        (before, limit): (Option<TaskId>, i64),
    ) -> Result<Vec<TaskSummary>, Error> {
        fn some(list: &[String]) -> Option<&[String]> {
            (!list.is_empty()).then_some(list)
        }
        let (statuses, phases) = (some(&filter.statuses), some(&filter.phases));
        let older_ms = filter.older_than.map(ms);
        let act = act.map(TaskAct::as_str);
        let before: Option<Uuid> = before.map(|id| *id.as_uuid());
        let ids: Vec<Uuid> = filter.ids.iter().map(|id| *id.as_uuid()).collect();
        let ids = (!ids.is_empty()).then_some(ids);
        with_connection!(self, "list_tasks", |connection| {
            let statement = connection.prepare_cached(sql!("list_tasks")).await?;
            let rows = connection
                .query(
                    &statement,
                    &[
                        &statuses,
                        &phases,
                        &filter.tool,
                        &filter.subject,
                        &filter.issuer,
                        &older_ms,
                        &filter.unread,
                        &act,
                        &before,
                        &limit,
                        &filter.errors,
                        &ids,
                    ],
                )
                .await?;
            Ok(rows
                .iter()
                .map(|row| (self.operators_key(row), row))
                .map(|(key, row)| TaskSummary {
                    id: TaskId::from_uuid(row.get("id")),
                    principal: Principal {
                        issuer: row.get("issuer"),
                        subject: row.get("subject"),
                        tenant: row.get("tenant"),
                    },
                    tool: row.get("tool"),
                    version: row.get("tool_version"),
                    status: row.get("status"),
                    phase: row.get("phase"),
                    status_message: shown(&key, row.get("status_message")),
                    created_at: row.get("created_at"),
                    age: seconds(row.get("age_s")),
                    finished_at: row.get("finished_at"),
                    expires_at: row.get("expires_at"),
                    due_in: seconds(row.get("due_in_s")),
                    attempt: row.get("attempt"),
                    tries: row.get("tries"),
                    tries_max: row.get("tries_max"),
                    worker: row.get("claimed_by"),
                    stop_reason: row.get("stop_reason"),
                    last_error: shown(&key, row.get("last_error")),
                    reason: reason(row, &key),
                    is_error: row.get("is_error"),
                    refusal: row.get("refusal"),
                    fetched: row.get("fetched"),
                    handed_out: row.get("handed_out"),
                })
                .collect())
        })
    }
}
