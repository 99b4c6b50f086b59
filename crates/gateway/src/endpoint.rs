//! One request from its head to its answer: door → JSON → headers against the body → `_meta` →
//! **the match, one line a method**.
//!
//! The order of the checks is the order in `docs/errors.md`; what is wrong first is told first.

use std::net::IpAddr;
use std::sync::Arc;

use http::request::Parts;
use http::{HeaderMap, Request, Response};
use hyper::body::Incoming;
use protocol::headers::{self, NameHeader};
use protocol::jsonrpc::{self, Message, Params};
use protocol::meta::{self, RequestMeta};
use protocol::tasks::TaskIdParams;
use protocol::{RequestId, TaskId};
use serde_json::value::RawValue;
use tokio::sync::OwnedSemaphorePermit;
use tracing::Instrument as _;

use crate::Shared;
use crate::admission::{Asks, Place};
use crate::auth::Proven;
use crate::callbacks;
use crate::caller::Caller;
use crate::connection::Connection;
use crate::cors::Page;
use crate::door;
use crate::error::Error;
use crate::legacy;
use crate::method::Method;
use crate::methods::{
    provided_ask, provided_lists, server_discover, subscriptions_listen, tasks_cancel, tasks_get,
    tasks_update, tools_call, tools_list,
};
use crate::metrics::Meter;
use crate::mirrors;
use crate::reply::{Answer, Body, Finished, Reply};
use crate::trace;

/// A `tasks/get` of an older revision is no longer than this.
const READ_BYTES_MAX: usize = 1024;

/// A request that may be carried out.
pub(crate) struct Call {
    pub(crate) id: RequestId,
    pub(crate) caller: Caller,
    pub(crate) params: Option<Box<RawValue>>,
    /// What the params name, where that was read already.
    named: Option<String>,
    pub(crate) headers: HeaderMap,
    pub(crate) meter: Meter,
}

impl Call {
    /// What `caller` asks for, judged so far.
    pub(crate) fn new(
        mut caller: Caller,
        (headers, request): (HeaderMap, jsonrpc::Request),
        meter: Meter,
    ) -> Self {
        caller.trace = trace::of_caller(caller.trace, &headers);
        Self {
            id: request.id,
            caller,
            params: request.params,
            named: None,
            headers,
            meter,
        }
    }

    /// The task that the params of `tasks/*` name.
    ///
    /// # Errors
    /// If they name none, or what can be none.
    pub(crate) fn task(&self) -> Result<TaskId, Error> {
        let id = match &self.named {
            Some(named) => named.parse().ok(),
            None => TaskIdParams::parse(self.params())?.id(),
        };
        id.ok_or(Error::TaskNotFound)
    }

    /// The params, not yet read.
    pub(crate) fn params(&self) -> Option<&RawValue> {
        self.params.as_deref()
    }

    /// Ends the request.
    pub(crate) fn finish(mut self, shared: &Shared, result: Result<Reply, Error>) -> Finished {
        let result = match self.caller.legacy {
            None => result,
            Some(dialect) => dialect.reply(shared, &self, result),
        };
        finish(shared, Some(&self.id), result, &mut self.meter)
    }

    /// Ends the request with a whole answer.
    pub(crate) fn answer(self, shared: &Shared, result: Result<Reply, Error>) -> Answer {
        Answer::Whole(self.finish(shared, result))
    }
}

/// Ends a request.
pub(crate) fn finish(
    shared: &Shared,
    id: Option<&RequestId>,
    result: Result<Reply, Error>,
    meter: &mut Meter,
) -> Finished {
    let challenge = result
        .as_ref()
        .err()
        .and_then(|error| shared.door.auth.challenge_for(error));
    Finished::new(id, result, meter).challenged(challenge)
}

