//! The tools and what is provided beside them, as this process last read them from Postgres.
//!
//! A copy that any replica could rebuild at any moment: read again every second, at once when a
//! worker says that something changed, and when a call names a tool that is not in it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use protocol::headers::ParamHeader;
use queue::Queue;
use store::{CatalogueEntry, Store, ToolSpec};
use tokio::sync::{Mutex, watch};
use tokio_util::sync::CancellationToken;

use crate::arguments::Schema;
use crate::metrics::Metrics;
use crate::provided::{Provided, Provider};

/// A call of an unknown tool reads the catalogue again, but not more often than this.
const UNKNOWN_REREAD_MIN: Duration = Duration::from_millis(250);

/// One tool, ready to be called.
pub(crate) struct Entry {
    pub(crate) tool: Arc<Compiled>,
    /// Average time between changes of its tasks that a client can see.
    pub(crate) change: Option<Duration>,
    /// An operator paused it: it takes no new calls. It stays listed, because it will be back.
    pub(crate) paused: bool,
}

impl Entry {
    /// What a provider is asked, as a tool that no client can call.
    pub(crate) fn of_job(spec: ToolSpec, digest: Vec<u8>, paused: bool) -> Result<Self, String> {
        let schema = Schema::compile(spec.definition.input_schema.get())?;
        let tool = Compiled {
            digest,
            spec,
            definition: Bytes::new(),
            schema,
            param_headers: Vec::new(),
        };
        Ok(Self {
            tool: Arc::new(tool),
            change: None,
            paused,
        })
    }
}

/// What is made once of a tool's definition.
pub(crate) struct Compiled {
    digest: Vec<u8>,
    pub(crate) spec: ToolSpec,
    /// As `tools/list` shows it.
    pub(crate) definition: Bytes,
    pub(crate) schema: Schema,
    /// Parameters that travel in headers too.
    pub(crate) param_headers: Vec<ParamHeader>,
}

/// All tools at one moment.
#[derive(Default)]
pub(crate) struct Snapshot {
    /// In the order in which they are listed: by name.
    entries: BTreeMap<String, Arc<Entry>>,
    /// Broken ones by digest, so that each is told of once.
    refused: HashMap<Vec<u8>, String>,
    /// Moves when what is listed changes.
    generation: u64,
    loaded: bool,
    /// What there is beside tools.
    pub(crate) provided: Arc<Provided>,
}

impl Snapshot {
    /// The tool of this name.
    pub(crate) fn get(&self, name: &str) -> Option<&Arc<Entry>> {
        self.entries.get(name)
    }

    /// The tools whose names come after `name`, in order; all without one.
    pub(crate) fn after(&self, name: Option<&str>) -> impl Iterator<Item = &Arc<Entry>> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = name.map_or(Unbounded, Excluded);
        self.entries
            .range::<str, _>((from, Unbounded))
            .map(|(_, entry)| entry)
    }

    /// Moves when what is listed changes.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    fn updated(&self, read: Vec<CatalogueEntry>, name_bytes_max: usize) -> Self {
        let (mut entries, mut refused) = (BTreeMap::new(), HashMap::new());
        for entry in read {
            let name = entry.spec.name().to_owned();
            if let Some(problem) = self.refused.get(&entry.digest) {
                refused.insert(entry.digest, problem.clone());
                continue;
            }
            let known = self
                .get(&name)
                .filter(|known| known.tool.digest == entry.digest);
            let (change, paused) = (entry.change, entry.paused);
            let tool = match known {
                Some(known) => Ok(Arc::clone(&known.tool)),
                None => fitting(&name, name_bytes_max)
                    .and_then(|()| Compiled::new(entry.spec, entry.digest.clone()))
                    .map(Arc::new),
            };
            match tool {
                Ok(tool) => {
                    let entry = Entry {
                        tool,
                        change,
                        paused,
                    };
                    entries.insert(name, Arc::new(entry));
                }
                Err(problem) => {
                    tracing::error!(tool.name = name, problem, "tool cannot be served");
                    refused.insert(entry.digest, problem);
                }
            }
        }
        let digests = |entries: &BTreeMap<String, Arc<Entry>>| -> Vec<Vec<u8>> {
            entries
                .values()
                .map(|entry| entry.tool.digest.clone())
                .collect()
        };
        let same = self.loaded && digests(&self.entries) == digests(&entries);
        Self {
            entries,
            refused,
            generation: self.generation + u64::from(!same),
            loaded: true,
            provided: Arc::clone(&self.provided),
        }
    }
}

