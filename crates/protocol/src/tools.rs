//! Tools: `tools/list`, the params of `tools/call`, and its result
//! (MCP 2026-07-28 §Tools).

use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

pub use crate::content::{Content, Media, ResourceContents, ResourceLink};
use crate::discover::Caching;
use crate::headers::{self, ParamHeader};
use crate::input::InputResponses;
use crate::jsonrpc::{ErrorObject, InvalidParams};
use crate::listed::{one_line, write_page};
use crate::meta::ResultMeta;
use crate::passed_on::complete;
use crate::raw::{Object, shorten};
use crate::writer;

/// Bytes of the longest name of a tool (MCP 2026-07-28 §Tool Names; all its letters are ASCII).
pub const NAME_BYTES_MAX: usize = 128;

/// A tool as it is listed (MCP 2026-07-28 schema `Tool`). Schemas stay the text
/// their author wrote: key order and numbers included.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tool {
    /// For programs: 1 to 128 of `A–Z a–z 0–9 _ . -`.
    pub name: String,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// For models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// A JSON Schema of type object.
    pub input_schema: Box<RawValue>,
    /// A JSON Schema of `structuredContent`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Box<RawValue>>,
    /// Hints for clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<ToolAnnotations>,
    /// Icons, as their author wrote them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icons: Option<Box<RawValue>>,
    /// Metadata.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Box<RawValue>>,
}

/// What a client may assume of a tool; hints, never promises
/// (MCP 2026-07-28 schema `ToolAnnotations`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolAnnotations {
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// It changes nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only_hint: Option<bool>,
    /// It may destroy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destructive_hint: Option<bool>,
    /// Repeating it changes nothing more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotent_hint: Option<bool>,
    /// It reaches beyond a closed world.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_world_hint: Option<bool>,
    /// What other servers' authors wrote beyond that.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl Tool {
    /// A tool with a name and a schema of its arguments, which
    /// [`check`](Self::check) judges.
    pub fn new(name: impl Into<String>, input_schema: &Value) -> Self {
        Self {
            name: name.into(),
            title: None,
            description: None,
            input_schema: raw_json(input_schema),
            output_schema: None,
            annotations: None,
            icons: None,
            meta: None,
        }
    }

    /// With a description for models.
    #[must_use]
    pub fn with_description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }

    /// With a title for people.
    #[must_use]
    pub fn with_title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
        self
    }

    /// With a schema of `structuredContent`.
    #[must_use]
    pub fn with_output_schema(mut self, schema: &Value) -> Self {
        self.output_schema = Some(raw_json(schema));
        self
    }

    /// With hints for clients.
    #[must_use]
    pub fn with_annotations(mut self, annotations: ToolAnnotations) -> Self {
        self.annotations = Some(annotations);
        self
    }

    /// The JSON text on one line, as it is stored and listed.
    #[must_use]
    pub fn to_json(&self) -> Bytes {
        one_line(self)
    }

    /// Whether clients will accept the definition, and which of its parameters
    /// they mirror into headers.
    ///
    /// # Errors
    /// With what is wrong: a name outside the allowed characters, a schema that
    /// is not of type object, a forbidden `x-mcp-header`.
    pub fn check(&self) -> Result<Vec<ParamHeader>, String> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
        if !(1..=NAME_BYTES_MAX).contains(&self.name.len()) || !self.name.bytes().all(is_plain) {
            return Err(format!(
                "tool name `{}` must be 1 to {NAME_BYTES_MAX} of A-Z a-z 0-9 _ . -",
                shorten(&self.name)
            ));
        }
        let schema: Value = serde_json::from_str(self.input_schema.get())
            .map_err(|error| format!("tool {}: inputSchema: {error}", self.name))?;
        if schema["type"] != "object" {
            return Err(format!(
                "tool {}: inputSchema must have the type object",
                self.name
            ));
        }
        headers::param_headers(&schema).map_err(|error| format!("tool {}: {error}", self.name))
    }
}

fn raw_json(value: &Value) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).expect("a JSON value always prints")
}

/// The params of `tools/list`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListToolsParams {
    /// `nextCursor` of the page before; opaque to the client, so check it.
    pub cursor: Option<String>,
}

impl ListToolsParams {
    /// Reads the params; unknown members are ignored.
    ///
    /// # Errors
    /// If `cursor` is not a string.
    pub fn parse(params: Option<&RawValue>) -> Result<Self, InvalidParams> {
        Ok(Self {
            cursor: Object::params(params)?.string("cursor")?,
        })
    }
}

/// One page of `tools/list` from stored definitions, copied as they are. Sort
/// them before: the order must be the same each time.
#[must_use]
pub fn write_list<'a>(
    definitions: impl IntoIterator<Item = &'a [u8]>,
    next_cursor: Option<&str>,
    caching: Caching,
    meta: &ResultMeta,
) -> Bytes {
    write_page("tools", definitions, next_cursor, caching, meta)
}

/// The params of `tools/call`. `task`, the opt-in of 2025-11-25, is ignored like
/// any other member we don't know.
#[derive(Clone, Debug)]
pub struct CallToolParams {
    /// The tool's name, not yet looked up.
    pub name: String,
    /// An object as it was sent; `None` means `{}`. No key at its top occurs twice; whoever reads on
    /// reads with [`unique`](crate::unique).
    pub arguments: Option<Box<RawValue>>,
    /// Answers to an `InputRequiredResult`; null counts as absent.
    pub input_responses: Option<InputResponses>,
    /// The state of an `InputRequiredResult`, echoed: attacker-controlled.
    pub request_state: Option<String>,
    /// `params.idempotencyKey`; see [`idempotency`](crate::idempotency).
    pub idempotency_key: Option<String>,
}

