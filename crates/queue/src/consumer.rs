//! A worker's side of the job streams: `next()`.
//!
//! One connection a shard, because a blocking read stops everything else on its connection. A
//! shard is asked without waiting first, with an exact limit, and waits for a single hint when it
//! has none: so a worker never holds hints that it has no room for while others are idle.
//!
//! All operations live in the consumer, not in the future of `next()`: dropping that future loses
//! nothing.

use std::collections::{BTreeSet, VecDeque};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;

use crate::Queue;
use crate::backoff::{Backoff, random_name};
use crate::error::{Error, breaks_connection, group_is_gone};
use crate::jobs::{Entry, Held, Hint};
use crate::keys::{GROUP, Lane};
use crate::link::Link;
use crate::reader::{Connection, Done, Operation, Raw, Reading, Streams};

/// How long waiting reads may take to come home after they were told to.
const HOMECOMING: Duration = Duration::from_millis(100);

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

struct Shard {
    index: u16,
    streams: Arc<Streams>,
    /// Every stream ever read, whose groups may know this consumer.
    joined: BTreeSet<Arc<str>>,
    state: State,
    backoff: Backoff,
    /// Whether it was found empty since the last wait.
    empty: bool,
    /// The stream to ask first, in turn.
    turn: usize,
    reclaim_at: Instant,
}

enum State {
    /// Not connected until then.
    Down { retry_at: Instant },
    /// Connected; nothing is asked until then.
    Idle {
        connection: Connection,
        rest_until: Instant,
    },
    /// Asking.
    Busy(Busy),
}

struct Busy {
    operation: Operation,
    /// The connection to unblock, if it waits.
    client_id: Option<u64>,
    /// What is being read: the lanes may change meanwhile.
    streams: Arc<Streams>,
    done: BoxFuture<'static, Done>,
}

/// A finished operation of a shard.
struct Finished {
    shard: usize,
    operation: Operation,
    streams: Arc<Streams>,
    done: Done,
}

