//! The metrics registry, and the macro that declares a crate's metrics in one place.
//!
//! A registry is passed in, never static: two gateways can run in one test without sharing
//! counters. Asking twice for the same name gives the same metric, so a part may be built twice
//! over one registry.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use prometheus::core::Collector;
use prometheus::proto::MetricFamily;
use prometheus::{Encoder, TextEncoder};

pub use prometheus::{
    Counter, Gauge, GaugeVec, Histogram, HistogramOpts, HistogramTimer, HistogramVec, IntCounter,
    IntCounterVec, IntGauge, IntGaugeVec, Opts,
};

/// Histogram buckets for one round trip to a neighbour: 0.5 ms to 10 s, in seconds.
pub const ROUND_TRIP_SECONDS: &[f64] = &[
    0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0,
];

/// Histogram buckets for work that takes from 10 ms to an hour, in seconds.
pub const WORK_SECONDS: &[f64] = &[
    0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0,
];

/// Histogram buckets for sizes from 256 B to 16 MiB, in bytes.
pub const SIZE_BYTES: &[f64] = &[
    256.0,
    1024.0,
    4096.0,
    16384.0,
    65536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
];

type Hook = Box<dyn Fn() + Send + Sync>;

/// All metrics of one process (or of one part of a test). Cheap to clone.
#[derive(Clone, Default)]
pub struct Registry {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    prometheus: prometheus::Registry,
    known: Mutex<BTreeMap<&'static str, Known>>,
    hooks: Mutex<Vec<Hook>>,
}

struct Known {
    description: Description,
    metric: Box<dyn Any + Send + Sync>,
}

/// What a registry knows about one metric; for documentation and for the tests that compare it
/// with dashboards and rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// Full name, `mcp_tasks_…`.
    pub name: &'static str,
    /// Help text: the doc comment of the field.
    pub help: String,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// Label names in order.
    pub labels: &'static [&'static str],
}

/// How one metric is declared; made by [`metrics!`](crate::metrics!).
pub struct Spec {
    /// Full name, `mcp_tasks_…`.
    pub name: &'static str,
    /// Help text, trimmed of the doc comment's leading blank.
    pub help: &'static str,
    /// Label names in order; empty for a metric without labels.
    pub labels: &'static [&'static str],
    /// Bucket bounds of a histogram; ignored for other kinds.
    pub buckets: &'static [f64],
}

impl Registry {
    /// An empty registry.
    pub fn new() -> Registry {
        Registry::default()
    }

    /// The metric that `spec` declares: made at the first call, the same one afterwards.
    ///
    /// # Panics
    /// If the name is taken by a metric of another type, or is no valid metric name: a mistake in
    /// the source that every start of the program shows at once.
    pub fn metric<M: Metric>(&self, spec: &Spec) -> M {
        let mut known = self
            .inner
            .known
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(existing) = known.get(spec.name) {
            return match existing.metric.downcast_ref::<M>() {
                Some(metric) => metric.clone(),
                None => panic!(
                    "metric {} is declared twice, with different types",
                    spec.name
                ),
            };
        }
        let metric = M::build(spec)
            .and_then(|metric| {
                self.inner.prometheus.register(metric.collector())?;
                Ok(metric)
            })
            .unwrap_or_else(|error| panic!("metric {}: {error}", spec.name));
        let description = Description {
            name: spec.name,
            help: spec.help.trim().to_owned(),
            kind: M::KIND,
            labels: spec.labels,
        };
        known.insert(
            spec.name,
            Known {
                description,
                metric: Box::new(metric.clone()),
            },
        );
        metric
    }

    /// Runs `hook` before every scrape, for gauges that are cheaper to read than to keep. It must
    /// not block and must not register metrics.
    pub fn before_scrape(&self, hook: impl Fn() + Send + Sync + 'static) {
        let mut hooks = self
            .inner
            .hooks
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        hooks.push(Box::new(hook));
    }

