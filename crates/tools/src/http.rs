//! A service behind a URL, as a tool: one request a call, and the answer at once or, by a callback,
//! whenever the service is done.

mod answer;
mod request;
pub(crate) mod template;

use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderName, Method};
use serde::{Deserialize, Serialize};
use serde_json::json;
use worker::{
    Address, Arguments, CallToolResult, Callback, Context, Doubt, Principal, Step, Tool, ToolError,
    ToolSpec, Undo, Undoing,
};

use crate::command::Effects;
use crate::command::result::text_or_bytes;
use crate::web::Pool;

pub(crate) use template::{Allowed, Json, Template, Url};

use request::Refused;

/// The step that the request is, and its callback.
const CALL: &str = "call";
/// What a task says while it waits for a callback.
const WAITING: &str = "the service has taken the work on";

/// What a response's body is taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// What its `Content-Type` says.
    Auto,
    Text,
    Json,
}

/// A service, as a tools file describes it.
pub(crate) struct Service {
    pub(crate) spec: ToolSpec,
    pub(crate) pool: Pool,
    pub(crate) method: Method,
    pub(crate) url: Url,
    pub(crate) headers: Vec<(HeaderName, Template)>,
    /// Headers whose values are read from files at every call.
    pub(crate) secret_headers: Vec<(HeaderName, PathBuf)>,
    pub(crate) bearer_file: Option<PathBuf>,
    /// Without one: the arguments.
    pub(crate) body: Option<Json>,
    pub(crate) output: Output,
    pub(crate) output_schema: Option<jsonschema::Validator>,
    pub(crate) effects: Effects,
    /// `None`: those that say for sure, or else in all likelihood, that nothing happened.
    pub(crate) retry_statuses: Option<Vec<u16>>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) response_bytes_max: usize,
    /// It may answer later, within so much time.
    pub(crate) callback_wait: Option<Duration>,
    /// Who is told that nobody wants the result any more.
    pub(crate) cancel_url: Option<Url>,
}

/// How a request ended.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Ended {
    /// There is an answer.
    Answered(Answered),
    /// It will call back.
    Accepted,
}

/// An answer, without secrets of ours.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Answered {
    status: u16,
    /// Its `Content-Type`.
    kind: String,
    #[serde(with = "text_or_bytes")]
    body: Vec<u8>,
    /// There was more than may be kept.
    cut: bool,
}

/// What a request is called.
pub(crate) struct Names<'a> {
    task: &'a str,
    attempt: i32,
    /// The same at every attempt.
    key: &'a str,
    callback: Option<&'a Address>,
    /// For whom it is made.
    principal: &'a Principal,
}

#[worker::async_trait]
impl Tool for Service {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    async fn call(
        &self,
        context: &mut Context,
        arguments: Arguments,
    ) -> Result<CallToolResult, ToolError> {
        let address = match self.callback_wait {
            Some(wait) => {
                let callback = Callback::new(CALL, wait).proves(CALL, &Ended::Accepted)?;
                Some(context.callback(callback).await?)
            }
            None => None,
        };
        let (task, attempt) = (context.task_id().to_string(), context.attempt());
        let key = format!("{task}:{CALL}");
        let principal = context.principal().clone();
        let names = Names {
            task: &task,
            attempt,
            key: &key,
            callback: address.as_ref(),
            principal: &principal,
        };
        let prepared = match self.prepare(&arguments, &names) {
            Ok(prepared) => prepared,
            Err(Refused(why)) => return Ok(CallToolResult::error(why)),
        };
        let mut pause = None;
        let ended = if self.effects == Effects::None && address.is_none() {
            let stop = context.cancelled();
            let trace = context.trace_context();
            tokio::select! {
                ended = self.send(&prepared, &trace, &mut pause) => ended,
                // Nothing is lost with it.
                () = stop.cancelled() => Err(ToolError::retryable("told to stop")),
            }
        } else {
            let mut step = Step::new(CALL);
            if self.effects != Effects::Once {
                step = step.idempotent();
            }
            if self.cancel_url.is_some() {
                step = step.undo(Undo::new(json!({})).idempotent());
            }
            let (prepared, put) = (&prepared, &mut pause);
            context
                .step(step, |info| async move {
                    self.send(prepared, &info.trace_context, put).await
                })
                .await
        };
        if let Some(pause) = pause {
            context.retry_after(pause);
        }
        let ended = match (ended, &address) {
            // It has called back all the same.
            (Err(error), Some(address)) => match context.received(address).await? {
                Some(outcome) => return self.reported(outcome, prepared.secrets()),
                None => Err(error),
            },
            (ended, _) => ended,
        };
        match (ended?, address) {
            (Ended::Answered(answered), _) => self.result(&answered),
            (Ended::Accepted, Some(address)) => {
                let harmless = self.effects == Effects::None || self.cancel_url.is_some();
                let doubt = if harmless { Doubt::Ends } else { Doubt::Stays };
                let outcome = context.called_back(&address, doubt, WAITING).await?;
                self.reported(outcome, prepared.secrets())
            }
            (Ended::Accepted, None) => Err(ToolError::failed(
                answer::INTERNAL,
                "the service took the work on to call back, and this tool has no callback any more",
            )),
        }
    }

    /// The task ends without a result, and the service works on: it is told.
    async fn undo(&self, undoing: &mut Undoing) -> Result<(), ToolError> {
        match (undoing.output::<Ended>()?, &self.cancel_url) {
            (Ended::Accepted, Some(url)) => self.cancel(url, undoing).await,
            (Ended::Accepted, None) | (Ended::Answered(_), _) => Ok(()),
        }
    }
}
