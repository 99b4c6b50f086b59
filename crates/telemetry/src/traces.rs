//! Trace context in and out of a process, and the export of spans over OTLP.
//!
//! A job's span is a new root linked to the call's span: the call has been answered long before
//! the work ends, and one trace of hours would never be complete.
//!
//! Exporting has its own thread and its own small runtime. Spans are handed over without waiting
//! (dropped when the collector is slow), so tracing never blocks serving, and flushing can't
//! deadlock on a process with one CPU.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use opentelemetry::baggage::BaggageExt;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::{TraceContextExt, TracerProvider};
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::WithExportConfig;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::propagation::{BaggagePropagator, TraceContextPropagator};
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracerProvider, SpanData, SpanExporter,
};
use tokio::runtime::{Handle, Runtime};
use tracing::{Span, Subscriber};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::Layer;
use tracing_subscriber::registry::LookupSpan;

use crate::config::Traces;
use crate::metrics::{IntCounterVec, Registry};
use crate::{Error, logs};

crate::metrics! {
    /// What became of exported spans.
    pub(crate) struct Metrics {
        /// Spans handed to the collector, by outcome (`ok`, `error`). Errors lose the spans.
        spans: IntCounterVec = "mcp_tasks_telemetry_spans_exported_total" ["outcome"],
    }
}

impl Metrics {
    /// Both outcomes exist from the start, also where nothing is exported.
    pub(crate) fn prepared(registry: &Registry) -> Self {
        let metrics = Self::new(registry);
        for outcome in ["ok", "error"] {
            metrics.spans.with_label_values(&[outcome]);
        }
        metrics
    }
}

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
}

/// The context of the current span, to send along; all `None` where no spans are made (then the
/// caller's own context is the one to pass on).
pub fn current_context() -> TraceContext {
    context_of(&Span::current())
}

/// The context of `span`, to send along. Starts the span: set its parent first.
pub fn context_of(span: &Span) -> TraceContext {
    let context = span.context();
    let mut carrier = HashMap::new();
    TraceContextPropagator::new().inject_context(&context, &mut carrier);
    if !context.baggage().is_empty() {
        BaggagePropagator::new().inject_context(&context, &mut carrier);
    }
    let mut take = |name: &str| carrier.remove(name).filter(|value| !value.is_empty());
    TraceContext {
        traceparent: take("traceparent"),
        tracestate: take("tracestate"),
        baggage: take("baggage"),
    }
}

/// Links `span` to a remote one, leaving it a root of its own. False if the context is absent or
/// malformed: foreign text, so nothing worth a log line.
pub fn link_span(span: &Span, traceparent: &str, tracestate: Option<&str>) -> bool {
    let remote = TraceContext {
        traceparent: Some(traceparent.to_owned()),
        tracestate: tracestate.map(str::to_owned),
        baggage: None,
    };
    let context = remote.extract();
    let linked = context.span().span_context().clone();
    let valid = linked.is_valid();
    if valid {
        span.add_link(linked);
    }
    valid
}

/// Makes a remote span the parent of `span`, which must not have been entered yet. False if the
/// context is absent or malformed, or no spans are made.
pub fn set_parent_from(span: &Span, remote: &TraceContext) -> bool {
    let context = remote.extract();
    context.span().span_context().is_valid() && span.set_parent(context).is_ok()
}

/// The running export; ends when it is shut down.
pub(crate) struct Export {
    provider: SdkTracerProvider,
    runtime: Option<Runtime>,
    metrics: Arc<OnceLock<Metrics>>,
    flush_timeout: Duration,
}

