//! What the doctor asks Postgres; judged by whoever asks.

use std::time::{Duration, SystemTime};

use crate::operate_list::seconds;
use crate::pool::{sql, with_connection};
use crate::{Error, Store};

/// What a server says of itself.
#[derive(Clone, Debug)]
pub struct ServerFacts {
    /// Its version, for people.
    pub version: String,
    /// Its version, as a number: 150004 is 15.4.
    pub version_num: i32,
    /// Sessions there may be, and those of them that only superusers get.
    pub connections_max: (i32, i32),
    /// Sessions there are, of all databases.
    pub sessions: i64,
    /// Those of them that are ours, without this one.
    pub ours: i64,
    /// Whether a commit waits for the disk: `off` loses acknowledged tasks.
    pub synchronous_commit: String,
    /// Whether anything waits for the disk.
    pub fsync: String,
    /// Whether a torn page can be mended.
    pub full_page_writes: String,
    /// Whether garbage is collected.
    pub autovacuum: String,
    /// Standbys that a commit waits for.
    pub synchronous_standby_names: String,
    /// Its clock.
    pub now: SystemTime,
    /// Since the oldest transaction of another session began.
    pub oldest_transaction: Option<Duration>,
    /// Since the oldest prepared transaction was left.
    pub oldest_prepared: Option<Duration>,
    /// This role may not see other roles' sessions.
    pub blind: bool,
    /// Standbys that follow.
    pub standbys: i64,
    /// How far the last of them is behind: time and bytes.
    pub lag: (Option<Duration>, Option<i64>),
    /// Replication slots that nobody reads: the disk fills.
    pub idle_slots: i64,
    /// Transactions since the oldest frozen one; two billion are the end.
    pub xid_age: i64,
}

/// How a sweep of cron stands.
#[derive(Clone, Debug)]
pub struct SweepFacts {
    /// Its name.
    pub name: String,
    /// Since it last ended well.
    pub success: Option<Duration>,
    /// A replica leads it now.
    pub led: bool,
}

impl Store {
    /// What the server says of itself; works on any schema.
    ///
    /// # Errors
    /// When Postgres could not be asked.
    pub async fn server_facts(&self) -> Result<ServerFacts, Error> {
        with_connection!(self, "doctor_server", |connection| {
            let row = connection.query_one(sql!("doctor_server"), &[]).await?;
            let optional = |name| row.get::<_, Option<i64>>(name).map(seconds);
            Ok(ServerFacts {
                version: row.get("version"),
                version_num: row.get("version_num"),
                connections_max: (row.get("max_connections"), row.get("reserved")),
                sessions: row.get("sessions"),
                ours: row.get("ours"),
                synchronous_commit: row.get("synchronous_commit"),
                fsync: row.get("fsync"),
                full_page_writes: row.get("full_page_writes"),
                autovacuum: row.get("autovacuum"),
                synchronous_standby_names: row.get("synchronous_standby_names"),
                now: row.get("now"),
                oldest_transaction: optional("oldest_transaction_s"),
                oldest_prepared: optional("oldest_prepared_s"),
                blind: row.get("blind"),
                standbys: row.get("standbys"),
                lag: (optional("lag_s"), row.get("lag_bytes")),
                idle_slots: row.get("idle_slots"),
                xid_age: row.get("xid_age"),
            })
        })
    }

    /// When each sweep last ended well.
    ///
    /// # Errors
    /// When Postgres could not be asked.
    pub async fn sweep_facts(&self) -> Result<Vec<SweepFacts>, Error> {
        with_connection!(self, "doctor_sweeps", |connection| {
            let rows = connection.query(sql!("doctor_sweeps"), &[]).await?;
            Ok(rows
                .iter()
                .map(|row| SweepFacts {
                    name: row.get("sweep"),
                    success: row.get::<_, Option<i64>>("success_s").map(seconds),
                    led: row.get("led"),
                })
                .collect())
        })
    }
}
