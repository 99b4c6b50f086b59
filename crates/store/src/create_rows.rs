//! Tasks that are created together, as the columns of one statement.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use protocol::TaskId;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::config::ms;
use crate::keyring::{Keyring, Wrapped};
use crate::opened::{ARGUMENTS, CAPABILITIES, OFFERED};
use crate::seal::RowKey;
use crate::task::Principal;
use crate::{Error, NewTask, OnLost};

/// One new task, as it is written: whoever writes it may be another caller.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) id: TaskId,
    pub(crate) principal: Principal,
    pub(crate) tool: String,
    tool_version: i32,
    queue: String,
    priority: i16,
    arguments: Bytes,
    /// As it is compared with that of a repeat.
    pub(crate) arguments_digest: [u8; 32],
    /// As it is written.
    stored_digest: Vec<u8>,
    client_capabilities: Bytes,
    offered_responses: Option<Bytes>,
    trace_context: Option<Bytes>,
    pub(crate) idempotency_key: Option<String>,
    status_message: String,
    ttl_ms: Option<i64>,
    ttl_ms_max: Option<i64>,
    tries_max: i32,
    work_ms_max: i64,
    hold_ms: i64,
    handed_out: bool,
    hint_epoch: Option<String>,
    lost_fails: bool,
    alert_after_ms: Option<i64>,
    wrapped: Option<Wrapped>,
}

impl Row {
    /// What of it may be long.
    pub(crate) fn bytes(&self) -> usize {
        let offered = self.offered_responses.as_ref().map_or(0, Bytes::len);
        self.arguments.len() + offered + self.client_capabilities.len()
    }

    /// Sealed, where new tasks are.
    ///
    /// # Errors
    /// When the key that seals is not there.
    pub(crate) fn of(new: &NewTask<'_>, keys: &Keyring) -> Result<Self, Error> {
        let policy = new.policy;
        let (key, wrapped) = keys.make(new.id)?.unzip();
        let key = key.unwrap_or(RowKey::Clear);
        let seal = |place, plain: &Bytes| match key.seal(place, plain)? {
            Cow::Borrowed(_) => Ok(plain.clone()),
            Cow::Owned(sealed) => Ok::<_, Error>(Bytes::from(sealed)),
        };
        let offered = new.offered_responses.as_ref();
        Ok(Self {
            id: new.id,
            principal: new.principal.clone(),
            tool: new.tool.to_owned(),
            tool_version: new.tool_version,
            queue: policy.queue.clone(),
            priority: policy.priority,
            arguments: seal(ARGUMENTS, &new.arguments)?,
            arguments_digest: new.arguments_digest,
            stored_digest: key.digest(&new.arguments_digest)?,
            client_capabilities: seal(CAPABILITIES, &new.client_capabilities)?,
            offered_responses: offered.map(|offered| seal(OFFERED, offered)).transpose()?,
            trace_context: new.trace_context.as_ref().map(|context| {
                match key.seal_trace(context) {
                    Cow::Borrowed(_) => context.clone(),
                    Cow::Owned(sealed) => sealed.into(),
                }
            }),
            idempotency_key: new.idempotency_key.map(str::to_owned),
            status_message: new.status_message.to_owned(),
            // A key is kept for at least a day, and exactly as long as its task.
            ttl_ms: policy.ttl_ms(new.idempotency_key.is_some()),
            ttl_ms_max: policy.ttl_max.map(ms),
            tries_max: i32::from(policy.tries_max),
            work_ms_max: ms(policy.work_limit),
            hold_ms: ms(new.hold),
            handed_out: new.handed_out,
            hint_epoch: new.hint_epoch.clone(),
            lost_fails: policy.on_lost == OnLost::Fail,
            alert_after_ms: policy.alert_after.map(ms),
            wrapped,
        })
    }
}

