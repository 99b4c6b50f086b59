//! One attempt, from claim to settle.

use std::sync::Arc;
use std::time::{Duration, Instant};

use protocol::tools::CallToolResult;
use protocol::{ErrorObject, code};
use queue::Queue;
use serde_json::json;
use store::{Claim, JournalEntry, JournalKind, StopReason, Store, Write};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;

use crate::backend::Backend;
use crate::config::Config;
use crate::context::{About, Context};
use crate::error::{Ending, ToolError};
use crate::lease::{Job, Leases, Order};
use crate::metrics::Metrics;
use crate::store_backend::StoreBackend;
use crate::tool::{Arguments, Served};

/// Between two tries to write an attempt's end.
const WRITE_PAUSE: Duration = Duration::from_secs(1);

/// What an attempt needs.
#[derive(Clone)]
pub(crate) struct Parts {
    pub(crate) store: Store,
    pub(crate) queue: Queue,
    pub(crate) config: Arc<Config>,
    pub(crate) leases: Leases,
    pub(crate) metrics: Metrics,
    /// The threads that tools run on.
    pub(crate) threads: Handle,
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
}

impl Outcome {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Retried => "retried",
            Self::Parked => "parked",
            Self::Stopped => "stopped",
            Self::Released => "released",
            Self::Lost => "lost",
        }
    }
}

/// How the tool's work ended.
enum Work {
    Ended(Result<CallToolResult, ToolError>),
    Dropped,
}

/// Runs a claimed job to its end. Never fails: what cannot be written is found by its lease.
pub(crate) async fn run(parts: &Parts, served: &Served, claim: Claim, sent: Instant) -> Outcome {
    let claim = Arc::new(claim);
    let span = tracing::info_span!(
        parent: None, "job", task.id = %claim.id(), tool.name = claim.tool, attempt = claim.attempt()
    );
    link(&span, &claim);
    let kept = parts.leases.keep(Arc::clone(&claim), sent);
    let outcome = attempt(parts, served, &kept.job).instrument(span).await;
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
    drop(kept);
    parts.queue.wake(claim.id()).await;
    outcome
}

fn link(span: &tracing::Span, claim: &Claim) {
    let Some(context) = &claim.trace_context else {
        return;
    };
    let Ok(context) = serde_json::from_slice::<serde_json::Value>(context) else {
        return;
    };
    if let Some(parent) = context["traceparent"].as_str() {
        telemetry::traces::link_span(span, parent, context["tracestate"].as_str());
    }
}

async fn attempt(parts: &Parts, served: &Served, job: &Arc<Job>) -> Outcome {
    let claim = &job.claim;
    let started = Instant::now();
    let journal = match journal(parts, claim).await {
        Ok(journal) => journal,
        Err(error) => {
            tracing::warn!(error = ?error, "the journal cannot be read");
            return Outcome::Lost;
        }
    };
    // A step that an earlier attempt left open is settled before anything runs.
    if let Some(step) = &claim.open_step {
        let again = journal
            .iter()
            .any(|e| e.kind == JournalKind::Step && e.key == *step && e.idempotent);
        if !again {
            return fail(parts, job, &ToolError::in_doubt(step), started).await;
        }
    }
    let stop = CancellationToken::new();
    let (status, said) = watch::channel(String::new());
    let backend: Arc<dyn Backend> = Arc::new(StoreBackend {
        store: parts.store.clone(),
        queue: parts.queue.clone(),
        job: Arc::clone(job),
        started,
        status_bytes_max: parts.config.status_bytes_max,
        home: Handle::current(),
    });
    let about = match about(parts, served, claim) {
        Ok(about) => about,
        Err(error) => return fail(parts, job, &error, started).await,
    };
    let mut context = Context::new(about, Arc::clone(&backend), journal, stop.clone(), status);
    let arguments = Arguments::new(claim.arguments.clone());
    let tool = Arc::clone(&served.tool);
    let called = async move { tool.call(&mut context, arguments).await };
    job.work_begins();
    let work = AbortOnDropHandle::new(parts.threads.spawn(called.in_current_span()));
    let work = {
        let driven = drive(parts, job, work, &stop);
        let reporting = report(&*backend, said, parts.config.status_interval);
        tokio::select! {
            biased;
            work = driven => work,
            () = reporting => unreachable!("reporting never ends"),
        }
    };
    // From here on nothing of the tool runs, however long the row may take to be written.
    job.work_ended();
    settle(parts, served, job, work, started).await
}

async fn journal(parts: &Parts, claim: &Claim) -> Result<Vec<JournalEntry>, store::Error> {
    if claim.journaled {
        parts.store.journal(claim).await
    } else {
        Ok(Vec::new())
    }
}

