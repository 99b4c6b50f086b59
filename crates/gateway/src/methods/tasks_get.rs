//! `tasks/get`: one read by id and owner (SEP-2663 §Task Polling). No answer depends on Redis or
//! on earlier requests; a poll that comes too early is only held for a moment (`pace.rs`).

use std::time::Duration;

use protocol::tasks;
use store::Lookup;

use crate::Shared;
use crate::endpoint::Call;
use crate::error::Error;
use crate::reply::Reply;
use crate::{large, pace, view};

/// The task as it is now.
pub(crate) async fn get(shared: &Shared, call: &Call) -> Result<Reply, Error> {
    let id = call.task()?;
    tracing::Span::current().record("task.id", tracing::field::display(id));
    let admitted = pace::admit(shared, &call.caller, id).await?;
    let principal = &call.caller.principal;
    let lookup = match admitted.seen {
        Some(seen) => large::whole(shared, principal, seen).await?,
        None => large::read(shared, principal, id).await?,
    };
    match lookup {
        Lookup::Found(task) => {
            let seen = view::task(shared, &task)?;
            let interval = Duration::from_millis(seen.poll_interval_ms);
            pace::answered(shared, (&call.caller, admitted.came), &task, interval);
            Ok(Reply::Result {
                json: tasks::write_detailed(&seen, &shared.meta),
                mark: view::fetched(&task),
                label: "ok",
            })
        }
        gone @ (Lookup::Expired { .. } | Lookup::Unknown) => Err(Error::gone(Some(gone))),
    }
}
