//! Questions to the person or the model behind a client, and their answers.

use std::collections::BTreeMap;
use std::time::Duration;

use protocol::input::{InputKind, InputRequest};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::error::ToolError;

/// One question. Its key is never used twice in a task's life.
#[derive(Clone, Debug)]
pub struct Question {
    pub(crate) key: String,
    pub(crate) request: InputRequest,
    pub(crate) default: Option<Value>,
    pub(crate) task_only: bool,
    pub(crate) wait: Option<Duration>,
}

impl Question {
    /// Any request.
    #[must_use]
    pub fn new(key: impl Into<String>, request: InputRequest) -> Self {
        Self {
            key: key.into(),
            request,
            default: None,
            task_only: false,
            wait: None,
        }
    }

    /// A form for a person (`elicitation/create`): `schema` is a flat JSON Schema of type object.
    #[must_use]
    pub fn elicit(key: impl Into<String>, message: impl Into<String>, schema: Value) -> Self {
        Self::new(key, InputRequest::elicit_form(message, schema))
    }

    /// A page for a person to visit (`elicitation/create`, mode `url`).
    #[must_use]
    pub fn url(key: impl Into<String>, message: impl Into<String>, url: impl Into<String>) -> Self {
        Self::new(key, InputRequest::elicit_url(message, url))
    }

    /// A prompt for the client's model (`sampling/createMessage`).
    #[must_use]
    pub fn sample(key: impl Into<String>, params: Value) -> Self {
        Self::new(key, InputRequest::sampling(params))
    }

    /// The client's roots (`roots/list`).
    #[must_use]
    pub fn roots(key: impl Into<String>) -> Self {
        Self::new(key, InputRequest::roots())
    }

    /// The whole result that stands for an answer when there is none by the deadline, or when
    /// this client cannot be asked.
    #[must_use]
    pub fn default_response(mut self, response: Value) -> Self {
        self.default = Some(response);
        self
    }

    /// The content that an absent person is taken to have accepted.
    #[must_use]
    pub fn default_content(self, content: Value) -> Self {
        self.default_response(json!({ "action": "accept", "content": content }))
    }

    /// Asked only when the call may be a task; otherwise the default is taken.
    #[must_use]
    pub fn task_only(mut self) -> Self {
        self.task_only = true;
        self
    }

    /// How long it may wait; the tool's `input_deadline` if not said.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// Its key.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    pub(crate) fn kind(&self) -> Option<InputKind> {
        self.request.kind()
    }
}

/// Answers, by the keys of their questions.
#[derive(Clone, Debug, Default)]
pub struct Answers(pub(crate) BTreeMap<String, Box<RawValue>>);

/// What became of a form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Elicited<T> {
    /// Filled in.
    Accepted(T),
    /// Refused.
    Declined,
    /// Closed without an answer.
    Cancelled,
}

impl<T> Elicited<T> {
    /// What was filled in, if it was.
    pub fn accepted(self) -> Option<T> {
        match self {
            Self::Accepted(content) => Some(content),
            Self::Declined | Self::Cancelled => None,
        }
    }
}

impl Answers {
    /// The answer to a form.
    ///
    /// # Errors
    /// When there is none under this key, or its content does not fit `T`.
    pub fn elicited<T: DeserializeOwned>(&self, key: &str) -> Result<Elicited<T>, ToolError> {
        let answer: Value = self.result(key)?;
        match answer["action"].as_str() {
            Some("accept") => {
                let content = answer.get("content").cloned().unwrap_or_else(|| json!({}));
                serde_json::from_value(content)
                    .map(Elicited::Accepted)
                    .map_err(|error| {
                        ToolError::failed(
                            protocol::code::INTERNAL_ERROR,
                            format!("the answer to \"{key}\" does not fit: {error}"),
                        )
                    })
            }
            Some("decline") => Ok(Elicited::Declined),
            _ => Ok(Elicited::Cancelled),
        }
    }

    /// The whole result of a request, as the client sent it.
    ///
    /// # Errors
    /// When there is none under this key, or it does not fit `T`.
    pub fn result<T: DeserializeOwned>(&self, key: &str) -> Result<T, ToolError> {
        let raw = self.0.get(key).ok_or_else(|| {
            ToolError::failed(
                protocol::code::INTERNAL_ERROR,
                format!("\"{key}\" was not asked"),
            )
        })?;
        serde_json::from_str(raw.get()).map_err(|error| {
            ToolError::failed(
                protocol::code::INTERNAL_ERROR,
                format!("the answer to \"{key}\" does not fit: {error}"),
            )
        })
    }
}
