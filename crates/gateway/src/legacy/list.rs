//! `tasks/list` (MCP 2025-11-25 §Listing Tasks): only for a principal that is told apart from
//! others, because whoever is anonymous would see what all others do.

use protocol::TaskStatus;
use protocol::legacy;
use protocol::tasks::{self, TaskState, TaskView};
use protocol::tools::ListToolsParams;
use store::{Listed, Principal};

use crate::cursor::{self, Use};
use crate::endpoint::Call;
use crate::error::Error;
use crate::reply::Reply;
use crate::{Shared, auth, view};

/// Whether this principal may list its tasks: it proved who it is, and there is a key for cursors.
pub(super) fn is_served(shared: &Shared, principal: &Principal) -> bool {
    !auth::is_anonymous(principal) && shared.state_keys.can_seal()
}

/// One page, the newest first.
pub(super) async fn list(shared: &Shared, call: &Call) -> Result<Reply, Error> {
    let principal = &call.caller.principal;
    if !is_served(shared, principal) {
        return Err(Error::Method("tasks/list".to_owned()));
    }
    // The params are a cursor and nothing else, as those of every list.
    let params = ListToolsParams::parse(call.params())?;
    let keys = &shared.state_keys;
    let used = Use {
        list: "tasks/list",
        version: call.caller.legacy.map_or("", |dialect| dialect.version),
        principal: Some(principal),
    };
    let now = auth::time_of_day();
    let before = params.cursor.as_deref();
    let before = before.map(|text| {
        let after = used.open(keys, text, now)?;
        after.parse().map_err(|_| cursor::refused())
    });
    let page = shared.config.list_page;
    let mut listed = shared
        .store
        .list_owned(principal, before.transpose()?, page + 1)
        .await?;
    let more = listed.len() > page;
    listed.truncate(page);
    let last = listed.last().filter(|_| more);
    let next = last.and_then(|last| used.seal(keys, &last.task.id.to_string(), now));
    let shown: Vec<_> = listed
        .iter()
        .map(|listed| tasks::write_detailed(&shown(shared, listed), &shared.meta))
        .collect();
    let shown = shown.iter().map(|task| &task[..]);
    legacy::task_list(shown, next.as_deref())
        .map(Reply::ok)
        .map_err(|error| Error::Bug(error.to_string()))
}

/// The task without its payloads: of a result, only whether it is an error.
fn shown<'a>(shared: &Shared, listed: &'a Listed) -> TaskView<'a> {
    let Listed { task, is_error } = listed;
    let state = match task.status {
        TaskStatus::Working => TaskState::Working,
        TaskStatus::InputRequired => TaskState::InputRequired(b"{}"),
        TaskStatus::Completed if *is_error => TaskState::Completed(br#"{"isError":true}"#),
        TaskStatus::Completed => TaskState::Completed(b"{}"),
        TaskStatus::Failed => TaskState::Failed(b"{}"),
        TaskStatus::Cancelled => TaskState::Cancelled,
    };
    TaskView {
        task_id: task.id,
        state,
        status_message: task.status_message.as_deref(),
        created_at: task.created_at.into(),
        last_updated_at: task.last_updated_at.into(),
        ttl_ms: task.ttl_ms,
        poll_interval_ms: view::poll_interval_ms(shared, task),
    }
}
