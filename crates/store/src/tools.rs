//! The tool catalogue: workers write what they serve, gateways read what there is.

use std::time::Duration;

use deadpool_postgres::Transaction;
use sha2::{Digest, Sha256};

use crate::claim::millis;
use crate::config::ms;
use crate::error::Fault;
use crate::pool::{sql, with_connection};
use crate::tool_spec::ToolSpec;
use crate::{Error, Store};

/// When a version is taken off the list, who of the others is served is judged by this: several
/// of a worker's signs of life.
pub(crate) const ALIVE: Duration = Duration::from_secs(60);

/// One listed tool.
#[derive(Clone, Debug)]
pub struct CatalogueEntry {
    /// What it is and how it is run.
    pub spec: ToolSpec,
    /// Changes whenever `spec` does.
    pub digest: Vec<u8>,
    /// Decayed average of a whole run.
    pub run: Option<Duration>,
    /// Decayed average of the time between visible changes.
    pub change: Option<Duration>,
    /// An operator paused it: it takes no new calls.
    pub paused: bool,
}

/// What a worker measured of a tool since it last said so.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The tool.
    pub name: String,
    /// Its version.
    pub version: i32,
    /// Average of whole runs, ms.
    pub run_ms: Option<f64>,
    /// Average of the time between visible changes, ms.
    pub change_ms: Option<f64>,
}

/// What a look at the catalogue changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolsSwept {
    /// Versions that are not listed any more.
    pub delisted: Vec<(String, i32)>,
    /// Versions that are current now.
    pub elected: Vec<(String, i32)>,
}

/// Makes one version of each tool current, and says which are now; under the lock of `lock_tools.sql`.
async fn elect<S: AsRef<str> + tokio_postgres::types::ToSql + Sync>(
    transaction: &Transaction<'_>,
    names: &[S],
    alive_ms: i64,
) -> Result<Vec<(String, i32)>, Fault> {
    let elect = transaction.prepare_cached(sql!("elect_tools")).await?;
    let elected = transaction.query(&elect, &[&names, &alive_ms]).await?;
    let (names, versions): (Vec<String>, Vec<i32>) = elected
        .iter()
        .map(|row| (row.get::<_, String>("name"), row.get::<_, i32>("version")))
        .unzip();
    let set = transaction.prepare_cached(sql!("set_current")).await?;
    transaction.execute(&set, &[&names, &versions]).await?;
    Ok(names.into_iter().zip(versions).collect())
}

fn average(ms: Option<f64>) -> Option<Duration> {
    ms.and_then(|ms| Duration::try_from_secs_f64(ms / 1000.0).ok())
}

impl Store {
    /// Publishes tools that the caller serves, and elects each tool's current version: the
    /// highest that was seen being served within `alive`.
    ///
    /// # Errors
    /// When Postgres could not be asked; repeating is safe.
    pub async fn register_tools(&self, specs: &[ToolSpec], alive: Duration) -> Result<(), Error> {
        let mut rows = Vec::new();
        for spec in specs {
            let bytes = serde_json::to_vec(spec).map_err(|e| Error::Bug(Box::new(e)))?;
            let digest = Sha256::digest(&bytes).to_vec();
            rows.push((spec.name(), spec.version, bytes, digest));
        }
        let names: Vec<&str> = rows.iter().map(|(name, ..)| *name).collect();
        let alive_ms = ms(alive);
        with_connection!(self, "register_tools", |connection| {
            let transaction = connection.transaction().await?;
            let lock = transaction.prepare_cached(sql!("lock_tools")).await?;
            transaction.execute(&lock, &[]).await?;
            let register = transaction.prepare_cached(sql!("register_tool")).await?;
            for (name, version, spec, digest) in &rows {
                transaction
                    .execute(&register, &[name, version, spec, digest])
                    .await?;
            }
            elect(&transaction, &names, alive_ms).await?;
            transaction.commit().await?;
            Ok(())
        })
    }

    /// A worker's sign of life for the tools it serves, with what it measured.
    ///
    /// # Errors
    /// When Postgres could not be asked.
    pub async fn observe(&self, observed: &[Observed]) -> Result<(), Error> {
        let names: Vec<&str> = observed.iter().map(|o| o.name.as_str()).collect();
        let versions: Vec<i32> = observed.iter().map(|o| o.version).collect();
        let runs: Vec<Option<f64>> = observed.iter().map(|o| o.run_ms).collect();
        let changes: Vec<Option<f64>> = observed.iter().map(|o| o.change_ms).collect();
        with_connection!(self, "observe", |connection| {
            let statement = connection.prepare_cached(sql!("touch_tools")).await?;
            connection
                .execute(&statement, &[&names, &versions, &runs, &changes])
                .await?;
            Ok(())
        })
    }