/// Answers one HTTP request.
pub(crate) async fn handle(
    shared: Arc<Shared>,
    connection: Arc<Connection>,
    request: Request<Incoming>,
    place: OwnedSemaphorePermit,
) -> Response<Body> {
    let (head, body) = request.into_parts();
    let page = Page::of(&shared.door, &head);
    if let Some(preflight) = page.preflight(&shared.door, &head) {
        return preflight;
    }
    let mut response = match head.uri.path().strip_prefix(protocol::callback::PATH) {
        Some(token) => Box::pin(callbacks::handle(&shared, (&head, token, body), place)).await,
        None => {
            let client = shared.door.peers.client(connection.peer(), &head.headers);
            let (answer, own) = answer(&shared, (head, body), client, place).await;
            answer.into_response(connection, own)
        }
    };
    page.show(&mut response);
    response
}

async fn answer(
    shared: &Arc<Shared>,
    (head, body): (Parts, Incoming),
    client: IpAddr,
    place: OwnedSemaphorePermit,
) -> (Answer, Option<Place>) {
    let mut meter = Meter::start(&shared.metrics);
    meter.client = Some(client);
    if let Some(document) = shared.door.document(&head) {
        meter.method("metadata");
        meter.outcome("ok");
        return (Answer::Document(document), None);
    }
    let admitted = shared.door.admit(&head, client).await.and_then(|proven| {
        let foretold = foretell(shared, &head.headers);
        let key = shared.admission.key(&proven.principal);
        shared.memory.check(key)?;
        let own = shared.admission.request(key, foretold.asks)?;
        Ok((proven, key, foretold, own))
    });
    let (proven, key, foretold, own_place) = match admitted {
        Ok(admitted) => admitted,
        Err(error) => {
            // Whoever sends a refused body slowly takes no place of those who are let in.
            drop(place);
            Box::pin(shared.door.discard(&head, body)).await;
            let refused = finish(shared, None, Err(error), &mut meter);
            return (Answer::Whole(refused), None);
        }
    };
    let admitted = Admitted {
        proven,
        key,
        headers: head.headers,
        asks: foretold.asks,
        meter,
    };
    // hyper drops the request of a caller who has hung up as soon as its last bytes are here. By
    // then this has them, and goes on if what was asked for counts without an answer, too.
    let entered = if foretold.may_tell {
        let own = Arc::clone(shared);
        let entering = async move { enter(&own, admitted, body).await };
        Box::pin(shared.to_its_end(entering)).await
    } else {
        enter(shared, admitted, body).await
    };
    let answer = match entered {
        Entered::Told(answer) => answer,
        Entered::Asked(asked) => {
            let (proven, headers, read, meter) = *asked;
            carry_on(shared, proven, headers, read, meter).await
        }
    };
    (answer, Some(own_place))
}

/// A request whose body may be read.
struct Admitted {
    proven: Proven,
    /// Stands for the principal.
    key: u64,
    headers: HeaderMap,
    asks: Asks,
    meter: Meter,
}

/// Reads the body, and carries out at once what counts without an answer.
async fn enter(shared: &Arc<Shared>, admitted: Admitted, body: Incoming) -> Entered {
    let Admitted {
        proven,
        key,
        headers,
        asks,
        mut meter,
    } = admitted;
    let mut load = shared.memory.load(Some(key));
    let read = shared
        .door
        .read((body, door::length(&headers)), &mut load)
        .await;
    meter.load = Some(load);
    let read = read.and_then(|body| {
        let incoming = jsonrpc::read(&body, shared.json_limits())?;
        if asks == Asks::Untold && !is_read(&incoming) {
            shared.admission.was_other(key)?;
        }
        Ok(incoming)
    });
    match read {
        Ok(incoming) if is_told(&incoming) => {
            let answering = carry_on(shared, proven, headers, Ok(incoming), meter);
            Entered::Told(Box::pin(answering).await)
        }
        read => Entered::Asked(Box::new((proven, headers, read, meter))),
    }
}

/// What became of a request whose body was read.
enum Entered {
    Told(Answer),
    Asked(Box<(Proven, HeaderMap, Result<jsonrpc::Incoming, Error>, Meter)>),
}

/// Whether it tells us something that counts even if nobody waits for the answer.
fn is_told(incoming: &jsonrpc::Incoming) -> bool {
    match incoming {
        jsonrpc::Incoming::Response(_) => true,
        jsonrpc::Incoming::Message(Message::Request(request)) => {
            matches!(request.method.as_str(), "tasks/update" | "tasks/cancel")
        }
        jsonrpc::Incoming::Message(Message::Notification(_)) => false,
    }
}

