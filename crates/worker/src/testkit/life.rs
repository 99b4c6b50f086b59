//! The life of a task without servers: attempts, and what comes between them.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use protocol::TaskId;
use protocol::code::reason;
use protocol::tools::CallToolResult;
use store::{Backoff, OnLost, OnPanic, ToolPolicy};
use tokio::time::Instant;

use super::backend::KitBackend;
use super::{Kit, Run, Try};
use crate::config::Config;
use crate::error::{Ending, ToolError};
use crate::settle::{LastError, exhausted, is_doubt};
use crate::tool::{Arguments, call};

/// Attempts after which a tool that keeps asking is given up.
const ATTEMPTS_MAX: i32 = 100;

/// A task and its clock.
pub(super) struct Life {
    kit: Kit,
    id: TaskId,
    policy: ToolPolicy,
    backend: Arc<KitBackend>,
    began: Instant,
    worked: Duration,
    attempts: i32,
    tries: i32,
    /// With its limits, deadlines and tries.
    whole: bool,
}

/// Why work was told to stop.
#[derive(Clone, Copy, PartialEq)]
enum Why {
    Cancelled,
    WorkLimit,
}

/// How an attempt ended.
enum Ended {
    Tool(Result<CallToolResult, ToolError>),
    Panicked(String),
    Lost,
    /// It did not stop in time.
    Dropped,
}

/// What follows an attempt.
enum Next {
    /// The task has ended, or waits for somebody who does not come.
    End(Result<CallToolResult, ToolError>),
    Parked,
    Again(LastError),
    Lost,
}

/// The pause after so many tries: doubles, up to a cap. A worker spreads it by a quarter.
pub(super) fn pause_before(backoff: Backoff, tries: i32) -> Duration {
    let doubled = backoff.first.saturating_mul(1 << (tries - 1).clamp(0, 20));
    doubled.min(backoff.max)
}

impl Life {
    pub(super) fn begin(kit: Kit, whole: bool) -> Self {
        Self {
            policy: kit.tool.spec().policy,
            backend: Arc::new(KitBackend::new(&kit)),
            kit,
            id: TaskId::new(0),
            began: Instant::now(),
            worked: Duration::ZERO,
            attempts: 0,
            tries: 0,
            whole,
        }
    }

    pub(super) async fn live(mut self) -> Run {
        // Asked in the run before.
        let mut next = Next::Parked;
        let outcome = loop {
            let goes_on = match next {
                Next::End(outcome) => break outcome,
                Next::Parked => self.wait_for_answers().await,
                Next::Again(last) => self.try_again(last).await,
                Next::Lost => self.lost(),
            };
            match goes_on {
                Ok(()) if self.attempts < ATTEMPTS_MAX => {
                    let (ended, why) = self.attempt().await;
                    next = self.next(ended, why);
                }
                Ok(()) => break Err(ToolError::parked()),
                Err(error) => break Err(error),
            }
        };
        if let Err(error) = &outcome
            && !error.is_parked()
            && !error.is_retryable()
        {
            self.kit.undo(self.id, &self.backend, self.whole).await;
        }
        let world = std::mem::take(&mut *self.backend.lock());
        Run {
            outcome,
            world,
            elapsed: self.began.elapsed(),
        }
    }

    /// Runs the tool from the top.
    async fn attempt(&mut self) -> (Ended, Option<Why>) {
        self.attempts += 1;
        let started = Instant::now();
        let stop = self.kit.stop.child_token();
        let context = self
            .kit
            .context(self.id, self.attempts, &self.backend, stop.clone());
        let mut context = match context {
            Ok(context) => context,
            Err(error) => return (Ended::Tool(Err(error)), None),
        };
        let arguments = Arguments::new(Bytes::from(self.kit.arguments.to_string()));
        let tool = Arc::clone(&self.kit.tool);
        let called = async move { call(&*tool, &mut context, arguments).await };
        let called = AssertUnwindSafe(called).catch_unwind();
        tokio::pin!(called);
        let ended = |called: Result<_, Box<dyn std::any::Any + Send>>| match called {
            Ok(outcome) => Ended::Tool(outcome),
            Err(panic) if self.whole => Ended::Panicked(crate::drive::panicked(&*panic)),
            Err(panic) => std::panic::resume_unwind(panic),
        };
        let why = tokio::select! {
            biased;
            () = self.backend.lost() => return (Ended::Lost, None),
            called = &mut called => {
                self.worked += started.elapsed();
                let stopped = self.kit.stop.is_cancelled();
                return (ended(called), stopped.then_some(Why::Cancelled));
            }
            why = self.told_to_stop() => why,
        };
        stop.cancel();
        let grace = Config::default().stop_grace;
        let ended = tokio::select! {
            biased;
            () = self.backend.lost() => Ended::Lost,
            called = &mut called => ended(called),
            () = tokio::time::sleep(grace) => Ended::Dropped,
        };
        self.worked += started.elapsed();
        (ended, Some(why))
    }

    /// Until the client cancels, or the work has taken too long.
    async fn told_to_stop(&self) -> Why {
        if !self.whole {
            return std::future::pending().await;
        }
        let left = self.policy.work_limit.saturating_sub(self.worked);
        tokio::select! {
            biased;
            () = self.cancelled() => Why::Cancelled,
            () = tokio::time::sleep(left) => Why::WorkLimit,
        }
    }

