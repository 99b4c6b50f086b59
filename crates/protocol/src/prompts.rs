//! Prompts: `prompts/list` and `prompts/get` (MCP 2026-07-28 §Prompts).

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::content::Content;
use crate::discover::Caching;
use crate::input::InputResponses;
use crate::jsonrpc::{ErrorObject, InvalidParams};
use crate::listed::{one_line, write_page};
use crate::meta::ResultMeta;
use crate::passed_on::complete;
use crate::raw::{Object, shorten};
use crate::writer;

/// A prompt as it is listed (MCP 2026-07-28 schema `Prompt`).
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Prompt {
    /// What it is got by.
    pub name: String,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// What it takes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<PromptArgument>,
    /// Icons, as their author wrote them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icons: Option<Box<RawValue>>,
    /// Metadata.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Box<RawValue>>,
}

/// One argument of a prompt (MCP 2026-07-28 schema `PromptArgument`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PromptArgument {
    /// Its name.
    pub name: String,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// It must be given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub required: Option<bool>,
}

impl Prompt {
    /// A prompt without arguments.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            title: None,
            description: None,
            arguments: Vec::new(),
            icons: None,
            meta: None,
        }
    }

    /// With what it is for.
    #[must_use]
    pub fn with_description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }

    /// With an argument that must be given.
    #[must_use]
    pub fn needing(self, name: impl Into<String>, description: impl Into<String>) -> Self {
        self.taking(name.into(), description.into(), Some(true))
    }

    /// With an argument that may be left out.
    #[must_use]
    pub fn accepting(self, name: impl Into<String>, description: impl Into<String>) -> Self {
        self.taking(name.into(), description.into(), None)
    }

    fn taking(mut self, name: String, description: String, required: Option<bool>) -> Self {
        self.arguments.push(PromptArgument {
            name,
            title: None,
            description: Some(description),
            required,
        });
        self
    }

    /// The JSON text on one line, as it is listed.
    #[must_use]
    pub fn to_json(&self) -> Bytes {
        one_line(self)
    }

    /// Whether clients will accept the definition.
    ///
    /// # Errors
    /// With what is wrong: a name that is empty, too long, or not printable; an argument twice.
    pub fn check(&self) -> Result<(), String> {
        let fits = (1..=256).contains(&self.name.len()) && !self.name.contains(char::is_control);
        if !fits {
            return Err(format!(
                "prompt name `{}` must be 1 to 256 bytes of printable text",
                shorten(&self.name)
            ));
        }
        for (at, argument) in self.arguments.iter().enumerate() {
            let name = &argument.name;
            if name.is_empty() || self.arguments[..at].iter().any(|a| a.name == *name) {
                return Err(format!(
                    "prompt {}: the argument `{}` has no name of its own",
                    shorten(&self.name),
                    shorten(name)
                ));
            }
        }
        Ok(())
    }

    /// Whether the prompt can be got with these arguments.
    ///
    /// # Errors
    /// Naming the required arguments that are missing.
    pub fn check_arguments(&self, given: &BTreeMap<String, String>) -> Result<(), InvalidParams> {
        let missing: Vec<&str> = self
            .arguments
            .iter()
            .filter(|argument| argument.required == Some(true))
            .map(|argument| argument.name.as_str())
            .filter(|name| !given.contains_key(*name))
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        Err(InvalidParams::new(format!(
            "the prompt {} needs the arguments: {}",
            shorten(&self.name),
            missing.join(", ")
        )))
    }
}

/// One page of `prompts/list`.
#[must_use]
pub fn write_list<'a>(
    definitions: impl IntoIterator<Item = &'a [u8]>,
    next_cursor: Option<&str>,
    caching: Caching,
    meta: &ResultMeta,
) -> Bytes {
    write_page("prompts", definitions, next_cursor, caching, meta)
}

/// The params of `prompts/get`.
#[derive(Clone, Debug)]
pub struct GetParams {
    /// Which prompt, not yet looked up.
    pub name: String,
    /// Its arguments.
    pub arguments: BTreeMap<String, String>,
    /// Answers to an `InputRequiredResult`; null counts as absent.
    pub input_responses: Option<InputResponses>,
    /// The state of an `InputRequiredResult`, echoed: attacker-controlled.
    pub request_state: Option<String>,
}