/// Whether the settings allow a name of this length.
fn fitting(name: &str, bytes_max: usize) -> Result<(), String> {
    match name.len() {
        bytes if bytes > bytes_max => Err(format!(
            "its name is {bytes} bytes long; gateway.limits.tool_name_bytes_max allows {bytes_max}"
        )),
        _ => Ok(()),
    }
}

impl Compiled {
    fn new(spec: ToolSpec, digest: Vec<u8>) -> Result<Self, String> {
        let param_headers = spec.definition.check()?;
        let schema = Schema::compile(spec.definition.input_schema.get())?;
        Ok(Self {
            digest,
            definition: crate::reply::one_line(spec.definition.to_json()),
            schema,
            param_headers,
            spec,
        })
    }
}

/// Why the catalogue is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Occasion {
    /// It is time, or something changed.
    Turn,
    /// It never was.
    First,
    /// A call names a tool that is not in it.
    UnknownTool,
}

/// The copy, and how it is kept.
pub(crate) struct Catalog {
    store: Store,
    snapshot: watch::Sender<Arc<Snapshot>>,
    /// When it was last read for a call of an unknown tool; held while it is read, so that
    /// readers share one look.
    asked_at: Mutex<Option<Instant>>,
    /// Tools with longer names are not served.
    name_bytes_max: usize,
    metrics: Metrics,
}

impl Catalog {
    pub(crate) fn new(store: Store, name_bytes_max: usize, metrics: Metrics) -> Self {
        Self {
            store,
            snapshot: watch::Sender::default(),
            asked_at: Mutex::default(),
            name_bytes_max,
            metrics,
        }
    }

