//! Questions to a client and their answers (MCP 2026-07-28 §Multi Round-Trip
//! Requests; SEP-2663 §Task Update Requests).

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

pub use crate::answer::validate_response;
use crate::jsonrpc::{ErrorObject, InvalidParams};
use crate::meta::ResultMeta;
use crate::raw::{self, Object, shorten};
use crate::writer;

/// The kinds of question a client may be able to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InputKind {
    /// `elicitation/create` with a form.
    ElicitForm,
    /// `elicitation/create` with a URL to visit.
    ElicitUrl,
    /// `sampling/createMessage`.
    Sampling,
    /// `roots/list`.
    Roots,
}

impl InputKind {
    /// The kind of a stored request, if it is one.
    #[must_use]
    pub fn of(request: &RawValue) -> Option<Self> {
        let method = raw::string(raw::member(request, "method")?)?;
        match method.as_str() {
            "elicitation/create" => {
                let mode = raw::member(request, "params")
                    .and_then(|params| raw::member(params, "mode"))
                    .and_then(raw::string);
                Some(if mode.as_deref() == Some("url") {
                    Self::ElicitUrl
                } else {
                    Self::ElicitForm
                })
            }
            "sampling/createMessage" => Some(Self::Sampling),
            "roots/list" => Some(Self::Roots),
            _ => None,
        }
    }

    /// The client capability it needs, as a capabilities object, for
    /// [`missing_capability`](crate::meta::missing_capability).
    #[must_use]
    pub fn required_capability(self) -> Map<String, Value> {
        let capability = match self {
            Self::ElicitForm => json!({ "elicitation": { "form": {} } }),
            Self::ElicitUrl => json!({ "elicitation": { "url": {} } }),
            Self::Sampling => json!({ "sampling": {} }),
            Self::Roots => json!({ "roots": {} }),
        };
        match capability {
            Value::Object(capability) => capability,
            _ => Map::new(),
        }
    }
}

/// One question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InputRequest {
    /// `elicitation/create`, `sampling/createMessage` or `roots/list`.
    pub method: String,
    /// What the method asks with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub params: Option<Value>,
}

impl InputRequest {
    /// A form: `schema` is a flat JSON Schema of type object (MCP 2026-07-28
    /// schema `ElicitRequestFormParams`).
    pub fn elicit_form(message: impl Into<String>, schema: Value) -> Self {
        let message = message.into();
        Self::new(
            "elicitation/create",
            json!({ "mode": "form", "message": message, "requestedSchema": schema }),
        )
    }

    /// A page to visit; what happens there never passes through the client.
    pub fn elicit_url(message: impl Into<String>, url: impl Into<String>) -> Self {
        let (message, url) = (message.into(), url.into());
        Self::new(
            "elicitation/create",
            json!({ "mode": "url", "message": message, "url": url }),
        )
    }

    /// A completion by the client's model: `params` with `messages` and
    /// `maxTokens` (MCP 2026-07-28 schema `CreateMessageRequestParams`).
    #[must_use]
    pub fn sampling(params: Value) -> Self {
        Self::new("sampling/createMessage", params)
    }

    /// The client's root folders.
    #[must_use]
    pub fn roots() -> Self {
        Self {
            method: "roots/list".to_owned(),
            params: None,
        }
    }

    fn new(method: &str, params: Value) -> Self {
        Self {
            method: method.to_owned(),
            params: Some(params),
        }
    }

    /// The kind of question.
    #[must_use]
    pub fn kind(&self) -> Option<InputKind> {
        InputKind::of(&self.to_raw())
    }

    /// The JSON text, as it is stored and sent.
    #[must_use]
    pub fn to_raw(&self) -> Box<RawValue> {
        serde_json::value::to_raw_value(self)
            .expect("a structure of strings and JSON values always prints")
    }

    /// Whether a client can be expected to read this question: a malformed one
    /// is a bug of the tool and would make SDKs drop the whole answer.
    ///
    /// # Errors
    /// With what is wrong.
    pub fn check(&self) -> Result<(), String> {
        let params = self.params.as_ref().unwrap_or(&Value::Null);
        let is_text = |name: &str| params[name].as_str().is_some_and(|text| !text.is_empty());
        match self.kind() {
            None => Err(format!(
                "`{}` is not a question a client can be asked",
                self.method
            )),
            Some(InputKind::Roots) => Ok(()),
            Some(InputKind::Sampling) => {
                let asks = params["messages"]
                    .as_array()
                    .is_some_and(|list| !list.is_empty());
                if asks && params["maxTokens"].is_u64() {
                    Ok(())
                } else {
                    Err("sampling needs `messages` and a whole number of `maxTokens`".to_owned())
                }
            }
            Some(InputKind::ElicitUrl) if is_text("message") && is_text("url") => Ok(()),
            Some(InputKind::ElicitUrl) => {
                Err("a URL question needs `message` and `url`".to_owned())
            }
            Some(InputKind::ElicitForm) if !is_text("message") => {
                Err("a form needs a `message`".to_owned())
            }
            Some(InputKind::ElicitForm) => check_form(&params["requestedSchema"]),
        }
    }
}

