//! Hints in Redis: which tasks to look at, and that something about a task changed.
//!
//! Losing all of this costs time, never correctness: entries and messages carry task ids, the
//! database holds the facts, and everything here is found again from there. Every function fails
//! fast when Redis is down, and none retries: the caller has a better answer than waiting.
//!
//! Architecture invariant: this crate never knows Postgres, and no answer depends on it. No other
//! crate sends a Redis command.
//!
//! | promise | where | tested in |
//! | --- | --- | --- |
//! | a hint reaches one consumer at a time | consumer group, `lua/take.lua` | `tests/it/jobs.rs` |
//! | a hint lost on its way back is read again | `lua/recover.lua` | `tests/it/jobs.rs` |
//! | a lost stream or group is made again, without an error loop | `lua/take.lua` | `tests/it/outages.rs` |
//! | lost data is noticed | `epochs.rs`, `lua/touch.lua` | `tests/it/outages.rs` |
//! | a consumer with something pending is never removed | `lua/reap.lua`, `lua/leave.lua` | `tests/it/jobs.rs` |
//! | a watcher is told when messages may be missing | `hub.rs` | `tests/it/wakeups.rs` |

mod address;
mod backoff;
pub mod config;
mod consumer;
mod epochs;
pub mod error;
mod hub;
mod inspect;
mod jobs;
mod keys;
mod line;
mod link;
mod metrics;
mod node;
mod reader;
mod scripts;
mod shard;
mod subscriber;
mod topology;
mod wakeups;

use std::sync::Arc;
use std::time::Duration;

use protocol::TaskId;
use telemetry::Registry;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

pub use config::Config;
pub use consumer::{Consumer, Taken};
pub use error::Error;
pub use hub::{Event, Watch};
pub use inspect::{Part, Server, Servers};
pub use jobs::{Hint, Standing};
pub use keys::Lane;

use crate::hub::Hub;
use crate::keys::Channel;
use crate::link::Link;
use crate::metrics::Metrics;
use crate::subscriber::Subscriber;
use crate::topology::Scout;

/// The queue, as one process sees it. Cheap to clone; the last clone closes the connections.
#[derive(Clone)]
pub struct Queue {
    link: Arc<Link>,
    /// One; or, in a cluster, one for each shard.
    hubs: Arc<[Arc<Hub>]>,
    _tasks: Arc<Tasks>,
}

/// The background tasks; they end when this is dropped.
struct Tasks {
    _stop: DropGuard,
    _tracker: TaskTracker,
}

impl Queue {
    /// Sets the queue up; Redis need not be there, and is connected to in the background. Must be
    /// called inside a tokio runtime.
    ///
    /// # Errors
    /// [`Error::Config`] if a setting is wrong.
    pub fn new(config: Config, registry: &Registry) -> Result<Queue, Error> {
        let metrics = Metrics::prepared(registry);
        let shutdown = CancellationToken::new();
        let tracker = TaskTracker::new();
        let link = Arc::new(Link::new(config, metrics.clone(), &shutdown)?);
        for node in link.nodes() {
            let link = Arc::clone(&link);
            tracker.spawn(async move { link.keep(&node).await });
        }
        let mut hubs = 1;
        if link.config.cluster {
            hubs = link.config.shards;
            tracker.spawn(Scout::new(&link, &tracker, &shutdown).run());
        }
        let hubs = (0..hubs).map(|shard| {
            let (hub, orders) = Hub::new(metrics.clone());
            let subscriber = Subscriber {
                link: Arc::clone(&link),
                hub: Arc::clone(&hub),
                orders,
                shard,
                anchor: link.keys.catalogue(shard).name.into(),
            };
            tracker.spawn(subscriber.keep(shutdown.clone()));
            hub
        });
        let hubs = hubs.collect();
        let tasks = Tasks {
            _stop: shutdown.drop_guard(),
            _tracker: tracker,
        };
        Ok(Queue {
            link,
            hubs,
            _tasks: Arc::new(tasks),
        })
    }

    /// Hints that a task is there to be worked on. Call it after the commit that says so.
    ///
    /// # Errors
    /// When Redis is down or refuses; the reconcile sweep hints the task again.
    pub async fn push(&self, lane: &Lane, id: TaskId) -> Result<(), Error> {
        self.link.push(lane, id).await
    }

    /// The epoch to stamp a row with that is about to be hinted; `None` when Redis is down, which
    /// leaves the row unhinted. From memory, at most `probe_interval` old.
    pub fn epoch(&self, id: TaskId) -> Option<String> {
        let shard = self.link.keys.shard(id);
        if !self.link.is_up(shard) {
            return None;
        }
        self.link.epochs.get(shard)
    }

