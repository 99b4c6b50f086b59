//! Resources, prompts and completions of an upstream: asked through the worker's connection to it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use protocol::code;
use protocol::completion::{CompleteParams, Completion, Reference};
use serde_json::value::RawValue;
use worker::{
    Context, InputRequest, PromptArguments, PromptResult, Provider, ProviderSpec, Question,
    ReadResult, Recalled, Step, ToolError,
};

use super::asking::{abilities, abilities_json, refusal, stopped};
use super::exchange::Event;
use super::fault::Fault;
use super::link::{About, nobody_answers};
use super::links::Links;
use super::message;
use super::outcome::Outcome;
use super::source::Source;

/// What servers before 2026-07-28 answer for a resource that they do not have.
const LEGACY_NOT_FOUND: i64 = -32002;

/// What is asked: the method, members of its params as JSON, and what `Mcp-Name` mirrors.
struct Asked<'a> {
    method: &'a str,
    members: Vec<(&'a str, String)>,
    name: Option<&'a str>,
}

/// What an upstream serves beside tools.
pub(super) struct UpstreamProvider {
    source: Arc<Source>,
    spec: ProviderSpec,
    /// Prompts as the server calls them, by their names here.
    prompts: BTreeMap<String, String>,
}

impl UpstreamProvider {
    pub(super) fn new(
        source: Arc<Source>,
        spec: ProviderSpec,
        prompts: BTreeMap<String, String>,
    ) -> Self {
        Self {
            source,
            spec,
            prompts,
        }
    }

    fn links(&self) -> Links<'_> {
        Links(&self.source.config.uri_prefix)
    }

    /// Asks, and asks the caller what the server needs to know first.
    async fn ask(
        &self,
        context: &mut Context,
        asked: &Asked<'_>,
    ) -> Result<Box<RawValue>, ToolError> {
        // Only what the server needs is in the journal: what it answers may be long, and is read
        // again if a worker is lost.
        let mut round = Round::recalled(context.recall()?)?;
        loop {
            let more = match &round.needs {
                None => Vec::new(),
                Some(_) => round.answered(context).await?,
            };
            match self.once(context, asked, &more).await? {
                Outcome::Result(result) => return Ok(result),
                Outcome::Needs { requests, state } => {
                    let needs = Outcome::Needs { requests, state };
                    round.next(context, needs).await?;
                }
                Outcome::Task { .. }
                | Outcome::Asks { .. }
                | Outcome::Failed(_)
                | Outcome::Gone(_)
                | Outcome::Long => {
                    let what = Fault::Garbage(format!("a task for {}", asked.method));
                    return Err(self.fault(what));
                }
            }
        }
    }

    /// One request, until its answer.
    async fn once(
        &self,
        context: &Context,
        asked: &Asked<'_>,
        more: &[(String, String)],
    ) -> Result<Outcome, ToolError> {
        let stop = context.cancelled();
        let asking = async {
            let link = self.source.link().await?;
            let members = asked.members.iter().map(|(n, v)| (*n, v.as_str()));
            let more = more.iter().map(|(n, v)| (n.as_str(), v.as_str()));
            let members: Vec<_> = members.chain(more).collect();
            let about = About {
                abilities: Some(abilities_json(&abilities(context), false)),
                name: asked.name,
                progress: true,
                ..About::default()
            };
            let answer = async {
                let mut exchange = link.begin(asked.method, &members, about).await?;
                loop {
                    match exchange.next().await? {
                        Event::Progress(progress) => context.reporter().report(progress).await,
                        Event::Ask(request) => {
                            let refused = refusal(&request, nobody_answers());
                            exchange.answer(&request.id, &refused).await?;
                        }
                        Event::Done(result) => return Outcome::read(result),
                    }
                }
            };
            let answered = answer.await;
            self.source.asked(Some(answered.as_ref().map(drop)));
            answered.map_err(|fault| self.fault(fault))
        };
        tokio::select! {
            outcome = asking => outcome,
            () = stop.cancelled() => {
                self.source.asked(None);
                Err(stopped(&stop).await)
            }
        }
    }

    /// Reading may be repeated, so whatever may pass is tried again.
    fn fault(&self, fault: Fault) -> ToolError {
        match fault {
            Fault::Unknown(_) => {
                let (upstream, text) = (self.source.name(), fault.text());
                ToolError::retryable(format!("upstream \"{upstream}\" {text}"))
            }
            fault => fault.into_tool_error(self.source.name(), true),
        }
    }

    fn garbage(&self, why: String) -> ToolError {
        self.fault(Fault::Garbage(why))
    }
}

#[worker::async_trait]
impl Provider for UpstreamProvider {
    fn spec(&self) -> ProviderSpec {
        self.spec.clone()
    }

