//! One upstream: kept connected, listed and offered for as long as the worker runs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use worker::{Tool, ToolError, ToolSet, ToolSpec};

use super::config::UpstreamConfig;
use super::fault::Fault;
use super::floor::Floor;
use super::held::Holding;
use super::http::Http;
use super::link::{Link, Transport};
use super::list::list;
use super::tool::UpstreamTool;
use super::{listen, pipe};

/// Between two tries to reach it: doubles from the first to the second.
const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
/// Changes of its list that come together are read together.
const SETTLE: Duration = Duration::from_millis(100);
/// Between two looks at the calls that are held.
const LOOK: Duration = Duration::from_secs(1);

/// Applies the policies that the operator has set to a tool, before it is offered.
pub type Adjust = Arc<dyn Fn(&str, &mut ToolSpec) + Send + Sync>;

/// One upstream server.
pub(super) struct Source {
    pub(super) config: UpstreamConfig,
    pub(super) adjust: Adjust,
    pub(super) holding: Holding,
    http: Option<Arc<Http>>,
    /// The program that supervises its process; the worker's own if not said.
    pub(super) supervisor: Option<std::path::PathBuf>,
    link: watch::Sender<Option<Arc<Link>>>,
    again: Notify,
}

impl Source {
    pub(super) fn new(config: UpstreamConfig, adjust: Adjust) -> Result<Self, String> {
        let http = match &config.url {
            Some(_) => Some(Arc::new(Http::new(&config, config.timeout)?)),
            None => None,
        };
        Ok(Self {
            config,
            adjust,
            holding: Holding::default(),
            http,
            supervisor: None,
            link: watch::Sender::new(None),
            again: Notify::new(),
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.config.name
    }

    /// The connection, waited for if there is none just now.
    pub(super) async fn link(&self) -> Result<Arc<Link>, ToolError> {
        let mut links = self.link.subscribe();
        let live = links.wait_for(|link| {
            link.as_ref()
                .is_some_and(|link| !link.broken.is_cancelled())
        });
        match tokio::time::timeout(self.config.timeout, live).await {
            Ok(Ok(link)) => Ok(link.clone().expect("waited for one")),
            Ok(Err(_)) | Err(_) => Err(ToolError::retryable(format!(
                "upstream \"{}\" cannot be reached",
                self.name()
            ))),
        }
    }

    /// Reads its list of tools at once.
    pub(super) fn look_again(&self) {
        self.again.notify_one();
    }

    /// Keeps connected and offered until `shutdown`. `tell` hears how it goes, whenever that
    /// changes.
    pub(super) async fn run(
        self: &Arc<Self>,
        tools: &ToolSet,
        shutdown: &CancellationToken,
        tell: &(dyn Fn(&str, Result<(), String>) + Send + Sync),
    ) {
        let mut offered = Offered::default();
        let mut wait = RETRY.0;
        while !shutdown.is_cancelled() {
            let began = std::time::Instant::now();
            let why = tokio::select! {
                why = self.connected(tools, &mut offered, tell) => why,
                () = shutdown.cancelled() => break,
            };
            let link = self.link.send_replace(None);
            if let Some(link) = link {
                link.broken.cancel();
            }
            tracing::warn!(
                upstream.name = self.name(),
                error = why,
                "an upstream cannot be used"
            );
            tell(self.name(), Err(why));
            if began.elapsed() > RETRY.1 {
                wait = RETRY.0;
            }
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = shutdown.cancelled() => break,
            }
            wait = (wait * 2).min(RETRY.1);
        }
        if let Some(link) = self.link.send_replace(None) {
            link.leave().await;
        }
    }

    /// From greeting to the end of a connection; says why it ended.
    async fn connected(
        self: &Arc<Self>,
        tools: &ToolSet,
        offered: &mut Offered,
        tell: &(dyn Fn(&str, Result<(), String>) + Send + Sync),
    ) -> String {
        let floor = Floor::default();
        match &self.http {
            Some(http) => {
                let transport = Transport::Http(Arc::clone(http));
                self.serve(transport, self.config.protocol, floor, tools, offered, tell)
                    .await
            }
            None => self.with_process(tools, offered, tell).await,
        }
    }

    /// One process after another, until one ends that could be greeted.
    async fn with_process(
        self: &Arc<Self>,
        tools: &ToolSet,
        offered: &mut Offered,
        tell: &(dyn Fn(&str, Result<(), String>) + Send + Sync),
    ) -> String {
        use super::config::Protocol;
        let mut protocol = self.config.protocol;
        loop {
            let floor = Floor::default();
            let mut command = pipe::command(&self.config);
            if let Some(supervisor) = &self.supervisor {
                command = command.supervisor(supervisor);
            }
            let (command, talk) = command.talk();
            let transport = Transport::Pipe(talk.to.clone());
            let stop = CancellationToken::new();
            let _stop = stop.clone().drop_guard();
            let bytes_max = self.config.message_bytes_max;
            let running = pipe::run(command, talk, floor.clone(), bytes_max, stop.clone());
            let mut greeted = false;
            let why = {
                let tell = |name: &str, how: Result<(), String>| {
                    tell(name, how);
                };
                let serving = self.serve(transport, protocol, floor, tools, offered, &tell);
                tokio::pin!(running);
                tokio::select! {
                    why = serving => {
                        stop.cancel();
                        running.await;
                        why
                    }
                    why = &mut running => why,
                }
            };
            greeted |= self.link.borrow().is_some();
            if greeted || protocol != Protocol::Auto {
                return why;
            }
            // Some older ones end at a greeting that they do not know.
            protocol = Protocol::Legacy;
        }
    }

    /// Greets, and serves for as long as the connection is of use.
    async fn serve(
        self: &Arc<Self>,
        transport: Transport,
        protocol: super::config::Protocol,
        floor: Floor,
        tools: &ToolSet,
        offered: &mut Offered,
        tell: &(dyn Fn(&str, Result<(), String>) + Send + Sync),
    ) -> String {
        let greeting = Link::greet(transport, floor, protocol, self.config.timeout);
        let link = match greeting.await {
            Ok(link) => link,
            Err(fault) => return fault.text(),
        };
        self.link.send_replace(Some(Arc::clone(&link)));
        let listing = self.list_again_and_again(&link, tools, offered, tell);
        tokio::select! {
            why = listing => why,
            () = link.broken.cancelled() => Fault::Expired.text(),
            () = listen::listen(&link) => unreachable!("listening never ends"),
            () = self.let_go() => unreachable!("letting go never ends"),
        }
    }

    async fn list_again_and_again(
        self: &Arc<Self>,
        link: &Arc<Link>,
        tools: &ToolSet,
        offered: &mut Offered,
        tell: &(dyn Fn(&str, Result<(), String>) + Send + Sync),
    ) -> String {
        loop {
            match list(link, self.config.timeout).await {
                Ok(listed) => {
                    let problems = offered.replace(self, listed, tools);
                    for problem in &problems {
                        tracing::warn!(
                            upstream.name = self.name(),
                            problem,
                            "a tool of an upstream is left out"
                        );
                    }
                    tracing::debug!(
                        upstream.name = self.name(),
                        revision = link.version(),
                        tools = offered.specs.len(),
                        "tools of an upstream listed"
                    );
                    tell(self.name(), Ok(()));
                }
                // What is known is offered on: calls say what is wrong.
                Err(fault) => return fault.text(),
            }
            tokio::select! {
                () = tokio::time::sleep(self.config.refresh) => {}
                () = self.again.notified() => {}
                () = link.floor.tools_changed.notified() => tokio::time::sleep(SETTLE).await,
            }
        }
    }

    /// Gives up calls that have been held for too long.
    async fn let_go(&self) {
        loop {
            tokio::time::sleep(LOOK).await;
            for held in self.holding.overdue(self.config.hold) {
                held.exchange.cancel("nobody has answered").await;
            }
        }
    }
}

/// The tools that are offered just now, by their names here.
#[derive(Default)]
struct Offered {
    specs: BTreeMap<String, String>,
}

impl Offered {
    /// Offers what is listed, and nothing else; says what cannot be.
    fn replace(
        &mut self,
        source: &Arc<Source>,
        listed: super::list::Listed,
        tools: &ToolSet,
    ) -> Vec<String> {
        let mut problems = listed.problems;
        let mut now = BTreeSet::new();
        for definition in listed.tools {
            let own = source.config.tools.get(&definition.name);
            if own.is_some_and(|tool| tool.hide) {
                continue;
            }
            let tool = match UpstreamTool::new(source, definition) {
                Ok(tool) => tool,
                Err(problem) => {
                    problems.push(problem);
                    continue;
                }
            };
            let spec = tool.spec();
            let name = spec.name().to_owned();
            if tools.contains(&name) && !self.specs.contains_key(&name) {
                problems.push(format!("tool {name}: another source has one of this name"));
                continue;
            }
            if !now.insert(name.clone()) {
                problems.push(format!("tool {name} is listed twice"));
                continue;
            }
            let text = serde_json::to_string(&spec).unwrap_or_default();
            if self.specs.get(&name) == Some(&text) {
                continue;
            }
            match tools.insert(Arc::new(tool)) {
                Ok(()) => drop(self.specs.insert(name, text)),
                Err(problem) => {
                    now.remove(&name);
                    problems.push(problem.to_string());
                }
            }
        }
        let gone: Vec<String> = self
            .specs
            .keys()
            .filter(|name| !now.contains(*name))
            .cloned()
            .collect();
        for name in gone {
            tools.remove(&name);
            self.specs.remove(&name);
        }
        problems
    }
}
