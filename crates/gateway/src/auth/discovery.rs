//! Where an issuer says that its keys are: in its metadata, at one of several places.

use http::Uri;
use serde::Deserialize;

use super::fetch::{Client, fetchable};
use super::metadata;

/// Where the keys of `issuer` are, as the first of these places says that says it well.
///
/// # Errors
/// What is wrong at each of them.
pub(super) async fn keys_of(issuer: &str, places: &[Uri], client: &Client) -> Result<Uri, String> {
    let mut problems = Vec::new();
    for place in places {
        let read = client.get(place).await;
        match read.and_then(|json| jwks_uri(&json, issuer).map_err(|why| format!("{place} {why}")))
        {
            Ok(uri) => return Ok(uri),
            // Servers that answer 200 to whatever path they are asked for know others well.
            Err(problem) => problems.push(problem),
        }
    }
    Err(problems.join("; "))
}

fn jwks_uri(json: &[u8], issuer: &str) -> Result<Uri, String> {
    #[derive(Deserialize)]
    struct Metadata {
        issuer: String,
        jwks_uri: Option<String>,
    }
    let read = serde_json::from_slice(json);
    let metadata: Metadata = read.map_err(|error| format!("is no metadata: {error}"))?;
    // RFC 8414 §3.3: else another's metadata could be put in its place.
    if metadata.issuer != issuer {
        return Err(format!("is of another issuer: {:?}", metadata.issuer));
    }
    let uri = metadata.jwks_uri.ok_or("names no jwks_uri")?;
    fetchable(&uri).map_err(|problem| format!("has a jwks_uri that is not asked: {problem}"))
}

/// Where metadata of an issuer may be: RFC 8414 §3.1 first, then OpenID Connect Discovery §4, whose
/// suffix follows the whole issuer.
pub(super) fn metadata_urls(issuer: &str) -> Vec<Uri> {
    let issuer = issuer.trim_end_matches('/');
    let (origin, path) = metadata::split(issuer);
    let urls = [
        format!("{origin}/.well-known/oauth-authorization-server{path}"),
        format!("{origin}/.well-known/openid-configuration{path}"),
        format!("{issuer}/.well-known/openid-configuration"),
    ];
    let mut places: Vec<Uri> = urls.iter().filter_map(|url| url.parse().ok()).collect();
    places.dedup();
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_has_its_places() {
        let places =
            |issuer| -> Vec<String> { metadata_urls(issuer).iter().map(Uri::to_string).collect() };
        assert_eq!(
            places("https://id.example.com/realms/a"),
            [
                "https://id.example.com/.well-known/oauth-authorization-server/realms/a",
                "https://id.example.com/.well-known/openid-configuration/realms/a",
                "https://id.example.com/realms/a/.well-known/openid-configuration",
            ]
        );
        assert_eq!(
            places("https://id.example.com/"),
            [
                "https://id.example.com/.well-known/oauth-authorization-server",
                "https://id.example.com/.well-known/openid-configuration",
            ]
        );
    }
}
