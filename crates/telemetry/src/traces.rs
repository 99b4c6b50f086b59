//! Spans, and the trace context that travels into a process, out of it, and with a task.
//!
//! A job's span is a new root linked to the call's span: the call has been answered long before
//! the work ends, and one trace of hours would never be complete.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use opentelemetry::baggage::BaggageExt;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::{SpanContext, Status, TraceContextExt};
use opentelemetry::{Context, Value};
use opentelemetry_sdk::propagation::{BaggagePropagator, TraceContextPropagator};
use serde_json::{Map, Value as Json};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// Target of spans that only traces show: log lines do not repeat what they say, and where no
/// spans are exported they are not even made.
pub const DETAIL: &str = "mcp_tasks::detail";

/// Target of spans of loops that mostly find nothing to do. What happens in them makes no spans of
/// its own, and they are not exported at all if they were [`idle`].
pub const LOOP: &str = "mcp_tasks::loop";

/// Whether [`init`](crate::init) was told where to export spans to.
pub(crate) static EXPORTED: AtomicBool = AtomicBool::new(false);

/// Marks a span that is not worth an export.
pub(crate) const IDLE: &str = "mcp_tasks.idle";

/// What is kept of a `traceparent` (bytes): a version may be longer than the first, not by much.
const TRACEPARENT_BYTES_MAX: usize = 256;
/// What is kept of a `tracestate` (bytes): what everybody has to pass on (W3C Trace Context §3.3.1.5).
const TRACESTATE_BYTES_MAX: usize = 512;
/// What is kept of a `baggage` (bytes): what everybody has to pass on (W3C Baggage §3.3.2).
const BAGGAGE_BYTES_MAX: usize = 8192;

/// A trace context as text, as it travels in `_meta` and in HTTP headers (W3C Trace Context,
/// W3C Baggage).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TraceContext {
    /// `traceparent`: trace id, span id and the sampling decision.
    pub traceparent: Option<String>,
    /// `tracestate`: what vendors add.
    pub tracestate: Option<String>,
    /// `baggage`: the caller's own key-value pairs.
    pub baggage: Option<String>,
}

impl TraceContext {
    /// What may be kept and passed on of a context that a stranger sent: what is malformed or too
    /// long is left out, and never anybody's error. `baggage` comes out as plain ASCII.
    #[must_use]
    pub fn accepted(self) -> TraceContext {
        let within = |text: Option<String>, max: usize| text.filter(|text| text.len() <= max);
        let short = TraceContext {
            traceparent: within(self.traceparent, TRACEPARENT_BYTES_MAX),
            tracestate: within(self.tracestate, TRACESTATE_BYTES_MAX),
            baggage: within(self.baggage, BAGGAGE_BYTES_MAX),
        };
        if short == TraceContext::default() {
            return short;
        }
        let context = short.extract();
        let valid = context.span().span_context().is_valid();
        let state = context.span().span_context().trace_state().header();
        TraceContext {
            traceparent: short.traceparent.filter(|_| valid),
            tracestate: Some(state).filter(|state| valid && !state.is_empty() && is_plain(state)),
            baggage: baggage(&context),
        }
    }

    /// The trace id, 32 hexadecimal digits.
    #[must_use]
    pub fn trace_id(&self) -> Option<&str> {
        self.traceparent.as_deref()?.split('-').nth(1)
    }

    /// As it is kept with a task: a JSON object. `None` without a `traceparent`.
    #[must_use]
    pub fn to_json(&self) -> Option<String> {
        let traceparent = self.traceparent.as_deref()?;
        let mut members = Map::new();
        members.insert("traceparent".to_owned(), traceparent.into());
        for (name, value) in [("tracestate", &self.tracestate), ("baggage", &self.baggage)] {
            if let Some(value) = value {
                members.insert(name.to_owned(), value.as_str().into());
            }
        }
        Some(Json::Object(members).to_string())
    }

