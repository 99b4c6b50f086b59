//! A call that waits for its task: until there is an outcome, a question, or the budget is over.

use std::sync::Arc;
use std::time::Duration;

use protocol::meta::ProgressToken;
use protocol::{TaskStatus, input, progress};
use queue::{Event, Watch};
use store::{Lookup, ParkedFor, Task, TaskSupport};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::deliveries::Mark;
use crate::error::Error;
use crate::judgement::Judged;
use crate::promotion::{Plan, Reason};
use crate::reply::Reply;
use crate::request_state::Binding;
use crate::stream::Message;
use crate::waiters::Holding;
use crate::{Shared, large, view};

/// One waiting call.
pub(crate) struct Held {
    shared: Arc<Shared>,
    judged: Arc<Judged>,
    task: Task,
    watch: Watch,
    holding: Holding,
    /// When it becomes a task, and why; `None` = never.
    promotion: Option<(Instant, Reason)>,
    /// When it is given up, and after how long; `None` = it may become a task instead.
    limit: Option<(Instant, Duration)>,
    /// It may become a task at all.
    promotable: bool,
}

/// Why a call waits no longer.
enum Woken {
    /// Its task may have changed.
    Look,
    /// It shall become a task.
    Promote(Reason),
    /// It was held for as long as it may.
    GiveUp(Duration),
}

impl Held {
    pub(crate) fn new(
        shared: Arc<Shared>,
        judged: Arc<Judged>,
        (task, watch, holding): (Task, Watch, Holding),
        plan: Plan,
    ) -> Self {
        let now = Instant::now();
        let (promotion, limit) = match plan {
            Plan::Hold(limit) => (None, Some((now + limit, limit))),
            Plan::AtOnce(reason) => (Some((now, reason)), None),
            Plan::Within(budget, reason) => (Some((now + budget, reason)), None),
        };
        Self {
            shared,
            judged,
            task,
            watch,
            holding,
            promotable: promotion.is_some(),
            promotion,
            limit,
        }
    }

    /// Waits, and says what the call is answered with. Dropped before that, the caller went away.
    pub(crate) async fn outcome(mut self, mut progress: Option<Progress>) -> Result<Reply, Error> {
        loop {
            if let Some(reply) = self.judge().await? {
                self.holding.answered();
                return Ok(reply);
            }
            match self.wait(&mut progress).await {
                Woken::Look => self.read().await?,
                Woken::Promote(reason) => match self.promote(reason).await? {
                    Some(reply) => {
                        self.holding.answered();
                        return Ok(reply);
                    }
                    None => self.read().await?,
                },
                Woken::GiveUp(limit) => {
                    // Once more, lest an outcome is thrown away that is there.
                    self.read().await?;
                    let Some(reply) = self.judge().await? else {
                        // The holding is dropped unanswered: the work is told to stop.
                        return Err(self.given_up(limit));
                    };
                    self.holding.answered();
                    return Ok(reply);
                }
            }
        }
    }

    fn given_up(&self, limit: Duration) -> Error {
        let policy = &self.judged.entry.tool.spec.policy;
        Error::CallLimit {
            limit,
            offers_tasks: policy.task_support != TaskSupport::None,
        }
    }

    /// Until the task may have changed, or the call shall become a task, or is given up.
    async fn wait(&mut self, progress: &mut Option<Progress>) -> Woken {
        let look = Instant::now() + self.shared.config.recheck;
        let (deadline, reason) = self.promotion.unwrap_or((look, Reason::Deadline));
        let (end, limit) = self.limit.unwrap_or((look, Duration::ZERO));
        let (promotable, limited) = (self.promotion.is_some(), self.limit.is_some());
        loop {
            tokio::select! {
                biased;
                event = self.watch.next() => match event {
                    Event::Changed | Event::Reconnected => return Woken::Look,
                    Event::Progress(json) => {
                        if let Some(progress) = progress {
                            progress.report(&json);
                        }
                    }
                },
                () = sleep_until(deadline), if promotable => return Woken::Promote(reason),
                () = self.shared.closing.cancelled(), if promotable => {
                    return Woken::Promote(Reason::Closing);
                }
                () = sleep_until(end), if limited => return Woken::GiveUp(limit),
                () = sleep_until(look) => return Woken::Look,
            }
        }
    }

    async fn read(&mut self) -> Result<(), Error> {
        let principal = &self.judged.caller.principal;
        match large::read(&self.shared, principal, self.task.id).await? {
            Lookup::Found(task) => {
                self.task = *task;
                Ok(())
            }
            gone @ (Lookup::Expired { .. } | Lookup::Unknown) => Err(Error::gone(Some(gone))),
        }
    }

