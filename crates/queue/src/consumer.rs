//! A worker's side of the job streams: `next()`.
//!
//! One connection a shard, because a blocking read stops everything else on its connection. A
//! shard is asked without waiting first, with an exact limit, and once it holds no more it is waited for, by a read that
//! brings one or two hints: so a worker never holds hints that it has no room for while others are idle.
//!
//! All operations live in the consumer, not in the future of `next()`: dropping that future loses
//! nothing.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::Queue;
use crate::backoff::random_name;
use crate::error::{Error, group_is_gone, read_error_kind};
use crate::jobs::{Entry, Held, Hint};
use crate::keys::{GROUP, Lane};
use crate::link::Link;
use crate::reader::{Done, Operation, Raw, Reading, Streams};
use crate::shard::{Finished, Shard, Wish, finished};

/// How long waiting reads may take to come home after they were told to.
const HOMECOMING: Duration = Duration::from_millis(100);

/// What [`Consumer::next`] found.
#[derive(Debug, Default)]
pub struct Taken {
    /// Up to as many as there was room for.
    pub hints: Vec<Hint>,
    /// Whether others may wait in Redis. If not, every shard was looked at, and nothing was left but what
    /// came in this moment.
    pub more: bool,
}

/// Reads hints for one worker process.
pub struct Consumer {
    /// Keeps the queue's connections for as long as somebody reads.
    _queue: Queue,
    link: Arc<Link>,
    name: Arc<str>,
    held: Arc<Held>,
    shards: Vec<Shard>,
    ready: VecDeque<Hint>,
    /// Entries that hold no task id; left pending, they would be read for ever.
    garbage: Vec<Entry>,
    /// The shard to ask first, in turn.
    turn: usize,
}

impl Consumer {
    pub(crate) fn new(queue: Queue, link: Arc<Link>, lanes: &[Lane]) -> Consumer {
        let shards = link.keys.shards().map(|index| {
            let streams = Streams::new(&link, index, lanes);
            Shard::new(index, streams, link.config.reclaim_interval)
        });
        Consumer {
            shards: shards.collect(),
            held: Held::new(link.metrics.clone()),
            name: consumer_name().into(),
            ready: VecDeque::new(),
            garbage: Vec::new(),
            turn: 0,
            _queue: queue,
            link,
        }
    }

    /// This consumer's name in Redis: host and a random word, never used twice.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Waits for hints: up to `max`, the caller's free places. Empty when none came within `block`,
    /// and at once for a `max` of 0.
    ///
    /// Cancel-safe: what a dropped call had in hand is given out by the next one.
    ///
    /// # Errors
    /// When Redis could not be read for the whole of `block`; so a loop that calls this again may
    /// do so at once. The caller asks the database for work meanwhile.
    pub async fn next(&mut self, max: usize) -> Result<Taken, Error> {
        if max == 0 {
            return Ok(Taken {
                hints: Vec::new(),
                more: true,
            });
        }
        let deadline = Instant::now() + self.link.config.block;
        loop {
            self.clear_garbage().await;
            if !self.ready.is_empty() {
                return Ok(self.give_out(max).await);
            }
            let wake_at = self.start(max).min(deadline);
            tokio::select! {
                finished = finished(&mut self.shards, |_| true) => self.absorb(finished),
                () = tokio::time::sleep_until(wake_at.into()) => {}
            }
            if self.ready.is_empty() && Instant::now() >= deadline {
                return if self.reads() {
                    Ok(Taken {
                        hints: Vec::new(),
                        more: self.may_hold_more(),
                    })
                } else {
                    Err(Error::Unavailable)
                };
            }
        }
    }

