//! `tasks/result` (MCP 2025-11-25 §Retrieving Task Results): the outcome of a task, and until there
//! is one, the questions that it asks. Any replica answers; whoever goes away loses nothing.

use std::collections::HashSet;
use std::sync::Arc;

use protocol::TaskStatus;
use protocol::legacy::{self, Question};
use protocol::tasks::TaskIdParams;
use store::Principal;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tracing::Instrument as _;

use super::settled::{News, Watched};
use crate::Shared;
use crate::admission::Place;
use crate::auth::Lasting;
use crate::endpoint::Call;
use crate::error::Error;
use crate::held::Progress;
use crate::metrics::Level;
use crate::reply::{self, Answer, Reply, one_line};
use crate::stream::{Message, WAITING_MAX};
use crate::view;

/// Waits for the outcome.
pub(super) async fn result(shared: &Arc<Shared>, call: Call) -> Answer {
    let opened = shared.in_time(open(shared, &call)).await;
    let (watched, places) = match opened {
        Ok(opened) => opened,
        Err(error) => return call.answer(shared, Err(error)),
    };
    let (sender, messages) = mpsc::channel(WAITING_MAX);
    let streams = call.caller.reads_streams;
    let token = call.caller.progress_token.clone().filter(|_| streams);
    let waiting = Waiting {
        shared: Arc::clone(shared),
        principal: call.caller.principal.clone(),
        watched,
        asked: HashSet::new(),
        progress: token.map(|token| Progress::new(token, sender.clone())),
        sender: streams.then_some(sender),
        _places: places,
    };
    let ending = Arc::clone(shared);
    let proof = Lasting::new(&call.caller, &call.headers);
    let running = async move {
        let every = ending.config.listen_recheck;
        let outcome = async {
            tokio::select! {
                biased;
                outcome = waiting.outcome() => outcome,
                // Whoever may not ask again is told no more.
                refused = ending.door.auth.ended(proof, every) => Err(Error::Auth(refused)),
            }
        };
        let result = match ending.in_time(outcome).await {
            Err(Error::Leaving) => Err(Error::WaitEnds),
            other => other,
        };
        call.finish(&ending, result)
    };
    reply::once_ended(shared, streams, messages, running.in_current_span()).await
}

async fn open(shared: &Arc<Shared>, call: &Call) -> Result<(Watched, Places), Error> {
    let id = TaskIdParams::parse(call.params())?.id();
    let id = id.ok_or(Error::TaskNotFound)?;
    tracing::Span::current().record("task.id", tracing::field::display(id));
    let places = places(shared, &call.caller.principal)?;
    let watched = Watched::open(shared, &call.caller.principal, id).await?;
    Ok((watched, places))
}

/// Of its principal, of all, and in the metrics: a wait is as much as a subscription.
pub(super) type Places = (Place, OwnedSemaphorePermit, Level);

/// Takes the places of one wait.
///
/// # Errors
/// If the principal, or the process, has as many as it may.
pub(super) fn places(shared: &Shared, principal: &Principal) -> Result<Places, Error> {
    let place = shared.admission.listen(principal)?;
    let permit = Arc::clone(&shared.listens).try_acquire_owned();
    let permit = permit.map_err(|_| Error::Overloaded {
        what: "waits for results",
    })?;
    let level = Level::raise(&shared.metrics.listens, 1);
    Ok((place, permit, level))
}

struct Waiting {
    shared: Arc<Shared>,
    principal: Principal,
    watched: Watched,
    /// Keys of the questions that were put on this stream.
    asked: HashSet<String>,
    progress: Option<Progress>,
    /// Where questions go; `None` = the client reads no stream, and cannot be asked.
    sender: Option<mpsc::Sender<Message>>,
    _places: Places,
}

impl Waiting {
    async fn outcome(mut self) -> Result<Reply, Error> {
        loop {
            if let Some(reply) = self.judge()? {
                return Ok(reply);
            }
            self.ask().await?;
            if let News::Progress(json) = self.watched.news(&self.shared, &self.principal).await?
                && let Some(progress) = &mut self.progress
            {
                progress.report(&json);
            }
        }
    }

    /// What the call would have been answered with.
    fn judge(&self) -> Result<Option<Reply>, Error> {
        let task = &self.watched.task;
        let lacks = || Error::Bug("a task lacks what its status promises".to_owned());
        let mark = view::fetched(task);
        Ok(match task.status {
            TaskStatus::Completed => Some(Reply::Result {
                json: task.result.clone().ok_or_else(lacks)?,
                mark,
                label: "ok",
            }),
            TaskStatus::Failed => Some(Reply::Failed {
                error: task.error.clone().ok_or_else(lacks)?,
                mark,
                label: "failed",
            }),
            TaskStatus::Cancelled => Some(Reply::Failed {
                error: Error::Cancelled.row().error.to_json(),
                mark,
                label: "cancelled",
            }),
            TaskStatus::Working | TaskStatus::InputRequired => None,
        })
    }

    /// Puts what is asked and was not yet put on this stream. A client that reads slowly is waited
    /// for: what runs here runs for it alone.
    async fn ask(&mut self) -> Result<(), Error> {
        let (Some(sender), Some(requests)) = (&self.sender, &self.watched.task.input_requests)
        else {
            return Ok(());
        };
        let open = legacy::questions(self.watched.task.id, requests);
        for Question { key, json } in open.map_err(|error| Error::Bug(error.to_string()))? {
            if self.asked.insert(key) {
                let json = one_line(json);
                let _ = sender.send(Message { json, mark: None }).await;
            }
        }
        Ok(())
    }
}
