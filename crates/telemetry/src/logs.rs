//! Log lines: JSON or text, on standard error. Panics are lines, too.

use std::any::Any;
use std::io::{self, IsTerminal};

use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::fmt::format::JsonFields;
use tracing_subscriber::registry::LookupSpan;

use crate::config::{LogFormat, Logs};
use crate::lines::Lines;
use crate::{Error, filter};

/// The layer that writes log lines, with its own filter.
///
/// # Errors
/// [`Error::Filter`] if the filter can't be parsed.
pub(crate) fn layer<S>(config: &Logs) -> Result<Box<dyn Layer<S> + Send + Sync>, Error>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    let filter = filter::of_logs(&config.filter)?;
    let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr);
    Ok(match config.format {
        LogFormat::Json => lines
            .fmt_fields(JsonFields::new())
            .event_format(Lines)
            .with_filter(filter)
            .boxed(),
        LogFormat::Text => lines
            .with_ansi(io::stderr().is_terminal())
            .with_filter(filter)
            .boxed(),
    })
}

/// What a panic says, if it is a text of the source. One that was put together may hold anything,
/// a tool's arguments for one, and is not for logs.
#[must_use]
pub fn panic_text(panic: &(dyn Any + Send)) -> &'static str {
    panic
        .downcast_ref::<&'static str>()
        .copied()
        .unwrap_or("a text that is not logged: it may hold data")
}

/// Makes panics log lines: the usual message goes to standard error as it is, which is neither
/// JSON nor free of data.
pub(crate) fn catch_panics() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !tracing::enabled!(tracing::Level::ERROR) {
            return usual(panic);
        }
        let place = panic.location().map(ToString::to_string);
        let text = panic_text(panic.payload());
        tracing::error!(panic.location = place, panic.text = text, "panicked");
    }));
}
