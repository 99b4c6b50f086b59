//! The commands of one attempt: none outlives it, and none begins after it.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use telemetry::TraceContext;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Without another word: how long a command may take to end after it was asked to.
const GRACE: Duration = Duration::from_secs(3);

/// What runs the commands of one attempt, and ends them with it; see
/// [`crate::Context::commands`]. Clones are the same.
#[derive(Clone, Debug)]
pub struct Commands(Arc<Inner>);

struct Inner {
    stop: CancellationToken,
    /// The attempt is over: what still runs is killed.
    end: CancellationToken,
    running: TaskTracker,
    /// Held while a command is added, so that none slips in after the end.
    ended: Mutex<bool>,
    lease: OnceLock<Lease>,
    trace: OnceLock<TraceContext>,
    home: Handle,
}

struct Lease {
    until: Box<dyn Fn() -> Instant + Send + Sync>,
    grace: Duration,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Commands")
            .field("running", &self.running.len())
            .finish_non_exhaustive()
    }
}

impl Commands {
    /// For commands of no attempt: they end by `stop` or with the future that runs them. Tools
    /// take [`crate::Context::commands`].
    ///
    /// # Panics
    /// Outside of a runtime, whose threads will attend to the commands.
    #[must_use]
    pub fn alone(stop: CancellationToken) -> Self {
        Self(Arc::new(Inner {
            stop,
            end: CancellationToken::new(),
            running: TaskTracker::new(),
            ended: Mutex::new(false),
            lease: OnceLock::new(),
            trace: OnceLock::new(),
            home: Handle::current(),
        }))
    }

    /// Lets commands live only until the instant that `until` says, asked again and again, and
    /// gives them `grace` to end when they are stopped. Said once, before the first command.
    pub fn leased(&self, until: impl Fn() -> Instant + Send + Sync + 'static, grace: Duration) {
        let until = Box::new(until);
        // The first one is the attempt's own.
        let _ = self.0.lease.set(Lease { until, grace });
    }

    /// Lets commands go on with this trace where no spans are made. Said once.
    pub(crate) fn traced(&self, trace: TraceContext) {
        // The first one is the attempt's own.
        let _ = self.0.trace.set(trace);
    }

    /// The trace that a command started now belongs to: the step's that starts it, else the call's.
    pub(crate) fn trace(&self) -> TraceContext {
        let current = telemetry::traces::current_context();
        if current.traceparent.is_some() {
            return current;
        }
        self.0.trace.get().cloned().unwrap_or_default()
    }

    /// Lets no further command begin, kills those that run, and waits until they and all that
    /// they started are gone.
    pub async fn end(&self) {
        *self.0.ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.end.cancel();
        self.0.running.close();
        self.0.running.wait().await;
    }

    /// The wish that commands stop.
    pub(super) fn stop(&self) -> &CancellationToken {
        &self.0.stop
    }

    /// The order that they be gone.
    pub(super) fn over(&self) -> &CancellationToken {
        &self.0.end
    }

    pub(super) fn until(&self) -> Option<Instant> {
        self.0.lease.get().map(|lease| (lease.until)())
    }

    pub(super) fn grace(&self) -> Duration {
        self.0.lease.get().map_or(GRACE, |lease| lease.grace)
    }

    /// Starts a keeper on the worker's own threads, which no tool can block; `false` when the
    /// attempt is over.
    pub(super) fn attend(&self, keeper: impl Future<Output = ()> + Send + 'static) -> bool {
        let ended = self.0.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if !*ended {
            // Counted before it runs, and for as long as it does.
            self.0.running.spawn_on(keeper, &self.0.home);
        }
        !*ended
    }
}
