//! `[auth]`: who may call, and how they prove it.

use std::collections::{BTreeMap, HashSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fetch::fetchable;
use super::issuer::{self, Issuer};
use super::scopes::{self, Scopes};

/// Clocks that differ more than that are to be mended.
const LEEWAY_MAX: Duration = Duration::from_secs(300);

/// `[auth]`: who may call, and how they prove it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// How callers prove who they are. Missing: as `dev`, but the process does not start where `issuers` or
    /// `api_keys_file` are set.
    pub mode: Option<Mode>,
    /// The canonical URI of this server, as clients name it when they ask for a token (RFC 8707),
    /// such as `https://mcp.example.com/mcp`. A token's `aud` must hold it, exactly. Needed by
    /// access tokens.
    pub resource: String,
    /// Where clients find the protected resource metadata (RFC 9728), as a 401 tells them.
    /// Empty: the well-known place that belongs to `auth.resource`.
    pub resource_metadata: String,
    /// Authorization servers whose access tokens are believed (see `docs/authentication.md`), each
    /// with its `issuer`.
    pub issuers: Vec<Issuer>,
    /// A file with the hashes of API keys, for machines. Read again when it changes: what two looks
    /// in a row, two seconds apart, find the same counts.
    pub api_keys_file: Option<PathBuf>,
    /// Scopes that methods need beyond those of the tool.
    pub scopes: Scopes,
    /// Broad scopes, and the narrower ones that each of them implies, such as
    /// `"tasks:admin" = ["tasks:read", "tasks:cancel"]`; those may imply others in turn.
    pub implied_scopes: BTreeMap<String, Vec<String>>,
    /// By how much an issuer's clock may differ from ours. At most 5m.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub leeway: Duration,
    /// Tokens whose check is remembered until they expire.
    pub tokens_cached_max: usize,
    /// How often an issuer's keys are read again. Tokens of a key that was withdrawn are refused
    /// from then on.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub keys_refresh: Duration,
    /// For how long an issuer's last keys are believed while it does not answer.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub keys_age_max: Duration,
    /// After an issuer was asked because no known key signed a token, or could not be asked: how long
    /// until it is asked for one again.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub keys_cooldown: Duration,
    /// How long an issuer may take for one answer.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub issuer_timeout: Duration,
    /// Certificates (PEM) of the authorities that issuers' certificates are signed by; empty: those
    /// that Mozilla trusts.
    pub ca_file: Option<PathBuf>,
}

/// How callers prove who they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Not at all: the bearer token is the caller's name, and no token is `anonymous`. For
    /// development; refused on anything but a loopback address.
    #[default]
    Dev,
    /// By an access token of one of the issuers, or by an API key.
    Tokens,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            mode: None,
            resource: String::new(),
            resource_metadata: String::new(),
            issuers: Vec::new(),
            api_keys_file: None,
            scopes: Scopes::default(),
            implied_scopes: BTreeMap::new(),
            leeway: Duration::from_secs(30),
            tokens_cached_max: 10_000,
            keys_refresh: Duration::from_secs(300),
            keys_age_max: Duration::from_secs(24 * 3600),
            keys_cooldown: Duration::from_secs(10),
            issuer_timeout: Duration::from_secs(5),
            ca_file: None,
        }
    }
}

impl Config {
    /// Everything wrong with these settings for a gateway at `bind`.
    #[must_use]
    pub fn validate(&self, bind: SocketAddr) -> Vec<String> {
        if self.mode.is_none() && self.names_somebody() {
            return vec![
                "auth.mode: missing: auth.issuers or auth.api_keys_file is set, and only \"tokens\" asks them; \"dev\" \
                 believes every caller"
                    .to_owned(),
            ];
        }
        match self.mode() {
            Mode::Dev if !bind.ip().is_loopback() => vec![format!(
                "auth.mode: \"dev\" believes every caller, so gateway.bind must be a loopback \
                 address, not {bind}"
            )],
            Mode::Dev => Vec::new(),
            Mode::Tokens => self.check_tokens(),
        }
    }