    /// Everything registered, sorted by name.
    pub fn descriptions(&self) -> Vec<Description> {
        let known = self
            .inner
            .known
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        known
            .values()
            .map(|known| known.description.clone())
            .collect()
    }

    /// The current values in Prometheus' text format 0.0.4. A metric whose labels have taken no
    /// value yet is named all the same, with its help and type: whoever looks for it learns that it
    /// exists, and that nothing happened.
    pub fn render(&self) -> String {
        let hooks = self
            .inner
            .hooks
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for hook in hooks.iter() {
            hook();
        }
        drop(hooks);
        let mut text = Vec::new();
        let families = self.inner.prometheus.gather();
        TextEncoder::new()
            .encode(&families, &mut text)
            .expect("writing to a Vec does not fail, and registered families are not empty");
        let mut text = String::from_utf8(text).expect("the text encoder writes UTF-8");
        let shown: BTreeSet<&str> = families.iter().map(MetricFamily::name).collect();
        for silent in self.descriptions() {
            if !shown.contains(silent.name) {
                let help = silent.help.replace('\\', r"\\").replace('\n', r"\n");
                let (name, kind) = (silent.name, silent.kind);
                text.push_str(&format!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
            }
        }
        text
    }
}

/// A metric type that [`Registry::metric`] can make.
pub trait Metric: Clone + Send + Sync + 'static {
    /// `counter`, `gauge` or `histogram`.
    const KIND: &'static str;

    /// Makes the metric, unregistered.
    ///
    /// # Errors
    /// If the name or a label is not valid for Prometheus.
    fn build(spec: &Spec) -> Result<Self, prometheus::Error>;

    /// What the registry collects from.
    fn collector(&self) -> Box<dyn Collector>;
}

macro_rules! metric_types {
    ($($type:ident $kind:literal |$spec:ident| $build:expr;)*) => {$(
        impl Metric for $type {
            const KIND: &'static str = $kind;

            fn build($spec: &Spec) -> Result<Self, prometheus::Error> {
                $build
            }

            fn collector(&self) -> Box<dyn Collector> {
                Box::new(self.clone())
            }
        }
    )*};
}

metric_types! {
    Counter "counter" |spec| Counter::with_opts(spec.opts());
    IntCounter "counter" |spec| IntCounter::with_opts(spec.opts());
    IntCounterVec "counter" |spec| IntCounterVec::new(spec.opts(), spec.labels);
    IntGauge "gauge" |spec| IntGauge::with_opts(spec.opts());
    IntGaugeVec "gauge" |spec| IntGaugeVec::new(spec.opts(), spec.labels);
    Gauge "gauge" |spec| Gauge::with_opts(spec.opts());
    GaugeVec "gauge" |spec| GaugeVec::new(spec.opts(), spec.labels);
    Histogram "histogram" |spec| Histogram::with_opts(spec.histogram_opts());
    HistogramVec "histogram" |spec| HistogramVec::new(spec.histogram_opts(), spec.labels);
}

impl Spec {
    fn opts(&self) -> Opts {
        Opts::new(self.name, self.help.trim())
    }

    fn histogram_opts(&self) -> HistogramOpts {
        HistogramOpts::from(self.opts()).buckets(self.buckets.to_vec())
    }
}

