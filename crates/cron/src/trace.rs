//! The spans of sweeps and of alerts. A sweep that found nothing to do is not exported.

use store::{Delivery, DeliveryState};
use telemetry::TraceContext;
use telemetry::traces::{self, DETAIL, LOOP};
use tracing::Span;

/// The span of one run of a sweep, a root.
pub(crate) fn sweep(name: &'static str) -> Span {
    let full = format!("sweep {name}");
    tracing::info_span!(target: LOOP, parent: None, "sweep", otel.name = full, sweep = name)
}

/// The sweep has ended.
pub(crate) fn swept(span: &Span, swept: Result<u64, &crate::Error>) {
    match swept {
        Ok(0) => traces::idle(span),
        Ok(rows) => {
            let rows = i64::try_from(rows).unwrap_or(i64::MAX);
            traces::attribute(span, "sweep.rows", rows);
        }
        Err(_) => traces::failed(span, "store"),
    }
}

/// The trace of the call that created the task.
pub(crate) fn of_call(delivery: &Delivery) -> TraceContext {
    let context = delivery.trace_context.as_deref();
    context.map_or_else(TraceContext::default, TraceContext::from_json)
}

/// The spans of messages that are about to be sent: roots, linked to the calls that they are about.
pub(crate) fn alerts(due: &[Delivery]) -> Vec<(&Delivery, Span)> {
    due.iter()
        .map(|delivery| (delivery, alert(delivery)))
        .collect()
}

fn alert(delivery: &Delivery) -> Span {
    let alert = &delivery.alert;
    let span = tracing::info_span!(
        target: DETAIL,
        parent: None,
        "alert",
        otel.name = "send alert",
        otel.kind = "client",
        task.id = %alert.task,
        tool.name = alert.tool,
        alert.kind = alert.kind,
        alert.receiver = delivery.receiver,
    );
    traces::link_span(&span, &of_call(delivery), "call");
    let resolved = delivery.state == DeliveryState::Resolving;
    traces::attribute(&span, "alert.resolved", resolved);
    traces::attribute(&span, "alert.tries", i64::from(delivery.tries));
    span
}

/// What came of the messages, in whatever order.
pub(crate) fn told<'a>(
    spans: Vec<(&Delivery, Span)>,
    sent: impl Iterator<Item = (&'a Delivery, bool)>,
) {
    for (delivery, taken) in sent {
        let same = |(one, _): &&(&Delivery, Span)| one.alert.id == delivery.alert.id;
        if let Some((_, span)) = spans.iter().find(same).filter(|_| !taken) {
            traces::failed(span, "not_taken");
        }
    }
}
