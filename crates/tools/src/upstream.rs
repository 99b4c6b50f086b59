//! Tools of other MCP servers: whoever runs a server today puts us in front of it, and each of its
//! slow calls becomes a durable task.
//!
//! Spoken are Streamable HTTP and stdio, in the revision 2026-07-28 and in the older ones that
//! begin with `initialize`. JSON goes through as text: what we know nothing of – members, kinds of
//! content, digits – is not lost on the way. That is why this is no use of `rmcp`, whose types
//! know what they know, and whose client shares one handler among all calls, so that a question
//! of a server could not be told to belong to one of them.

mod asking;
mod call;
mod config;
mod exchange;
mod fault;
mod floor;
mod follow;
pub(crate) mod fuzzed;
mod held;
mod http;
mod link;
mod links;
mod list;
mod listen;
mod message;
mod oauth;
mod observer;
mod offers;
mod outcome;
mod pipe;
mod promise;
mod provide;
mod provider;
mod source;
mod sse;
mod tool;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use worker::ToolSet;

pub use config::{Effects, OAuth, Protocol, UpstreamConfig, UpstreamTool as ToolConfig};
pub use observer::{OUTCOMES, Observer};
pub use source::Adjust;

use offers::Offers;
use source::Source;

/// An upstream as it is wanted.
#[derive(Clone)]
pub struct Wanted {
    /// Its settings.
    pub config: UpstreamConfig,
    /// Gets each of its tools before it is offered, with the server's name: for policies.
    pub adjust: Adjust,
    /// Changes whenever `adjust` does.
    pub revision: String,
}

impl Wanted {
    /// Without policies of its own.
    #[must_use]
    pub fn plain(config: UpstreamConfig) -> Self {
        Self {
            config,
            adjust: Arc::new(|_, _| {}),
            revision: String::new(),
        }
    }
}

/// The upstream servers of one worker. May change while they run.
pub struct Upstreams {
    sources: watch::Sender<Vec<Kept>>,
    supervisor: Option<PathBuf>,
    observer: Arc<dyn Observer>,
}

#[derive(Clone)]
struct Kept {
    source: Arc<Source>,
    /// Its settings and the revision of its policies.
    settings: String,
}

impl Default for Upstreams {
    fn default() -> Self {
        Self {
            sources: watch::Sender::new(Vec::new()),
            supervisor: None,
            observer: Arc::new(observer::Nobody),
        }
    }
}

impl Upstreams {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The program that supervises their processes: one whose `main` calls
    /// [`worker::process::supervise_if_asked`]. Without this word it is the worker's own.
    #[must_use]
    pub fn supervised_by(mut self, program: impl Into<PathBuf>) -> Self {
        self.supervisor = Some(program.into());
        self
    }

    /// Who counts what they are asked.
    #[must_use]
    pub fn observed_by(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = observer;
        self
    }

    /// These are wanted from now on. One whose settings are as before is left alone; another ends
    /// when its calls have.
    ///
    /// # Errors
    /// In words, naming server and key, when settings cannot be used: then nothing changes.
    pub fn set(&self, wanted: Vec<Wanted>) -> Result<(), String> {
        let before = self.sources.borrow().clone();
        let mut now: Vec<Kept> = Vec::new();
        for Wanted {
            config,
            adjust,
            revision,
        } in wanted
        {
            let name = config.name.clone();
            let problem = |problem: &str| format!("upstream \"{name}\": {problem}");
            if let Some(first) = config.validate().first() {
                return Err(problem(first));
            }
            if now.iter().any(|kept| kept.source.name() == name) {
                return Err(problem("name: there are two of this name"));
            }
            let provider = source::provider_name(&name);
            if now
                .iter()
                .any(|kept| kept.source.provider_name() == provider)
            {
                return Err(problem(
                    "name: another differs in signs only that are not A-Z a-z 0-9 _ . -",
                ));
            }
            let text = serde_json::to_string(&config).unwrap_or_default();
            let settings = format!("{text} {revision}");
            let same = before.iter().find(|kept| kept.settings == settings);
            let source = match same {
                Some(kept) => Arc::clone(&kept.source),
                None => {
                    let (supervisor, observer) =
                        (self.supervisor.clone(), Arc::clone(&self.observer));
                    let source = Source::new(config, adjust, supervisor, observer);
                    Arc::new(source.map_err(|why| problem(&why))?)
                }
            };
            now.push(Kept { source, settings });
        }
        self.sources.send_replace(now);
        Ok(())
    }

    /// Keeps all of them connected, and offers their tools in `tools`, until `shutdown`: which
    /// comes after the worker's last job, for calls end with their connections. One that is down
    /// disturbs neither the others nor what is offered of it already. `tell` hears of each how it
    /// goes when that changes, and `None` when it is no upstream any more.
    pub async fn run(
        &self,
        tools: &ToolSet,
        shutdown: &CancellationToken,
        tell: impl Fn(&str, Option<Result<(), String>>) + Send + Sync,
    ) {
        let mut changes = self.sources.subscribe();
        let offers = Offers::default();
        let last: Mutex<BTreeMap<String, Result<(), String>>> = Mutex::default();
        let said = |name: &str, how: Result<(), String>| {
            let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
            if last.insert(name.to_owned(), how.clone()) != Some(how.clone()) {
                tell(name, Some(how));
            }
        };
        let mut running = FuturesUnordered::new();
        let mut before: Vec<Kept> = Vec::new();
        loop {
            let now = changes.borrow_and_update().clone();
            let has = |all: &[Kept], one: &Kept| {
                all.iter()
                    .any(|kept| Arc::ptr_eq(&kept.source, &one.source))
            };
            for old in before.iter().filter(|old| !has(&now, old)) {
                old.source.retired.cancel();
                let name = old.source.name();
                if now.iter().any(|kept| kept.source.name() == name) {
                    offers.renew(name);
                } else {
                    offers.withdraw(name, tools);
                    tools.remove_provider(&old.source.provider_name());
                    last.lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .remove(name);
                    tell(name, None);
                }
            }
            for new in now.iter().filter(|new| !has(&before, new)) {
                let source = Arc::clone(&new.source);
                let (offers, said) = (&offers, &said);
                running.push(async move { source.run(tools, offers, shutdown, said).await });
            }
            before = now;
            loop {
                tokio::select! {
                    changed = changes.changed() => match changed {
                        Ok(()) => break,
                        Err(_) => unreachable!("the sender is ours"),
                    },
                    Some(()) = running.next() => {}
                    () = shutdown.cancelled() => {
                        while running.next().await.is_some() {}
                        return;
                    }
                }
            }
        }
    }
}
