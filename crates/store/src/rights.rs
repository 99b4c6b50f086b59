//! What the role of this process may do with our tables.

use crate::pool::{sql, with_connection};
use crate::{Error, Store};

/// Tables that processes read and change. (What operators do is only ever added to.)
const TABLES: [&str; 16] = [
    "alert_deliveries",
    "alerts",
    "attempts",
    "callbacks",
    "idempotency_keys",
    "inputs",
    "providers",
    "resource_updates",
    "steps",
    "sweep_leases",
    "tasks",
    "tombstones",
    "tool_pauses",
    "tools",
    "wanted_resources",
    "workers",
];

/// Rights on one table that the role lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingRights {
    /// The table.
    pub table: String,
    /// `SELECT`, `INSERT`, `UPDATE`, `DELETE`, separated by commas.
    pub rights: String,
}

impl MissingRights {
    /// Whether no process of any kind can work so.
    #[must_use]
    pub fn forbids_work(&self) -> bool {
        self.table == "tasks" && ["SELECT", "UPDATE"].iter().any(|r| self.rights.contains(r))
    }
}

impl std::fmt::Display for MissingRights {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} on {}", self.rights, self.table)
    }
}

impl Store {
    /// Rights that the role of `postgres.url` lacks; empty when it may do everything.
    ///
    /// # Errors
    /// When Postgres could not be asked.
    pub async fn missing_rights(&self) -> Result<Vec<MissingRights>, Error> {
        let tables = TABLES.as_slice();
        with_connection!(self, "missing_rights", |connection| {
            let rows = connection.query(sql!("missing_rights"), &[&tables]).await?;
            let missing = rows.iter().map(|row| MissingRights {
                table: row.get("name"),
                rights: row.get("rights"),
            });
            Ok(missing.collect::<Vec<_>>())
        })
    }
}
