//! Whether what authentication stands on is there, for operators who look before callers do.

use telemetry::Registry;

use super::api_keys::ApiKeys;
use super::config::{Config, Mode};
use super::fetch::Client;
use super::introspection;
use super::keys::Keys;
use crate::metrics::Metrics;

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// What: an issuer's identifier, or a file.
    pub what: String,
    /// What was seen, or what is wrong.
    pub seen: Result<String, String>,
}

/// What is seen where callers could be known by API keys only, and there are none.
pub const NOBODY: &str = "no API keys, and no issuers: nobody may call";

/// Reads the files that the settings name; asks nobody.
pub async fn files(config: &Config) -> Vec<Look> {
    if config.mode() == Mode::Dev {
        return Vec::new();
    }
    let mut looks = Vec::new();
    for issuer in &config.issuers {
        if let Some(file) = &issuer.introspection_secret_file {
            let there = introspection::secret_is_there(issuer).await;
            looks.push(Look {
                what: file.display().to_string(),
                seen: there.map(|()| "the secret is there".to_owned()),
            });
        }
    }
    if let Some(file) = &config.api_keys_file {
        let loaded = ApiKeys::load(file);
        looks.push(Look {
            what: file.display().to_string(),
            seen: loaded
                .map(|keys| match keys.len() {
                    0 if config.issuers.is_empty() => NOBODY.to_owned(),
                    1 => "1 API key".to_owned(),
                    keys => format!("{keys} API keys"),
                })
                .map_err(|problems| problems.join("; ")),
        });
    }
    looks.extend(issuers(config, Asks::Files).await);
    looks
}

/// Reads the files, and asks every issuer for its keys.
pub async fn look(config: &Config) -> Vec<Look> {
    let mut looks = files(config).await;
    looks.extend(issuers(config, Asks::Issuers).await);
    looks
}

/// Whose keys are read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asks {
    Files,
    Issuers,
}

async fn issuers(config: &Config, asks: Asks) -> Vec<Look> {
    if config.mode() == Mode::Dev {
        return Vec::new();
    }
    let client = match Client::new(config.issuer_timeout, config.ca_file.as_deref()) {
        Ok(client) => client,
        Err(_) if asks == Asks::Issuers => return Vec::new(),
        Err(problem) => {
            return vec![Look {
                what: "auth.ca_file".to_owned(),
                seen: Err(problem),
            }];
        }
    };
    // Nobody reads these.
    let metrics = Metrics::prepared(&Registry::new());
    let mut looks = Vec::new();
    for issuer in &config.issuers {
        let is_file = issuer.jwks_file.is_some();
        if issuer.introspect_jwts || is_file != (asks == Asks::Files) {
            continue;
        }
        let keys = Keys::new(config, issuer, client.clone(), metrics.clone());
        looks.push(Look {
            what: issuer.issuer.clone(),
            seen: keys.read().await.map(|keys| format!("{} keys", keys.len())),
        });
    }
    looks
}
