//! What a tool is: the trait that authors implement, and its arguments.

use async_trait::async_trait;
use bytes::Bytes;
use protocol::code;
use protocol::tools::CallToolResult;
use serde::de::DeserializeOwned;
use serde_json::Value;
use store::ToolSpec;

use crate::context::Context;
use crate::error::ToolError;

/// A tool.
///
/// `call` may run several times for one task: after a question was answered, after a worker
/// died, after a retryable error. It begins at the top each time, and the context gives back
/// what finished steps put out and what was answered. So only arguments, steps and answers may
/// decide what it does next; clocks, random numbers and the outside world belong into steps.
#[async_trait]
pub trait Tool: Send + Sync + 'static {
    /// The definition, version and policy. Asked once, when the tool is added to a
    /// [`ToolSet`](crate::ToolSet).
    fn spec(&self) -> ToolSpec;

    /// Does the work of one call.
    ///
    /// # Errors
    /// See [`ToolError`]: a failure that the model should see is
    /// `Ok(CallToolResult::error(…))` instead.
    async fn call(
        &self,
        context: &mut Context,
        arguments: Arguments,
    ) -> Result<CallToolResult, ToolError>;
}

/// The arguments of a call: a JSON object that fits the tool's input schema.
#[derive(Clone, Debug)]
pub struct Arguments(Bytes);

impl Arguments {
    /// From the JSON text of an object; empty text counts as `{}`.
    #[must_use]
    pub fn from_json(json: Bytes) -> Self {
        Self(if json.is_empty() {
            Bytes::from_static(b"{}")
        } else {
            json
        })
    }

    /// The arguments as a type of the tool's own. Unknown members are for the type to judge.
    ///
    /// # Errors
    /// `-32602` that says what does not fit, where the schema lets through what the type
    /// does not.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, ToolError> {
        serde_json::from_slice(&self.0).map_err(|error| {
            ToolError::failed(code::INVALID_PARAMS, format!("arguments: {error}"))
        })
    }

    /// The arguments as a JSON value.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn to_value(&self) -> Result<Value, ToolError> {
        self.parse()
    }

    /// The JSON text, as it came.
    #[must_use]
    pub fn as_json(&self) -> &[u8] {
        &self.0
    }
}
