//! Undoing: what finished steps did is taken back, the last one first, before their task ends
//! without a result.
//!
//! A job like any other: claimed, kept by heartbeats, drained. Only a stop does not end it, for a
//! stop may be what it began with.

use std::sync::Arc;
use std::time::{Duration, Instant};

use store::{ToolPolicy, UndoStep, Write};
use telemetry::traces;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;

use crate::attempt::{Outcome, Parts};
use crate::drive::{Ends, Overtime, Work, drive};
use crate::error::{Ending, ToolError};
use crate::lease::{Job, Order};
use crate::process::Commands;
use crate::settle::{Settling, backoff, hint, until_written, unwritten};
use crate::short::cut;
use crate::tool::{Arguments, Served};
use crate::trace;
use crate::undo::Undoing;

/// What a try came to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Undone,
    Again(String),
    GiveUp(String),
}

/// Undoes what is left to undo; then the task gets the end that waited.
pub(crate) async fn run(parts: &Parts, served: &Served, job: &Arc<Job>) -> Outcome {
    let unwind = Unwind {
        parts,
        served,
        job,
        started: Instant::now(),
    };
    loop {
        if let Some(outcome) = unwind.next().await {
            return outcome;
        }
    }
}

struct Unwind<'a> {
    parts: &'a Parts,
    served: &'a Served,
    job: &'a Arc<Job>,
    started: Instant,
}