impl Consumer {
    pub(crate) fn new(queue: Queue, link: Arc<Link>, lanes: &[Lane]) -> Consumer {
        let now = Instant::now();
        let shards = link.keys.shards().map(|index| {
            let streams = Arc::new(Streams::new(&link, index, lanes));
            Shard {
                index,
                joined: streams.keys.iter().cloned().collect(),
                streams,
                state: State::Down { retry_at: now },
                backoff: Backoff::default(),
                empty: false,
                turn: 0,
                reclaim_at: now + link.config.reclaim_interval,
            }
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
    pub async fn next(&mut self, max: usize) -> Result<Vec<Hint>, Error> {
        if max == 0 {
            return Ok(Vec::new());
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
                    Ok(Vec::new())
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

    /// Puts a hint back for other workers, for one that will not be worked on. Best effort; the
    /// future does not borrow the consumer.
    pub fn hand_back(&self, hint: Hint) -> impl Future<Output = ()> + Send + use<> {
        let (link, name) = (Arc::clone(&self.link), Arc::clone(&self.name));
        async move { link.hand_back(&name, hint).await }
    }

    /// Reads other lanes from now on; reads that wait already end within `block`.
    pub async fn set_lanes(&mut self, lanes: Vec<Lane>) {
        for shard in &mut self.shards {
            shard.streams = Arc::new(Streams::new(&self.link, shard.index, &lanes));
            shard.joined.extend(shard.streams.keys.iter().cloned());
            shard.empty = false;
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
        for streams in shards.into_iter().map(|shard| shard.joined) {
            if streams.is_empty() {
                continue;
            }
            let mut leave = self.link.scripts.leave.prepare_invoke();
            for stream in &streams {
                leave.key(&**stream);
            }
            leave.arg(GROUP).arg(&*self.name);
            if let Err(error) = self.link.script::<u64>(&leave).await {
                tracing::debug!(error = %error, "the consumer stays behind until it is reaped");
                return;
            }
        }
    }

    /// Whether anything can be read at the moment.
    fn reads(&self) -> bool {
        let connected = |shard: &Shard| match &shard.state {
            State::Down { .. } => false,
            State::Idle { .. } => true,
            State::Busy(busy) => busy.operation != Operation::Connect,
        };
        self.link.is_up() && self.shards.iter().any(connected)
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
                    self.begin(index, operation, max);
                }
            }
        }
        look_at
    }

    fn begin(&mut self, index: usize, operation: Operation, max: usize) {
        let shard = &mut self.shards[index];
        let streams = Arc::clone(&shard.streams);
        let reading = Reading {
            link: Arc::clone(&self.link),
            streams: Arc::clone(&streams),
            consumer: Arc::clone(&self.name),
        };
        let before = std::mem::replace(
            &mut shard.state,
            State::Down {
                retry_at: Instant::now(),
            },
        );
        let (client_id, done): (_, BoxFuture<'static, Done>) = match (operation, before) {
            (Operation::Take, State::Idle { connection, .. }) => {
                let first = shard.turn % streams.keys.len().max(1);
                (None, Box::pin(reading.take(connection, max, first)))
            }
            (Operation::Wait, State::Idle { connection, .. }) => (
                Some(connection.client_id),
                Box::pin(reading.wait(connection)),
            ),
            (Operation::Reclaim, State::Idle { connection, .. }) => {
                shard.reclaim_at = Instant::now() + self.link.config.reclaim_interval;
                let held = self.held.entries(&streams);
                (None, Box::pin(reading.reclaim(connection, max, held)))
            }
            _ => (None, Box::pin(reading.connect())),
        };
        shard.state = State::Busy(Busy {
            operation,
            client_id,
            streams,
            done,
        });
    }

    /// Takes in what an operation came to.
    fn absorb(&mut self, finished: Finished) {
        let Finished {
            shard: index,
            operation,
            streams,
            done,
        } = finished;
        let Done { connection, result } = done;
        let shard = &mut self.shards[index];
        let now = Instant::now();
        let (entries, pause) = match result {
            Ok(entries) => {
                shard.backoff.worked();
                (entries, Duration::ZERO)
            }
            Err(error) => {
                self.link
                    .metrics
                    .read_errors
                    .with_label_values(&[error_kind(&error)])
                    .inc();
                tracing::debug!(error = %error, queue.shard = shard.index, "a read failed");
                (Vec::new(), shard.backoff.failed())
            }
        };
        shard.state = match connection {
            Some(connection) => State::Idle {
                connection,
                rest_until: now + pause,
            },
            None => State::Down {
                retry_at: now + pause,
            },
        };
        shard.empty = operation == Operation::Take && entries.is_empty();
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
        let down = |shard: &&Shard| matches!(shard.state, State::Down { .. });
        let working = self.shards.len() - self.shards.iter().filter(down).count();
        self.link
            .metrics
            .readers
            .set(i64::try_from(working).unwrap_or(i64::MAX));
    }

    /// Gives out up to `max` ready hints. A caller that is full now may not come back for long, so
    /// nothing is left behind for it: waiting reads are called home, and what they bring goes back.
    async fn give_out(&mut self, max: usize) -> Vec<Hint> {
        if self.ready.len() >= max {
            self.call_home().await;
            while self.ready.len() > max {
                let Some(hint) = self.ready.pop_back() else {
                    break;
                };
                self.link.hand_back(&self.name, hint).await;
            }
        }
        let count = max.min(self.ready.len());
        self.ready.drain(..count).collect()
    }

    /// Ends the reads that wait, and takes in what all reads bring.
    async fn call_home(&mut self) {
        let waiting = self.shards.iter().filter_map(|shard| match &shard.state {
            State::Busy(busy) => busy.client_id,
            State::Down { .. } | State::Idle { .. } => None,
        });
        for client_id in waiting.collect::<Vec<_>>() {
            let mut unblock = redis::cmd("CLIENT");
            unblock.arg("UNBLOCK").arg(client_id);
            if let Err(error) = self.link.command::<u64>(&unblock).await {
                tracing::debug!(error = %error, "a waiting read was not called home");
                break;
            }
        }
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

/// The next operation to finish among those that `of` picks. Cancel-safe.
async fn finished(shards: &mut [Shard], of: impl Fn(Operation) -> bool) -> Finished {
    poll_fn(|context| {
        for (index, shard) in shards.iter_mut().enumerate() {
            let State::Busy(busy) = &mut shard.state else {
                continue;
            };
            if !of(busy.operation) {
                continue;
            }
            if let Poll::Ready(done) = busy.done.as_mut().poll(context) {
                let (operation, streams) = (busy.operation, Arc::clone(&busy.streams));
                // Replaced by what `absorb` finds; a finished future must not be polled again.
                shard.state = State::Down {
                    retry_at: Instant::now(),
                };
                return Poll::Ready(Finished {
                    shard: index,
                    operation,
                    streams,
                    done,
                });
            }
        }
        Poll::Pending
    })
    .await
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

fn error_kind(error: &redis::RedisError) -> &'static str {
    if group_is_gone(error) {
        "group_gone"
    } else if error.is_timeout() {
        "timeout"
    } else if breaks_connection(error) {
        "connection"
    } else {
        "refused"
    }
}

/// What a shard should do next.
enum Wish {
    Nothing,
    LaterAt(Instant),
    Do(Operation),
}

impl Shard {
    fn operation(&self) -> Option<Operation> {
        match &self.state {
            State::Busy(busy) => Some(busy.operation),
            State::Down { .. } | State::Idle { .. } => None,
        }
    }

    fn wish(&self, now: Instant, asking: bool) -> Wish {
        match &self.state {
            State::Busy(_) => Wish::Nothing,
            State::Down { retry_at } if *retry_at > now => Wish::LaterAt(*retry_at),
            State::Down { .. } => Wish::Do(Operation::Connect),
            State::Idle { rest_until, .. } if *rest_until > now => Wish::LaterAt(*rest_until),
            State::Idle { .. } if self.streams.keys.is_empty() => Wish::Nothing,
            State::Idle { .. } if self.reclaim_at <= now && !asking => Wish::Do(Operation::Reclaim),
            State::Idle { .. } if self.empty => Wish::Do(Operation::Wait),
            State::Idle { .. } if asking => Wish::Nothing,
            State::Idle { .. } => Wish::Do(Operation::Take),
        }
    }
}
