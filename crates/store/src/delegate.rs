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

/// Whose answers are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum From {
    /// The owner's only.
    Owner,
    /// Those of any principal of the owner's tenant.
    Tenant,
}

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
        self.answer_from(From::Tenant, (principal, id), responses, hint_epoch)
            .await
    }
}

/// The task's row, locked, if this principal may answer it.
pub(crate) async fn lock(
    transaction: &Transaction<'_>,
    from: From,
    principal: &Principal,
    id: TaskId,
) -> Result<Option<Row>, Fault> {
    let (issuer, subject) = (&principal.issuer, &principal.subject);
    let row = match (from, &principal.tenant) {
        (From::Tenant, Some(tenant)) => {
            let lock = transaction.prepare_cached(sql!("lock_delegated")).await?;
            let who: [&(dyn tokio_postgres::types::ToSql + Sync); 4] =
                [&id.as_uuid(), issuer, subject, tenant];
            transaction.query_opt(&lock, &who).await?
        }
        (From::Owner | From::Tenant, _) => {
            let lock = transaction.prepare_cached(sql!("lock_task")).await?;
            transaction
                .query_opt(&lock, &[&id.as_uuid(), issuer, subject])
                .await?
        }
    };
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