impl CallToolParams {
    /// Reads the params.
    ///
    /// # Errors
    /// If `name` is missing, or a member has the wrong type or occurs twice.
    pub fn parse(params: Option<&RawValue>) -> Result<Self, InvalidParams> {
        let params = Object::params(params)?;
        let arguments = params.present("arguments");
        if let Some(arguments) = arguments {
            Object::strict(arguments, "`arguments`")?;
        }
        Ok(Self {
            name: params.required_string("name")?,
            arguments: arguments.map(ToOwned::to_owned),
            input_responses: params
                .present("inputResponses")
                .map(InputResponses::read)
                .transpose()?,
            request_state: params.string("requestState")?,
            idempotency_key: params.string("idempotencyKey")?,
        })
    }

    /// The JSON text of the arguments; `{}` where none were sent.
    #[must_use]
    pub fn arguments_json(&self) -> &str {
        self.arguments
            .as_ref()
            .map_or("{}", |arguments| arguments.get())
    }
}

/// The error for a tool that the caller can't see or that does not exist.
#[must_use]
pub fn unknown_tool(name: &str) -> ErrorObject {
    ErrorObject::invalid_params(format!("Unknown tool: {}", shorten(name)))
}

/// What a tool returns (MCP 2026-07-28 schema `CallToolResult`). Prints with
/// `resultType: "complete"`, which published clients demand also inside a task.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallToolResult {
    /// For models; may be empty, is always sent.
    pub content: Vec<Content>,
    /// For programs: any JSON value, as `outputSchema` describes it.
    pub structured_content: Option<Value>,
    /// The tool failed, and says so for the model to see: still a completed call.
    pub is_error: bool,
    /// Metadata.
    pub meta: Option<Map<String, Value>>,
    /// The text that some other program printed: it is what is stored and sent.
    passed_on: Option<Bytes>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireResult<C, V, M> {
    result_type: Option<String>,
    content: C,
    #[serde(default = "none", skip_serializing_if = "Option::is_none")]
    structured_content: Option<V>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    is_error: Option<bool>,
    #[serde(
        rename = "_meta",
        default = "none",
        skip_serializing_if = "Option::is_none"
    )]
    meta: Option<M>,
}

fn none<T>() -> Option<T> {
    None
}

impl Serialize for CallToolResult {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Some(text) = &self.passed_on {
            let raw: &RawValue = serde_json::from_slice(text).map_err(serde::ser::Error::custom)?;
            return raw.serialize(serializer);
        }
        WireResult {
            result_type: Some("complete".to_owned()),
            content: &self.content,
            structured_content: self.structured_content.as_ref(),
            is_error: self.is_error.then_some(true),
            meta: self.meta.as_ref(),
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for CallToolResult {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let wire =
            WireResult::<Vec<Content>, Value, Map<String, Value>>::deserialize(deserializer)?;
        match wire.result_type.as_deref() {
            None | Some("complete") => Ok(Self {
                content: wire.content,
                structured_content: wire.structured_content,
                is_error: wire.is_error.unwrap_or(false),
                meta: wire.meta,
                passed_on: None,
            }),
            Some(other) => Err(serde::de::Error::custom(format!(
                "expected a result of type complete, got {}",
                shorten(other)
            ))),
        }
    }
}

impl CallToolResult {
    /// One block of text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::content(vec![Content::text(text)])
    }

    /// Some blocks.
    #[must_use]
    pub fn content(content: Vec<Content>) -> Self {
        Self {
            content,
            ..Self::default()
        }
    }

    /// A failure that the model should see and may mend.
    pub fn error(text: impl Into<String>) -> Self {
        Self {
            is_error: true,
            ..Self::text(text)
        }
    }

    /// A JSON value, also as text, for clients that read only that.
    #[must_use]
    pub fn structured(value: Value) -> Self {
        Self {
            structured_content: Some(value.clone()),
            ..Self::text(value.to_string())
        }
    }

    /// What some other program printed, to be passed on as it is: members, kinds of content and
    /// digits that we know nothing of included. The fields hold what we understand of it.
    ///
    /// # Errors
    /// As [`complete_result`].
    pub fn passed_on(json: &[u8]) -> Result<Self, String> {
        let text = complete_result(json)?;
        let read = |error: serde_json::Error| format!("not a tool's result: {error}");
        let wire: WireResult<Vec<Value>, Value, Map<String, Value>> =
            serde_json::from_slice(&text).map_err(read)?;
        let content = wire.content.into_iter();
        Ok(Self {
            content: content
                .filter_map(|block| serde_json::from_value(block).ok())
                .collect(),
            structured_content: wire.structured_content,
            is_error: wire.is_error.unwrap_or(false),
            meta: wire.meta,
            passed_on: Some(text),
        })
    }

    /// The result of another method, which runs as a job like a call of a tool: its JSON text is
    /// what is stored and sent, and the fields stay empty.
    #[must_use]
    pub fn other(json: Bytes) -> Self {
        Self {
            passed_on: Some(json),
            ..Self::default()
        }
    }

    /// The JSON text, as it is stored.
    #[must_use]
    pub fn to_json(&self) -> Bytes {
        match &self.passed_on {
            Some(text) => text.clone(),
            None => writer::json(self),
        }
    }
}

/// A result that some other program printed, made fit to store and to send:
/// `content` must be an array, and `resultType` is added where an older server
/// left it out. All else is kept, on one line.
///
/// # Errors
/// With what is wrong, if it is no result of a completed tool call.
pub fn complete_result(json: &[u8]) -> Result<Bytes, String> {
    complete(json, "content", '[').map(Bytes::from)
}
