//! Connections: a bounded pool, and tries that wait for Postgres to come back.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use deadpool_postgres::{
    ClientWrapper, Hook, Manager, ManagerConfig, Object, Pool, RecyclingMethod, Runtime, Timeouts,
};

use tracing::Span;

use crate::connect::Connector;
use crate::error::{Error, Fault};
use crate::plans;
use crate::{Config, Store};

/// Pauses between tries: short at first (a restart often takes less than a second).
const PAUSE_MIN: Duration = Duration::from_millis(20);
/// A try gets at least this, also at the end of the caller's time.
const TRY_MIN: Duration = Duration::from_secs(1);
/// No longer than this, so that all are served soon after Postgres is back. A refused connection
/// costs little, and the pool bounds how many are tried at a time.
const PAUSE_MAX: Duration = Duration::from_millis(200);
/// After Postgres should have ended a statement by itself.
const OVERDUE: Duration = Duration::from_secs(1);
/// A try waits at least this long for a free connection, whatever is left of its time.
const POOL_WAIT_MIN: Duration = Duration::from_secs(1);

/// Since when this process has reached Postgres without a break; `None` before it has.
pub(crate) type Since = Arc<Mutex<Option<Instant>>>;

pub(crate) fn build(config: &Config, since: &Since) -> Result<Pool, Error> {
    let connector = Connector::new(config)?;
    let patience = connector.patience();
    let manager = Manager::from_connect(
        // The connector has its own.
        tokio_postgres::Config::new(),
        connector,
        // A dead connection costs one try, which is repeated, and not one round trip a use.
        ManagerConfig {
            recycling_method: RecyclingMethod::Fast,
        },
    );
    // One that ended while nobody used it is replaced without a word: that was a break as well.
    let since = Arc::clone(since);
    let look = Hook::sync_fn(move |client: &mut ClientWrapper, _| {
        if client.is_closed() {
            *lock(&since) = Some(Instant::now());
        }
        Ok(())
    });
    Pool::builder(manager)
        .pre_recycle(look)
        .pre_recycle(plans::renewed())
        .max_size(config.pool_size)
        .create_timeout(Some(patience))
        .runtime(Runtime::Tokio1)
        .build()
        .map_err(|e| Error::Unavailable(Box::new(e)))
}

/// A connection in use. Dropped before it is given back, its user was dropped half way: then it
/// still waits for an answer that nobody wants, and whoever took it next would wait as well.
pub(crate) struct Lent(Option<Object>);

impl Lent {
    pub(crate) fn connection(&mut self) -> &mut Object {
        self.0.as_mut().expect("only giving back takes it")
    }

    /// Closes a connection that failed, or that still waits for an answer: it is not used again.
    pub(crate) fn give_back(mut self, fault: Option<&Fault>) {
        let object = self.0.take().expect("it is given back once");
        if matches!(fault, Some(Fault::Transient(_))) {
            drop(Object::take(object));
        }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(object) = self.0.take() {
            drop(Object::take(object));
        }
    }
}

/// The tries of one operation. Every statement of this crate is safe to repeat, because its
/// ids and tokens are chosen before the first try.
pub(crate) struct Tries<'a> {
    store: &'a Store,
    operation: &'static str,
    started: Instant,
    pause: Duration,
    span: Span,
}

impl<'a> Tries<'a> {
    pub(crate) fn new(store: &'a Store, operation: &'static str) -> Self {
        store.metrics.begin(operation);
        Self {
            store,
            operation,
            started: Instant::now(),
            pause: PAUSE_MIN,
            span: span(operation),
        }
    }

    pub(crate) async fn connection(&self) -> Result<Lent, Fault> {
        let left = self.store.wait_max.saturating_sub(self.started.elapsed());
        let patience = self.store.pool.timeouts().create;
        let connect = patience.map(|patience| patience.min(left.max(TRY_MIN)));
        let timeouts = Timeouts {
            wait: Some(left.max(POOL_WAIT_MIN)),
            create: connect,
            recycle: connect,
        };
        let asked = Instant::now();
        let got = self.store.pool.timeout_get(&timeouts).await;
        let waited = asked.elapsed().as_secs_f64();
        self.store.metrics.connection_wait.observe(waited);
        let object = got?;
        lock(&self.store.outage).get_or_insert_with(Instant::now);
        Ok(Lent(Some(object)))
    }

