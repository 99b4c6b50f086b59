//! One shard's reading connection, and what is done with it.
//!
//! Each operation takes the connection and gives it back with what it found, and can wait while
//! nobody looks at it: a read that is abandoned half way is still delivered by Redis, and its
//! hint would be nobody's.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::streams::StreamReadReply;
use redis::{RedisResult, Script};

use crate::error::group_is_gone;
use crate::keys::{GROUP, Lane};
use crate::link::{Link, within};
use crate::node::Node;

/// The streams of one shard that a consumer reads, with their lanes.
pub(crate) struct Streams {
    pub shard: u16,
    pub keys: Vec<Arc<str>>,
    pub lanes: Vec<Lane>,
    lanes_key: String,
}

impl Streams {
    pub(crate) fn new(link: &Link, shard: u16, lanes: &[Lane]) -> Streams {
        Streams {
            shard,
            keys: lanes
                .iter()
                .map(|lane| link.keys.stream(shard, lane).into())
                .collect(),
            lanes: lanes.to_vec(),
            lanes_key: link.keys.lanes(shard),
        }
    }
}

/// A connection of one's own: only one command at a time, and that one may block.
pub(crate) struct Connection {
    redis: MultiplexedConnection,
    /// For `CLIENT UNBLOCK`.
    pub client: Client,
}

/// A connection, as its server knows it.
#[derive(Clone)]
pub(crate) struct Client {
    pub id: u64,
    pub node: Arc<Node>,
}

/// What an operation needs to know.
#[derive(Clone)]
pub(crate) struct Reading {
    pub link: Arc<Link>,
    pub streams: Arc<Streams>,
    pub consumer: Arc<str>,
}

/// An entry as read; not yet known to hold a task id.
pub(crate) struct Raw {
    pub index: usize,
    pub entry: String,
    pub task: String,
}

/// What an operation came to.
pub(crate) struct Done {
    /// The connection, if it is still of use.
    pub connection: Option<Connection>,
    pub result: RedisResult<Vec<Raw>>,
}

/// The kinds of operation; the label of the hints found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Connect, and read again what may have been lost on the way.
    Connect,
    /// Take what is there.
    Take,
    /// Wait for a hint.
    Wait,
    /// Take over what others left.
    Reclaim,
}

impl Operation {
    /// Whether it may bring many hints.
    pub(crate) fn asks(self) -> bool {
        matches!(self, Operation::Take | Operation::Reclaim)
    }

    pub(crate) fn source(self) -> &'static str {
        match self {
            Operation::Connect => "recovered",
            Operation::Take | Operation::Wait => "new",
            Operation::Reclaim => "reclaimed",
        }
    }
}

impl Reading {
    pub(crate) async fn connect(self) -> Done {
        match self.connect_and_recover().await {
            Ok((connection, found)) => Done {
                connection: Some(connection),
                result: Ok(found),
            },
            Err(error) => Done {
                connection: None,
                result: Err(error),
            },
        }
    }

    async fn connect_and_recover(&self) -> RedisResult<(Connection, Vec<Raw>)> {
        let node = self.link.node(self.streams.shard).ok_or_else(|| {
            redis::RedisError::from(std::io::Error::from(std::io::ErrorKind::NotConnected))
        })?;
        let mut redis = self.link.connect(node.at.as_ref()).await?;
        self.link
            .metrics
            .connects
            .with_label_values(&["reader"])
            .inc();
        let mut asking = redis::cmd("CLIENT");
        asking.arg("ID");
        let id = self.brief(asking.query_async(&mut redis)).await?;
        let mut found = Vec::new();
        if !self.streams.keys.is_empty() {
            let mut recover = self.prepare(&self.link.scripts.recover);
            recover.arg(GROUP).arg(&*self.consumer);
            found = self.brief(self.run(&recover, &mut redis)).await?;
        }
        let client = Client { id, node };
        Ok((Connection { redis, client }, found))
    }

    /// Takes up to `max` hints without waiting, looking at stream number `first` first.
    pub(crate) async fn take(self, mut connection: Connection, max: usize, first: usize) -> Done {
        let mut take = self.prepare(&self.link.scripts.take);
        take.key(&self.streams.lanes_key)
            .arg(GROUP)
            .arg(&*self.consumer)
            .arg(max)
            .arg(first);
        let result = self.brief(self.run(&take, &mut connection.redis)).await;
        Done::new(connection, result)
    }