    /// Takes a tool off the list: its source does not have it any more.
    ///
    /// # Errors
    /// When Postgres could not be asked; repeating is safe.
    pub async fn delist_tool(&self, name: &str, version: i32) -> Result<(), Error> {
        with_connection!(self, "delist_tool", |connection| {
            let transaction = connection.transaction().await?;
            let lock = transaction.prepare_cached(sql!("lock_tools")).await?;
            transaction.execute(&lock, &[]).await?;
            let delist = transaction.prepare_cached(sql!("delist_tool")).await?;
            transaction.execute(&delist, &[&name, &version]).await?;
            // Another version of the tool, if one is listed, takes its place.
            elect(&transaction, &[name], ms(ALIVE)).await?;
            transaction.commit().await?;
            Ok(())
        })
    }

    /// Takes versions off the list that no worker has served for `unserved`, and elects the current
    /// version of every tool among those that are served. The caller must have looked on for that
    /// long itself: after a common outage workers need time to come back.
    ///
    /// # Errors
    /// When Postgres could not be asked; repeating is safe.
    pub async fn sweep_tools(&self, unserved: Duration) -> Result<ToolsSwept, Error> {
        let unserved_ms = ms(unserved);
        with_connection!(self, "sweep_tools", |connection| {
            let transaction = connection.transaction().await?;
            let lock = transaction.prepare_cached(sql!("lock_tools")).await?;
            transaction.execute(&lock, &[]).await?;
            let delist = transaction.prepare_cached(sql!("delist_unserved")).await?;
            let delisted = transaction.query(&delist, &[&unserved_ms]).await?;
            let all = transaction.prepare_cached(sql!("tool_names")).await?;
            let names = transaction.query(&all, &[]).await?;
            let names: Vec<String> = names.iter().map(|row| row.get("name")).collect();
            let elected = elect(&transaction, &names, ms(ALIVE)).await?;
            transaction.commit().await?;
            let delisted = delisted.iter();
            Ok(ToolsSwept {
                delisted: delisted
                    .map(|row| (row.get("name"), row.get("version")))
                    .collect(),
                elected,
            })
        })
    }

    /// A worker ends in good order: what only it served gives its place to another version that is
    /// served, at once.
    ///
    /// # Errors
    /// When Postgres could not be asked.
    pub async fn worker_gone(&self, name: &str) -> Result<(), Error> {
        with_connection!(self, "worker_gone", |connection| {
            let transaction = connection.transaction().await?;
            let lock = transaction.prepare_cached(sql!("lock_tools")).await?;
            transaction.execute(&lock, &[]).await?;
            let gone = transaction.prepare_cached(sql!("worker_gone")).await?;
            if let Some(row) = transaction.query_opt(&gone, &[&name]).await? {
                let served: Vec<String> = row.get("tools");
                let unserve = transaction.prepare_cached(sql!("unserve")).await?;
                let names = transaction.query(&unserve, &[&served, &ms(ALIVE)]).await?;
                let names: Vec<String> = names.iter().map(|row| row.get("name")).collect();
                elect(&transaction, &names, ms(ALIVE)).await?;
                let provided = transaction
                    .prepare_cached(sql!("unserve_providers"))
                    .await?;
                transaction
                    .execute(&provided, &[&served, &ms(ALIVE)])
                    .await?;
            }
            transaction.commit().await?;
            Ok(())
        })
    }

    /// For how long workers could have been heard, as far as those that are there can tell: `None`
    /// if there is none.
    ///
    /// # Errors
    /// When Postgres could not be asked.
    pub async fn watched(&self) -> Result<Option<Duration>, Error> {
        with_connection!(self, "watched", |connection| {
            let statement = connection.prepare_cached(sql!("watched")).await?;
            let row = connection.query_one(&statement, &[&ms(ALIVE)]).await?;
            Ok(row.get::<_, Option<i64>>("watched_ms").map(millis))
        })
    }

    /// All listed tools, in the order in which they are listed. An entry that cannot be read
    /// (written by a newer release) is left out and logged.
    ///
    /// # Errors
    /// When Postgres could not be asked.
    pub async fn tools(&self) -> Result<Vec<CatalogueEntry>, Error> {
        with_connection!(self, "tools", |connection| {
            let statement = connection.prepare_cached(sql!("tools")).await?;
            let rows = connection.query(&statement, &[]).await?;
            Ok(rows
                .iter()
                .filter_map(|row| match serde_json::from_slice(row.get("spec")) {
                    Ok(spec) => Some(CatalogueEntry {
                        spec,
                        digest: row.get("spec_digest"),
                        run: average(row.get("run_ms")),
                        change: average(row.get("change_ms")),
                        paused: row.get("paused"),
                    }),
                    Err(error) => {
                        let name: &str = row.get("name");
                        tracing::error!(tool.name = name, %error, "tool in the catalogue cannot be read");
                        None
                    }
                })
                .collect())
        })
    }
}