async fn carry_on(
    shared: &Arc<Shared>,
    proven: Proven,
    headers: HeaderMap,
    read: Result<jsonrpc::Incoming, Error>,
    mut meter: Meter,
) -> Answer {
    match read {
        Ok(jsonrpc::Incoming::Response(response)) => {
            Box::pin(legacy::respond(shared, proven, &headers, response, meter)).await
        }
        Ok(jsonrpc::Incoming::Message(Message::Request(request))) => {
            request_answer(shared, proven, (headers, request), meter).await
        }
        Ok(jsonrpc::Incoming::Message(Message::Notification(notification))) => {
            meter.method("notification");
            match check_notification(shared, &headers, &notification.method) {
                Ok(()) => {
                    meter.accepted();
                    Answer::Accepted
                }
                Err(error) => Answer::Whole(finish(shared, None, Err(error), &mut meter)),
            }
        }
        Err(error) => {
            let id = match &error {
                Error::Parse(error) => error.id.clone(),
                _ => None,
            };
            Answer::Whole(finish(shared, id.as_ref(), Err(error), &mut meter))
        }
    }
}

/// What the head of a request says of it, before its body is read. It may lie; then the request ends where
/// it is compared with the body.
struct Foretold {
    asks: Asks,
    /// It may be something that counts without an answer.
    may_tell: bool,
}

/// Of older revisions the head is never compared with the body, so there the body tells what is asked, if it is short
/// enough to be read for nothing.
fn foretell(shared: &Shared, headers: &HeaderMap) -> Foretold {
    let older = legacy::may_be(shared, headers);
    let method = mirrors::method(headers).ok().flatten();
    Foretold {
        asks: match (older, method) {
            (true, _) if door::length(headers).is_some_and(|bytes| bytes <= READ_BYTES_MAX) => {
                Asks::Untold
            }
            (false, Some("tasks/get")) => Asks::Read,
            _ => Asks::Other,
        },
        may_tell: older || !matches!(method, Some("tasks/get" | "tools/call")),
    }
}

fn is_read(incoming: &jsonrpc::Incoming) -> bool {
    match incoming {
        jsonrpc::Incoming::Message(Message::Request(request)) => request.method == "tasks/get",
        _ => false,
    }
}

/// A notification has nothing to be mirrored but its method and the version. None changes
/// anything here: over HTTP a client cancels a request by closing it.
fn check_notification(shared: &Shared, headers: &HeaderMap, method: &str) -> Result<(), Error> {
    if legacy::takes_notification(shared, headers) {
        return Ok(());
    }
    headers::check_method(mirrors::method(headers)?, method)?;
    match mirrors::protocol_version(headers)? {
        Some(version) if !is_served(version) => Err(Error::Version(version.to_owned())),
        version => Ok(headers::check_version(
            version,
            version.unwrap_or(meta::VERSION),
        )?),
    }
}

async fn request_answer(
    shared: &Arc<Shared>,
    proven: Proven,
    (headers, request): (HeaderMap, jsonrpc::Request),
    mut meter: Meter,
) -> Answer {
    if let Some(version) = legacy::version_of(shared, &headers, &request) {
        let request = (headers, request);
        return Box::pin(legacy::answer(shared, proven, request, version, meter)).await;
    }
    let judged = judge(shared, &headers, &request, &mut meter);
    let (method, request_meta, named) = match judged {
        Ok(judged) => judged,
        Err(error) => {
            return Answer::Whole(finish(shared, Some(&request.id), Err(error), &mut meter));
        }
    };
    let streams = door::accepts(&headers).streams;
    let caller = Caller::new(proven, request_meta, streams);
    let call = Call {
        named,
        ..Call::new(caller, (headers, request), meter)
    };
    let span = trace::request(method.as_str(), &call);
    carry_out(shared, method, call).instrument(span).await
}

