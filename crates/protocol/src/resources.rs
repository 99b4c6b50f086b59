//! Resources: `resources/list`, `resources/templates/list`, `resources/read`
//! (MCP 2026-07-28 §Resources).

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;

pub use crate::content::ResourceContents;
use crate::discover::{CacheScope, Caching};
use crate::input::InputResponses;
use crate::jsonrpc::{ErrorObject, InvalidParams};
use crate::listed::{one_line, write_page};
use crate::meta::ResultMeta;
use crate::passed_on::complete;
use crate::raw::{Object, shorten};
use crate::writer;

/// The longest URI that is looked at, in bytes.
pub const URI_BYTES_MAX: usize = 8 * 1024;

/// A resource as it is listed (MCP 2026-07-28 schema `Resource`).
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Resource {
    /// What it is read by.
    pub uri: String,
    /// For programs.
    pub name: String,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// For models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// For example `text/plain`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// Bytes, before any encoding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// For whom, how important; as its author wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Box<RawValue>>,
    /// Icons, as their author wrote them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icons: Option<Box<RawValue>>,
    /// Metadata.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Box<RawValue>>,
}

/// A family of resources (MCP 2026-07-28 schema `ResourceTemplate`).
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceTemplate {
    /// RFC 6570; see [`UriTemplate`](crate::template::UriTemplate) for which of it we match.
    pub uri_template: String,
    /// For programs.
    pub name: String,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// For models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The same for all of them, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// For whom, how important; as its author wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Box<RawValue>>,
    /// Icons, as their author wrote them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icons: Option<Box<RawValue>>,
    /// Metadata.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Box<RawValue>>,
}

impl Resource {
    /// A resource with what every resource must have.
    pub fn new(uri: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            uri: uri.into(),
            name: name.into(),
            title: None,
            description: None,
            mime_type: None,
            size: None,
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

    /// With its type, as `text/plain`.
    #[must_use]
    pub fn with_mime_type(mut self, mime_type: impl Into<String>) -> Self {
        self.mime_type = Some(mime_type.into());
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
    /// With what is wrong.
    pub fn check(&self) -> Result<(), String> {
        check_uri(&self.uri)?;
        check_name("resource", &self.uri, &self.name)
    }
}

impl ResourceTemplate {
    /// A template with what every template must have.
    pub fn new(uri_template: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            uri_template: uri_template.into(),
            name: name.into(),
            title: None,
            description: None,
            mime_type: None,
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

    /// With the type of all of them, as `text/plain`.
    #[must_use]
    pub fn with_mime_type(mut self, mime_type: impl Into<String>) -> Self {
        self.mime_type = Some(mime_type.into());
        self
    }

    /// The JSON text on one line, as it is listed.
    #[must_use]
    pub fn to_json(&self) -> Bytes {
        one_line(self)
    }
}

fn check_name(what: &str, uri: &str, name: &str) -> Result<(), String> {
    if name.is_empty() || name.len() > 1024 {
        return Err(format!(
            "{what} {}: its name must be 1 to 1024 bytes long",
            shorten(uri)
        ));
    }
    Ok(())
}

/// Whether a text can be a URI: a scheme, and nothing that RFC 3986 forbids everywhere.
fn check_uri(uri: &str) -> Result<(), String> {
    let refuse = |what: &str| Err(format!("resource {}: {what}", shorten(uri)));
    if uri.len() > URI_BYTES_MAX {
        return refuse("its URI is longer than 8192 bytes");
    }
    let scheme = uri.split_once(':').map_or("", |(scheme, _)| scheme);
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    if !scheme.starts_with(|c: char| c.is_ascii_alphabetic()) || !scheme.bytes().all(plain) {
        return refuse("its URI must begin with a scheme, as in file:///a.txt");
    }
    let forbidden = |byte: u8| byte <= b' ' || byte == 0x7f || b"\"<>\\^`{|}".contains(&byte);
    if uri.bytes().any(forbidden) {
        return refuse("its URI holds a character that must be percent-encoded");
    }
    Ok(())
}

/// One page of `resources/list`.
#[must_use]
pub fn write_list<'a>(
    definitions: impl IntoIterator<Item = &'a [u8]>,
    next_cursor: Option<&str>,
    caching: Caching,
    meta: &ResultMeta,
) -> Bytes {
    write_page("resources", definitions, next_cursor, caching, meta)
}

/// One page of `resources/templates/list`.
#[must_use]
pub fn write_templates<'a>(
    definitions: impl IntoIterator<Item = &'a [u8]>,
    next_cursor: Option<&str>,
    caching: Caching,
    meta: &ResultMeta,
) -> Bytes {
    write_page("resourceTemplates", definitions, next_cursor, caching, meta)
}

/// The params of `resources/read`.
#[derive(Clone, Debug)]
pub struct ReadParams {
    /// Which resource, not yet looked up.
    pub uri: String,
    /// Answers to an `InputRequiredResult`; null counts as absent.
    pub input_responses: Option<InputResponses>,
    /// The state of an `InputRequiredResult`, echoed: attacker-controlled.
    pub request_state: Option<String>,
}

impl ReadParams {
    /// Reads the params.
    ///
    /// # Errors
    /// If `uri` is missing or longer than [`URI_BYTES_MAX`], or a member has the wrong type.
    pub fn parse(params: Option<&RawValue>) -> Result<Self, InvalidParams> {
        let params = Object::params(params)?;
        let uri = params.required_string("uri")?;
        if uri.len() > URI_BYTES_MAX {
            return Err(InvalidParams::new(format!(
                "`uri` is {} bytes long; at most {URI_BYTES_MAX} are taken",
                uri.len()
            )));
        }
        Ok(Self {
            uri,
            input_responses: params
                .present("inputResponses")
                .map(InputResponses::read)
                .transpose()?,
            request_state: params.string("requestState")?,
        })
    }
}

/// The error for a resource that does not exist for this caller (SEP-2164).
#[must_use]
pub fn not_found(uri: &str) -> ErrorObject {
    ErrorObject::invalid_params("Resource not found").with_data(json!({ "uri": uri }))
}

/// What a resource holds (MCP 2026-07-28 schema `ReadResourceResult`).
#[derive(Clone, Debug)]
pub struct ReadResult {
    /// One or several: a folder may be read as its files.
    pub contents: Vec<ResourceContents>,
    /// How long and for whom it may be cached.
    pub caching: Caching,
    /// The text that some other program printed: it is what is stored and sent.
    passed_on: Option<Bytes>,
}

/// Stale at once, and for this caller only.
const UNCACHED: Caching = Caching {
    ttl_ms: 0,
    scope: CacheScope::Private,
};

impl ReadResult {
    /// These contents; not to be cached.
    #[must_use]
    pub fn new(contents: Vec<ResourceContents>) -> Self {
        Self {
            contents,
            caching: UNCACHED,
            passed_on: None,
        }
    }

