//! The spans of a job, and the trace context that goes on into what a tool calls.
//!
//! An attempt is a root of its own, linked to the call that created its task and to the answer that
//! let the task go on; what it does for the task is below it.

use store::Claim;
use telemetry::TraceContext;
use telemetry::traces::{self, DETAIL};
use tracing::Span;

use crate::attempt::Outcome;
use crate::error::{Ending, ToolError};

/// The trace of the call that created the task.
pub(crate) fn of_call(claim: &Claim) -> TraceContext {
    claim
        .trace_context
        .as_deref()
        .map_or_else(TraceContext::default, TraceContext::from_json)
}

/// The span of an attempt, or of undoing.
pub(crate) fn attempt(claim: &Claim) -> Span {
    let tool = claim.tool.as_str();
    let operation = if claim.undoing { "undo" } else { "process" };
    let span = tracing::info_span!(
        parent: None,
        "job",
        otel.name = format!("{operation} {tool}"),
        otel.kind = "consumer",
        task.id = %claim.id(),
        tool.name = tool,
        attempt = claim.attempt(),
        trace_id = tracing::field::Empty,
    );
    let call = of_call(claim);
    traces::link_span(&span, &call, "call");
    let answered = claim
        .trace_context
        .as_deref()
        .and_then(TraceContext::answered);
    if let Some(answered) = answered {
        traces::link_span(&span, &answered, "answer");
    }
    traces::carry_baggage(&span, &call);
    let attribute = |key, value: String| traces::attribute(&span, key, value);
    attribute("messaging.system", "redis".to_owned());
    attribute("messaging.operation.type", "process".to_owned());
    attribute("messaging.operation.name", operation.to_owned());
    let lane = format!("{tool}:{}", claim.tool_version);
    attribute("messaging.destination.name", lane);
    attribute("messaging.message.id", claim.id().to_string());
    attribute("gen_ai.operation.name", "execute_tool".to_owned());
    attribute("gen_ai.tool.name", tool.to_owned());
    traces::attribute(&span, "attempt.tries", i64::from(claim.tries));
    let waited = i64::try_from(claim.waited.as_millis()).unwrap_or(i64::MAX);
    traces::attribute(&span, "attempt.waited_ms", waited);
    traces::show_trace(&span, &call);
    span
}

/// How the attempt ended.
pub(crate) fn ended(span: &Span, outcome: Outcome) {
    traces::attribute(span, "attempt.outcome", outcome.as_str());
    if matches!(outcome, Outcome::Failed | Outcome::Retried | Outcome::Lost) {
        traces::failed(span, outcome.as_str());
    }
}

/// The span of a step that acts.
pub(crate) fn step(key: &str, idempotent: bool) -> Span {
    let span = tracing::info_span!("step", step.key = key);
    traces::attribute(&span, "step.idempotent", idempotent);
    span
}

/// The span of one try to undo a step.
pub(crate) fn undo(key: &str, tries: i32) -> Span {
    let span = tracing::info_span!("undo", step.key = key);
    traces::attribute(&span, "undo.try", i64::from(tries));
    span
}

/// The span of parking; what the questions say is nobody's business here.
pub(crate) fn park(questions: usize, parked_for: &'static str) -> Span {
    let span = tracing::info_span!(target: DETAIL, "park", input.parked_for = parked_for);
    let questions = i64::try_from(questions).unwrap_or(i64::MAX);
    traces::attribute(&span, "input.questions", questions);
    span
}

/// Tells the span what an error means, without its message: that is the tool's, and may hold data.
pub(crate) fn failed(span: &Span, error: &ToolError) {
    let kind = match &error.0 {
        // How a job is interrupted, and no failure.
        Ending::Parked | Ending::Stopped => return,
        Ending::Retry(_) => "retryable",
        Ending::Unknown(_) => "outcome_unknown",
        Ending::Failed(_) => "failed",
        Ending::Refused(_) => "refused",
    };
    traces::failed(span, kind);
}
