//! `tasks/cancel`: asks for a stop (SEP-2663 §Task Cancellation). Acknowledged at once, also for
//! a task that is over; the task is `cancelled` only when nothing of it runs any more.

use std::sync::Arc;

use protocol::TaskId;
use protocol::tasks;
use queue::Lane;
use store::{Cancel, Principal};

use crate::Shared;
use crate::endpoint::Call;
use crate::error::Error;
use crate::reply::Reply;

/// Asks for a stop; any number of times is once.
pub(crate) async fn cancel(shared: &Arc<Shared>, call: &Call) -> Result<Reply, Error> {
    let id = call.task()?;
    tracing::Span::current().record("task.id", tracing::field::display(id));
    if let Cancel::Gone(lookup) = request(shared, &call.caller.principal, id).await? {
        return Err(Error::gone(lookup));
    }
    Ok(Reply::ok(tasks::write_acknowledgement(&shared.meta)))
}

/// Asks for a stop, and tells whom that concerns; also if the caller goes away meanwhile.
pub(crate) async fn request(
    shared: &Arc<Shared>,
    principal: &Principal,
    id: TaskId,
) -> Result<Cancel, Error> {
    let (own, principal) = (Arc::clone(shared), principal.clone());
    let asking = async move { ask(&own, &principal, id).await };
    shared.to_its_end(asking).await
}

async fn ask(shared: &Shared, principal: &Principal, id: TaskId) -> Result<Cancel, Error> {
    let came = shared.store.cancel(principal, id).await?;
    match &came {
        Cancel::Cancelled => shared.queue.wake(id).await,
        Cancel::Requested => shared.queue.stop(id).await,
        Cancel::Undoing { tool, version } => {
            let lane = Lane {
                tool: tool.clone(),
                version: *version,
            };
            shared.hint(&lane, id).await;
            shared.queue.wake(id).await;
        }
        Cancel::AlreadyTerminal | Cancel::Gone(_) => {}
    }
    shared.pace.forget(id);
    Ok(came)
}