fn about(parts: &Parts, served: &Served, claim: &Claim) -> Result<About, ToolError> {
    let corrupt = |what: &str| {
        ToolError::failed(
            code::INTERNAL_ERROR,
            format!("the task's {what} cannot be read"),
        )
    };
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
        step_bytes_max: parts.config.step_bytes_max,
    })
}

/// A tool's call, on the tools' threads.
type Call = AbortOnDropHandle<Result<CallToolResult, ToolError>>;

/// Waits until the work ends, or ends it when it must not go on.
async fn drive(parts: &Parts, job: &Job, mut work: Call, stop: &CancellationToken) -> Work {
    let limit = tokio::time::sleep(job.claim.work_left);
    tokio::select! {
        biased;
        // Somebody else's task: nothing more may happen here, not even politely.
        () = told(job, Order::Lost) => return dropped(work).await,
        called = &mut work => return ended(called),
        () = told(job, Order::Drain) => {}
        () = limit => {
            let stopped = parts.store.stop_own(&job.claim, StopReason::WorkLimit, None).await;
            if matches!(stopped, Ok(Write::Done)) {
                job.tell(Order::Stop);
            } else {
                return dropped(work).await;
            }
        }
    }
    stop.cancel();
    tokio::select! {
        biased;
        () = told(job, Order::Lost) => {}
        called = &mut work => return ended(called),
        () = tokio::time::sleep(parts.config.stop_grace) => {}
    }
    dropped(work).await
}

/// Drops the work and waits until it is gone: only then may its row say so. One that neither
/// awaits nor returns is waited for in vain, which is found by [`Leases::stuck`].
async fn dropped(work: Call) -> Work {
    work.abort();
    ended(work.await)
}

fn ended(called: Result<Result<CallToolResult, ToolError>, JoinError>) -> Work {
    match called {
        Ok(result) => Work::Ended(result),
        Err(error) if error.is_panic() => Work::Ended(Err(panicked(&*error.into_panic()))),
        Err(_) => Work::Dropped,
    }
}

/// Waits until the job is told this much, or more.
async fn told(job: &Job, least: Order) {
    let mut orders = job.orders();
    // The sender lives in the job, which outlives this wait.
    drop(orders.wait_for(|order| *order >= least).await);
}

/// Writes the latest status message, not more often than `interval`.
async fn report(backend: &dyn Backend, mut said: watch::Receiver<String>, interval: Duration) {
    loop {
        if said.changed().await.is_err() {
            return std::future::pending().await;
        }
        let message = said.borrow_and_update().clone();
        if let Err(error) = backend.status(&message).await {
            tracing::debug!(error = ?error, "status message not written");
        }
        tokio::time::sleep(interval).await;
    }
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> ToolError {
    let message = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned());
    tracing::error!(panic = message, "a tool panicked");
    ToolError::retryable(format!("the tool panicked: {message}"))
}

async fn settle(
    parts: &Parts,
    served: &Served,
    job: &Job,
    work: Work,
    started: Instant,
) -> Outcome {
    let order = job.order();
    match work {
        _ if order == Order::Lost => Outcome::Lost,
        Work::Ended(Ok(result)) => complete(parts, served, job, &result, started).await,
        Work::Ended(Err(ToolError(Ending::Parked))) => Outcome::Parked,
        Work::Ended(Err(_)) | Work::Dropped if order == Order::Stop => stopped(parts, job).await,
        // A try that ends because this worker ends is nobody's failure.
        Work::Ended(Err(ToolError(Ending::Stopped | Ending::Retry(_) | Ending::Unknown(_))))
        | Work::Dropped
            if order == Order::Drain =>
        {
            release(parts, job, started).await
        }
        // The journal refused: a stop was requested that no heartbeat has told of yet.
        Work::Ended(Err(ToolError(Ending::Stopped))) => stopped(parts, job).await,
        Work::Ended(Err(ToolError(Ending::Retry(message) | Ending::Unknown(message)))) => {
            retry(parts, served, job, &message, started).await
        }
        Work::Ended(Err(error @ ToolError(Ending::Failed(_)))) => {
            fail(parts, job, &error, started).await
        }
        Work::Dropped => Outcome::Lost,
    }
}

async fn complete(
    parts: &Parts,
    served: &Served,
    job: &Job,
    result: &CallToolResult,
    started: Instant,
) -> Outcome {
    let bytes = result.to_json();
    let of_tool = served
        .spec
        .policy
        .result_bytes_max
        .and_then(|max| usize::try_from(max).ok());
    let max = of_tool.unwrap_or(parts.config.result_bytes_max);
    if bytes.len() > max {
        let message = format!(
            "the result is {} bytes long; {max} are allowed",
            bytes.len()
        );
        let error = ToolError::failed(code::INTERNAL_ERROR, message);
        return fail(parts, job, &error, started).await;
    }
    let end = End::Complete(&bytes, started.elapsed());
    match write(parts, job, end).await {
        Ok(Write::Done) => Outcome::Completed,
        // Refused while a step is open: the tool went another way than the attempt before it.
        Ok(Write::Lost) => match &job.claim.open_step {
            Some(step) => fail(parts, job, &ToolError::in_doubt(step), started).await,
            None => Outcome::Lost,
        },
        Err(error) => unwritten(&error),
    }
}

