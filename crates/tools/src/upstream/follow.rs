//! A task of the upstream's own (SEP-2663): followed until it ends, by whichever worker has the
//! job, and cancelled with ours.

use std::collections::BTreeMap;
use std::time::Duration;

use protocol::{ErrorObject, code};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;
use worker::{CallToolResult, Context, Reporter, Step, ToolError, pause};

use super::asking::stopped;
use super::call::Call;
use super::fault::Fault;
use super::message;
use super::outcome::Outcome;
use super::tool::UpstreamTool;

/// Between two polls, whatever the server says.
const POLL: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(60);
/// If it says nothing.
const POLL_UNSAID: Duration = Duration::from_secs(1);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct State {
    status: String,
    status_message: Option<String>,
    poll_interval_ms: Option<u64>,
    input_requests: Option<BTreeMap<String, Box<RawValue>>>,
    result: Option<Box<RawValue>>,
    error: Option<ErrorObject>,
}

impl Call<'_> {
    /// Follows the task to its end.
    pub(super) async fn follow(
        mut self,
        context: &mut Context,
        id: &str,
        poll_ms: Option<u64>,
    ) -> Result<CallToolResult, ToolError> {
        let mut answered = Vec::new();
        loop {
            self.next_round();
            let (tool, key) = (self.tool, self.key("follow"));
            let watch = Watch {
                tool,
                id,
                stop: context.cancelled(),
                reporter: context.reporter(),
                answered: &answered,
            };
            let mut long = None;
            let put = &mut long;
            // Looking on changes nothing.
            let outcome = context
                .step(Step::new(&key).idempotent(), |_| async move {
                    let (outcome, rest) = watch.until_it_matters(poll_ms).await?.split();
                    *put = rest;
                    Ok(outcome)
                })
                .await?;
            let requests = match outcome {
                Outcome::Result(result) => return tool.result(&result),
                Outcome::Long => match long {
                    Some(result) => return tool.result(&result),
                    // It is still there to be asked for.
                    None => continue,
                },
                Outcome::Needs { requests, .. } => requests,
                Outcome::Failed(error) => return Err(tool.fault(Fault::Rpc(error))),
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
                    tool.ask_task("tasks/update", id, &members, &stop).await?;
                    Ok(())
                })
                .await?;
        }
    }
}

struct Watch<'a> {
    tool: &'a UpstreamTool,
    id: &'a str,
    stop: CancellationToken,
    reporter: Reporter,
    answered: &'a [String],
}

impl Watch<'_> {
    /// Looks until the task has ended or needs an answer.
    async fn until_it_matters(&self, poll_ms: Option<u64>) -> Result<Outcome, ToolError> {
        let mut interval = interval(poll_ms);
        let mut said = None;
        let id = message::string(self.id);
        loop {
            pause(&self.stop, interval).await?;
            let members = [("taskId", id.as_str())];
            let state = self
                .tool
                .ask_task("tasks/get", self.id, &members, &self.stop);
            let state: State = serde_json::from_str(state.await?.get()).map_err(|error| {
                self.tool
                    .fault(Fault::Garbage(format!("tasks/get: {error}")))
            })?;
            if state.poll_interval_ms.is_some() {
                interval = self::interval(state.poll_interval_ms);
            }
            if state.status_message.is_some() && state.status_message != said {
                said.clone_from(&state.status_message);
                let message = state.status_message.unwrap_or_default();
                self.reporter.progress(message).await;
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

fn interval(ms: Option<u64>) -> Duration {
    let said = ms.map_or(POLL_UNSAID, Duration::from_millis);
    said.clamp(*POLL.start(), *POLL.end())
}

impl UpstreamTool {
    /// Asks about a task of the server's; again while it cannot be reached, until told to stop:
    /// its task goes on meanwhile.
    pub(super) async fn ask_task(
        &self,
        method: &str,
        id: &str,
        members: &[(&str, &str)],
        stop: &CancellationToken,
    ) -> Result<Box<RawValue>, ToolError> {
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
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(fault @ (Fault::Rpc(_) | Fault::Refused(_) | Fault::Misfit(_)))) => {
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
