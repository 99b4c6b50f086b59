//! One request of a call: placed, watched, answered, given up.

use std::time::Duration;

use protocol::input::InputKind;
use protocol::{ErrorObject, code};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use worker::{Context, InputRequest, Reporter, StepInfo, ToolError, pause};

use super::config::Effects;
use super::exchange::{Event, Exchange};
use super::fault::Fault;
use super::held::Held;
use super::link::About;
use super::message::{self, Request};
use super::outcome::Outcome;
use super::tool::UpstreamTool;

/// What is said of a server without a connection.
const DOWN: &str = "cannot be reached just now";
/// Stands for "until told to stop".
const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// What one request needs to know, apart from the context.
pub(super) struct Asking {
    pub(super) effects: Effects,
    pub(super) stop: CancellationToken,
    pub(super) reporter: Reporter,
    pub(super) task: protocol::TaskId,
    pub(super) given: Vec<(Box<RawValue>, Box<RawValue>)>,
    pub(super) can: Vec<InputKind>,
    /// The connection is held while a question of an older server's waits.
    pub(super) hold: bool,
}

impl Asking {
    /// Calls the tool, and stays until there is something to go on with.
    pub(super) async fn place(
        self,
        tool: &UpstreamTool,
        arguments: &str,
        more: &[(String, String)],
        info: StepInfo,
    ) -> Result<Outcome, ToolError> {
        let mut renewed = false;
        loop {
            // A new session is waited for; all else was, before the step began.
            let link = match tool.source.link_now() {
                Some(link) => link,
                None if !renewed => return Err(tool.fault(Fault::NotSent(DOWN.to_owned()))),
                None => tokio::select! {
                    link = tool.source.link() => link?,
                    () = self.stop.cancelled() => return Err(stopped(&self.stop).await),
                },
            };
            let name = message::string(&tool.name);
            let mut members = vec![("name", name.as_str()), ("arguments", arguments)];
            let task = tool.as_task(&link);
            members.extend(task.as_deref().map(|task| ("task", task)));
            members.extend(
                more.iter()
                    .map(|(name, value)| (name.as_str(), value.as_str())),
            );
            let about = About {
                meta: meta(&info),
                abilities: Some(abilities_json(&self.can, true)),
                name: Some(&tool.name),
                mirrored: tool.mirrored(arguments),
                progress: true,
                is_call: true,
            };
            let ended = match link.begin("tools/call", &members, about).await {
                Ok(exchange) if task.is_some() => {
                    let read = Outcome::read_legacy_task;
                    self.watch(tool, exchange, read).await
                }
                Ok(exchange) => self.watch(tool, exchange, Outcome::read).await,
                Err(fault) => Err(Ended::Fault(fault)),
            };
            tool.source.asked(match &ended {
                Ok(_) => Some(Ok(())),
                Err(Ended::Fault(fault)) => Some(Err(fault)),
                Err(Ended::Stopped) => None,
            });
            match ended {
                // It was refused before anything was done: once more, in a new session.
                Err(Ended::Fault(Fault::Expired)) if !renewed => renewed = true,
                ended => return self.end(tool, ended).await,
            }
        }
    }

    /// Answers the question of a call that was held.
    pub(super) async fn go_on(
        self,
        tool: &UpstreamTool,
        answer: Box<RawValue>,
    ) -> Result<Outcome, ToolError> {
        let Some(mut held) = tool.source.holding.take(self.task) else {
            return Err(ToolError::outcome_unknown(format!(
                "upstream \"{}\" asked in the middle of the call, and its connection is gone: it \
                 was held by another worker, or for longer than `hold`",
                tool.source.name()
            )));
        };
        let ended = match held.exchange.answer(&held.id, &Ok(answer)).await {
            Ok(()) => self.watch(tool, held.exchange, Outcome::read).await,
            Err(fault) => Err(Ended::Fault(fault)),
        };
        self.end(tool, ended).await
    }

