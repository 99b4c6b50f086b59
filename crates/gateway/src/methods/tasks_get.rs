//! `tasks/get`: one read by id and owner (SEP-2663 §Task Polling). No Redis, no memory of
//! earlier requests.

use protocol::tasks::{self, TaskIdParams};
use store::Lookup;

use crate::Shared;
use crate::endpoint::Call;
use crate::error::Error;
use crate::reply::Reply;
use crate::view;

/// The task as it is now.
pub(crate) async fn get(shared: &Shared, call: &Call) -> Result<Reply, Error> {
    let params = TaskIdParams::parse(call.params())?;
    let id = params.id().ok_or(Error::TaskNotFound)?;
    tracing::Span::current().record("task.id", tracing::field::display(id));
    match shared.store.get(&call.caller.principal, id).await? {
        Lookup::Found(task) => Ok(Reply::Result {
            json: tasks::write_detailed(&view::task(shared, &task)?, &shared.meta),
            mark: view::fetched(&task),
            label: "ok",
        }),
        gone @ (Lookup::Expired { .. } | Lookup::Unknown) => Err(Error::gone(Some(gone))),
    }
}
