//! Who is told of what nobody looked at.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use http::Uri;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::way::Way;

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
    /// Who is told. Each has a name, a kind and what its kind needs (docs/alerts.md).
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
#[derive(Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Receiver {
    /// Name, for receipts, logs and metrics. Renamed, it is another receiver.
    pub name: String,
    /// How it is told.
    pub kind: Kind,
    /// Alertmanager: its base address, as `http://alertmanager:9093`. Webhook: where to post.
    #[serde(default)]
    pub url: String,
    /// File with the address instead: that of many webhooks is their secret. Files are read for each
    /// sending, so a change needs no restart. A line break at the end of this one does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url_file: Option<PathBuf>,
    /// Webhook: the key that signs what is sent, as Standard Webhooks do: base64, after `whsec_`.
    #[serde(default)]
    pub secret: String,
    /// File with the key instead. A line break at its end does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_file: Option<PathBuf>,
    /// Certificates (PEM) of the authorities that the receiver's certificate is signed by; empty: those
    /// that Mozilla trusts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
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

/// Without address and key, which are secrets.
impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver")
            .field("name", &self.name)
            .field("kind", &self.kind)
            .field("questions", &self.questions)
            .field("alerts", &self.alerts)
            .finish_non_exhaustive()
    }
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
                url_file: None,
                secret: String::new(),
                secret_file: None,
                ca_file: None,
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
            let wrong = receiver.validate().into_iter();
            problems.extend(wrong.map(|(name, problem)| format!("{}: {problem}", field(name))));
        }
        problems
    }

    /// Whether a receiver is told by what is in files.
    #[must_use]
    pub fn names_files(&self) -> bool {
        let mut files = self.receivers.iter().flat_map(Receiver::files);
        files.any(|(_, file)| file.is_some())
    }

    /// Everything wrong with the files that receivers name, each naming its field; empty when they work.
    pub async fn check_files(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for (place, receiver) in self.receivers.iter().enumerate() {
            let wrong = Way::new(receiver.clone()).problems().await.into_iter();
            problems.extend(wrong.map(|problem| format!("alerts.receivers[{place}].{problem}")));
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

impl Receiver {
    fn files(&self) -> [(&'static str, Option<&PathBuf>); 3] {
        [
            ("url_file", self.url_file.as_ref()),
            ("secret_file", self.secret_file.as_ref()),
            ("ca_file", self.ca_file.as_ref()),
        ]
    }

    /// What is wrong with which field; files are not read.
    fn validate(&self) -> Vec<(&'static str, String)> {
        let taken: &[&str] = match self.kind {
            Kind::Log => &[],
            Kind::Alertmanager => &["url_file", "ca_file"],
            Kind::Webhook => &["url_file", "secret_file", "ca_file"],
        };
        let needless =
            |(name, file): &(&str, Option<&PathBuf>)| file.is_some() && !taken.contains(name);
        let told = |(name, _)| (name, "a receiver of this kind has none".to_owned());
        let mut problems: Vec<_> = self
            .files()
            .into_iter()
            .filter(needless)
            .map(told)
            .collect();
        if self.kind != Kind::Log {
            problems.extend(self.wrong_with_url());
        }
        if self.kind == Kind::Webhook {
            problems.extend(self.wrong_with_secret());
        }
        problems
    }

    fn wrong_with_url(&self) -> Option<(&'static str, String)> {
        let (url, in_file) = (self.url.as_str(), self.url_file.is_some());
        let problem = match (url, in_file) {
            ("", true) => return None,
            ("", false) => "missing: where the receiver is, or a file with that in url_file",
            (_, true) => return Some(("url_file", "url is set, too".to_owned())),
            (url, false) if !is_web(url) => "not http://… or https://…",
            (url, false) if self.ca_file.is_some() && !is_encrypted(url) => {
                return Some((
                    "ca_file",
                    "url is not encrypted: write https://…".to_owned(),
                ));
            }
            (_, false) => return None,
        };
        Some(("url", problem.to_owned()))
    }

    fn wrong_with_secret(&self) -> Option<(&'static str, String)> {
        let problem = match (self.secret.as_str(), self.secret_file.is_some()) {
            ("", true) => return None,
            ("", false) => "missing: what is sent is signed with it; make one by \
                            `openssl rand -base64 32`, and tell the receiver; it may be in a file \
                            that secret_file names"
                .to_owned(),
            (_, true) => return Some(("secret_file", "secret is set, too".to_owned())),
            (secret, false) => super::webhook::key(secret).err()?,
        };
        Some(("secret", problem))
    }
}

pub(super) fn is_web(url: &str) -> bool {
    matches!(scheme(url).as_deref(), Some("http" | "https"))
}

pub(super) fn is_encrypted(url: &str) -> bool {
    scheme(url).as_deref() == Some("https")
}

fn scheme(url: &str) -> Option<String> {
    let uri = url.parse::<Uri>().ok()?;
    uri.scheme_str().map(str::to_owned)
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
            ..Config::default().receivers.remove(0)
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

    const URL: &str = "https://h/sesame-1";
    const SECRET: &str = "whsec_c2VzYW1lc2VzYW1lc2VzYW1lc2VzYW1l";

    fn wrong_with(kind: Kind, change: impl Fn(&mut Receiver)) -> Vec<String> {
        let mut config = Config::default();
        let receiver = &mut config.receivers[0];
        receiver.kind = kind;
        change(receiver);
        let told = config.validate().into_iter();
        let short = |problem: String| problem.replace("alerts.receivers[0].", "");
        told.map(short).collect()
    }

    #[test]
    fn address_and_key_are_said_once_each() {
        let in_files = |receiver: &mut Receiver| {
            receiver.url_file = Some("/url".into());
            receiver.secret_file = Some("/secret".into());
            receiver.ca_file = Some("/ca".into());
        };
        assert_eq!(wrong_with(Kind::Webhook, in_files), Vec::<String>::new());
        let inline = |receiver: &mut Receiver| {
            URL.clone_into(&mut receiver.url);
            SECRET.clone_into(&mut receiver.secret);
        };
        assert_eq!(wrong_with(Kind::Webhook, inline), Vec::<String>::new());
        let both = |receiver: &mut Receiver| {
            in_files(receiver);
            inline(receiver);
        };
        let problems = [
            "url_file: url is set, too",
            "secret_file: secret is set, too",
        ];
        assert_eq!(wrong_with(Kind::Webhook, both), problems);
    }

    #[test]
    fn a_receiver_has_the_files_of_its_kind() {
        let all = |receiver: &mut Receiver| {
            receiver.url_file = Some("/url".into());
            receiver.secret_file = Some("/secret".into());
            receiver.ca_file = Some("/ca".into());
        };
        let none = |name: &str| format!("{name}: a receiver of this kind has none");
        let of_log = ["url_file", "secret_file", "ca_file"].map(none);
        assert_eq!(wrong_with(Kind::Log, all), of_log);
        assert_eq!(wrong_with(Kind::Alertmanager, all), [none("secret_file")]);
    }

    #[test]
    fn authorities_are_of_no_use_on_an_open_way() {
        let open = |receiver: &mut Receiver| {
            receiver.url = "http://h".to_owned();
            receiver.ca_file = Some("/ca".into());
        };
        let problem = "ca_file: url is not encrypted: write https://…";
        assert_eq!(wrong_with(Kind::Alertmanager, open), [problem]);
    }

    #[test]
    fn no_debug_output_holds_an_address_or_a_key() {
        let mut config = Config::default();
        URL.clone_into(&mut config.receivers[0].url);
        SECRET.clone_into(&mut config.receivers[0].secret);
        let shown = format!("{config:?}");
        assert!(shown.contains("name: \"log\""), "{shown}");
        assert!(
            !shown.contains("sesame") && !shown.contains(SECRET),
            "{shown}"
        );
    }
}
