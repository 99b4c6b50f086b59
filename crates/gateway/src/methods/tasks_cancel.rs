//! `tasks/cancel`: asks for a stop (SEP-2663 §Task Cancellation). Acknowledged at once, also for
//! a task that is over; the task is `cancelled` only when nothing of it runs any more.

use protocol::tasks::{self, TaskIdParams};
use queue::Lane;
use store::Cancel;

use crate::Shared;
use crate::endpoint::Call;
use crate::error::Error;
use crate::reply::Reply;

/// Asks for a stop; any number of times is once.
pub(crate) async fn cancel(shared: &Shared, call: &Call) -> Result<Reply, Error> {
    let params = TaskIdParams::parse(call.params())?;
    let id = params.id().ok_or(Error::TaskNotFound)?;
    tracing::Span::current().record("task.id", tracing::field::display(id));
    match shared.store.cancel(&call.caller.principal, id).await? {
        Cancel::Cancelled => shared.queue.wake(id).await,
        Cancel::Requested => shared.queue.stop(id).await,
        Cancel::Undoing { tool, version } => {
            shared.hint(&Lane { tool, version }, id).await;
            shared.queue.wake(id).await;
        }
        Cancel::AlreadyTerminal => {}
        Cancel::Gone(lookup) => return Err(Error::gone(lookup)),
    }
    shared.pace.forget(id);
    Ok(Reply::ok(tasks::write_acknowledgement(&shared.meta)))
}