    /// Takes over up to `max` hints that have been idle for `reclaim_idle`.
    pub(crate) async fn reclaim(
        self,
        mut connection: Connection,
        max: usize,
        held: Vec<String>,
    ) -> Done {
        let idle = self.link.config.reclaim_idle;
        let mut reclaim = self.prepare(&self.link.scripts.reclaim);
        reclaim
            .arg(GROUP)
            .arg(&*self.consumer)
            .arg(millis(idle))
            .arg(max)
            .arg(held);
        let result = self.brief(self.run(&reclaim, &mut connection.redis)).await;
        Done::new(connection, result)
    }

    /// How many hints of a stream a wait brings at most, where there is room for `max`: 2 show that more may be left
    /// there, 1 that nothing is. Where they might have no room, since all shards are waited for at once and each stream
    /// is counted by itself, it is 1, and nobody knows.
    pub(crate) fn waits_for(&self, max: usize) -> usize {
        let waits = self.link.keys.shards().len() * self.streams.keys.len();
        if max >= 2 * waits { 2 } else { 1 }
    }

    /// Waits up to `block` for a hint; `count` of each stream at most.
    pub(crate) async fn wait(self, mut connection: Connection, count: usize) -> Done {
        let block = self.link.config.block;
        let mut command = redis::cmd("XREADGROUP");
        command.arg("GROUP").arg(GROUP).arg(&*self.consumer);
        command
            .arg("COUNT")
            .arg(count)
            .arg("BLOCK")
            .arg(millis(block))
            .arg("STREAMS");
        for key in &self.streams.keys {
            command.arg(&**key);
        }
        for _ in &self.streams.keys {
            command.arg(">");
        }
        // Redis starts the time anew when another consumer snatched the entry that woke us, so a
        // wait may last longer than it says.
        let limit = block * 2 + self.link.config.command_timeout;
        let reading = command.query_async::<Option<StreamReadReply>>(&mut connection.redis);
        let result = within(limit, reading)
            .await
            .map(|reply| self.entries(reply));
        Done::new(connection, result)
    }

    fn entries(&self, reply: Option<StreamReadReply>) -> Vec<Raw> {
        let streams = reply.map(|reply| reply.keys).unwrap_or_default();
        let mut found = Vec::new();
        for stream in streams {
            let index = self
                .streams
                .keys
                .iter()
                .position(|key| **key == *stream.key);
            let index = index.expect("Redis answers with the streams that were asked for");
            for entry in stream.ids {
                let task = entry.get("task").unwrap_or_default();
                found.push(Raw {
                    index,
                    entry: entry.id,
                    task,
                });
            }
        }
        found
    }

    fn prepare<'a>(&self, script: &'a Script) -> redis::ScriptInvocation<'a> {
        let mut invocation = script.prepare_invoke();
        for key in &self.streams.keys {
            invocation.key(&**key);
        }
        invocation
    }

    /// Runs a reading script; its reply is flat, starting with the number of groups made.
    async fn run(
        &self,
        invocation: &redis::ScriptInvocation<'_>,
        redis: &mut MultiplexedConnection,
    ) -> RedisResult<Vec<Raw>> {
        let reply: Vec<String> = invocation.invoke_async(redis).await?;
        let (made, entries) = reply
            .split_first()
            .ok_or_else(|| unexpected("an empty reply"))?;
        let made: u64 = made.parse().map_err(|_| unexpected(made))?;
        if made > 0 {
            self.link.metrics.groups_made.inc_by(made);
            tracing::info!(queue.groups = made, "made consumer groups");
        }
        let (entries, rest) = entries.as_chunks::<3>();
        if !rest.is_empty() {
            return Err(unexpected("an incomplete entry"));
        }
        let raw = entries.iter().map(|[index, entry, task]| {
            let index = index.parse().map_err(|_| unexpected(index))?;
            Ok(Raw {
                index,
                entry: entry.clone(),
                task: task.clone(),
            })
        });
        raw.collect()
    }

    async fn brief<T>(&self, future: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
        within(self.link.config.command_timeout, future).await
    }
}

impl Done {
    /// Keeps the connection if it is of use: after any error but a missing group, what it still
    /// has to say is unknown.
    fn new(connection: Connection, result: RedisResult<Vec<Raw>>) -> Done {
        let keep = result.as_ref().map_or_else(group_is_gone, |_| true);
        Done {
            connection: keep.then_some(connection),
            result,
        }
    }
}

fn unexpected(what: &str) -> redis::RedisError {
    (
        redis::ErrorKind::UnexpectedReturnType,
        "reading script",
        what.to_owned(),
    )
        .into()
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).expect("settings are bounded to an hour")
}
