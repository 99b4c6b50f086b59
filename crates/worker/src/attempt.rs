//! One attempt, from claim to settle.

use std::sync::Arc;
use std::time::{Duration, Instant};

use queue::Queue;
use store::{Claim, JournalEntry, JournalKind, StopReason, Store, Write};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;

use crate::backend::Backend;
use crate::callbacks::Callbacks;
use crate::compensate;
use crate::config::Config;
use crate::context::{About, Context};
use crate::drive::{Ends, Overtime, drive};
use crate::error::ToolError;
use crate::lease::{Job, Leases, Order};
use crate::metrics::Metrics;
use crate::process::Commands;
use crate::publish::{Changes, Observations};
use crate::replay::Limits;
use crate::settle::Settling;
use crate::store_backend::StoreBackend;
use crate::tool::{Arguments, Served, call};
use crate::trace;

/// What an attempt needs.
#[derive(Clone)]
pub(crate) struct Parts {
    pub(crate) store: Store,
    pub(crate) queue: Queue,
    pub(crate) config: Arc<Config>,
    pub(crate) leases: Leases,
    pub(crate) metrics: Metrics,
    pub(crate) observations: Observations,
    pub(crate) callbacks: Option<Arc<Callbacks>>,
    /// The threads that tools run on.
    pub(crate) threads: Handle,
}

impl Parts {
    /// Lets these commands live no longer than the job's lease.
    pub(crate) fn lease(&self, commands: &Commands, job: &Arc<Job>) {
        let (job, lease) = (Arc::clone(job), self.store.config().lease);
        // Those that are asked to end have done so before the tool is dropped.
        let grace = self.config.stop_grace * 3 / 4;
        commands.traced(trace::of_call(&job.claim));
        commands.leased(move || job.may_work_until(lease), grace);
    }
}

/// How an attempt ended; also the metric's label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Completed,
    Failed,
    Retried,
    Parked,
    Stopped,
    Released,
    Lost,
    Undone,
}

impl Outcome {
    pub(crate) const ALL: [Self; 8] = [
        Self::Completed,
        Self::Failed,
        Self::Retried,
        Self::Parked,
        Self::Stopped,
        Self::Released,
        Self::Lost,
        Self::Undone,
    ];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Retried => "retried",
            Self::Parked => "parked",
            Self::Stopped => "stopped",
            Self::Released => "released",
            Self::Lost => "lost",
            Self::Undone => "undone",
        }
    }
}

/// Runs a claimed job to its end. Never fails: what cannot be written is found by its lease.
pub(crate) async fn run(parts: &Parts, served: &Served, claim: Claim, sent: Instant) -> Outcome {
    let claim = Arc::new(claim);
    let span = trace::attempt(&claim);
    let kept = parts.leases.keep(Arc::clone(&claim), sent);
    let running = async {
        if claim.undoing {
            compensate::run(parts, served, &kept.job).await
        } else {
            attempt(parts, served, &kept.job).await
        }
    };
    let outcome = Box::pin(running.instrument(span.clone())).await;
    trace::ended(&span, outcome);
    drop(span);
    if let Some(told) = kept.job.told() {
        parts
            .metrics
            .stop_seconds
            .observe(told.elapsed().as_secs_f64());
    }
    let tool = claim.tool.as_str();
    parts
        .metrics
        .attempts
        .with_label_values(&[tool, outcome.as_str()])
        .inc();
    parts
        .metrics
        .seconds
        .with_label_values(&[tool])
        .observe(sent.elapsed().as_secs_f64());
    if outcome == Outcome::Completed {
        parts.observations.ran(&served.spec, sent.elapsed());
    }
    drop(kept);
    parts.queue.wake(claim.id()).await;
    outcome
}

