//! How long the queues are, looked at every other second.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use store::Store;
use tokio_util::sync::CancellationToken;

const INTERVAL: Duration = Duration::from_secs(2);

/// The last look at the queues. An old one is used no longer than it takes to look again: when
/// Postgres is away, calls fail before their budget matters.
#[derive(Default)]
pub(crate) struct Queues {
    waited: RwLock<HashMap<String, Duration>>,
}

impl Queues {
    /// For how long the oldest due job of a tool has waited for a worker.
    pub(crate) fn waited(&self, tool: &str) -> Duration {
        let waited = self.waited.read().unwrap_or_else(PoisonError::into_inner);
        waited.get(tool).copied().unwrap_or_default()
    }

    /// Looks until `ended`.
    pub(crate) async fn keep(&self, store: &Store, ended: CancellationToken) {
        let store = store.with_wait(Duration::ZERO);
        while !ended.is_cancelled() {
            if let Ok(ages) = store.queue_ages().await {
                let ages = ages.into_iter().map(|age| (age.tool, age.waited)).collect();
                *self.waited.write().unwrap_or_else(PoisonError::into_inner) = ages;
            }
            tokio::select! {
                () = ended.cancelled() => {}
                () = tokio::time::sleep(INTERVAL) => {}
            }
        }
    }
}
