//! The ways to Redis: which server keeps which shard, and sending a command to it.
//!
//! Each command of ours concerns one shard, whose keys and channels one server keeps. Without a
//! cluster that is the only one. In a cluster, `topology.rs` says which.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::aio::{AsyncPushSender, MultiplexedConnection};
use redis::{
    AsyncConnectionConfig, Cmd, FromRedisValue, RedisError, RedisResult, ScriptInvocation,
};
use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::Config;
use crate::address::{Address, Place};
use crate::epochs::Epochs;
use crate::error::{Error, breaks_connection, is_elsewhere};
use crate::keys::Keys;
use crate::metrics::Metrics;
use crate::node::Node;
use crate::reader::Client;
use crate::scripts::Scripts;

/// Commands that may wait for the wire at once, before further ones wait for them.
const PIPELINE_BUFFER: usize = 1024;

/// Before a command is sent again whose shard is on its way from one server to another; doubled
/// each time.
const REDIRECT_PAUSE: Duration = Duration::from_millis(5);

/// Which server keeps each shard, as far as known.
pub(crate) type Routes = Arc<[Option<Arc<Node>>]>;

/// Everything that talks to Redis stands on this.
pub(crate) struct Link {
    pub config: Config,
    pub address: Address,
    pub keys: Keys,
    pub scripts: Scripts,
    pub metrics: Metrics,
    pub epochs: Epochs,
    pub routes: watch::Sender<Routes>,
    /// Wakes who finds out which server keeps what.
    pub lost_way: Notify,
    up: Mutex<Up>,
    connected: watch::Sender<bool>,
}

/// Whether hints flow.
struct Up {
    commands: bool,
    /// Of each connection for subscriptions, and why it is refused.
    subscribers: Vec<(bool, Option<&'static str>)>,
    /// Why nobody tells which server keeps what.
    topology: Option<&'static str>,
}

impl Link {
    pub(crate) fn new(
        config: Config,
        metrics: Metrics,
        shutdown: &CancellationToken,
    ) -> Result<Link, Error> {
        let problems = config.validate();
        if !problems.is_empty() {
            return Err(Error::Config(problems.join("; ")));
        }
        let address = Address::new(&config).map_err(Error::Config)?;
        let only = (!config.cluster).then(|| Node::new(None, shutdown.child_token()));
        let routes: Routes = vec![only; usize::from(config.shards)].into();
        let subscribers = if config.cluster { config.shards } else { 1 };
        Ok(Link {
            keys: Keys::new(&config.key_prefix, config.shards, config.cluster),
            scripts: Scripts::new(),
            epochs: Epochs::new(config.shards, metrics.clone()),
            routes: watch::Sender::new(routes),
            lost_way: Notify::new(),
            up: Mutex::new(Up {
                commands: false,
                subscribers: vec![(false, None); usize::from(subscribers)],
                topology: None,
            }),
            connected: watch::Sender::new(false),
            config,
            address,
            metrics,
        })
    }

    /// The server that keeps a shard, if it is known.
    pub(crate) fn node(&self, shard: u16) -> Option<Arc<Node>> {
        self.routes.borrow()[usize::from(shard)].clone()
    }

    /// All servers that keep something of ours.
    pub(crate) fn nodes(&self) -> Vec<Arc<Node>> {
        let mut nodes: Vec<Arc<Node>> = Vec::new();
        for node in self.routes.borrow().iter().flatten() {
            if nodes.iter().all(|known| !Arc::ptr_eq(known, node)) {
                nodes.push(Arc::clone(node));
            }
        }
        nodes
    }

    /// The shards that a server keeps.
    pub(crate) fn shards_of(&self, node: &Arc<Node>) -> Vec<u16> {
        let routes = self.routes.borrow();
        let keeps = |shard: &u16| {
            let keeper = routes[usize::from(*shard)].as_ref();
            keeper.is_some_and(|keeper| Arc::ptr_eq(keeper, node))
        };
        self.keys.shards().filter(keeps).collect()
    }

    /// Whether commands to this shard can be sent right now, as far as known.
    pub(crate) fn is_up(&self, shard: u16) -> bool {
        let routes = self.routes.borrow();
        let node = routes[usize::from(shard)].as_ref();
        node.is_some_and(|node| node.is_up())
    }

    /// Whether any commands can be sent right now.
    pub(crate) fn is_any_up(&self) -> bool {
        let routes = self.routes.borrow();
        routes.iter().flatten().any(|node| node.is_up())
    }

    pub(crate) fn connected(&self) -> watch::Receiver<bool> {
        self.connected.subscribe()
    }

    /// Runs a script on a shard within `command_timeout`.
    pub(crate) async fn script<T: FromRedisValue>(
        &self,
        shard: u16,
        invocation: &ScriptInvocation<'_>,
    ) -> Result<T, Error> {
        self.send(shard, |mut connection| async move {
            invocation.invoke_async(&mut connection).await
        })
        .await
    }

    /// Runs a command on a shard within `command_timeout`.
    pub(crate) async fn command<T: FromRedisValue>(
        &self,
        shard: u16,
        command: &Cmd,
    ) -> Result<T, Error> {
        self.send(shard, |mut connection| async move {
            command.query_async(&mut connection).await
        })
        .await
    }

