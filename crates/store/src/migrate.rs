//! Schema: applies `migrations/` under one advisory lock, and says who may run on what.

mod roles;

use std::time::Duration;

use semver::Version;
use sha2::{Digest, Sha256};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;
use tokio_util::task::AbortOnDropHandle;

use crate::connect::Connector;
use crate::error::{Error, Fault};
use crate::pool::{sql, with_connection};
use crate::{Config, Store};

pub use self::roles::grant_roles;

/// One migration: its number, name and text.
struct Migration {
    version: i32,
    name: &'static str,
    sql: &'static str,
}

macro_rules! migrations {
    ($(($version:literal, $name:literal)),* $(,)?) => {
        &[$(Migration {
            version: $version,
            name: $name,
            sql: include_str!(concat!("../../../migrations/", $name, ".sql")),
        }),*]
    };
}

const MIGRATIONS: &[Migration] = migrations![
    (1, "0001_tasks"),
    (2, "0002_add_undo"),
    (3, "0003_validate_undo"),
    (4, "0004_add_alerts"),
    (5, "0005_add_operations"),
    (6, "0006_add_attempts"),
    (7, "0007_add_callbacks"),
    (8, "0008_add_fairness"),
    (9, "0009_add_providers"),
    (10, "0010_index_owners"),
    (11, "0011_count_live"),
    (12, "0012_add_sealing"),
    (13, "0013_add_audit_outcome"),
    (14, "0014_guard_journal"),
    (15, "0015_name_schemas"),
];

/// How long a statement of a migration waits for a lock before the migration gives way.
const LOCK_TIMEOUT: &str = "SET lock_timeout = '5s'";
/// "Already there, skipping" is no news.
const QUIET: &str = "SET client_min_messages = warning";
/// How often a migration that gave way is tried.
const LOCK_TRIES: u32 = 24;
/// Between two looks at the lock: polled, because a blocked request for it holds a snapshot
/// that `CREATE INDEX CONCURRENTLY` would wait for.
const LOCK_PAUSE: Duration = Duration::from_millis(200);
/// "mcp-tasks migrations", as a number.
const LOCK_KEY: i64 = 0x6d63_7074_6d69_6772;

/// What [`migrate`] did.
#[derive(Debug, PartialEq, Eq)]
pub struct Migrated {
    /// Names of the migrations that this call applied, in order; others may have applied some
    /// at the same time.
    pub applied: Vec<&'static str>,
    /// The schema's version now.
    pub version: i32,
}

/// Applies what is missing. Any number of processes may do so at once: one applies, the others
/// wait and find nothing to do.
///
/// # Errors
/// When Postgres cannot be reached, a statement fails, or the schema belongs to a newer or
/// another program.
pub async fn migrate(config: &Config) -> Result<Migrated, Error> {
    // The lock is a session's.
    crate::connect::check_sessions(config).await?;
    let mut tries_left = LOCK_TRIES;
    loop {
        tries_left -= 1;
        match migrate_all(config).await {
            Ok(migrated) => return Ok(migrated),
            Err(Fault::Final(error)) => return Err(error),
            Err(Fault::Transient(source)) if tries_left > 0 && is_locked(source.as_ref()) => {
                // It gave way; whoever queued behind it runs before the next try.
                tracing::info!(error = %source, "a migration found its table locked, trying again");
                tokio::time::sleep(LOCK_PAUSE).await;
            }
            Err(Fault::Transient(source)) => return Err(Error::Unavailable(source)),
        }
    }
}

fn is_locked(source: &(dyn std::error::Error + Send + Sync + 'static)) -> bool {
    source
        .downcast_ref::<tokio_postgres::Error>()
        .is_some_and(|error| error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE))
}

async fn migrate_all(config: &Config) -> Result<Migrated, Fault> {
    // Without our limits: a statement of a migration may take long.
    let opened = Connector::new(config)?.open_bare().await;
    let (client, driver) = opened.map_err(Fault::connecting)?;
    let _driver = AbortOnDropHandle::new(driver);
    under_lock(&client).await
}

/// Takes the lock of migrations, for as long as this session lives.
pub(crate) async fn wait_for_lock(client: &Client) -> Result<(), Fault> {
    while !client
        .query_one(sql!("try_migration_lock"), &[&LOCK_KEY])
        .await?
        .get::<_, bool>(0)
    {
        tokio::time::sleep(LOCK_PAUSE).await;
    }
    Ok(())
}