impl Export {
    /// Starts exporting as `service`; nothing is sent until the first span ends.
    pub(crate) fn start(
        config: &Traces,
        endpoint: &str,
        service: &'static str,
    ) -> Result<Export, Error> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("otlp")
            .enable_all()
            .build()
            .map_err(Error::Runtime)?;
        // The HTTP client looks for its runtime while it is built, too.
        let entered = runtime.enter();
        let otlp = opentelemetry_otlp::SpanExporter::builder()
            .with_http()
            .with_endpoint(endpoint)
            .with_timeout(config.export_timeout)
            .build()
            .map_err(|error| Error::Export(error.to_string()))?;
        drop(entered);
        let metrics = Arc::new(OnceLock::new());
        let exporter = OnRuntime {
            inner: Arc::new(otlp),
            runtime: runtime.handle().clone(),
            metrics: Arc::clone(&metrics),
        };
        let batch = BatchConfigBuilder::default()
            .with_max_queue_size(config.queue_spans_max)
            .with_max_export_batch_size(config.queue_spans_max.min(512))
            .with_scheduled_delay(config.batch_delay)
            .build();
        let processor = BatchSpanProcessor::builder(exporter)
            .with_batch_config(batch)
            .build();
        let sampler =
            Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(config.sample_ratio)));
        let provider = SdkTracerProvider::builder()
            .with_span_processor(processor)
            .with_sampler(sampler)
            .with_resource(resource(service))
            .build();
        let flush_timeout = config.flush_timeout;
        Ok(Export {
            provider,
            runtime: Some(runtime),
            metrics,
            flush_timeout,
        })
    }

    /// The layer that turns `tracing` spans into exported ones, with its own filter.
    pub(crate) fn layer<S>(&self, config: &Traces) -> Result<Box<dyn Layer<S> + Send + Sync>, Error>
    where
        S: Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
    {
        let filter = logs::filter("traces.filter", &config.filter)?;
        let tracer = self.provider.tracer("mcp-tasks");
        Ok(tracing_opentelemetry::layer()
            .with_tracer(tracer)
            .with_filter(filter)
            .boxed())
    }

    /// Counts exports in `registry` from now on.
    pub(crate) fn observe(&self, registry: &Registry) {
        self.metrics.get_or_init(|| Metrics::prepared(registry));
    }

    /// Sends what is left, for at most the flush timeout, on a thread of its own: the SDK's own
    /// deadline does not cover an export that hangs.
    fn flush(&self) {
        let (done, finished) = std::sync::mpsc::channel();
        let (provider, timeout) = (self.provider.clone(), self.flush_timeout);
        let flusher = std::thread::Builder::new().name("otlp-flush".to_owned());
        let spawned = flusher.spawn(move || {
            let result = provider.shutdown_with_timeout(timeout);
            // Nobody listens any more if the deadline has passed.
            done.send(result).ok();
        });
        if let Err(error) = spawned {
            tracing::warn!(error = %error, "no thread to send the last spans with");
            return;
        }
        match finished.recv_timeout(timeout) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(error = %error, "the last spans were not sent"),
            Err(_) => tracing::warn!("the last spans were not sent in time"),
        }
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        self.flush();
        if let Some(runtime) = self.runtime.take() {
            // Not dropped in place: that would wait for a hung connection, and would panic inside
            // an async context.
            runtime.shutdown_background();
        }
    }
}

fn resource(service: &'static str) -> Resource {
    Resource::builder()
        .with_service_name(service)
        .with_attribute(KeyValue::new("service.namespace", "mcp-tasks"))
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .build()
}

/// An exporter whose HTTP client runs on our runtime: the batch thread that calls it has none.
#[derive(Debug)]
struct OnRuntime {
    inner: Arc<opentelemetry_otlp::SpanExporter>,
    runtime: Handle,
    metrics: Arc<OnceLock<Metrics>>,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Metrics")
    }
}

impl SpanExporter for OnRuntime {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len() as u64;
        let inner = Arc::clone(&self.inner);
        let export = self.runtime.spawn(async move { inner.export(batch).await });
        let result = match export.await {
            Ok(result) => result,
            Err(error) => Err(OTelSdkError::InternalFailure(error.to_string())),
        };
        if let Some(metrics) = self.metrics.get() {
            let outcome = if result.is_ok() { "ok" } else { "error" };
            metrics.spans.with_label_values(&[outcome]).inc_by(spans);
        }
        result
    }

    fn set_resource(&mut self, resource: &Resource) {
        // Told before the first export, so nobody shares the exporter yet.
        if let Some(inner) = Arc::get_mut(&mut self.inner) {
            inner.set_resource(resource);
        }
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }
}
