//! `ClientCapabilities`: what a client declares with each request (MCP 2026-07-28
//! schema `ClientCapabilities`; SEP-2663 §Capability Negotiation).

use std::sync::Arc;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::input::InputKind;
use crate::jsonrpc::InvalidParams;
use crate::meta::EXTENSION_TASKS;
use crate::raw::{self, Object};

/// What a client can do, as declared by one request. The text is kept as sent:
/// a task's row stores it, because later questions may only be of kinds that the
/// creating call declared.
#[derive(Clone, Debug)]
pub struct ClientCapabilities {
    json: Arc<RawValue>,
    declares_tasks: bool,
}

impl ClientCapabilities {
    /// From the JSON text of an object, for example from a task's row.
    ///
    /// # Errors
    /// If it isn't one JSON object.
    pub fn parse(json: &[u8]) -> Result<Self, InvalidParams> {
        let value: &RawValue = serde_json::from_slice(json)
            .map_err(|error| InvalidParams::new(format!("client capabilities: {error}")))?;
        Self::read(value)
    }

    pub(crate) fn read(value: &RawValue) -> Result<Self, InvalidParams> {
        let object = Object::strict(value, "the client's capabilities")?;
        let extension = object
            .get("extensions")
            .and_then(|extensions| raw::member(extensions, EXTENSION_TASKS));
        Ok(Self {
            json: Arc::from(value.to_owned()),
            declares_tasks: extension.is_some_and(raw::is_object),
        })
    }

    /// The JSON text as it was sent.
    #[must_use]
    pub fn as_json(&self) -> &str {
        self.json.get()
    }

    /// Whether the tasks extension is declared where it counts: in `extensions`,
    /// with an object as value (SEP-2663 §Capability Negotiation).
    #[must_use]
    pub fn declares_tasks(&self) -> bool {
        self.declares_tasks
    }

    /// Whether the client can answer requests of this kind. `elicitation: {}`
    /// without a mode means form (MCP 2026-07-28 §Elicitation).
    #[must_use]
    pub fn supports(&self, kind: InputKind) -> bool {
        match kind {
            InputKind::ElicitForm => {
                self.object_at(&["elicitation", "form"])
                    || (self.object_at(&["elicitation"])
                        && !self.object_at(&["elicitation", "url"]))
            }
            InputKind::ElicitUrl => self.object_at(&["elicitation", "url"]),
            InputKind::Sampling => self.object_at(&["sampling"]),
            InputKind::Roots => self.object_at(&["roots"]),
        }
    }

    /// What of `required`, a capabilities object, is not declared; `None` if all
    /// is. For `data.requiredCapabilities` of `-32021`.
    #[must_use]
    pub fn missing(&self, required: &Map<String, Value>) -> Option<Map<String, Value>> {
        let mut missing = Map::new();
        for (name, settings) in required {
            let lacking = match name.as_str() {
                "elicitation" => self.missing_elicitation(settings),
                _ => self.missing_at(&mut vec![name], settings),
            };
            if let Some(lacking) = lacking {
                missing.insert(name.clone(), lacking);
            }
        }
        (!missing.is_empty()).then_some(missing)
    }

    fn missing_elicitation(&self, settings: &Value) -> Option<Value> {
        let url = settings.get("url").is_some();
        let form = settings.get("form").is_some() || !url;
        let mut missing = Map::new();
        for (needed, kind, name) in [
            (form, InputKind::ElicitForm, "form"),
            (url, InputKind::ElicitUrl, "url"),
        ] {
            if needed && !self.supports(kind) {
                missing.insert(name.to_owned(), Value::Object(Map::new()));
            }
        }
        (!missing.is_empty()).then_some(Value::Object(missing))
    }

    fn missing_at<'a>(&self, path: &mut Vec<&'a str>, settings: &'a Value) -> Option<Value> {
        if !self.object_at(path) {
            return Some(settings.clone());
        }
        let mut missing = Map::new();
        for (name, inner) in settings
            .as_object()?
            .iter()
            .filter(|(_, inner)| inner.is_object())
        {
            path.push(name);
            if let Some(lacking) = self.missing_at(path, inner) {
                missing.insert(name.clone(), lacking);
            }
            path.pop();
        }
        (!missing.is_empty()).then_some(Value::Object(missing))
    }

    fn object_at(&self, path: &[&str]) -> bool {
        path.iter()
            .try_fold(&*self.json, |value, name| raw::member(value, name))
            .is_some_and(raw::is_object)
    }
}
