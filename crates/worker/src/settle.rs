//! How an attempt's end gets into its row.

use std::sync::Arc;
use std::time::{Duration, Instant};

use protocol::code::{self, reason};
use protocol::tools::CallToolResult;
use protocol::{ErrorObject, TaskId};
use serde_json::{Value, json};
use store::{Backoff, Claim, Ended, OnPanic, Write};

use crate::attempt::{Outcome, Parts};
use crate::drive::Work;
use crate::error::{Ending, ToolError};
use crate::lease::{Job, Order};
use crate::short::{cut, error_json, reason_of};
use crate::store_backend::OpenStep;
use crate::tool::Served;

/// Between two tries to write an attempt's end.
const WRITE_PAUSE: Duration = Duration::from_secs(1);

/// An attempt whose work is over.
pub(crate) struct Settling<'a> {
    pub(crate) parts: &'a Parts,
    pub(crate) served: &'a Served,
    pub(crate) job: &'a Arc<Job>,
    pub(crate) started: Instant,
}

/// What the end of the work means for the task.
enum End {
    Result(CallToolResult),
    Parked,
    /// The journal refused, or the tool gave way.
    Stopped,
    Retry(LastError),
    Fail(ToolError),
    Dropped,
}

/// Why another try is needed.
pub(crate) struct LastError {
    pub(crate) message: String,
    /// The tool's own, if its code is among those that are tried again.
    error: Option<ErrorObject>,
}

impl LastError {
    pub(crate) fn plain(message: String) -> Self {
        Self {
            message,
            error: None,
        }
    }

    pub(crate) fn of_tool(error: ErrorObject) -> Self {
        Self {
            message: error.message.clone(),
            error: Some(error),
        }
    }
}

impl Settling<'_> {
    /// Ends the attempt; `open` is a step that began and whose end is not in the journal.
    pub(crate) async fn settle(
        &self,
        work: Work<CallToolResult>,
        open: Option<OpenStep>,
    ) -> Outcome {
        let order = self.job.order();
        if order == Order::Lost {
            return Outcome::Lost;
        }
        let end = self.end(work);
        let doubt = open.as_ref().filter(|open| match &end {
            // It cannot be told from here whether the act took effect.
            End::Result(_) | End::Fail(_) => true,
            End::Parked => false,
            End::Stopped | End::Retry(_) | End::Dropped => !open.idempotent,
        });
        match (end, order) {
            (End::Parked, _) => Outcome::Parked,
            (End::Result(result), _) if doubt.is_none() => self.complete(&result).await,
            (_, Order::Stop) => self.stopped().await,
            (End::Dropped, Order::Work) => Outcome::Lost,
            // A stop may be requested of which no heartbeat has told yet.
            (End::Stopped, Order::Work) => match (self.stopped().await, doubt) {
                (Outcome::Lost, Some(step)) => self.fail(&ToolError::in_doubt(&step.key)).await,
                (outcome, _) => outcome,
            },
            (end, order) => match (end, doubt) {
                // It says itself what is in doubt, and what is known of it.
                (End::Fail(error), Some(_)) if is_doubt(&error) => self.fail(&error).await,
                (_, Some(step)) => self.fail(&ToolError::in_doubt(&step.key)).await,
                (End::Fail(error), _) => self.fail(&error).await,
                // A try that ends because this worker ends is nobody's failure.
                (End::Stopped | End::Retry(_) | End::Dropped, _) if order == Order::Drain => {
                    self.release().await
                }
                (End::Retry(last), _) => self.retry(last).await,
                (End::Result(_) | End::Parked | End::Stopped | End::Dropped, _) => Outcome::Lost,
            },
        }
    }

    fn end(&self, work: Work<CallToolResult>) -> End {
        let policy = &self.served.spec.policy;
        let retry = |message| End::Retry(LastError::plain(message));
        match work {
            Work::Ended(Ok(result)) => End::Result(result),
            Work::Ended(Err(ToolError(ending))) => match ending {
                Ending::Parked => End::Parked,
                Ending::Stopped => End::Stopped,
                Ending::Retry(message) | Ending::Unknown(message) => retry(message),
                Ending::Failed(error) if policy.retry_codes.contains(&error.code) => {
                    End::Retry(LastError::of_tool(error))
                }
                ending @ (Ending::Failed(_) | Ending::Refused(_)) => End::Fail(ToolError(ending)),
            },
            Work::Panicked(message) => match policy.on_panic {
                OnPanic::Retry => retry(message),
                OnPanic::Fail => End::Fail(ToolError::reason(reason::TOOL_PANICKED, message)),
            },
            Work::Dropped => End::Dropped,
        }
    }

    async fn complete(&self, result: &CallToolResult) -> Outcome {
        let bytes = result.to_json();
        let of_tool = self.served.spec.policy.result_bytes_max;
        let of_tool = of_tool.and_then(|max| usize::try_from(max).ok());
        let max = of_tool.unwrap_or(self.parts.config.result_bytes_max);
        if bytes.len() > max {
            let size = bytes.len();
            let message = format!("the result is {size} bytes long; {max} are allowed");
            return self.fail(&ToolError::refused(message)).await;
        }
        let (store, claim) = (&self.parts.store, &self.job.claim);
        let worked = self.started.elapsed();
        let completed = until_written(self.parts, || store.complete(claim, &bytes, worked));
        match completed.await {
            Ok(Write::Done) => Outcome::Completed,
            Ok(Write::Lost) => Outcome::Lost,
            Err(error) => unwritten(&error),
        }
    }

    /// The task fails; what its finished steps did is undone first.
    pub(crate) async fn fail(&self, error: &ToolError) -> Outcome {
        let internal = ErrorObject::new(code::INTERNAL_ERROR, error.to_string());
        let error = error.as_failed().unwrap_or(&internal);
        let config = &self.parts.config;
        let bytes = error_json(error, config.error_bytes_max);
        let message = cut(&error.message, config.status_bytes_max);
        // The message is the tool's: it is in the row, and not for logs.
        tracing::info!(
            error.code = error.code,
            error.reason = reason_of(error),
            "task failed"
        );
        let (store, claim) = (&self.parts.store, &self.job.claim);
        let worked = self.started.elapsed();
        let failed = until_written(self.parts, || store.fail(claim, &bytes, message, worked));
        self.over(failed.await, Outcome::Failed).await
    }

    async fn retry(&self, last: LastError) -> Outcome {
        let (store, claim) = (&self.parts.store, &self.job.claim);
        let policy = self.served.spec.policy.backoff;
        let asked = self.job.asked_to_wait().min(policy.max);
        let pause = backoff(policy, claim.tries, claim.id()).max(asked);
        let message = cut(&last.message, self.parts.config.status_bytes_max);
        let worked = self.started.elapsed();
        tracing::info!(tries = claim.tries + 1, "try failed");
        let queued = until_written(self.parts, || store.retry(claim, message, pause, worked));
        match queued.await {
            Ok(Write::Done) => return Outcome::Retried,
            Ok(Write::Lost) => {}
            Err(error) => return unwritten(&error),
        }
        if claim.tries + 1 < claim.tries_max {
            return self.stopped().await;
        }
        self.fail(&exhausted(claim.tries + 1, last)).await
    }

    async fn stopped(&self) -> Outcome {
        let (store, claim) = (&self.parts.store, &self.job.claim);
        let confirmed = until_written(self.parts, || store.confirm_stopped(claim)).await;
        self.over(confirmed, Outcome::Stopped).await
    }

    /// Gives the job back: another worker goes on with it.
    pub(crate) async fn release(&self) -> Outcome {
        let (parts, claim) = (self.parts, &self.job.claim);
        let epoch = parts.queue.epoch(claim.id());
        let worked = self.started.elapsed();
        let released = parts.store.release(claim, epoch.as_deref(), worked).await;
        match released {
            Ok(Write::Done) => {
                hint(parts, claim).await;
                Outcome::Released
            }
            Ok(Write::Lost) if claim.undoing => Outcome::Lost,
            Ok(Write::Lost) => self.stopped().await,
            Err(error) => unwritten(&error),
        }
    }

    async fn over(&self, ended: Result<Ended, store::Error>, outcome: Outcome) -> Outcome {
        match ended {
            Ok(Ended::Done) => outcome,
            Ok(Ended::Undoing) => {
                hint(self.parts, &self.job.claim).await;
                outcome
            }
            Ok(Ended::Lost) => Outcome::Lost,
            Err(error) => unwritten(&error),
        }
    }
}

