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
    let hidden = || HIDDEN.to_owned();
    shown.postgres.url = shown.postgres.shown_url().unwrap_or_else(hidden);
    shown.redis.url = shown.redis.shown_url().unwrap_or_else(hidden);
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
        *endpoint = web_address(endpoint, Path::Shown);
    }
    for receiver in &mut shown.alerts.receivers {
        if !receiver.secret.is_empty() {
            HIDDEN.clone_into(&mut receiver.secret);
        }
        // Many receivers know who posts by the path alone.
        receiver.url = web_address(&receiver.url, Path::Hidden);
    }
    toml::to_string(&shown)
}

/// What to do with the path of an address.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Path {
    Shown,
    Hidden,
}

/// An address on the web, without what may be secret in it.
fn web_address(url: &str, path: Path) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return if url.is_empty() { "" } else { HIDDEN }.to_owned();
    };
    let (authority, after) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let host = match authority.rsplit_once('@') {
        Some((_, host)) => format!("{HIDDEN}@{host}"),
        // One that comes later may be part of a password.
        None if after.contains('@') => return HIDDEN.to_owned(),
        None => authority.to_owned(),
    };
    let kept = match path {
        Path::Shown => after.find(['?', '#']).unwrap_or(after.len()),
        Path::Hidden => 0,
    };
    match after.split_at(kept) {
        (_, "" | "/") => format!("{scheme}://{host}{after}"),
        ("", _) => format!("{scheme}://{host}/{HIDDEN}"),
        (shown, _) => format!("{scheme}://{host}{shown}?{HIDDEN}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_on_the_web_are_shown_without_what_may_be_secret() {
        for (url, with_path, without) in [
            ("", "", ""),
            ("http://h:1", "http://h:1", "http://h:1"),
            ("http://h/", "http://h/", "http://h/"),
            (
                "http://h:4318/v1/traces",
                "http://h:4318/v1/traces",
                "http://h:4318/(hidden)",
            ),
            (
                "https://u:sesame@h/a",
                "https://(hidden)@h/a",
                "https://(hidden)@h/(hidden)",
            ),
            (
                "https://h/a?k=sesame",
                "https://h/a?(hidden)",
                "https://h/(hidden)",
            ),
            (
                "https://h?k=sesame",
                "https://h/(hidden)",
                "https://h/(hidden)",
            ),
            ("https://u:ses/ame@h/a", "(hidden)", "(hidden)"),
            ("sesame", "(hidden)", "(hidden)"),
        ] {
            assert_eq!(web_address(url, Path::Shown), with_path, "{url}");
            assert_eq!(web_address(url, Path::Hidden), without, "{url}");
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
