//! From a task as stored to a task as shown: nothing stored is parsed or printed again.

use protocol::tasks::{TaskState, TaskView};
use protocol::{TaskStatus, tasks};
use store::Task;

use crate::Shared;
use crate::caller::DeclaredTasks;
use crate::deliveries::Mark;
use crate::error::Error;
use crate::polling;
use crate::reply::Reply;

/// The first status message of every task. A model that takes an empty handle for a result
/// reports work that never happened, so it says what a handle is.
pub(crate) const NO_RESULT_YET: &str = "Started. The result does not exist yet: poll tasks/get \
                                        with this taskId until the status is completed.";
/// The same, where the message is already about the work.
const NO_RESULT_YET_SHORT: &str = "(The result does not exist yet: poll tasks/get.)";

/// What a task says that waits for its owner. What it last said of its work is over; and what it asks
/// stands in `inputRequests` alone.
const WAITS_FOR_INPUT: &str =
    "Waiting for your answers to inputRequests: send them by tasks/update.";

/// The task as its owner sees it.
///
/// # Errors
/// If the row lacks what its status promises: a fault of ours.
pub(crate) fn task<'a>(shared: &Shared, task: &'a Task) -> Result<TaskView<'a>, Error> {
    let lacks = || Error::Bug(format!("task {} lacks what its status promises", task.id));
    let state = match task.status {
        TaskStatus::Working => TaskState::Working,
        TaskStatus::InputRequired => {
            TaskState::InputRequired(task.input_requests.as_deref().ok_or_else(lacks)?)
        }
        TaskStatus::Completed => TaskState::Completed(task.result.as_deref().ok_or_else(lacks)?),
        TaskStatus::Failed => TaskState::Failed(task.error.as_deref().ok_or_else(lacks)?),
        TaskStatus::Cancelled => TaskState::Cancelled,
    };
    Ok(TaskView {
        task_id: task.id,
        state,
        status_message: if task.status == TaskStatus::InputRequired {
            Some(WAITS_FOR_INPUT)
        } else {
            task.status_message.as_deref()
        },
        created_at: task.created_at.into(),
        last_updated_at: task.last_updated_at.into(),
        ttl_ms: task.ttl_ms,
        poll_interval_ms: poll_interval_ms(shared, task),
    })
}

/// `pollIntervalMs` of a task.
pub(crate) fn poll_interval_ms(shared: &Shared, task: &Task) -> u64 {
    let config = &shared.config;
    let bounds = polling::Bounds {
        min: config.poll_min,
        max: config.poll_max,
        input: config.poll_input,
    };
    let snapshot = shared.catalog.known();
    let entry = snapshot.get(&task.tool);
    let observed = polling::Observed {
        policy: entry.map(|entry| &entry.tool.spec.policy),
        change: entry.and_then(|entry| entry.change),
        queued: task.queued.then(|| shared.queues.waited(&task.tool)),
        load_percent: shared.load_percent(),
    };
    polling::interval_ms(bounds, observed, task.id, task.status)
}

/// The handle. Only for who declared the extension.
///
/// # Errors
/// As [`task`].
pub(crate) fn handle(
    shared: &Shared,
    stored: &Task,
    _proof: DeclaredTasks,
) -> Result<Reply, Error> {
    let mut view = task(shared, stored)?;
    let message = match view.status_message {
        None | Some("" | NO_RESULT_YET) => NO_RESULT_YET.to_owned(),
        Some(message) => format!("{message} {NO_RESULT_YET_SHORT}"),
    };
    // Only a repeat of MCP 2025-11-25 gets a handle of what is over.
    if !stored.status.is_terminal() {
        view.status_message = Some(&message);
    }
    Ok(Reply::Result {
        json: tasks::write_create_result(&view, &shared.meta),
        mark: None,
        label: "task",
    })
}

/// What it means for a task that its outcome reaches its owner now; `None` while it is live, or
/// when that is known already.
pub(crate) fn fetched(task: &Task) -> Option<Mark> {
    (task.status.is_terminal() && !task.fetched).then_some(Mark::Fetched(task.id))
}