    /// As it was kept; empty if that can't be read.
    #[must_use]
    pub fn from_json(json: &[u8]) -> TraceContext {
        match serde_json::from_slice(json) {
            Ok(json) => TraceContext::of(&json),
            Err(_) => TraceContext::default(),
        }
    }

    /// The trace of the request that let the task go on, as it was kept with it.
    #[must_use]
    pub fn answered(json: &[u8]) -> Option<TraceContext> {
        let json: Json = serde_json::from_slice(json).ok()?;
        json.get("answered").map(TraceContext::of)
    }

    fn of(json: &Json) -> TraceContext {
        let text = |name: &str| json[name].as_str().map(str::to_owned);
        TraceContext {
            traceparent: text("traceparent"),
            tracestate: text("tracestate"),
            baggage: text("baggage"),
        }
        .accepted()
    }

    fn carrier(&self) -> HashMap<String, String> {
        let fields = [
            ("traceparent", &self.traceparent),
            ("tracestate", &self.tracestate),
            ("baggage", &self.baggage),
        ];
        fields
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value.clone()?)))
            .collect()
    }

    fn extract(&self) -> Context {
        let carrier = self.carrier();
        let context = TraceContextPropagator::new().extract_with_context(&Context::new(), &carrier);
        BaggagePropagator::new().extract_with_context(&context, &carrier)
    }

    fn span_context(&self) -> Option<SpanContext> {
        self.traceparent.as_ref()?;
        let context = self.extract();
        let span = context.span().span_context().clone();
        span.is_valid().then_some(span)
    }
}

fn baggage(context: &Context) -> Option<String> {
    if context.baggage().is_empty() {
        return None;
    }
    let mut carrier = HashMap::new();
    BaggagePropagator::new().inject_context(context, &mut carrier);
    let text = carrier.remove("baggage")?;
    // A map has no order, and the same context shall be the same text.
    let mut members: Vec<&str> = text.split(',').collect();
    members.sort_unstable();
    is_plain(&text).then(|| members.join(","))
}

/// Fit for a header, an environment variable and a log.
fn is_plain(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
}

/// The context of the current span, to send along; all `None` where no spans are made (then the
/// caller's own context is the one to pass on).
#[must_use]
pub fn current_context() -> TraceContext {
    context_of(&Span::current())
}

/// The context of `span`, to send along. Starts the span: set its parent first.
#[must_use]
pub fn context_of(span: &Span) -> TraceContext {
    let context = span.context();
    let mut carrier = HashMap::new();
    TraceContextPropagator::new().inject_context(&context, &mut carrier);
    let mut take = |name: &str| carrier.remove(name).filter(|value| !value.is_empty());
    TraceContext {
        traceparent: take("traceparent"),
        tracestate: take("tracestate"),
        baggage: baggage(&context),
    }
}

/// Links `span` to a remote one, leaving it a root of its own; `why` is told with the link. False
/// if the context is absent or malformed: foreign text, so nothing worth a log line.
///
/// Said before the span is entered it also decides whether the span is sampled: as what it is
/// linked to.
pub fn link_span(span: &Span, remote: &TraceContext, why: &'static str) -> bool {
    let Some(linked) = remote.span_context() else {
        return false;
    };
    let why = opentelemetry::KeyValue::new("link.reason", why);
    span.add_link_with_attributes(linked, vec![why]);
    true
}

/// Makes a remote span the parent of `span`, which must not have been entered yet, and lets the
/// remote baggage go on from there. False if there is no valid context, or no spans are made.
pub fn set_parent_from(span: &Span, remote: &TraceContext) -> bool {
    if *remote == TraceContext::default() {
        return false;
    }
    let context = remote.extract();
    let valid = context.span().span_context().is_valid();
    let useful = valid || !context.baggage().is_empty();
    useful && span.set_parent(context).is_ok() && valid
}

/// Lets the remote baggage go on from `span`, which stays a root and must not have been entered yet.
pub fn carry_baggage(span: &Span, remote: &TraceContext) {
    let baggage = TraceContext {
        baggage: remote.baggage.clone(),
        ..TraceContext::default()
    };
    set_parent_from(span, &baggage);
}

