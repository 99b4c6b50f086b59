//! What this process knows of each shard's epoch.
//!
//! A shard's epoch is a random word that lives and dies with the data in Redis. Rows are stamped
//! with it when they are hinted; a row with another stamp than the current one was hinted in a
//! Redis that no longer exists. A count of pushes beside it betrays a Redis that went back in time
//! and still has the word.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{RedisResult, Script};

use crate::backoff::random_name;
use crate::keys::Keys;
use crate::metrics::Metrics;

/// All shards lose their data together, and a Redis that evicts loses it again and again: the log
/// says it so often, the metric counts every time.
const TELL_INTERVAL: Duration = Duration::from_secs(10);

/// The known epochs, one a shard.
pub(crate) struct Epochs {
    shards: Vec<Mutex<Known>>,
    metrics: Metrics,
    told_at: Mutex<Option<Instant>>,
}

#[derive(Default)]
struct Known {
    epoch: Option<String>,
    pushed: u64,
}

/// A script's reply: the epoch, and the count of pushes as text.
pub(crate) type Reply = (String, u64);

impl Epochs {
    pub(crate) fn new(shards: u16, metrics: Metrics) -> Epochs {
        let shards = (0..shards).map(|_| Mutex::default()).collect();
        Epochs {
            shards,
            metrics,
            told_at: Mutex::default(),
        }
    }

    fn known(&self, shard: u16) -> MutexGuard<'_, Known> {
        self.shards[usize::from(shard)]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The last known epoch of a shard.
    pub(crate) fn get(&self, shard: u16) -> Option<String> {
        self.known(shard).epoch.clone()
    }

    /// The highest count of pushes seen in a shard.
    pub(crate) fn seen(&self, shard: u16) -> u64 {
        self.known(shard).pushed
    }

    /// Takes in what Redis said. Replies may arrive out of order, so the higher count is newer.
    pub(crate) fn learn(&self, shard: u16, (epoch, pushed): Reply) {
        let mut known = self.known(shard);
        if pushed < known.pushed {
            return;
        }
        known.pushed = pushed;
        if known.epoch.as_ref() == Some(&epoch) {
            return;
        }
        let changed = known.epoch.replace(epoch).is_some();
        drop(known);
        if changed {
            self.metrics.epoch_changes.inc();
            if self.shall_tell() {
                tracing::warn!(
                    queue.shard = shard,
                    "redis lost data; its tasks will be hinted again"
                );
            }
        }
    }

    fn shall_tell(&self) -> bool {
        let mut told_at = self.told_at.lock().unwrap_or_else(PoisonError::into_inner);
        let shall = told_at.is_none_or(|at| at.elapsed() >= TELL_INTERVAL);
        if shall {
            *told_at = Some(Instant::now());
        }
        shall
    }

    /// Asks a server for the epochs of these shards, making those that are missing.
    pub(crate) async fn touch(
        &self,
        connection: &MultiplexedConnection,
        script: &Script,
        keys: &Keys,
        shards: &[u16],
    ) -> RedisResult<()> {
        let replies = shards.iter().map(|shard| {
            let mut connection = connection.clone();
            async move {
                let mut invocation = script.key(keys.epoch(*shard));
                invocation.arg(self.seen(*shard)).arg(random_name());
                invocation.invoke_async::<Reply>(&mut connection).await
            }
        });
        let replies = futures::future::try_join_all(replies).await?;
        for (shard, reply) in shards.iter().zip(replies) {
            self.learn(*shard, reply);
        }
        Ok(())
    }
}
