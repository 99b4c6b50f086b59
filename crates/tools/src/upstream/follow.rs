//! A task of the upstream's own (SEP-2663, or as of 2025-11-25): followed until it ends, by
//! whichever worker has the job, and cancelled with ours.

use std::collections::BTreeMap;
use std::time::Duration;

use protocol::{ErrorObject, code};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;
use worker::{CallToolResult, Context, Reporter, Step, ToolError, pause};

use super::asking::{Asking, stopped};
use super::call::Call;
use super::config::Effects;
use super::fault::Fault;
use super::message;
use super::outcome::Outcome;
use super::tool::UpstreamTool;

/// Between two polls, whatever the server says.
const POLL: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(60);
/// An answer that could not be given is found missing after so many looks.
const DEAF_LOOKS: u32 = 5;
/// If it says nothing.
const POLL_UNSAID: Duration = Duration::from_secs(1);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct State {
    status: String,
    status_message: Option<String>,
    poll_interval_ms: Option<u64>,
    /// As of 2025-11-25, in milliseconds too.
    poll_interval: Option<u64>,
    input_requests: Option<BTreeMap<String, Box<RawValue>>>,
    result: Option<Box<RawValue>>,
    error: Option<ErrorObject>,
}

impl Call<'_> {
    /// Follows the task to its end; `None` if its server does not know it any more, and the call may
    /// be repeated.
    pub(super) async fn follow(
        &mut self,
        context: &mut Context,
        id: &str,
        poll_ms: Option<u64>,
        legacy: bool,
    ) -> Result<Option<CallToolResult>, ToolError> {
        let mut answered = Vec::new();
        let mut answer: Option<Box<RawValue>> = None;
        let bytes_max = context.output_bytes_max();
        loop {
            self.next_round();
            let (tool, key) = (self.tool, self.key("follow"));
            let watch = Watch {
                tool,
                id,
                legacy: legacy.then(|| self.asking(context, true)),
                stop: context.cancelled(),
                reporter: context.reporter(),
                answered: &answered,
            };
            let given = answer.take();
            let mut long = None;
            let put = &mut long;
            // Looking on changes nothing.
            let outcome = context
                .step(Step::new(&key).idempotent(), |_| async move {
                    let outcome = watch.until_it_matters(poll_ms, given).await?;
                    let (outcome, rest) = outcome.split(bytes_max);
                    *put = rest;
                    Ok(outcome)
                })
                .await?;
            let requests = match outcome {
                Outcome::Result(result) => return tool.result(&result).map(Some),
                Outcome::Long => match long {
                    Some(result) => return tool.result(&result).map(Some),
                    // It is still there to be asked for.
                    None => continue,
                },
                Outcome::Needs { requests, .. } => requests,
                Outcome::Failed(error) => return Err(tool.fault(Fault::Rpc(error))),
                Outcome::Gone(_) if tool.effects != Effects::Once => return Ok(None),
                Outcome::Gone(why) => return Err(self.forgotten(&why)),
                Outcome::Asks { request, .. } if legacy => {
                    answer = Some(self.asks(context, &request).await?);
                    continue;
                }
                Outcome::Asks { .. } | Outcome::Task { .. } => {
                    return Err(tool.fault(Fault::Garbage("a task in a task".to_owned())));
                }
            };
            let Some(responses) = self.needs(context, &requests).await? else {
                continue;
            };
            answered.extend(requests.into_keys());
            let (key, stop) = (self.key("answer"), context.cancelled());
            // Answers to a question that has its answer are ignored.
            context
                .step(Step::new(&key).idempotent(), |_| async move {
                    let id_text = message::string(id);
                    let members = [("taskId", id_text.as_str()), ("inputResponses", &responses)];
                    let told = tool.ask_task("tasks/update", id, &members, &stop).await?;
                    told.map(drop)
                        .map_err(|error| tool.refused_task("tasks/update", &error))
                })
                .await?;
        }
    }
}

struct Watch<'a> {
    tool: &'a UpstreamTool,
    id: &'a str,
    /// What hears the questions of a task of 2025-11-25.
    legacy: Option<Asking>,
    stop: CancellationToken,
    reporter: Reporter,
    answered: &'a [String],
}