/// Lets log lines say to which trace of the caller's they belong where no spans are exported. The
/// span needs a field `trace_id`, and its parent and links must have been set.
pub fn show_trace(span: &Span, caller: &TraceContext) {
    let Some(id) = caller.trace_id() else {
        return;
    };
    if !span.is_disabled() && context_of(span).traceparent.is_none() {
        span.record("trace_id", id);
    }
}

/// Whether what happens now belongs to a span that wants to show it: to a request or a job, not
/// to a loop of this process' own.
#[must_use]
pub fn inside_span() -> bool {
    let current = Span::current();
    current
        .metadata()
        .is_some_and(|metadata| metadata.target() != LOOP)
}

/// Whether spans are exported at all: what only they show need not be made up otherwise.
#[must_use]
pub fn are_exported() -> bool {
    EXPORTED.load(Ordering::Relaxed)
}

/// Adds an attribute that only traces show.
pub fn attribute(span: &Span, key: &'static str, value: impl Into<Value>) {
    span.set_attribute(key, value);
}

/// Names a span that may have begun already.
pub fn rename(span: &Span, name: String) {
    if span.is_disabled() {
        return;
    }
    let context = span.context();
    context.span().update_name(name);
}

/// What the span stands for went wrong; `kind` is a class of errors, never a message.
pub fn failed(span: &Span, kind: impl Into<Cow<'static, str>>) {
    span.set_attribute("error.type", kind.into());
    span.set_status(Status::error(""));
}

/// The span's loop found nothing to do: it is not exported.
pub fn idle(span: &Span) {
    span.set_attribute(IDLE, true);
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn sent(traceparent: &str, tracestate: &str, baggage: &str) -> TraceContext {
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        TraceContext {
            traceparent: text(traceparent),
            tracestate: text(tracestate),
            baggage: text(baggage),
        }
    }

    #[test]
    fn what_is_well_formed_is_kept() {
        let context = sent(PARENT, "vendor=1,other=2", "tenant=a,user=b%20c");
        assert_eq!(context.clone().accepted(), context);
        assert_eq!(context.trace_id(), Some(&PARENT[3..35]));
        let json = context.to_json().unwrap();
        assert_eq!(TraceContext::from_json(json.as_bytes()), context);
        assert_eq!(TraceContext::from_json(b"no json"), TraceContext::default());
        assert_eq!(TraceContext::default().to_json(), None);
    }

    #[test]
    fn what_is_malformed_or_too_long_is_left_out() {
        let huge = "x".repeat(1 << 20);
        for traceparent in [
            "",
            "00",
            "00-0-0-01",
            "zz-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-B7AD6B7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\nx: y",
            "00-ü0af7651916cd43dd8448eb211c8031-b7ad6b7169203331-01",
            &huge,
        ] {
            let kept = sent(traceparent, "vendor=1", "tenant=a").accepted();
            assert_eq!(kept, sent("", "", "tenant=a"), "{traceparent:.80}");
        }
        for tracestate in ["ü=1", "a", &huge] {
            let kept = sent(PARENT, tracestate, "").accepted();
            assert_eq!(kept, sent(PARENT, "", ""), "{tracestate:.80}");
        }
        for baggage in ["", "no pair", "=;=;,,,", &huge] {
            let kept = sent(PARENT, "", baggage).accepted();
            assert_eq!(kept.traceparent.as_deref(), Some(PARENT));
            assert!(
                kept.baggage.is_none_or(|kept| kept.len() < 10),
                "{baggage:.80}"
            );
        }
        let kept = sent(PARENT, "", "a=%00%0d%0a,b=\u{0}\u{7f}ü").accepted();
        let baggage = kept.baggage.unwrap();
        assert!(baggage.chars().all(|c| c.is_ascii_graphic()), "{baggage:?}");
    }
}