    /// The answer, if the task as it is now is one.
    async fn judge(&mut self) -> Result<Option<Reply>, Error> {
        let lacks = || Error::Bug("a task lacks what its status promises".to_owned());
        match self.task.status {
            TaskStatus::Completed => {
                let result = self.task.result.as_deref().ok_or_else(lacks)?;
                let json = self.shared.meta.attach(result);
                Ok(Some(Reply::Result {
                    json: json.map_err(|error| Error::Bug(error.to_string()))?,
                    mark: self.delivered(),
                    label: "ok",
                }))
            }
            TaskStatus::Failed => Ok(Some(Reply::Failed {
                error: self.task.error.clone().ok_or_else(lacks)?,
                mark: self.delivered(),
                label: "failed",
            })),
            TaskStatus::Cancelled => Ok(Some(Reply::Failed {
                error: Error::Cancelled.row().error.to_json(),
                mark: self.delivered(),
                label: "cancelled",
            })),
            TaskStatus::InputRequired if self.is_for_the_caller() => self.ask().await.map(Some),
            TaskStatus::InputRequired => self.promote(Reason::Question).await,
            TaskStatus::Working => Ok(None),
        }
    }

    /// What it means that the outcome reaches the caller.
    fn delivered(&self) -> Option<Mark> {
        let task = &self.task;
        if task.keyed || task.handed_out {
            view::fetched(task)
        } else {
            Some(Mark::Inline(task.id))
        }
    }

    /// Asked before the task is shown, or of a caller who can't be shown a task.
    fn is_for_the_caller(&self) -> bool {
        let before_the_task =
            self.task.parked_for == Some(ParkedFor::Caller) && !self.task.handed_out;
        before_the_task || !self.promotable
    }

    /// `InputRequiredResult`: the caller repeats the call with answers and the state.
    async fn ask(&mut self) -> Result<Reply, Error> {
        let (shared, task) = (&self.shared, &self.task);
        let binding = Binding {
            method: self.judged.method,
            principal: &self.judged.caller.principal,
            tool: self.judged.entry.tool.spec.name(),
            digest: &self.judged.digest,
        };
        // Nobody waits here meanwhile: the hold keeps the question, and its end is the state's.
        let ttl = shared.config.request_state_ttl;
        let until_ms = shared.store.hold_asked(task.id, ttl).await?;
        let round = (task.id, task.rounds);
        let state = shared.state_keys.seal(round, until_ms, binding);
        let state = state.ok_or(Error::NoRequestStateKey)?;
        let requests = task.input_requests.as_deref();
        Ok(Reply::Result {
            json: input::write_input_required(requests, Some(&state), &shared.meta),
            mark: None,
            label: "input_required",
        })
    }

    /// A handle, committed as handed out before it leaves; `None` when the task is over or told
    /// to stop: then its outcome is the answer.
    async fn promote(&mut self, reason: Reason) -> Result<Option<Reply>, Error> {
        let proof = self.judged.caller.must_declare_tasks()?;
        match self.shared.store.hand_out(self.task.id).await? {
            Some(task) => {
                let reason = reason.as_str();
                self.shared
                    .metrics
                    .promotions
                    .with_label_values(&[reason])
                    .inc();
                view::handle(&self.shared, &task, proof).map(Some)
            }
            None => {
                self.promotion = None;
                Ok(None)
            }
        }
    }
}

/// Where progress goes: to the caller that gave the token.
pub(crate) struct Progress {
    token: ProgressToken,
    messages: mpsc::Sender<Message>,
    last: f64,
}

impl Progress {
    pub(crate) fn new(token: ProgressToken, messages: mpsc::Sender<Message>) -> Self {
        Self {
            token,
            messages,
            last: f64::NEG_INFINITY,
        }
    }

    /// Passes a report on. It must rise (MCP 2026-07-28 §Progress); a replayed attempt begins
    /// again from the start, so what does not rise is left out. So is what a slow reader can't
    /// take.
    pub(crate) fn report(&mut self, json: &[u8]) {
        let Ok(report) = serde_json::from_slice::<progress::Progress>(json) else {
            return;
        };
        let at = report.progress.as_f64().unwrap_or(f64::NAN);
        if at > self.last {
            self.last = at;
            let json = progress::write_notification(&self.token, &report);
            let _ = self.messages.try_send(Message { json, mark: None });
        }
    }
}