    async fn read(&self, context: &mut Context, uri: &str) -> Result<ReadResult, ToolError> {
        let there = self.links().there(uri);
        let asked = Asked {
            method: "resources/read",
            members: vec![("uri", message::string(there))],
            name: Some(there),
        };
        let read = self
            .ask(context, &asked)
            .await
            .map_err(|error| match error.as_failed() {
                Some(failed) if failed.code == LEGACY_NOT_FOUND => {
                    ToolError::resource_not_found(uri)
                }
                _ => error,
            })?;
        let read = self.links().of_resource(&read).unwrap_or(read);
        ReadResult::passed_on(read.get().as_bytes()).map_err(|why| self.garbage(why))
    }

    async fn prompt(
        &self,
        context: &mut Context,
        name: &str,
        arguments: PromptArguments,
    ) -> Result<PromptResult, ToolError> {
        let there = self.prompts.get(name).map_or(name, String::as_str);
        let arguments = serde_json::to_string(&arguments).unwrap_or_default();
        let asked = Asked {
            method: "prompts/get",
            members: vec![("name", message::string(there)), ("arguments", arguments)],
            name: Some(there),
        };
        let got = self.ask(context, &asked).await?;
        let got = self.links().of_prompt(&got).unwrap_or(got);
        PromptResult::passed_on(got.get().as_bytes()).map_err(|why| self.garbage(why))
    }

    async fn complete(
        &self,
        context: &mut Context,
        mut asked: CompleteParams,
    ) -> Result<Completion, ToolError> {
        match &mut asked.reference {
            Reference::Prompt(name) => {
                if let Some(there) = self.prompts.get(name) {
                    name.clone_from(there);
                }
            }
            Reference::Resource(uri) => *uri = self.links().there(uri).to_owned(),
        }
        let params = asked.to_params();
        let members = params.as_object().into_iter().flatten();
        let members = members.map(|(name, value)| (name.as_str(), value.to_string()));
        let asked = Asked {
            method: "completion/complete",
            members: members.collect(),
            name: None,
        };
        let completed = self.ask(context, &asked).await?;
        Completion::passed_on(completed.get().as_bytes()).map_err(|why| self.garbage(why))
    }

    fn wanted(&self, uris: &BTreeSet<String>) {
        let there = uris.iter().map(|uri| self.links().there(uri).to_owned());
        self.source.wanted.send_replace(there.collect());
    }
}

/// Rounds of questions (MCP 2026-07-28 §Multi Round-Trip Requests): what the server needs is
/// journaled, so that the same questions are asked and answered however often this runs.
struct Round {
    count: usize,
    needs: Option<Outcome>,
    answers: BTreeMap<String, Box<RawValue>>,
}

impl Round {
    fn recalled(recalled: Vec<Recalled>) -> Result<Self, ToolError> {
        let mut round = Self {
            count: 0,
            needs: None,
            answers: BTreeMap::new(),
        };
        for item in recalled {
            match item {
                Recalled::Step { output, .. } => {
                    round.count += 1;
                    round.needs = serde_json::from_value(output).ok();
                    round.answers.clear();
                }
                Recalled::Answer { key, response } => {
                    let text = RawValue::from_string(response.to_string());
                    round.answers.extend(text.ok().map(|text| (key, text)));
                }
                _ => {}
            }
        }
        Ok(round)
    }

    async fn next(&mut self, context: &mut Context, needs: Outcome) -> Result<(), ToolError> {
        self.count += 1;
        let key = format!("needs.{}", self.count);
        let needs = context.step(Step::new(&key).idempotent(), |_| async move { Ok(needs) });
        self.needs = Some(needs.await?);
        self.answers.clear();
        Ok(())
    }

    /// The caller's answers, as members of the next request.
    async fn answered(
        &mut self,
        context: &mut Context,
    ) -> Result<Vec<(String, String)>, ToolError> {
        let Some(Outcome::Needs { requests, state }) = &self.needs else {
            return Ok(Vec::new());
        };
        let here = |key: &str| match self.count {
            0 | 1 => key.to_owned(),
            round => format!("{key}.{round}"),
        };
        let mut questions = Vec::new();
        for (key, request) in requests {
            if self.answers.contains_key(&here(key)) {
                continue;
            }
            let request: InputRequest = serde_json::from_str(request.get()).map_err(|error| {
                let text = format!("an upstream asked what is no question: {error}");
                ToolError::failed(code::INTERNAL_ERROR, text)
            })?;
            questions.push(Question::new(here(key), request));
        }
        if !questions.is_empty() {
            let keys: Vec<String> = questions.iter().map(|q| q.key().to_owned()).collect();
            let answers = context.ask_first(questions).await?;
            for key in keys {
                let answer = answers.result(&key)?;
                self.answers.insert(key, answer);
            }
        }
        let mut more = Vec::new();
        if !requests.is_empty() {
            let responses = requests.keys().filter_map(|key| {
                let answer = self.answers.get(&here(key))?;
                Some((key.as_str(), answer.get()))
            });
            more.push(("inputResponses".to_owned(), message::object(responses)));
        }
        if let Some(state) = state {
            more.push(("requestState".to_owned(), message::string(state)));
        }
        Ok(more)
    }
}
