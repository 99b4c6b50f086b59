//! The settings of logs, traces and the admin listener.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Logs, traces and the admin listener of one process.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// What is logged, and how it looks.
    pub logs: Logs,
    /// Where spans are sent.
    pub traces: Traces,
    /// Where metrics and probes are served.
    pub admin: Admin,
}

/// Log output. Lines go to standard error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Logs {
    /// `json` for machines (one object a line), `text` for eyes.
    pub format: LogFormat,
    /// What is logged: a level (`error`, `warn`, `info`, `debug`, `trace`) or a list of
    /// `target=level` directives separated by commas, the most specific one winning.
    pub filter: String,
}

/// How a log line looks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// One JSON object a line.
    #[default]
    Json,
    /// A line of text; coloured on a terminal.
    Text,
}

/// Trace export over OTLP/HTTP with protobuf bodies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Traces {
    /// Collector address including the path, e.g. `http://otel-collector:4318/v1/traces`. Plain
    /// HTTP only: put a collector beside the process where the way needs encryption. Unset: no
    /// spans are made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Share of new traces that are kept, from 0 to 1. A caller's own decision is followed.
    pub sample_ratio: f64,
    /// Which spans are made, in the form of the log filter.
    pub filter: String,
    /// How long a finished span waits for others to share an export with.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub batch_delay: Duration,
    /// Spans held while the collector is slow; more are dropped, never waited for.
    pub queue_spans_max: usize,
    /// How long one export may take.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub export_timeout: Duration,
    /// How long the last export may hold up the end of the process.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub flush_timeout: Duration,
}

/// The admin listener.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Admin {
    /// Address of `/metrics`, `/livez`, `/readyz` and `/startupz`. It asks for no credentials:
    /// keep it inside the cluster. Port 0 takes a free one.
    pub listen: SocketAddr,
}

impl Default for Logs {
    fn default() -> Self {
        Logs {
            format: LogFormat::Json,
            filter: "info".to_owned(),
        }
    }
}

impl Default for Traces {
    fn default() -> Self {
        Traces {
            endpoint: None,
            sample_ratio: 1.0,
            filter: "info".to_owned(),
            batch_delay: Duration::from_secs(1),
            queue_spans_max: 4096,
            export_timeout: Duration::from_secs(5),
            flush_timeout: Duration::from_secs(3),
        }
    }
}

impl Default for Admin {
    fn default() -> Self {
        Admin {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 9100)),
        }
    }
}

impl Config {
    /// All problems, each naming its field; empty if there are none.
    pub fn validate(&self) -> Vec<String> {
        let mut problems = Vec::new();
        problems.extend(filter_problem("logs.filter", &self.logs.filter));
        problems.extend(filter_problem("traces.filter", &self.traces.filter));
        self.traces.check(&mut problems);
        problems
    }
}

impl Traces {
    fn check(&self, problems: &mut Vec<String>) {
        if let Some(endpoint) = &self.endpoint {
            let uri = endpoint.parse::<http::Uri>().ok();
            if !uri.is_some_and(|uri| uri.scheme_str() == Some("http") && uri.host().is_some()) {
                problems.push(format!(
                    "traces.endpoint: {endpoint:?} is not an http:// address with host and path"
                ));
            }
        }
        if !(0.0..=1.0).contains(&self.sample_ratio) {
            problems.push(format!(
                "traces.sample_ratio: {} is not in 0 to 1",
                self.sample_ratio
            ));
        }
        if !(1..=1_000_000).contains(&self.queue_spans_max) {
            problems.push(format!(
                "traces.queue_spans_max: {} is not in 1 to 1000000",
                self.queue_spans_max
            ));
        }
        let durations = [
            ("traces.batch_delay", self.batch_delay),
            ("traces.export_timeout", self.export_timeout),
            ("traces.flush_timeout", self.flush_timeout),
        ];
        for (name, value) in durations {
            if value < Duration::from_millis(10) || value > Duration::from_secs(60) {
                problems.push(format!("{name}: {value:?} is not in 10ms to 60s"));
            }
        }
    }
}

fn filter_problem(name: &str, filter: &str) -> Option<String> {
    let told = crate::filter::check(filter)?;
    Some(format!("{name}: {told}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_valid() {
        assert_eq!(Config::default().validate(), Vec::<String>::new());
    }

    #[test]
    fn all_problems_are_told_at_once() {
        let mut config = Config::default();
        config.logs.filter = "noise=very".to_owned();
        config.traces.endpoint = Some("https://collector/v1/traces".to_owned());
        config.traces.sample_ratio = f64::NAN;
        config.traces.flush_timeout = Duration::from_secs(3600);
        let problems = config.validate();
        for field in [
            "logs.filter",
            "traces.endpoint",
            "traces.sample_ratio",
            "traces.flush_timeout",
        ] {
            assert!(
                problems.iter().any(|problem| problem.starts_with(field)),
                "{problems:?}"
            );
        }
        assert_eq!(problems.len(), 4);
    }

    #[test]
    fn unknown_fields_are_refused_and_durations_are_words() {
        let parsed: Config = serde_json::from_str(r#"{"traces": {"batch_delay": "2s"}}"#).unwrap();
        assert_eq!(parsed.traces.batch_delay, Duration::from_secs(2));
        assert!(serde_json::from_str::<Config>(r#"{"logs": {"colour": true}}"#).is_err());
    }
}
