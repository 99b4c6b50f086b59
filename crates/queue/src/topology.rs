//! Which server of a cluster keeps which shard: asked of any that answers, and again whenever one
//! says otherwise or is lost.
//!
//! The library's own client of clusters is not used: it holds all commands back while it finds its
//! way after the loss of one server, hides the breaks that watchers and epochs must hear of, and has
//! no place for reads that wait. What is left of a cluster when each command concerns one shard is
//! this map.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{RedisResult, Value};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::address::Place;
use crate::backoff::Backoff;
use crate::error::refusal;
use crate::link::{Link, Routes, within};
use crate::node::Node;

/// A cluster that grew, and has lost nothing, is looked at so often.
const REFRESH: Duration = Duration::from_secs(60);
/// Between two looks at the least: many notice at once that something moved.
const PAUSE: Duration = Duration::from_millis(20);

/// A range of slots, and who keeps it.
#[derive(Debug, PartialEq, Eq)]
struct Range {
    first: u16,
    last: u16,
    primary: Place,
    replicas: Vec<Place>,
}

/// Who keeps a shard.
pub(crate) struct Kept {
    pub primary: Place,
    pub replicas: usize,
}

/// Who keeps each shard, asked now.
pub(crate) async fn survey(link: &Arc<Link>) -> RedisResult<Vec<Option<Kept>>> {
    let mut scout = Scout::new(link, &TaskTracker::new(), &CancellationToken::new());
    let ranges = scout.look().await?;
    let kept = scout.slots.iter().map(|slot| {
        let range = keeper(&ranges, *slot)?;
        Some(Kept {
            primary: range.primary.clone(),
            replicas: range.replicas.len(),
        })
    });
    Ok(kept.collect())
}

/// Keeps the map of one cluster.
pub(crate) struct Scout {
    pub link: Arc<Link>,
    pub tracker: TaskTracker,
    /// Parent of what stops the servers' keepers.
    pub shutdown: CancellationToken,
    /// The slot of each shard, once a server was asked.
    slots: Vec<u16>,
    /// Every server that was heard of last.
    known: BTreeSet<Place>,
    /// Who is asked first, in turn: one that is cut off from the others knows only what was.
    turn: usize,
}

impl Scout {
    pub(crate) fn new(
        link: &Arc<Link>,
        tracker: &TaskTracker,
        shutdown: &CancellationToken,
    ) -> Scout {
        Scout {
            link: Arc::clone(link),
            tracker: tracker.clone(),
            shutdown: shutdown.clone(),
            slots: Vec::new(),
            known: BTreeSet::new(),
            turn: 0,
        }
    }