/// Only top-level properties of primitive types, or arrays of strings to choose
/// from (MCP 2026-07-28 schema `PrimitiveSchemaDefinition`).
fn check_form(schema: &Value) -> Result<(), String> {
    if schema["type"] != "object" {
        return Err("a form's schema must have the type object".to_owned());
    }
    let Some(properties) = schema["properties"].as_object() else {
        return Err("a form's schema must have `properties`".to_owned());
    };
    for (name, property) in properties {
        match property["type"].as_str() {
            Some("string" | "number" | "integer" | "boolean" | "array") => {}
            _ => {
                return Err(format!(
                    "field `{name}` of a form must be a string, number, integer, boolean, or an \
                     array of choices"
                ));
            }
        }
    }
    Ok(())
}

/// `inputRequests`: the JSON text of an object, requests copied as stored.
#[must_use]
pub fn write_requests<'a>(requests: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Bytes {
    requests
        .into_iter()
        .fold(writer::Object::with_capacity(512), |out, (key, request)| {
            out.entry(key, request)
        })
        .finish()
}

/// `InputRequiredResult`: questions before a task exists. At least one of the
/// two must be given; the client repeats the call with answers and the state.
#[must_use]
pub fn write_input_required(
    requests: Option<&[u8]>,
    request_state: Option<&str>,
    meta: &ResultMeta,
) -> Bytes {
    let out = writer::Object::with_capacity(1024).value("resultType", "input_required");
    let out = match requests {
        Some(requests) => out.raw("inputRequests", requests),
        None => out,
    };
    out.optional("requestState", request_state)
        .raw("_meta", meta.to_json())
        .finish()
}

/// Answers by key, as sent; shapes are checked by [`InputResponses::select`]
/// against the questions that are open.
#[derive(Clone, Debug, Default)]
pub struct InputResponses(BTreeMap<String, Box<RawValue>>);

/// An answer does not fit its question: `-32602`, and nothing is applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MalformedAnswer {
    /// The question's key.
    pub key: String,
    /// What is wrong, and what is allowed.
    pub problem: String,
}

impl fmt::Display for MalformedAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the answer to `{}` is malformed: {}",
            shorten(&self.key),
            self.problem
        )
    }
}

impl std::error::Error for MalformedAnswer {}

impl From<&MalformedAnswer> for ErrorObject {
    fn from(error: &MalformedAnswer) -> Self {
        Self::invalid_params(error.to_string())
            .with_data(json!({ "reason": "malformed_answer", "key": shorten(&error.key) }))
    }
}

impl InputResponses {
    /// Reads the JSON text of an object.
    ///
    /// # Errors
    /// If it isn't an object, or a key occurs twice.
    pub fn read(value: &RawValue) -> Result<Self, InvalidParams> {
        let object = Object::strict(value, "`inputResponses`")?;
        let members = object.into_members().into_iter();
        Ok(Self(
            members
                .map(|(key, value)| (key.into_owned(), value.to_owned()))
                .collect(),
        ))
    }

    /// One answer.
    #[must_use]
    pub fn one(key: String, answer: Box<RawValue>) -> Self {
        Self(BTreeMap::from([(key, answer)]))
    }

    /// Whether there is no answer at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many keys there are, known or not.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The answer under a key, shape not checked.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&RawValue> {
        self.0.get(key).map(|answer| &**answer)
    }

    /// All answers by key, shapes not checked.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &RawValue)> {
        self.0.iter().map(|(key, answer)| (key.as_str(), &**answer))
    }

    /// The answers to the questions in `outstanding`, each checked against its
    /// question. Answers to other keys are ignored before anything else is
    /// looked at (SEP-2663 §Task Update Requests).
    ///
    /// # Errors
    /// If one answer is malformed; then none may be applied.
    pub fn select<'a>(
        &'a self,
        outstanding: impl IntoIterator<Item = (&'a str, &'a RawValue)>,
    ) -> Result<Vec<(&'a str, &'a RawValue)>, MalformedAnswer> {
        let mut answers = Vec::new();
        for (key, request) in outstanding {
            let Some(answer) = self.get(key) else {
                continue;
            };
            validate_response(request, answer).map_err(|problem| MalformedAnswer {
                key: key.to_owned(),
                problem,
            })?;
            answers.push((key, answer));
        }
        Ok(answers)
    }
}