    /// The current epochs of all shards, asked of Redis now and made where missing. A row with a
    /// stamp that is not among them was hinted in a Redis that has lost its data. Where some of a
    /// cluster's servers are down, what their shards had last.
    ///
    /// # Errors
    /// When Redis is down or refuses: in a cluster, for every shard.
    pub async fn epochs(&self) -> Result<Vec<String>, Error> {
        self.link.epochs().await
    }

    /// Begins to read hints from these lanes, under a name of its own.
    pub fn consumer(&self, lanes: Vec<Lane>) -> Consumer {
        Consumer::new(self.clone(), Arc::clone(&self.link), &lanes)
    }

    /// Tells whoever waits for this task that it may have changed. Best effort.
    pub async fn wake(&self, id: TaskId) {
        self.link.wake(id).await;
    }

    /// Tells the worker of this task to look whether it should stop. Best effort.
    pub async fn stop(&self, id: TaskId) {
        self.link.stop(id).await;
    }

    /// Passes the progress of a running tool to whoever holds its call. Best effort, lossy; more
    /// than `progress_bytes_max` is dropped.
    pub async fn progress(&self, id: TaskId, json: &[u8]) {
        self.link.progress(id, json).await;
    }

    /// Tells all gateways that the tool catalogue may have changed. Best effort.
    pub async fn catalogue_changed(&self) {
        self.link.catalogue_changed().await;
    }

    /// Registers interest in a task's changes and progress, then returns: look at the task *after*
    /// this. When Redis is down it returns at once; then [`Event::Reconnected`] comes as soon as
    /// the subscription is in place.
    pub async fn watch(&self, id: TaskId) -> Watch {
        self.watch_channel(self.link.keys.changes(id)).await
    }

    /// As [`watch`](Queue::watch), for a worker that wants to know of stop requests:
    /// [`Event::Changed`] means that one may be there.
    pub async fn watch_stop(&self, id: TaskId) -> Watch {
        self.watch_channel(self.link.keys.stops(id)).await
    }

    /// Tells whoever listens to this resource that it has changed. Best effort.
    pub async fn resource_updated(&self, uri: &str) {
        self.link.resource_updated(uri).await;
    }

    /// As [`watch`](Queue::watch), for changes of a resource.
    pub async fn watch_resource(&self, uri: &str) -> Watch {
        self.watch_channel(self.link.keys.resource(uri)).await
    }

    /// Tells workers that somebody listens to resources nobody listened to before. Best effort.
    pub async fn wanted_changed(&self) {
        self.link.wanted_changed().await;
    }

    /// As [`watch`](Queue::watch), for what is listened to.
    pub async fn watch_wanted(&self) -> Watch {
        self.watch_channel(self.link.keys.wanted()).await
    }

    async fn watch_channel(&self, channel: Channel) -> Watch {
        let hub = self.hubs.get(usize::from(channel.shard));
        let hub = hub.unwrap_or(&self.hubs[0]);
        self.link.watch(hub, channel.name).await
    }

    /// A count that moves when the tool catalogue may have changed, also after a break.
    pub fn catalogue_watch(&self) -> watch::Receiver<u64> {
        self.hubs[0].catalogue()
    }

    /// Whether hints flow, both ways. `false`: Redis is not reachable as far as known; look at the
    /// database more often.
    pub fn connected(&self) -> watch::Receiver<bool> {
        self.link.connected()
    }

    /// Why Redis does not let this process in, and what to do, where waiting does not help.
    pub fn refused(&self) -> Option<&'static str> {
        self.link.refused()
    }

    /// Whether Redis may throw hints away when its memory runs short (`maxmemory-policy` other than
    /// `noeviction`), as far as known: asked at every connection and once a minute.
    pub fn may_evict(&self) -> bool {
        self.link.may_evict()
    }

    /// Hints of a lane that wait for a worker, over all shards.
    ///
    /// # Errors
    /// When Redis is down or refuses.
    pub async fn depth(&self, lane: &Lane) -> Result<u64, Error> {
        self.link.depth(lane).await
    }

    /// How the streams of every lane stand, over all shards; for metrics.
    ///
    /// # Errors
    /// When Redis is down or refuses.
    pub async fn streams(&self) -> Result<Vec<(Lane, Standing)>, Error> {
        self.link.streams().await
    }

    /// What servers say of themselves, asked on connections of their own; for operators.
    ///
    /// # Errors
    /// When Redis cannot be reached, or hides it: of a cluster, when no server says who keeps what.
    pub async fn servers(&self) -> Result<Servers, Error> {
        self.link.servers().await
    }

    /// Removes consumers not heard of for `idle` that have nothing pending, and streams left
    /// without entries and consumers. Returns the number of consumers removed. Safe to repeat.
    ///
    /// # Errors
    /// When Redis is down or refuses; what was removed until then stays removed.
    pub async fn reap_consumers(&self, idle: Duration) -> Result<u64, Error> {
        self.link.reap_consumers(idle).await
    }
}
