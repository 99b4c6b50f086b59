//! TLS to another server: whose signature counts.

use std::error::Error;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{CertificateError, ClientConfig, RootCertStore};

/// A peer that has vanished is noticed by then, also while a call is silent.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// Variables that other programs find their proxy by.
const PROXIES: [&str; 6] = [
    "HTTPS_PROXY",
    "https_proxy",
    "HTTP_PROXY",
    "http_proxy",
    "ALL_PROXY",
    "all_proxy",
];

/// What connects: over TLS the server's certificate must be signed by one of the public
/// authorities, or if there is a `ca_file` by one of those in it, and be for its host.
///
/// # Errors
/// In words, naming the key, when the settings cannot be used.
pub(super) fn connector(
    ca_file: Option<&Path>,
    connect: Duration,
) -> Result<HttpsConnector<HttpConnector>, String> {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_connect_timeout(Some(connect));
    connector.set_keepalive(Some(KEEPALIVE));
    connector.set_nodelay(true);
    let provider = rustls::crypto::ring::default_provider();
    let builder = HttpsConnectorBuilder::new();
    let builder = match ca_file {
        None => builder
            .with_provider_and_webpki_roots(provider)
            .map_err(|error| format!("TLS: {error}"))?,
        Some(file) => {
            let config = ClientConfig::builder_with_provider(Arc::new(provider))
                .with_safe_default_protocol_versions()
                .map_err(|error| format!("TLS: {error}"))?
                .with_root_certificates(authorities(file)?)
                .with_no_client_auth();
            builder.with_tls_config(config)
        }
    };
    Ok(builder
        .https_or_http()
        .enable_http1()
        .wrap_connector(connector))
}

fn authorities(file: &Path) -> Result<RootCertStore, String> {
    let problem = |what: String| format!("ca_file: {}: {what}", file.display());
    let found = CertificateDer::pem_file_iter(file).map_err(|e| problem(e.to_string()))?;
    let mut roots = RootCertStore::empty();
    for certificate in found {
        let certificate = certificate.map_err(|error| problem(error.to_string()))?;
        roots
            .add(certificate)
            .map_err(|error| problem(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(problem("holds no certificate".to_owned()));
    }
    Ok(roots)
}

/// What to add where a server cannot be reached: where its authority is named, or that a proxy is
/// set which is not used.
pub(super) fn hint(error: &(dyn Error + 'static)) -> &'static str {
    if is_of_nobody_trusted(error) {
        return " (signed by no authority that is trusted here: see `ca_file`)";
    }
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    if PROXIES.iter().any(|name| set(name)) {
        " (proxies are not spoken to: HTTPS_PROXY and the like are not followed)"
    } else {
        ""
    }
}

/// The server's certificate was read, and its signature does not count.
fn is_of_nobody_trusted(error: &(dyn Error + 'static)) -> bool {
    let unknown = rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
    let mut at = Some(error);
    while let Some(error) = at {
        if error.downcast_ref() == Some(&unknown) {
            return true;
        }
        // What an `io::Error` was made of is not among its sources.
        let within = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref);
        at = match within {
            Some(within) => Some(within),
            None => error.source(),
        };
    }
    false
}
