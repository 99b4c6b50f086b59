//! What a service's answer means for its call.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::StatusCode;
use serde_json::Value;
use worker::callback::Outcome;
use worker::{CallToolResult, Content, ToolError};

use super::{Answered, Output, Service};
use crate::web::Hidden;

/// JSON-RPC: something of ours or of the service's is wrong, and no model can mend it.
pub(super) const INTERNAL: i64 = -32603;
/// Of what a service says beside an error.
const TAIL_BYTES_MAX: usize = 8 * 1024;

/// What kinds of bodies there are for a tool.
enum Kind<'a> {
    Json,
    Text,
    Image(&'a str),
    Audio(&'a str),
    Other,
}

impl Service {
    /// The result of an answer.
    pub(super) fn result(&self, answered: &Answered) -> Result<CallToolResult, ToolError> {
        let status = answered.status;
        if (300..400).contains(&status) {
            let why = String::from_utf8_lossy(&answered.body);
            return Err(failed(format!("the service {why}")));
        }
        if !(200..300).contains(&status) {
            return Ok(CallToolResult::error(refusal(answered)));
        }
        if answered.cut {
            return Ok(CallToolResult::error(format!(
                "the service answered more than the {} bytes that are allowed",
                self.response_bytes_max
            )));
        }
        let essence = answered.kind.split(';').next().unwrap_or_default();
        let essence = essence.trim().to_ascii_lowercase();
        let kind = match (self.output, self.output_schema.is_some()) {
            (Output::Text, _) => Kind::Text,
            (Output::Json, _) => Kind::Json,
            (Output::Auto, promised) => match kind(&essence) {
                // What it promised is structured.
                Kind::Text if promised && answered.body.is_empty() => Kind::Json,
                kind => kind,
            },
        };
        match kind {
            Kind::Json => {
                let value = serde_json::from_slice(&answered.body)
                    .map_err(|error| failed(format!("the service's answer is no JSON: {error}")))?;
                self.structured(value)
            }
            _ if self.output_schema.is_some() => Err(failed(format!(
                "the service answered with `{essence}`, and its outputSchema promises JSON"
            ))),
            Kind::Text => {
                let text = String::from_utf8_lossy(&answered.body);
                Ok(CallToolResult::text(text))
            }
            Kind::Image(kind) => {
                let data = BASE64_STANDARD.encode(&answered.body);
                Ok(CallToolResult::content(vec![Content::image(data, kind)]))
            }
            Kind::Audio(kind) => {
                let data = BASE64_STANDARD.encode(&answered.body);
                Ok(CallToolResult::content(vec![Content::audio(data, kind)]))
            }
            Kind::Other => Err(failed(format!(
                "the service answered with `{essence}`, which is no text, JSON, image or audio"
            ))),
        }
    }

    /// The result that a callback brought, without secrets of ours: the service was shown them with the request.
    pub(super) fn reported(
        &self,
        outcome: Outcome,
        secrets: &Hidden,
    ) -> Result<CallToolResult, ToolError> {
        let result = secrets
            .json(outcome)
            .ok_or_else(|| {
                failed(
                    "the service called back with a secret of this tool, where it cannot be hidden",
                )
            })?
            .into_result();
        if result.is_error || self.output_schema.is_none() {
            return Ok(result);
        }
        match &result.structured_content {
            Some(value) => self.check(value).map(|()| result),
            None => Err(failed(
                "the service called back without `structured`, which its outputSchema promises",
            )),
        }
    }

    fn structured(&self, value: Value) -> Result<CallToolResult, ToolError> {
        self.check(&value)?;
        Ok(CallToolResult::structured(value))
    }

    fn check(&self, value: &Value) -> Result<(), ToolError> {
        let Some(schema) = &self.output_schema else {
            return Ok(());
        };
        schema.validate(value).map_err(|error| {
            let place = error.instance_path().to_string();
            let place = if place.is_empty() { "its root" } else { &place };
            failed(format!(
                "the service's result does not fit its outputSchema, at {place}: {error}"
            ))
        })
    }
}

fn failed(message: impl Into<String>) -> ToolError {
    ToolError::failed(INTERNAL, message)
}

/// How the service refused, with the beginning of what it said.
fn refusal(answered: &Answered) -> String {
    let status = StatusCode::from_u16(answered.status);
    let status = status.map_or_else(|_| answered.status.to_string(), |status| status.to_string());
    let said = &answered.body[..answered.body.len().min(TAIL_BYTES_MAX)];
    match String::from_utf8_lossy(said).trim() {
        "" => format!("the service answered {status}"),
        said => format!("the service answered {status}\n{said}"),
    }
}

fn kind(essence: &str) -> Kind<'_> {
    match essence.split_once('/') {
        Some(("application", "json")) => Kind::Json,
        Some(("application", sub)) if sub.ends_with("+json") => Kind::Json,
        Some(("application", sub)) if sub == "xml" || sub.ends_with("+xml") => Kind::Text,
        Some(("application", "yaml" | "javascript" | "x-ndjson" | "x-www-form-urlencoded")) => {
            Kind::Text
        }
        Some(("text", _)) => Kind::Text,
        Some(("image", _)) => Kind::Image(essence),
        Some(("audio", _)) => Kind::Audio(essence),
        // Nothing was said: nothing was sent, or a text.
        None => Kind::Text,
        Some(_) => Kind::Other,
    }
}