async fn under_lock(client: &Client) -> Result<Migrated, Fault> {
    wait_for_lock(client).await?;
    client.batch_execute(QUIET).await?;
    client.batch_execute(sql!("schema_tables")).await?;
    client.batch_execute(LOCK_TIMEOUT).await?;
    let state = client.query(sql!("schema_migrations"), &[]).await?;
    let recorded: Vec<(i32, Vec<u8>)> = state
        .iter()
        .map(|row| (row.get("version"), row.get("checksum")))
        .collect();
    if let Some((version, _)) = recorded
        .iter()
        .find(|(v, _)| MIGRATIONS.iter().all(|m| m.version != *v))
    {
        tracing::info!(
            schema.version = version,
            "the schema is newer than this binary"
        );
    }
    let mut applied = Vec::new();
    for migration in MIGRATIONS {
        let checksum = Sha256::digest(migration.sql).to_vec();
        match recorded
            .iter()
            .find(|(version, _)| *version == migration.version)
        {
            Some((_, known)) if *known != checksum => {
                return Err(Error::Schema(format!(
                    "migration {} was changed after it was applied; restore its text, or add a \
                     new migration",
                    migration.name
                ))
                .into());
            }
            Some(_) => {}
            None => {
                apply(client, migration, &checksum).await?;
                applied.push(migration.name);
            }
        }
    }
    let version = recorded
        .iter()
        .map(|(version, _)| *version)
        .chain(MIGRATIONS.iter().map(|m| m.version))
        .max()
        .unwrap_or(0);
    Ok(Migrated { applied, version })
}

async fn apply(client: &Client, migration: &Migration, checksum: &[u8]) -> Result<(), Fault> {
    let transactional = !migration.sql.starts_with("-- no-transaction");
    if transactional {
        client.batch_execute("BEGIN").await?;
    }
    if transactional {
        client.batch_execute(migration.sql).await?;
    } else {
        // Several at once would be a transaction of their own.
        for statement in migration.sql.split(";\n") {
            client.batch_execute(statement).await?;
        }
    }
    client
        .execute(
            sql!("record_migration"),
            &[&migration.version, &migration.name, &checksum],
        )
        .await?;
    if let Some(oldest) = oldest_supported(migration) {
        client
            .execute(sql!("set_oldest_supported"), &[&oldest])
            .await?;
    }
    if transactional {
        client.batch_execute("COMMIT").await?;
    }
    tracing::info!(migration = migration.name, "applied");
    Ok(())
}

fn oldest_supported(migration: &Migration) -> Option<&'static str> {
    migration
        .sql
        .lines()
        .find_map(|line| line.strip_prefix("-- oldest-supported-release:"))
        .map(str::trim)
}

/// This binary's release.
#[must_use]
pub fn release() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// Whether a binary of `release` may run on a schema that is at `version` and supports
/// releases from `oldest` on.
///
/// # Errors
/// A sentence that says what to run.
fn judge(release: &str, version: i32, oldest: Option<&str>) -> Result<(), Error> {
    let needed = MIGRATIONS.iter().map(|m| m.version).max().unwrap_or(0);
    if version < needed {
        return Err(Error::Schema(format!(
            "the schema is at version {version}, this binary ({release}) needs {needed}: run \
             `mcp-tasks migrate` first"
        )));
    }
    let Some(oldest) = oldest else { return Ok(()) };
    let parse = |text: &str| {
        Version::parse(text).map_err(|e| Error::Schema(format!("release \"{text}\": {e}")))
    };
    if parse(oldest)? > parse(release)? {
        return Err(Error::Schema(format!(
            "the schema supports releases from {oldest} on, this binary is {release}: run release \
             {oldest} or newer"
        )));
    }
    Ok(())
}

impl Store {
    /// Refuses a schema that this binary cannot work with.
    ///
    /// # Errors
    /// [`Error::Schema`] says what to run; others mean that Postgres could not be asked.
    pub async fn check_schema(&self) -> Result<(), Error> {
        self.check_sessions().await?;
        let found = with_connection!(self, "check_schema", |connection| {
            let exists = connection.query_one(sql!("schema_exists"), &[]).await?;
            if !exists.get::<_, bool>(0) {
                return Ok(None);
            }
            let row = connection.query_one(sql!("schema_state"), &[]).await?;
            Ok(Some((
                row.get::<_, i32>("version"),
                row.get::<_, Option<String>>("oldest"),
            )))
        })?;
        let (version, oldest) = found.unwrap_or((0, None));
        judge(release(), version, oldest.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_that_is_too_old_names_the_command() {
        let refused = judge("0.1.0", 0, None).unwrap_err().to_string();
        assert!(refused.contains("mcp-tasks migrate"), "{refused}");
    }

    #[test]
    fn a_schema_that_left_this_release_behind_names_the_release() {
        let refused = judge("0.1.0", 99, Some("0.2.0")).unwrap_err().to_string();
        assert!(refused.contains("0.2.0 or newer"), "{refused}");
        assert!(
            judge("0.10.0", 99, Some("0.9.0")).is_ok(),
            "compared as versions, not as text"
        );
    }

    #[test]
    fn migrations_are_numbered_without_gaps() {
        for (at, migration) in MIGRATIONS.iter().enumerate() {
            assert_eq!(migration.version as usize, at + 1);
            assert!(
                migration
                    .name
                    .starts_with(&format!("{:04}_", migration.version))
            );
        }
    }
}
