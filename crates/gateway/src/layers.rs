//! The tower stack around the endpoint, outermost first, each layer with the reason for its
//! place. Authentication and limits per caller are not here: they answer in JSON-RPC, so
//! [`endpoint`](crate::endpoint) does them where their order can be seen.
//!
//! 1. **Leaving**: once the process is asked to end, every answer over HTTP/1 says that its
//!    connection ends with it, so that the caller opens its next one elsewhere and sends nothing
//!    into one that is being closed. Outermost, so that no answer goes without it.
//! 2. **Panics** become a 500 and a counter, wherever they happen.
//! 3. **Load**: more requests than the process may answer at once are refused, not queued;
//!    before anything is read, so that a refusal costs nothing.

use std::any::Any;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONNECTION, HeaderValue};
use http::{Request, Response, StatusCode};

use hyper::body::Incoming;
use protocol::{ErrorObject, jsonrpc};
use tokio::sync::Semaphore;
use tower::{BoxError, Service, ServiceBuilder, service_fn};
use tower_http::body::UnsyncBoxBody;
use tower_http::catch_panic::{CatchPanicLayer, ResponseForPanic};

use crate::Shared;
use crate::connection::Connection;
use crate::endpoint;
use crate::error::Error;
use crate::metrics::{Meter, Metrics};
use crate::reply::{Answer, Body, Finished};

/// What all connections share.
#[derive(Clone)]
pub(crate) struct Layers {
    shared: Arc<Shared>,
    /// Of requests that are being answered.
    places: Arc<Semaphore>,
}

impl Layers {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let places = Arc::new(Semaphore::new(shared.config.limits.requests_max));
        Self { shared, places }
    }

    /// The service of one connection.
    pub(crate) fn service(
        &self,
        connection: Arc<Connection>,
    ) -> impl Service<
        Request<Incoming>,
        Response = Response<UnsyncBoxBody<Bytes, BoxError>>,
        Error = BoxError,
        Future: Send + 'static,
    >
    + Clone
    + Send
    + 'static
    + use<> {
        // All of it is cloned for each request: one count each, and no lock.
        let own = Arc::new((self.clone(), connection));
        let answering = Arc::clone(&own);
        ServiceBuilder::new()
            .map_response(move |mut response: Response<_>| {
                let (layers, connection) = &*answering;
                // HTTP/2 knows no such header: it has a frame that says it (RFC 9113 §6.8).
                if layers.shared.leaving.is_cancelled() && !connection.is_multiplexed() {
                    let close = HeaderValue::from_static("close");
                    response.headers_mut().insert(CONNECTION, close);
                }
                response
            })
            .layer(CatchPanicLayer::custom(Panicked(Arc::clone(
                &self.shared.metrics,
            ))))
            .service(service_fn(move |request: Request<Incoming>| {
                let (layers, connection) = &*own;
                let busy = connection.spoke(request.version());
                let (shared, connection) = (Arc::clone(&layers.shared), Arc::clone(connection));
                let place = Arc::clone(&layers.places).try_acquire_owned();
                async move {
                    let answer = match place {
                        Ok(place) => {
                            // Large: it is moved once here, and not again in every layer.
                            let connection = Arc::clone(&connection);
                            Box::pin(endpoint::handle(shared, connection, request, place)).await
                        }
                        Err(_) => refuse(&shared).into_response(Arc::clone(&connection), None),
                    };
                    if answer.status() == StatusCode::TOO_MANY_REQUESTS {
                        // It waited for nothing: a connection full of requests that are refused would go
                        // through many of them before anybody else gets a turn.
                        tokio::task::yield_now().await;
                    }
                    Ok::<_, BoxError>(answer.map(|body| body.keeping(busy, &connection)))
                }
            }))
    }
}

fn refuse(shared: &Shared) -> Answer {
    let mut meter = Meter::start(&shared.metrics);
    let error = Error::Overloaded { what: "requests" };
    Answer::Whole(Finished::new(None, Err(error), &mut meter))
}

#[derive(Clone)]
struct Panicked(Arc<Metrics>);

impl ResponseForPanic for Panicked {
    type ResponseBody = Body;

    fn response_for_panic(&mut self, panic: Box<dyn Any + Send>) -> Response<Body> {
        tracing::error!(
            panic.text = telemetry::panic_text(&*panic),
            "request panicked"
        );
        self.0.panics.inc();
        let error = ErrorObject::internal("the server failed", "internal");
        let mut response = Response::new(Body::of(jsonrpc::error_response(None, &error)));
        *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        response.headers_mut().insert(
            http::header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        );
        response
    }
}
