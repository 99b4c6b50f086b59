//! What the worker serves, told to the catalogue: at the start, at every change, and as a sign
//! of life.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use queue::Queue;
use store::{Observed, Store, ToolSpec};

use crate::tool::ToolSet;

/// A tool not seen for this long counts as served by nobody.
const ALIVE: Duration = Duration::from_secs(60);
/// Between two tries.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

type Key = (String, i32);

/// Durations of runs, gathered between two signs of life.
#[derive(Clone, Default)]
pub(crate) struct Observations(Arc<Mutex<BTreeMap<Key, (f64, u32)>>>);

impl Observations {
    pub(crate) fn ran(&self, spec: &ToolSpec, took: Duration) {
        let mut runs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let run = runs
            .entry((spec.name().to_owned(), spec.version))
            .or_default();
        run.0 += took.as_secs_f64() * 1000.0;
        run.1 += 1;
    }

    fn take(&self) -> BTreeMap<Key, (f64, u32)> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Publishes for as long as the worker lives.
pub(crate) struct Publisher {
    pub(crate) store: Store,
    pub(crate) queue: Queue,
    pub(crate) tools: ToolSet,
    pub(crate) observations: Observations,
    pub(crate) interval: Duration,
    pub(crate) published: telemetry::Check,
}

impl Publisher {
    pub(crate) async fn run(&self) {
        let mut changes = self.tools.changes();
        let mut known: BTreeSet<Key> = BTreeSet::new();
        loop {
            changes.borrow_and_update();
            match self.publish(&mut known).await {
                Ok(()) => self.published.ready(),
                Err(error) => {
                    tracing::warn!(error = ?error, "tools not published, trying again");
                    if known.is_empty() {
                        self.published.not_ready("tools are not published yet");
                    }
                    tokio::time::sleep(RETRY_PAUSE).await;
                    continue;
                }
            }
            // The set is shared with the tools, which may change it; it never goes away.
            tokio::select! {
                () = tokio::time::sleep(self.interval) => {}
                _ = changes.changed() => {}
            }
        }
    }

    async fn publish(&self, known: &mut BTreeSet<Key>) -> Result<(), store::Error> {
        let specs = self.tools.specs();
        let now: BTreeSet<Key> = specs
            .iter()
            .map(|spec| (spec.name().to_owned(), spec.version))
            .collect();
        let changed = now != *known;
        let specs: Vec<ToolSpec> = specs.iter().map(|spec| ToolSpec::clone(spec)).collect();
        if !specs.is_empty() {
            self.store.register_tools(&specs, ALIVE).await?;
        }
        for (name, version) in known.difference(&now) {
            self.store.delist_tool(name, *version).await?;
        }
        *known = now;
        if changed {
            self.queue.catalogue_changed().await;
        }
        let observed: Vec<Observed> = self
            .observations
            .take()
            .into_iter()
            .map(|((name, version), (sum, runs))| Observed {
                name,
                version,
                run_ms: Some(sum / f64::from(runs.max(1))),
                change_ms: None,
            })
            .collect();
        if !observed.is_empty() {
            self.store.observe(&observed).await?;
        }
        Ok(())
    }
}