impl Watch<'_> {
    /// Looks until the task has ended or needs an answer; `given` is one that it waits for.
    async fn until_it_matters(
        &self,
        poll_ms: Option<u64>,
        given: Option<Box<RawValue>>,
    ) -> Result<Outcome, ToolError> {
        let mut deaf = None;
        if let (Some(legacy), Some(given)) = (&self.legacy, given) {
            if let Some(outcome) = legacy.tell_task(self.tool, given).await? {
                return Ok(outcome);
            }
            deaf = Some(0);
        }
        let mut interval = interval(poll_ms);
        let mut said = None;
        let id = message::string(self.id);
        loop {
            pause(&self.stop, interval).await?;
            let members = [("taskId", id.as_str())];
            let state = self
                .tool
                .ask_task("tasks/get", self.id, &members, &self.stop);
            let state = match state.await? {
                Ok(state) => state,
                Err(error) if self.legacy.is_some() || error.code == code::INVALID_PARAMS => {
                    return Ok(Outcome::Gone(error.message));
                }
                Err(error) => return Err(self.tool.refused_task("tasks/get", &error)),
            };
            let state: State = serde_json::from_str(state.get()).map_err(|error| {
                self.tool
                    .fault(Fault::Garbage(format!("tasks/get: {error}")))
            })?;
            let asked_for = state.poll_interval_ms.or(state.poll_interval);
            if asked_for.is_some() {
                interval = self::interval(asked_for);
            }
            if state.status_message.is_some() && state.status_message != said {
                said.clone_from(&state.status_message);
                let message = state.status_message.unwrap_or_default();
                self.reporter.progress(message).await;
            }
            if let Some(legacy) = &self.legacy {
                match (state.status.as_str(), &mut deaf) {
                    // It still waits, and asks once only.
                    ("input_required", Some(looks)) => {
                        *looks += 1;
                        if *looks > DEAF_LOOKS {
                            return Err(self.gone());
                        }
                    }
                    ("completed" | "failed" | "input_required", _) => {
                        match legacy.result_of_task(self.tool, self.id).await? {
                            Some(outcome) => return Ok(outcome),
                            None => continue,
                        }
                    }
                    // What else there is means the same.
                    _ => {}
                }
            }
            match state.status.as_str() {
                "completed" => {
                    let missing = || Fault::Garbage("completed without a result".to_owned());
                    let result = state.result.ok_or_else(|| self.tool.fault(missing()))?;
                    return Ok(Outcome::Result(result));
                }
                "failed" => {
                    let unsaid = || ErrorObject::new(code::INTERNAL_ERROR, "failed");
                    return Ok(Outcome::Failed(state.error.unwrap_or_else(unsaid)));
                }
                "cancelled" => {
                    let name = self.tool.source.name();
                    let text = format!("upstream \"{name}\" says that its task was cancelled");
                    return Ok(Outcome::Failed(ErrorObject::new(
                        code::INTERNAL_ERROR,
                        text,
                    )));
                }
                "input_required" => {
                    let mut requests = state.input_requests.unwrap_or_default();
                    requests.retain(|key, _| !self.answered.contains(key));
                    if !requests.is_empty() {
                        return Ok(Outcome::Needs {
                            requests,
                            state: None,
                        });
                    }
                }
                // `working`, and what a later revision may invent.
                _ => {}
            }
        }
    }
}

impl Watch<'_> {
    /// Its question was answered where nobody could be told.
    fn gone(&self) -> ToolError {
        let text = format!(
            "upstream \"{}\" asked in the middle of its task, and the connection for the answer is \
             gone: it was held by another worker, or for longer than `hold`",
            self.tool.source.name()
        );
        ToolError::failed(code::INTERNAL_ERROR, text)
    }
}

fn interval(ms: Option<u64>) -> Duration {
    let said = ms.map_or(POLL_UNSAID, Duration::from_millis);
    said.clamp(*POLL.start(), *POLL.end())
}

impl Call<'_> {
    /// Nobody knows how a task has ended that its server has forgotten.
    fn forgotten(&self, why: &str) -> ToolError {
        let name = self.tool.source.name();
        let text = format!("upstream \"{name}\" does not know its task any more ({why})");
        let data = json!({ "reason": code::reason::STEP_IN_DOUBT, "step": "call" });
        ToolError::failed_with(code::INTERNAL_ERROR, text, data)
    }
}

impl UpstreamTool {
    fn refused_task(&self, method: &str, error: &ErrorObject) -> ToolError {
        let (name, code, text) = (self.source.name(), error.code, &error.message);
        let text = format!("upstream \"{name}\" answered with error {code}: {text} ({method})");
        ToolError::failed(code::INTERNAL_ERROR, text)
    }

    /// Asks about a task of the server's; again while it cannot be reached, until told to stop:
    /// its task goes on meanwhile.
    pub(super) async fn ask_task(
        &self,
        method: &str,
        id: &str,
        members: &[(&str, &str)],
        stop: &CancellationToken,
    ) -> Result<Result<Box<RawValue>, ErrorObject>, ToolError> {
        let mut wait = POLL_UNSAID;
        loop {
            let asking = async {
                let link = self.source.link().await?;
                let timeout = self.source.config.timeout;
                Ok::<_, ToolError>(link.ask(method, members, Some(id), timeout).await)
            };
            let asked = tokio::select! {
                asked = asking => asked,
                () = stop.cancelled() => return Err(stopped(stop).await),
            };
            let why = match asked {
                Ok(Ok(answer)) => return Ok(Ok(answer)),
                Ok(Err(Fault::Rpc(error))) => return Ok(Err(error)),
                Ok(Err(fault @ (Fault::Refused(_) | Fault::Misfit(_)))) => {
                    return Err(ToolError::failed(
                        code::INTERNAL_ERROR,
                        format!(
                            "upstream \"{}\" {} ({method})",
                            self.source.name(),
                            fault.text()
                        ),
                    ));
                }
                Ok(Err(fault)) => fault.text(),
                Err(error) => error.to_string(),
            };
            tracing::debug!(
                method,
                error = why,
                "an upstream's task cannot be asked for"
            );
            pause(stop, wait).await?;
            wait = (wait * 2).min(*POLL.end());
        }
    }
}
