//! One shard as a consumer sees it: what its connection is doing, and what it should do next.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;

use crate::backoff::Backoff;
use crate::jobs::Held;
use crate::reader::{Client, Connection, Done, Operation, Reading, Streams};

/// A shard of a consumer.
pub(crate) struct Shard {
    pub index: u16,
    pub backoff: Backoff,
    /// What is read now.
    streams: Arc<Streams>,
    /// Every stream ever read, whose groups may know this consumer.
    pub joined: BTreeSet<Arc<str>>,
    state: State,
    /// Whether nothing was left there by what was done last: it is waited for, and not asked again.
    pub empty: bool,
    /// Whether the last look left nothing there: what came since, somebody waits for.
    pub drained: bool,
    /// The stream to ask first, in turn.
    pub turn: usize,
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
    client: Option<Client>,
    /// What is being read: the lanes may change meanwhile.
    streams: Arc<Streams>,
    /// For so many hints it was begun: the caller may have room for more meanwhile. 0: nobody knows any more.
    max: usize,
    done: BoxFuture<'static, Done>,
}

/// A finished operation of a shard.
pub(crate) struct Finished {
    pub shard: usize,
    pub operation: Operation,
    pub streams: Arc<Streams>,
    pub max: usize,
    pub done: Done,
}

/// What a shard should do next.
pub(crate) enum Wish {
    Nothing,
    LaterAt(Instant),
    Do(Operation),
}

impl Shard {
    pub(crate) fn new(index: u16, streams: Streams, reclaim_interval: Duration) -> Shard {
        let now = Instant::now();
        Shard {
            index,
            backoff: Backoff::default(),
            joined: streams.keys.iter().cloned().collect(),
            streams: Arc::new(streams),
            state: State::Down { retry_at: now },
            empty: false,
            drained: false,
            turn: 0,
            reclaim_at: now + reclaim_interval,
        }
    }

    pub(crate) fn streams(&self) -> Arc<Streams> {
        Arc::clone(&self.streams)
    }

    /// Reads these from the next operation on.
    pub(crate) fn read(&mut self, streams: Streams) {
        self.joined.extend(streams.keys.iter().cloned());
        self.streams = Arc::new(streams);
        self.forget();
    }

    /// Nothing is known of what it holds, and what is under way will say nothing of it either: it is
    /// asked before it is waited for.
    pub(crate) fn forget(&mut self) {
        self.empty = false;
        self.drained = false;
        if let State::Busy(busy) = &mut self.state {
            busy.max = 0;
        }
    }

    /// Learns from an operation that was begun for `max` hints how many it found; `None` if it failed.
    pub(crate) fn learn(&mut self, operation: Operation, found: Option<usize>, max: usize) {
        let is_below = found.is_some_and(|found| found < max);
        self.drained = match operation {
            Operation::Connect => false,
            Operation::Take => is_below,
            Operation::Reclaim => self.drained && is_below,
            // It was begun where nothing was left, and brings what came since.
            Operation::Wait => self.drained && found.is_some(),
        };
        self.empty = match operation {
            Operation::Take => is_below,
            // After a wait in vain it is looked at, to be sure.
            Operation::Wait => is_below && found != Some(0),
            Operation::Connect | Operation::Reclaim => false,
        };
    }

    pub(crate) fn operation(&self) -> Option<Operation> {
        match &self.state {
            State::Busy(busy) => Some(busy.operation),
            State::Down { .. } | State::Idle { .. } => None,
        }
    }

    /// The connection that waits, for `CLIENT UNBLOCK`.
    pub(crate) fn waits_as(&self) -> Option<Client> {
        match &self.state {
            State::Busy(busy) => busy.client.clone(),
            State::Down { .. } | State::Idle { .. } => None,
        }
    }

    /// Whether there is a connection, as far as known.
    pub(crate) fn is_connected(&self) -> bool {
        match &self.state {
            State::Down { .. } => false,
            State::Idle { .. } => true,
            State::Busy(busy) => busy.operation != Operation::Connect,
        }
    }

    /// What to do next; `asking`: another shard asks for many hints at the moment.
    pub(crate) fn wish(&self, now: Instant, asking: bool) -> Wish {
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

    /// Begins what was wished, for up to `max` hints.
    pub(crate) fn begin(
        &mut self,
        operation: Operation,
        reading: Reading,
        max: usize,
        held: &Held,
    ) {
        let now = Instant::now();
        let streams = Arc::clone(&reading.streams);
        let max = match operation {
            Operation::Wait => reading.waits_for(max),
            _ => max,
        };
        let before = std::mem::replace(&mut self.state, State::Down { retry_at: now });
        let (client, done): (_, BoxFuture<'static, Done>) = match (operation, before) {
            (Operation::Take, State::Idle { connection, .. }) => {
                let first = self.turn % streams.keys.len().max(1);
                (None, Box::pin(reading.take(connection, max, first)))
            }
            (Operation::Wait, State::Idle { connection, .. }) => {
                let client = Some(connection.client.clone());
                (client, Box::pin(reading.wait(connection, max)))
            }
            (Operation::Reclaim, State::Idle { connection, .. }) => {
                self.reclaim_at = now + reading.link.config.reclaim_interval;
                let held = held.entries(&streams);
                (None, Box::pin(reading.reclaim(connection, max, held)))
            }
            _ => (None, Box::pin(reading.connect())),
        };
        self.state = State::Busy(Busy {
            operation,
            client,
            streams,
            max,
            done,
        });
    }

    /// Rests after an operation that left this connection, or none.
    pub(crate) fn settle(&mut self, connection: Option<Connection>, pause: Duration) {
        let until = Instant::now() + pause;
        self.state = match connection {
            Some(connection) => State::Idle {
                connection,
                rest_until: until,
            },
            None => State::Down { retry_at: until },
        };
    }
}

/// The next operation to finish among those that `of` picks; to be settled. Cancel-safe.
pub(crate) async fn finished(shards: &mut [Shard], of: impl Fn(Operation) -> bool) -> Finished {
    poll_fn(|context| {
        for (index, shard) in shards.iter_mut().enumerate() {
            let State::Busy(busy) = &mut shard.state else {
                continue;
            };
            if !of(busy.operation) {
                continue;
            }
            if let Poll::Ready(done) = busy.done.as_mut().poll(context) {
                let (operation, max) = (busy.operation, busy.max);
                let streams = Arc::clone(&busy.streams);
                // A finished future must not be polled again.
                shard.settle(None, Duration::ZERO);
                return Poll::Ready(Finished {
                    shard: index,
                    operation,
                    streams,
                    max,
                    done,
                });
            }
        }
        Poll::Pending
    })
    .await
}