/// Rows as columns, in the order of `create.sql`.
pub(crate) struct Columns<'a> {
    id: Vec<&'a Uuid>,
    issuer: Vec<&'a str>,
    subject: Vec<&'a str>,
    tenant: Vec<Option<&'a str>>,
    tool: Vec<&'a str>,
    tool_version: Vec<i32>,
    queue: Vec<&'a str>,
    priority: Vec<i16>,
    arguments: Vec<&'a [u8]>,
    arguments_digest: Vec<&'a [u8]>,
    client_capabilities: Vec<&'a [u8]>,
    offered_responses: Vec<Option<&'a [u8]>>,
    trace_context: Vec<Option<&'a [u8]>>,
    key: Vec<Option<&'a str>>,
    status_message: Vec<&'a str>,
    ttl_ms: Vec<Option<i64>>,
    ttl_ms_max: Vec<Option<i64>>,
    tries_max: Vec<i32>,
    work_ms_max: Vec<i64>,
    hold_ms: Vec<i64>,
    handed_out: Vec<bool>,
    hint_epoch: Vec<Option<&'a str>>,
    lost_fails: Vec<bool>,
    alert_after_ms: Vec<Option<i64>>,
    data_key: Vec<Option<&'a [u8]>>,
    sealed_by: Vec<Option<&'a str>>,
}

impl<'a> Columns<'a> {
    pub(crate) fn of(rows: &'a [Arc<Row>]) -> Self {
        fn each<'a, T>(rows: &'a [Arc<Row>], column: impl Fn(&'a Row) -> T) -> Vec<T> {
            rows.iter().map(|row| column(row)).collect()
        }
        Self {
            id: each(rows, |row| row.id.as_uuid()),
            issuer: each(rows, |row| row.principal.issuer.as_str()),
            subject: each(rows, |row| row.principal.subject.as_str()),
            tenant: each(rows, |row| row.principal.tenant.as_deref()),
            tool: each(rows, |row| row.tool.as_str()),
            tool_version: each(rows, |row| row.tool_version),
            queue: each(rows, |row| row.queue.as_str()),
            priority: each(rows, |row| row.priority),
            arguments: each(rows, |row| &row.arguments[..]),
            arguments_digest: each(rows, |row| &row.stored_digest[..]),
            client_capabilities: each(rows, |row| &row.client_capabilities[..]),
            offered_responses: each(rows, |row| row.offered_responses.as_deref()),
            trace_context: each(rows, |row| row.trace_context.as_deref()),
            key: each(rows, |row| row.idempotency_key.as_deref()),
            status_message: each(rows, |row| row.status_message.as_str()),
            ttl_ms: each(rows, |row| row.ttl_ms),
            ttl_ms_max: each(rows, |row| row.ttl_ms_max),
            tries_max: each(rows, |row| row.tries_max),
            work_ms_max: each(rows, |row| row.work_ms_max),
            hold_ms: each(rows, |row| row.hold_ms),
            handed_out: each(rows, |row| row.handed_out),
            hint_epoch: each(rows, |row| row.hint_epoch.as_deref()),
            lost_fails: each(rows, |row| row.lost_fails),
            alert_after_ms: each(rows, |row| row.alert_after_ms),
            data_key: each(rows, |row| {
                row.wrapped.as_ref().map(|wrapped| &wrapped.bytes[..])
            }),
            sealed_by: each(rows, |row| {
                row.wrapped.as_ref().map(|wrapped| wrapped.by.as_str())
            }),
        }
    }

    pub(crate) fn arguments(&self) -> [&(dyn ToSql + Sync); 26] {
        [
            &self.id,
            &self.issuer,
            &self.subject,
            &self.tenant,
            &self.tool,
            &self.tool_version,
            &self.queue,
            &self.priority,
            &self.arguments,
            &self.arguments_digest,
            &self.client_capabilities,
            &self.offered_responses,
            &self.trace_context,
            &self.key,
            &self.status_message,
            &self.ttl_ms,
            &self.ttl_ms_max,
            &self.tries_max,
            &self.work_ms_max,
            &self.hold_ms,
            &self.handed_out,
            &self.hint_epoch,
            &self.lost_fails,
            &self.alert_after_ms,
            &self.data_key,
            &self.sealed_by,
        ]
    }
}
