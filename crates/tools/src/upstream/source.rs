//! One upstream: kept connected, listed and offered for as long as the worker runs.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use worker::{ToolError, ToolSet, ToolSpec};

use super::config::UpstreamConfig;
use super::fault::Fault;
use super::floor::Floor;
use super::held::Holding;
use super::http::Http;
use super::link::{Link, Transport};
use super::links::Links;
use super::list::list;
use super::observer::{Observer, outcome};
use super::offers::Offers;
use super::provide::Provided;
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
    pub(super) observer: Arc<dyn Observer>,
    http: Option<Arc<Http>>,
    /// The program that supervises its process; the worker's own if not said.
    supervisor: Option<PathBuf>,
    link: watch::Sender<Option<Arc<Link>>>,
    again: Notify,
    /// Resources that somebody listens to, by their URIs at the server: no more than the worker tells of
    /// one provider.
    pub(super) wanted: watch::Sender<BTreeSet<String>>,
    /// Another one takes its place, or none does: it ends when its calls have.
    pub(super) retired: CancellationToken,
}

/// Under which name an upstream provides resources and prompts.
pub(super) fn provider_name(upstream: &str) -> String {
    let plain = |c: char| match c {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '_' | '.' | '-' => c,
        _ => '-',
    };
    upstream.chars().take(128).map(plain).collect()
}

/// What is said of a source whenever it changes.
pub(super) type Tell<'a> = &'a (dyn Fn(&str, Result<(), String>) + Send + Sync);

