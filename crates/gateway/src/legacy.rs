//! Clients of MCP 2025-11-25 and 2025-06-18 at the door: an adapter that turns their requests into
//! the calls that all requests become, and the answers into what those clients know.
//!
//! There are no sessions: nothing that `initialize` said is remembered, any replica takes any
//! request, and nothing can be sent to a client but on the answer to a request of its own.
//!
//! Architecture invariant: no method is carried out here that exists today; what only older
//! revisions have (`tasks/result`, `tasks/list`) reads the same rows.

mod cancel;
mod dialect;
mod initialize;
mod list;
mod refusal;
mod result;
mod settled;
mod wire;

use std::sync::Arc;

use http::HeaderMap;
use protocol::jsonrpc::{self, Response};
use protocol::legacy::{self, Answers};
use tracing::Instrument as _;

pub(crate) use dialect::{Dialect, Shape};
pub(crate) use refusal::row;

use crate::Shared;
use crate::auth::Proven;
use crate::caller::Caller;
use crate::door;
use crate::endpoint::{self, Call};
use crate::error::Error;
use crate::method::Method;
use crate::methods::tasks_update::store_answers;
use crate::metrics::Meter;
use crate::mirrors;
use crate::reply::{Answer, Reply};
use crate::trace;
use wire::Served;

/// The revision that the header names, if it is one of ours and they are served.
fn named(shared: &Shared, headers: &HeaderMap) -> Option<&'static str> {
    if !shared.config.legacy_clients {
        return None;
    }
    legacy::version(mirrors::protocol_version(headers).ok().flatten()?)
}

/// Whether a request may turn out to be of an older revision, as far as its head tells. Those
/// revisions mirror nothing into headers.
pub(crate) fn may_be(shared: &Shared, headers: &HeaderMap) -> bool {
    shared.config.legacy_clients
        && match mirrors::protocol_version(headers) {
            Ok(version) => version.is_none_or(|version| legacy::version(version).is_some()),
            Err(_) => false,
        }
}

/// The older revision that a request is of; `None` = it is judged as what it is today. Whatever
/// says in `_meta` that it is modern is modern.
pub(crate) fn version_of(
    shared: &Shared,
    headers: &HeaderMap,
    request: &jsonrpc::Request,
) -> Option<&'static str> {
    // The handshake comes before there is a version to name.
    let begins = |headers| {
        request.method == "initialize"
            && mirrors::protocol_version(headers) == Ok(None)
            && shared.config.legacy_clients
    };
    let version =
        named(shared, headers).or_else(|| begins(headers).then_some(legacy::WITH_TASKS))?;
    (!legacy::is_modern(request.params.as_deref())).then_some(version)
}

/// Whether a notification is of an older revision. None changes anything here: without a session
/// nobody knows which request `notifications/cancelled` means, and over HTTP a client ends a
/// request by closing it.
pub(crate) fn takes_notification(shared: &Shared, headers: &HeaderMap) -> bool {
    named(shared, headers).is_some()
}

/// Answers a request of an older revision.
pub(crate) async fn answer(
    shared: &Arc<Shared>,
    proven: Proven,
    (headers, request): (HeaderMap, jsonrpc::Request),
    version: &'static str,
    mut meter: Meter,
) -> Answer {
    shared
        .metrics
        .legacy_requests
        .with_label_values(&[version])
        .inc();
    let (served, caller) = match read(proven, (&headers, &request), version, &mut meter) {
        Ok(read) => read,
        Err(error) => {
            let error = Err(refusal::told(error));
            let finished = endpoint::finish(shared, Some(&request.id), error, &mut meter);
            return Answer::Whole(finished);
        }
    };
    let call = Call::new(caller, (headers, request), meter);
    let span = trace::request(served.as_str(), &call);
    Box::pin(carry_out(shared, served, call).instrument(span)).await
}

fn read(
    proven: Proven,
    (headers, request): (&HeaderMap, &jsonrpc::Request),
    version: &'static str,
    meter: &mut Meter,
) -> Result<(Served, Caller), Error> {
    let unknown = || Error::Method(request.method.clone());
    let served = Served::parse(&request.method, version).ok_or_else(unknown)?;
    meter.method(served.as_str());
    let params = request.params.as_deref();
    let shape = served.shape(params, version)?;
    let answers = match shape {
        Shape::Handle => Answers::AsTask,
        _ => Answers::Nobody,
    };
    let meta = legacy::request_meta(params, version, answers)?;
    let streams = door::accepts(headers).streams;
    let caller = Caller::legacy(proven, meta, streams, Dialect { version, shape });
    Ok((served, caller))
}

async fn carry_out(shared: &Arc<Shared>, served: Served, call: Call) -> Answer {
    let scopes = shared.door.auth.scopes();
    let needed = served.needs_scopes_of().map(|method| method.scopes(scopes));
    if let Some(needed) = needed.filter(|needed| !call.caller.has_scopes(needed)) {
        let needed = needed.to_vec();
        return call.answer(shared, Err(Error::Scope { needed }));
    }
    let result = match served {
        Served::Today(method) => {
            return Box::pin(endpoint::carry_out(shared, method, call)).await;
        }
        Served::Initialize => initialize::initialize(shared, &call),
        Served::Ping => Ok(Reply::ok("{}".into())),
        Served::TasksCancel => shared.in_time(cancel::cancel(shared, &call)).await,
        Served::TasksList => shared.in_time(list::list(shared, &call)).await,
        Served::TasksResult => return Box::pin(result::result(shared, call)).await,
    };
    call.answer(shared, result)
}

/// Takes the answer to a question that `tasks/result` asked, on whatever replica. It counts for a
/// task of its sender only; what answers nothing that is open is accepted and forgotten.
pub(crate) async fn respond(
    shared: &Arc<Shared>,
    proven: Proven,
    headers: &HeaderMap,
    response: Response,
    mut meter: Meter,
) -> Answer {
    meter.method("response");
    if named(shared, headers).is_none() {
        let refused = response.refused();
        let id = refused.id.clone();
        let error = Err(refused.into());
        return Answer::Whole(endpoint::finish(shared, id.as_ref(), error, &mut meter));
    }
    match shared
        .in_time(store_response(shared, &proven, response))
        .await
    {
        Ok(()) | Err(Error::TaskNotFound | Error::TaskExpired { .. }) => {
            meter.accepted();
            Answer::Accepted
        }
        // "If the server cannot accept the input, it MUST return an HTTP error status code."
        Err(error) => {
            let finished = endpoint::finish(shared, None, Err(error), &mut meter);
            Answer::Whole(finished.into_http_error())
        }
    }
}

async fn store_response(
    shared: &Arc<Shared>,
    proven: &Proven,
    response: Response,
) -> Result<(), Error> {
    let Some((id, key)) = response.id.as_ref().and_then(legacy::asked) else {
        return Ok(());
    };
    let needed = Method::TasksUpdate.scopes(shared.door.auth.scopes());
    if !proven.allows(needed) {
        return Err(Error::Scope {
            needed: needed.to_vec(),
        });
    }
    let refused = response.result.is_none();
    let answer = response.result.unwrap_or_else(wire::dismissed);
    let answers = protocol::input::InputResponses::one(key, answer);
    match store_answers(shared, &proven.principal, id, answers.iter()).await {
        // A client that could not ask has dismissed the question, if it was one that can be.
        Err(Error::Answer(_)) if refused => Ok(()),
        other => other,
    }
}
