//! One tool of an upstream, as a tool of ours.

use std::sync::Arc;

use protocol::headers::ParamHeader;
use serde_json::Value;
use worker::{Arguments, CallToolResult, Context, Definition, Tool, ToolError, ToolSpec, Undoing};

use super::call::Call;
use super::config::Effects;
use super::fault::Fault;
use super::link::{Link, Transport};
use super::links::Links;
use super::list::Support;
use super::message;
use super::outcome::Outcome;
use super::promise::Promise;
use super::source::Source;

/// A tool that is called at its server.
pub(super) struct UpstreamTool {
    pub(super) source: Arc<Source>,
    /// As the server calls it.
    pub(super) name: String,
    pub(super) effects: Effects,
    support: Support,
    spec: ToolSpec,
    promise: Promise,
    mirrored: Vec<ParamHeader>,
}

impl UpstreamTool {
    /// A tool as its server lists it.
    ///
    /// # Errors
    /// In words, when clients would not accept it.
    pub(super) fn new(
        source: &Arc<Source>,
        mut definition: Definition,
        support: Support,
    ) -> Result<Self, String> {
        let name = definition.name.clone();
        definition.name = format!("{}{name}", source.config.prefix);
        let mirrored = definition.check()?;
        let promise = Promise::read(definition.output_schema.as_deref())
            .map_err(|problem| format!("tool {name}: {problem}"))?;
        let effects = source
            .config
            .effects_of(&name, definition.annotations.as_ref());
        let mut spec = ToolSpec::new(definition);
        (source.adjust)(source.name(), &mut spec);
        Ok(Self {
            source: Arc::clone(source),
            name,
            effects,
            support,
            spec,
            promise,
            mirrored,
        })
    }

    /// How its server is asked to make the call a task of 2025-11-25, if it is: one that must not be
    /// repeated can then be followed by another worker. A process's tasks end with it.
    pub(super) fn as_task(&self, link: &Link) -> Option<String> {
        let fits = match self.support {
            Support::Required => true,
            Support::Optional => {
                self.effects == Effects::Once && matches!(link.transport, Transport::Http(_))
            }
            Support::Forbidden => false,
        };
        let ttl = self.spec.policy.ttl_needed().as_millis();
        (fits && link.makes_tasks()).then(|| format!("{{\"ttl\":{ttl}}}"))
    }

    /// Why its results are not checked against the schema that it promises.
    pub(super) fn unchecked(&self) -> Option<&str> {
        self.promise.unchecked()
    }

    /// What the server sent, unchanged.
    pub(super) fn result(
        &self,
        result: &serde_json::value::RawValue,
    ) -> Result<CallToolResult, ToolError> {
        let fail = |problem: String| {
            let text = format!("upstream \"{}\" {problem}", self.source.name());
            ToolError::failed(protocol::code::INTERNAL_ERROR, text)
        };
        let links = Links(&self.source.config.uri_prefix);
        let changed = links.of_tool(result);
        let result = changed.as_deref().unwrap_or(result);
        let result = CallToolResult::passed_on(result.get().as_bytes())
            .map_err(|problem| fail(format!("answered with garbage: {problem}")))?;
        self.promise.check(&result).map_err(|problem| {
            fail(format!(
                "answered with a result that does not fit the tool's outputSchema, {problem}"
            ))
        })?;
        Ok(result)
    }

    /// What a fault means for a call of this tool.
    pub(super) fn fault(&self, fault: Fault) -> ToolError {
        if let Fault::Rpc(error) = &fault
            && error.code == protocol::code::HEADER_MISMATCH
        {
            // Its schema is another by now.
            self.source.look_again();
        }
        fault.into_tool_error(self.source.name(), self.effects != Effects::Once)
    }

    /// The headers that mirror arguments (MCP 2026-07-28 §Schema Extension).
    pub(super) fn mirrored(&self, arguments: &str) -> Vec<(String, String)> {
        if self.mirrored.is_empty() {
            return Vec::new();
        }
        let arguments: Value = serde_json::from_str(arguments).unwrap_or_default();
        let value = |param: &ParamHeader| {
            let value = param
                .path
                .iter()
                .try_fold(&arguments, |at, name| at.get(name))?;
            let text = match value {
                Value::String(text) => text.clone(),
                Value::Null | Value::Array(_) | Value::Object(_) => return None,
                number_or_bool => number_or_bool.to_string(),
            };
            Some((param.header.clone(), text))
        };
        self.mirrored.iter().filter_map(value).collect()
    }
}

#[worker::async_trait]
impl Tool for UpstreamTool {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    async fn call(
        &self,
        context: &mut Context,
        arguments: Arguments,
    ) -> Result<CallToolResult, ToolError> {
        Box::pin(Call::new(self, arguments).run(context)).await
    }

    /// Our task ends without a result: whatever the server still does for it shall end.
    async fn undo(&self, undoing: &mut Undoing) -> Result<(), ToolError> {
        match undoing.output::<Outcome>()? {
            Outcome::Task { id, .. } => {
                let text = message::string(&id);
                let link = self.source.link().await?;
                let members = [("taskId", text.as_str())];
                let timeout = self.source.config.timeout;
                match link.ask("tasks/cancel", &members, Some(&id), timeout).await {
                    // It has ended, or is not known any more.
                    Ok(_) | Err(Fault::Rpc(_)) => Ok(()),
                    Err(fault) => Err(ToolError::retryable(format!(
                        "upstream \"{}\" {}",
                        self.source.name(),
                        fault.text()
                    ))),
                }
            }
            Outcome::Asks { held: true, .. } => {
                if let Some(held) = self.source.holding.take(undoing.task_id()) {
                    held.exchange
                        .cancel("the caller does not want it any more")
                        .await;
                }
                Ok(())
            }
            Outcome::Asks { .. }
            | Outcome::Result(_)
            | Outcome::Long
            | Outcome::Needs { .. }
            | Outcome::Failed(_)
            | Outcome::Gone(_) => Ok(()),
        }
    }
}
