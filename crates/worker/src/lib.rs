//! Runs attempts, and is the API for whoever writes a tool.
//!
//! A tool is a [`ToolSpec`] (name, schemas, [`ToolPolicy`]) and an async function. Its call becomes a
//! durable task: a lost worker, a deployment or a question that waits for a day does not end it. The
//! price is one rule:
//!
//! **The function runs from the top, more than once**, after a lost worker, a drain, and every
//! question. Whatever is visible outside goes through [`Context::step`], whose output is journaled
//! and returned at the next run; what steers the work depends on arguments, outputs and answers
//! only.
//!
//! | for | there is |
//! |---|---|
//! | acts, repeated or not, undone or not | [`Step`], [`Undo`], [`Tool::undo`] |
//! | questions to the person or model behind the client | [`Context::elicit`], [`Context::ask`], [`Context::ask_first`], [`Question`] |
//! | how the work goes, and the wish that it stop | [`Context::progress`], [`Reporter`], [`Context::cancelled`], [`pause`] |
//! | results and errors | [`CallToolResult`], [`ToolError`] |
//! | external programs that end with their task | [`process::Command`] |
//! | services that answer later | [`Callback`], [`Context::callback`] |
//! | resources, prompts, completions | [`Provider`] |
//! | tests without servers, by a fake clock | [`testkit::Kit`] |
//! | a worker binary of one's own | [`Worker`], [`ToolSet`]; `docs/examples/rust-worker` is one |
//!
//! ```
//! # use mcp_tasks_worker as worker;
//! use serde::Deserialize;
//! use serde_json::json;
//! use worker::{Arguments, CallToolResult, Context, Definition, Step, Tool, ToolError, ToolSpec};
//!
//! struct Deploy;
//!
//! #[derive(Deserialize)]
//! struct Wanted {
//!     service: String,
//! }
//!
//! #[derive(Deserialize)]
//! struct Approval {
//!     go: bool,
//! }
//!
//! #[worker::async_trait]
//! impl Tool for Deploy {
//!     fn spec(&self) -> ToolSpec {
//!         let schema = json!({
//!             "type": "object",
//!             "properties": { "service": { "type": "string" } },
//!             "required": ["service"]
//!         });
//!         ToolSpec::new(Definition::new("deploy", &schema).with_description("Deploys a service."))
//!     }
//!
//!     async fn call(
//!         &self,
//!         context: &mut Context,
//!         arguments: Arguments,
//!     ) -> Result<CallToolResult, ToolError> {
//!         let Wanted { service } = arguments.parse()?;
//!         context.progress(format!("building {service}")).await;
//!         // Journaled: a replay gets this image and builds nothing.
//!         let image: String = context
//!             .step(Step::new("build").idempotent(), |info| async move {
//!                 Ok(format!("{service}@{}", info.idempotency_key))
//!             })
//!             .await?;
//!         // Ends the job; it starts again from the top when somebody has answered.
//!         let schema = json!({ "type": "object", "properties": { "go": { "type": "boolean" } } });
//!         let approval = context.elicit::<Approval>("approve", "Deploy?", schema).await?;
//!         if !approval.accepted().is_some_and(|approval| approval.go) {
//!             return Ok(CallToolResult::text("not deployed"));
//!         }
//!         context.step(Step::new("deploy"), |_| async move { Ok(()) }).await?;
//!         Ok(CallToolResult::text(format!("deployed {image}")))
//!     }
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! // No servers needed to test it.
//! let run = worker::testkit::Kit::new(Deploy)
//!     .arguments(json!({ "service": "web" }))
//!     .answer("approve", json!({ "action": "accept", "content": { "go": true } }))
//!     .run()
//!     .await;
//! assert!(run.result().unwrap().content[0].as_text().unwrap().starts_with("deployed web@"));
//! assert_eq!(run.acts(), ["build", "deploy"]);
//! # });
//! ```
//!
//! Architecture invariant: this crate never serves a request, and never holds a connection or a
//! transaction while a tool runs.

mod attempt;
mod backend;
mod callbacks;
mod compensate;
pub mod config;
mod context;
mod drive;
mod error;
mod lease;
mod metrics;
pub mod process;
mod provider;
mod providers;
mod publish;
mod pull;
mod question;
mod replay;
mod seen;
mod settle;
mod short;
mod step;
mod store_backend;
pub mod testkit;
mod threads;
mod tool;
mod trace;
mod turn;
mod undo;

use std::sync::Arc;
use std::time::Duration;

pub use async_trait::async_trait;
pub use callbacks::Callbacks;
pub use config::Config;
pub use context::{Address, Callback, Context, Doubt, Recalled, Reporter, pause};
pub use error::ToolError;
pub use protocol::callback;
pub use protocol::completion::{CompleteParams, Completion, Reference};
pub use protocol::discover::CacheScope;
pub use protocol::input::{InputKind, InputRequest};
pub use protocol::progress::Progress;
pub use protocol::prompts::{Prompt, PromptArgument, PromptMessage, PromptResult};
pub use protocol::resources::{ReadResult, Resource, ResourceContents, ResourceTemplate};
pub use protocol::template::UriTemplate;
pub use protocol::tools::{CallToolResult, Content, Tool as Definition, ToolAnnotations};
pub use provider::{PromptArguments, Provider};
pub use question::{Answers, Elicited, Question};
pub use step::{Step, StepInfo, Undo};
pub use store::{
    Backoff, OnLost, OnPanic, Principal, ProviderSpec, Resources, TaskSupport, ToolPolicy, ToolSpec,
};
pub use telemetry::TraceContext;
pub use tokio_util::sync::CancellationToken;
pub use tool::{Arguments, BadTool, Tool, ToolSet};
pub use undo::Undoing;

