//! What the worker serves, told to the catalogue: at the start, at every change, and as a sign
//! of life.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use queue::Queue;
use store::{Introduction, Observed, ProviderSpec, Store, ToolSpec};

use crate::tool::ToolSet;

/// A tool not seen for this long counts as served by nobody.
const ALIVE: Duration = Duration::from_secs(60);
/// Between two tries.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Between two looks at what is listened to, while nobody can tell that it changed.
const WANTED_PAUSE: Duration = Duration::from_secs(2);
/// Between two looks at what is listened to, at least: whoever opens and closes streams all the time has
/// it read no more often for that.
const WANTED_APART: Duration = Duration::from_secs(1);
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

/// What was last published.
#[derive(Default)]
struct Published {
    /// Anything at all.
    ever: bool,
    tools: BTreeSet<Key>,
    providers: BTreeMap<Key, Arc<ProviderSpec>>,
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
        let mut known = Published::default();
        loop {
            changes.borrow_and_update();
            match self.publish(&mut known).await {
                Ok(()) => self.published.ready(),
                Err(error) => {
                    tracing::warn!(error = ?error, "tools not published, trying again");
                    if !known.ever {
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

    async fn publish(&self, known: &mut Published) -> Result<(), store::Error> {
        let specs = self.tools.specs();
        let now: BTreeSet<Key> = specs
            .iter()
            .map(|spec| (spec.name().to_owned(), spec.version))
            .collect();
        let mut changed = now != known.tools;
        let specs: Vec<ToolSpec> = specs.iter().map(|spec| ToolSpec::clone(spec)).collect();
        if !specs.is_empty() {
            self.store.register_tools(&specs, ALIVE).await?;
        }
        for (name, version) in known.tools.difference(&now) {
            self.store.delist_tool(name, *version).await?;
        }
        known.tools = now;
        changed |= self.publish_providers(&mut known.providers).await?;
        known.ever = true;
        let jobs = self.tools.jobs();
        let served: Vec<Key> = jobs
            .iter()
            .map(|spec| (spec.name().to_owned(), spec.version))
            .collect();
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

    /// Says whether a list may have changed.
    async fn publish_providers(
        &self,
        known: &mut BTreeMap<Key, Arc<ProviderSpec>>,
    ) -> Result<bool, store::Error> {
        let mut specs = self.tools.providers.specs();
        specs.retain(|spec| self.tools.is_of_queue(&spec.policy));
        let now: BTreeMap<Key, Arc<ProviderSpec>> = specs
            .iter()
            .map(|spec| ((spec.name.clone(), spec.version), Arc::clone(spec)))
            .collect();
        let same = now.len() == known.len()
            && now.iter().all(|(key, spec)| {
                let before = known.get(key);
                before.is_some_and(|before| Arc::ptr_eq(before, spec))
            });
        let specs: Vec<ProviderSpec> = specs.iter().map(|spec| ProviderSpec::clone(spec)).collect();
        if !specs.is_empty() {
            self.store.register_providers(&specs).await?;
        }
        for (name, version) in known.keys().filter(|key| !now.contains_key(*key)) {
            self.store.delist_provider(name, *version).await?;
        }
        *known = now;
        Ok(!same)
    }

    /// Tells of resources that changed, for ever. What cannot be written is told later.
    pub(crate) async fn tell_updates(&self) {
        loop {
            let uris = self.tools.providers.take_updated().await;
            while let Err(error) = self.store.record_resource_updates(&uris).await {
                tracing::warn!(error = ?error, "changes of resources are not told yet");
                tokio::time::sleep(RETRY_PAUSE).await;
            }
            for uri in &uris {
                self.queue.resource_updated(uri).await;
            }
        }
    }

    /// Tells providers what somebody listens to, for ever.
    pub(crate) async fn tell_wanted(&self) {
        let mut changes = self.tools.changes();
        let mut told = self.queue.watch_wanted().await;
        let connected = self.queue.connected();
        loop {
            changes.borrow_and_update();
            let telling = self.tools.providers.telling();
            if telling.is_empty() {
                let _ = changes.changed().await;
                continue;
            }
            let looked = Instant::now();
            match self.store.wanted_resources(&telling).await {
                Ok(wanted) => self.tools.providers.tell_wanted(&wanted),
                Err(error) => {
                    tracing::debug!(error = ?error, "what is listened to cannot be read");
                }
            }
            let pause = if *connected.borrow() {
                self.interval
            } else {
                WANTED_PAUSE
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                _ = told.next() => {}
                _ = changes.changed() => {}
            }
            tokio::time::sleep(WANTED_APART.saturating_sub(looked.elapsed())).await;
        }
    }
}
