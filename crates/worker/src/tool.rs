//! What a tool is to the worker, and the set of tools it serves.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use async_trait::async_trait;
use protocol::tools::CallToolResult;
use serde::de::DeserializeOwned;
use store::{ToolPolicy, ToolSpec};
use tokio::sync::watch;

use crate::context::Context;
use crate::error::ToolError;
use crate::provider::Provider;
use crate::providers::Providers;
use crate::undo::Undoing;

/// Work that a client can call for.
///
/// `call` runs from the top at every attempt and every resumption: whatever reaches outside
/// goes through [`Context::step`], so that a replay does not do it twice.
#[async_trait]
pub trait Tool: Send + Sync + 'static {
    /// Name, schemas, version and policy. Asked once, when the tool joins a [`ToolSet`].
    fn spec(&self) -> ToolSpec;

    /// Does the work.
    ///
    /// # Errors
    /// An error that a model can mend is a result ([`CallToolResult::error`]). A [`ToolError`]
    /// is a JSON-RPC error (the task is `failed`) or asks for another try. Errors of the
    /// context's own methods are passed on with `?`.
    async fn call(
        &self,
        context: &mut Context,
        arguments: Arguments,
    ) -> Result<CallToolResult, ToolError>;

    /// Undoes one finished step that declared how ([`crate::Step::undo`]), because its task ends
    /// without a result. Called for the last such step first.
    ///
    /// # Errors
    /// Every error says that nothing was undone, but for [`ToolError::outcome_unknown`]. It is
    /// tried again after [`ToolError::retryable`] and the policy's `retry_codes`, or when the
    /// outcome is unknown and the undo idempotent; anything else gives it up for good.
    async fn undo(&self, undoing: &mut Undoing) -> Result<(), ToolError> {
        Err(ToolError::refused(format!(
            "step \"{}\" declared an undo, and its tool implements none",
            undoing.step()
        )))
    }
}

/// The arguments of a call: one JSON object, already checked against the tool's schema.
#[derive(Clone, Debug)]
pub struct Arguments(bytes::Bytes);

impl Arguments {
    /// From JSON text.
    #[must_use]
    pub fn new(json: bytes::Bytes) -> Self {
        Self(json)
    }

    /// The arguments as the tool's own type.
    ///
    /// # Errors
    /// `-32602` when they do not fit it: the tool's schema promises more than its type takes.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, ToolError> {
        let json: &[u8] = if self.0.is_empty() { b"{}" } else { &self.0 };
        serde_json::from_slice(json).map_err(|error| {
            ToolError::failed(
                protocol::code::INVALID_PARAMS,
                format!("arguments: {error}"),
            )
        })
    }

    /// The JSON text as it came.
    #[must_use]
    pub fn as_json(&self) -> &[u8] {
        &self.0
    }
}

/// Runs the tool from the top: a result counts only if it came through its whole journal.
pub(crate) async fn call(
    tool: &dyn Tool,
    context: &mut Context,
    arguments: Arguments,
) -> Result<CallToolResult, ToolError> {
    let result = tool.call(context, arguments).await?;
    context.finish()?;
    Ok(result)
}

/// A tool with its specification, asked once.
#[derive(Clone)]
pub(crate) struct Served {
    pub(crate) spec: Arc<ToolSpec>,
    pub(crate) tool: Arc<dyn Tool>,
}

/// The tools a worker serves, and what else it provides. May change while it runs; clones share the
/// set.
#[derive(Clone)]
pub struct ToolSet {
    tools: Arc<RwLock<BTreeMap<String, Served>>>,
    changed: watch::Sender<u64>,
    pub(crate) providers: Providers,
    /// Those whose tools are shown; none = all.
    queues: Arc<[String]>,
}

/// A tool that cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum BadTool {
    /// Its definition breaks a rule of MCP.
    #[error("{0}")]
    Definition(String),
    /// Its policy contradicts itself.
    #[error(transparent)]
    Policy(#[from] store::PolicyError),
}

impl Default for ToolSet {
    fn default() -> Self {
        Self {
            tools: Arc::default(),
            changed: watch::Sender::new(0),
            providers: Providers::default(),
            queues: Arc::default(),
        }
    }
}