    /// How callers prove who they are.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode.unwrap_or_default()
    }

    fn names_somebody(&self) -> bool {
        !self.issuers.is_empty() || self.api_keys_file.is_some()
    }

    fn check_tokens(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if !self.names_somebody() {
            problems.push(
                "auth.mode: \"tokens\" needs [[auth.issuers]] or auth.api_keys_file: else nobody \
                 could call"
                    .to_owned(),
            );
        }
        if self.resource.is_empty() && !self.issuers.is_empty() {
            problems.push(
                "auth.resource: must be set: access tokens are for this server only if they name it"
                    .to_owned(),
            );
        }
        if !self.resource.is_empty()
            && let Err(problem) = resource(&self.resource)
        {
            problems.push(format!("auth.resource: {problem}"));
        }
        if !self.resource_metadata.is_empty()
            && let Err(problem) = fetchable(&self.resource_metadata)
        {
            problems.push(format!("auth.resource_metadata: {problem}"));
        }
        let mut seen = HashSet::new();
        for (place, issuer) in self.issuers.iter().enumerate() {
            let at = format!("auth.issuers[{place}]");
            issuer.check(&at, &mut problems);
            if !seen.insert(&issuer.issuer) {
                problems.push(format!("{at}.issuer: {} is listed twice", issuer.issuer));
            }
        }
        problems.extend(issuer::shared_prefixes(&self.issuers));
        if self.leeway > LEEWAY_MAX {
            problems.push(format!(
                "auth.leeway: {:?} is longer than {LEEWAY_MAX:?}: mend the clocks",
                self.leeway
            ));
        }
        for (name, value) in [
            ("keys_refresh", self.keys_refresh),
            ("keys_cooldown", self.keys_cooldown),
            ("issuer_timeout", self.issuer_timeout),
        ] {
            if value.is_zero() {
                problems.push(format!("auth.{name}: must be above 0"));
            }
        }
        if self.keys_age_max < self.keys_refresh {
            problems.push(format!(
                "auth.keys_age_max: {:?} is shorter than auth.keys_refresh ({:?})",
                self.keys_age_max, self.keys_refresh
            ));
        }
        if self.tokens_cached_max == 0 {
            problems.push("auth.tokens_cached_max: must be at least 1".to_owned());
        }
        problems.extend(self.scopes.problems());
        problems.extend(scopes::implied_problems(&self.implied_scopes));
        problems
    }
}

