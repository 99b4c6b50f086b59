//! What the worker serves, told to the catalogue: at the start, at every change, and as a sign
//! of life.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use queue::Queue;
use store::{Introduction, Observed, Store, ToolSpec};

use crate::tool::ToolSet;

/// A tool not seen for this long counts as served by nobody.
const ALIVE: Duration = Duration::from_secs(60);
/// Between two tries.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// How long it may take to say that the worker ends.
const LEAVE: Duration = Duration::from_secs(1);

/// The machine's name, for operators.
fn host() -> &'static str {
    static HOST: OnceLock<String> = OnceLock::new();
    HOST.get_or_init(|| {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname");
        let name = name.unwrap_or_default();
        match name.trim() {
            "" => "unknown".to_owned(),
            name => name.to_owned(),
        }
    })
}

type Key = (String, i32);

/// Durations in ms, and how many.
#[derive(Clone, Copy, Default)]
struct Sum(f64, u32);

impl Sum {
    fn add(&mut self, took: Duration) {
        self.0 += took.as_secs_f64() * 1000.0;
        self.1 += 1;
    }

    fn average(self) -> Option<f64> {
        (self.1 > 0).then(|| self.0 / f64::from(self.1))
    }
}

/// What was seen of one version of a tool.
#[derive(Clone, Copy, Default)]
struct Seen {
    runs: Sum,
    changes: Sum,
}

/// Durations of runs, and of the time between changes a client can see, gathered between two
/// signs of life.
#[derive(Clone, Default)]
pub(crate) struct Observations(Arc<Mutex<BTreeMap<Key, Seen>>>);

impl Observations {
    pub(crate) fn ran(&self, spec: &ToolSpec, took: Duration) {
        self.of(spec, |seen| seen.runs.add(took));
    }

    fn of(&self, spec: &ToolSpec, note: impl FnOnce(&mut Seen)) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        note(
            all.entry((spec.name().to_owned(), spec.version))
                .or_default(),
        );
    }

    fn take(&self) -> BTreeMap<Key, Seen> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The changes of one attempt that a client can see.
pub(crate) struct Changes<'a> {
    observations: &'a Observations,
    spec: &'a ToolSpec,
    last: Mutex<Instant>,
}

impl<'a> Changes<'a> {
    pub(crate) fn begin(observations: &'a Observations, spec: &'a ToolSpec) -> Self {
        Self {
            observations,
            spec,
            last: Mutex::new(Instant::now()),
        }
    }

    /// Something changed now.
    pub(crate) fn changed(&self) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *last, Instant::now());
        self.observations
            .of(self.spec, |seen| seen.changes.add(before.elapsed()));
    }
}

/// Publishes for as long as the worker lives.
pub(crate) struct Publisher {
    /// The worker's, as in its claims.
    pub(crate) name: Arc<str>,
    /// Jobs at once.
    pub(crate) slots: usize,
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

    /// The worker ends: operators need not wonder for a minute. Best effort.
    pub(crate) async fn leave(&self) {
        let store = self.store.with_wait(Duration::ZERO);
        let leaving = store.worker_gone(&self.name);
        if !matches!(tokio::time::timeout(LEAVE, leaving).await, Ok(Ok(()))) {
            tracing::debug!("this worker counts as alive for a minute");
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
        let served: Vec<Key> = known.iter().cloned().collect();
        let introduction = Introduction {
            name: &self.name,
            host: host(),
            slots: self.slots,
            tools: &served,
        };
        self.store.worker_alive(&introduction).await?;
        if changed {
            self.queue.catalogue_changed().await;
        }
        let observed: Vec<Observed> = self
            .observations
            .take()
            .into_iter()
            .map(|((name, version), seen)| Observed {
                name,
                version,
                run_ms: seen.runs.average(),
                change_ms: seen.changes.average(),
            })
            .collect();
        if !observed.is_empty() {
            self.store.observe(&observed).await?;
        }
        Ok(())
    }
}
