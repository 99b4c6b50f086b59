//! `resources/read`, `prompts/get` and `completion/complete`: asked of a worker, as a job that is
//! held like a call of a tool and never becomes a task (MCP 2026-07-28 §Resources, §Prompts,
//! §Completion).
//!
//! So a caller who goes away cancels it, a lost worker's is done by another, progress and questions
//! come through, and none of it needs code of its own.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use protocol::completion::{CompleteParams, Completion, Reference};
use protocol::input::InputResponses;
use protocol::prompts::GetParams;
use protocol::resources::ReadParams;
use store::Asked;

use super::provided_lists::served;
use super::tools_call;
use crate::Shared;
use crate::arguments;
use crate::auth;
use crate::endpoint::Call;
use crate::error::Error;
use crate::judgement::Judged;
use crate::method::Method;
use crate::promotion::Plan;
use crate::provided::Provider;
use crate::reply::{Answer, Reply};
use crate::request_state::Binding;
use crate::trace;

/// A provider that no worker was seen serving lately is waited for no longer than this: one may be
/// on its way.
const UNSERVED_WAIT: Duration = Duration::from_secs(5);

/// Reads a resource.
pub(crate) async fn read(shared: &Arc<Shared>, call: Call) -> Answer {
    let ready = shared.in_time(prepare_read(shared, &call)).await;
    Box::pin(carry_out(shared, call, ready)).await
}

/// Fills a prompt in.
pub(crate) async fn get(shared: &Arc<Shared>, call: Call) -> Answer {
    let ready = shared.in_time(prepare_get(shared, &call)).await;
    Box::pin(carry_out(shared, call, ready)).await
}

/// Completes a value.
pub(crate) async fn complete(shared: &Arc<Shared>, call: Call) -> Answer {
    let ready = shared.in_time(prepare_complete(shared, &call)).await;
    Box::pin(carry_out(shared, call, ready)).await
}

/// What is to be done with a request that is in order.
enum Ready {
    Answered(Reply),
    Ask(Box<Judged>, Arc<Provider>),
}

async fn prepare_read(shared: &Shared, call: &Call) -> Result<Ready, Error> {
    let params = ReadParams::parse(call.params())?;
    let (provided, provider) = shared.catalog.provided(|p| p.resource(&params.uri)).await?;
    served(provided.serves.resources, "resources/read")?;
    let unknown = || Error::Unknown(Reference::Resource(params.uri.clone()));
    let provider = provider.ok_or_else(unknown)?;
    may_ask(shared, (call, Method::ResourcesRead), &provider)?;
    let asked = Asked::Read {
        uri: params.uri.clone(),
    };
    let round = (params.input_responses, params.request_state);
    judge(
        shared,
        (call, Method::ResourcesRead),
        provider,
        asked,
        round,
    )
}

async fn prepare_get(shared: &Shared, call: &Call) -> Result<Ready, Error> {
    let params = GetParams::parse(call.params())?;
    let name = &params.name;
    let (provided, provider) = shared
        .catalog
        .provided(|p| p.prompts.get(name).map(|listed| &listed.provider))
        .await?;
    served(provided.serves.prompts, "prompts/get")?;
    let unknown = || Error::Unknown(Reference::Prompt(name.clone()));
    let provider = provider.ok_or_else(unknown)?;
    let prompt = provided.prompts.get(name).ok_or_else(unknown)?;
    may_ask(shared, (call, Method::PromptsGet), &provider)?;
    prompt.item.check_arguments(&params.arguments)?;
    let asked = Asked::Prompt {
        name: params.name,
        arguments: params.arguments,
    };
    let round = (params.input_responses, params.request_state);
    judge(shared, (call, Method::PromptsGet), provider, asked, round)
}

async fn prepare_complete(shared: &Shared, call: &Call) -> Result<Ready, Error> {
    let params = CompleteParams::parse(call.params())?;
    let reference = &params.reference;
    let (provided, provider) = shared.catalog.provided(|p| p.completing(reference)).await?;
    served(provided.serves.completions, "completion/complete")?;
    let unknown = || Error::Unknown(reference.clone());
    let provider = provider.ok_or_else(unknown)?;
    may_ask(shared, (call, Method::Complete), &provider)?;
    if !provider.spec.completes {
        let none = Completion::default().to_json();
        let json = shared.meta.attach(&none);
        let json = json.map_err(|error| Error::Bug(error.to_string()))?;
        return Ok(Ready::Answered(Reply::ok(json)));
    }
    judge(
        shared,
        (call, Method::Complete),
        provider,
        Asked::Complete(params),
        (None, None),
    )
}

/// Whether the caller's scopes are those of the provider, too.
fn may_ask(
    shared: &Shared,
    (call, method): (&Call, Method),
    provider: &Provider,
) -> Result<(), Error> {
    trace::provider(provider.job.tool.spec.name());
    let scopes = &provider.spec.policy.scopes;
    if call.caller.has_scopes(scopes) {
        return Ok(());
    }
    let own = method.scopes(shared.door.auth.scopes());
    let needed = auth::together([own, scopes]);
    Err(Error::Scope { needed })
}

/// All that can be wrong with a request beyond what it is about, in the order of `tools/call`.
fn judge(
    shared: &Shared,
    (call, method): (&Call, Method),
    provider: Arc<Provider>,
    asked: Asked,
    (responses, state): (Option<InputResponses>, Option<String>),
) -> Result<Ready, Error> {
    let (caller, policy) = (&call.caller, &provider.spec.policy);
    let name = provider.job.tool.spec.name();
    if provider.job.paused {
        return Err(Error::ToolPaused(name.to_owned()));
    }
    let value = serde_json::to_value(&asked).map_err(|error| Error::Bug(error.to_string()))?;
    let json = value.to_string();
    let size_max = policy
        .argument_bytes_max
        .and_then(|max| usize::try_from(max).ok());
    let bytes_max = size_max.unwrap_or(shared.config.limits.argument_bytes_max);
    if json.len() > bytes_max {
        return Err(Error::ArgumentsTooLarge {
            bytes: json.len(),
            bytes_max,
        });
    }
    let digest = arguments::digest(&value).map_err(Error::Bug)?;
    let binding = Binding {
        method,
        principal: &caller.principal,
        tool: name,
        digest: &digest,
    };
    let state = state
        .map(|text| shared.state_keys.open(&text, binding))
        .transpose()?;
    let judged = Judged {
        method,
        caller: caller.clone(),
        arguments: Bytes::from(json),
        digest,
        key: None,
        responses: responses.filter(|responses| !responses.is_empty()),
        state,
        entry: Arc::clone(&provider.job),
    };
    Ok(Ready::Ask(Box::new(judged), provider))
}

async fn carry_out(shared: &Arc<Shared>, call: Call, ready: Result<Ready, Error>) -> Answer {
    let (judged, provider) = match ready {
        Err(error) => return call.answer(shared, Err(error)),
        Ok(Ready::Answered(reply)) => return call.answer(shared, Ok(reply)),
        Ok(Ready::Ask(judged, provider)) => (judged, provider),
    };
    let limit = provider.spec.policy.call_limit;
    let limit = limit.unwrap_or(shared.config.call_limit);
    let limit = if provider.alive {
        limit
    } else {
        limit.min(UNSERVED_WAIT)
    };
    Box::pin(tools_call::held_to_its_end(
        shared,
        call,
        judged,
        Plan::Hold(limit),
    ))
    .await
}