    /// One try on a connection. Postgres ends a slow statement by itself; one that is frozen or
    /// cut off without a word can't, so the try is given up here as well.
    pub(crate) async fn limited<T>(
        &self,
        body: impl Future<Output = Result<T, Fault>>,
    ) -> Result<T, Fault> {
        let left = self.store.wait_max.saturating_sub(self.started.elapsed());
        // What the caller has left, but always enough for a healthy answer. Beyond what Postgres
        // itself allows there is none, and a try on another connection is the better use of it.
        let limit = (self.store.config.statement_timeout + OVERDUE).min(left.max(TRY_MIN));
        let sent = Instant::now();
        match tokio::time::timeout(limit, body).await {
            Ok(outcome) => outcome,
            Err(elapsed) => {
                // The other side may have vanished: so it has for connections that nobody has
                // used since, and each of them would cost its user a try.
                let since = sent.elapsed();
                self.store.pool.retain(|_, used| used.last_used() < since);
                Err(Fault::Transient(Box::new(elapsed)))
            }
        }
    }

    pub(crate) fn done<T>(self, value: T) -> T {
        self.store
            .metrics
            .seconds(self.operation, self.started.elapsed());
        value
    }

    /// Waits before the next try; an error when there is none.
    pub(crate) async fn again(&mut self, fault: Fault) -> Result<(), Error> {
        let source = match fault {
            Fault::Final(error) => {
                telemetry::traces::failed(&self.span, error.kind());
                self.store.metrics.error(self.operation);
                self.store.complain(&error);
                return Err(error);
            }
            Fault::Transient(source) => source,
        };
        *lock(&self.store.outage) = Some(Instant::now());
        if self.started.elapsed() + self.pause > self.store.wait_max {
            self.store.metrics.error(self.operation);
            telemetry::traces::failed(&self.span, "unavailable");
            return Err(Error::Unavailable(source));
        }
        self.store.metrics.retry(self.operation);
        tracing::debug!(operation = self.operation, error = %source, "postgres is away, waiting");
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        Ok(())
    }
}

/// The span of one operation, repeats included (OpenTelemetry's conventions for database clients);
/// it ends with the operation. None where nobody's request or job asks.
fn span(operation: &'static str) -> Span {
    if !telemetry::traces::inside_span() {
        return Span::none();
    }
    tracing::info_span!(
        target: telemetry::traces::DETAIL,
        "postgres",
        otel.name = operation,
        otel.kind = "client",
        db.system.name = "postgresql",
        db.operation.name = operation,
        db.query.summary = operation,
    )
}

impl Store {
    /// For how long (ms) this process has reached Postgres without a break: a looker that was cut
    /// off itself must not judge leases. Of all connections together: a new one, opened because
    /// more are in use, says nothing of a break. Monotonic, and compared with nothing but itself.
    /// (That there is a connection shows that Postgres is reached now.)
    pub(crate) fn connected_ms(&self, _: &Object) -> i64 {
        let since = *lock(&self.outage);
        crate::config::ms(since.map_or(Duration::ZERO, |since| since.elapsed()))
    }
}

fn lock(since: &Since) -> MutexGuard<'_, Option<Instant>> {
    since.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the body with a connection, again while Postgres is away and there is time.
macro_rules! with_connection {
    ($store:expr, $operation:literal, |$connection:ident| $body:block) => {{
        let mut tries = $crate::pool::Tries::new($store, $operation);
        loop {
            let outcome: Result<_, $crate::error::Fault> = match tries.connection().await {
                Ok(mut lent) => {
                    let outcome = tries
                        .limited(async {
                            let $connection = lent.connection();
                            $body
                        })
                        .await;
                    lent.give_back(outcome.as_ref().err());
                    outcome
                }
                Err(fault) => Err(fault),
            };
            match outcome {
                Ok(value) => break Ok(tries.done(value)),
                Err(fault) => {
                    if let Err(error) = tries.again(fault).await {
                        break Err(error);
                    }
                }
            }
        }
    }};
}
pub(crate) use with_connection;

/// The statement in `sql/<name>.sql`.
macro_rules! sql {
    ($name:literal) => {
        include_str!(concat!("sql/", $name, ".sql"))
    };
}
pub(crate) use sql;
