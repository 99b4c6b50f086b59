//! What is provided beside tools: workers write what they serve and what changed, gateways read it
//! and write what somebody listens to.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::config::ms;
use crate::pool::{sql, with_connection};
use crate::provider_spec::ProviderSpec;
use crate::tools::ALIVE;
use crate::{Error, Store};

/// Resources of one provider that count as listened to, of all listeners on all gateways.
pub const WANTED_MAX: i64 = 1_000;
/// Bytes of their URIs.
pub const WANTED_BYTES_MAX: i64 = 1024 * 1024;

/// A resource that somebody listens to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WantedResource {
    /// How many others the same listener listened to before. Where a provider has more listeners than
    /// it can watch for, everybody's first counts before anybody's second, whoever came first.
    pub place: u32,
    /// Its provider's name.
    pub provider: String,
    /// Its URI.
    pub uri: String,
}

impl WantedResource {
    /// Rows sort by it, places first. (Not every release has put the place there: those without sort
    /// among all others.)
    fn key(&self) -> Vec<u8> {
        let mut key = self.place.to_be_bytes().to_vec();
        key.extend(digest(&self.uri));
        key
    }
}

/// What became of resources that somebody wants to listen to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The URIs of those that their providers watch; the others have no room.
    pub counted: HashSet<String>,
    /// One of them was not listened to before.
    pub fresh: bool,
}

/// One listed provider.
#[derive(Clone, Debug)]
pub struct ProviderEntry {
    /// Its name.
    pub name: String,
    /// What it offers and how it is asked; `None` if the asker has it already.
    pub spec: Option<ProviderSpec>,
    /// Changes whenever `spec` does.
    pub digest: Vec<u8>,
    /// A worker was seen serving it within the last minute.
    pub alive: bool,
    /// An operator paused its jobs: it takes no new requests.
    pub paused: bool,
}

/// A URI in an index.
fn digest(uri: &str) -> Vec<u8> {
    Sha256::digest(uri.as_bytes()).to_vec()
}

