//! The admin listener: `/metrics`, `/livez`, `/readyz`, `/startupz`.
//!
//! It listens apart from the public endpoint, asks for no credentials and shows no payload. It is
//! meant to outlive draining: stop it last, so that the not-ready answer can be seen.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::health::Report;
use crate::{Health, Registry};

/// Connections served at once; a scraper and a few probes need one each.
const CONNECTIONS_MAX: usize = 64;
/// A client that sends no complete head in this time is cut off.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// How long open connections may finish after shutdown was asked for.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(1);
/// Prometheus' text format.
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Opens the listener.
///
/// # Errors
/// If the address can't be bound.
pub async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address).await
}

/// Serves on a thread and a runtime of its own until `shutdown`: probes and scrapes are answered
/// also while the runtime of the process is stuck, and say so. What is returned ends when the
/// listener does.
///
/// # Errors
/// If the thread or its runtime cannot be made.
pub fn spawn(
    listener: TcpListener,
    registry: Registry,
    health: Health,
    shutdown: CancellationToken,
) -> io::Result<oneshot::Receiver<()>> {
    // Belongs to the runtime that it was made in; it does not block, which stays so.
    let listener = listener.into_std()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (ended, end) = oneshot::channel();
    std::thread::Builder::new()
        .name("admin".to_owned())
        .spawn(move || {
            // Dropped however this thread ends.
            let _ended = ended;
            runtime.block_on(async {
                match TcpListener::from_std(listener) {
                    Ok(listener) => serve(listener, registry, health, shutdown).await,
                    Err(error) => tracing::error!(error = %error, "no admin listener"),
                }
            });
        })?;
    Ok(end)
}

/// Serves until `shutdown`, then lets open connections finish for up to a second.
pub async fn serve(
    listener: TcpListener,
    registry: Registry,
    health: Health,
    shutdown: CancellationToken,
) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        tokio::select! {
            () = shutdown.cancelled() => break,
            // A full house frees a place at the latest when a head times out.
            _ = connections.join_next(), if connections.len() >= CONNECTIONS_MAX => {}
            accepted = listener.accept(), if connections.len() < CONNECTIONS_MAX => match accepted {
                Ok((stream, _)) => {
                    let (registry, health) = (registry.clone(), health.clone());
                    connections.spawn(connection(stream, registry, health, shutdown.clone()));
                }
                Err(error) => {
                    tracing::warn!(error = %error, "admin listener could not accept");
                    // Out of file descriptors, most likely: spinning would not free one.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
        }
    }
    let finish = async { while connections.join_next().await.is_some() {} };
    drop(tokio::time::timeout(SHUTDOWN_GRACE, finish).await);
}

async fn connection(
    stream: TcpStream,
    registry: Registry,
    health: Health,
    shutdown: CancellationToken,
) {
    let service = service_fn(|request: Request<hyper::body::Incoming>| {
        let response = answer(request.method(), request.uri().path(), &registry, &health);
        async move { Ok::<_, Infallible>(response) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let result = tokio::select! {
        result = connection.as_mut() => result,
        () = shutdown.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(error = %error, "admin connection ended with an error");
    }
}

fn answer(
    method: &Method,
    path: &str,
    registry: &Registry,
    health: &Health,
) -> Response<Full<Bytes>> {
    if method != Method::GET && method != Method::HEAD {
        let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "GET or HEAD only\n");
        response
            .headers_mut()
            .insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    match path {
        "/metrics" => {
            let mut response = text(StatusCode::OK, registry.render());
            response
                .headers_mut()
                .insert(CONTENT_TYPE, HeaderValue::from_static(METRICS_TYPE));
            response
        }
        "/livez" => probe(&health.liveness_report()),
        "/readyz" => probe(&health.readiness()),
        "/startupz" => probe(&health.startup()),
        _ => text(
            StatusCode::NOT_FOUND,
            "try /metrics, /livez, /readyz or /startupz\n",
        ),
    }
}

fn probe(report: &Report) -> Response<Full<Bytes>> {
    let status = if report.ok {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    let body = serde_json::to_vec(report).expect("a report has only string keys and values");
    let mut response = text(status, body);
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
