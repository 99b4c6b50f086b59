//! Whether a `tools/call` may be carried out: all that can be wrong with it, in one order.

use std::sync::Arc;

use bytes::Bytes;
use protocol::headers;
use protocol::idempotency::{self, Sources};
use protocol::input::InputResponses;
use protocol::jsonrpc::InvalidParams;
use protocol::tools::CallToolParams;
use protocol::unique::{self, Problem};
use serde_json::Value;
use store::TaskSupport;

use crate::Shared;
use crate::arguments;
use crate::auth;
use crate::caller::Caller;
use crate::catalog::Entry;
use crate::endpoint::Call;
use crate::error::Error;
use crate::method::Method;
use crate::mirrors;
use crate::request_state::{Binding, State};
use crate::trace;

/// A call that may be carried out.
pub(crate) struct Judged {
    pub(crate) method: Method,
    pub(crate) entry: Arc<Entry>,
    pub(crate) caller: Caller,
    pub(crate) arguments: Bytes,
    pub(crate) digest: [u8; 32],
    pub(crate) key: Option<String>,
    pub(crate) responses: Option<InputResponses>,
    pub(crate) state: Option<State>,
}

/// What is said of a call.
pub(crate) enum Verdict {
    Valid(Box<Judged>),
    /// The arguments violate the schema: told as a result.
    Invalid(String),
}

/// All that can be wrong with a call, in the order in which it is told.
pub(crate) async fn judge(shared: &Shared, call: &Call) -> Result<Verdict, Error> {
    let caller = &call.caller;
    let params = CallToolParams::parse(call.params())?;
    let unknown = || Error::UnknownTool(params.name.clone());
    // There is none with a longer name, so that nobody needs to look.
    if params.name.len() > shared.config.limits.tool_name_bytes_max {
        return Err(unknown());
    }
    let entry = shared
        .catalog
        .find(&params.name)
        .await?
        .ok_or_else(unknown)?;
    let tool = &entry.tool;
    trace::tool("tools/call", tool.spec.name());
    let policy = &tool.spec.policy;
    let arguments = params.arguments.as_deref();
    // Older revisions mirror nothing into headers.
    let mirrored = match caller.legacy {
        None => &tool.param_headers[..],
        Some(_) => &[],
    };
    for param in mirrored {
        headers::check_param(
            param,
            arguments,
            mirrors::named(&call.headers, &param.header)?,
        )?;
    }
    if !caller.has_scopes(&policy.scopes) {
        let own = &shared.door.auth.scopes().call;
        let needed = auth::together([&own[..], &policy.scopes]);
        return Err(Error::Scope { needed });
    }
    if policy.task_support == TaskSupport::Required {
        caller.must_declare_tasks()?;
    }
    if policy.task_support == TaskSupport::None && caller.wants_task() {
        return Err(Error::NeverTask(tool.spec.name().to_owned()));
    }
    let required = policy.required_capabilities.as_ref();
    if let Some(missing) = required.and_then(|required| caller.capabilities.missing(required)) {
        return Err(Error::Capability(missing));
    }
    let size_max = policy
        .argument_bytes_max
        .and_then(|max| usize::try_from(max).ok());
    let bytes_max = size_max.unwrap_or(shared.config.limits.argument_bytes_max);
    let bytes = params.arguments_json().len();
    if bytes > bytes_max {
        return Err(Error::ArgumentsTooLarge { bytes, bytes_max });
    }
    let read = read_arguments(params.arguments_json())?;
    let digest = read.as_ref().map_or([0; 32], |(_, digest)| *digest);
    let binding = Binding {
        method: Method::ToolsCall,
        principal: &caller.principal,
        tool: tool.spec.name(),
        digest: &digest,
    };
    let state = params.request_state.as_deref();
    let state = state
        .map(|text| shared.state_keys.open(text, binding))
        .transpose()?;
    let argument = policy.idempotency_key_argument.as_deref();
    let bytes_max = shared.config.limits.idempotency_key_bytes_max;
    let key = idempotency_key(call, &params, argument, bytes_max)?;
    let told = read.and_then(|(value, _)| tool.schema.check(&value));
    if let Err(told) = told {
        return Ok(Verdict::Invalid(told));
    }
    Ok(Verdict::Valid(Box::new(Judged {
        method: Method::ToolsCall,
        caller: caller.clone(),
        arguments: Bytes::copy_from_slice(params.arguments_json().as_bytes()),
        digest,
        key,
        responses: params
            .input_responses
            .filter(|responses| !responses.is_empty()),
        state,
        entry,
    })))
}

/// The arguments and their digest, or what the model is told of them.
///
/// # Errors
/// If a name occurs twice in one object: tools are given the text, and might read the other one.
fn read_arguments(json: &str) -> Result<Result<(Value, [u8; 32]), String>, InvalidParams> {
    let value = match unique::read(json) {
        Ok(value) => value,
        Err(problem @ Problem::Twice { .. }) => {
            return Err(InvalidParams::new(format!("`arguments`: {problem}")));
        }
        Err(Problem::Unreadable(error)) => return Ok(Err(format!("Invalid arguments: {error}"))),
    };
    Ok(arguments::digest(&value).map(|digest| (value, digest)))
}

fn idempotency_key(
    call: &Call,
    params: &CallToolParams,
    argument: Option<&str>,
    bytes_max: usize,
) -> Result<Option<String>, Error> {
    let argument = match argument {
        Some(name) => idempotency::argument(params.arguments.as_deref(), name)?,
        None => None,
    };
    let sources = Sources {
        meta: call.caller.idempotency_key.as_deref(),
        params: params.idempotency_key.as_deref(),
        header: mirrors::named(&call.headers, "Idempotency-Key")?,
        argument: argument.as_deref(),
    };
    Ok(idempotency::extract(&sources, bytes_max)?)
}
