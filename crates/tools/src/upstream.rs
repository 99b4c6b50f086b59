//! Tools of other MCP servers: whoever runs a server today puts us in front of it, and each of its
//! slow calls becomes a durable task.
//!
//! Spoken are Streamable HTTP and stdio, in the revision 2026-07-28 and in the older ones that
//! begin with `initialize`. JSON goes through as text: what we know nothing of – members, kinds of
//! content, digits – is not lost on the way. That is why this is no use of `rmcp`, whose types
//! know what they know, and whose client shares one handler among all calls, so that a question
//! of a server could not be told to belong to one of them.

mod call;
mod config;
mod exchange;
mod fault;
mod floor;
mod follow;
mod held;
mod http;
mod link;
mod list;
mod listen;
mod message;
mod outcome;
mod pipe;
mod source;
mod sse;
mod tool;

use std::path::PathBuf;
use std::sync::Arc;

use futures::future::join_all;
use tokio_util::sync::CancellationToken;
use worker::ToolSet;

pub use config::{Effects, Protocol, UpstreamConfig, UpstreamTool as ToolConfig};
pub use source::Adjust;

use source::Source;

/// The upstream servers of one worker.
pub struct Upstreams {
    sources: Vec<Arc<Source>>,
}

impl Upstreams {
    /// Servers as they are set; `adjust` gets each tool of theirs before it is offered, with the
    /// server's name. Nothing is connected before [`Upstreams::run`].
    ///
    /// # Errors
    /// In words, naming server and key, when the settings cannot be used.
    pub fn new(configs: Vec<UpstreamConfig>, adjust: Adjust) -> Result<Self, String> {
        let mut sources = Vec::new();
        for config in configs {
            let name = config.name.clone();
            let problem = |problem: &str| format!("upstream \"{name}\": {problem}");
            if let Some(first) = config.validate().first() {
                return Err(problem(first));
            }
            let source = Source::new(config, Arc::clone(&adjust)).map_err(|p| problem(&p))?;
            sources.push(Arc::new(source));
        }
        Ok(Self { sources })
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// Their names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.sources.iter().map(|source| source.name())
    }

    /// The program that supervises their processes: one whose `main` calls
    /// [`worker::process::supervise_if_asked`]. Without this word it is the worker's own.
    #[must_use]
    pub fn supervised_by(mut self, program: impl Into<PathBuf>) -> Self {
        let program = program.into();
        for source in &mut self.sources {
            // Nobody else has them before they run.
            if let Some(source) = Arc::get_mut(source) {
                source.supervisor = Some(program.clone());
            }
        }
        self
    }

    /// Keeps all of them connected, and offers their tools in `tools`, until `shutdown`. One that
    /// is down disturbs neither the others nor what is offered of it already. `tell` hears of each
    /// how it goes.
    pub async fn run(
        &self,
        tools: &ToolSet,
        shutdown: &CancellationToken,
        tell: impl Fn(&str, Result<(), String>) + Send + Sync,
    ) {
        let tell: &(dyn Fn(&str, Result<(), String>) + Send + Sync) = &tell;
        join_all(
            self.sources
                .iter()
                .map(|source| source.run(tools, shutdown, tell)),
        )
        .await;
    }
}