    /// Until the client cancels.
    async fn cancelled(&self) {
        let after = async {
            match self.kit.cancel_after {
                Some(after) => tokio::time::sleep_until(self.began + after).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = after => {}
            () = self.kit.stop.cancelled() => {}
        }
    }

    /// What an attempt's end means; the rules of a worker's `settle`.
    fn next(&self, ended: Ended, why: Option<Why>) -> Next {
        if !self.whole {
            return match ended {
                Ended::Tool(Err(error)) if error.is_parked() => Next::Parked,
                Ended::Tool(outcome) => Next::End(outcome),
                Ended::Lost => Next::Lost,
                Ended::Panicked(_) | Ended::Dropped => Next::End(Err(ToolError::stopped())),
            };
        }
        let open = self.backend.open_step();
        let doubt = |key: &str| Next::End(Err(ToolError::in_doubt(key)));
        let error = match (ended, &open) {
            (Ended::Lost, _) => return Next::Lost,
            (Ended::Tool(Ok(result)), None) => return Next::End(Ok(result)),
            (Ended::Tool(Ok(_)), Some((key, _))) => return doubt(key),
            (Ended::Tool(Err(error)), _) => error,
            (Ended::Panicked(message), _) => match self.policy.on_panic {
                OnPanic::Retry => ToolError::retryable(message),
                OnPanic::Fail => ToolError::reason(reason::TOOL_PANICKED, message),
            },
            (Ended::Dropped, _) => ToolError::stopped(),
        };
        if let Some(why) = why {
            return match open {
                Some((key, _)) => doubt(&key),
                None => Next::End(Err(self.stopped(why))),
            };
        }
        match (error, open) {
            (error, _) if error.is_parked() => Next::Parked,
            (error, Some(_)) if is_doubt(&error) => Next::End(Err(error)),
            (error, Some((key, false))) if error.is_retryable() => doubt(&key),
            (ToolError(Ending::Retry(message) | Ending::Unknown(message)), _) => {
                Next::Again(LastError::plain(message))
            }
            (ToolError(Ending::Failed(error)), None)
                if self.policy.retry_codes.contains(&error.code) =>
            {
                Next::Again(LastError::of_tool(error))
            }
            (_, Some((key, _))) => doubt(&key),
            (error, None) => Next::End(Err(error)),
        }
    }

    fn stopped(&self, why: Why) -> ToolError {
        match why {
            Why::Cancelled => ToolError::stopped(),
            Why::WorkLimit => {
                let ms = self.policy.work_limit.as_millis();
                let message = format!("the work was stopped after its limit of {ms} ms");
                ToolError::reason(reason::WORK_LIMIT, message)
            }
        }
    }

    /// Waits out the backoff, or says that there is no try left.
    async fn try_again(&mut self, last: LastError) -> Result<(), ToolError> {
        self.tries += 1;
        if self.tries >= i32::from(self.policy.tries_max) {
            return Err(exhausted(self.tries, last));
        }
        let pause = pause_before(self.policy.backoff, self.tries);
        let message = last.message;
        self.backend.lock().tries.push(Try { message, pause });
        self.wait(pause).await
    }

    /// Another worker goes on, if that is allowed.
    fn lost(&mut self) -> Result<(), ToolError> {
        self.tries += 1;
        if let Some((key, false)) = self.backend.open_step() {
            return Err(ToolError::in_doubt(&key));
        }
        if self.policy.on_lost == OnLost::Fail {
            let message = "the worker was lost, and this tool is not tried again";
            return Err(ToolError::reason(reason::WORKER_LOST, message));
        }
        let message = "the worker was lost".to_owned();
        if self.tries >= i32::from(self.policy.tries_max) {
            return Err(exhausted(self.tries, LastError::plain(message)));
        }
        let pause = Duration::ZERO;
        self.backend.lock().tries.push(Try { message, pause });
        Ok(())
    }

    /// The client answers as it is told to, or the deadlines of its questions pass.
    async fn wait_for_answers(&self) -> Result<(), ToolError> {
        if !self.whole {
            return self.answer_at_once();
        }
        let asked = Instant::now();
        let mut script = Vec::new();
        for key in self.backend.unanswered() {
            let Some(scripted) = self.kit.answers.get(&key) else {
                return Err(ToolError::parked());
            };
            let (wait, default) = self.backend.waits(&key);
            let response = scripted.response.as_ref();
            let in_time = response.filter(|_| scripted.after <= wait);
            let at = scripted.after.min(wait);
            script.push((at, key, in_time.cloned(), default));
        }
        script.sort_by_key(|(at, ..)| *at);
        for (at, key, response, default) in script {
            self.wait(at.saturating_sub(asked.elapsed())).await?;
            let response = match (response, default) {
                (Some(response), _) => {
                    let misfit = self.backend.misfit(&key, &response);
                    assert!(
                        misfit.is_none(),
                        "the answer to \"{key}\" is none: {misfit:?}"
                    );
                    Bytes::from(response.to_string())
                }
                (None, Some(default)) => default,
                (None, None) => {
                    let message = format!("question \"{key}\" went unanswered");
                    return Err(ToolError::reason(reason::INPUT_DEADLINE, message));
                }
            };
            self.backend.answer(&key, response);
        }
        Ok(())
    }

    /// The same without a clock.
    fn answer_at_once(&self) -> Result<(), ToolError> {
        for key in self.backend.unanswered() {
            let scripted = self.kit.answers.get(&key);
            if let Some(response) = scripted.and_then(|s| s.response.as_ref()) {
                self.backend.answer(&key, Bytes::from(response.to_string()));
            }
        }
        match self.backend.unanswered().is_empty() {
            true => Ok(()),
            false => Err(ToolError::parked()),
        }
    }

    async fn wait(&self, duration: Duration) -> Result<(), ToolError> {
        tokio::select! {
            biased;
            () = tokio::time::sleep(duration) => Ok(()),
            () = self.cancelled() => Err(ToolError::stopped()),
        }
    }
}