/// Why a task of ours failed; what a tool says of its own error is left out.
pub(crate) fn is_doubt(error: &ToolError) -> bool {
    let data = error.as_failed().and_then(|error| error.data.as_ref());
    data.is_some_and(|data| data["reason"] == reason::STEP_IN_DOUBT)
}

pub(crate) fn exhausted(tries: i32, last: LastError) -> ToolError {
    let mut data = json!({ "reason": reason::ATTEMPTS_EXHAUSTED, "tries": tries });
    if let Some(error) = last.error {
        data["lastError"] = serde_json::to_value(error).unwrap_or(Value::Null);
    }
    let message = format!("gave up after {tries} tries: {}", last.message);
    ToolError::refused_with(message, data)
}

/// Doubles with every try, up to a cap, and spreads by a quarter so that failures that came
/// together do not come back together.
pub(crate) fn backoff(backoff: Backoff, tries: i32, id: TaskId) -> Duration {
    let doubled = backoff.first.saturating_mul(1 << tries.clamp(0, 20));
    let base = doubled.min(backoff.max);
    let spread = u32::from(id.as_bytes()[15]) % 64;
    base * (96 + spread) / 128
}

/// Something is to be done for the task at once. Without Redis cron gives the hint.
pub(crate) async fn hint(parts: &Parts, claim: &Claim) {
    let lane = queue::Lane {
        tool: claim.tool.clone(),
        version: claim.tool_version,
    };
    if parts.queue.push(&lane, claim.id()).await.is_err() {
        tracing::debug!("no hint for the job: cron gives it one");
    }
}

/// Writes, again while Postgres is away: nothing of the tool runs any more, and the write is
/// fenced and repeatable, so it does no harm however late it comes. A worker that drains does
/// not wait for it.
pub(crate) async fn until_written<T, F>(
    parts: &Parts,
    write: impl Fn() -> F,
) -> Result<T, store::Error>
where
    F: Future<Output = Result<T, store::Error>>,
{
    loop {
        match write().await {
            Err(error @ store::Error::Unavailable(_)) if !parts.leases.is_draining() => {
                tracing::warn!(error = ?error, "the attempt's end is not written yet");
                tokio::time::sleep(WRITE_PAUSE).await;
            }
            written => return written,
        }
    }
}

/// Nothing was written, or nobody knows: the lease runs out, and the next claim goes on.
pub(crate) fn unwritten(error: &store::Error) -> Outcome {
    tracing::warn!(error = ?error, "the attempt's end could not be written");
    Outcome::Lost
}