/// Declares a crate's metrics: a struct whose fields are metrics and whose doc comments are the
/// help texts, with `fn new(&Registry)`.
///
/// After the name: label names in `[…]`, then `in BUCKETS` for histograms (default
/// [`ROUND_TRIP_SECONDS`](crate::metrics::ROUND_TRIP_SECONDS)).
///
/// ```
/// # use mcp_tasks_telemetry as telemetry;
/// use telemetry::metrics::{Histogram, IntCounterVec};
///
/// telemetry::metrics! {
///     /// What the door did.
///     pub struct Metrics {
///         /// Requests answered, by method.
///         requests: IntCounterVec = "mcp_tasks_door_requests_total" ["method"],
///         /// Seconds from the first byte to the last.
///         seconds: Histogram = "mcp_tasks_door_seconds" in telemetry::metrics::WORK_SECONDS,
///     }
/// }
///
/// let registry = telemetry::Registry::new();
/// let metrics = Metrics::new(&registry);
/// metrics.requests.with_label_values(&["tasks/get"]).inc();
/// metrics.seconds.observe(0.2);
/// assert!(registry.render().contains("mcp_tasks_door_requests_total{method=\"tasks/get\"} 1"));
/// ```
#[macro_export]
macro_rules! metrics {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $(
                $(#[doc = $help:literal])+
                $field:ident : $type:ident = $metric:literal
                    $([ $($label:literal),+ $(,)? ])?
                    $(in $buckets:expr)?
            ),+ $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone)]
        $vis struct $name {
            $(
                $(#[doc = $help])+
                pub $field: $type,
            )+
        }

        impl $name {
            /// Makes and registers all of them; the same ones if they are registered already.
            pub fn new(registry: &$crate::Registry) -> Self {
                Self {
                    $(
                        $field: registry.metric(&$crate::metrics::Spec {
                            name: $metric,
                            help: concat!($($help),+),
                            labels: &[$($($label),+)?],
                            buckets: $crate::metrics!(@buckets $($buckets)?),
                        }),
                    )+
                }
            }
        }
    };
    (@buckets) => { $crate::metrics::ROUND_TRIP_SECONDS };
    (@buckets $buckets:expr) => { $buckets };
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::metrics! {
        /// For the tests below.
        struct Sample {
            /// Things counted,
            /// over two lines.
            counted: IntCounterVec = "mcp_tasks_sample_total" ["outcome"],
            /// A level.
            level: IntGauge = "mcp_tasks_sample_level",
            /// A time.
            seconds: Histogram = "mcp_tasks_sample_seconds" in &[1.0, 2.0],
        }
    }

    #[test]
    fn doc_comments_become_help() {
        let registry = Registry::new();
        let sample = Sample::new(&registry);
        sample.counted.with_label_values(&["ok"]).inc();
        sample.seconds.observe(1.5);
        let text = registry.render();
        assert!(text.contains("# HELP mcp_tasks_sample_total Things counted, over two lines."));
        assert!(text.contains("mcp_tasks_sample_seconds_bucket{le=\"2\"} 1"));
        assert_eq!(registry.descriptions().len(), 3);
        assert_eq!(registry.descriptions()[2].labels, &["outcome"]);
    }

    #[test]
    fn what_has_no_value_yet_is_named() {
        let registry = Registry::new();
        let sample = Sample::new(&registry);
        let head = "# HELP mcp_tasks_sample_total Things counted, over two lines.\n\
                    # TYPE mcp_tasks_sample_total counter\n";
        assert!(registry.render().ends_with(head));
        sample.counted.with_label_values(&["ok"]).inc();
        assert_eq!(registry.render().matches(head).count(), 1);
    }

    #[test]
    fn the_same_name_gives_the_same_metric() {
        let registry = Registry::new();
        Sample::new(&registry).level.set(7);
        assert_eq!(Sample::new(&registry).level.get(), 7);
    }

    #[test]
    #[should_panic(expected = "declared twice")]
    fn another_type_under_the_same_name_is_refused() {
        let registry = Registry::new();
        Sample::new(&registry);
        let spec = Spec {
            name: "mcp_tasks_sample_level",
            help: "x",
            labels: &[],
            buckets: &[],
        };
        registry.metric::<IntCounter>(&spec);
    }

    #[test]
    fn hooks_run_before_a_scrape() {
        let registry = Registry::new();
        let level = Sample::new(&registry).level;
        registry.before_scrape(move || level.inc());
        assert!(registry.render().contains("mcp_tasks_sample_level 1"));
        assert!(registry.render().contains("mcp_tasks_sample_level 2"));
    }
}