    /// Answers what the server's task of 2025-11-25 has asked; `None`: how it goes is still to be
    /// seen.
    pub(super) async fn tell_task(
        &self,
        tool: &UpstreamTool,
        answer: Box<RawValue>,
    ) -> Result<Option<Outcome>, ToolError> {
        let Some(mut held) = tool.source.holding.take(self.task) else {
            return Ok(None);
        };
        let ended = match held.exchange.answer(&held.id, &Ok(answer)).await {
            Ok(()) => self.watch(tool, held.exchange, Outcome::read).await,
            Err(fault) => Err(Ended::Fault(fault)),
        };
        self.end_task(tool, ended).await
    }

    /// Asks for the result of the server's task of 2025-11-25, and hears its questions on the way
    /// (§Input Required Status).
    pub(super) async fn result_of_task(
        &self,
        tool: &UpstreamTool,
        id: &str,
    ) -> Result<Option<Outcome>, ToolError> {
        let Some(link) = tool.source.link_now() else {
            return Ok(None);
        };
        let id = message::string(id);
        let about = About {
            is_call: true,
            ..About::default()
        };
        let ended = match link.begin("tasks/result", &[("taskId", &id)], about).await {
            Ok(exchange) => self.watch(tool, exchange, Outcome::read).await,
            Err(fault) => Err(Ended::Fault(fault)),
        };
        self.end_task(tool, ended).await
    }

    /// Its task goes on, whatever becomes of a connection.
    async fn end_task(
        &self,
        tool: &UpstreamTool,
        ended: Result<Outcome, Ended>,
    ) -> Result<Option<Outcome>, ToolError> {
        match ended {
            Ok(outcome) => Ok(Some(outcome)),
            Err(Ended::Fault(Fault::Rpc(error))) => Ok(Some(Outcome::Failed(error))),
            Err(Ended::Fault(Fault::Unknown(_) | Fault::NotSent(_) | Fault::Expired)) => Ok(None),
            Err(Ended::Fault(fault)) => Err(tool.fault(fault)),
            Err(Ended::Stopped) => Err(stopped(&self.stop).await),
        }
    }

    async fn end(
        &self,
        tool: &UpstreamTool,
        ended: Result<Outcome, Ended>,
    ) -> Result<Outcome, ToolError> {
        match ended {
            Ok(outcome) => Ok(outcome),
            Err(Ended::Fault(fault)) => Err(tool.fault(fault)),
            Err(Ended::Stopped) if self.effects == Effects::None => Err(stopped(&self.stop).await),
            Err(Ended::Stopped) => Err(ToolError::outcome_unknown(format!(
                "upstream \"{}\" was told to stop in the middle of the call",
                tool.source.name()
            ))),
        }
    }

    async fn watch(
        &self,
        tool: &UpstreamTool,
        mut exchange: Exchange,
        read: fn(Box<RawValue>) -> Result<Outcome, Fault>,
    ) -> Result<Outcome, Ended> {
        let mut given = self.given.iter();
        loop {
            let event = tokio::select! {
                biased;
                event = exchange.next() => event?,
                () = self.stop.cancelled() => {
                    exchange.cancel("the caller does not want it any more").await;
                    return Err(Ended::Stopped);
                }
            };
            let request = match event {
                Event::Progress(progress) => {
                    self.reporter.report(progress).await;
                    continue;
                }
                Event::Done(result) => return Ok(read(result)?),
                Event::Ask(request) => request,
            };
            let asked = as_input(&request);
            if let Err(error) = self.may_be_asked(&asked) {
                exchange
                    .answer(&request.id, &refusal(&request, error))
                    .await?;
                continue;
            }
            // What it asked when it was called before, it is told again.
            if let Some((_, response)) = given.next().filter(|(before, _)| same(before, &asked)) {
                exchange.answer(&request.id, &Ok(response.clone())).await?;
                continue;
            }
            let held = self.hold;
            if held {
                let held = Held::new(exchange, request.id);
                tool.source.holding.put(self.task, held);
            } else {
                exchange
                    .cancel("called again when the question is answered")
                    .await;
            }
            return Ok(Outcome::Asks {
                request: asked,
                held,
            });
        }
    }

