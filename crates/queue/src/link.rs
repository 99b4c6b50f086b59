//! The connection for commands, and the task that keeps it alive.
//!
//! Commands share one multiplexed connection; nothing that blocks may use it. While Redis is known
//! to be down they fail at once, without waiting: a caller has a better answer than the queue. The
//! keeper connects, asks for the epochs (so nobody pushes before a loss was noticed), and asks
//! again every `probe_interval` and whenever a command fails.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, FromRedisValue, RedisResult, ScriptInvocation};
use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::Config;
use crate::address::Address;
use crate::backoff::Backoff;
use crate::epochs::Epochs;
use crate::error::{Error, breaks_connection, refusal};
use crate::keys::Keys;
use crate::metrics::Metrics;
use crate::scripts::Scripts;

/// Commands that may wait for the wire at once, before further ones wait for them.
const PIPELINE_BUFFER: usize = 1024;

/// Between two looks whether Redis may evict: an operator may change that while it runs.
const EVICTION_LOOK: Duration = Duration::from_secs(60);

/// Everything that talks to Redis stands on this.
pub(crate) struct Link {
    pub config: Config,
    address: Address,
    pub keys: Keys,
    pub scripts: Scripts,
    pub metrics: Metrics,
    pub epochs: Epochs,
    current: Mutex<Current>,
    suspect: Notify,
    up: Up,
    /// Of commands and subscriptions.
    refused: Mutex<[Option<&'static str>; 2]>,
}

#[derive(Default)]
struct Current {
    generation: u64,
    connection: Option<MultiplexedConnection>,
}

/// Whether hints flow: the command connection and the subscriber both work.
struct Up {
    parts: Mutex<[bool; 2]>,
    both: watch::Sender<bool>,
}

/// The connections whose state the outside sees.
#[derive(Clone, Copy)]
pub(crate) enum Part {
    Commands,
    Subscriber,
}

impl Link {
    pub(crate) fn new(config: Config, metrics: Metrics) -> Result<Link, Error> {
        let problems = config.validate();
        if !problems.is_empty() {
            return Err(Error::Config(problems.join("; ")));
        }
        let address = Address::new(&config).map_err(Error::Config)?;
        Ok(Link {
            keys: Keys::new(&config.key_prefix, config.shards),
            scripts: Scripts::new(),
            epochs: Epochs::new(config.shards, metrics.clone()),
            current: Mutex::default(),
            suspect: Notify::new(),
            up: Up {
                parts: Mutex::default(),
                both: watch::Sender::new(false),
            },
            refused: Mutex::default(),
            config,
            address,
            metrics,
        })
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether commands can be sent right now, as far as known.
    pub(crate) fn is_up(&self) -> bool {
        self.current().connection.is_some()
    }

    pub(crate) fn connected(&self) -> watch::Receiver<bool> {
        self.up.both.subscribe()
    }

    /// Runs a script within `command_timeout`.
    pub(crate) async fn script<T: FromRedisValue>(
        &self,
        invocation: &ScriptInvocation<'_>,
    ) -> Result<T, Error> {
        self.send(|mut connection| async move { invocation.invoke_async(&mut connection).await })
            .await
    }

    /// Runs a command within `command_timeout`.
    pub(crate) async fn command<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, Error> {
        self.send(|mut connection| async move { command.query_async(&mut connection).await })
            .await
    }

    /// Uses the connection within `command_timeout`; fails at once while there is none.
    async fn send<T, F>(&self, send: impl FnOnce(MultiplexedConnection) -> F) -> Result<T, Error>
    where
        F: Future<Output = RedisResult<T>>,
    {
        let (generation, connection) = {
            let current = self.current();
            (current.generation, current.connection.clone())
        };
        let connection = connection.ok_or(Error::Unavailable)?;
        match timeout(self.config.command_timeout, send(connection)).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => {
                if breaks_connection(&error) {
                    self.drop_connection(generation);
                }
                Err(Error::from_redis(error))
            }
            Err(_) => {
                // Slow or dead? The keeper finds out.
                self.suspect.notify_one();
                Err(Error::Timeout)
            }
        }
    }

    /// Forgets a broken connection, unless it has been replaced already.
    fn drop_connection(&self, generation: u64) {
        let mut current = self.current();
        if current.generation == generation {
            current.connection = None;
            self.suspect.notify_one();
        }
    }

    /// Why Redis does not let us in, where waiting does not help.
    pub(crate) fn refused(&self) -> Option<&'static str> {
        let parts = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        parts.iter().flatten().next().copied()
    }

    pub(crate) fn set_refused(&self, part: Part, refused: Option<&'static str>) {
        let mut parts = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        parts[part as usize] = refused;
    }

    /// What opens connections, with the password of now.
    pub(crate) fn client(&self) -> RedisResult<redis::Client> {
        self.address.latest()
    }