impl Source {
    pub(super) fn new(
        config: UpstreamConfig,
        adjust: Adjust,
        supervisor: Option<PathBuf>,
        observer: Arc<dyn Observer>,
    ) -> Result<Self, String> {
        let http = match &config.url {
            Some(_) => Some(Arc::new(Http::new(&config, config.timeout)?)),
            None => None,
        };
        Ok(Self {
            config,
            adjust,
            holding: Holding::default(),
            observer,
            http,
            supervisor,
            link: watch::Sender::new(None),
            again: Notify::new(),
            wanted: watch::Sender::new(BTreeSet::new()),
            retired: CancellationToken::new(),
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.config.name
    }

    /// Under which name it provides resources and prompts.
    pub(super) fn provider_name(&self) -> String {
        provider_name(self.name())
    }

    /// Tells who listens that a resource has changed: one of those that are wanted, or a part of
    /// one.
    pub(super) fn updated(&self, uri: &str, tools: &ToolSet) {
        let wanted = self.wanted.borrow();
        if wanted.iter().any(|wanted| uri.starts_with(wanted.as_str())) {
            tools.resource_updated(Links(&self.config.uri_prefix).here(uri));
        }
    }

    /// Counts how a request has ended; `None`: it was told to stop.
    pub(super) fn asked(&self, ended: Option<Result<(), &Fault>>) {
        let outcome = match ended {
            Some(Ok(())) => "answered",
            Some(Err(fault)) => outcome(fault),
            None => "stopped",
        };
        self.observer.asked(self.name(), outcome);
    }

    fn floor(self: &Arc<Self>, tools: &ToolSet) -> Floor {
        let (source, tools) = (Arc::clone(self), tools.clone());
        Floor::new(Arc::new(move |uri| source.updated(uri, &tools)))
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

    /// The connection, if there is one just now.
    pub(super) fn link_now(&self) -> Option<Arc<Link>> {
        let link = self.link.borrow().clone();
        link.filter(|link| !link.broken.is_cancelled())
    }

    /// Reads its list of tools at once.
    pub(super) fn look_again(&self) {
        self.again.notify_one();
    }

    /// Keeps connected and offered until `shutdown`, or until it has retired and its last call
    /// has ended.
    pub(super) async fn run(
        self: &Arc<Self>,
        tools: &ToolSet,
        offers: &Offers,
        shutdown: &CancellationToken,
        tell: Tell<'_>,
    ) {
        let mut wait = RETRY.0;
        let over = async {
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = self.unused() => {}
            }
        };
        tokio::pin!(over);
        loop {
            let began = std::time::Instant::now();
            let why = tokio::select! {
                biased;
                () = &mut over => break,
                why = self.connected(tools, offers, tell) => why,
            };
            if let Some(link) = self.link.send_replace(None) {
                link.broken.cancel();
            }
            if !self.retired.is_cancelled() {
                tell(self.name(), Err(why));
            }
            if began.elapsed() > RETRY.1 {
                wait = RETRY.0;
            }
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = &mut over => break,
            }
            wait = (wait * 2).min(RETRY.1);
        }
        let link = self.link.send_replace(None);
        if let Some(link) = link {
            link.leave().await;
        }
    }

    /// Waits until it has retired and nothing is under way.
    async fn unused(&self) {
        self.retired.cancelled().await;
        loop {
            // A call takes up its connection within an instant of being begun.
            tokio::time::sleep(LOOK).await;
            let link = self.link.borrow().clone();
            if self.holding.is_empty() && link.is_none_or(|link| link.floor.is_quiet()) {
                return;
            }
        }
    }

    /// From greeting to the end of a connection; says why it ended.
    async fn connected(
        self: &Arc<Self>,
        tools: &ToolSet,
        offers: &Offers,
        tell: Tell<'_>,
    ) -> String {
        let floor = self.floor(tools);
        match &self.http {
            Some(http) => {
                let transport = Transport::Http(Arc::clone(http));
                self.serve(transport, self.config.protocol, floor, tools, offers, tell)
                    .await
            }
            None => self.with_process(tools, offers, tell).await,
        }
    }

    /// One process after another, until one ends that could be greeted.
    async fn with_process(
        self: &Arc<Self>,
        tools: &ToolSet,
        offers: &Offers,
        tell: Tell<'_>,
    ) -> String {
        use super::config::Protocol;
        let mut protocol = self.config.protocol;
        loop {
            let floor = self.floor(tools);
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
            let why = {
                let serving = self.serve(transport, protocol, floor, tools, offers, tell);
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
            if self.link.borrow().is_some() || protocol != Protocol::Auto {
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
        offers: &Offers,
        tell: Tell<'_>,
    ) -> String {
        let greeting = Link::greet(transport, floor, protocol, self.config.timeout);
        let link = match greeting.await {
            Ok(link) => link,
            Err(fault) => return fault.text(),
        };
        self.link.send_replace(Some(Arc::clone(&link)));
        let listing = Box::pin(self.list_again_and_again(&link, tools, offers, tell));
        tokio::select! {
            why = listing => why,
            () = link.broken.cancelled() => Fault::Expired.text(),
            () = Box::pin(listen::listen(&link, self, tools)) => unreachable!("listening never ends"),
            () = self.let_go() => unreachable!("letting go never ends"),
        }
    }

    async fn list_again_and_again(
        self: &Arc<Self>,
        link: &Arc<Link>,
        tools: &ToolSet,
        offers: &Offers,
        tell: Tell<'_>,
    ) -> String {
        let mut provided = Provided::default();
        loop {
            let mut wait = self.config.refresh;
            match list(link, self.config.timeout).await {
                // Its successor says what there is.
                Ok(_) if self.retired.is_cancelled() => std::future::pending().await,
                Ok(listed) => {
                    self.observer.listed(self.name(), true);
                    let problems = offers.replace(self, listed, tools);
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
                        tools = offers.count(self.name()),
                        "tools of an upstream listed"
                    );
                    Box::pin(provided.look(self, link, tools)).await;
                    tell(self.name(), Ok(()));
                }
                // What is known is offered on: calls say what is wrong.
                Err(fault) if link.floor.is_quiet() => {
                    self.observer.listed(self.name(), false);
                    return fault.text();
                }
                // Busy with a call, perhaps, as many are that do one thing at a time. It is not
                // to be ended for that.
                Err(fault) => {
                    self.observer.listed(self.name(), false);
                    tell(self.name(), Err(fault.text()));
                    wait = wait.min(RETRY.1);
                }
            }
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.again.notified() => {}
                () = link.floor.lists_changed.notified() => tokio::time::sleep(SETTLE).await,
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
