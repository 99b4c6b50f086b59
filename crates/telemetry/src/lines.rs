//! A log line as one flat JSON object: what it says, where, and all that its spans know.
//!
//! `task.id`, `tool.name` and `attempt` are set once, on a span, and stand in every line that is
//! written inside of it, beside `trace_id` and `span_id`.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::{self, Debug};

use opentelemetry::Context;
use opentelemetry::trace::TraceContextExt;
use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::{JsonFields, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormattedFields};
use tracing_subscriber::registry::LookupSpan;

/// Writes lines.
pub(crate) struct Lines;

impl<S> FormatEvent<S, JsonFields> for Lines
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, JsonFields>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut said = Said::default();
        if let Some(scope) = context.event_scope() {
            for span in scope.from_root() {
                let extensions = span.extensions();
                if let Some(fields) = extensions.get::<FormattedFields<JsonFields>>() {
                    said.inherit(fields);
                }
            }
        }
        said.trace();
        event.record(&mut said);
        let metadata = event.metadata();
        let target = said.target.take();
        let target = target.as_deref().unwrap_or_else(|| metadata.target());
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        let message = Value::from(std::mem::take(&mut said.message));
        write!(
            writer,
            r#"{{"timestamp":{},"level":"{}","message":{message},"target":{}"#,
            Value::from(time),
            metadata.level(),
            Value::from(target),
        )?;
        for (name, value) in &said.fields {
            write!(writer, ",{}:{value}", Value::from(name.as_str()))?;
        }
        writeln!(writer, "}}")
    }
}

/// The fields of a line, those of inner spans and of the event itself over those of outer ones.
#[derive(Default)]
struct Said {
    message: String,
    /// Of a line that came through the `log` crate.
    target: Option<String>,
    fields: BTreeMap<String, Value>,
}

impl Said {
    fn inherit(&mut self, fields: &str) {
        let Ok(Value::Object(fields)) = serde_json::from_str(fields) else {
            return;
        };
        // What is said to the tracing library alone.
        let known = fields
            .into_iter()
            .filter(|(name, _)| !name.starts_with("otel."));
        self.fields.extend(known);
    }

    /// The exported span that is open here; else what the spans know of their caller's trace.
    fn trace(&mut self) {
        let context = Context::current();
        let span = context.span();
        let span = span.span_context();
        if span.is_valid() {
            self.put("trace_id", span.trace_id().to_string());
            self.put("span_id", span.span_id().to_string());
        }
    }

    fn put(&mut self, name: &str, value: impl Into<Value>) {
        self.fields.insert(name.to_owned(), value.into());
    }

    fn field(&mut self, field: &Field, value: impl Into<Value>) {
        match field.name() {
            "message" => {
                let value = value.into();
                self.message = value
                    .as_str()
                    .map_or_else(|| value.to_string(), str::to_owned);
            }
            "log.target" => self.target = value.into().as_str().map(str::to_owned),
            name if name.starts_with("log.") => {}
            name => self.put(name.trim_start_matches("r#"), value),
        }
    }
}

impl Visit for Said {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.field(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.field(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.field(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.field(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.field(field, value);
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        let mut text = value.to_string();
        let mut source = value.source();
        while let Some(error) = source {
            text = format!("{text}: {error}");
            source = error.source();
        }
        self.field(field, text);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.field(field, format!("{value:?}"));
    }
}