impl Unwind<'_> {
    /// Undoes one step, or ends; `None`: there may be more.
    async fn next(&self) -> Option<Outcome> {
        match self.job.order() {
            Order::Lost => return Some(Outcome::Lost),
            Order::Drain => return Some(self.release().await),
            Order::Work | Order::Stop => {}
        }
        let (store, claim) = (&self.parts.store, &self.job.claim);
        match until_written(self.parts, || store.next_undo(claim)).await {
            Ok(Some(step)) => self.undo(&step).await,
            Ok(None) => Some(self.written(Outcome::Undone, || store.undone(claim)).await),
            Err(error) => Some(unwritten(&error)),
        }
    }

    async fn undo(&self, step: &UndoStep) -> Option<Outcome> {
        let span = trace::undo(&step.key, step.tries + 1);
        Box::pin(self.undo_traced(step).instrument(span)).await
    }

    async fn undo_traced(&self, step: &UndoStep) -> Option<Outcome> {
        let (store, claim) = (&self.parts.store, &self.job.claim);
        let policy = &self.served.spec.policy;
        if step.started && !step.idempotent {
            let why = "its worker was lost in the middle: it may have been undone";
            return self.give_up(step, why).await;
        }
        if step.started && step.tries >= i32::from(policy.undo_tries_max) {
            let why = gave_up(step.tries, "its worker was lost");
            return self.give_up(step, &why).await;
        }
        match until_written(self.parts, || store.begin_undo(claim, step)).await {
            Ok(Write::Done) => {}
            Ok(Write::Lost) => return Some(Outcome::Lost),
            Err(error) => return Some(unwritten(&error)),
        }
        // It may have taken long to be journaled.
        if self.job.order() == Order::Lost {
            return Some(Outcome::Lost);
        }
        let work = self.call(step).await;
        let order = self.job.order();
        if order == Order::Lost {
            return Some(Outcome::Lost);
        }
        let tries = step.tries + 1;
        match verdict(work, policy, step.idempotent) {
            Verdict::Undone => {
                tracing::info!("step undone");
                self.count("undone");
                let undone = self.written(Outcome::Undone, || store.finish_undo(claim, &step.key));
                (undone.await == Outcome::Lost).then_some(Outcome::Lost)
            }
            Verdict::Again(why) if order == Order::Drain => {
                Some(self.interrupted(step, &why).await)
            }
            Verdict::Again(why) if tries >= i32::from(policy.undo_tries_max) => {
                self.give_up(step, &gave_up(tries, &why)).await
            }
            Verdict::Again(why) => {
                self.count("retried");
                let pause = backoff(policy.backoff, step.tries, claim.id());
                Some(self.again(step, &why, pause).await)
            }
            Verdict::GiveUp(why) => self.give_up(step, &why).await,
        }
    }

    /// Runs the tool's undo on the tools' threads.
    async fn call(&self, step: &UndoStep) -> Work<()> {
        let claim = &self.job.claim;
        let stop = CancellationToken::new();
        let commands = Commands::alone(stop.clone());
        self.parts.lease(&commands, self.job);
        let mut undoing = Undoing {
            task_id: claim.id(),
            principal: claim.principal.clone(),
            arguments: Arguments::new(claim.arguments.clone()),
            step: step.key.clone(),
            how: step.how.clone(),
            output: step.output.clone(),
            tries: step.tries + 1,
            stop: stop.clone(),
            commands: commands.clone(),
        };
        let tool = Arc::clone(&self.served.tool);
        let limit = self.served.spec.policy.undo_limit;
        let called = async move { tool.undo(&mut undoing).await };
        self.job.work_begins(limit);
        let work = AbortOnDropHandle::new(self.parts.threads.spawn(called.in_current_span()));
        let ends = Ends {
            job: self.job,
            stop: &stop,
            grace: self.parts.config.stop_grace,
            commands: &commands,
        };
        let work = drive(ends, work, async {
            tokio::time::sleep(limit).await;
            Overtime::Politely
        });
        let work = work.await;
        self.job.work_ended();
        work
    }

    async fn again(&self, step: &UndoStep, why: &str, pause: Duration) -> Outcome {
        // Why is the tool's own words: they are in the row, and not for logs.
        tracing::info!("undo is tried again");
        traces::failed(&tracing::Span::current(), "retried");
        let (store, claim) = (&self.parts.store, &self.job.claim);
        let why = cut(why, self.parts.config.status_bytes_max);
        let again = || store.retry_undo(claim, &step.key, why, pause);
        self.written(Outcome::Retried, again).await
    }

    /// A try that ends because this worker ends is nobody's failure: another worker makes it.
    async fn interrupted(&self, step: &UndoStep, why: &str) -> Outcome {
        let (store, claim) = (&self.parts.store, &self.job.claim);
        let unspent = UndoStep {
            tries: step.tries - 1,
            ..step.clone()
        };
        let counted_back = || store.begin_undo(claim, &unspent);
        if self.written(Outcome::Retried, counted_back).await == Outcome::Lost {
            return Outcome::Lost;
        }
        let outcome = self.again(step, why, Duration::ZERO).await;
        if outcome == Outcome::Retried {
            hint(self.parts, claim).await;
            return Outcome::Released;
        }
        outcome
    }

    async fn give_up(&self, step: &UndoStep, why: &str) -> Option<Outcome> {
        tracing::error!("a step could not be undone");
        traces::failed(&tracing::Span::current(), "given_up");
        self.count("failed");
        let (store, claim) = (&self.parts.store, &self.job.claim);
        let why = cut(why, self.parts.config.status_bytes_max);
        let given_up = || store.fail_undo(claim, &step.key, why);
        let outcome = self.written(Outcome::Undone, given_up).await;
        (outcome == Outcome::Lost).then_some(Outcome::Lost)
    }

    async fn written<F>(&self, outcome: Outcome, write: impl Fn() -> F) -> Outcome
    where
        F: Future<Output = Result<Write, store::Error>>,
    {
        match until_written(self.parts, write).await {
            Ok(Write::Done) => outcome,
            Ok(Write::Lost) => Outcome::Lost,
            Err(error) => unwritten(&error),
        }
    }

    async fn release(&self) -> Outcome {
        let settling = Settling {
            parts: self.parts,
            served: self.served,
            job: self.job,
            started: self.started,
        };
        settling.release().await
    }

    fn count(&self, outcome: &str) {
        let tool = self.job.claim.tool.as_str();
        let undos = &self.parts.metrics.undos;
        undos.with_label_values(&[tool, outcome]).inc();
    }
}

fn gave_up(tries: i32, why: &str) -> String {
    format!("gave up after {tries} tries: {why}")
}

/// What the end of a try means.
pub(crate) fn verdict(work: Work<()>, policy: &ToolPolicy, idempotent: bool) -> Verdict {
    let unknown = |why: String| {
        if idempotent {
            Verdict::Again(why)
        } else {
            Verdict::GiveUp(format!("{why}: it may have been undone"))
        }
    };
    match work {
        Work::Ended(Ok(())) => Verdict::Undone,
        Work::Ended(Err(ToolError(ending))) => match ending {
            Ending::Retry(why) => Verdict::Again(why),
            Ending::Failed(error) if policy.retry_codes.contains(&error.code) => {
                Verdict::Again(error.message)
            }
            Ending::Failed(error) | Ending::Refused(error) => Verdict::GiveUp(error.message),
            Ending::Unknown(why) => unknown(why),
            Ending::Stopped | Ending::Parked => Verdict::Again("told to stop".to_owned()),
        },
        Work::Panicked(why) => unknown(why),
        Work::Dropped => unknown("told to stop, and did not".to_owned()),
    }
}
