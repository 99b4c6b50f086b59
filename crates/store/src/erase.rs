//! Erasing a principal, or those of a tenant: nothing of its tasks stays, and its name stands nowhere any more.
//!
//! Live work is stopped first, by the same rule as a cancel, and is erased when it has ended: what may
//! still act is known until it cannot. Nothing that stays tells whose it was: not the audit trail either,
//! which keeps what operators did, to ids that name nobody.

use protocol::TaskId;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::pool::{sql, with_connection};
use crate::{Error, Store};

/// What there is of a principal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traces {
    /// Tasks that are over.
    pub ended: i64,
    /// Tasks that are not.
    pub live: i64,
    /// What is left of purged tasks.
    pub tombstones: i64,
    /// Idempotency keys.
    pub keys: i64,
    /// Alerts.
    pub alerts: i64,
    /// Lines of the audit trail that name it.
    pub audits: i64,
}

impl std::ops::AddAssign for Traces {
    fn add_assign(&mut self, other: Self) {
        self.ended += other.ended;
        self.live += other.live;
        self.tombstones += other.tombstones;
        self.keys += other.keys;
        self.alerts += other.alerts;
        self.audits += other.audits;
    }
}

/// A principal of a tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its subject; the issuer is the tenant's.
    pub subject: String,
    /// It has tasks as well that are not this tenant's, or what is left of some, or answered for others elsewhere.
    pub elsewhere: bool,
}

/// Stands for a principal where its name must not: the same for the same one, so that a second request
/// can be answered by the first one's line in the audit trail.
#[must_use]
pub fn pseudonym(issuer: &str, subject: &str) -> String {
    let mut hash = Sha256::new();
    for part in [issuer, subject] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let hash = hash.finalize();
    let hex: String = hash.iter().take(16).map(|b| format!("{b:02x}")).collect();
    format!("erased:{hex}")
}

impl Store {
    /// What there is of a principal.
    ///
    /// # Errors
    /// When Postgres could not be asked.
    pub async fn traces(&self, issuer: &str, subject: &str) -> Result<Traces, Error> {
        let name = format!("{issuer} {subject}");
        with_connection!(self, "traces", |connection| {
            let statement = connection.prepare_cached(sql!("traces")).await?;
            let row = connection
                .query_one(&statement, &[&issuer, &subject, &name])
                .await?;
            Ok(Traces {
                ended: row.get("ended"),
                live: row.get("live"),
                tombstones: row.get("tombstones"),
                keys: row.get("keys"),
                alerts: row.get("alerts"),
                audits: row.get("audits"),
            })
        })
    }

    /// Whose tasks are a tenant's, or were, and who answered for others of it: by their subjects.
    ///
    /// # Errors
    /// When Postgres could not be asked.
    pub async fn members_of(&self, issuer: &str, tenant: &str) -> Result<Vec<Member>, Error> {
        with_connection!(self, "members_of", |connection| {
            let statement = connection.prepare_cached(sql!("members_of")).await?;
            let rows = connection.query(&statement, &[&issuer, &tenant]).await?;
            Ok(rows
                .iter()
                .map(|row| Member {
                    subject: row.get("subject"),
                    elsewhere: row.get("elsewhere"),
                })
                .collect())
        })
    }

    /// Whether a principal has what is not this tenant's, as [`Store::members_of`] says it, by now.
    ///
    /// # Errors
    /// When Postgres could not be asked.
    pub async fn elsewhere(
        &self,
        issuer: &str,
        tenant: &str,
        subject: &str,
    ) -> Result<bool, Error> {
        with_connection!(self, "elsewhere", |connection| {
            let statement = connection.prepare_cached(sql!("elsewhere")).await?;
            let row = connection
                .query_one(&statement, &[&issuer, &tenant, &subject])
                .await?;
            Ok(row.get("elsewhere"))
        })
    }

    /// Live tasks of a principal, those first that are not told to stop.
    ///
    /// # Errors
    /// When Postgres could not be asked.
    pub async fn live_of(
        &self,
        issuer: &str,
        subject: &str,
        limit: i64,
    ) -> Result<Vec<(TaskId, bool)>, Error> {
        with_connection!(self, "live_of", |connection| {
            let statement = connection.prepare_cached(sql!("live_of")).await?;
            let rows = connection
                .query(&statement, &[&issuer, &subject, &limit])
                .await?;
            Ok(rows
                .iter()
                .map(|row| (TaskId::from_uuid(row.get("id")), row.get("stopping")))
                .collect())
        })
    }

    /// Erases at most `limit` tasks of a principal that are over, with all that belongs to them, and
    /// writes down their ids under the command; says how many. No tombstone stays: their ids are unknown.
    ///
    /// # Errors
    /// When Postgres could not be asked; repeating is safe.
    pub async fn erase(
        &self,
        audit: Uuid,
        (issuer, subject): (&str, &str),
        limit: i64,
    ) -> Result<u64, Error> {
        with_connection!(self, "erase", |connection| {
            let statement = connection.prepare_cached(sql!("erase")).await?;
            Ok(connection
                .execute(&statement, &[&issuer, &subject, &limit, &audit])
                .await?)
        })
    }

    /// Erases what is left of a principal when its tasks are gone; its name in the audit trail becomes a
    /// pseudonym.
    ///
    /// # Errors
    /// When Postgres could not be asked; repeating is safe.
    pub async fn erase_traces(&self, issuer: &str, subject: &str) -> Result<(), Error> {
        let name = format!("{issuer} {subject}");
        let stands_for = pseudonym(issuer, subject);
        with_connection!(self, "erase_traces", |connection| {
            let statement = connection.prepare_cached(sql!("erase_traces")).await?;
            connection
                .execute(&statement, &[&issuer, &subject, &name, &stands_for])
                .await?;
            Ok(())
        })
    }
}