impl ToolSet {
    /// An empty set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a tool, or replaces the one of its name. Published at once while a worker runs.
    ///
    /// # Errors
    /// When its definition or policy cannot work.
    pub fn insert(&self, tool: Arc<dyn Tool>) -> Result<(), BadTool> {
        let spec = tool.spec();
        spec.definition.check().map_err(BadTool::Definition)?;
        spec.policy.validate(spec.name())?;
        let name = spec.name().to_owned();
        self.write(|tools| {
            tools.insert(
                name,
                Served {
                    spec: Arc::new(spec),
                    tool,
                },
            )
        });
        Ok(())
    }

    /// Takes a tool away; it is no longer listed. Jobs of it that already run go on.
    pub fn remove(&self, name: &str) {
        self.write(|tools| tools.remove(name));
    }

    /// Whether there is a tool of this name.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.read(|tools| tools.contains_key(name))
    }

    /// The tool of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Arc<dyn Tool>> {
        self.find(name).map(|served| served.tool)
    }

    /// Whether there is no tool and no provider.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.read(BTreeMap::is_empty) && self.providers.specs().is_empty()
    }

    /// The specifications, by name.
    #[must_use]
    pub fn specs(&self) -> Vec<Arc<ToolSpec>> {
        self.read(|tools| {
            tools
                .values()
                .filter(|served| self.is_of_queue(&served.spec.policy))
                .map(|served| Arc::clone(&served.spec))
                .collect()
        })
    }

    /// The same set, seen by a worker that serves these queues only; none = all.
    pub(crate) fn of_queues(&self, queues: &[String]) -> Self {
        Self {
            queues: queues.into(),
            ..self.clone()
        }
    }

    pub(crate) fn is_of_queue(&self, policy: &ToolPolicy) -> bool {
        self.queues.is_empty() || self.queues.contains(&policy.queue)
    }

    /// Adds a provider, or replaces the one of its name. Published at once while a worker runs.
    ///
    /// # Errors
    /// When its definitions or its policy cannot work.
    pub fn insert_provider(&self, provider: Arc<dyn Provider>) -> Result<(), BadTool> {
        self.providers.insert(provider)?;
        self.changed.send_modify(|count| *count += 1);
        Ok(())
    }

    /// Takes a provider away: what it offered is no longer listed. Jobs of it that already run go
    /// on.
    pub fn remove_provider(&self, name: &str) {
        self.providers.remove(name);
        self.changed.send_modify(|count| *count += 1);
    }

    /// The provider of this name.
    #[must_use]
    pub fn provider(&self, name: &str) -> Option<Arc<dyn Provider>> {
        self.providers.get(name)
    }

    /// Whether there is a provider of this name.
    #[must_use]
    pub fn contains_provider(&self, name: &str) -> bool {
        self.providers.specs().iter().any(|spec| spec.name == name)
    }

    /// A resource has changed: whoever listens to this URI is told to read it again, on every
    /// gateway. Returns at once.
    pub fn resource_updated(&self, uri: impl Into<String>) {
        self.providers.updated(uri.into());
    }

    /// Of a tool or of a provider's jobs.
    pub(crate) fn find(&self, name: &str) -> Option<Served> {
        self.read(|tools| tools.get(name).cloned())
            .or_else(|| self.providers.find(name))
    }

    /// What jobs are run of: the tools, and what providers are asked.
    pub(crate) fn jobs(&self) -> Vec<Arc<ToolSpec>> {
        let mut specs = self.specs();
        let of_providers = self.providers.jobs().into_iter();
        specs.extend(of_providers.filter(|spec| self.is_of_queue(&spec.policy)));
        specs
    }

    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    fn read<T>(&self, look: impl FnOnce(&BTreeMap<String, Served>) -> T) -> T {
        look(&self.tools.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write<T>(&self, change: impl FnOnce(&mut BTreeMap<String, Served>) -> T) {
        change(&mut self.tools.write().unwrap_or_else(PoisonError::into_inner));
        self.changed.send_modify(|count| *count += 1);
    }
}
