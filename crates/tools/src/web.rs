//! What we ask of other servers over HTTP has in common: one client, its TLS, our credentials, and
//! that nobody else's host is ever asked.

mod hidden;
mod tls;

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, StatusCode, Uri};
use http_body_util::Full;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::TokioExecutor;

pub(crate) use hidden::{BLANK, Hidden, SECRET_BYTES_MIN};

/// Redirects within one server that are followed.
pub(crate) const REDIRECTS_MAX: usize = 3;

/// A client, with its connections.
pub(crate) type Pool = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// A client that waits at most `connect` for a connection, and trusts the public authorities, or if
/// there is a `ca_file` those in it.
///
/// # Errors
/// In words, naming the key, when TLS cannot be had so.
pub(crate) fn pool(ca_file: Option<&Path>, connect: Duration) -> Result<Pool, String> {
    let connector = tls::connector(ca_file, connect)?;
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

/// Why there was no answer, and what may be done about it.
pub(crate) fn unanswered(error: &Error) -> String {
    let hint = if error.is_connect() {
        tls::hint(error)
    } else {
        ""
    };
    format!("{}{hint}", chain(error))
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
