//! The stateless front door: authenticates, decides, answers.
//!
//! Layers of tower for HTTP, plain function calls for MCP: request → `endpoint::handle` → one
//! file in `methods/` → one function of the store → one statement. The best first file to read
//! is `methods/tasks_get.rs`.
//!
//! Architecture invariant: this crate never runs a tool, and keeps nothing between two requests
//! that another replica would miss. No answer is different because Redis is away, only later; and a
//! `tasks/get` that comes in time does not touch it.

mod admission;
mod arguments;
pub mod auth;
mod callbacks;
mod caller;
mod catalog;
mod clock;
pub mod config;
mod connection;
mod cors;
mod crowd;
mod cursor;
mod deliveries;
mod door;
mod endpoint;
mod error;
#[doc(hidden)]
pub mod fuzzed;
mod held;
mod holds;
mod judgement;
mod large;
mod layers;
mod legacy;
mod live_tasks;
mod load;
mod memory;
mod method;
mod methods;
mod metrics;
mod mirrors;
mod overdue;
pub mod pace;
mod peers;
mod polling;
mod promotion;
mod provided;
mod records;
mod reply;
mod request_state;
mod sealed;
mod serve;
mod stream;
mod sync;
pub mod tls;
mod trace;
mod tries;
mod versions;
mod view;
mod waiters;
mod wanted;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use protocol::TaskId;
use protocol::jsonrpc;
use protocol::meta::{Implementation, ResultMeta};
use queue::{Lane, Queue};
use store::Store;
use telemetry::{Health, Registry};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

pub use config::Config;

use crate::admission::Admission;
use crate::callbacks::{Callbacks, Calls};
use crate::catalog::Catalog;
use crate::deliveries::Deliveries;
use crate::door::Door;
use crate::load::Queues;
use crate::memory::Memory;
use crate::metrics::Metrics;
use crate::pace::Pace;
use crate::sealed::Keys;
use crate::tls::Tls;
use crate::waiters::{Left, Waiters};
use crate::wanted::Wanted;

/// After the last connection has ended: how long what is left to be recorded may take.
const LAST_WRITES: Duration = Duration::from_secs(3);
/// How long what a caller sent whole is carried on with after the caller went away. Long for a
/// commit, short for a wait.
const AFTER_HANG_UP: Duration = Duration::from_secs(2);

/// A loop that has not come round for so long is stuck: accepting connections waits for nothing.
const LOOP_AGE_MAX: Duration = Duration::from_secs(30);

/// Why a gateway cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Settings that do not work; all problems at once, each naming its field.
    #[error("the gateway's settings do not work: {}", .0.join("; "))]
    Config(Vec<String>),
    /// The listener has no address.
    #[error("the listener has no address")]
    Listener(#[source] io::Error),
}

/// A gateway that does not serve yet.
pub struct Gateway {
    config: Config,
    auth: auth::Config,
    store: Store,
    queue: Queue,
    metrics: Metrics,
    health: Health,
    catalogue: telemetry::Check,
    callbacks: Callbacks,
}

impl Gateway {
    /// The same, called back by services: at addresses that one of these keys has signed, and with
    /// bodies of so many bytes at most.
    #[must_use]
    pub fn called_back(mut self, keys: protocol::callback::Keys, body_bytes_max: usize) -> Self {
        self.callbacks = Callbacks {
            keys,
            body_bytes_max,
        };
        self
    }

    /// A gateway over a store and a queue; neither needs to be there yet. Adds the readiness
    /// check `catalogue`.
    ///
    /// # Errors
    /// [`Error::Config`] if the settings do not work.
    pub fn new(
        config: Config,
        auth: auth::Config,
        store: Store,
        queue: Queue,
        registry: &Registry,
        health: Health,
    ) -> Result<Self, Error> {
        let problems = config.validate(&auth);
        if !problems.is_empty() {
            return Err(Error::Config(problems));
        }
        Ok(Self {
            config,
            auth,
            store,
            queue,
            metrics: Metrics::prepared(registry),
            catalogue: health.check("catalogue"),
            health,
            callbacks: Callbacks::default(),
        })
    }

