//! Hints for workers: pushing, giving back, looking after the streams.
//!
//! An entry holds a task id and nothing else, so that losing one loses no fact.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use protocol::TaskId;
use tracing::Span;

use crate::backoff::random_name;
use crate::epochs::Reply;
use crate::error::Error;
use crate::keys::{GROUP, Keys, Lane};
use crate::link::Link;
use crate::metrics::Metrics;
use crate::reader::Streams;

/// "Look at this task": Redis says look, the database says whose it is.
///
/// Give it back with [`Consumer::ack`](crate::Consumer::ack) or
/// [`Consumer::hand_back`](crate::Consumer::hand_back). One that is just dropped comes back, to
/// this worker or another, after `reclaim_idle`.
pub struct Hint {
    /// The task to look at.
    pub id: TaskId,
    /// The lane it came through.
    pub lane: Lane,
    pub(crate) entry: Entry,
    held: Arc<Held>,
}

impl std::fmt::Debug for Hint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Hint({} {}:{} {})",
            self.id, self.lane.tool, self.lane.version, self.entry.entry
        )
    }
}

/// How the streams of a lane stand.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Standing {
    /// Hints there, those delivered among them.
    pub entries: u64,
    /// Hints delivered to a worker and not given back yet.
    pub pending: u64,
    /// Workers that read, or did and are not forgotten yet.
    pub consumers: u64,
}

/// Where an entry is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Entry {
    pub shard: u16,
    pub stream: Arc<str>,
    pub entry: String,
}

/// The entries that a consumer has given out and not got back: what is pending in Redis and not in
/// here was lost on the way.
pub(crate) struct Held {
    entries: Mutex<HashSet<Entry>>,
    metrics: Metrics,
}

impl Held {
    pub(crate) fn new(metrics: Metrics) -> Arc<Held> {
        Arc::new(Held {
            entries: Mutex::default(),
            metrics,
        })
    }

    /// Makes the hint of an entry, unless there is one already.
    pub(crate) fn hold(self: &Arc<Self>, id: TaskId, lane: Lane, entry: Entry) -> Option<Hint> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if !entries.insert(entry.clone()) {
            return None;
        }
        self.metrics.held.inc();
        Some(Hint {
            id,
            lane,
            entry,
            held: Arc::clone(self),
        })
    }

    /// The ids of the entries held in `streams`. Two streams may use one id; the reclaim of the
    /// twin then waits until this one is back.
    pub(crate) fn entries(&self, streams: &Streams) -> Vec<String> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let in_streams = entries
            .iter()
            .filter(|entry| streams.keys.contains(&entry.stream));
        in_streams.map(|entry| entry.entry.clone()).collect()
    }
}

impl Drop for Hint {
    fn drop(&mut self) {
        let mut entries = self
            .held
            .entries
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if entries.remove(&self.entry) {
            self.held.metrics.held.dec();
        }
    }
}

/// The span of a hint on its way into Redis (OpenTelemetry's conventions for messaging); none where
/// nobody's request or job gives it.
fn span(lane: &Lane, id: TaskId) -> Span {
    if !telemetry::traces::inside_span() {
        return Span::none();
    }
    tracing::info_span!(
        target: telemetry::traces::DETAIL,
        "send",
        otel.name = format!("send {}", lane.tool),
        otel.kind = "producer",
        messaging.system = "redis",
        messaging.operation.name = "send",
        "messaging.operation.type" = "send",
        messaging.destination.name = format!("{}:{}", lane.tool, lane.version),
        messaging.message.id = %id,
    )
}

impl Link {
    pub(crate) async fn push(&self, lane: &Lane, id: TaskId) -> Result<(), Error> {
        let span = span(lane, id);
        let shard = self.keys.shard(id);
        let mut invocation = self.scripts.push.key(self.keys.stream(shard, lane));
        invocation
            .key(self.keys.epoch(shard))
            .key(self.keys.lanes(shard))
            .arg(id.to_string())
            .arg(self.epochs.seen(shard))
            .arg(random_name());
        let started = Instant::now();
        let result = self.script(shard, &invocation).await;
        self.metrics
            .push_seconds
            .observe(started.elapsed().as_secs_f64());
        let outcome = result.as_ref().map_or_else(Error::label, |_| "ok");
        self.metrics.pushes.with_label_values(&[outcome]).inc();
        if result.is_err() {
            telemetry::traces::failed(&span, outcome);
        }
        self.epochs.learn(shard, result?);
        Ok(())
    }

