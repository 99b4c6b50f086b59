//! The caller of one request: who it is, what its client can do, and the trace it belongs to.

use protocol::meta::{ClientCapabilities, ProgressToken, RequestMeta};
use store::Principal;

use crate::auth::{self, Proven};
use crate::error::Error;
use crate::legacy::{Dialect, Shape};

/// Proof that this request declared the tasks extension: without one nothing that shows a task
/// can be written (SEP-2663 §Capability Negotiation).
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeclaredTasks(());

/// Who calls, with what this request says of itself.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) principal: Principal,
    /// What the token allows; `None` = everything.
    pub(crate) scopes: Option<Vec<String>>,
    /// Until when the token holds, seconds since 1970; `None` = as long as it is good.
    pub(crate) until: Option<i64>,
    /// The client, as it calls itself: `name/version`; empty when it does not say.
    pub(crate) client: String,
    pub(crate) capabilities: ClientCapabilities,
    pub(crate) trace: telemetry::TraceContext,
    pub(crate) progress_token: Option<ProgressToken>,
    /// The idempotency key in `_meta`.
    pub(crate) idempotency_key: Option<String>,
    /// The client reads `text/event-stream`.
    pub(crate) reads_streams: bool,
    /// It speaks an older revision.
    pub(crate) legacy: Option<Dialect>,
    declared: Option<DeclaredTasks>,
}

impl Caller {
    pub(crate) fn new(proven: Proven, meta: RequestMeta, reads_streams: bool) -> Self {
        let declared = meta
            .capabilities
            .declares_tasks()
            .then_some(DeclaredTasks(()));
        Self {
            principal: proven.principal,
            scopes: proven.scopes,
            until: proven.until,
            declared,
            legacy: None,
            client: meta
                .client_info
                .map(|client| client.name + "/" + &client.version)
                .unwrap_or_default(),
            capabilities: meta.capabilities,
            trace: telemetry::TraceContext {
                traceparent: meta.trace.traceparent,
                tracestate: meta.trace.tracestate,
                baggage: meta.trace.baggage,
            },
            progress_token: meta.progress_token,
            idempotency_key: meta.idempotency_key,
            reads_streams,
        }
    }

    /// A caller of an older revision: what it asks about a task declares that it knows tasks.
    pub(crate) fn legacy(
        proven: Proven,
        meta: RequestMeta,
        reads_streams: bool,
        dialect: Dialect,
    ) -> Self {
        let declared = dialect.shape.is_about_a_task().then_some(DeclaredTasks(()));
        Self {
            declared,
            legacy: Some(dialect),
            ..Self::new(proven, meta, reads_streams)
        }
    }

    /// Whether it asked for a task, which no call of today does.
    pub(crate) fn wants_task(&self) -> bool {
        let dialect = self.legacy.as_ref();
        dialect.is_some_and(|dialect| dialect.shape == Shape::Handle)
    }

    /// The proof, if the request declared the extension.
    pub(crate) fn declared_tasks(&self) -> Option<DeclaredTasks> {
        self.declared
    }

    /// The proof, demanded.
    ///
    /// # Errors
    /// `-32021` if the request did not declare the extension.
    pub(crate) fn must_declare_tasks(&self) -> Result<DeclaredTasks, Error> {
        self.declared.ok_or(Error::TasksNotDeclared)
    }

    /// Whether the token allows all of `needed`.
    pub(crate) fn has_scopes(&self, needed: &[String]) -> bool {
        auth::allow(self.scopes.as_deref(), needed)
    }
}
