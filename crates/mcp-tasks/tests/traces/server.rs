//! An upstream server that has everything repeated to it that it was shown, and its token endpoint.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

/// What the token endpoint gives.
pub const ACCESS: &str = "hush-access-token";

/// Its tools, each of which ends a call in its own way, and repeats our credentials in it.
pub const TOOLS: [&str; 7] = [
    "refuses", "breaks", "garbage", "errs", "leads", "says", "streams",
];

/// The server; ends when dropped.
pub struct Server {
    /// Without a path.
    pub url: String,
    state: Arc<State>,
    _stop: DropGuard,
}

#[derive(Default)]
struct State {
    /// The token endpoint gives none.
    refuses: AtomicBool,
    shown: Mutex<Vec<String>>,
}

impl Server {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let state: Arc<State> = Arc::default();
        let stop = CancellationToken::new();
        let (kept, stopped) = (Arc::clone(&state), stop.clone());
        let connections = TaskTracker::new();
        let tracker = connections.clone();
        tracker.spawn(stopped.run_until_cancelled_owned(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let state = Arc::clone(&kept);
                let service = service_fn(move |request| take(Arc::clone(&state), request));
                let serving = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                connections.spawn(serving);
            }
        }));
        Self {
            url,
            state,
            _stop: stop.drop_guard(),
        }
    }

    /// From now on its token endpoint refuses us, or gives tokens again.
    pub fn refuses(&self, refuses: bool) {
        self.state.refuses.store(refuses, Ordering::SeqCst);
    }

    /// All credentials that it was shown.
    pub fn shown(&self) -> String {
        self.state.shown.lock().unwrap().join("\n")
    }
}

async fn take(
    state: Arc<State>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let header = |name: &str| {
        let value = request.headers().get(name);
        value
            .and_then(|value| value.to_str().ok())
            .unwrap_or("none")
            .to_owned()
    };
    let shown = format!("{} and {}", header("authorization"), header("x-key"));
    state.shown.lock().unwrap().push(shown.clone());
    let (path, method) = (request.uri().path().to_owned(), request.method().clone());
    let body = request.into_body().collect().await.unwrap().to_bytes();
    Ok(match path.as_str() {
        "/token" => token(&state, &shown),
        _ if method != Method::POST => plain(StatusCode::METHOD_NOT_ALLOWED, ""),
        _ => message(&serde_json::from_slice(&body).unwrap(), &shown),
    })
}

fn token(state: &State, shown: &str) -> Response<Full<Bytes>> {
    if state.refuses.load(Ordering::SeqCst) {
        let told = format!("who is {shown}?");
        let body = json!({ "error": "invalid_client", "error_description": told });
        return plain(StatusCode::BAD_REQUEST, &body.to_string());
    }
    let body = json!({ "access_token": ACCESS, "token_type": "Bearer", "expires_in": 3600 });
    plain(StatusCode::OK, &body.to_string())
}

fn message(message: &Value, shown: &str) -> Response<Full<Bytes>> {
    let respond = |result: Value| {
        let body = json!({ "jsonrpc": "2.0", "id": message["id"], "result": result });
        plain(StatusCode::OK, &body.to_string())
    };
    let says = json!({ "content": [{ "type": "text", "text": shown }] });
    match message["method"].as_str().unwrap_or_default() {
        "initialize" => respond(json!({ "protocolVersion": "2025-11-25",
            "capabilities": { "tools": {} }, "serverInfo": { "name": "s", "version": "1" } })),
        "tools/list" => {
            let tools = TOOLS.iter();
            let tools =
                tools.map(|name| json!({ "name": name, "inputSchema": { "type": "object" } }));
            respond(json!({ "tools": tools.collect::<Vec<_>>() }))
        }
        "tools/call" => match message["params"]["name"].as_str().unwrap_or_default() {
            "refuses" => plain(StatusCode::UNAUTHORIZED, shown),
            "breaks" => plain(StatusCode::INTERNAL_SERVER_ERROR, shown),
            "garbage" => plain(StatusCode::OK, shown),
            "errs" => {
                let error = json!({ "code": -1, "message": shown, "data": { "shown": shown } });
                let body = json!({ "jsonrpc": "2.0", "id": message["id"], "error": error });
                plain(StatusCode::OK, &body.to_string())
            }
            "leads" => {
                let mut response = plain(StatusCode::FOUND, "");
                let to = format!("/{}", shown.replace(' ', "_"));
                response
                    .headers_mut()
                    .insert("location", to.parse().unwrap());
                response
            }
            "streams" => {
                let body = json!({ "jsonrpc": "2.0", "id": message["id"], "result": says });
                let mut response = plain(StatusCode::OK, &format!("data: {body}\n\n"));
                let kind = "text/event-stream".parse().unwrap();
                response.headers_mut().insert("content-type", kind);
                response
            }
            _ => respond(says),
        },
        _ if message["id"].is_null() => plain(StatusCode::ACCEPTED, ""),
        _ => {
            let error = json!({ "code": -32601, "message": "no such method" });
            let body = json!({ "jsonrpc": "2.0", "id": message["id"], "error": error });
            plain(StatusCode::OK, &body.to_string())
        }
    }
}

fn plain(status: StatusCode, body: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body.to_owned()));
    *response.status_mut() = status;
    let kind = "application/json".parse().unwrap();
    response.headers_mut().insert("content-type", kind);
    response
}
