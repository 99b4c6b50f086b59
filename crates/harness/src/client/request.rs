//! One request, built right and then, if a test wants, bent.

use std::sync::atomic::{AtomicI64, Ordering};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method};
use http_body_util::Full;
use serde_json::{Value, json};

use super::{Answer, Client, VERSION};
use crate::error::{Error, Result};
use crate::sse::Stream;

/// A request that has not been sent yet.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    client: &'a Client,
    http_method: Method,
    id: Option<Value>,
    method: String,
    params: Value,
    headers: Vec<(String, Option<Vec<u8>>)>,
    /// Beside those of the same name.
    added: Vec<(String, Vec<u8>)>,
    body: Option<Bytes>,
}

impl<'a> Request<'a> {
    pub(super) fn new(client: &'a Client, method: &str, mut params: Value) -> Request<'a> {
        static NEXT_ID: AtomicI64 = AtomicI64::new(1);
        if let Some(fields) = params.as_object_mut() {
            let meta = fields.entry("_meta").or_insert_with(|| json!({}));
            meta["io.modelcontextprotocol/protocolVersion"] = json!(VERSION);
            meta["io.modelcontextprotocol/clientInfo"] =
                json!({"name": "mcp-tasks-harness", "version": env!("CARGO_PKG_VERSION")});
            meta["io.modelcontextprotocol/clientCapabilities"] = client.capabilities.clone();
        }
        Request {
            client,
            http_method: Method::POST,
            id: Some(json!(NEXT_ID.fetch_add(1, Ordering::Relaxed))),
            method: method.to_owned(),
            params,
            headers: Vec::new(),
            added: Vec::new(),
            body: None,
        }
    }

    /// Another id.
    #[must_use]
    pub fn id(mut self, id: Value) -> Self {
        self.id = Some(id);
        self
    }

    /// Without an id: a notification.
    #[must_use]
    pub fn notification(mut self) -> Self {
        self.id = None;
        self
    }

    /// Another HTTP method.
    #[must_use]
    pub fn http_method(mut self, method: Method) -> Self {
        self.http_method = method;
        self
    }

    /// Sets a header, replacing ours.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers
            .push((name.to_owned(), Some(value.as_ref().to_vec())));
        self
    }

    /// Adds a header, beside others of its name.
    #[must_use]
    pub fn header_beside(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.added.push((name.to_owned(), value.as_ref().to_vec()));
        self
    }

    /// Leaves one of our headers out.
    #[must_use]
    pub fn without_header(mut self, name: &str) -> Self {
        self.headers.push((name.to_owned(), None));
        self
    }

    /// Sets a key of `params._meta`.
    #[must_use]
    pub fn meta(mut self, key: &str, value: Value) -> Self {
        self.params["_meta"][key] = value;
        self
    }

    /// Leaves out a key of `params._meta`.
    #[must_use]
    pub fn without_meta(mut self, key: &str) -> Self {
        if let Some(meta) = self.params["_meta"].as_object_mut() {
            meta.remove(key);
        }
        self
    }

    /// Sets a field of `params`.
    #[must_use]
    pub fn param(mut self, name: &str, value: Value) -> Self {
        self.params[name] = value;
        self
    }

    /// The params exactly as given, without `_meta` unless it holds one.
    #[must_use]
    pub fn params(mut self, params: Value) -> Self {
        self.params = params;
        self
    }

    /// The idempotency key.
    #[must_use]
    pub fn idempotency_key(self, key: &str) -> Self {
        self.meta("io.github.mcp-tasks/idempotencyKey", json!(key))
    }

    /// These bytes as the body; the headers stay those of the request.
    #[must_use]
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = Some(body.into());
        self
    }

    /// The body as it will be sent.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        if let Some(body) = &self.body {
            return body.clone();
        }
        let mut message = json!({"jsonrpc": "2.0", "method": self.method, "params": self.params});
        if let Some(id) = &self.id {
            message["id"] = id.clone();
        }
        message.to_string().into()
    }

    /// Sends it and reads the whole answer, also of a stream that ends.
    ///
    /// # Errors
    /// [`Error::Http`] if there is no answer; any status is one.
    pub async fn send(self) -> Result<Answer> {
        let reply = self.client.http.send(self.http()?).await?;
        Ok(Answer::read(reply))
    }

    /// Sends it and returns the open answer.
    ///
    /// # Errors
    /// As [`Request::send`].
    pub async fn stream(self) -> Result<Stream> {
        let response = self.client.http.begin(self.http()?).await?;
        Ok(Stream::new(self.client.url.clone(), response))
    }

    fn http(&self) -> Result<http::Request<Full<Bytes>>> {
        let refuse = |error: http::Error| Error::Other(format!("request can't be built: {error}"));
        let mut request = http::Request::builder()
            .method(self.http_method.clone())
            .uri(&self.client.url)
            .body(Full::new(self.bytes()))
            .map_err(refuse)?;
        let headers = request.headers_mut();
        for (name, value) in self.usual_headers() {
            headers.insert(header_name(name)?, header_value(value.as_bytes())?);
        }
        for (name, value) in &self.headers {
            match value {
                Some(value) => headers.insert(header_name(name)?, header_value(value)?),
                None => headers.remove(name),
            };
        }
        for (name, value) in &self.added {
            headers.append(header_name(name)?, header_value(value)?);
        }
        Ok(request)
    }

    /// What a well-behaved client sends.
    fn usual_headers(&self) -> Vec<(&'static str, String)> {
        let mut headers = vec![
            ("content-type", "application/json".to_owned()),
            ("accept", "application/json, text/event-stream".to_owned()),
            ("mcp-protocol-version", VERSION.to_owned()),
            ("mcp-method", encode(&self.method)),
        ];
        if let Some(name) = self.name() {
            headers.push(("mcp-name", encode(name)));
        }
        if let Some(token) = &self.client.token {
            headers.push(("authorization", format!("Bearer {token}")));
        }
        headers
    }

    fn name(&self) -> Option<&str> {
        let field = match self.method.as_str() {
            "tools/call" | "prompts/get" => "name",
            "resources/read" => "uri",
            "tasks/get" | "tasks/update" | "tasks/cancel" => "taskId",
            _ => return None,
        };
        self.params.get(field)?.as_str()
    }
}

/// Header values that aren't plain ASCII travel as `=?base64?…?=` (SEP-2243).
fn encode(value: &str) -> String {
    let plain = value.bytes().all(|byte| (0x20..0x7f).contains(&byte)) && value.trim() == value;
    if plain {
        value.to_owned()
    } else {
        format!("=?base64?{}?=", STANDARD.encode(value))
    }
}

fn header_name(name: &str) -> Result<HeaderName> {
    name.parse()
        .map_err(|error| Error::Other(format!("header name {name:?}: {error}")))
}

fn header_value(value: &[u8]) -> Result<HeaderValue> {
    HeaderValue::from_bytes(value).map_err(|error| {
        Error::Other(format!(
            "header value {:?}: {error}",
            String::from_utf8_lossy(value)
        ))
    })
}