    fn may_be_asked(&self, request: &RawValue) -> Result<(), ErrorObject> {
        let refuse = |code, text: String| Err(ErrorObject::new(code, text));
        let asked: InputRequest = match serde_json::from_str(request.get()) {
            Ok(asked) => asked,
            Err(error) => return refuse(code::INVALID_PARAMS, error.to_string()),
        };
        match asked.kind() {
            Some(kind) if self.can.contains(&kind) => asked
                .check()
                .or_else(|why| refuse(code::INVALID_PARAMS, why)),
            Some(_) => refuse(
                code::METHOD_NOT_FOUND,
                "the caller cannot be asked".to_owned(),
            ),
            None => refuse(
                code::METHOD_NOT_FOUND,
                format!("{} is not served", asked.method),
            ),
        }
    }
}

/// How a request ended without an outcome.
enum Ended {
    Fault(Fault),
    Stopped,
}

impl From<Fault> for Ended {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// The kinds of question that the client of the call can answer.
pub(super) fn abilities(context: &Context) -> Vec<InputKind> {
    let client = context.client();
    [
        InputKind::ElicitForm,
        InputKind::ElicitUrl,
        InputKind::Sampling,
        InputKind::Roots,
    ]
    .into_iter()
    .filter(|kind| client.supports(*kind))
    .collect()
}

/// What the client that called us can answer, and perhaps that we follow tasks.
pub(super) fn abilities_json(can: &[InputKind], tasks: bool) -> String {
    let mut abilities = json!({});
    if tasks {
        abilities["extensions"] = json!({ protocol::EXTENSION_TASKS: {} });
    }
    for kind in can {
        match kind {
            InputKind::ElicitForm => abilities["elicitation"]["form"] = json!({}),
            InputKind::ElicitUrl => abilities["elicitation"]["url"] = json!({}),
            InputKind::Sampling => abilities["sampling"] = json!({}),
            InputKind::Roots => abilities["roots"] = json!({}),
        }
    }
    abilities.to_string()
}

/// The error that says that nothing happened and the work shall stop.
pub(super) async fn stopped(stop: &CancellationToken) -> ToolError {
    match pause(stop, FOREVER).await {
        Err(error) => error,
        Ok(()) => ToolError::retryable("stopped"),
    }
}

/// A server's own request as a question, without what belongs to its connection.
fn as_input(request: &Request) -> Box<RawValue> {
    let method = message::string(&request.method);
    let mut members = vec![("method", method.as_str())];
    let params = request.params.as_ref().and_then(|params| {
        let mut params: Value = serde_json::from_str(params.get()).ok()?;
        params.as_object_mut()?.remove("_meta");
        Some(params.to_string())
    });
    if let Some(params) = &params {
        members.push(("params", params));
    }
    RawValue::from_string(message::object(members)).expect("made of JSON texts")
}

fn same(before: &RawValue, now: &RawValue) -> bool {
    let value = |raw: &RawValue| serde_json::from_str::<Value>(raw.get()).ok();
    value(before) == value(now)
}

/// What a server is told whose question nobody is asked: an unanswered form is a closed one.
pub(super) fn refusal(request: &Request, error: ErrorObject) -> Result<Box<RawValue>, ErrorObject> {
    if request.method == "elicitation/create" && error.code == code::METHOD_NOT_FOUND {
        let closed = RawValue::from_string("{\"action\":\"cancel\"}".to_owned());
        return Ok(closed.expect("valid JSON"));
    }
    Err(error)
}

/// What is said beside a call: its key, and the trace that it belongs to (SEP-414).
fn meta(info: &StepInfo) -> Vec<(&'static str, String)> {
    let trace = &info.trace_context;
    [
        (protocol::meta::IDEMPOTENCY_KEY, Some(&info.idempotency_key)),
        ("traceparent", trace.traceparent.as_ref()),
        ("tracestate", trace.tracestate.as_ref()),
        ("baggage", trace.baggage.as_ref()),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name, message::string(value?))))
    .collect()
}
