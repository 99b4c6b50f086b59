//! One server, and the connection for commands to it.
//!
//! Commands share one multiplexed connection: each is sent without waiting for the others' answers;
//! nothing that blocks may use it. While the server is known to be down they fail at once, without
//! waiting: a caller has a better answer than the queue. The keeper connects, asks for the epochs of
//! the shards that the server keeps (so nobody pushes before a loss was noticed), and asks again
//! every `probe_interval` and whenever a command fails.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redis::RedisResult;
use redis::aio::MultiplexedConnection;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::address::Place;
use crate::backoff::Backoff;
use crate::error::{is_elsewhere, refusal};
use crate::link::{Link, field, within};

/// Between two looks whether Redis may evict: an operator may change that while it runs.
const EVICTION_LOOK: Duration = Duration::from_secs(60);

/// A server that keeps shards of ours.
pub(crate) struct Node {
    /// Where it is, if it is one of a cluster; else there is only this one.
    pub at: Option<Place>,
    current: Mutex<Current>,
    suspect: Notify,
    /// Ends its keeper, when it keeps nothing of ours any more.
    pub stop: CancellationToken,
}

#[derive(Default)]
struct Current {
    generation: u64,
    connection: Option<MultiplexedConnection>,
    refused: Option<&'static str>,
    evicts: bool,
}

impl Node {
    pub(crate) fn new(at: Option<Place>, stop: CancellationToken) -> Arc<Node> {
        Arc::new(Node {
            at,
            current: Mutex::default(),
            suspect: Notify::new(),
            stop,
        })
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection, and which one it is; `None` while the server is not reachable.
    pub(crate) fn connection(&self) -> Option<(u64, MultiplexedConnection)> {
        let current = self.current();
        let connection = current.connection.clone()?;
        Some((current.generation, connection))
    }

    pub(crate) fn is_up(&self) -> bool {
        self.current().connection.is_some()
    }

    /// Why it does not let us in, where waiting does not help.
    pub(crate) fn refused(&self) -> Option<&'static str> {
        self.current().refused
    }

    pub(crate) fn evicts(&self) -> bool {
        self.current().evicts
    }

    /// Slow or dead? The keeper finds out.
    pub(crate) fn suspect(&self) {
        self.suspect.notify_one();
    }

    /// Forgets a broken connection, unless it has been replaced already.
    pub(crate) fn drop_connection(&self, generation: u64) {
        let mut current = self.current();
        if current.generation == generation {
            current.connection = None;
            self.suspect.notify_one();
        }
    }

    /// For the log; without a cluster there is nothing to tell apart.
    fn name(&self) -> Option<String> {
        self.at.as_ref().map(Place::to_string)
    }
}

impl Link {
    /// Keeps a server's command connection until it is stopped.
    pub(crate) async fn keep(&self, node: &Arc<Node>) {
        let mut backoff = Backoff::default();
        let mut told = None;
        loop {
            let wait = match self.establish(node).await {
                Ok(()) => {
                    tracing::info!(redis.node = node.name(), "connected to redis");
                    (told, backoff) = (None, Backoff::default());
                    tokio::select! {
                        () = node.stop.cancelled() => return,
                        () = self.watch_over(node) => {}
                    }
                    node.current().connection = None;
                    self.tell_commands();
                    tracing::warn!(
                        redis.node = node.name(),
                        "lost the connection to redis; going on without it"
                    );
                    Duration::ZERO
                }
                Err(error) => {
                    // On its way to another server, what it kept mends itself.
                    let moved = self.config.cluster && is_elsewhere(&error);
                    let refused = if moved { None } else { refusal(&error) };
                    if told != Some(refused) {
                        tracing::warn!(redis.node = node.name(), error = %error, reason = refused, "redis is not reachable; going on without it");
                    }
                    told = Some(refused);
                    node.current().refused = refused;
                    backoff.failed()
                }
            };
            // Another may have taken its place.
            self.look_around();
            tokio::select! {
                () = node.stop.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    async fn establish(&self, node: &Arc<Node>) -> RedisResult<()> {
        let connection = self.connect(node.at.as_ref()).await?;
        self.refuse_replica(&connection).await?;
        self.touch(node, &connection).await?;
        self.look_at_eviction(node, &connection).await;
        let mut current = node.current();
        current.generation += 1;
        current.connection = Some(connection);
        current.refused = None;
        drop(current);
        self.metrics.connects.with_label_values(&["commands"]).inc();
        self.tell_commands();
        Ok(())
    }

    /// Returns when the connection no longer works.
    async fn watch_over(&self, node: &Arc<Node>) {
        let mut looked = Instant::now();
        loop {
            tokio::select! {
                () = tokio::time::sleep(self.config.probe_interval) => {}
                () = node.suspect.notified() => {}
            }
            let Some((_, connection)) = node.connection() else {
                return;
            };
            match self.touch(node, &connection).await {
                Ok(()) => {}
                // It lives; what it kept is kept elsewhere, or on its way.
                Err(error) if self.config.cluster && is_elsewhere(&error) => {
                    self.redirected(&error);
                }
                Err(error) => {
                    tracing::debug!(redis.node = node.name(), error = %error, "redis does not answer");
                    return;
                }
            }
            if looked.elapsed() >= EVICTION_LOOK {
                looked = Instant::now();
                self.look_at_eviction(node, &connection).await;
            }
        }
    }

    async fn touch(&self, node: &Arc<Node>, connection: &MultiplexedConnection) -> RedisResult<()> {
        let shards = self.shards_of(node);
        let script = &self.scripts.touch;
        let touching = self.epochs.touch(connection, script, &self.keys, &shards);
        within(self.config.command_timeout, touching).await
    }

    /// A primary that was demoted answers reads and refuses hints: connected to again and again, it
    /// would be lost again with every hint.
    async fn refuse_replica(&self, connection: &MultiplexedConnection) -> RedisResult<()> {
        let info = self.info(connection, "replication").await;
        if info.is_some_and(|info| field(&info, "role") == Some("slave")) {
            let error = std::io::Error::other("it is a replica, which takes no hints");
            return Err(error.into());
        }
        Ok(())
    }

    /// What the server says of itself. Best effort: some providers hide it.
    async fn info(&self, connection: &MultiplexedConnection, section: &str) -> Option<String> {
        let mut connection = connection.clone();
        let mut command = redis::cmd("INFO");
        command.arg(section);
        let asking = command.query_async::<String>(&mut connection);
        within(self.config.command_timeout, asking).await.ok()
    }

    /// Looks whether Redis may evict streams (jobs then vanish under memory pressure).
    async fn look_at_eviction(&self, node: &Arc<Node>, connection: &MultiplexedConnection) {
        let Some(info) = self.info(connection, "memory").await else {
            return;
        };
        let policy = field(&info, "maxmemory_policy").unwrap_or("noeviction");
        let evicts = policy != "noeviction" && field(&info, "maxmemory") != Some("0");
        let before = std::mem::replace(&mut node.current().evicts, evicts);
        // Once, not at every look.
        if evicts && !before {
            tracing::warn!(
                redis.node = node.name(),
                redis.policy = policy,
                "redis may evict queued hints: set maxmemory-policy to noeviction"
            );
        }
        self.metrics.eviction.set(i64::from(self.may_evict()));
    }
}