impl GetParams {
    /// Reads the params.
    ///
    /// # Errors
    /// If `name` is missing, an argument is no string, or a member has the wrong type.
    pub fn parse(params: Option<&RawValue>) -> Result<Self, InvalidParams> {
        let params = Object::params(params)?;
        Ok(Self {
            name: params.required_string("name")?,
            arguments: texts(params.present("arguments"), "`arguments`")?,
            input_responses: params
                .present("inputResponses")
                .map(InputResponses::read)
                .transpose()?,
            request_state: params.string("requestState")?,
        })
    }
}

/// An object of strings.
pub(crate) fn texts(
    value: Option<&RawValue>,
    path: &str,
) -> Result<BTreeMap<String, String>, InvalidParams> {
    let Some(value) = value else {
        return Ok(BTreeMap::new());
    };
    let members = Object::strict(value, path)?.into_members();
    members
        .into_iter()
        .map(|(name, value)| match serde_json::from_str(value.get()) {
            Ok(text) => Ok((name.into_owned(), text)),
            Err(_) => Err(InvalidParams::new(format!(
                "{path}: `{}` must be a string",
                shorten(&name)
            ))),
        })
        .collect()
}

/// The error for a prompt that does not exist for this caller.
#[must_use]
pub fn unknown_prompt(name: &str) -> ErrorObject {
    ErrorObject::invalid_params(format!("Unknown prompt: {}", shorten(name)))
}

/// Who says a message of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The person.
    User,
    /// The model.
    Assistant,
}

/// One message of a prompt (MCP 2026-07-28 schema `PromptMessage`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PromptMessage {
    /// Who says it.
    pub role: Role,
    /// What is said.
    pub content: Content,
}

impl PromptMessage {
    /// What the person says.
    #[must_use]
    pub fn user(content: Content) -> Self {
        Self {
            role: Role::User,
            content,
        }
    }

    /// What the model says.
    #[must_use]
    pub fn assistant(content: Content) -> Self {
        Self {
            role: Role::Assistant,
            content,
        }
    }
}

/// A prompt, filled in (MCP 2026-07-28 schema `GetPromptResult`).
#[derive(Clone, Debug, Default)]
pub struct PromptResult {
    /// What it is for.
    pub description: Option<String>,
    /// What is said.
    pub messages: Vec<PromptMessage>,
    /// The text that some other program printed: it is what is stored and sent.
    passed_on: Option<Bytes>,
}

impl PromptResult {
    /// These messages.
    #[must_use]
    pub fn new(messages: Vec<PromptMessage>) -> Self {
        Self {
            messages,
            ..Self::default()
        }
    }

    /// One message of the person.
    pub fn text(text: impl Into<String>) -> Self {
        Self::new(vec![PromptMessage::user(Content::text(text))])
    }

    /// What some other program printed, to be passed on as it is. The fields hold what we
    /// understand of it.
    ///
    /// # Errors
    /// With what is wrong, if it is no result of `prompts/get`.
    pub fn passed_on(json: &[u8]) -> Result<Self, String> {
        let text = complete(json, "messages", '[')?;
        let value: serde_json::Value =
            serde_json::from_str(&text).map_err(|error| error.to_string())?;
        let messages = value["messages"].as_array().into_iter().flatten();
        Ok(Self {
            description: value["description"].as_str().map(str::to_owned),
            messages: messages
                .filter_map(|message| serde_json::from_value(message.clone()).ok())
                .collect(),
            passed_on: Some(Bytes::from(text)),
        })
    }

    /// The JSON text, as it is stored.
    #[must_use]
    pub fn to_json(&self) -> Bytes {
        match &self.passed_on {
            Some(text) => text.clone(),
            None => writer::Object::with_capacity(256)
                .value("resultType", "complete")
                .optional("description", self.description.as_ref())
                .value("messages", &self.messages)
                .finish(),
        }
    }
}