    pub(crate) async fn run(mut self) {
        let shutdown = self.shutdown.clone();
        let mut backoff = Backoff::default();
        let mut told = None;
        loop {
            let wait = match self.look().await {
                Ok(ranges) => {
                    self.seat(&ranges);
                    self.link.tell_topology(None);
                    (told, backoff) = (None, Backoff::default());
                    REFRESH
                }
                Err(error) => {
                    let refused = refusal(&error);
                    if told != Some(refused) {
                        tracing::warn!(error = %error, reason = refused, "no server of the redis cluster says who keeps what; going on with what is known");
                    }
                    told = Some(refused);
                    self.link.tell_topology(refused);
                    backoff.failed()
                }
            };
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(PAUSE) => {}
            }
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = self.link.lost_way.notified(), if told.is_none() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Asks until one knows the keepers of all shards; else what the last one knew.
    async fn look(&mut self) -> RedisResult<Vec<Range>> {
        self.turn = self.turn.wrapping_add(1);
        let mut best = None;
        let mut error = None;
        let nodes = self.link.nodes();
        let connected = nodes.iter().filter_map(|node| {
            let (_, connection) = node.connection()?;
            Some((node.at.clone()?, connection))
        });
        let mut connected: Vec<_> = connected.collect();
        if !connected.is_empty() {
            let middle = self.turn % connected.len();
            connected.rotate_left(middle);
        }
        let asked: BTreeSet<Place> = connected.iter().map(|(place, _)| place.clone()).collect();
        for (place, connection) in connected {
            match self.ask(connection, &place).await {
                Ok(ranges) if self.covers(&ranges) => return Ok(ranges),
                Ok(ranges) => best = Some(ranges),
                Err(failed) => error = Some(failed),
            }
        }
        let mut others: Vec<Place> = self.known.difference(&asked).cloned().collect();
        others.extend(self.link.address.seeds());
        let middle = self.turn % others.len().max(1);
        others.rotate_left(middle);
        for place in others {
            let answer = match self.link.connect(Some(&place)).await {
                Ok(connection) => self.ask(connection, &place).await,
                Err(failed) => Err(failed),
            };
            match answer {
                Ok(ranges) if self.covers(&ranges) => return Ok(ranges),
                Ok(ranges) => best = Some(ranges),
                Err(failed) => error = Some(failed),
            }
        }
        let nobody = || std::io::Error::from(std::io::ErrorKind::NotConnected).into();
        best.ok_or_else(|| error.unwrap_or_else(nobody))
    }

    async fn ask(
        &mut self,
        mut connection: MultiplexedConnection,
        place: &Place,
    ) -> RedisResult<Vec<Range>> {
        let limit = self.link.config.command_timeout;
        let mut slots = redis::cmd("CLUSTER");
        slots.arg("SLOTS");
        let answer: Value = within(limit, slots.query_async(&mut connection)).await?;
        if self.slots.is_empty() {
            let mut asking = redis::pipe();
            for shard in self.link.keys.shards() {
                let key = self.link.keys.epoch(shard);
                asking.cmd("CLUSTER").arg("KEYSLOT").arg(key);
            }
            self.slots = within(limit, asking.query_async(&mut connection)).await?;
        }
        Ok(ranges(answer, &place.host))
    }

    fn covers(&self, ranges: &[Range]) -> bool {
        self.slots
            .iter()
            .all(|slot| keeper(ranges, *slot).is_some())
    }

    /// Makes it so: starts keepers of servers that are new, stops those of others.
    fn seat(&mut self, ranges: &[Range]) {
        let places = ranges
            .iter()
            .flat_map(|range| std::iter::once(&range.primary).chain(&range.replicas));
        self.known = places.cloned().collect();
        let before = Arc::clone(&self.link.routes.borrow());
        let mut nodes = self.link.nodes();
        let mut started = Vec::new();
        let mut seat = |place: &Place| {
            let known = nodes.iter().find(|node| node.at.as_ref() == Some(place));
            if let Some(known) = known {
                return Arc::clone(known);
            }
            let node = Node::new(Some(place.clone()), self.shutdown.child_token());
            nodes.push(Arc::clone(&node));
            started.push(Arc::clone(&node));
            node
        };
        let routes: Routes = self
            .slots
            .iter()
            .map(|slot| keeper(ranges, *slot).map(|range| seat(&range.primary)))
            .collect();
        self.link.routes.send_replace(Arc::clone(&routes));
        for node in started {
            let link = Arc::clone(&self.link);
            self.tracker.spawn(async move { link.keep(&node).await });
        }
        let mut moved = 0_u64;
        for (now, then) in routes.iter().zip(before.iter()) {
            let same = match (now, then) {
                (Some(now), Some(then)) => Arc::ptr_eq(now, then),
                (now, then) => now.is_none() && then.is_none(),
            };
            if same {
                continue;
            }
            moved += 1;
            // It learns the epochs of what is new to it.
            if let Some(now) = now {
                now.suspect();
            }
        }
        for then in before.iter().flatten() {
            let stays = routes.iter().flatten().any(|now| Arc::ptr_eq(now, then));
            if !stays {
                then.stop.cancel();
            }
        }
        if moved > 0 {
            let servers = self.link.nodes().len();
            tracing::info!(
                queue.shards = moved,
                redis.nodes = servers,
                "shards are kept by other servers than before"
            );
        }
        self.link.tell_commands();
    }
}

fn keeper(ranges: &[Range], slot: u16) -> Option<&Range> {
    ranges
        .iter()
        .find(|range| (range.first..=range.last).contains(&slot))
}

/// Reads the answer to `CLUSTER SLOTS`: first and last slot, then each server's preferred name,
/// port and more, the primary first. A server that has no name is where the asked one is.
fn ranges(answer: Value, asked: &str) -> Vec<Range> {
    let Value::Array(ranges) = answer else {
        return Vec::new();
    };
    let range = |range: Value| {
        let Value::Array(range) = range else {
            return None;
        };
        let mut servers = range.iter().skip(2);
        Some(Range {
            first: number(range.first()?)?,
            last: number(range.get(1)?)?,
            primary: server(servers.next()?, asked)?,
            replicas: servers.filter_map(|one| server(one, asked)).collect(),
        })
    };
    ranges.into_iter().filter_map(range).collect()
}

fn number(value: &Value) -> Option<u16> {
    match value {
        Value::Int(number) => u16::try_from(*number).ok(),
        _ => None,
    }
}

fn server(value: &Value, asked: &str) -> Option<Place> {
    let Value::Array(server) = value else {
        return None;
    };
    let host = match server.first()? {
        Value::Nil => asked.to_owned(),
        Value::BulkString(host) if host.is_empty() => asked.to_owned(),
        // It does not know.
        Value::BulkString(host) if host == b"?" => return None,
        Value::BulkString(host) => String::from_utf8(host.clone()).ok()?,
        _ => return None,
    };
    Some(Place {
        host,
        port: number(server.get(1)?)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn server_of(host: Value, port: i64) -> Value {
        let id = text("07c37dfeb235213a872192d90877d0cd55635b91");
        Value::Array(vec![host, Value::Int(port), id, Value::Array(Vec::new())])
    }

    fn at(host: &str, port: u16) -> Place {
        let host = host.to_owned();
        Place { host, port }
    }

    #[test]
    fn slots_are_read_as_the_server_tells_them() {
        let answer = Value::Array(vec![
            Value::Array(vec![
                Value::Int(0),
                Value::Int(5460),
                server_of(text("10.0.0.1"), 7000),
                server_of(text("10.0.0.2"), 7001),
            ]),
            // Without a name of its own, and one that is not known.
            Value::Array(vec![
                Value::Int(5461),
                Value::Int(10922),
                server_of(Value::Nil, 7002),
                server_of(text("?"), 7003),
            ]),
            Value::Array(vec![
                Value::Int(10923),
                Value::Int(16383),
                server_of(text(""), 7004),
            ]),
        ]);
        let ranges = ranges(answer, "redis.example.com");
        assert_eq!(keeper(&ranges, 0).unwrap().primary, at("10.0.0.1", 7000));
        assert_eq!(
            keeper(&ranges, 5460).unwrap().replicas,
            [at("10.0.0.2", 7001)]
        );
        let second = keeper(&ranges, 5461).unwrap();
        assert_eq!(second.primary, at("redis.example.com", 7002));
        assert!(second.replicas.is_empty());
        let third = keeper(&ranges, 16383).unwrap();
        assert_eq!(third.primary, at("redis.example.com", 7004));
    }

    #[test]
    fn what_makes_no_sense_is_left_out() {
        let answer = Value::Array(vec![
            Value::Nil,
            Value::Array(vec![Value::Int(0)]),
            Value::Array(vec![Value::Int(-1), Value::Int(3), server_of(text("a"), 1)]),
            Value::Array(vec![Value::Int(0), Value::Int(3), server_of(text("?"), 1)]),
        ]);
        assert_eq!(ranges(answer, "a"), Vec::new());
        assert_eq!(ranges(Value::Nil, "a"), Vec::new());
    }
}
