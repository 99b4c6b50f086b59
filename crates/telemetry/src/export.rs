//! The export of spans over OTLP, which nothing waits for.
//!
//! Exporting has its own thread and its own small runtime. Spans are handed over without waiting
//! and dropped when too many wait already, so a collector that is slow, hangs or is gone costs
//! spans and nothing else; flushing can't deadlock on a process with one CPU. What is lost is
//! counted, and told once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use opentelemetry::trace::{Link, SpanKind, TraceContextExt, TraceId, TracerProvider};
use opentelemetry::{Context, KeyValue, Value};
use opentelemetry_otlp::WithExportConfig;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, Sampler, SamplingResult, SdkTracerProvider,
    ShouldSample, Span, SpanData, SpanExporter, SpanProcessor,
};
use tokio::runtime::{Handle, Runtime};
use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::registry::LookupSpan;

use crate::config::Traces;
use crate::metrics::{IntCounter, IntCounterVec, IntGauge, Registry};
use crate::traces::IDLE;
use crate::{Error, filter};

/// A collector that comes and goes is told of no more often than this.
const TELL_PAUSE: Duration = Duration::from_secs(60);
/// Spans in one export, at most.
const BATCH_SPANS_MAX: usize = 512;

crate::metrics! {
    /// What became of exported spans.
    pub(crate) struct Metrics {
        /// Spans handed to the collector, by outcome (`ok`, `error`). Errors lose the spans.
        spans: IntCounterVec = "mcp_tasks_telemetry_spans_exported_total" ["outcome"],
        /// Spans dropped because too many waited for the collector already.
        dropped: IntCounter = "mcp_tasks_telemetry_spans_dropped_total",
        /// Spans that wait for the collector now.
        waiting: IntGauge = "mcp_tasks_telemetry_spans_waiting",
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

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Metrics")
    }
}

/// The running export; ends when it is shut down.
pub(crate) struct Export {
    provider: SdkTracerProvider,
    runtime: Option<Runtime>,
    shared: Arc<Shared>,
    flush_timeout: Duration,
}

/// What the processes' threads and the exporting one know of each other.
#[derive(Debug)]
struct Shared {
    waiting: AtomicUsize,
    waiting_max: usize,
    metrics: OnceLock<Metrics>,
    course: Mutex<Course>,
}

