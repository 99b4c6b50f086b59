//! `tasks/update`: stores answers, and resumes the task when the last one is there (SEP-2663
//! §Task Update Requests). Acknowledged after the commit, so every replica shows it. What other
//! requests bring of answers is stored here, too.

use std::collections::BTreeMap;
use std::sync::Arc;

use protocol::TaskId;
use protocol::input::{InputResponses, MalformedAnswer};
use protocol::jsonrpc::InvalidParams;
use protocol::tasks::{self, UpdateTaskParams};
use queue::Lane;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use store::{Answer, Lookup, Principal};
use tracing::Instrument as _;

use crate::Shared;
use crate::auth;
use crate::endpoint::Call;
use crate::error::Error;
use crate::judgement::Judged;
use crate::large;
use crate::reply::Reply;
use crate::trace;

/// Stores the answers; unknown and answered keys are ignored.
pub(crate) async fn update(shared: &Arc<Shared>, call: &Call) -> Result<Reply, Error> {
    let params = UpdateTaskParams::parse(call.params())?;
    let id = params.id().ok_or(Error::TaskNotFound)?;
    tracing::Span::current().record("task.id", tracing::field::display(id));
    let responses = object(shared, params.input_responses.iter())?;
    let principal = call.caller.principal.clone();
    let (own, delegate) = (Arc::clone(shared), may_delegate(shared, call));
    let answering = async move {
        let (store, epoch) = (&own.store, own.queue.epoch(id));
        let (principal, epoch) = (&principal, epoch.as_deref());
        let answered = if delegate {
            let answering = store.answer_for_tenant(principal, id, &responses, epoch);
            answering.await?
        } else {
            store.answer(principal, id, &responses, epoch).await?
        };
        tell(&own, id, answered).await?;
        own.pace.forget(id);
        Ok::<_, Error>(())
    };
    shared.to_its_end(answering).await?;
    Ok(Reply::ok(tasks::write_acknowledgement(&shared.meta)))
}

/// Whether the caller may answer for others of its tenant. In development nobody has a tenant.
fn may_delegate(shared: &Shared, call: &Call) -> bool {
    let needed = &shared.door.auth.scopes().delegate;
    !needed.is_empty() && call.caller.has_scopes(needed)
}

/// Stores the answers that a repeated `tools/call` brings. Before the task was shown they are part
/// of the call; afterwards they are what `tasks/update` is for, and need its scopes. What answers
/// nothing that is open is ignored as ever, so that a repeat after a lost answer is no offence.
pub(super) async fn answer_by_call(
    shared: &Arc<Shared>,
    judged: &Judged,
    id: TaskId,
    responses: &InputResponses,
) -> Result<(), Error> {
    let principal = &judged.caller.principal;
    let scopes = shared.door.auth.scopes();
    if judged.caller.has_scopes(&scopes.update) {
        return store_answers(shared, principal, id, responses.iter()).await;
    }
    let task = match large::read(shared, principal, id).await? {
        Lookup::Found(task) => task,
        gone @ (Lookup::Expired { .. } | Lookup::Unknown) => return Err(Error::gone(Some(gone))),
    };
    let open = task.input_requests.as_deref().unwrap_or(b"{}");
    let open: BTreeMap<String, IgnoredAny> =
        serde_json::from_slice(open).map_err(|error| Error::Bug(error.to_string()))?;
    // Nothing but what was open before: a task that is shown meanwhile may ask more.
    let answered = responses.iter().filter(|(key, _)| open.contains_key(*key));
    let answered: Vec<_> = answered.collect();
    if answered.is_empty() {
        return Ok(());
    }
    if task.handed_out {
        let policy = &judged.entry.tool.spec.policy;
        let needed = auth::together([&scopes.call[..], &policy.scopes, &scopes.update]);
        return Err(Error::Scope { needed });
    }
    store_answers(shared, principal, id, answered.into_iter()).await
}

/// Stores answers and wakes whom that concerns; also if the caller goes away meanwhile.
pub(crate) async fn store_answers<'a>(
    shared: &Arc<Shared>,
    principal: &Principal,
    id: TaskId,
    responses: impl Iterator<Item = (&'a str, &'a RawValue)>,
) -> Result<(), Error> {
    let responses = object(shared, responses)?;
    let (own, principal) = (Arc::clone(shared), principal.clone());
    let answering = async move {
        let (store, epoch) = (&own.store, own.queue.epoch(id));
        let answered = store.answer(&principal, id, &responses, epoch.as_deref());
        tell(&own, id, answered.await?).await
    };
    shared.to_its_end(answering).await
}

/// Answers by their keys, each no longer than it may be.
fn object<'a>(
    shared: &Shared,
    responses: impl Iterator<Item = (&'a str, &'a RawValue)>,
) -> Result<BTreeMap<String, Box<RawValue>>, InvalidParams> {
    let max = shared.config.limits.answer_bytes_max;
    let owned = |(key, response): (&str, &RawValue)| match response.get().len() {
        bytes if bytes > max => Err(InvalidParams::new(format!(
            "the answer to `{}` is {bytes} bytes long; at most {max} are taken",
            key.chars().take(64).collect::<String>()
        ))),
        _ => Ok((key.to_owned(), response.to_owned())),
    };
    responses.map(owned).collect()
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