    /// Opens a connection of one's own.
    pub(crate) async fn connect(&self) -> RedisResult<MultiplexedConnection> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.config.connect_timeout))
            // Each use has its own deadline: a reader's is longer than a command's.
            .set_response_timeout(None)
            .set_pipeline_buffer_size(PIPELINE_BUFFER);
        let client = self.client()?;
        let connecting = client.get_multiplexed_async_connection_with_config(&config);
        within(self.config.connect_timeout, connecting).await
    }

    /// Keeps the command connection until `shutdown`.
    pub(crate) async fn keep(&self, shutdown: CancellationToken) {
        let mut backoff = Backoff::default();
        let mut told = None;
        loop {
            let wait = match self.establish().await {
                Ok(()) => {
                    tracing::info!("connected to redis");
                    (told, backoff) = (None, Backoff::default());
                    tokio::select! {
                        () = shutdown.cancelled() => return,
                        () = self.watch_over() => {}
                    }
                    self.current().connection = None;
                    self.mark(Part::Commands, false);
                    tracing::warn!("lost the connection to redis; going on without it");
                    Duration::ZERO
                }
                Err(error) => {
                    let refused = refusal(&error);
                    if told != Some(refused) {
                        tracing::warn!(error = %error, reason = refused, "redis is not reachable; going on without it");
                    }
                    told = Some(refused);
                    self.set_refused(Part::Commands, refused);
                    backoff.failed()
                }
            };
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    async fn establish(&self) -> RedisResult<()> {
        let connection = self.connect().await?;
        self.refuse_replica(&connection).await?;
        self.touch(&connection).await?;
        self.look_at_eviction(&connection).await;
        let mut current = self.current();
        current.generation += 1;
        current.connection = Some(connection);
        drop(current);
        self.metrics.connects.with_label_values(&["commands"]).inc();
        self.set_refused(Part::Commands, None);
        self.mark(Part::Commands, true);
        Ok(())
    }

    /// Returns when the connection no longer works.
    async fn watch_over(&self) {
        let mut looked = Instant::now();
        loop {
            tokio::select! {
                () = tokio::time::sleep(self.config.probe_interval) => {}
                () = self.suspect.notified() => {}
            }
            let Some(connection) = self.current().connection.clone() else {
                return;
            };
            if let Err(error) = self.touch(&connection).await {
                tracing::debug!(error = %error, "redis does not answer");
                return;
            }
            if looked.elapsed() >= EVICTION_LOOK {
                looked = Instant::now();
                self.look_at_eviction(&connection).await;
            }
        }
    }

    async fn touch(&self, connection: &MultiplexedConnection) -> RedisResult<Vec<String>> {
        let touching = self
            .epochs
            .touch(connection, &self.scripts.touch, &self.keys);
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

    /// All that the server says of itself (`INFO`), and `config_save`: when it takes snapshots, or
    /// `off`. Also by one that is not fit for hints.
    pub(crate) async fn server_info(&self) -> Result<String, Error> {
        let asking = async {
            let mut connection = self.connect().await?;
            let mut info: String = redis::cmd("INFO").query_async(&mut connection).await?;
            // Some providers forbid to ask.
            let mut save = redis::cmd("CONFIG");
            save.arg("GET").arg("save");
            if let Ok(saved) = save.query_async::<Vec<String>>(&mut connection).await
                && let Some(value) = saved.get(1)
            {
                let value = if value.is_empty() { "off" } else { value };
                info.push_str(&format!("\r\nconfig_save:{value}\r\n"));
            }
            Ok(info)
        };
        let limit = self.config.connect_timeout + self.config.command_timeout;
        within(limit, asking).await.map_err(Error::from_redis)
    }

    /// Looks whether Redis may evict streams (jobs then vanish under memory pressure).
    async fn look_at_eviction(&self, connection: &MultiplexedConnection) {
        let Some(info) = self.info(connection, "memory").await else {
            return;
        };
        let policy = field(&info, "maxmemory_policy").unwrap_or("noeviction");
        let evicts = policy != "noeviction" && field(&info, "maxmemory") != Some("0");
        // Once, not at every look.
        if evicts && self.metrics.eviction.get() == 0 {
            tracing::warn!(
                redis.policy = policy,
                "redis may evict queued hints: set maxmemory-policy to noeviction"
            );
        }
        self.metrics.eviction.set(i64::from(evicts));
    }

    /// Publishes the state of one of the connections.
    pub(crate) fn mark(&self, part: Part, up: bool) {
        let (index, label) = match part {
            Part::Commands => (0, "commands"),
            Part::Subscriber => (1, "subscriber"),
        };
        self.metrics
            .connected
            .with_label_values(&[label])
            .set(i64::from(up));
        let mut parts = self.up.parts.lock().unwrap_or_else(PoisonError::into_inner);
        parts[index] = up;
        let both = parts.iter().all(|up| *up);
        if !up {
            // The other connection goes to the same server.
            self.suspect.notify_one();
        }
        self.up
            .both
            .send_if_modified(|before| std::mem::replace(before, both) != both);
    }
}

/// A field of what the server says of itself.
fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
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