    /// Says that a hint's task is settled, or somebody else's: the hint is removed. Best effort; a
    /// hint that stays comes back and is refused by the claim.
    ///
    /// The future does not borrow the consumer, so that a job may give its hint back while the
    /// consumer waits for others.
    pub fn ack<'hint>(&self, hint: &'hint Hint) -> impl Future<Output = ()> + Send + use<'hint> {
        let (link, name) = (Arc::clone(&self.link), Arc::clone(&self.name));
        async move { link.ack(&name, &hint.entry).await }
    }

    /// The same for a hint that nobody needs any more.
    pub fn ack_owned(&self, hint: Hint) -> impl Future<Output = ()> + Send + use<> {
        let (link, name) = (Arc::clone(&self.link), Arc::clone(&self.name));
        async move { link.ack(&name, &hint.entry).await }
    }

    /// Puts a hint back for other workers, for one that will not be worked on. Best effort; the
    /// future does not borrow the consumer.
    pub fn hand_back(&self, hint: Hint) -> impl Future<Output = ()> + Send + use<> {
        let (link, name) = (Arc::clone(&self.link), Arc::clone(&self.name));
        async move { link.hand_back(&name, hint).await }
    }

    /// Reads other lanes from now on; reads that wait already end within `block`.
    pub async fn set_lanes(&mut self, lanes: Vec<Lane>) {
        for shard in &mut self.shards {
            shard.read(Streams::new(&self.link, shard.index, &lanes));
        }
        self.call_home().await;
    }

    /// Stops reading, so that nothing more is delivered here: for a worker that finishes what it
    /// has. What came in meanwhile is handed back.
    pub async fn stop(&mut self) {
        self.set_lanes(Vec::new()).await;
        while let Some(hint) = self.ready.pop_front() {
            self.link.hand_back(&self.name, hint).await;
        }
    }

    /// Leaves: hands back what was not given out, and removes the consumer where nothing is
    /// pending for it. Hints that the caller still holds keep it until they are reclaimed.
    pub async fn close(mut self) {
        self.stop().await;
        let shards = std::mem::take(&mut self.shards);
        for shard in shards {
            let streams = shard.joined;
            if streams.is_empty() {
                continue;
            }
            let mut leave = self.link.scripts.leave.prepare_invoke();
            for stream in &streams {
                leave.key(&**stream);
            }
            leave.arg(GROUP).arg(&*self.name);
            if let Err(error) = self.link.script::<u64>(shard.index, &leave).await {
                tracing::debug!(error = %error, "the consumer stays behind until it is reaped");
            }
        }
    }

    /// Whether anything can be read at the moment.
    fn reads(&self) -> bool {
        self.link.is_any_up() && self.shards.iter().any(Shard::is_connected)
    }

    /// Whether something may be left on a shard.
    fn may_hold_more(&self) -> bool {
        !self.shards.iter().all(|shard| shard.drained)
    }

    /// Starts what each shard should do now; says when to look again at the latest.
    fn start(&mut self, max: usize) -> Instant {
        let now = Instant::now();
        let mut look_at = now + self.link.config.block;
        // One at a time asks for many, or together they would take more than there is room for.
        let asks = |shard: &Shard| shard.operation().is_some_and(Operation::asks);
        let mut asking = self.shards.iter().any(asks);
        for offset in 0..self.shards.len() {
            let index = (self.turn + offset) % self.shards.len();
            match self.shards[index].wish(now, asking) {
                Wish::Nothing => {}
                Wish::LaterAt(at) => look_at = look_at.min(at),
                Wish::Do(operation) => {
                    asking |= operation.asks();
                    let reading = self.reading(index);
                    self.shards[index].begin(operation, reading, max, &self.held);
                }
            }
        }
        look_at
    }

    fn reading(&self, index: usize) -> Reading {
        Reading {
            link: Arc::clone(&self.link),
            streams: self.shards[index].streams(),
            consumer: Arc::clone(&self.name),
        }
    }

    /// Takes in what an operation came to.
    fn absorb(&mut self, finished: Finished) {
        let Finished {
            shard: index,
            operation,
            streams,
            max,
            done,
        } = finished;
        let Done { connection, result } = done;
        let shard = &mut self.shards[index];
        shard.learn(operation, result.as_ref().ok().map(Vec::len), max);
        let (entries, pause) = match result {
            Ok(entries) => {
                shard.backoff.worked();
                (entries, Duration::ZERO)
            }
            Err(error) => {
                self.link
                    .metrics
                    .read_errors
                    .with_label_values(&[read_error_kind(&error)])
                    .inc();
                tracing::debug!(error = %error, queue.shard = shard.index, "a read failed");
                if !group_is_gone(&error) {
                    self.link.look_around();
                }
                (Vec::new(), shard.backoff.failed())
            }
        };
        shard.settle(connection, pause);
        if !entries.is_empty() {
            shard.turn = shard.turn.wrapping_add(1);
            self.turn = (index + 1) % self.shards.len();
        }
        self.hold(&streams, operation, entries);
        self.publish_readers();
    }

    fn hold(&mut self, streams: &Streams, operation: Operation, entries: Vec<Raw>) {
        for raw in entries {
            let entry = Entry {
                shard: streams.shard,
                stream: Arc::clone(&streams.keys[raw.index]),
                entry: raw.entry,
            };
            let Ok(id) = raw.task.parse() else {
                self.link.metrics.malformed.inc();
                tracing::error!(redis.entry = ?entry, "a job stream holds an entry without a task id");
                self.garbage.push(entry);
                continue;
            };
            let Some(hint) = self.held.hold(id, streams.lanes[raw.index].clone(), entry) else {
                continue;
            };
            self.link
                .metrics
                .hints
                .with_label_values(&[operation.source()])
                .inc();
            self.ready.push_back(hint);
        }
    }

    fn publish_readers(&self) {
        let connected = self.shards.iter().filter(|shard| shard.is_connected());
        let working = connected.count();
        self.link
            .metrics
            .readers
            .set(i64::try_from(working).unwrap_or(i64::MAX));
    }

    /// Gives out up to `max` ready hints. A caller that is full now may not come back for long, so
    /// nothing is left behind for it: waiting reads are called home, and what they bring goes back. What
    /// is known of the shards by then is old when it comes back.
    async fn give_out(&mut self, max: usize) -> Taken {
        let is_full = self.ready.len() >= max;
        if is_full {
            self.call_home().await;
        }
        let more = self.ready.len() > max || self.may_hold_more();
        if is_full {
            self.shards.iter_mut().for_each(Shard::forget);
        }
        while self.ready.len() > max {
            let Some(hint) = self.ready.pop_back() else {
                break;
            };
            self.link.hand_back(&self.name, hint).await;
        }
        let hints = self.ready.drain(..).collect();
        Taken { hints, more }
    }

    /// Ends the reads that wait, and takes in what all reads bring.
    async fn call_home(&mut self) {
        let waiting = self.shards.iter().filter_map(Shard::waits_as);
        let called = waiting.map(|client| self.link.unblock(client));
        futures::future::join_all(called).await;
        // One that could not be called comes by itself within `block`.
        let deadline = tokio::time::Instant::now() + HOMECOMING;
        let reads = |operation: Operation| operation != Operation::Connect;
        while self
            .shards
            .iter()
            .any(|shard| shard.operation().is_some_and(reads))
        {
            tokio::select! {
                finished = finished(&mut self.shards, reads) => self.absorb(finished),
                () = tokio::time::sleep_until(deadline) => return,
            }
        }
    }

    async fn clear_garbage(&mut self) {
        while let Some(entry) = self.garbage.pop() {
            self.link.ack(&self.name, &entry).await;
        }
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.link.metrics.readers.set(0);
    }
}

/// Host and a random word. A name that came back after a restart would inherit what is pending
/// for its dead namesake and keep others from reclaiming it.
fn consumer_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = match host.trim() {
        "" => "worker",
        host => host,
    };
    format!("{host}-{}", random_name())
}
