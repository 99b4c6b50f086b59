//! The providers of a worker's set, and what they tell of their resources.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use store::{ProviderSpec, ToolSpec};
use tokio::sync::Notify;

use crate::provider::{Job, Provider};
use crate::tool::{BadTool, Served, Tool as _};

/// Changed resources in one statement.
const TOGETHER: usize = 1_000;
/// Changed resources that wait to be told of; more are dropped. They wait only while Postgres is away.
const UPDATED_MAX: usize = 100_000;

/// One provider, asked once what it offers.
struct Entry {
    spec: Arc<ProviderSpec>,
    provider: Arc<dyn Provider>,
    served: Served,
    /// What it was last told that somebody listens to.
    wanted: BTreeSet<String>,
}

#[derive(Default)]
struct State {
    /// By the name of their jobs.
    entries: BTreeMap<String, Entry>,
    /// Resources that changed and of which nobody was told yet.
    updated: BTreeSet<String>,
}

/// Shared by the clones of a set.
#[derive(Clone, Default)]
pub(crate) struct Providers {
    state: Arc<Mutex<State>>,
    told: Arc<Notify>,
}

impl Providers {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn insert(&self, provider: Arc<dyn Provider>) -> Result<(), BadTool> {
        let spec = provider.spec();
        spec.check().map_err(BadTool::Definition)?;
        let name = spec.job();
        spec.policy.validate(&name)?;
        let job = Arc::new(Job::new(spec.clone(), Arc::clone(&provider)));
        let served = Served {
            spec: Arc::new(job.spec()),
            tool: job,
        };
        let mut state = self.state();
        let before = state.entries.get(&name);
        // A new one in the same place has to be told anew.
        let wanted = before
            .filter(|before| Arc::ptr_eq(&before.provider, &provider))
            .map(|before| before.wanted.clone());
        let entry = Entry {
            spec: Arc::new(spec),
            provider,
            served,
            wanted: wanted.unwrap_or_default(),
        };
        state.entries.insert(name, entry);
        Ok(())
    }

    pub(crate) fn remove(&self, name: &str) {
        self.state()
            .entries
            .retain(|_, entry| entry.spec.name != name);
    }

    pub(crate) fn get(&self, name: &str) -> Option<Arc<dyn Provider>> {
        let state = self.state();
        let mut entries = state.entries.values();
        let entry = entries.find(|entry| entry.spec.name == name)?;
        Some(Arc::clone(&entry.provider))
    }

    pub(crate) fn find(&self, job: &str) -> Option<Served> {
        self.state()
            .entries
            .get(job)
            .map(|entry| entry.served.clone())
    }

    pub(crate) fn specs(&self) -> Vec<Arc<ProviderSpec>> {
        let state = self.state();
        let entries = state.entries.values();
        entries.map(|entry| Arc::clone(&entry.spec)).collect()
    }

    pub(crate) fn jobs(&self) -> Vec<Arc<ToolSpec>> {
        let state = self.state();
        let entries = state.entries.values();
        entries
            .map(|entry| Arc::clone(&entry.served.spec))
            .collect()
    }

    /// A resource changed. Changes that come before anybody was told of the first are one.
    pub(crate) fn updated(&self, uri: String) {
        let mut state = self.state();
        if state.updated.len() < UPDATED_MAX {
            state.updated.insert(uri);
        }
        drop(state);
        self.told.notify_one();
    }

    /// Waits for resources that changed, and takes some of them.
    pub(crate) async fn take_updated(&self) -> Vec<String> {
        loop {
            let updated = self.take_some();
            if !updated.is_empty() {
                return updated.into_iter().collect();
            }
            self.told.notified().await;
        }
    }

    fn take_some(&self) -> BTreeSet<String> {
        let mut state = self.state();
        let rest = state.updated.iter().nth(TOGETHER).cloned();
        let later = rest.map(|first| state.updated.split_off(&first));
        std::mem::replace(&mut state.updated, later.unwrap_or_default())
    }

    /// The names of those that tell of changes.
    pub(crate) fn telling(&self) -> Vec<String> {
        let specs = self.specs();
        let tells = |spec: &&Arc<ProviderSpec>| {
            let resources = spec.resources.as_ref();
            resources.is_some_and(|resources| resources.subscribe)
        };
        let telling = specs.iter().filter(tells);
        telling.map(|spec| spec.name.clone()).collect()
    }

    /// Tells each provider what somebody listens to, if that is not what it was told last.
    pub(crate) fn tell_wanted(&self, wanted: &BTreeMap<String, BTreeSet<String>>) {
        let none = BTreeSet::new();
        let mut changed = Vec::new();
        for entry in self.state().entries.values_mut() {
            let now = wanted.get(&entry.spec.name).unwrap_or(&none);
            if entry.wanted != *now {
                entry.wanted.clone_from(now);
                changed.push((Arc::clone(&entry.provider), now.clone()));
            }
        }
        // Not under the lock: it is the author's code.
        for (provider, now) in changed {
            provider.wanted(&now);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn changes_are_taken_in_portions_each_once_and_are_bounded() {
        let providers = Providers::default();
        for turn in 0..2_500 {
            providers.updated(format!("a://{:04}", turn % 1_250));
        }
        assert_eq!(providers.take_updated().await.len(), 1_000);
        assert_eq!(providers.take_updated().await.len(), 250);
        assert!(providers.take_updated().now_or_never().is_none());
        for turn in 0..=UPDATED_MAX {
            providers.updated(format!("a://{turn}"));
        }
        assert_eq!(providers.state().updated.len(), UPDATED_MAX);
    }
}