    pub(crate) async fn epochs(&self) -> Result<Vec<String>, Error> {
        let shards = self.keys.shards().map(|shard| async move {
            let mut invocation = self.scripts.touch.key(self.keys.epoch(shard));
            invocation.arg(self.epochs.seen(shard)).arg(random_name());
            let reply: Reply = self.script(shard, &invocation).await?;
            self.epochs.learn(shard, reply.clone());
            Ok(reply.0)
        });
        let asked = futures::future::join_all(shards).await;
        if asked.iter().all(Result::is_err) {
            return asked.into_iter().collect();
        }
        // Of a shard that cannot be asked: what it had last.
        let shards = self.keys.shards().zip(asked);
        let epochs = shards.filter_map(|(shard, asked)| asked.ok().or(self.epochs.get(shard)));
        Ok(epochs.collect())
    }

    /// Removes a finished hint if it is still `consumer`'s; best effort.
    pub(crate) async fn ack(&self, consumer: &str, entry: &Entry) {
        let mut invocation = self.scripts.ack.key(&*entry.stream);
        invocation.arg(GROUP).arg(consumer).arg(&entry.entry);
        self.count_return("acked", self.script(entry.shard, &invocation).await);
    }

    /// Puts a hint back for other workers if it is still `consumer`'s; best effort.
    pub(crate) async fn hand_back(&self, consumer: &str, hint: Hint) {
        let mut invocation = self.scripts.hand_back.key(&*hint.entry.stream);
        invocation
            .arg(GROUP)
            .arg(consumer)
            .arg(&hint.entry.entry)
            .arg(hint.id.to_string());
        self.count_return(
            "handed_back",
            self.script(hint.entry.shard, &invocation).await,
        );
    }

    fn count_return(&self, done: &str, result: Result<u64, Error>) {
        let outcome = match result {
            Ok(0) => "not_ours",
            Ok(_) => done,
            Err(error) => {
                // The hint comes back after `reclaim_idle`, and is refused by the claim then.
                tracing::debug!(error = %error, "a hint was not given back");
                "failed"
            }
        };
        self.metrics.returns.with_label_values(&[outcome]).inc();
    }

    /// Hints of a lane that wait for a worker, over all shards.
    pub(crate) async fn depth(&self, lane: &Lane) -> Result<u64, Error> {
        let shards = self.keys.shards().map(|shard| async move {
            let mut invocation = self.scripts.depth.key(self.keys.stream(shard, lane));
            invocation.arg(GROUP);
            self.script::<u64>(shard, &invocation).await
        });
        Ok(futures::future::try_join_all(shards)
            .await?
            .into_iter()
            .sum())
    }

    /// How every lane's streams stand, over all shards.
    pub(crate) async fn streams(&self) -> Result<Vec<(Lane, Standing)>, Error> {
        let mut all: BTreeMap<Lane, Standing> = BTreeMap::new();
        for shard in self.keys.shards() {
            let mut members = redis::cmd("ZRANGE");
            members.arg(self.keys.lanes(shard)).arg(0).arg(-1);
            for stream in self.command::<Vec<String>>(shard, &members).await? {
                let Some(lane) = Keys::lane(&stream) else {
                    continue;
                };
                let mut invocation = self.scripts.stream.key(stream);
                invocation.arg(GROUP);
                let (entries, pending, consumers): (u64, u64, u64) =
                    self.script(shard, &invocation).await?;
                let standing = all.entry(lane).or_default();
                standing.entries += entries;
                standing.pending += pending;
                // A worker has one consumer of one name in every shard.
                standing.consumers = standing.consumers.max(consumers);
            }
        }
        Ok(all.into_iter().collect())
    }

    pub(crate) async fn reap_consumers(&self, idle: Duration) -> Result<u64, Error> {
        let mut reaped = 0;
        let idle_ms = u64::try_from(idle.as_millis()).unwrap_or(u64::MAX);
        for shard in self.keys.shards() {
            let lanes = self.keys.lanes(shard);
            let mut members = redis::cmd("ZRANGE");
            members.arg(&lanes).arg(0).arg(-1);
            for stream in self.command::<Vec<String>>(shard, &members).await? {
                let mut invocation = self.scripts.reap.key(stream);
                invocation.key(&lanes).arg(GROUP).arg(idle_ms);
                let removed: u64 = self.script(shard, &invocation).await?;
                self.metrics.consumers_reaped.inc_by(removed);
                reaped += removed;
            }
        }
        Ok(reaped)
    }
}
