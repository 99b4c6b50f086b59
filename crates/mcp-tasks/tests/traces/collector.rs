//! A collector of spans: OTLP over HTTP with protobuf bodies, as a real one takes them.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::trace::v1 as otlp;
use prost::Message;
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

/// How a collector takes what it is sent.
#[derive(Clone, Copy, Debug)]
pub enum Manner {
    Prompt,
    /// Answers after so long.
    Slow(Duration),
    /// Takes connections and never says a word.
    Silent,
}

/// A span as it came.
#[derive(Clone, Debug)]
pub struct Span {
    pub service: String,
    pub name: String,
    /// `SERVER`, `CLIENT`, `PRODUCER`, `CONSUMER` or `INTERNAL`.
    pub kind: String,
    pub trace: String,
    pub id: String,
    /// Empty for a root.
    pub parent: String,
    pub links: Vec<Link>,
    pub attributes: BTreeMap<String, String>,
    pub is_error: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    pub trace: String,
    pub id: String,
    pub reason: String,
}

impl Span {
    /// An attribute as text; empty if there is none.
    pub fn get(&self, key: &str) -> &str {
        self.attributes.get(key).map_or("", String::as_str)
    }

    /// The links that are there for this reason.
    pub fn linked(&self, reason: &str) -> Vec<&Link> {
        let links = self.links.iter();
        links.filter(|link| link.reason == reason).collect()
    }

    /// Whether it is linked to that span.
    pub fn is_linked_to(&self, other: &Span) -> bool {
        let mut links = self.links.iter();
        links.any(|link| link.trace == other.trace && link.id == other.id)
    }

    pub fn is_child_of(&self, other: &Span) -> bool {
        self.trace == other.trace && self.parent == other.id
    }
}

/// The collector; ends when dropped.
pub struct Collector {
    pub endpoint: String,
    kept: Arc<Mutex<Kept>>,
    _stop: DropGuard,
}

#[derive(Default)]
struct Kept {
    spans: Vec<Span>,
    bodies: Vec<Bytes>,
}

impl Collector {
    pub async fn start(manner: Manner) -> Collector {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}/v1/traces", listener.local_addr().unwrap());
        let kept: Arc<Mutex<Kept>> = Arc::default();
        let stop = CancellationToken::new();
        let (keeping, stopped) = (Arc::clone(&kept), stop.clone());
        let connections = TaskTracker::new();
        let tracker = connections.clone();
        tracker.spawn(stopped.run_until_cancelled_owned(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let kept = Arc::clone(&keeping);
                let service = service_fn(move |request| take(Arc::clone(&kept), manner, request));
                let serving = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                connections.spawn(serving);
            }
        }));
        Collector {
            endpoint,
            kept,
            _stop: stop.drop_guard(),
        }
    }

    /// The spans that came so far.
    pub fn spans(&self) -> Vec<Span> {
        self.kept.lock().unwrap().spans.clone()
    }

    /// Everything that came, byte for byte.
    pub fn bodies(&self) -> Vec<Bytes> {
        self.kept.lock().unwrap().bodies.clone()
    }
}

async fn take(
    kept: Arc<Mutex<Kept>>,
    manner: Manner,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    assert_eq!(request.uri().path(), "/v1/traces");
    assert_eq!(request.headers()["content-type"], "application/x-protobuf");
    let body = request.into_body().collect().await.unwrap().to_bytes();
    match manner {
        Manner::Prompt => {}
        Manner::Slow(pause) => tokio::time::sleep(pause).await,
        Manner::Silent => std::future::pending().await,
    }
    let spans = read(&body);
    let mut kept = kept.lock().unwrap();
    kept.spans.extend(spans);
    kept.bodies.push(body);
    Ok(Response::new(Full::default()))
}

fn read(body: &Bytes) -> Vec<Span> {
    let request = ExportTraceServiceRequest::decode(body.clone()).unwrap();
    let mut spans = Vec::new();
    for of_resource in request.resource_spans {
        let resource = attributes(&of_resource.resource.unwrap().attributes);
        let all = of_resource.scope_spans.into_iter();
        for span in all.flat_map(|scope| scope.spans) {
            spans.push(Span {
                service: resource["service.name"].clone(),
                kind: kind(&span),
                trace: hex(&span.trace_id),
                id: hex(&span.span_id),
                parent: hex(&span.parent_span_id),
                links: span.links.iter().map(link).collect(),
                attributes: attributes(&span.attributes),
                is_error: span.status.as_ref().is_some_and(|status| status.code == 2),
                name: span.name,
            });
        }
    }
    spans
}

fn kind(span: &otlp::Span) -> String {
    let name = span.kind().as_str_name();
    name.trim_start_matches("SPAN_KIND_").to_owned()
}

fn link(link: &otlp::span::Link) -> Link {
    Link {
        trace: hex(&link.trace_id),
        id: hex(&link.span_id),
        reason: attributes(&link.attributes)
            .remove("link.reason")
            .unwrap_or_default(),
    }
}

fn attributes(pairs: &[KeyValue]) -> BTreeMap<String, String> {
    let pairs = pairs.iter();
    pairs
        .map(|pair| (pair.key.clone(), text(pair.value.as_ref())))
        .collect()
}

fn text(value: Option<&AnyValue>) -> String {
    match value.and_then(|value| value.value.as_ref()) {
        Some(any_value::Value::StringValue(text)) => text.clone(),
        Some(any_value::Value::BoolValue(truth)) => truth.to_string(),
        Some(any_value::Value::IntValue(number)) => number.to_string(),
        Some(any_value::Value::DoubleValue(number)) => number.to_string(),
        other => format!("{other:?}"),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").unwrap();
        hex
    })
}
