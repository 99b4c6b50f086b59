//! Requests to issuers: within a time and a size, never anywhere else than where they were sent.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper_rustls::{ConfigBuilderExt as _, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

use crate::error::chain;

/// Of an answer. Sets of keys have a few thousand bytes.
const ANSWER_BYTES_MAX: usize = 512 * 1024;

/// Keeps connections to issuers.
#[derive(Clone)]
pub(super) struct Client {
    pool: Pool<HttpsConnector<HttpConnector>, Full<Bytes>>,
    timeout: Duration,
}

/// An answer that has come.
pub(super) struct Answered {
    pub(super) status: StatusCode,
    pub(super) body: Bytes,
}

impl Client {
    /// # Errors
    /// If the authorities cannot be read.
    pub(super) fn new(timeout: Duration, ca_file: Option<&Path>) -> Result<Self, String> {
        let builder =
            ClientConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
                .with_safe_default_protocol_versions()
                .expect("ring serves the default versions of TLS");
        let config = match ca_file {
            None => builder.with_webpki_roots(),
            Some(file) => builder.with_root_certificates(authorities(file)?),
        };
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(config.with_no_client_auth())
            .https_or_http()
            .enable_http1()
            .build();
        Ok(Self {
            pool: Pool::builder(TokioExecutor::new()).build(connector),
            timeout,
        })
    }

    /// Gets a document; anything but 200 is an error.
    pub(super) async fn get(&self, url: &Uri) -> Result<Bytes, String> {
        let request = Request::get(url.clone())
            .header(header::ACCEPT, "application/json")
            .body(Full::default())
            .map_err(|error| error.to_string())?;
        let answered = self.exchange(request).await?;
        match answered.status {
            StatusCode::OK => Ok(answered.body),
            // A redirect, too: it could lead anywhere.
            status => Err(format!("{url} answered {status}")),
        }
    }

    /// Sends a request. Redirects are answers like others.
    pub(super) async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<Answered, String> {
        let url = request.uri().clone();
        let exchange = async {
            let away = |error: hyper_util::client::legacy::Error| {
                format!("{url} cannot be reached: {}", chain(&error))
            };
            let answer = self.pool.request(request).await.map_err(away)?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX);
            let body = body.collect().await.map_err(|error| {
                if error.is::<LengthLimitError>() {
                    format!("{url} answered more than {ANSWER_BYTES_MAX} bytes")
                } else {
                    format!("{url} broke off: {error}")
                }
            })?;
            Ok(Answered {
                status,
                body: body.to_bytes(),
            })
        };
        let late = |_| Err(format!("{url} did not answer within {:?}", self.timeout));
        tokio::time::timeout(self.timeout, exchange)
            .await
            .unwrap_or_else(late)
    }
}

fn authorities(file: &Path) -> Result<RootCertStore, String> {
    let read = CertificateDer::pem_file_iter(file)
        .and_then(|certificates| certificates.collect::<Result<Vec<_>, _>>());
    let certificates = read.map_err(|error| format!("{}: {error}", file.display()))?;
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(certificates);
    if added == 0 {
        return Err(format!("{} holds no certificate", file.display()));
    }
    Ok(roots)
}

/// A URL that we may ask: what comes over an open way could be anybody's.
pub(crate) fn fetchable(url: &str) -> Result<Uri, String> {
    let uri: Uri = url
        .parse()
        .map_err(|_| format!("{url:?} is not a URL such as https://id.example.com"))?;
    let host = uri.host().unwrap_or_default();
    let authority = uri.authority().map_or("", http::uri::Authority::as_str);
    if host.is_empty() || authority.contains('@') {
        return Err(format!(
            "{url:?} is not a URL such as https://id.example.com"
        ));
    }
    match uri.scheme_str() {
        Some("https") => Ok(uri),
        Some("http") if is_loopback(host) => Ok(uri),
        _ => Err(format!(
            "{url:?} must begin with https:// (http:// only on loopback)"
        )),
    }
}

fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare.eq_ignore_ascii_case("localhost")
        || bare
            .parse()
            .is_ok_and(|address: IpAddr| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_safe_ways_are_asked() {
        for good in [
            "https://id.example.com",
            "http://127.0.0.1:8080/x",
            "http://[::1]:1",
            "http://localhost",
        ] {
            assert!(fetchable(good).is_ok(), "{good}");
        }
        for bad in [
            "http://id.example.com",
            "http://127.0.0.1.evil.example",
            "http://localhost.evil.example",
            "https://",
            "id.example.com",
            "file:///etc/passwd",
            "",
        ] {
            assert!(fetchable(bad).is_err(), "{bad}");
        }
    }
}
