//! A call of an upstream's tool: one request after another, until there is a result.

use std::collections::BTreeMap;

use protocol::code;
use serde_json::json;
use serde_json::value::RawValue;
use worker::{Arguments, CallToolResult, Context, InputRequest, Question, Step, ToolError, Undo};

use super::asking::{Asking, abilities};
use super::config::Effects;
use super::fault::Fault;
use super::message;
use super::outcome::Outcome;
use super::tool::UpstreamTool;

/// Of the name of a question, by which it is asked in a task.
const KEY_BYTES_MAX: usize = 40;

/// One run of a tool, from the top.
pub(super) struct Call<'a> {
    pub(super) tool: &'a UpstreamTool,
    pub(super) arguments: Arguments,
    /// What an older server asked, and the answers: for the case that it is called again.
    given: Vec<(Box<RawValue>, Box<RawValue>)>,
    /// Requests so far; names steps and questions.
    round: u32,
}

impl<'a> Call<'a> {
    pub(super) fn new(tool: &'a UpstreamTool, arguments: Arguments) -> Self {
        Self {
            tool,
            arguments,
            given: Vec::new(),
            round: 0,
        }
    }

    pub(super) async fn run(mut self, context: &mut Context) -> Result<CallToolResult, ToolError> {
        let mut more = Vec::new();
        let mut answer = None;
        loop {
            let (outcome, long) = self.request(context, &more, answer.take()).await?;
            match outcome {
                Outcome::Result(result) => return self.tool.result(&result),
                Outcome::Long => match long {
                    Some(result) => return self.tool.result(&result),
                    // It is fetched again, and what it once answered to is asked for again.
                    None if self.tool.effects != Effects::Once => {}
                    None => {
                        let text = "the result is lost: it was too long for the journal, and the \
                                    worker was lost before it was written";
                        let data = json!({ "reason": code::reason::JOURNAL_FULL });
                        return Err(ToolError::failed_with(code::INTERNAL_ERROR, text, data));
                    }
                },
                Outcome::Failed(error) => return Err(self.tool.fault(Fault::Rpc(error))),
                Outcome::Gone(why) => return Err(self.tool.fault(Fault::Garbage(why))),
                Outcome::Needs { requests, state } => {
                    let responses = self.needs(context, &requests).await?;
                    more.clear();
                    if let Some(responses) = responses {
                        more.push(("inputResponses".to_owned(), responses));
                    }
                    if let Some(state) = state {
                        more.push(("requestState".to_owned(), message::string(&state)));
                    }
                }
                Outcome::Asks { request, held } => {
                    let response = self.asks(context, &request).await?;
                    if held {
                        answer = Some(response);
                    } else {
                        self.given.push((request, response));
                    }
                }
                Outcome::Task {
                    id,
                    poll_ms,
                    legacy,
                } => {
                    let followed = self.follow(context, &id, poll_ms, legacy).await?;
                    if let Some(result) = followed {
                        return Ok(result);
                    }
                    // Its server has forgotten it: once more, from the beginning.
                    more.clear();
                }
            }
        }
    }

    /// One request in one step; at a replay what came of it.
    async fn request(
        &mut self,
        context: &mut Context,
        more: &[(String, String)],
        answer: Option<Box<RawValue>>,
    ) -> Result<(Outcome, Option<Box<RawValue>>), ToolError> {
        self.round += 1;
        let key = self.key("call");
        let tool = self.tool;
        if tool.source.link_now().is_none() {
            // Outside of the step, which is in doubt if the worker is lost in it. Without a
            // connection a step that is replayed goes on, and any other says so.
            let stop = context.cancelled();
            tokio::select! {
                _ = tool.source.link() => {}
                () = stop.cancelled() => {}
            }
        }
        let how = self.asking(context, tool.effects == Effects::Once);
        let bytes_max = context.output_bytes_max();
        let arguments = self.arguments.as_json();
        let arguments = if arguments.is_empty() {
            b"{}"
        } else {
            arguments
        };
        let arguments = String::from_utf8_lossy(arguments).into_owned();
        let mut step = Step::new(&key).undo(Undo::new(json!({})).idempotent());
        if tool.effects != Effects::Once {
            step = step.idempotent();
        }
        let mut long = None;
        let put = &mut long;
        let outcome = context
            .step(step, |info| async move {
                let ended = match answer {
                    Some(answer) => how.go_on(tool, answer).await,
                    None => how.place(tool, &arguments, more, info).await,
                };
                let (outcome, rest) = ended?.split(bytes_max);
                *put = rest;
                Ok(outcome)
            })
            .await?;
        Ok((outcome, long))
    }

    pub(super) fn asking(&self, context: &Context, hold: bool) -> Asking {
        Asking {
            effects: self.tool.effects,
            stop: context.cancelled(),
            reporter: context.reporter(),
            task: context.task_id(),
            given: self.given.clone(),
            can: abilities(context),
            hold,
        }
    }

    /// `call`, `call.2`, `call.3`…
    pub(super) fn key(&self, what: &str) -> String {
        match self.round {
            1 => what.to_owned(),
            round => format!("{what}.{round}"),
        }
    }

    pub(super) fn next_round(&mut self) {
        self.round += 1;
    }

    /// Asks what a server of 2026-07-28 needs; the answers as JSON.
    pub(super) async fn needs(
        &self,
        context: &mut Context,
        requests: &BTreeMap<String, Box<RawValue>>,
    ) -> Result<Option<String>, ToolError> {
        if requests.is_empty() {
            return Ok(None);
        }
        let mut questions = Vec::new();
        for (key, request) in requests {
            questions.push(self.question(&self.question_key(key), request)?);
        }
        let answers = context.ask(questions).await?;
        let mut members = Vec::new();
        for key in requests.keys() {
            let response: Box<RawValue> = answers.result(&self.question_key(key))?;
            members.push((key.as_str(), response));
        }
        let members = members.iter().map(|(key, response)| (*key, response.get()));
        Ok(Some(message::object(members)))
    }

    /// Asks what an older server asks in the middle of a call.
    pub(super) async fn asks(
        &self,
        context: &mut Context,
        request: &RawValue,
    ) -> Result<Box<RawValue>, ToolError> {
        let key = self.question_key("question");
        let answers = context.ask(vec![self.question(&key, request)?]).await?;
        answers.result(&key)
    }

    /// A key is used once in a task's life, by a server in each round.
    fn question_key(&self, key: &str) -> String {
        // Longer ones than any journal takes are cut; their round keeps them apart from others'.
        let key = &key[..key.floor_char_boundary(KEY_BYTES_MAX)];
        match self.round {
            1 => key.to_owned(),
            round => format!("{key}.{round}"),
        }
    }

    fn question(&self, key: &str, request: &RawValue) -> Result<Question, ToolError> {
        let request: InputRequest = serde_json::from_str(request.get()).map_err(|error| {
            self.tool
                .fault(Fault::Garbage(format!("no question: {error}")))
        })?;
        Ok(Question::new(key, request))
    }
}