impl Store {
    /// Publishes providers that the caller serves.
    ///
    /// # Errors
    /// When Postgres could not be asked; repeating is safe.
    pub async fn register_providers(&self, specs: &[ProviderSpec]) -> Result<(), Error> {
        let mut rows = Vec::new();
        for spec in specs {
            let bytes = serde_json::to_vec(spec).map_err(|e| Error::Bug(Box::new(e)))?;
            let digest = Sha256::digest(&bytes).to_vec();
            rows.push((&spec.name, spec.version, bytes, digest));
        }
        // Rows are locked in one order.
        rows.sort_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)));
        with_connection!(self, "register_providers", |connection| {
            let transaction = connection.transaction().await?;
            let register = transaction
                .prepare_cached(sql!("register_provider"))
                .await?;
            for (name, version, spec, digest) in &rows {
                transaction
                    .execute(&register, &[name, version, spec, digest])
                    .await?;
            }
            transaction.commit().await?;
            Ok(())
        })
    }

    /// Takes a provider off the lists: its worker does not have it any more.
    ///
    /// # Errors
    /// When Postgres could not be asked; repeating is safe.
    pub async fn delist_provider(&self, name: &str, version: i32) -> Result<(), Error> {
        with_connection!(self, "delist_provider", |connection| {
            let statement = connection.prepare_cached(sql!("delist_provider")).await?;
            connection.execute(&statement, &[&name, &version]).await?;
            Ok(())
        })
    }

    /// Takes providers off the lists that no worker has served for `unserved`, and says which. The
    /// caller must have looked on for that long itself.
    ///
    /// # Errors
    /// When Postgres could not be asked; repeating is safe.
    pub async fn sweep_providers(&self, unserved: Duration) -> Result<Vec<(String, i32)>, Error> {
        let unserved_ms = ms(unserved);
        with_connection!(self, "sweep_providers", |connection| {
            let sql = sql!("delist_unserved_providers");
            let statement = connection.prepare_cached(sql).await?;
            let delisted = connection.query(&statement, &[&unserved_ms]).await?;
            let delisted = delisted.iter();
            Ok(delisted
                .map(|row| (row.get("name"), row.get("version")))
                .collect())
        })
    }

    /// All listed providers, by name; without the specifications whose digests are `known`. An entry that cannot be read (written by a newer release) is
    /// left out and logged.
    ///
    /// # Errors
    /// When Postgres could not be asked.
    pub async fn providers(&self, known: &[Vec<u8>]) -> Result<Vec<ProviderEntry>, Error> {
        with_connection!(self, "providers", |connection| {
            let statement = connection.prepare_cached(sql!("providers")).await?;
            let rows = connection.query(&statement, &[&ms(ALIVE), &known]).await?;
            Ok(rows
                .iter()
                .filter_map(|row| {
                    let name: String = row.get("name");
                    let spec = row.get::<_, Option<&[u8]>>("spec");
                    match spec.map(serde_json::from_slice).transpose() {
                        Ok(spec) => Some(ProviderEntry {
                            name,
                            spec,
                            digest: row.get("spec_digest"),
                            alive: row.get("alive"),
                            paused: row.get("paused"),
                        }),
                        Err(error) => {
                            tracing::error!(provider = name, %error, "provider in the catalogue cannot be read");
                            None
                        }
                    }
                })
                .collect())
        })
    }

    /// Writes that these resources have changed.
    ///
    /// # Errors
    /// When Postgres could not be asked; repeating only tells of the change twice.
    pub async fn record_resource_updates(&self, uris: &[String]) -> Result<(), Error> {
        let digests: BTreeSet<Vec<u8>> = uris.iter().map(|uri| digest(uri)).collect();
        let digests: Vec<Vec<u8>> = digests.into_iter().collect();
        with_connection!(self, "record_resource_updates", |connection| {
            let sql = sql!("record_resource_updates");
            let statement = connection.prepare_cached(sql).await?;
            connection.execute(&statement, &[&digests]).await?;
            Ok(())
        })
    }

    /// When each of these resources last changed: a mark that moves with every change; `None` for
    /// those of which no change is known.
    ///
    /// # Errors
    /// When Postgres could not be asked.
    pub async fn resource_updates(&self, uris: &[String]) -> Result<Vec<Option<i64>>, Error> {
        let digests: Vec<Vec<u8>> = uris.iter().map(|uri| digest(uri)).collect();
        with_connection!(self, "resource_updates", |connection| {
            let statement = connection.prepare_cached(sql!("resource_updates")).await?;
            let rows = connection.query(&statement, &[&digests]).await?;
            let marks: HashMap<Vec<u8>, i64> = rows
                .iter()
                .map(|row| (row.get("uri_digest"), row.get("updated_us")))
                .collect();
            let marks = digests.iter().map(|digest| marks.get(digest).copied());
            Ok(marks.collect())
        })
    }

    /// Somebody listens to these resources, for so long or until this is said again, as far as their
    /// providers have room ([`WANTED_MAX`], [`WANTED_BYTES_MAX`]).
    ///
    /// # Errors
    /// When Postgres could not be asked; repeating is safe.
    pub async fn want_resources(
        &self,
        wanted: &[WantedResource],
        time: Duration,
    ) -> Result<Wanted, Error> {
        // Each once, and in one order.
        let wanted: BTreeMap<Vec<u8>, &WantedResource> = wanted
            .iter()
            .map(|resource| (resource.key(), resource))
            .collect();
        let keys: Vec<&[u8]> = wanted.keys().map(Vec::as_slice).collect();
        let uris: Vec<&str> = wanted.values().map(|one| one.uri.as_str()).collect();
        let providers: Vec<&str> = wanted.values().map(|one| one.provider.as_str()).collect();
        with_connection!(self, "want_resources", |connection| {
            let statement = connection.prepare_cached(sql!("want_resources")).await?;
            let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 6] = [
                &keys,
                &uris,
                &providers,
                &ms(time),
                &WANTED_MAX,
                &WANTED_BYTES_MAX,
            ];
            let rows = connection.query(&statement, &parameters).await?;
            let mut became = Wanted::default();
            for row in rows.iter().filter(|row| row.get("counts")) {
                became.fresh |= !row.get::<_, bool>("known");
                if let Some(one) = wanted.get(row.get::<_, &[u8]>("key")) {
                    became.counted.insert(one.uri.clone());
                }
            }
            Ok(became)
        })
    }

    /// The resources of these providers that somebody listens to, by provider; of each at most
    /// [`WANTED_MAX`], and [`WANTED_BYTES_MAX`] of URIs.
    ///
    /// # Errors
    /// When Postgres could not be asked.
    pub async fn wanted_resources(
        &self,
        providers: &[String],
    ) -> Result<BTreeMap<String, BTreeSet<String>>, Error> {
        with_connection!(self, "wanted_resources", |connection| {
            let statement = connection.prepare_cached(sql!("wanted_resources")).await?;
            let rows = connection
                .query(&statement, &[&providers, &WANTED_MAX, &WANTED_BYTES_MAX])
                .await?;
            let mut wanted: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
            for row in &rows {
                let uris = wanted.entry(row.get("provider")).or_default();
                uris.insert(row.get("uri"));
            }
            Ok(wanted)
        })
    }

    /// Forgets resources that nobody listens to any more, and changes older than `quiet`; at most so
    /// many rows of each. Says how many.
    ///
    /// # Errors
    /// When Postgres could not be asked; repeating is safe.
    pub async fn forget_resources(&self, quiet: Duration, rows: i64) -> Result<u64, Error> {
        with_connection!(self, "forget_resources", |connection| {
            let statement = connection.prepare_cached(sql!("forget_resources")).await?;
            let row = connection
                .query_one(&statement, &[&ms(quiet), &rows])
                .await?;
            Ok(u64::try_from(row.get::<_, i64>("forgotten")).unwrap_or_default())
        })
    }
}
