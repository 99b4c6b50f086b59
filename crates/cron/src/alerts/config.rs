//! Who is told of what nobody looked at.

use std::collections::BTreeSet;
use std::time::Duration;

use http::Uri;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The same base as that of `runbook_url` in the rules for Prometheus.
pub const RUNBOOKS: &str = "https://github.com/mcp-tasks/mcp-tasks/blob/main/docs/runbooks";

/// `[alerts]`: what nobody looks at is told to receivers.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// A failure that its owner has not read for this long raises an alert, where the tool does
    /// not say; at the latest a minute before it is purged.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub unfetched_after: Duration,
    /// A question that waits for its answer for this long raises an alert.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub question_after: Duration,
    /// For how long an alert is kept and sent, whatever receivers do; then it is given up. Over,
    /// it is kept that long again.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub keep: Duration,
    /// Where people find the task; `{task_id}` and `{tool}` are replaced. Empty: no link.
    pub link: String,
    /// Where the runbooks are: an alert's page is `/NAME.md` below. Alertmanager gets it as `runbook_url`,
    /// webhooks as `runbook`. Empty: none.
    pub runbooks: String,
    /// How the owner of a task is named.
    pub principal: NamePrincipal,
    /// Who is told. Each has a name, a kind and what its kind needs.
    pub receivers: Vec<Receiver>,
}

/// How the owner of a task is named in an alert.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NamePrincipal {
    /// By the first 16 hex digits of SHA-256 over issuer, NUL and subject.
    #[default]
    Hash,
    /// By issuer and subject.
    Plain,
    /// Not at all.
    Omit,
}

/// One receiver.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Receiver {
    /// Name, for receipts, logs and metrics. Renamed, it is another receiver.
    pub name: String,
    /// How it is told.
    pub kind: Kind,
    /// Alertmanager: its base address, as `http://alertmanager:9093`. Webhook: where to post.
    #[serde(default)]
    pub url: String,
    /// Webhook: the key that signs what is sent, as Standard Webhooks do: base64, after `whsec_`.
    #[serde(default)]
    pub secret: String,
    /// Tell of every question the moment it is asked.
    #[serde(default)]
    pub questions: bool,
    /// Tell of alerts.
    #[serde(default = "yes")]
    pub alerts: bool,
}

fn yes() -> bool {
    true
}

/// How a receiver is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A line in cron's own log, at level `warn`.
    Log,
    /// Prometheus Alertmanager, API v2.
    Alertmanager,
    /// A POST of JSON, signed (Standard Webhooks).
    Webhook,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            unfetched_after: Duration::from_secs(3600),
            question_after: Duration::from_secs(3600),
            keep: Duration::from_secs(7 * 24 * 3600),
            link: String::new(),
            runbooks: RUNBOOKS.to_owned(),
            principal: NamePrincipal::default(),
            receivers: vec![Receiver {
                name: "log".to_owned(),
                kind: Kind::Log,
                url: String::new(),
                secret: String::new(),
                questions: false,
                alerts: true,
            }],
        }
    }
}

impl Config {
    /// Everything wrong with these settings, each naming its field; empty when they work.
    #[must_use]
    pub fn validate(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.keep < Duration::from_secs(60) {
            problems.push(format!("alerts.keep: {:?} is below 1m", self.keep));
        }
        if !self.runbooks.is_empty() && !is_web(&self.runbooks) {
            problems.push(format!(
                "alerts.runbooks: {:?} is not http://… or https://…",
                self.runbooks
            ));
        }
        let mut names = BTreeSet::new();
        for (place, receiver) in self.receivers.iter().enumerate() {
            let field = |name: &str| format!("alerts.receivers[{place}].{name}");
            if receiver.name.is_empty() || !names.insert(&receiver.name) {
                problems.push(format!("{}: must be there, and once only", field("name")));
            }
            if receiver.kind == Kind::Log {
                continue;
            }
            if !is_web(&receiver.url) {
                problems.push(if receiver.url.is_empty() {
                    format!("{}: missing: where the receiver is", field("url"))
                } else {
                    format!("{}: not http://… or https://…", field("url"))
                });
            }
            if receiver.kind != Kind::Webhook {
                continue;
            }
            if receiver.secret.is_empty() {
                problems.push(format!(
                    "{}: missing: what is sent is signed with it; make one by \
                     `openssl rand -base64 32`, and tell the receiver",
                    field("secret")
                ));
            } else if let Err(problem) = super::webhook::key(&receiver.secret) {
                problems.push(format!("{}: {problem}", field("secret")));
            }
        }
        problems
    }

    /// Names of the receivers of alerts.
    pub(crate) fn receivers(&self) -> Vec<String> {
        self.names(|receiver| receiver.alerts)
    }

    /// Names of the receivers of questions.
    pub(crate) fn question_receivers(&self) -> Vec<String> {
        self.names(|receiver| receiver.questions)
    }

    fn names(&self, wanted: impl Fn(&Receiver) -> bool) -> Vec<String> {
        let wanted = self.receivers.iter().filter(|receiver| wanted(receiver));
        wanted.map(|receiver| receiver.name.clone()).collect()
    }
}

fn is_web(url: &str) -> bool {
    let uri = url.parse::<Uri>().ok();
    let scheme = uri.as_ref().and_then(Uri::scheme_str);
    matches!(scheme, Some("http" | "https"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_valid() {
        assert_eq!(Config::default().validate(), Vec::<String>::new());
    }

    #[test]
    fn what_a_webhook_lacks_is_told() {
        let mut config = Config::default();
        config.receivers[0].kind = Kind::Webhook;
        let problems = config.validate();
        for field in ["url", "secret"] {
            let told = format!("alerts.receivers[0].{field}: missing");
            assert!(
                problems.iter().any(|p| p.starts_with(&told)),
                "{problems:?}"
            );
        }
    }

    #[test]
    fn all_problems_are_told_at_once() {
        let receiver = Receiver {
            name: "log".to_owned(),
            kind: Kind::Webhook,
            url: "ftp://x".to_owned(),
            secret: "short".to_owned(),
            questions: false,
            alerts: true,
        };
        let mut config = Config {
            runbooks: "docs/runbooks".to_owned(),
            ..Config::default()
        };
        config.receivers.push(receiver);
        let problems = config.validate();
        assert!(
            problems.iter().any(|p| p.starts_with("alerts.runbooks:")),
            "{problems:?}"
        );
        for field in ["name", "url", "secret"] {
            let field = format!("alerts.receivers[1].{field}:");
            assert!(
                problems.iter().any(|p| p.starts_with(&field)),
                "{problems:?}"
            );
        }
    }
}
