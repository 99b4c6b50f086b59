//! `tasks/cancel` as MCP 2025-11-25 has it: answered with the task, once it is cancelled.

use std::sync::Arc;
use std::time::Duration;

use protocol::TaskStatus;
use protocol::legacy;
use protocol::tasks::{self, TaskIdParams};
use store::{Cancel, Task};
use tokio::time::{Instant, timeout_at};

use super::result::places;
use super::settled::Watched;
use crate::endpoint::Call;
use crate::error::Error;
use crate::methods::tasks_cancel;
use crate::reply::Reply;
use crate::{Shared, view};

/// How long the answer waits for the work to stop: clients give up after a minute.
const WAIT: Duration = Duration::from_secs(20);
/// What is said of a task whose work had not stopped by then.
const STOPPING: &str = "Told to stop. It is cancelled once nothing of it runs any more.";

/// Asks for a stop, and waits until the task is over.
pub(super) async fn cancel(shared: &Arc<Shared>, call: &Call) -> Result<Reply, Error> {
    let id = TaskIdParams::parse(call.params())?.id();
    let id = id.ok_or(Error::TaskNotFound)?;
    tracing::Span::current().record("task.id", tracing::field::display(id));
    let principal = &call.caller.principal;
    let mut watched = Watched::open(shared, principal, id).await?;
    let until = Instant::now() + WAIT;
    match tasks_cancel::request(shared, principal, id).await? {
        Cancel::AlreadyTerminal => {
            watched.read(shared, principal).await?;
            return Err(Error::AlreadyOver(shown(&watched.task)));
        }
        Cancel::Gone(lookup) => return Err(Error::gone(lookup)),
        Cancel::Cancelled | Cancel::Requested | Cancel::Undoing { .. } => {
            watched.read(shared, principal).await?;
            // Who has no place to wait in is told at once how things are. It was asked for a stop
            // all the same.
            let waits = !watched.task.status.is_terminal();
            let places = waits.then(|| places(shared, principal).ok()).flatten();
            while places.is_some() && !watched.task.status.is_terminal() {
                match timeout_at(until, watched.news(shared, principal)).await {
                    Ok(news) => drop(news?),
                    Err(_) => break,
                }
            }
        }
    }
    let task = &watched.task;
    let mut seen = view::task(shared, task)?;
    match shown(task) {
        TaskStatus::Cancelled => {}
        // MCP 2025-11-25 §Task Cancellation: also where the end came before the stop.
        over @ (TaskStatus::Completed | TaskStatus::Failed) => {
            return Err(Error::AlreadyOver(over));
        }
        TaskStatus::Working | TaskStatus::InputRequired => seen.status_message = Some(STOPPING),
    }
    Ok(Reply::Result {
        json: tasks::write_detailed(&seen, &shared.meta),
        mark: view::fetched(task),
        label: "ok",
    })
}

fn shown(task: &Task) -> TaskStatus {
    legacy::shown_status(task.status, task.result.as_deref())
}
