//! What we ask of other servers over HTTP has in common: one client, its TLS, our credentials, and
//! that nobody else's host is ever asked.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, StatusCode, Uri};
use http_body_util::Full;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

/// Redirects within one server that are followed.
pub(crate) const REDIRECTS_MAX: usize = 3;
/// A peer that has vanished is noticed by then, also while a call is silent.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// A client, with its connections.
pub(crate) type Pool = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// A client that waits at most this long for a connection.
///
/// # Errors
/// In words, when TLS cannot be had.
pub(crate) fn pool(connect: Duration) -> Result<Pool, String> {
    let provider = rustls::crypto::ring::default_provider();
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_connect_timeout(Some(connect));
    connector.set_keepalive(Some(KEEPALIVE));
    connector.set_nodelay(true);
    let connector = HttpsConnectorBuilder::new()
        .with_provider_and_webpki_roots(provider)
        .map_err(|error| format!("TLS: {error}"))?
        .https_or_http()
        .enable_http1()
        .wrap_connector(connector);
    Ok(Client::builder(TokioExecutor::new()).build(connector))
}

/// Where a server sends us: only to another path of its own, and with the same request, so that
/// neither our credentials nor a caller's arguments end up elsewhere.
///
/// # Errors
/// In words, when it is not followed.
pub(crate) fn redirected(
    from: &Uri,
    status: StatusCode,
    to: Option<&HeaderValue>,
) -> Result<Uri, String> {
    let to = to.and_then(|to| to.to_str().ok()).unwrap_or_default();
    let refuse = |why: &str| {
        Err(format!(
            "redirects ({status}) to `{to}`, which is not followed: {why}"
        ))
    };
    let path = if to.starts_with('/') && !to.starts_with("//") {
        Some(to)
    } else {
        None
    };
    let uri = match path {
        Some(path) => {
            let mut parts = from.clone().into_parts();
            parts.path_and_query = path.parse().ok();
            match Uri::from_parts(parts) {
                Ok(uri) => uri,
                Err(_) => return refuse("it is no URL"),
            }
        }
        None => {
            let Ok(uri) = to.parse::<Uri>() else {
                return refuse("it is no URL");
            };
            if (uri.scheme(), uri.authority()) != (from.scheme(), from.authority()) {
                return refuse("it is another server. Set `url` to it if you trust it");
            }
            uri
        }
    };
    if !matches!(status.as_u16(), 307 | 308) {
        return refuse("it would not repeat the request. Set `url` to it");
    }
    Ok(uri)
}

/// `Bearer …`, which no log prints.
pub(crate) fn bearer(token: &str) -> Option<HeaderValue> {
    let token = token.trim();
    let mut value: HeaderValue = format!("Bearer {token}").parse().ok()?;
    value.set_sensitive(true);
    (!token.is_empty()).then_some(value)
}

/// An error with all its causes.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
