//! A tool's code on the tools' threads, and how it is ended when it must not go on.

use std::time::Duration;

use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::error::ToolError;
use crate::lease::{Job, Order};
use crate::process::Commands;

/// A tool's code, on the tools' threads.
pub(crate) type Call<T> = AbortOnDropHandle<Result<T, ToolError>>;

/// How a tool's code ended.
pub(crate) enum Work<T> {
    Ended(Result<T, ToolError>),
    Panicked(String),
    Dropped,
}

/// How work that took too long is ended.
pub(crate) enum Overtime {
    Politely,
    AtOnce,
}

/// What ends the work, other than itself.
pub(crate) struct Ends<'a> {
    pub(crate) job: &'a Job,
    pub(crate) stop: &'a CancellationToken,
    pub(crate) grace: Duration,
    pub(crate) commands: &'a Commands,
}

/// Waits until the work ends, or ends it when it must not go on; `limit` comes to its end when
/// the work has taken too long.
pub(crate) async fn drive<T>(
    ends: Ends<'_>,
    work: Call<T>,
    limit: impl Future<Output = Overtime>,
) -> Work<T> {
    let (job, commands) = (ends.job, ends.commands);
    let work = run(ends, work, limit).await;
    job.work_ended();
    // Nothing of the tool runs any more, nor may its commands, when the row says so. Who has lost
    // the task writes no row.
    tokio::select! {
        biased;
        () = commands.end() => {}
        () = told(job, Order::Lost) => {}
    }
    work
}

async fn run<T>(
    ends: Ends<'_>,
    mut work: Call<T>,
    limit: impl Future<Output = Overtime>,
) -> Work<T> {
    let Ends {
        job, stop, grace, ..
    } = ends;
    tokio::select! {
        biased;
        // Somebody else's task: nothing more may happen here, not even politely.
        () = told(job, Order::Lost) => return dropped(work).await,
        called = &mut work => return ended(called),
        () = told(job, Order::Drain) => {}
        overtime = limit => match overtime {
            Overtime::Politely => {}
            Overtime::AtOnce => return dropped(work).await,
        }
    }
    stop.cancel();
    tokio::select! {
        biased;
        () = told(job, Order::Lost) => {}
        called = &mut work => return ended(called),
        () = tokio::time::sleep(grace) => {}
    }
    dropped(work).await
}

/// Drops the work and waits until it is gone: only then may its row say so. One that neither
/// awaits nor returns is waited for in vain, which is found by [`crate::lease::Leases::stuck`].
async fn dropped<T>(work: Call<T>) -> Work<T> {
    work.abort();
    ended(work.await)
}

fn ended<T>(called: Result<Result<T, ToolError>, JoinError>) -> Work<T> {
    match called {
        Ok(result) => Work::Ended(result),
        Err(error) if error.is_panic() => Work::Panicked(panicked(&*error.into_panic())),
        Err(_) => Work::Dropped,
    }
}

pub(crate) fn panicked(panic: &(dyn std::any::Any + Send)) -> String {
    let message = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned());
    tracing::error!(panic.text = telemetry::panic_text(panic), "a tool panicked");
    format!("the tool panicked: {message}")
}

/// Waits until the job is told this much, or more.
pub(crate) async fn told(job: &Job, least: Order) {
    let mut orders = job.orders();
    // The sender lives in the job, which outlives this wait.
    drop(orders.wait_for(|order| *order >= least).await);
}
