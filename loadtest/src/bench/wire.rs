//! Requests as bytes: the same for every endpoint that is measured, ours and others'.

use serde_json::{Value, json};

const VERSION: &str = "2026-07-28";
const TASKS: &str = "io.modelcontextprotocol/tasks";

/// Where requests go, and on whose behalf.
#[derive(Debug, Clone)]
pub struct Wire {
    head: String,
    meta: String,
}

impl Wire {
    /// For an endpoint such as `http://127.0.0.1:3000/mcp`, with this bearer token.
    #[must_use]
    pub fn new(url: &str, token: &str) -> Wire {
        let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let mut head = format!(
            "POST /{path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: {VERSION}\r\n"
        );
        if !token.is_empty() {
            head.push_str(&format!("Authorization: Bearer {token}\r\n"));
        }
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": VERSION,
            "io.modelcontextprotocol/clientInfo": {"name": "mcp-tasks-bench", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {"extensions": {TASKS: {}}},
        });
        Wire {
            head,
            meta: meta.to_string(),
        }
    }

    /// `tasks/get`.
    #[must_use]
    pub fn get(&self, task: &str) -> Vec<u8> {
        self.request("tasks/get", task, &format!("\"taskId\":\"{task}\""))
    }

    /// `tasks/cancel`.
    #[must_use]
    pub fn cancel(&self, task: &str) -> Vec<u8> {
        self.request("tasks/cancel", task, &format!("\"taskId\":\"{task}\""))
    }

    /// `tools/call`.
    #[must_use]
    pub fn call(&self, tool: &str, arguments: &Value) -> Vec<u8> {
        let params = format!("\"name\":{},\"arguments\":{arguments}", Value::from(tool));
        self.request("tools/call", tool, &params)
    }

    /// `subscriptions/listen` for one task.
    #[must_use]
    pub fn listen(&self, task: &str) -> Vec<u8> {
        let params = format!("\"notifications\":{{\"taskIds\":[\"{task}\"]}}");
        self.request("subscriptions/listen", "", &params)
    }

    fn request(&self, method: &str, name: &str, params: &str) -> Vec<u8> {
        let (head, meta) = (&self.head, &self.meta);
        let body = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"{method}\",\"params\":{{{params},\"_meta\":{meta}}}}}"
        );
        let name = if name.is_empty() {
            String::new()
        } else {
            format!("Mcp-Name: {name}\r\n")
        };
        let length = body.len();
        format!("{head}Mcp-Method: {method}\r\n{name}Content-Length: {length}\r\n\r\n{body}")
            .into_bytes()
    }
}

/// The value of a text field of an answer, wherever it stands; it must hold nothing that JSON escapes.
#[must_use]
pub fn text_field<'a>(body: &'a [u8], name: &str) -> Option<&'a str> {
    let key = format!("\"{name}\":\"");
    let from = memchr::memmem::find(body, key.as_bytes())? + key.len();
    let len = memchr::memchr(b'"', &body[from..])?;
    std::str::from_utf8(&body[from..from + len]).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_framed_and_json() {
        let wire = Wire::new("http://127.0.0.1:7/mcp", "me");
        for request in [
            wire.get("1"),
            wire.cancel("1"),
            wire.listen("1"),
            wire.call("a", &json!({"b": 1})),
        ] {
            let text = String::from_utf8(request).unwrap();
            let (head, body) = text.split_once("\r\n\r\n").unwrap();
            assert!(
                head.contains(&format!("Content-Length: {}", body.len())),
                "{head}"
            );
            let body: Value = serde_json::from_str(body).unwrap();
            assert!(head.contains(&format!("Mcp-Method: {}", body["method"].as_str().unwrap())));
            assert!(body["params"]["_meta"].is_object());
        }
    }

    #[test]
    fn fields_are_found() {
        let body = br#"{"result":{"taskId":"a-b","status":"working"}}"#;
        assert_eq!(text_field(body, "taskId"), Some("a-b"));
        assert_eq!(text_field(body, "status"), Some("working"));
        assert_eq!(text_field(body, "error"), None);
        assert_eq!(text_field(b"\"taskId\":\"", "taskId"), None);
    }
}