/// How exporting has gone lately.
#[derive(Debug, Default)]
struct Course {
    /// Spans lost since it began to fail; `None` while it works.
    lost: Option<u64>,
    told: bool,
    told_at: Option<Instant>,
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
        let shared = Arc::new(Shared {
            waiting: AtomicUsize::new(0),
            waiting_max: config.queue_spans_max,
            metrics: OnceLock::new(),
            course: Mutex::default(),
        });
        let exporter = OnRuntime {
            inner: Arc::new(otlp),
            runtime: runtime.handle().clone(),
            timeout: config.export_timeout,
            shared: Arc::clone(&shared),
        };
        let batch = BatchConfigBuilder::default()
            .with_max_queue_size(config.queue_spans_max)
            .with_max_export_batch_size(config.queue_spans_max.min(BATCH_SPANS_MAX))
            .with_scheduled_delay(config.batch_delay)
            .build();
        let processor = Bounded {
            inner: BatchSpanProcessor::builder(exporter)
                .with_batch_config(batch)
                .build(),
            shared: Arc::clone(&shared),
        };
        let provider = SdkTracerProvider::builder()
            .with_span_processor(processor)
            .with_sampler(Following {
                ratio: Sampler::TraceIdRatioBased(config.sample_ratio),
            })
            .with_resource(resource(service))
            .build();
        Ok(Export {
            provider,
            runtime: Some(runtime),
            shared,
            flush_timeout: config.flush_timeout,
        })
    }

    /// The layer that turns `tracing` spans into exported ones, with its own filter.
    pub(crate) fn layer<S>(&self, config: &Traces) -> Result<Box<dyn Layer<S> + Send + Sync>, Error>
    where
        S: Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
    {
        let filter = filter::of_traces(&config.filter)?;
        let tracer = self.provider.tracer("mcp-tasks");
        Ok(tracing_opentelemetry::layer()
            .with_tracer(tracer)
            // Where in the source a span begins says its name; threads say nothing in async code.
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_tracked_inactivity(false)
            .with_filter(filter)
            .boxed())
    }

    /// Counts exports in `registry` from now on.
    pub(crate) fn observe(&self, registry: &Registry) {
        self.shared
            .metrics
            .get_or_init(|| Metrics::prepared(registry));
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

/// Which process it is; `OTEL_RESOURCE_ATTRIBUTES` adds to it.
fn resource(service: &'static str) -> Resource {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let (host, pid) = (host.trim().to_owned(), std::process::id());
    Resource::builder()
        .with_attribute(KeyValue::new(
            "service.instance.id",
            format!("{host}:{pid}"),
        ))
        .with_attribute(KeyValue::new("host.name", host))
        .with_attribute(KeyValue::new("process.pid", i64::from(pid)))
        .with_service_name(service)
        .with_attribute(KeyValue::new("service.namespace", "mcp-tasks"))
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .build()
}

/// As the parent; a root as what it is linked to, so that a task's attempts are kept if its call
/// is; any other root by the ratio.
#[derive(Clone, Debug)]
struct Following {
    ratio: Sampler,
}

impl ShouldSample for Following {
    fn should_sample(
        &self,
        parent: Option<&Context>,
        trace_id: TraceId,
        name: &str,
        kind: &SpanKind,
        attributes: &[KeyValue],
        links: &[Link],
    ) -> SamplingResult {
        let parent_is_sampled = parent.and_then(|context| {
            let span = context.span();
            let span = span.span_context();
            span.is_valid().then(|| span.is_sampled())
        });
        let links_are_sampled =
            (!links.is_empty()).then(|| links.iter().any(|link| link.span_context.is_sampled()));
        let sampler = match parent_is_sampled.or(links_are_sampled) {
            Some(true) => &Sampler::AlwaysOn,
            Some(false) => &Sampler::AlwaysOff,
            None => &self.ratio,
        };
        sampler.should_sample(parent, trace_id, name, kind, attributes, links)
    }
}

/// Hands spans over while not too many wait; counts those that it drops. The library's own bound
/// tells its count to nobody.
#[derive(Debug)]
struct Bounded {
    inner: BatchSpanProcessor,
    shared: Arc<Shared>,
}

impl SpanProcessor for Bounded {
    fn on_start(&self, span: &mut Span, context: &Context) {
        self.inner.on_start(span, context);
    }

    fn on_end(&self, span: SpanData) {
        if !span.span_context.is_sampled() || is_idle(&span) {
            return;
        }
        let shared = &self.shared;
        if shared.waiting.fetch_add(1, Ordering::Relaxed) >= shared.waiting_max {
            shared.waiting.fetch_sub(1, Ordering::Relaxed);
            if let Some(metrics) = shared.metrics.get() {
                metrics.dropped.inc();
            }
            return;
        }
        shared.show_waiting();
        self.inner.on_end(span);
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.inner.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}

fn is_idle(span: &SpanData) -> bool {
    span.attributes
        .iter()
        .any(|attribute| attribute.key.as_str() == IDLE && attribute.value == Value::Bool(true))
}

impl Shared {
    fn show_waiting(&self) {
        if let Some(metrics) = self.metrics.get() {
            let waiting = self.waiting.load(Ordering::Relaxed);
            metrics
                .waiting
                .set(i64::try_from(waiting).unwrap_or(i64::MAX));
        }
    }

    /// An export of so many spans has ended.
    fn exported(&self, spans: usize, result: &OTelSdkResult) {
        self.waiting.fetch_sub(spans, Ordering::Relaxed);
        self.show_waiting();
        let spans = spans as u64;
        if let Some(metrics) = self.metrics.get() {
            let outcome = if result.is_ok() { "ok" } else { "error" };
            metrics.spans.with_label_values(&[outcome]).inc_by(spans);
        }
        let mut course = self.course.lock().unwrap_or_else(PoisonError::into_inner);
        match result {
            Ok(()) => course.works(),
            Err(error) => course.fails(spans, error),
        }
    }
}

impl Course {
    fn works(&mut self) {
        let lost = self.lost.take();
        if let Some(lost) = lost.filter(|_| std::mem::take(&mut self.told)) {
            tracing::info!(spans.lost = lost, "spans are exported again");
        }
    }

    fn fails(&mut self, spans: u64, error: &OTelSdkError) {
        self.lost = Some(self.lost.unwrap_or(0) + spans);
        let lately = self.told_at.is_some_and(|at| at.elapsed() < TELL_PAUSE);
        if self.told || lately {
            return;
        }
        (self.told, self.told_at) = (true, Some(Instant::now()));
        tracing::warn!(
            error = %error,
            "spans cannot be exported: they are dropped and counted until the collector is back"
        );
    }
}

/// An exporter whose HTTP client runs on our runtime: the batch thread that calls it has none.
#[derive(Debug)]
struct OnRuntime {
    inner: Arc<opentelemetry_otlp::SpanExporter>,
    runtime: Handle,
    timeout: Duration,
    shared: Arc<Shared>,
}

impl SpanExporter for OnRuntime {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        let (inner, timeout) = (Arc::clone(&self.inner), self.timeout);
        let export = self.runtime.spawn(async move {
            // Over all that one export does; the client's own is over less.
            tokio::time::timeout(timeout, inner.export(batch)).await
        });
        let result = match export.await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(OTelSdkError::Timeout(timeout)),
            Err(error) => Err(OTelSdkError::InternalFailure(error.to_string())),
        };
        self.shared.exported(spans, &result);
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