    /// To be cached for so many milliseconds, by whom `scope` says.
    #[must_use]
    pub fn cached(mut self, ttl_ms: u64, scope: CacheScope) -> Self {
        self.caching = Caching { ttl_ms, scope };
        self
    }

    /// What some other program printed, to be passed on as it is; `ttlMs` and `cacheScope` are
    /// added where an older server left them out.
    ///
    /// # Errors
    /// With what is wrong, if it is no result of `resources/read`.
    pub fn passed_on(json: &[u8]) -> Result<Self, String> {
        let text = complete(json, "contents", '[')?;
        let object = Object::read(&text).map_err(|error| error.to_string())?;
        let contents = object.get("contents").map_or("[]", RawValue::get);
        let contents: Vec<ResourceContents> = serde_json::from_str(contents)
            .map_err(|error| format!("not the contents of a resource: {error}"))?;
        let mut added = String::new();
        if object.get("ttlMs").is_none() {
            added.push_str("\"ttlMs\":0,");
        }
        if object.get("cacheScope").is_none() {
            added.push_str("\"cacheScope\":\"private\",");
        }
        let whole = format!("{{{added}{}", &text[1..]);
        Ok(Self {
            passed_on: Some(Bytes::from(whole)),
            ..Self::new(contents)
        })
    }

    /// The JSON text, as it is stored.
    #[must_use]
    pub fn to_json(&self) -> Bytes {
        match &self.passed_on {
            Some(text) => text.clone(),
            None => writer::Object::with_capacity(256)
                .value("resultType", "complete")
                .value("contents", &self.contents)
                .integer("ttlMs", self.caching.ttl_ms)
                .value("cacheScope", &self.caching.scope)
                .finish(),
        }
    }
}
