//! Posts JSON to receivers.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

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
    pub(crate) fn new() -> Self {
        let provider = rustls::crypto::ring::default_provider();
        let connector = HttpsConnectorBuilder::new()
            .with_provider_and_webpki_roots(provider)
            .expect("ring serves the default versions of TLS")
            .https_or_http()
            .enable_http1()
            .build();
        Self {
            pool: Pool::builder(TokioExecutor::new()).build(connector),
        }
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