    /// What is known now, possibly nothing yet.
    pub(crate) fn known(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot.borrow())
    }

    /// What is known now; reads it if it never was.
    ///
    /// # Errors
    /// When Postgres could not be asked.
    pub(crate) async fn current(&self) -> Result<Arc<Snapshot>, store::Error> {
        if !self.known().loaded {
            self.refresh(&self.store, Occasion::First).await?;
        }
        Ok(self.known())
    }

    /// The tool of this name; looks again when it is not known.
    ///
    /// # Errors
    /// When Postgres could not be asked and nothing was ever read.
    pub(crate) async fn find(&self, name: &str) -> Result<Option<Arc<Entry>>, store::Error> {
        let snapshot = self.current().await?;
        if let Some(entry) = snapshot.get(name) {
            return Ok(Some(Arc::clone(entry)));
        }
        self.refresh(&self.store, Occasion::UnknownTool).await?;
        Ok(self.known().get(name).cloned())
    }

    /// What is provided now, where `finds` finds what it looks for in it; looks again when it does
    /// not.
    ///
    /// # Errors
    /// When Postgres could not be asked and nothing was ever read.
    pub(crate) async fn provided(
        &self,
        finds: impl Fn(&Provided) -> Option<&Arc<Provider>>,
    ) -> Result<(Arc<Provided>, Option<Arc<Provider>>), store::Error> {
        let provided = Arc::clone(&self.current().await?.provided);
        if let Some(found) = finds(&provided).cloned() {
            return Ok((provided, Some(found)));
        }
        self.refresh(&self.store, Occasion::UnknownTool).await?;
        let provided = Arc::clone(&self.known().provided);
        let found = finds(&provided).cloned();
        Ok((provided, found))
    }

    /// Tells when the copy was replaced.
    pub(crate) fn changes(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.snapshot.subscribe()
    }

    /// Reads the catalogue, unless the occasion is over by the time it is our turn.
    async fn refresh(&self, store: &Store, occasion: Occasion) -> Result<(), store::Error> {
        let mut asked_at = self.asked_at.lock().await;
        let now = Instant::now();
        match occasion {
            Occasion::Turn => {}
            Occasion::First if self.known().loaded => return Ok(()),
            Occasion::First => {}
            Occasion::UnknownTool => {
                if asked_at.is_some_and(|at| now - at < UNKNOWN_REREAD_MIN) {
                    return Ok(());
                }
                *asked_at = Some(now);
            }
        }
        let known = self.known();
        let (tools, providers) = (
            store.tools().await?,
            store.providers(&known.provided.digests()).await?,
        );
        let mut updated = known.updated(tools, self.name_bytes_max);
        updated.provided = known.provided.updated(providers);
        let level = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.metrics.tools.set(level(updated.entries.len()));
        self.metrics.tools_refused.set(level(updated.refused.len()));
        let provided = &updated.provided;
        for (kind, count) in [
            ("resources", provided.resources.len()),
            ("templates", provided.templates.len()),
            ("prompts", provided.prompts.len()),
        ] {
            let listed = self.metrics.provided.with_label_values(&[kind]);
            listed.set(level(count));
        }
        self.snapshot.send_replace(Arc::new(updated));
        Ok(())
    }

    /// Keeps the copy fresh until `ended`. `check` is ready once it was read.
    pub(crate) async fn keep(
        &self,
        queue: &Queue,
        every: Duration,
        check: telemetry::Check,
        ended: CancellationToken,
    ) {
        // A look that waits for Postgres would only delay the next one.
        let store = self.store.with_wait(Duration::ZERO);
        let mut told = queue.catalogue_watch();
        let mut failing = false;
        while !ended.is_cancelled() {
            match self.refresh(&store, Occasion::Turn).await {
                Ok(()) => {
                    check.ready();
                    failing = false;
                }
                Err(error) if !failing => {
                    tracing::warn!(error = %error, "the tool catalogue cannot be read");
                    failing = true;
                }
                Err(_) => {}
            }
            tokio::select! {
                () = ended.cancelled() => {}
                () = tokio::time::sleep(every) => {}
                Ok(()) = told.changed() => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use protocol::tools::Tool;
    use serde_json::json;

    use super::*;

    fn entry(name: &str, digest: u8, schema: &serde_json::Value) -> CatalogueEntry {
        CatalogueEntry {
            spec: ToolSpec::new(Tool::new(name, schema)),
            digest: vec![digest],
            run: None,
            change: None,
            paused: false,
        }
    }

    #[test]
    fn the_generation_moves_with_what_is_listed() {
        let object = json!({"type": "object"});
        let empty = Snapshot::default();
        let first = empty.updated(Vec::new(), 128);
        assert_eq!((first.generation, first.loaded), (1, true));
        let one = first.updated(vec![entry("a", 1, &object)], 128);
        assert_eq!(one.generation, 2);
        let same = one.updated(vec![entry("a", 1, &object)], 128);
        assert_eq!(same.generation, 2);
        assert!(Arc::ptr_eq(
            &one.get("a").unwrap().tool,
            &same.get("a").unwrap().tool
        ));
        assert_eq!(
            same.updated(vec![entry("a", 2, &object)], 128).generation,
            3
        );
        assert_eq!(same.updated(Vec::new(), 128).generation, 3);
    }

    #[test]
    fn a_paused_tool_stays_listed() {
        let mut read = entry("a", 1, &json!({"type": "object"}));
        let before = Snapshot::default().updated(vec![read.clone()], 128);
        read.paused = true;
        let after = before.updated(vec![read], 128);
        assert!(!before.get("a").unwrap().paused && after.get("a").unwrap().paused);
        assert_eq!(after.generation, before.generation);
    }

    #[test]
    fn broken_tools_are_left_out() {
        let remote = json!({"type": "object", "$ref": "http://127.0.0.1:1/"});
        let object = json!({"type": "object"});
        let read = vec![
            entry("bad", 1, &remote),
            entry("good", 2, &object),
            entry("no/name", 3, &object),
        ];
        let snapshot = Snapshot::default().updated(read, 128);
        let names: Vec<&str> = snapshot.after(None).map(|e| e.tool.spec.name()).collect();
        assert_eq!(names, ["good"]);
        assert_eq!(snapshot.refused.len(), 2);
        assert_eq!(snapshot.after(Some("good")).count(), 0);
        assert_eq!(snapshot.after(Some("a")).count(), 1);
    }
}
