//! Tasks, their journal and their questions in Postgres: all SQL, all state.
//!
//! One promise, one function, one statement of the same name in `src/sql/`:
//!
//! | invariant | function | statement |
//! |---|---|---|
//! | I1 persist first | [`Store::create`], [`Store::hand_out`] | `create.sql`, `create_one.sql`, `hand_out.sql` |
//! | I2 nothing lost | [`Store::unhinted`] | `unhinted.sql` |
//! | I3 one owner | [`Store::claim`], [`Store::heartbeat`] | `claim.sql`, `claim_queued.sql`, `claim_one.sql`, `heartbeat.sql` |
//! | I4 a step once | [`Store::begin_step`], [`Store::finish_step`] | `begin_step.sql`, `finish_step.sql` |
//! | I4 or it is undone | [`Store::begin_undo`], [`Store::undone`] | `begin_undo.sql`, `undone.sql` |
//! | I5 no act after cancel | [`Store::cancel`], [`Store::begin_step`] | `lock_task.sql`, `settle_stopped.sql` |
//! | I6 terminal is final | [`Store::complete`], [`Store::fail`] | `complete.sql`, `complete_one.sql`, `fail.sql` |
//! | I7 idempotent creation | [`Store::create`] | `create.sql`, `existing.sql` |
//! | I8 ownership | [`Store::get`] | `get.sql`, `get_one.sql`, `tombstones.sql` |
//! | I9 no promise by being watched | [`Store::raise_unfetched`] | `raise_unfetched.sql` |
//! | I10 parked is not leaking | [`Store::park`], [`Store::answer`] | `park.sql`, `resume.sql` |
//! | I10 nor is waiting for a service | [`Store::wait_callback`], [`Store::receive_callback`] | `wait_callback.sql`, `receive_callback.sql` |
//! | I11 expiry stops work | [`Store::expire`], [`Store::purge`] | `expire.sql`, `purge.sql` |
//! | I14 schema changes roll | [`migrate::migrate`], [`Store::check_schema`] | `migrations/` |
//!
//! Architecture invariant: this crate never knows Redis, HTTP or JSON-RPC, and never reads a
//! local clock: leases, deadlines and expiry are Postgres' `now()`.

mod alerts;
mod batch;
mod broken;
mod callback;
mod cancel;
mod claim;
pub mod config;
mod connect;
mod create;
mod create_rows;
mod default_answers;
mod delegate;
mod erase;
mod error;
mod expire;
mod forsaken;
mod gauges;
mod input;
mod journal;
mod keyring;
mod list;
mod metrics;
pub mod migrate;
mod opened;
mod operate;
mod operate_audit;
mod operate_doctor;
mod operate_fleet;
mod operate_list;
mod operate_show;
mod plans;
mod policy_check;
mod pool;
mod provider_spec;
mod providers;
mod quota;
mod read;
mod recover;
mod refusal;
mod reseal;
mod rights;
mod row;
mod seal;
mod settle;
mod slots;
mod sweeps;
mod sync;
mod task;
mod tls;
mod together;
mod tool_policy;
mod tool_spec;
mod tools;
mod turn;
mod undo;

use std::sync::Arc;
use std::time::Duration;

pub use alerts::{Alert, AlertRules, Delivery, DeliveryState, Reminder, SendPause, Unfetched};
pub use broken::Broken;
pub use callback::{
    Awaited, CallbackShown, Called, NewCallback, Open, Opened, Pace, Progressed, Received, Wait,
};
pub use cancel::{Cancel, Settled};
pub use claim::{Beat, Claim, ClaimRequest, Ended, Write};
pub use config::Config;
pub use create::{Created, NewTask};
pub use default_answers::Form;
pub use erase::{Member, Traces, pseudonym};
pub use error::Error;
pub use expire::Expired;
pub use forsaken::Forsaken;
pub use gauges::{LiveTasks, QueueAge};
pub use input::{Answer, Parked, Question};
pub use journal::{Begin, JournalEntry, JournalKind, Permit, StepSpec, UndoSpec};
pub use keyring::{Encryption, EncryptionKey};
pub use list::Listed;
pub use operate::{Act, Repeat, Touched};
pub use operate_audit::{Audit, AuditFilter, AuditTask};
pub use operate_doctor::{ServerFacts, SweepFacts};
pub use operate_fleet::{Introduction, Pause, PauseScope, QueueState, ToolState, WorkerState};
pub use operate_list::{TaskAct, TaskFilter, TaskSummary};
pub use operate_show::{
    AttemptShown, Delivered, InputShown, StepShown, TaskShown, Told, TombstoneShown,
};
pub use policy_check::{PolicyError, check_queue_name};
pub use provider_spec::{Asked, ProviderSpec, Resources};
pub use providers::{ProviderEntry, WANTED_BYTES_MAX, WANTED_MAX, Wanted, WantedResource};
pub use quota::Live;
pub use read::Lookup;
pub use recover::{Unhinted, UnhintedFilter};
pub use refusal::Refusal;
pub use reseal::SealedBy;
pub use rights::MissingRights;
pub use slots::{QueueWait, Slots};
pub use task::{ParkedFor, Principal, StopReason, Task};
pub use tool_policy::{Backoff, OnLost, OnPanic, TaskSupport, ToolPolicy};
pub use tool_spec::ToolSpec;
pub use tools::{CatalogueEntry, Observed, ToolsSwept};
pub use turn::{Hinted, Limits, Served, Turn, TurnRequest, Waiting};
pub use undo::UndoStep;

/// A handle to the tasks in Postgres. Cheap to clone; connects when first used.
#[derive(Clone)]
pub struct Store {
    pool: deadpool_postgres::Pool,
    config: Arc<Config>,
    /// Opens what is sealed, and seals.
    keys: keyring::Keyring,
    /// Operators asked to see what is sealed.
    opens_for_operators: bool,
    metrics: metrics::Metrics,
    together: together::Together,
    wait_max: Duration,
    /// When a connection was last found to have failed, else when there was a first one.
    outage: pool::Since,
    /// Where broken rows are noted that batches leave out; `None`: a batch fails whole.
    broken: Option<Broken>,
}

impl Store {
    /// A store over the given settings. Does not connect yet.
    ///
    /// # Errors
    /// When the URL cannot be read.
    pub fn new(config: Config, registry: &telemetry::Registry) -> Result<Self, Error> {
        let outage = pool::Since::default();
        let pool = pool::build(&config, &outage)?;
        Ok(Self {
            metrics: metrics::Metrics::watching(registry, &pool),
            pool,
            keys: keyring::Keyring::empty(),
            opens_for_operators: false,
            together: together::Together::new(),
            wait_max: config.wait_max,
            outage,
            broken: None,
            config: Arc::new(config),
        })
    }

    /// The same store, but waiting at most this long for Postgres to come back.
    #[must_use]
    pub fn with_wait(&self, wait_max: Duration) -> Self {
        Self {
            wait_max,
            ..self.clone()
        }
    }

    /// The settings this store was made with.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Whether Postgres answers, now.
    ///
    /// # Errors
    /// When it does not.
    pub async fn ping(&self) -> Result<(), Error> {
        let store = self.with_wait(Duration::ZERO);
        pool::with_connection!(&store, "ping", |connection| {
            connection.simple_query("").await?;
            Ok(())
        })
    }
}