    /// Serves until `shutdown`, then drains: not ready at once, new connections for
    /// `drain_delay` more, open requests for `drain_deadline` more. A call that may become a task
    /// becomes one, a stream gets its final message, and what has no answer shortly before the
    /// deadline is told to come again. Returns when all is over.
    ///
    /// # Errors
    /// If the listener is unusable, or open to others while every caller is believed.
    pub async fn run(
        self,
        listener: TcpListener,
        shutdown: CancellationToken,
    ) -> Result<(), Error> {
        let address = listener.local_addr().map_err(Error::Listener)?;
        // The listener may be another than the settings say.
        let problems = self.auth.validate(address);
        if !problems.is_empty() {
            return Err(Error::Config(problems));
        }
        let keys = Keys::new(&self.config.request_state_keys);
        let keys = keys.map_err(|problem| Error::Config(vec![problem]))?;
        let metrics = self.metrics;
        let limits = &self.config.limits;
        let authenticator = auth::Authenticator::new(
            &self.auth,
            &self.config.path,
            limits.token_bytes_max,
            metrics.clone(),
        )
        .map_err(Error::Config)?;
        let name_bytes_max = limits.tool_name_bytes_max;
        let tls = Tls::new(&self.config.tls);
        let tls = tls.map_err(|problem| Error::Config(vec![problem]))?;
        let (waiters, left) = Waiters::new(metrics.clone());
        let (deliveries, marks) = Deliveries::new(metrics.clone());
        let shared = Arc::new(Shared {
            door: Door::new(&self.config, authenticator, address),
            catalog: Catalog::new(self.store.clone(), name_bytes_max, metrics.clone()),
            queues: Queues::default(),
            state_keys: keys,
            meta: ResultMeta::new(&Implementation::new("mcp-tasks", store::migrate::release())),
            tls,
            admission: Admission::new(&self.config.limits),
            listens: Arc::new(Semaphore::new(self.config.limits.listens_max)),
            memory: Memory::new(
                &self.config.limits,
                self.callbacks.body_bytes_max,
                metrics.memory_bytes.clone(),
            ),
            calls: Calls::new(&self.config.limits),
            waiters,
            wanted: Wanted::new(&self.config.limits),
            pace: Pace::new(metrics.clone()),
            deliveries,
            metrics: Arc::new(metrics),
            leaving: shutdown.clone(),
            closing: CancellationToken::new(),
            ending: CancellationToken::new(),
            tracker: TaskTracker::new(),
            store: self.store,
            queue: self.queue,
            config: self.config,
            callbacks: self.callbacks,
        });
        let ended = CancellationToken::new();
        let background = TaskTracker::new();
        spawn_background(&shared, &background, (left, marks, self.catalogue), &ended);
        let alive = self.health.liveness("accept", LOOP_AGE_MAX);
        background.spawn(leave(Arc::clone(&shared), self.health, ended.clone()));
        tracing::info!(address = %address, "serving");

        serve::serve(Arc::clone(&shared), listener, alive).await;
        // What was being committed for callers that are gone, then what is left to record.
        shared.tracker.close();
        background.close();
        let last_writes = async {
            shared.tracker.wait().await;
            ended.cancel();
            background.wait().await;
        };
        if tokio::time::timeout(LAST_WRITES, last_writes)
            .await
            .is_err()
        {
            tracing::warn!("the last deliveries and stops were not recorded in time");
            ended.cancel();
        }
        Ok(())
    }
}

/// What all requests share.
pub(crate) struct Shared {
    config: Config,
    store: Store,
    queue: Queue,
    metrics: Arc<Metrics>,
    door: Door,
    catalog: Catalog,
    queues: Queues,
    waiters: Arc<Waiters>,
    wanted: Wanted,
    pace: Pace,
    deliveries: Deliveries,
    state_keys: Keys,
    meta: ResultMeta,
    callbacks: Callbacks,
    calls: Calls,
    tls: Option<Tls>,
    admission: Admission,
    listens: Arc<Semaphore>,
    memory: Arc<Memory>,
    /// Asked to end: still serving.
    leaving: CancellationToken,
    /// No more connections are taken, and streams end.
    closing: CancellationToken,
    /// What is not answered yet is answered now, whatever it waits for: soon everything is cut.
    ending: CancellationToken,
    /// What outlives the request that began it.
    tracker: TaskTracker,
}

impl Shared {
    fn json_limits(&self) -> jsonrpc::Limits {
        jsonrpc::Limits {
            depth_max: self.config.limits.depth_max,
            id_bytes_max: self.config.limits.id_bytes_max,
        }
    }

    /// How much of what this process takes on is taken.
    fn load_percent(&self) -> u64 {
        let taken = u64::try_from(self.metrics.in_flight.get()).unwrap_or(0);
        let all = u64::try_from(self.config.limits.requests_max).unwrap_or(u64::MAX);
        taken.saturating_mul(100) / all.max(1)
    }

    /// How much is taken of what this process may hold open: of the kind that is nearest to its limit.
    fn full_percent(&self) -> u64 {
        let limits = &self.config.limits;
        let count = |level: i64| usize::try_from(level).unwrap_or(0);
        let kinds = [
            (self.waiters.len(), limits.held_calls_max),
            (
                count(self.metrics.connections.get()),
                limits.connections_max,
            ),
            (count(self.metrics.in_flight.get()), limits.requests_max),
        ];
        let percents = kinds.map(|(taken, max)| taken.saturating_mul(100) / max.max(1));
        let fullest = percents.into_iter().max().unwrap_or(0);
        u64::try_from(fullest).unwrap_or(u64::MAX)
    }