/// Carries a request out. What is asked most is in the future itself, the rest beside it: each request moves
/// it about.
pub(crate) async fn carry_out(shared: &Arc<Shared>, method: Method, call: Call) -> Answer {
    let needed = method.scopes(shared.door.auth.scopes());
    if !call.caller.has_scopes(needed) {
        let needed = needed.to_vec();
        return call.answer(shared, Err(Error::Scope { needed }));
    }
    let result = match method {
        Method::Discover => server_discover::discover(shared),
        Method::ToolsList => {
            shared
                .in_time(Box::pin(tools_list::list(shared, &call)))
                .await
        }
        Method::ToolsCall => return Box::pin(tools_call::call(shared, call)).await,
        Method::ResourcesList => {
            let listing = Box::pin(provided_lists::resources(shared, &call));
            shared.in_time(listing).await
        }
        Method::TemplatesList => {
            let listing = Box::pin(provided_lists::templates(shared, &call));
            shared.in_time(listing).await
        }
        Method::PromptsList => {
            shared
                .in_time(Box::pin(provided_lists::prompts(shared, &call)))
                .await
        }
        Method::ResourcesRead => return Box::pin(provided_ask::read(shared, call)).await,
        Method::PromptsGet => return Box::pin(provided_ask::get(shared, call)).await,
        Method::Complete => return Box::pin(provided_ask::complete(shared, call)).await,
        Method::TasksGet => shared.in_time(tasks_get::get(shared, &call)).await,
        Method::TasksUpdate => {
            shared
                .in_time(Box::pin(tasks_update::update(shared, &call)))
                .await
        }
        Method::TasksCancel => {
            shared
                .in_time(Box::pin(tasks_cancel::cancel(shared, &call)))
                .await
        }
        Method::Listen => return Box::pin(subscriptions_listen::listen(shared, call)).await,
    };
    call.answer(shared, result)
}

/// The checks between the JSON and the method's own params; with what those name.
fn judge(
    shared: &Shared,
    headers: &HeaderMap,
    request: &jsonrpc::Request,
    meter: &mut Meter,
) -> Result<(Method, RequestMeta, Option<String>), Error> {
    let params = Params::read(request.params.as_deref());
    let version = mirrors::protocol_version(headers);
    let parsed = match &params {
        Ok(params) => RequestMeta::read(params),
        Err(error) => Err(error.clone().into()),
    };
    check_legacy(request, version.as_ref().ok().copied().flatten(), &parsed)?;
    headers::check_method(mirrors::method(headers)?, &request.method)?;
    let method =
        Method::parse(&request.method).ok_or_else(|| Error::Method(request.method.clone()))?;
    meter.method(method.as_str());
    let parsed = parsed?;
    headers::check_version(version?, &parsed.protocol_version)?;
    if !parsed.version_is_supported() {
        return Err(Error::Version(parsed.protocol_version));
    }
    let named = headers::name_in(&request.method, &params.map_err(meta::MetaError::from)?);
    match headers::check_name(&request.method, mirrors::name(headers)?, named.as_deref())? {
        NameHeader::Matches | NameHeader::NotApplicable => {}
        NameHeader::MissingOnTask => {
            shared
                .metrics
                .missing_names
                .with_label_values(&[method.as_str()])
                .inc();
        }
    }
    if method.is_about_tasks() && !parsed.capabilities.declares_tasks() {
        return Err(Error::TasksNotDeclared);
    }
    Ok((method, parsed, named))
}

/// A client of an older revision gets an answer that it prints clearly: `-32022` with what is
/// served, for an `initialize` without our header, and for a version that is not served together
/// with a body that has no `_meta`.
fn check_legacy(
    request: &jsonrpc::Request,
    version: Option<&str>,
    parsed: &Result<RequestMeta, meta::MetaError>,
) -> Result<(), Error> {
    match version {
        None if request.method == "initialize" => {
            let asked = meta::initialize_version(request.params.as_deref());
            Err(Error::Version(asked.unwrap_or_else(|| "none".to_owned())))
        }
        Some(version) if !is_served(version) && matches!(parsed, Err(meta::MetaError::Missing)) => {
            Err(Error::Version(version.to_owned()))
        }
        Some(_) | None => Ok(()),
    }
}

fn is_served(version: &str) -> bool {
    protocol::SUPPORTED_VERSIONS.contains(&version)
}
