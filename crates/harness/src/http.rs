//! One HTTP request, one answer: the client underneath everything here that speaks HTTP.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use crate::error::{Error, Result};

/// A pool of connections. Cheap to clone; clones share the pool.
#[derive(Debug, Clone)]
pub struct Http {
    client: Client<HttpConnector, Full<Bytes>>,
    timeout: Duration,
}

/// A whole answer.
#[derive(Debug, Clone)]
pub struct Reply {
    /// HTTP status code.
    pub status: u16,
    /// HTTP headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

impl Http {
    /// A pool whose requests must be answered completely within `timeout`.
    #[must_use]
    pub fn new(timeout: Duration) -> Http {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        Http {
            client: Client::builder(TokioExecutor::new()).build(connector),
            timeout,
        }
    }

    /// Gets a page.
    ///
    /// # Errors
    /// [`Error::Http`] if there is no answer; any status is one.
    pub async fn get(&self, url: &str) -> Result<Reply> {
        let request = Request::builder()
            .method(Method::GET)
            .uri(url)
            .body(Full::default());
        self.send(request.map_err(|error| failed(url, &error))?)
            .await
    }

    /// Sends a request and reads the whole answer.
    ///
    /// # Errors
    /// [`Error::Http`] if there is no complete answer, [`Error::Timeout`] if it takes too long.
    pub async fn send(&self, request: Request<Full<Bytes>>) -> Result<Reply> {
        let url = request.uri().to_string();
        let whole = async {
            let response = self.begin(request).await?;
            let (head, body) = response.into_parts();
            let body = body
                .collect()
                .await
                .map_err(|error| failed(&url, &error))?
                .to_bytes();
            Ok(Reply {
                status: head.status.as_u16(),
                headers: head.headers,
                body,
            })
        };
        let late = |_| Error::Timeout {
            what: format!("answer of {url}"),
            after: self.timeout,
            log: None,
        };
        tokio::time::timeout(self.timeout, whole)
            .await
            .map_err(late)?
    }

    /// Sends a request and returns once the headers of the answer are there.
    ///
    /// # Errors
    /// As [`Http::send`].
    pub async fn begin(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>> {
        let url = request.uri().to_string();
        let late = |_| Error::Timeout {
            what: format!("first bytes of {url}"),
            after: self.timeout,
            log: None,
        };
        let answer = tokio::time::timeout(self.timeout, self.client.request(request)).await;
        answer.map_err(late)?.map_err(|error| failed(&url, &error))
    }
}

/// Hyper keeps the reason ("connection refused") in the source of its errors.
pub(crate) fn failed(url: &str, error: &dyn std::error::Error) -> Error {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    Error::Http {
        url: url.to_owned(),
        why: text,
    }
}
