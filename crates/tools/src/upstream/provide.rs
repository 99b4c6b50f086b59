//! What an upstream serves beside tools: its lists, as ours.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use protocol::template::UriTemplate;
use serde::de::DeserializeOwned;
use serde_json::json;
use worker::{
    Definition, Prompt, Provider as _, ProviderSpec, Resource, ResourceTemplate, Resources,
    ToolSet, ToolSpec,
};

use super::fault::Fault;
use super::link::Link;
use super::links::Links;
use super::list::{pages, unread};
use super::provider::UpstreamProvider;
use super::source::Source;

/// Of each list, at most; what is beyond is not listed.
const LISTED_MAX: usize = 2000;

/// What is offered just now of one upstream.
#[derive(Default)]
pub(super) struct Provided {
    /// As it was offered, to tell whether it changed.
    text: String,
}

impl Provided {
    /// Reads the lists and offers them; what cannot be is left out and told. A server that does
    /// not answer keeps what was offered of it.
    pub(super) async fn look(&mut self, source: &Arc<Source>, link: &Arc<Link>, tools: &ToolSet) {
        let mut problems = Vec::new();
        let looked = match read(source, link, &mut problems).await {
            Ok(looked) => looked,
            Err(fault) => {
                let (upstream, problem) = (source.name(), fault.text());
                tracing::warn!(upstream, problem, "resources and prompts cannot be listed");
                return;
            }
        };
        for problem in &problems {
            let upstream = source.name();
            tracing::warn!(upstream, problem, "something an upstream lists is left out");
        }
        let Some(provider) = looked else {
            self.withdraw(source, tools);
            return;
        };
        let text = serde_json::to_string(&provider.spec()).unwrap_or_default();
        if text == self.text {
            return;
        }
        match tools.insert_provider(Arc::new(provider)) {
            Ok(()) => self.text = text,
            Err(problem) => {
                let (upstream, problem) = (source.name(), problem.to_string());
                tracing::warn!(upstream, problem, "resources and prompts are not offered");
            }
        }
    }

    fn withdraw(&mut self, source: &Source, tools: &ToolSet) {
        // Also what was offered of it by settings of before.
        self.text.clear();
        let name = source.provider_name();
        if tools.contains_provider(&name) {
            tools.remove_provider(&name);
        }
    }
}

/// `None`: it serves neither resources nor prompts.
async fn read(
    source: &Arc<Source>,
    link: &Arc<Link>,
    problems: &mut Vec<String>,
) -> Result<Option<UpstreamProvider>, Fault> {
    let config = &source.config;
    let mut spec = ProviderSpec::new(source.provider_name());
    if config.resources && link.serves("/resources") {
        let mut lists = Lists::new(source, link, problems);
        let list = lists.resources().await?;
        let templates = lists.templates().await?;
        let prefixes = [config.uri_prefix.clone()];
        spec.resources = Some(Resources {
            list,
            templates,
            prefixes: prefixes.into_iter().filter(|p| !p.is_empty()).collect(),
            subscribe: link.serves("/resources/subscribe"),
        });
    }
    let mut prompts = BTreeMap::new();
    if config.prompts && link.serves("/prompts") {
        prompts = Lists::new(source, link, problems).prompts().await?;
        let listed = prompts.values().map(|(prompt, _)| prompt.clone());
        spec.prompts = Some(listed.collect());
    }
    if spec.resources.is_none() && spec.prompts.is_none() {
        return Ok(None);
    }
    spec.completes = link.serves("/completions");
    // By the rules that hold for the server's tools: who may ask, and where it is done.
    let like = Definition::new(spec.job(), &json!({ "type": "object" }));
    let mut like = ToolSpec::new(like);
    (source.adjust)(source.name(), &mut like);
    spec.policy.scopes = like.policy.scopes;
    spec.policy.queue = like.policy.queue;
    spec.policy.priority = like.policy.priority;
    let names = prompts.into_iter().map(|(here, (_, there))| (here, there));
    Ok(Some(UpstreamProvider::new(
        Arc::clone(source),
        spec,
        names.collect(),
    )))
}

struct Lists<'a> {
    source: &'a Source,
    link: &'a Arc<Link>,
    problems: &'a mut Vec<String>,
}

impl<'a> Lists<'a> {
    fn new(source: &'a Source, link: &'a Arc<Link>, problems: &'a mut Vec<String>) -> Self {
        Self {
            source,
            link,
            problems,
        }
    }

    fn links(&self) -> Links<'a> {
        Links(&self.source.config.uri_prefix)
    }

    /// Everything of a list that can be read.
    async fn items<T: DeserializeOwned>(
        &mut self,
        method: &str,
        member: &str,
    ) -> Result<Vec<T>, Fault> {
        let timeout = self.source.config.timeout;
        let read = pages(self.link, method, member, LISTED_MAX, timeout).await?;
        if read.more {
            let problem = format!("{method}: more than {LISTED_MAX}, of which the rest");
            self.problems.push(problem);
        }
        let mut items = Vec::new();
        for item in read.items {
            match serde_json::from_str(item.get()) {
                Ok(item) => items.push(item),
                Err(error) => self.problems.push(unread(member, &item, &error)),
            }
        }
        Ok(items)
    }

    async fn resources(&mut self) -> Result<Vec<Resource>, Fault> {
        let mut seen = BTreeSet::new();
        let mut list = Vec::new();
        for mut resource in self
            .items::<Resource>("resources/list", "resources")
            .await?
        {
            resource.uri = self.links().here(&resource.uri);
            resource.name = format!("{}{}", self.source.config.prefix, resource.name);
            if let Err(problem) = resource.check() {
                self.problems.push(problem);
            } else if seen.insert(resource.uri.clone()) {
                list.push(resource);
            } else {
                let problem = format!("resource {} is listed twice", resource.uri);
                self.problems.push(problem);
            }
        }
        Ok(list)
    }

    async fn templates(&mut self) -> Result<Vec<ResourceTemplate>, Fault> {
        let method = "resources/templates/list";
        let read = self.items::<ResourceTemplate>(method, "resourceTemplates");
        let read = match read.await {
            // Many that serve resources have none.
            Err(Fault::Rpc(error)) if error.code == protocol::code::METHOD_NOT_FOUND => Vec::new(),
            read => read?,
        };
        let mut list = Vec::new();
        for mut template in read {
            template.uri_template = self.links().here(&template.uri_template);
            template.name = format!("{}{}", self.source.config.prefix, template.name);
            match UriTemplate::parse(&template.uri_template) {
                Ok(_) => list.push(template),
                Err(problem) => {
                    let problem = format!("template {}: {problem}", template.uri_template);
                    self.problems.push(problem);
                }
            }
        }
        Ok(list)
    }

    /// By their names here, with those of the server.
    async fn prompts(&mut self) -> Result<BTreeMap<String, (Prompt, String)>, Fault> {
        let mut list = BTreeMap::new();
        for mut prompt in self.items::<Prompt>("prompts/list", "prompts").await? {
            let there = prompt.name.clone();
            if let Err(problem) = prompt.check() {
                self.problems.push(problem);
                continue;
            }
            prompt.name = format!("{}{there}", self.source.config.prefix);
            if let Err(problem) = prompt.check() {
                self.problems.push(problem);
                continue;
            }
            if list.contains_key(&prompt.name) {
                let problem = format!("prompt {} is listed twice", prompt.name);
                self.problems.push(problem);
                continue;
            }
            list.insert(prompt.name.clone(), (prompt, there));
        }
        Ok(list)
    }
}
