//! `completion/complete`: what an argument of a prompt, or a variable of a resource template, may
//! become (MCP 2026-07-28 §Completion).

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::jsonrpc::{ErrorObject, InvalidParams};
use crate::passed_on::complete;
use crate::prompts::texts;
use crate::raw::{Object, shorten};
use crate::{prompts, resources, writer};

/// Values in one answer, at most.
pub const VALUES_MAX: usize = 100;

/// What is being filled in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reference {
    /// A prompt, by its name.
    Prompt(String),
    /// A resource template, by its text; or a resource, by its URI.
    Resource(String),
}

impl Reference {
    /// The error for something that does not exist for this caller.
    #[must_use]
    pub fn unknown(&self) -> ErrorObject {
        match self {
            Self::Prompt(name) => prompts::unknown_prompt(name),
            Self::Resource(uri) => resources::not_found(uri),
        }
    }
}

/// The params of `completion/complete`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompleteParams {
    /// What is being filled in.
    pub reference: Reference,
    /// Which argument or variable.
    pub argument: String,
    /// What was typed of it so far.
    pub value: String,
    /// The arguments that have a value already.
    pub context: BTreeMap<String, String>,
}

impl CompleteParams {
    /// Reads the params.
    ///
    /// # Errors
    /// If `ref` or `argument` is missing, or a member has the wrong type.
    pub fn parse(params: Option<&RawValue>) -> Result<Self, InvalidParams> {
        let params = Object::params(params)?;
        let missing = |name: &str| InvalidParams::new(format!("`{name}` is missing"));
        let reference = params.present("ref").ok_or_else(|| missing("ref"))?;
        let reference = Object::strict(reference, "`ref`")?;
        let kind = reference.required_string("type")?;
        let reference = match kind.as_str() {
            "ref/prompt" => Reference::Prompt(reference.required_string("name")?),
            "ref/resource" => Reference::Resource(reference.required_string("uri")?),
            other => {
                return Err(InvalidParams::new(format!(
                    "`ref.type` is `{}`: it must be ref/prompt or ref/resource",
                    shorten(other)
                )));
            }
        };
        let argument = params
            .present("argument")
            .ok_or_else(|| missing("argument"))?;
        let argument = Object::strict(argument, "`argument`")?;
        let context = match params.present("context") {
            Some(context) => texts(
                Object::strict(context, "`context`")?.present("arguments"),
                "`context.arguments`",
            )?,
            None => BTreeMap::new(),
        };
        Ok(Self {
            reference,
            argument: argument.required_string("name")?,
            value: argument.required_string("value")?,
            context,
        })
    }

    /// The params as another server takes them, with the reference's name or URI as it knows it.
    #[must_use]
    pub fn to_params(&self) -> Value {
        let reference = match &self.reference {
            Reference::Prompt(name) => json!({ "type": "ref/prompt", "name": name }),
            Reference::Resource(uri) => json!({ "type": "ref/resource", "uri": uri }),
        };
        let mut params = json!({
            "ref": reference,
            "argument": { "name": self.argument, "value": self.value },
        });
        if !self.context.is_empty() {
            params["context"] = json!({ "arguments": self.context });
        }
        params
    }
}

/// What the value may become (MCP 2026-07-28 schema `CompleteResult`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Completion {
    /// At most [`VALUES_MAX`].
    pub values: Vec<String>,
    /// How many there are, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// There are more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub has_more: Option<bool>,
}

impl Completion {
    /// These values; what is beyond [`VALUES_MAX`] is counted and left out.
    #[must_use]
    pub fn new(mut values: Vec<String>) -> Self {
        let total = u64::try_from(values.len()).ok();
        let has_more = Some(values.len() > VALUES_MAX);
        values.truncate(VALUES_MAX);
        Self {
            values,
            total,
            has_more,
        }
    }

    /// Those of `all` that begin with what was typed.
    #[must_use]
    pub fn of<S: AsRef<str>>(all: impl IntoIterator<Item = S>, typed: &str) -> Self {
        let fitting = all
            .into_iter()
            .filter(|one| one.as_ref().starts_with(typed));
        Self::new(fitting.map(|one| one.as_ref().to_owned()).collect())
    }

    /// What another server answered.
    ///
    /// # Errors
    /// With what is wrong, if it is no result of `completion/complete`.
    pub fn passed_on(json: &[u8]) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Wire {
            completion: Completion,
        }
        let text = complete(json, "completion", '{')?;
        let read: Wire =
            serde_json::from_str(&text).map_err(|error| format!("not a completion: {error}"))?;
        let mut completion = read.completion;
        if completion.values.len() > VALUES_MAX {
            completion.values.truncate(VALUES_MAX);
            completion.has_more = Some(true);
        }
        Ok(completion)
    }

    /// The JSON text of the result, as it is stored.
    #[must_use]
    pub fn to_json(&self) -> Bytes {
        writer::Object::with_capacity(256)
            .value("resultType", "complete")
            .value("completion", self)
            .finish()
    }
}
