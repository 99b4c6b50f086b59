//! `tasks/update`: stores answers, and resumes the task when the last one is there (SEP-2663
//! §Task Update Requests). Acknowledged after the commit, so every replica shows it.

use std::collections::BTreeMap;

use protocol::TaskId;
use protocol::input::{InputResponses, MalformedAnswer};
use protocol::tasks::{self, UpdateTaskParams};
use queue::Lane;
use serde_json::value::RawValue;
use store::{Answer, Principal};
use tracing::Instrument as _;

use crate::Shared;
use crate::endpoint::Call;
use crate::error::Error;
use crate::reply::Reply;
use crate::trace;

/// Stores the answers; unknown and answered keys are ignored.
pub(crate) async fn update(shared: &Shared, call: &Call) -> Result<Reply, Error> {
    let params = UpdateTaskParams::parse(call.params())?;
    let id = params.id().ok_or(Error::TaskNotFound)?;
    tracing::Span::current().record("task.id", tracing::field::display(id));
    let responses = object(&params.input_responses);
    let epoch = shared.queue.epoch(id);
    let (principal, epoch) = (&call.caller.principal, epoch.as_deref());
    let answered = if may_delegate(shared, call) {
        let store = &shared.store;
        store
            .answer_for_tenant(principal, id, &responses, epoch)
            .await?
    } else {
        let store = &shared.store;
        store.answer(principal, id, &responses, epoch).await?
    };
    tell(shared, id, answered).await?;
    shared.pace.forget(id);
    Ok(Reply::ok(tasks::write_acknowledgement(&shared.meta)))
}

/// Whether the caller may answer for others of its tenant. In development nobody has a tenant.
fn may_delegate(shared: &Shared, call: &Call) -> bool {
    let needed = &shared.door.auth.scopes().delegate;
    !needed.is_empty() && call.caller.has_scopes(needed)
}

/// Stores answers and wakes whom that concerns.
pub(crate) async fn store_answers(
    shared: &Shared,
    principal: &Principal,
    id: TaskId,
    responses: &InputResponses,
) -> Result<(), Error> {
    let responses = object(responses);
    let epoch = shared.queue.epoch(id);
    let store = &shared.store;
    let answered = store
        .answer(principal, id, &responses, epoch.as_deref())
        .await?;
    tell(shared, id, answered).await
}

/// Answers by their keys.
fn object(responses: &InputResponses) -> BTreeMap<String, Box<RawValue>> {
    let answers = responses.iter();
    answers
        .map(|(key, response)| (key.to_owned(), response.to_owned()))
        .collect()
}

/// Wakes whom answers concern.
async fn tell(shared: &Shared, id: TaskId, answered: Answer) -> Result<(), Error> {
    match answered {
        Answer::Resumed { tool, version } => {
            let lane = Lane { tool, version };
            let resuming = async {
                shared.hint(&lane, id).await;
                shared.queue.wake(id).await;
            };
            resuming.instrument(trace::resume()).await;
            Ok(())
        }
        Answer::Waiting => {
            shared.queue.wake(id).await;
            Ok(())
        }
        Answer::Ignored => Ok(()),
        Answer::Malformed { key, problem } => Err(Error::Answer(MalformedAnswer { key, problem })),
        Answer::Gone(lookup) => Err(Error::gone(lookup)),
    }
}
