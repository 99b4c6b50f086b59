//! Protected resource metadata (RFC 9728): where a client learns which authorization servers to ask
//! for a token. Public, and the same for everybody.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::config::{Config, Mode};

/// RFC 9728 §3.
const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

/// The document and its places.
pub(super) struct Metadata {
    paths: Vec<String>,
    document: Bytes,
    /// Where the document is, as a challenge says it.
    pub(super) url: String,
}

impl Metadata {
    /// `None` if no authorization server is there to be named.
    pub(super) fn new(config: &Config, endpoint_path: &str) -> Option<Self> {
        if config.mode() != Mode::Tokens || config.issuers.is_empty() {
            return None;
        }
        let (origin, path) = split(&config.resource);
        // At the root, and after the root the path of the resource (§3.1). Behind a proxy that
        // rewrites paths, ours is another than the one that clients see.
        let mut paths = vec![
            WELL_KNOWN.to_owned(),
            format!("{WELL_KNOWN}{path}"),
            format!("{WELL_KNOWN}{endpoint_path}"),
        ];
        paths.dedup();
        let issuers: Vec<&str> = config
            .issuers
            .iter()
            .map(|issuer| issuer.issuer.as_str())
            .collect();
        let mut document = Map::new();
        document.insert("resource".to_owned(), json!(config.resource));
        document.insert("authorization_servers".to_owned(), json!(issuers));
        document.insert("bearer_methods_supported".to_owned(), json!(["header"]));
        let scopes = config.scopes.all();
        if !scopes.is_empty() {
            document.insert("scopes_supported".to_owned(), json!(scopes));
        }
        let url = if config.resource_metadata.is_empty() {
            format!("{origin}{WELL_KNOWN}{path}")
        } else {
            config.resource_metadata.clone()
        };
        Some(Self {
            paths,
            document: Value::Object(document).to_string().into(),
            url,
        })
    }

    /// The document, if it is at that path.
    pub(super) fn at(&self, path: &str) -> Option<Bytes> {
        let here = self.paths.iter().any(|own| own == path);
        here.then(|| self.document.clone())
    }
}

/// Scheme and host, and the path.
pub(super) fn split(url: &str) -> (&str, &str) {
    let start = url.find("://").map_or(0, |at| at + 3);
    let path = url[start..].find('/');
    url.split_at(path.map_or(url.len(), |at| start + at))
}

#[cfg(test)]
mod tests {
    use super::super::issuer::Issuer;
    use super::*;

    fn metadata(resource: &str) -> Metadata {
        let config = Config {
            mode: Some(Mode::Tokens),
            resource: resource.to_owned(),
            issuers: vec![Issuer {
                issuer: "https://id.example.com".to_owned(),
                ..Issuer::default()
            }],
            ..Config::default()
        };
        Metadata::new(&config, "/mcp").unwrap()
    }

    #[test]
    fn it_is_at_both_places() {
        let metadata = metadata("https://a.example.com/x/mcp");
        assert_eq!(
            metadata.url,
            "https://a.example.com/.well-known/oauth-protected-resource/x/mcp"
        );
        for suffix in ["", "/x/mcp", "/mcp"] {
            assert!(metadata.at(&format!("{WELL_KNOWN}{suffix}")).is_some());
        }
        for other in ["/other", "/mcp/", "x"] {
            assert!(metadata.at(&format!("{WELL_KNOWN}{other}")).is_none());
        }
    }

    #[test]
    fn a_server_at_the_root_has_one_place() {
        let metadata = metadata("https://a.example.com");
        assert_eq!(
            metadata.url,
            "https://a.example.com/.well-known/oauth-protected-resource"
        );
        let document: Value = serde_json::from_slice(&metadata.document).unwrap();
        assert_eq!(
            document,
            json!({"resource": "https://a.example.com",
                   "authorization_servers": ["https://id.example.com"],
                   "bearer_methods_supported": ["header"]})
        );
    }

    #[test]
    fn development_has_none() {
        assert!(Metadata::new(&Config::default(), "/mcp").is_none());
    }
}
