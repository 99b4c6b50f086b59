//! The span of a request, and where its trace comes from (OpenTelemetry's conventions for MCP).
//!
//! A trace is the caller's: `_meta` first, because one HTTP request may be a proxy's and not the
//! caller's; else the headers. Both are foreign text: what is malformed is as if it were not there.

use http::{HeaderMap, HeaderName};
use serde::Deserialize;
use telemetry::TraceContext;
use telemetry::traces::{self, DETAIL};
use tracing::Span;
use tracing::field::Empty;

use crate::endpoint::Call;
use crate::error::{Error, Row};
use crate::reply::Reply;

static TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
static TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
static BAGGAGE: HeaderName = HeaderName::from_static("baggage");

/// Opens the span of a request that may be carried out.
pub(crate) fn request(method: &'static str, call: &Call) -> Span {
    let span = tracing::info_span!(
        "request",
        otel.name = method,
        otel.kind = "server",
        rpc.method = method,
        tool.name = Empty,
        task.id = Empty,
        trace_id = Empty,
    );
    if span.is_disabled() {
        return span;
    }
    let caller = &call.caller.trace;
    if !traces::are_exported() {
        traces::show_trace(&span, caller);
        return span;
    }
    let http = of_headers(&call.headers);
    if traces::set_parent_from(&span, caller) && http.traceparent != caller.traceparent {
        traces::link_span(&span, &http, "http");
    }
    let attribute = |key, value: String| traces::attribute(&span, key, value);
    attribute("mcp.method.name", method.to_owned());
    let legacy = call.caller.legacy.map(|dialect| dialect.version);
    let version = legacy.unwrap_or(protocol::meta::VERSION);
    attribute("mcp.protocol.version", version.to_owned());
    attribute("jsonrpc.request.id", id(call));
    if let Some(client) = call.meter.client {
        attribute("client.address", client.to_string());
    }
    attribute("network.protocol.name", "http".to_owned());
    attribute("network.transport", "tcp".to_owned());
    traces::show_trace(&span, caller);
    span
}

/// The request's id as text, within bounds: it is the client's.
fn id(call: &Call) -> String {
    let json = call.id.as_json();
    let text: String = serde_json::from_str(json).unwrap_or_else(|_| json.to_owned());
    text.chars().take(64).collect()
}

/// The call is for this tool, which exists: its name is one of few.
pub(crate) fn tool(method: &str, name: &str) {
    let span = Span::current();
    span.record("tool.name", name);
    traces::rename(&span, format!("{method} {name}"));
    traces::attribute(&span, "gen_ai.tool.name", name.to_owned());
    traces::attribute(&span, "gen_ai.operation.name", "execute_tool");
}

/// A provider is asked, by the job of this name.
pub(crate) fn provider(job: &str) {
    Span::current().record("tool.name", job);
}

/// The request was answered as `label` says.
pub(crate) fn answered(label: &'static str) {
    if !traces::are_exported() {
        return;
    }
    traces::attribute(&Span::current(), "mcp_tasks.outcome", label);
}

/// The request was refused, or is answered by the error that its task ended with.
pub(crate) fn refused(row: &Row) {
    let span = Span::current();
    let code = row.error.code.to_string();
    let status = i64::from(row.status.as_u16());
    traces::attribute(&span, "mcp_tasks.outcome", row.label);
    traces::attribute(&span, "http.response.status_code", status);
    traces::attribute(&span, "rpc.response.status_code", code.clone());
    traces::failed(&span, code);
}

/// The request is answered by the error that its task ended with.
pub(crate) fn failed(label: &'static str) {
    answered(label);
    traces::failed(&Span::current(), "task_failed");
}

/// A call has come to this: a result may say of itself that it is an error.
pub(crate) fn called(result: &Result<Reply, Error>) {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Flag {
        #[serde(default)]
        is_error: bool,
    }
    let span = Span::current();
    let Ok(Reply::Result { json, .. }) = result else {
        return;
    };
    if span.is_disabled() || traces::context_of(&span).traceparent.is_none() {
        return;
    }
    if serde_json::from_slice(json).is_ok_and(|flag: Flag| flag.is_error) {
        traces::failed(&span, "tool_error");
    }
}

/// The span of letting a task go on whose last question was answered.
pub(crate) fn resume() -> Span {
    tracing::info_span!(target: DETAIL, "resume")
}

/// The trace of the current request, or the caller's own where no spans are made: what the task's
/// jobs are linked to.
pub(crate) fn of_task(caller: &TraceContext) -> Option<String> {
    let current = traces::current_context();
    if current.traceparent.is_some() {
        return current.to_json();
    }
    caller.to_json()
}

/// The caller's trace: what `_meta` says of it, else the headers.
pub(crate) fn of_caller(meta: TraceContext, headers: &HeaderMap) -> TraceContext {
    let meta = meta.accepted();
    if meta.traceparent.is_some() {
        return meta;
    }
    let http = of_headers(headers);
    TraceContext {
        baggage: meta.baggage.or(http.baggage),
        ..http
    }
}

/// What HTTP says of the trace.
fn of_headers(headers: &HeaderMap) -> TraceContext {
    let text = |name: &HeaderName| headers.get(name)?.to_str().ok().map(str::to_owned);
    TraceContext {
        traceparent: text(&TRACEPARENT),
        tracestate: text(&TRACESTATE),
        baggage: text(&BAGGAGE),
    }
    .accepted()
}