    /// Uses the connection to a shard's server within `command_timeout`; fails at once while there
    /// is none.
    async fn send<T, F>(
        &self,
        shard: u16,
        send: impl Fn(MultiplexedConnection) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = RedisResult<T>>,
    {
        let mut pause = REDIRECT_PAUSE;
        let sending = async {
            loop {
                let node = self.node(shard);
                let connection = node.as_ref().and_then(|node| node.connection());
                let Some((node, (generation, connection))) = node.as_ref().zip(connection) else {
                    if pause == REDIRECT_PAUSE {
                        return Err(Error::Unavailable);
                    }
                    // On its way: to a server that is being connected to.
                    tokio::time::sleep(pause).await;
                    continue;
                };
                match send(connection).await {
                    Ok(value) => return Ok(value),
                    Err(error) if self.config.cluster && is_elsewhere(&error) => {
                        self.redirected(&error);
                        tokio::time::sleep(pause).await;
                        pause *= 2;
                    }
                    Err(error) => {
                        if breaks_connection(&error) {
                            node.drop_connection(generation);
                        }
                        return Err(Error::from_redis(error));
                    }
                }
            }
        };
        match timeout(self.config.command_timeout, sending).await {
            Ok(result) => result,
            Err(_) => {
                if let Some(node) = self.node(shard) {
                    node.suspect();
                }
                Err(Error::Timeout)
            }
        }
    }

    /// Ends a read that waits; best effort.
    pub(crate) async fn unblock(&self, client: Client) {
        let Some((_, mut connection)) = client.node.connection() else {
            return;
        };
        let mut unblock = redis::cmd("CLIENT");
        unblock.arg("UNBLOCK").arg(client.id);
        let asking = unblock.query_async::<u64>(&mut connection);
        if let Err(error) = within(self.config.command_timeout, asking).await {
            tracing::debug!(error = %error, "a waiting read was not called home");
        }
    }

    /// A server says that somebody else keeps what it was asked for, or soon will.
    pub(crate) fn redirected(&self, error: &RedisError) {
        let kind = match error.code() {
            Some("MOVED") => "moved",
            Some("ASK") => "ask",
            _ => "try_again",
        };
        self.metrics.redirects.with_label_values(&[kind]).inc();
        self.look_around();
    }

    /// Finds out again which server keeps what.
    pub(crate) fn look_around(&self) {
        self.lost_way.notify_one();
    }

    /// Why Redis does not let us in, where waiting does not help.
    pub(crate) fn refused(&self) -> Option<&'static str> {
        let of_nodes = self.nodes().iter().find_map(|node| node.refused());
        let up = self.up.lock().unwrap_or_else(PoisonError::into_inner);
        let of_subscribers = up.subscribers.iter().find_map(|(_, refused)| *refused);
        of_nodes.or(up.topology).or(of_subscribers)
    }

    /// Whether a server may throw hints away.
    pub(crate) fn may_evict(&self) -> bool {
        self.nodes().iter().any(|node| node.evicts())
    }

    /// Opens a connection of one's own: to this server of the cluster, or to the only one.
    pub(crate) async fn connect(&self, at: Option<&Place>) -> RedisResult<MultiplexedConnection> {
        self.connect_with(at, None::<fn(redis::PushInfo) -> Result<(), ()>>)
            .await
    }

    /// The same; what the server tells unasked goes there.
    pub(crate) async fn connect_with(
        &self,
        at: Option<&Place>,
        push: Option<impl AsyncPushSender>,
    ) -> RedisResult<MultiplexedConnection> {
        let mut config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.config.connect_timeout))
            // Each use has its own deadline: a reader's is longer than a command's.
            .set_response_timeout(None)
            .set_pipeline_buffer_size(PIPELINE_BUFFER);
        if let Some(push) = push {
            config = config.set_push_sender(push);
        }
        let client = self.address.client(at)?;
        let connecting = client.get_multiplexed_async_connection_with_config(&config);
        within(self.config.connect_timeout, connecting).await
    }

    /// Publishes whether commands can be sent.
    pub(crate) fn tell_commands(&self) {
        self.tell("commands", |up| {
            let shards = self.keys.shards().filter(|shard| self.is_up(*shard));
            let shards = shards.count();
            let all = i64::try_from(shards).unwrap_or(i64::MAX);
            self.metrics.shards_up.set(all);
            up.commands = shards == self.keys.shards().len();
            up.commands
        });
    }

    /// Publishes the state of one of the connections for subscriptions.
    pub(crate) fn tell_subscriber(&self, index: usize, up: bool, refused: Option<&'static str>) {
        self.tell("subscriber", |all| {
            all.subscribers[index] = (up, refused);
            all.subscribers.iter().all(|(up, _)| *up)
        });
        if !up {
            // The other connection goes to the same server.
            if let Some(node) = self.node(u16::try_from(index).unwrap_or(0)) {
                node.suspect();
            }
        }
    }

    /// Publishes whether it is known which server keeps what.
    pub(crate) fn tell_topology(&self, refused: Option<&'static str>) {
        let mut up = self.up.lock().unwrap_or_else(PoisonError::into_inner);
        up.topology = refused;
    }

    fn tell(&self, label: &str, change: impl FnOnce(&mut Up) -> bool) {
        let mut up = self.up.lock().unwrap_or_else(PoisonError::into_inner);
        let works = change(&mut up);
        self.metrics
            .connected
            .with_label_values(&[label])
            .set(i64::from(works));
        let both = up.commands && up.subscribers.iter().all(|(up, _)| *up);
        self.connected
            .send_if_modified(|before| std::mem::replace(before, both) != both);
    }
}

/// A field of what the server says of itself.
pub(crate) fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = info.lines();
    lines
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .map(str::trim)
}

/// A timeout as an error of the connection.
pub(crate) async fn within<T>(
    limit: Duration,
    future: impl Future<Output = RedisResult<T>>,
) -> RedisResult<T> {
    timeout(limit, future).await.unwrap_or_else(|_| {
        let error = std::io::Error::new(std::io::ErrorKind::TimedOut, "no answer in time");
        Err(error.into())
    })
}
