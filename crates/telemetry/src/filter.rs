//! What may be logged and traced: the setting, within bounds that no setting moves.
//!
//! The bounds are there because of what libraries say: at `debug` a database driver prints the
//! parameters of its statements, which are arguments, answers and results; the trace exporter
//! repeats once a second that its collector is away; the connection pool says a line for each
//! dead connection. What matters of that is told by ourselves, once.

use tracing::level_filters::LevelFilter;
use tracing::{Metadata, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::{FilterExt, FilterFn, filter_fn};
use tracing_subscriber::layer::Filter;
use tracing_subscriber::registry::LookupSpan;

use crate::Error;
use crate::traces::DETAIL;

/// How much a library may say, by the beginning of its target.
const BOUNDS: [(&str, LevelFilter); 10] = [
    ("deadpool", LevelFilter::ERROR),
    ("h2", LevelFilter::INFO),
    ("hyper", LevelFilter::INFO),
    ("opentelemetry", LevelFilter::OFF),
    ("postgres", LevelFilter::INFO),
    ("redis", LevelFilter::INFO),
    ("reqwest", LevelFilter::INFO),
    ("rmcp", LevelFilter::INFO),
    ("rustls", LevelFilter::INFO),
    ("tokio_postgres", LevelFilter::INFO),
];

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// What is wrong with a filter, in words; `None` if nothing is. A word that is no level would
/// pass as the name of a target of which everything is logged: a misspelt `info` must not.
pub fn check(directives: &str) -> Option<String> {
    let bare = directives.split(',').map(str::trim).find(|directive| {
        let level = directive.to_ascii_lowercase();
        !directive.is_empty()
            && !directive.contains(['=', '['])
            && !LEVELS.contains(&level.as_str())
            && !matches!(directive.as_bytes(), [b'0'..=b'5'])
    });
    if let Some(word) = bare {
        let levels = LEVELS.join(", ");
        return Some(format!(
            "{word:?} is no level ({levels}); for all that a target says write \"{word}=trace\""
        ));
    }
    let error = EnvFilter::builder().parse(directives).err()?;
    Some(format!("{directives:?} is not a filter: {error}"))
}

/// For log lines: without the spans that only traces show.
pub(crate) fn of_logs<S>(directives: &str) -> Result<impl Filter<S> + use<S>, Error>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    let shown = filter_fn(|metadata| !metadata.is_span() || metadata.target() != DETAIL);
    Ok(parse("logs.filter", directives)?.and(bounds()).and(shown))
}

/// For spans and the events in them.
pub(crate) fn of_traces<S>(directives: &str) -> Result<impl Filter<S> + use<S>, Error>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    Ok(parse("traces.filter", directives)?.and(bounds()))
}

fn parse(field: &'static str, directives: &str) -> Result<EnvFilter, Error> {
    EnvFilter::builder()
        .parse(directives)
        .map_err(|source| Error::Filter { field, source })
}

fn bounds() -> FilterFn {
    filter_fn(within_bounds as fn(&Metadata<'_>) -> bool)
}

fn within_bounds(metadata: &Metadata<'_>) -> bool {
    let target = metadata.target();
    let bound = BOUNDS.iter().find(|(library, _)| {
        target
            .strip_prefix(library)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with([':', '_', '-', '.']))
    });
    bound.is_none_or(|(_, most)| *metadata.level() <= *most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_level_is_refused_and_targets_are_not() {
        for bad in [
            "infoo",
            "info,verbose",
            "mcp_tasks_worker=infoo",
            "warning",
            "a=b=c",
        ] {
            let told = check(bad);
            assert!(told.is_some(), "{bad}");
        }
        for good in [
            "info",
            "INFO",
            "off",
            "3",
            "",
            "warn,mcp_tasks_worker=debug",
            "acme_tools=trace, info",
            "[request{task.id=7}]=debug,info",
        ] {
            assert_eq!(check(good), None, "{good}");
        }
    }
}