/// A canonical server URI (MCP 2026-07-28 §Authorization, RFC 8707 §2).
fn resource(text: &str) -> Result<(), String> {
    let uri = fetchable(text)?;
    let authority = uri.authority().map_or("", http::uri::Authority::as_str);
    if text.contains('#') || uri.query().is_some() {
        return Err(format!("{text:?} has a query or a fragment"));
    }
    if authority.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Err(format!("{text:?} must have its host in lower case"));
    }
    if text.ends_with('/') {
        return Err(format!(
            "{text:?} ends with /: clients name servers without it"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens() -> Config {
        Config {
            mode: Some(Mode::Tokens),
            resource: "https://mcp.example.com/mcp".to_owned(),
            issuers: vec![Issuer {
                issuer: "https://id.example.com/realms/a".to_owned(),
                ..Issuer::default()
            }],
            ..Config::default()
        }
    }

    fn bind() -> SocketAddr {
        SocketAddr::from(([0, 0, 0, 0], 1))
    }

    #[test]
    fn development_stays_on_loopback() {
        let config = Config::default();
        let own = SocketAddr::from(([127, 0, 0, 1], 1));
        assert!(config.validate(own).is_empty());
        assert!(config.validate(SocketAddr::from(([0; 8], 1))).len() == 1);
        let problems = config.validate(bind());
        assert!(problems[0].starts_with("auth.mode: "), "{problems:?}");
    }

    /// Nobody who names an issuer wants everybody to be believed, and behind a proxy loopback is the internet.
    #[test]
    fn who_names_an_issuer_says_how_callers_are_judged() {
        let own = SocketAddr::from(([127, 0, 0, 1], 1));
        let keys = Config {
            api_keys_file: Some("keys.toml".into()),
            ..Config::default()
        };
        for config in [tokens(), keys] {
            let of = |mode| Config {
                mode,
                ..config.clone()
            };
            let problems = of(None).validate(own);
            assert!(
                problems.len() == 1 && problems[0].starts_with("auth.mode: missing"),
                "{problems:?}"
            );
            for mode in [Mode::Dev, Mode::Tokens] {
                assert_eq!(of(Some(mode)).validate(own), Vec::<String>::new());
            }
        }
    }

    #[test]
    fn tokens_are_checked_on_any_address() {
        assert_eq!(tokens().validate(bind()), Vec::<String>::new());
    }

    #[test]
    fn all_problems_are_told_at_once() {
        let mut config = tokens();
        config.leeway = Duration::from_secs(301);
        config.keys_cooldown = Duration::ZERO;
        config.keys_age_max = Duration::from_secs(1);
        config.tokens_cached_max = 0;
        config.resource = "https://mcp.example.com/mcp/".to_owned();
        config.resource_metadata = "http://mcp.example.com/x".to_owned();
        config.scopes.call = vec!["two words".to_owned()];
        config.scopes.read = vec!["offline_access".to_owned()];
        let implied = [
            ("a b".to_owned(), Vec::new()),
            ("a".to_owned(), vec![String::new()]),
        ];
        config.implied_scopes = implied.into();
        config.issuers.push(config.issuers[0].clone());
        config.issuers.push(Issuer {
            issuer: "http://id.example.com".to_owned(),
            jwks_url: "ftp://x".to_owned(),
            jwks_file: Some("x".into()),
            algorithms: Vec::new(),
            introspection_url: "https://id.example.com/introspect".to_owned(),
            ..Issuer::default()
        });
        config.issuers.push(Issuer {
            issuer: "https://user@id.example.com".to_owned(),
            introspect_jwts: true,
            ..Issuer::default()
        });
        config.issuers.push(Issuer {
            issuer: "https://login.example.com".to_owned(),
            introspection_url: "https://login.example.com/introspect".to_owned(),
            introspection_client_id: "us".to_owned(),
            introspection_secret_file: Some("x".into()),
            ..Issuer::default()
        });
        let problems = config.validate(bind());
        for field in [
            "resource",
            "resource_metadata",
            "issuers[1].issuer",
            "issuers[2].issuer",
            "issuers[2].jwks_url",
            "issuers[2].jwks_file",
            "issuers[2].algorithms",
            "issuers[2].introspection_client_id",
            "issuers[2].introspection_secret_file",
            "issuers[3].issuer",
            "issuers[3].introspect_jwts",
            "issuers[4].introspection_token_prefixes",
            "leeway",
            "keys_cooldown",
            "keys_age_max",
            "tokens_cached_max",
            "scopes.call",
            "scopes.read",
            "implied_scopes",
        ] {
            let named = |problem: &String| problem.starts_with(&format!("auth.{field}:"));
            assert!(problems.iter().any(named), "{field}: {problems:#?}");
        }
        assert_eq!(problems.len(), 20, "{problems:#?}");
    }

    #[test]
    fn nobody_could_call() {
        let config = Config {
            mode: Some(Mode::Tokens),
            ..Config::default()
        };
        assert!(config.validate(bind())[0].starts_with("auth.mode:"));
        let keys = Config {
            api_keys_file: Some("keys.toml".into()),
            ..config
        };
        assert!(keys.validate(bind()).is_empty(), "keys name no audience");
    }
}
