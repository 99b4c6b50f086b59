//! Answers by another principal of the owner's tenant, each with its line in the audit trail.

use std::collections::BTreeMap;

use deadpool_postgres::Transaction;
use protocol::TaskId;
use serde_json::value::RawValue;
use tokio_postgres::Row;

use crate::error::Fault;
use crate::input::Answer;
use crate::pool::sql;
use crate::task::Principal;
use crate::{Error, Store};

impl Store {
    /// As [`Store::answer`], for a principal that may answer for others of its tenant. Of a task that
    /// is not its own it learns nothing but whether an answer fits; what it answers is written into
    /// the audit trail by the same transaction.
    ///
    /// # Errors
    /// When Postgres could not be asked; repeating is safe.
    pub async fn answer_for_tenant(
        &self,
        principal: &Principal,
        id: TaskId,
        responses: &BTreeMap<String, Box<RawValue>>,
        hint_epoch: Option<&str>,
    ) -> Result<Answer, Error> {
        let tenant = principal.tenant.as_deref();
        self.answer_within(tenant, (principal, id), responses, hint_epoch)
            .await
    }
}

/// The task's row, locked, if it is this principal's, or one of this tenant.
pub(crate) async fn lock(
    transaction: &Transaction<'_>,
    tenant: Option<&str>,
    principal: &Principal,
    id: TaskId,
) -> Result<Option<Row>, Fault> {
    let (issuer, subject) = (&principal.issuer, &principal.subject);
    let lock = transaction.prepare_cached(sql!("lock_for_answer")).await?;
    let row = transaction
        .query_opt(&lock, &[&id.as_uuid(), issuer, subject, &tenant])
        .await?;
    Ok(row)
}

/// Writes down who answers which questions of somebody else's task.
pub(crate) async fn record(
    transaction: &Transaction<'_>,
    principal: &Principal,
    id: TaskId,
    keys: &[&str],
) -> Result<(), Fault> {
    let who = format!("{} {}", principal.issuer, principal.subject);
    let target = serde_json::json!({ "keys": keys, "tenant": principal.tenant });
    let audit = transaction.prepare_cached(sql!("audit_delegate")).await?;
    transaction
        .execute(&audit, &[&id.as_uuid(), &who, &target])
        .await?;
    Ok(())
}
