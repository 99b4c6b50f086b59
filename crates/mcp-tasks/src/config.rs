//! All settings: one documented struct a part, read from one file and the environment.

use std::path::PathBuf;

use protocol::callback::Keys;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use crate::load::load;

/// All settings. Every process reads the same file and uses its own sections.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Where tasks live.
    pub postgres: store::Config,
    /// Where hints live.
    pub redis: queue::config::Config,
    /// The front door.
    pub gateway: gateway::Config,
    /// Where services say later what came of their work.
    pub callbacks: Callbacks,
    /// Who is calling.
    pub auth: gateway::auth::Config,
    /// Running tools.
    pub worker: worker::Config,
    /// What the worker serves.
    pub tools: Tools,
    /// Sweeps.
    pub cron: cron::Config,
    /// Telling people of what nobody looked at.
    pub alerts: cron::alerts::config::Config,
    /// Sealing what tasks are about.
    pub encryption: store::Encryption,
    /// Log output.
    pub logs: telemetry::config::Logs,
    /// Trace export.
    pub traces: telemetry::config::Traces,
    /// Metrics and probes.
    pub admin: telemetry::config::Admin,
}

/// `[callbacks]`: how services that were asked to do something say later what came of it. The same for
/// gateways and workers.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Callbacks {
    /// Where services reach the gateways, as `https://tasks.example.com`: addresses are this and
    /// `/callbacks/…`. Without it no tool can be called back.
    pub public_url: String,
    /// Keys that sign addresses, 32 bytes each in hex or base64, the same for all gateways and workers.
    /// The first signs, all verify: to rotate, first add the new one at the end everywhere, then put it
    /// in front (`docs/security.md`), and drop the old one when the
    /// longest `callback_wait` is over.
    pub keys: Vec<String>,
    /// Size of what a service may send, in bytes; more is answered 413.
    pub body_bytes_max: usize,
}

impl Default for Callbacks {
    fn default() -> Self {
        Self {
            public_url: String::new(),
            keys: Vec::new(),
            body_bytes_max: 1024 * 1024,
        }
    }
}

impl Callbacks {
    /// The keys of checked settings.
    pub fn signing_keys(&self) -> Keys {
        Keys::read(&self.keys).unwrap_or_default()
    }

    /// What workers make addresses with; `None`: nobody can call back.
    pub fn addresses(&self) -> Option<worker::Callbacks> {
        worker::Callbacks::new(self.signing_keys(), &self.public_url)
    }

    fn validate(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if let Err((place, problem)) = Keys::read(&self.keys) {
            problems.push(format!("callbacks.keys[{place}]: {problem}"));
        }
        let url = &self.public_url;
        let host = ["http://", "https://"]
            .iter()
            .find_map(|scheme| url.strip_prefix(scheme));
        let host = host.and_then(|rest| rest.split('/').next());
        let odd = |c: char| c.is_whitespace() || matches!(c, '?' | '#' | '@');
        if !url.is_empty() && (host.is_none_or(str::is_empty) || url.contains(odd)) {
            problems.push(format!(
                "callbacks.public_url: {url:?} is not http(s)://host[:port][/path]"
            ));
        }
        if !url.is_empty() && self.keys.is_empty() {
            problems.push("callbacks.keys: public_url needs a key that signs".to_owned());
        }
        if self.body_bytes_max < 1024 {
            let max = self.body_bytes_max;
            problems.push(format!(
                "callbacks.body_bytes_max: {max} must be at least 1024"
            ));
        }
        problems
    }
}

/// Which tools the stock worker serves.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Tools {
    /// The tools file: what else the worker serves, and by which policies (see
    /// `docs/tools-file.md`). SIGHUP has a worker read it again.
    pub file: Option<PathBuf>,
    /// Serve the demo tools (`build_report`, `run_suite`, `reindex_corpus`).
    pub demo: bool,
    /// Serve test fixtures: `conformance` for those of the official conformance runner, `chaos`
    /// for those of chaos runs.
    pub fixtures: Option<Fixtures>,
    /// The file that the acts of the chaos tools are appended to, one line each; needed by them.
    pub ledger: Option<PathBuf>,
    /// Serve the drill tools of this version (`drill_ask`, `drill_work`): tests choose what they
    /// ask and how they take being stopped.
    pub drills: Option<i32>,
    /// Versions whose tasks the drill tools can go on with.
    pub drills_resume: Vec<i32>,
    /// Serve `run_shell`, which runs any script that a caller sends. For tests: whoever may call
    /// it may do all that the worker may.
    pub shell: bool,
}

/// A set of test fixtures.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema, clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum Fixtures {
    /// What the official conformance runner expects of a server.
    Conformance,
    /// What chaos runs drive.
    Chaos,
}

impl Tools {
    fn validate(&self) -> Vec<String> {
        let chaos = self.fixtures == Some(Fixtures::Chaos);
        if chaos && self.ledger.is_none() {
            return vec!["tools.ledger: the chaos tools need a file to write to".to_owned()];
        }
        Vec::new()
    }
}

impl Config {
    /// The part of the settings that telemetry takes.
    pub fn telemetry(&self) -> telemetry::Config {
        telemetry::Config {
            logs: self.logs.clone(),
            traces: self.traces.clone(),
            admin: self.admin.clone(),
        }
    }

