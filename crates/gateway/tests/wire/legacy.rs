//! Clients of MCP 2025-11-25 and 2025-06-18: what they are served, and how every mistake of theirs
//! is told.

mod calls;
mod door;
mod lists;
mod questions;
mod tasks;

use harness::client::{Answer, Client, Request};
use serde_json::{Value, json};

use crate::support::World;

const VERSION: &str = "2025-11-25";
const OLDER: &str = "2025-06-18";
const RELATED: &str = "io.modelcontextprotocol/related-task";
const UNKNOWN: &str = "0198c0de-0000-7000-8000-000000000000";

/// A client that sends what the SDKs of 1.x send: the version's header, and nothing in `_meta`.
#[derive(Clone)]
struct Legacy {
    client: Client,
    version: &'static str,
}

impl Legacy {
    fn new(world: &World, name: &str) -> Self {
        Self {
            client: world.client(name),
            version: VERSION,
        }
    }

    fn nobody(world: &World) -> Self {
        Self {
            client: Client::new(&world.url),
            version: VERSION,
        }
    }

    fn older(self) -> Self {
        Self {
            version: OLDER,
            ..self
        }
    }

    fn request(&self, method: &str, params: Value) -> Request<'_> {
        let request = self.client.request(method, json!({})).params(params);
        request
            .header("mcp-protocol-version", self.version)
            .without_header("mcp-method")
            .without_header("mcp-name")
    }

    async fn send(&self, method: &str, params: Value) -> Answer {
        self.request(method, params).send().await.unwrap()
    }

    /// The result of a request that must succeed.
    async fn result(&self, method: &str, params: Value) -> Value {
        let answer = self.send(method, params).await;
        assert_eq!(answer.status, 200, "{:?}", answer.message);
        assert!(answer.header("mcp-session-id").is_empty());
        answer.into_result().unwrap()
    }

    /// The error of a request that must not; it travels with 200.
    async fn error(&self, method: &str, params: Value) -> Value {
        let answer = self.send(method, params.clone()).await;
        let is_error = answer.error_code().is_some();
        assert!(is_error, "{method} {params}: {:?}", answer.message);
        assert_eq!(answer.status, 200, "{:?}", answer.message);
        answer.error().clone()
    }

    async fn code(&self, method: &str, params: Value) -> i64 {
        self.error(method, params).await["code"].as_i64().unwrap()
    }

    /// The task that a call is given.
    async fn task(&self, tool: &str) -> Value {
        let params = json!({"name": tool, "arguments": {}, "task": {"ttl": 60000}});
        self.result("tools/call", params).await["task"].clone()
    }
}

fn id_of(task: &Value) -> Value {
    json!({"taskId": task["taskId"]})
}

/// Nothing in it came after 2025-11-25.
fn without_modern(result: &Value) {
    for name in ["resultType", "ttlMs", "cacheScope", "pollIntervalMs"] {
        assert!(result.get(name).is_none(), "{name}: {result}");
    }
    let meta = &result["_meta"];
    assert!(
        meta.get("io.modelcontextprotocol/serverInfo").is_none(),
        "{result}"
    );
}
