//! Connections: a bounded pool, and tries that wait for Postgres to come back.

use std::time::{Duration, Instant};

use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, RecyclingMethod, Runtime};
use tokio_postgres::NoTls;

use crate::error::{Error, Fault};
use crate::{Config, Store};

/// Pauses between tries: short at first (a restart often takes less than a second).
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(500);

pub(crate) fn build(config: &Config) -> Result<Pool, Error> {
    let mut postgres: tokio_postgres::Config = config
        .url
        .parse()
        .map_err(|e| Error::Schema(format!("postgres.url: {e}")))?;
    let statement_timeout = config.statement_timeout.as_millis();
    postgres
        .application_name("mcp-tasks")
        .connect_timeout(config.connect_timeout)
        // Half-open connections are noticed in seconds and not in hours.
        .keepalives_idle(Duration::from_secs(10))
        .tcp_user_timeout(config.statement_timeout + Duration::from_secs(5));
    let options = format!(
        "{} -c statement_timeout={statement_timeout} -c idle_in_transaction_session_timeout={statement_timeout}",
        postgres.get_options().unwrap_or_default(),
    );
    postgres.options(options.trim());
    let manager = Manager::from_config(
        postgres,
        NoTls,
        // A dead connection costs one try, which is repeated, and not one round trip a use.
        ManagerConfig {
            recycling_method: RecyclingMethod::Fast,
        },
    );
    Pool::builder(manager)
        .max_size(config.pool_size)
        .wait_timeout(Some(config.wait_max.max(Duration::from_millis(100))))
        .create_timeout(Some(config.connect_timeout))
        .recycle_timeout(Some(config.connect_timeout))
        .runtime(Runtime::Tokio1)
        .build()
        .map_err(|e| Error::Unavailable(Box::new(e)))
}

/// The tries of one operation. Every statement of this crate is safe to repeat, because its
/// ids and tokens are chosen before the first try.
pub(crate) struct Tries<'a> {
    store: &'a Store,
    operation: &'static str,
    started: Instant,
    pause: Duration,
}

impl<'a> Tries<'a> {
    pub(crate) fn new(store: &'a Store, operation: &'static str) -> Self {
        Self {
            store,
            operation,
            started: Instant::now(),
            pause: PAUSE_MIN,
        }
    }

    pub(crate) async fn connection(&self) -> Result<Object, Fault> {
        Ok(self.store.pool.get().await?)
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
                self.store.metrics.error(self.operation);
                return Err(error);
            }
            Fault::Transient(source) => source,
        };
        if self.started.elapsed() + self.pause > self.store.wait_max {
            self.store.metrics.error(self.operation);
            return Err(Error::Unavailable(source));
        }
        self.store.metrics.retry(self.operation);
        tracing::debug!(operation = self.operation, error = %source, "postgres is away, waiting");
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        Ok(())
    }
}

/// How long (ms) this connection has been up: a looker that was cut off itself must not judge
/// leases. Monotonic, and compared with nothing but itself.
pub(crate) fn age_ms(connection: &Object) -> i64 {
    crate::config::ms(Object::metrics(connection).age())
}

/// Runs the body with a connection, again while Postgres is away and there is time.
macro_rules! with_connection {
    ($store:expr, $operation:literal, |mut $connection:ident| $body:block) => {
        $crate::pool::with_connection!(@ $store, $operation, [mut $connection] $body)
    };
    ($store:expr, $operation:literal, |$connection:ident| $body:block) => {
        $crate::pool::with_connection!(@ $store, $operation, [$connection] $body)
    };
    (@ $store:expr, $operation:literal, [$($connection:tt)+] $body:block) => {{
        let mut tries = $crate::pool::Tries::new($store, $operation);
        loop {
            let outcome: Result<_, $crate::error::Fault> = async {
                let $($connection)+ = tries.connection().await?;
                $body
            }
            .await;
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