    /// What contradicts itself, each beginning with its setting.
    pub fn problems(&self) -> Vec<String> {
        [
            self.postgres.validate(),
            self.redis
                .validate()
                .into_iter()
                .map(|p| format!("redis.{p}"))
                .collect(),
            self.gateway.validate(&self.auth),
            self.callbacks.validate(),
            self.worker.validate(),
            self.cron.validate(self.worker.publish_interval),
            self.alerts.validate(),
            self.encryption.validate(),
            self.tools.validate(),
            self.telemetry().validate(),
        ]
        .concat()
    }
}

/// Whether nobody shall see what this setting is, who looks at the settings or at what is wrong with
/// them.
pub fn is_secret(path: &str) -> bool {
    let of_receiver = path.starts_with("alerts.receivers");
    ["postgres.url", "redis.url"].contains(&path)
        || path.starts_with("gateway.request_state_keys")
        || path.starts_with("callbacks.keys")
        || path.starts_with("encryption.keys") && path.ends_with(".key")
        || of_receiver && [".secret", ".url"].iter().any(|end| path.ends_with(end))
}

/// What is shown of a secret.
const HIDDEN: &str = "(hidden)";

/// The settings as TOML, without passwords and keys.
///
/// # Errors
/// When a value has no TOML form.
pub fn show(config: &Config) -> Result<String, toml::ser::Error> {
    let mut shown = config.clone();
    for url in [&mut shown.postgres.url, &mut shown.redis.url] {
        *url = without_password(url);
    }
    let keys = &mut shown.callbacks.keys;
    for key in keys.iter_mut().chain(&mut shown.gateway.request_state_keys) {
        HIDDEN.clone_into(key);
    }
    for key in &mut shown.encryption.keys {
        if !key.key.is_empty() {
            HIDDEN.clone_into(&mut key.key);
        }
    }
    if let Some(endpoint) = &mut shown.traces.endpoint {
        *endpoint = without_password(endpoint);
    }
    for receiver in &mut shown.alerts.receivers {
        if !receiver.secret.is_empty() {
            HIDDEN.clone_into(&mut receiver.secret);
        }
        receiver.url = without_password(&receiver.url);
        // Many receivers know who posts by the path alone.
        if receiver.kind == cron::alerts::config::Kind::Webhook
            && let Some((scheme, rest)) = receiver.url.split_once("://")
            && let Some((host, _)) = rest.split_once('/')
        {
            receiver.url = format!("{scheme}://{host}/{HIDDEN}");
        }
    }
    toml::to_string(&shown)
}

/// An address without the password in it.
fn without_password(url: &str) -> String {
    let (address, query) = match url.split_once('?') {
        Some((address, query)) => (address, format!("?{query}")),
        None => (url, String::new()),
    };
    let address = match address.split_once("://") {
        Some((scheme, rest)) => match rest.rsplit_once('@') {
            Some((who, host)) => match who.split_once(':') {
                Some((user, _)) => format!("{scheme}://{user}:{HIDDEN}@{host}"),
                None => address.to_owned(),
            },
            None => address.to_owned(),
        },
        None => address.to_owned(),
    };
    let mut shown = String::new();
    let whole = format!("{address}{query}");
    let mut rest = whole.as_str();
    // As a parameter, or as one of the words `host=… password=…`.
    while let Some((before, after)) = rest.split_once("password=") {
        let end = match after.strip_prefix('\'') {
            Some(quoted) => quoted.find('\'').map_or(after.len(), |end| end + 2),
            None => after.find(['&', ' ']).unwrap_or(after.len()),
        };
        shown.push_str(before);
        shown.push_str("password=");
        shown.push_str(HIDDEN);
        rest = &after[end..];
    }
    shown.push_str(rest);
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_shown_without_passwords() {
        for (url, shown) in [
            (
                "postgres://u:p@ss@h:1/d?x=y",
                "postgres://u:(hidden)@h:1/d?x=y",
            ),
            ("postgres://u@h/d", "postgres://u@h/d"),
            ("redis://:p@h", "redis://:(hidden)@h"),
            (
                "postgres://h/d?user=u&password=p&x=y",
                "postgres://h/d?user=u&password=(hidden)&x=y",
            ),
            (
                "host=h password='a b' user=u",
                "host=h password=(hidden) user=u",
            ),
            ("host=h password=ab", "host=h password=(hidden)"),
        ] {
            assert_eq!(without_password(url), shown);
        }
    }

    #[test]
    fn keys_and_secrets_are_hidden() {
        let mut config = Config::default();
        config.gateway.request_state_keys = vec!["sesame-1".to_owned()];
        config.callbacks.keys = vec!["sesame-4".to_owned()];
        let mut receiver = config.alerts.receivers[0].clone();
        receiver.kind = cron::alerts::config::Kind::Webhook;
        receiver.secret = "sesame-2".to_owned();
        receiver.url = "https://h/services/sesame-3".to_owned();
        config.alerts.receivers.push(receiver);
        config.encryption.keys.push(store::EncryptionKey {
            id: "2026".to_owned(),
            key: "sesame-5".to_owned(),
            key_file: None,
        });
        let shown = show(&config).unwrap();
        assert!(!shown.contains("sesame"), "{shown}");
        assert!(shown.contains("https://h/(hidden)"), "{shown}");
    }
}
