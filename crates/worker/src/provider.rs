//! Resources, prompts and completions: what a worker provides beside tools.
//!
//! What is listed stands in the catalogue and is answered by gateways. Reading, getting and
//! completing run here, each as a job like a call of a tool: a caller that goes away cancels it,
//! a lost worker's is done by another, and it may ask its caller something.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use async_trait::async_trait;
use protocol::completion::{CompleteParams, Completion};
use protocol::prompts::{PromptResult, unknown_prompt};
use protocol::resources::{ReadResult, not_found};
use protocol::tools::{CallToolResult, Tool as Definition};
use serde_json::json;
use store::{Asked, ProviderSpec, ToolSpec};

use crate::context::Context;
use crate::error::{Ending, ToolError};
use crate::tool::{Arguments, Tool};

/// Arguments of a prompt, by name.
pub type PromptArguments = BTreeMap<String, String>;

/// Where resources, prompts and completions come from.
///
/// Every method may run twice for one request, when a worker was lost: reading changes nothing.
/// [`Context::ask_first`] asks the caller, who repeats the request with the answers; the method
/// then runs from the top. (Nobody can be asked while a value is completed.)
///
/// ```
/// # use mcp_tasks_worker as worker;
/// use worker::{
///     Context, Provider, ProviderSpec, ReadResult, Resource, ResourceContents, Resources, ToolError,
/// };
///
/// struct Notes;
///
/// #[worker::async_trait]
/// impl Provider for Notes {
///     fn spec(&self) -> ProviderSpec {
///         let mut spec = ProviderSpec::new("notes");
///         spec.resources = Some(Resources {
///             list: vec![Resource::new("note://today", "today").with_mime_type("text/plain")],
///             ..Resources::default()
///         });
///         spec
///     }
///
///     async fn read(&self, _: &mut Context, uri: &str) -> Result<ReadResult, ToolError> {
///         match uri {
///             "note://today" => {
///                 let text = ResourceContents::text(uri, "text/plain", "Nothing yet.");
///                 Ok(ReadResult::new(vec![text]))
///             }
///             _ => Err(ToolError::resource_not_found(uri)),
///         }
///     }
/// }
///
/// worker::ToolSet::new().insert_provider(std::sync::Arc::new(Notes)).unwrap();
/// ```
#[async_trait]
pub trait Provider: Send + Sync + 'static {
    /// Its name, what it lists, and its policy. Asked once, when it joins a
    /// [`ToolSet`](crate::ToolSet): insert it again when its lists change.
    fn spec(&self) -> ProviderSpec;

    /// The contents of a resource that it lists, or whose URI fits one of its templates or begins
    /// with one of its prefixes.
    ///
    /// # Errors
    /// [`ToolError::resource_not_found`] if there is none; any other error as for a tool.
    async fn read(&self, context: &mut Context, uri: &str) -> Result<ReadResult, ToolError> {
        let _ = context;
        Err(ToolError::resource_not_found(uri))
    }

    /// One of its prompts, filled in. The arguments that it requires are there.
    ///
    /// # Errors
    /// As for a tool.
    async fn prompt(
        &self,
        context: &mut Context,
        name: &str,
        arguments: PromptArguments,
    ) -> Result<PromptResult, ToolError> {
        let _ = (context, arguments);
        Err(ToolError(Ending::Failed(unknown_prompt(name))))
    }

    /// What the value of an argument of one of its prompts may become, or of a variable of one of
    /// its templates. Asked at every key that a person presses: be quick.
    ///
    /// # Errors
    /// As for a tool.
    async fn complete(
        &self,
        context: &mut Context,
        asked: CompleteParams,
    ) -> Result<Completion, ToolError> {
        let _ = (context, asked);
        Ok(Completion::default())
    }

    /// Which of its resources somebody listens to, over all gateways: told whenever that changes,
    /// with all of them, at most 1,000 and 1 MiB of URIs. Call [`ToolSet::resource_updated`](crate::ToolSet::resource_updated) when
    /// one of them changes. Must return at once.
    fn wanted(&self, uris: &BTreeSet<String>) {
        let _ = uris;
    }
}

impl ToolError {
    /// There is no such resource: `-32602` with the URI in `data.uri` (SEP-2164).
    #[must_use]
    pub fn resource_not_found(uri: &str) -> Self {
        Self(Ending::Failed(not_found(uri)))
    }
}

/// A provider as the tool that its jobs call.
pub(crate) struct Job {
    spec: ProviderSpec,
    provider: Arc<dyn Provider>,
}

impl Job {
    pub(crate) fn new(spec: ProviderSpec, provider: Arc<dyn Provider>) -> Self {
        Self { spec, provider }
    }
}

#[async_trait]
impl Tool for Job {
    fn spec(&self) -> ToolSpec {
        let definition = Definition::new(self.spec.job(), &json!({ "type": "object" }));
        ToolSpec {
            version: self.spec.version,
            policy: self.spec.policy.clone(),
            ..ToolSpec::new(definition)
        }
    }

    async fn call(
        &self,
        context: &mut Context,
        arguments: Arguments,
    ) -> Result<CallToolResult, ToolError> {
        let json = match arguments.parse::<Asked>()? {
            Asked::Read { uri } => self.provider.read(context, &uri).await?.to_json(),
            Asked::Prompt { name, arguments } => {
                let got = self.provider.prompt(context, &name, arguments).await?;
                got.to_json()
            }
            Asked::Complete(asked) => self.provider.complete(context, asked).await?.to_json(),
        };
        Ok(CallToolResult::other(json))
    }
}
