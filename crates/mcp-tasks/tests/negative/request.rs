//! An HTTP/1.1 request as bytes: right by default, wrong wherever a row says so.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

pub const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
pub const CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";

#[derive(Clone, Debug)]
pub struct Request {
    line: String,
    headers: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
    /// The body's length is told.
    measured: bool,
}

impl Request {
    /// With a request line, a host and the wish to end the connection.
    pub fn new(line: &str) -> Self {
        let request = Self {
            line: line.to_owned(),
            headers: Vec::new(),
            body: Vec::new(),
            measured: false,
        };
        request
            .with("Host", "127.0.0.1:3000")
            .with("Connection", "close")
    }

    /// A header more, whatever there is.
    pub fn with(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers
            .push((name.to_owned(), value.as_ref().to_vec()));
        self
    }

    /// A header instead of those of the same name.
    pub fn set(self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.without(name).with(name, value)
    }

    pub fn without(mut self, name: &str) -> Self {
        self.headers
            .retain(|(own, _)| !own.eq_ignore_ascii_case(name));
        self
    }

    pub fn line(mut self, line: &str) -> Self {
        line.clone_into(&mut self.line);
        self
    }

    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self.measured = true;
        self
    }

    /// The body as it is sent, without a length.
    pub fn tail(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.body = bytes.into();
        self.measured = false;
        self
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = format!("{}\r\n", self.line).into_bytes();
        let length = self.body.len().to_string().into_bytes();
        let told = ("Content-Length".to_owned(), length);
        for (name, value) in self.headers.iter().chain(self.measured.then_some(&told)) {
            bytes.extend_from_slice(name.as_bytes());
            bytes.extend_from_slice(b": ");
            bytes.extend_from_slice(value);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(&self.body);
        bytes
    }
}

/// A POST of JSON to the endpoint, by alice.
pub fn post() -> Request {
    Request::new("POST /mcp HTTP/1.1")
        .with("Authorization", "Bearer alice")
        .with("Content-Type", "application/json")
        .with("Accept", "application/json, text/event-stream")
}

/// What a client says of itself.
pub fn meta() -> Value {
    json!({
        VERSION_KEY: "2026-07-28",
        CAPABILITIES_KEY: {
            "elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {},
            "extensions": {"io.modelcontextprotocol/tasks": {}},
        },
    })
}

/// A request that is in order, but for its params.
pub fn modern(method: &str, mut params: Value) -> Request {
    if params["_meta"].is_null() {
        params["_meta"] = meta();
    }
    let name = ["name", "uri", "taskId"].map(|source| params[source].as_str());
    let mirrors = matches!(
        method,
        "tools/call"
            | "prompts/get"
            | "resources/read"
            | "tasks/get"
            | "tasks/update"
            | "tasks/cancel"
    );
    let name = name.into_iter().flatten().next().filter(|_| mirrors);
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let request = mirrored(method).body(body.to_string());
    match name {
        Some(name) => request.with("Mcp-Name", encoded(name)),
        None => request,
    }
}

/// The head of a request of this method, without `Mcp-Name`.
pub fn mirrored(method: &str) -> Request {
    post()
        .with("MCP-Protocol-Version", "2026-07-28")
        .with("Mcp-Method", method)
}

/// A body instead of a request to `server/discover`.
pub fn instead(body: impl Into<Vec<u8>>) -> Request {
    mirrored("server/discover").body(body)
}

/// A request of an older revision.
pub fn older(version: &str, method: &str, params: &Value) -> Request {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    post()
        .with("MCP-Protocol-Version", version)
        .body(body.to_string())
}

/// As `Mcp-Name` says what is not plain.
pub fn encoded(name: &str) -> String {
    let plain = name.bytes().all(|byte| byte.is_ascii_graphic()) && !name.is_empty();
    if plain {
        return name.to_owned();
    }
    format!("=?base64?{}?=", BASE64_STANDARD.encode(name))
}
