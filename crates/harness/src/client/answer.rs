//! What came back.

use bytes::Bytes;
use http::HeaderMap;
use serde_json::Value;

use crate::error::{Error, Result};
use crate::http::Reply;

/// A whole answer, plain or streamed.
#[derive(Debug, Clone)]
pub struct Answer {
    /// HTTP status code.
    pub status: u16,
    /// HTTP headers.
    pub headers: HeaderMap,
    /// The body's bytes.
    pub body: Bytes,
    /// What a stream carried before the response; empty for a plain answer.
    pub notifications: Vec<Value>,
    /// The JSON-RPC response; `Null` if there was none.
    pub message: Value,
}

impl Answer {
    pub(super) fn read(reply: Reply) -> Answer {
        let Reply {
            status,
            headers,
            body,
        } = reply;
        let mut messages = if is_stream(&headers) {
            let text = String::from_utf8_lossy(&body).into_owned();
            let data = text.lines().filter_map(|line| line.strip_prefix("data:"));
            data.filter_map(|data| serde_json::from_str(data).ok())
                .collect()
        } else {
            vec![serde_json::from_slice(&body).unwrap_or_default()]
        };
        let message = match messages
            .iter()
            .rposition(|value: &Value| value["method"].is_null())
        {
            Some(last) => messages.remove(last),
            None => Value::Null,
        };
        Answer {
            status,
            headers,
            body,
            notifications: messages,
            message,
        }
    }

    /// A header as text; empty if it is missing.
    #[must_use]
    pub fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    }

    /// Whether it came as `text/event-stream`.
    #[must_use]
    pub fn is_stream(&self) -> bool {
        is_stream(&self.headers)
    }

    /// The code of the JSON-RPC error, if it is one.
    #[must_use]
    pub fn error_code(&self) -> Option<i64> {
        self.message["error"]["code"].as_i64()
    }

    /// The JSON-RPC error; `Null` if it isn't one.
    #[must_use]
    pub fn error(&self) -> &Value {
        &self.message["error"]
    }

    /// The result.
    ///
    /// # Errors
    /// [`Error::Rpc`] if it is a JSON-RPC error, [`Error::Failed`] if it is no JSON-RPC at all.
    pub fn into_result(mut self) -> Result<Value> {
        let error = self.message["error"].take();
        if let Some(code) = error["code"].as_i64() {
            let message = error["message"].as_str().unwrap_or_default().to_owned();
            return Err(Error::Rpc {
                status: self.status,
                code,
                message,
                data: error["data"].clone(),
            });
        }
        match self.message["result"].take() {
            Value::Null => {
                let body = String::from_utf8_lossy(&self.body);
                let what = format!("no JSON-RPC answer, HTTP {}: {body}", self.status);
                Err(Error::Failed { what, log: None })
            }
            result => Ok(result),
        }
    }
}

fn is_stream(headers: &HeaderMap) -> bool {
    let kind = headers
        .get("content-type")
        .and_then(|value| value.to_str().ok());
    kind.is_some_and(|kind| kind.starts_with("text/event-stream"))
}
