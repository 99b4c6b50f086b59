//! Log lines: JSON or text, on standard error.

use std::io::{self, IsTerminal};

use tracing::Subscriber;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{EnvFilter, Layer};

use crate::Error;
use crate::config::{LogFormat, Logs};

/// The layer that writes log lines, with its own filter.
///
/// # Errors
/// [`Error::Filter`] if the filter can't be parsed.
pub(crate) fn layer<S>(config: &Logs) -> Result<Box<dyn Layer<S> + Send + Sync>, Error>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    let filter = filter("logs.filter", &config.filter)?;
    let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr);
    Ok(match config.format {
        // Flat events and the fields of all open spans: `task.id` is set once, on the span.
        LogFormat::Json => lines
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .with_filter(filter)
            .boxed(),
        LogFormat::Text => lines
            .with_ansi(io::stderr().is_terminal())
            .with_filter(filter)
            .boxed(),
    })
}

pub(crate) fn filter(field: &'static str, directives: &str) -> Result<EnvFilter, Error> {
    EnvFilter::builder()
        .parse(directives)
        .map_err(|source| Error::Filter { field, source })
}
