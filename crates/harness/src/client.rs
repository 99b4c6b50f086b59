//! A raw MCP 2026-07-28 client: it sends what it is told, right or wrong, and shows what came back.
//!
//! It deliberately shares no code with our own protocol crate: a mistake there must not cancel
//! itself out here.

mod answer;
mod request;
mod socket;
mod tasks;

use std::time::Duration;

use serde_json::{Value, json};

use crate::error::Result;
use crate::http::Http;
use crate::sse::Stream;

pub use answer::Answer;
pub use request::Request;
pub use socket::{Socket, exchange};

/// The protocol version it speaks unless told otherwise.
pub const VERSION: &str = "2026-07-28";
/// The tasks extension (SEP-2663).
pub const TASKS: &str = "io.modelcontextprotocol/tasks";
const TIMEOUT: Duration = Duration::from_secs(60);

/// A caller at one MCP endpoint. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Client {
    pub(crate) http: Http,
    pub(crate) url: String,
    pub(crate) token: Option<String>,
    pub(crate) capabilities: Value,
}

impl Client {
    /// A caller without a token that declares the tasks extension and every kind of input.
    #[must_use]
    pub fn new(url: &str) -> Client {
        let capabilities = json!({
            "elicitation": {"form": {}, "url": {}},
            "sampling": {},
            "roots": {},
            "extensions": {TASKS: {}},
        });
        Client {
            http: Http::new(TIMEOUT),
            url: url.to_owned(),
            token: None,
            capabilities,
        }
    }

    /// The same caller with a bearer token. (With development authentication: the caller's name.)
    #[must_use]
    pub fn bearer(mut self, token: &str) -> Client {
        self.token = Some(token.to_owned());
        self
    }

    /// The same caller at another endpoint, e.g. another replica.
    #[must_use]
    pub fn at(&self, url: &str) -> Client {
        Client {
            url: url.to_owned(),
            ..self.clone()
        }
    }

    /// The same caller with other capabilities.
    #[must_use]
    pub fn capabilities(mut self, capabilities: Value) -> Client {
        self.capabilities = capabilities;
        self
    }

    /// The same caller without the tasks extension.
    #[must_use]
    pub fn undeclared(mut self) -> Client {
        if let Some(all) = self.capabilities.as_object_mut() {
            all.remove("extensions");
        }
        self
    }

    /// The same caller with connections of its own that waits for answers at most this long.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Client {
        self.http = Http::new(timeout);
        self
    }

    /// The endpoint.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Begins a request; `params` gets its `_meta` when it is sent.
    #[must_use]
    pub fn request(&self, method: &str, params: Value) -> Request<'_> {
        Request::new(self, method, params)
    }

    /// `tools/call`: the result, be it the tool's or a task handle.
    ///
    /// # Errors
    /// [`crate::Error::Rpc`] for a JSON-RPC error, [`crate::Error::Http`] if there is no answer.
    pub async fn call(&self, tool: &str, arguments: Value) -> Result<Value> {
        self.result("tools/call", json!({"name": tool, "arguments": arguments}))
            .await
    }

    /// `tasks/get`: the task.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn get(&self, task_id: &str) -> Result<Value> {
        self.result("tasks/get", json!({"taskId": task_id})).await
    }

    /// `tasks/update`: answers questions, given as an object of key and result.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn update(&self, task_id: &str, responses: Value) -> Result<Value> {
        let params = json!({"taskId": task_id, "inputResponses": responses});
        self.result("tasks/update", params).await
    }

    /// `tasks/cancel`.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn cancel(&self, task_id: &str) -> Result<Value> {
        self.result("tasks/cancel", json!({"taskId": task_id}))
            .await
    }

    /// `server/discover`.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn discover(&self) -> Result<Value> {
        self.result("server/discover", json!({})).await
    }

    /// `tools/list`, all pages: the tools.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn list(&self) -> Result<Vec<Value>> {
        let mut tools = Vec::new();
        let mut params = json!({});
        loop {
            let page = self.result("tools/list", params).await?;
            tools.extend(page["tools"].as_array().into_iter().flatten().cloned());
            match &page["nextCursor"] {
                Value::Null => return Ok(tools),
                cursor => params = json!({"cursor": cursor}),
            }
        }
    }

    /// `subscriptions/listen` with this filter: the open stream. The first message is the
    /// acknowledgement.
    ///
    /// # Errors
    /// [`crate::Error::Http`] if there is no answer.
    pub async fn listen(&self, notifications: Value) -> Result<Stream> {
        let params = json!({"notifications": notifications});
        self.request("subscriptions/listen", params).stream().await
    }

    async fn result(&self, method: &str, params: Value) -> Result<Value> {
        self.request(method, params).send().await?.into_result()
    }
}
