//! The spans of sweeps and of alerts. A sweep that found nothing to do is not exported.

use telemetry::traces::{self, LOOP};
use tracing::Span;

use crate::Swept;

/// The span of one run of a sweep, a root.
pub(crate) fn sweep(name: &'static str) -> Span {
    let full = format!("sweep {name}");
    tracing::info_span!(target: LOOP, parent: None, "sweep", otel.name = full, sweep = name)
}

/// The sweep has ended.
pub(crate) fn swept(span: &Span, swept: &Swept) {
    match swept {
        Ok(0) => traces::idle(span),
        Ok(rows) => {
            let rows = i64::try_from(*rows).unwrap_or(i64::MAX);
            traces::attribute(span, "sweep.rows", rows);
        }
        Err(_) => traces::failed(span, "store"),
    }
}
