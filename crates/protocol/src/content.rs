//! Content blocks of a tool's result (MCP 2026-07-28 schema `ContentBlock`).

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// One block, as far as we know it; what an upstream server sent is kept as text beside it
/// ([`CallToolResult::passed_on`](crate::tools::CallToolResult::passed_on)).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Content {
    /// Text.
    Text {
        /// The text.
        text: String,
        /// For whom, how important.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        annotations: Option<Map<String, Value>>,
        /// Metadata.
        #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
        meta: Option<Map<String, Value>>,
    },
    /// An image.
    Image(Media),
    /// A sound.
    Audio(Media),
    /// A resource, included.
    Resource {
        /// The resource.
        resource: ResourceContents,
        /// For whom, how important.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        annotations: Option<Map<String, Value>>,
        /// Metadata.
        #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
        meta: Option<Map<String, Value>>,
    },
    /// A resource to be read elsewhere.
    ResourceLink(ResourceLink),
}

/// Bytes in base64 with their type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Media {
    /// Base64.
    pub data: String,
    /// For example `image/png`.
    pub mime_type: String,
    /// For whom, how important.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Map<String, Value>>,
    /// Metadata.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Map<String, Value>>,
}

/// A resource's contents: exactly one of `text` and `blob`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceContents {
    /// The resource's name.
    pub uri: String,
    /// For example `text/plain`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// Text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blob: Option<String>,
    /// Metadata.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Map<String, Value>>,
}

/// A pointer to a resource (MCP 2026-07-28 schema `ResourceLink`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceLink {
    /// The resource's name for programs.
    pub uri: String,
    /// A short name.
    pub name: String,
    /// A name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// For example `text/plain`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// Bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// For whom, how important.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Map<String, Value>>,
    /// Metadata.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Map<String, Value>>,
}

impl Content {
    /// Text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text {
            text: text.into(),
            annotations: None,
            meta: None,
        }
    }

    /// An image in base64.
    pub fn image(data: impl Into<String>, mime_type: impl Into<String>) -> Self {
        Self::Image(Media::new(data.into(), mime_type.into()))
    }

    /// A sound in base64.
    pub fn audio(data: impl Into<String>, mime_type: impl Into<String>) -> Self {
        Self::Audio(Media::new(data.into(), mime_type.into()))
    }

    /// An included resource of text.
    pub fn text_resource(
        uri: impl Into<String>,
        mime_type: impl Into<String>,
        text: impl Into<String>,
    ) -> Self {
        let resource = ResourceContents {
            text: Some(text.into()),
            ..ResourceContents::of(uri)
        };
        Self::resource(ResourceContents {
            mime_type: Some(mime_type.into()),
            ..resource
        })
    }

    /// An included resource of bytes in base64.
    pub fn blob_resource(
        uri: impl Into<String>,
        mime_type: impl Into<String>,
        blob: impl Into<String>,
    ) -> Self {
        let resource = ResourceContents {
            blob: Some(blob.into()),
            ..ResourceContents::of(uri)
        };
        Self::resource(ResourceContents {
            mime_type: Some(mime_type.into()),
            ..resource
        })
    }

    /// A pointer to a resource.
    pub fn resource_link(uri: impl Into<String>, name: impl Into<String>) -> Self {
        Self::ResourceLink(ResourceLink {
            uri: uri.into(),
            name: name.into(),
            title: None,
            description: None,
            mime_type: None,
            size: None,
            annotations: None,
            meta: None,
        })
    }

    fn resource(resource: ResourceContents) -> Self {
        Self::Resource {
            resource,
            annotations: None,
            meta: None,
        }
    }

    /// The text, if the block is text.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text { text, .. } => Some(text),
            Self::Image(_) | Self::Audio(_) | Self::Resource { .. } | Self::ResourceLink(_) => None,
        }
    }
}

impl Media {
    fn new(data: String, mime_type: String) -> Self {
        Self {
            data,
            mime_type,
            annotations: None,
            meta: None,
        }
    }
}

impl ResourceContents {
    /// A resource's text.
    pub fn text(
        uri: impl Into<String>,
        mime_type: impl Into<String>,
        text: impl Into<String>,
    ) -> Self {
        Self {
            mime_type: Some(mime_type.into()),
            text: Some(text.into()),
            ..Self::of(uri)
        }
    }

    /// A resource's bytes in base64.
    pub fn blob(
        uri: impl Into<String>,
        mime_type: impl Into<String>,
        blob: impl Into<String>,
    ) -> Self {
        Self {
            mime_type: Some(mime_type.into()),
            blob: Some(blob.into()),
            ..Self::of(uri)
        }
    }

    fn of(uri: impl Into<String>) -> Self {
        Self {
            uri: uri.into(),
            mime_type: None,
            text: None,
            blob: None,
            meta: None,
        }
    }
}