async fn fail(parts: &Parts, job: &Job, error: &ToolError, started: Instant) -> Outcome {
    let internal = ErrorObject::new(code::INTERNAL_ERROR, error.to_string());
    let error = error.as_failed().unwrap_or(&internal);
    let bytes = serde_json::to_vec(error).unwrap_or_default();
    tracing::info!(error = error.message, code = error.code, "task failed");
    let end = End::Fail(&bytes, &error.message, started.elapsed());
    match write(parts, job, end).await {
        Ok(Write::Done) => Outcome::Failed,
        Ok(Write::Lost) => Outcome::Lost,
        Err(error) => unwritten(&error),
    }
}

async fn retry(
    parts: &Parts,
    served: &Served,
    job: &Job,
    message: &str,
    started: Instant,
) -> Outcome {
    let claim = &job.claim;
    let pause = backoff(served.spec.policy.backoff, claim);
    tracing::info!(error = message, tries = claim.tries + 1, "try failed");
    let end = End::Retry(message, pause, started.elapsed());
    match write(parts, job, end).await {
        Ok(Write::Done) => return Outcome::Retried,
        Ok(Write::Lost) => {}
        Err(error) => return unwritten(&error),
    }
    if claim.tries + 1 < claim.tries_max {
        return stopped(parts, job).await;
    }
    let tries = claim.tries + 1;
    let error = ToolError::failed_with(
        code::INTERNAL_ERROR,
        format!("gave up after {tries} tries: {message}"),
        json!({ "reason": "attempts_exhausted", "tries": tries }),
    );
    fail(parts, job, &error, started).await
}

/// Doubles with every try, up to a cap, and spreads by a quarter so that failures that came
/// together do not come back together.
fn backoff(backoff: store::Backoff, claim: &Claim) -> Duration {
    let doubled = backoff.first.saturating_mul(1 << claim.tries.clamp(0, 20));
    let base = doubled.min(backoff.max);
    let spread = u32::from(claim.id().as_bytes()[15]) % 64;
    base * (96 + spread) / 128
}

async fn stopped(parts: &Parts, job: &Job) -> Outcome {
    match write(parts, job, End::Stopped).await {
        Ok(Write::Done) => Outcome::Stopped,
        Ok(Write::Lost) => Outcome::Lost,
        Err(error) => unwritten(&error),
    }
}

async fn release(parts: &Parts, job: &Job, started: Instant) -> Outcome {
    let claim = &job.claim;
    let epoch = parts.queue.epoch(claim.id());
    match parts
        .store
        .release(claim, epoch.as_deref(), started.elapsed())
        .await
    {
        Ok(Write::Done) => {
            let lane = queue::Lane {
                tool: claim.tool.clone(),
                version: claim.tool_version,
            };
            if parts.queue.push(&lane, claim.id()).await.is_err() {
                tracing::debug!("no hint for the released job: cron gives it one");
            }
            Outcome::Released
        }
        Ok(Write::Lost) => stopped(parts, job).await,
        Err(error) => unwritten(&error),
    }
}

/// How an attempt is to end in its row.
#[derive(Clone, Copy)]
enum End<'a> {
    Complete(&'a [u8], Duration),
    Fail(&'a [u8], &'a str, Duration),
    Retry(&'a str, Duration, Duration),
    Stopped,
}

/// Writes how the attempt ended, again while Postgres is away: nothing of the tool runs any more,
/// and the write is fenced and repeatable, so it does no harm however late it comes. A worker
/// that drains does not wait for it.
async fn write(parts: &Parts, job: &Job, end: End<'_>) -> Result<Write, store::Error> {
    let (store, claim) = (&parts.store, &job.claim);
    loop {
        let written = match end {
            End::Complete(result, worked) => store.complete(claim, result, worked).await,
            End::Fail(error, message, worked) => store.fail(claim, error, message, worked).await,
            End::Retry(error, pause, worked) => store.retry(claim, error, pause, worked).await,
            End::Stopped => store.confirm_stopped(claim).await,
        };
        match written {
            Err(error @ store::Error::Unavailable(_)) if !parts.leases.is_draining() => {
                tracing::warn!(error = ?error, "the attempt's end is not written yet");
                tokio::time::sleep(WRITE_PAUSE).await;
            }
            written => return written,
        }
    }
}

/// Nothing was written, or nobody knows: the lease runs out, and the next claim goes on.
fn unwritten(error: &store::Error) -> Outcome {
    tracing::warn!(error = ?error, "the attempt's end could not be written");
    Outcome::Lost
}
