//! Posts JSON to receivers.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{ConfigBuilderExt as _, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

use super::receivers::Failure;

/// One request, its answer included.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Read of an answer, so that its connection can be used again.
const ANSWER_BYTES_MAX: usize = 512;

/// One POST.
pub(crate) struct Request {
    pub(crate) url: String,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Bytes,
}

/// Keeps connections to receivers.
#[derive(Clone)]
pub(crate) struct Client {
    pool: Pool<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

impl Client {
    /// Trusts these authorities (PEM), else those that Mozilla trusts.
    ///
    /// # Errors
    /// If there is no certificate among them.
    pub(crate) fn new(authorities: Option<&[u8]>) -> Result<Self, String> {
        let builder =
            ClientConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
                .with_safe_default_protocol_versions()
                .expect("ring serves the default versions of TLS");
        let config = match authorities {
            None => builder.with_webpki_roots(),
            Some(pem) => builder.with_root_certificates(roots(pem)?),
        };
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(config.with_no_client_auth())
            .https_or_http()
            .enable_http1()
            .build();
        Ok(Self {
            pool: Pool::builder(TokioExecutor::new()).build(connector),
        })
    }

    /// Posts JSON; any answer but 2xx is an error. Its text holds the status and nothing that the receiver said:
    /// many repeat what they were asked, in whatever form, and of webhooks the address is the secret.
    pub(crate) async fn post(&self, request: Request) -> Result<(), Failure> {
        let late = |_| Err(Failure::Away(format!("no answer within {TIMEOUT:?}")));
        tokio::time::timeout(TIMEOUT, self.exchange(request))
            .await
            .unwrap_or_else(late)
    }

    async fn exchange(&self, request: Request) -> Result<(), Failure> {
        let mut builder = http::Request::builder()
            .method(Method::POST)
            .uri(request.url)
            .header(header::CONTENT_TYPE, "application/json");
        for (name, value) in request.headers {
            builder = builder.header(name, value);
        }
        let request = builder.body(Full::new(request.body));
        let request = request.map_err(|error| Failure::Refused(error.to_string()))?;
        let away = |error| Failure::Away(chain(error));
        let answer = self.pool.request(request).await.map_err(away)?;
        let status = answer.status();
        drop(
            Limited::new(answer.into_body(), ANSWER_BYTES_MAX)
                .collect()
                .await,
        );
        if status.is_success() {
            return Ok(());
        }
        let text = format!("answered {status}");
        Err(match status {
            // What is said of a message, not of us or of the hour.
            StatusCode::BAD_REQUEST
            | StatusCode::CONFLICT
            | StatusCode::PAYLOAD_TOO_LARGE
            | StatusCode::UNPROCESSABLE_ENTITY => Failure::Refused(text),
            _ => Failure::Away(text),
        })
    }
}

fn roots(pem: &[u8]) -> Result<RootCertStore, String> {
    let read = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    let certificates = read.map_err(|error| error.to_string())?;
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(certificates);
    if added == 0 {
        return Err("holds no certificate".to_owned());
    }
    Ok(roots)
}

/// An error with all its causes.
fn chain(error: impl std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