use queue::Queue;
use store::Store;
use telemetry::{Health, Registry};
use uuid::Uuid;

/// A loop that has not come round for so long is stuck. A turn of any of them takes seconds at most,
/// also while Redis and Postgres hang; and a restart costs running jobs more than a late one.
const LOOP_AGE_MAX: Duration = Duration::from_secs(30);

/// A tool counts as stuck when it was seen so, once a second, this many times in a row.
const STUCK_LOOKS: u32 = 3;

/// Why a worker ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The threads that tools run on could not be made.
    #[error("the threads that tools run on could not be made")]
    Threads(#[source] std::io::Error),
    /// A tool neither awaits nor returns, so that nothing in this process can stop it. The
    /// process must exit; its other jobs were handed back.
    #[error("tool {tool} was told to stop and neither awaits nor returns: this process must exit")]
    Stuck {
        /// The tool.
        tool: String,
    },
}

/// The worker process: a set of tools, run for the tasks that call for them.
pub struct Worker {
    store: Store,
    queue: Queue,
    config: Arc<Config>,
    leases: lease::Leases,
    metrics: metrics::Metrics,
    tools: ToolSet,
    health: Health,
    callbacks: Option<Arc<Callbacks>>,
}

impl Worker {
    /// A worker that serves `tools`. Nothing runs before [`Worker::run`].
    #[must_use]
    pub fn new(
        config: Config,
        store: Store,
        queue: Queue,
        tools: ToolSet,
        registry: &Registry,
        health: Health,
    ) -> Self {
        let metrics = metrics::Metrics::prepared(registry);
        metrics
            .slots
            .set(i64::try_from(config.slots).unwrap_or(i64::MAX));
        let leases = lease::Leases::new(store.clone(), metrics.clone(), config.stop_grace);
        let tools = tools.of_queues(&config.queues);
        Self {
            store,
            queue,
            config: Arc::new(config),
            leases,
            metrics,
            tools,
            health,
            callbacks: None,
        }
    }

    /// The same, with addresses at which services can call back.
    #[must_use]
    pub fn called_back_at(mut self, callbacks: Option<Callbacks>) -> Self {
        self.callbacks = callbacks.map(Arc::new);
        self
    }

    /// Runs jobs until `shutdown`, then lets them finish until the drain deadline and hands the
    /// rest back without spending a try.
    ///
    /// # Errors
    /// [`Error::Stuck`]: the process must exit. [`Error::Threads`]: it could not start.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), Error> {
        let threads = threads::Threads::start().map_err(Error::Threads)?;
        let parts = attempt::Parts {
            store: self.store,
            queue: self.queue,
            config: self.config,
            leases: self.leases,
            metrics: self.metrics,
            observations: publish::Observations::default(),
            callbacks: self.callbacks,
            threads: threads.handle(),
        };
        // A new name at every boot: nobody takes another's orphans for his own.
        let name: Arc<str> = Uuid::new_v4().to_string().into();
        let publisher = publish::Publisher {
            name: Arc::clone(&name),
            slots: parts.config.slots,
            store: parts.store.clone(),
            queue: parts.queue.clone(),
            tools: self.tools.clone(),
            observations: parts.observations.clone(),
            interval: parts.config.publish_interval,
            published: self.health.check("tools"),
        };
        let leases = parts.leases.clone();
        // As long as a lease, where that is longer: heartbeats are then further apart.
        let lease = parts.store.config().lease;
        let beating = self.health.liveness("heartbeat", LOOP_AGE_MAX.max(lease));
        let turns = turn::Turns::new(
            (parts.store.clone(), parts.queue.clone()),
            self.tools.clone(),
            name,
            parts.config.slots,
        );
        let puller = pull::Puller {
            parts,
            tools: self.tools,
            turns: Arc::new(turns),
            alive: self.health.liveness("poll", LOOP_AGE_MAX),
        };
        let ending = shutdown.child_token();
        let pulling = puller.run(ending.clone());
        let watching = async {
            let mut looks = 0;
            loop {
                tokio::time::sleep(Duration::from_secs(1)).await;
                let Some(tool) = leases.stuck() else {
                    looks = 0;
                    continue;
                };
                // A process that was frozen and thawed is late with everything at once: its jobs
                // get the time to end before it is judged by the clock.
                looks += 1;
                if looks == STUCK_LOOKS {
                    tracing::error!(
                        tool.name = tool,
                        "a tool cannot be stopped, the worker ends"
                    );
                    ending.cancel();
                    return tool;
                }
            }
        };
        let background = async {
            tokio::join!(
                publisher.run(),
                publisher.tell_updates(),
                publisher.tell_wanted(),
                leases.run(&beating)
            )
        };
        let work = async {
            tokio::pin!(pulling, watching);
            tokio::select! {
                _jobs = &mut pulling => Ok(()),
                tool = &mut watching => {
                    let _jobs = pulling.await;
                    Err(Error::Stuck { tool })
                }
            }
        };
        let ended = tokio::select! {
            biased;
            ended = work => ended,
            _ = background => Ok(()),
        };
        publisher.leave().await;
        ended
    }
}