    fn list_ttl_ms(&self) -> u64 {
        u64::try_from(self.config.list_ttl.as_millis()).unwrap_or(u64::MAX)
    }

    /// A new task's id. The local clock only places ids of one period together in an index.
    fn new_id(&self) -> TaskId {
        TaskId::new(clock::local_ms())
    }

    /// What `work` comes to, unless the process ends before.
    async fn in_time<T>(
        &self,
        work: impl Future<Output = Result<T, error::Error>>,
    ) -> Result<T, error::Error> {
        tokio::select! {
            biased;
            result = work => result,
            () = self.ending.cancelled() => Err(error::Error::Leaving),
        }
    }

    /// What `work` comes to. Once begun it is carried out, whether or not its caller stays for it; but
    /// what nobody stays for may wait for [`AFTER_HANG_UP`] only, so that those who went away keep
    /// no connection from those who are there.
    async fn to_its_end<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> T {
        let gone = CancellationToken::new();
        let staying = gone.clone().drop_guard();
        let bounded = async move {
            tokio::select! {
                biased;
                came = work => Some(came),
                () = async { gone.cancelled().await; tokio::time::sleep(AFTER_HANG_UP).await } => None,
            }
        };
        let ended = self.tracker.spawn(bounded.in_current_span()).await;
        drop(staying);
        match ended.map_err(tokio::task::JoinError::try_into_panic) {
            Ok(Some(came)) => came,
            // As if it had happened here: answered, counted and logged there.
            Err(Ok(panic)) => std::panic::resume_unwind(panic),
            // Nobody is there, or the runtime ends, and this with it.
            Ok(None) | Err(Err(_)) => std::future::pending().await,
        }
    }

    /// Hints a queued task, best effort.
    async fn hint(&self, lane: &Lane, id: TaskId) {
        if let Err(error) = self.queue.push(lane, id).await {
            self.metrics.unhinted.inc();
            tracing::debug!(task.id = %id, error = %error, "task is left to the reconcile sweep");
            // The row says that it was hinted under this epoch; the sweep need not wait to doubt it.
            if self.queue.epoch(id).is_some() {
                let store = self.store.with_wait(Duration::ZERO);
                drop(store.mark_hinted(&[(id, None)]).await);
            }
        }
    }
}

type Inboxes = (
    Left,
    tokio::sync::mpsc::Receiver<deliveries::Mark>,
    telemetry::Check,
);

fn spawn_background(
    shared: &Arc<Shared>,
    tasks: &TaskTracker,
    (left, marks, check): Inboxes,
    ended: &CancellationToken,
) {
    let (own, end) = (Arc::clone(shared), ended.clone());
    tasks.spawn(async move {
        own.catalog
            .keep(&own.queue, own.config.catalogue_refresh, check, end)
            .await;
    });
    let (own, end) = (Arc::clone(shared), ended.clone());
    tasks.spawn(async move { own.door.auth.keep(end).await });
    let (own, end) = (Arc::clone(shared), ended.clone());
    tasks.spawn(async move {
        if let Some(tls) = &own.tls {
            tls.keep(&end).await;
        }
    });
    let (own, end) = (Arc::clone(shared), ended.clone());
    tasks.spawn(async move { own.wanted.keep(&own, end).await });
    let (own, end) = (Arc::clone(shared), ended.clone());
    tasks.spawn(async move { own.queues.keep(&own.store, end).await });
    let (own, end) = (Arc::clone(shared), ended.clone());
    tasks.spawn(async move { own.waiters.renew(&own.store, own.config.hold, end).await });
    let (own, end) = (Arc::clone(shared), ended.clone());
    tasks.spawn(async move {
        own.waiters
            .stop_abandoned(left, (&own.store, &own.queue), (own.config.hold, end))
            .await;
    });
    let (own, end) = (Arc::clone(shared), ended.clone());
    tasks.spawn(async move { deliveries::keep(marks, &own.store, &own.metrics, end).await });
}

/// From the wish to end to the end of accepting.
async fn leave(shared: Arc<Shared>, health: Health, ended: CancellationToken) {
    tokio::select! {
        () = ended.cancelled() => return,
        () = shared.leaving.cancelled() => {}
    }
    health.drain();
    // Load balancers learn of it with a delay; whom they still send is served.
    tokio::time::sleep(shared.config.drain_delay).await;
    shared.closing.cancel();
}