async fn attempt(parts: &Parts, served: &Served, job: &Arc<Job>) -> Outcome {
    let claim = &job.claim;
    let started = Instant::now();
    let settling = Settling {
        parts,
        served,
        job,
        started,
    };
    let journal = match journal(parts, claim).await {
        Ok(journal) => journal,
        Err(error) => {
            tracing::warn!(error = ?error, "the journal cannot be read");
            return Outcome::Lost;
        }
    };
    // A step that an earlier attempt left open is settled before anything runs.
    // One that has finished is what a service does that the task waited for: the tool knows of it.
    if let Some(step) = &claim.open_step {
        let again = journal
            .iter()
            .any(|e| e.kind == JournalKind::Step && e.key == *step && (e.idempotent || e.done));
        if !again {
            return settling.fail(&ToolError::in_doubt(step)).await;
        }
    }
    let about = match about(parts, served, claim) {
        Ok(about) => about,
        Err(error) => return settling.fail(&error).await,
    };
    let stop = CancellationToken::new();
    let (status, said) = watch::channel(String::new());
    let open = claim.open_step.clone().filter(|step| {
        let mut steps = journal.iter().filter(|e| e.kind == JournalKind::Step);
        steps.any(|e| e.key == *step && !e.done)
    });
    let backend = Arc::new(StoreBackend::new(parts, job, started, open));
    let shared: Arc<dyn Backend> = Arc::<StoreBackend>::clone(&backend);
    let mut context = Context::new(about, shared, journal, stop.clone(), status);
    let commands = context.commands();
    parts.lease(&commands, job);
    let arguments = Arguments::new(claim.arguments.clone());
    let tool = Arc::clone(&served.tool);
    let called = async move { call(&*tool, &mut context, arguments).await };
    job.work_begins(claim.work_left);
    let work = AbortOnDropHandle::new(parts.threads.spawn(called.in_current_span()));
    let ends = Ends {
        job,
        stop: &stop,
        grace: parts.config.stop_grace,
        commands: &commands,
    };
    let driven = drive(ends, work, overtime(parts, job));
    let changes = Changes::begin(&parts.observations, &served.spec);
    let reporting = report(&*backend, said, parts.config.status_interval, &changes);
    let work = tokio::select! {
        biased;
        work = driven => work,
        () = reporting => unreachable!("reporting never ends"),
    };
    // From here on nothing of the tool runs, however long the row may take to be written.
    job.work_ended();
    changes.changed();
    let open = if job.order() == Order::Lost {
        None
    } else {
        backend.open_step().await
    };
    settling.settle(work, open).await
}

/// The work has taken longer than it may.
async fn overtime(parts: &Parts, job: &Job) -> Overtime {
    tokio::time::sleep(job.claim.work_left).await;
    let reason = StopReason::WorkLimit;
    let stopped = parts.store.stop_own(&job.claim, reason, None).await;
    if matches!(stopped, Ok(Write::Done)) {
        job.tell(Order::Stop);
        return Overtime::Politely;
    }
    Overtime::AtOnce
}

async fn journal(parts: &Parts, claim: &Claim) -> Result<Vec<JournalEntry>, store::Error> {
    if claim.journaled {
        parts.store.journal(claim).await
    } else {
        Ok(Vec::new())
    }
}

fn about(parts: &Parts, served: &Served, claim: &Claim) -> Result<About, ToolError> {
    let corrupt = |what: &str| ToolError::refused(format!("the task's {what} cannot be read"));
    let offered = match &claim.offered_responses {
        None => None,
        Some(offered) => {
            let raw = serde_json::from_slice(offered).map_err(|_| corrupt("answers"))?;
            Some(protocol::input::InputResponses::read(raw).map_err(|_| corrupt("answers"))?)
        }
    };
    Ok(About {
        id: claim.id(),
        attempt: claim.attempt(),
        principal: claim.principal.clone(),
        capabilities: protocol::meta::ClientCapabilities::parse(&claim.client_capabilities)
            .map_err(|_| corrupt("capabilities"))?,
        offered,
        policy: served.spec.policy.clone(),
        definition: served.spec.definition.clone(),
        limits: Limits::from(&*parts.config),
        callbacks: parts.callbacks.clone(),
    })
}

/// Writes the latest status message, not more often than `interval`.
async fn report(
    backend: &dyn Backend,
    mut said: watch::Receiver<String>,
    interval: Duration,
    changes: &Changes<'_>,
) {
    loop {
        if said.changed().await.is_err() {
            return std::future::pending().await;
        }
        let message = said.borrow_and_update().clone();
        match backend.status(&message).await {
            Ok(true) => changes.changed(),
            Ok(false) => {}
            Err(error) => tracing::debug!(error = ?error, "status message not written"),
        }
        tokio::time::sleep(interval).await;
    }
}
