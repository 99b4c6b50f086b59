//! Whether what authentication stands on is there, for operators who look before callers do.

use std::path::Path;

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

/// Asks every issuer for its keys, and reads the files that the settings name.
pub async fn look(config: &Config) -> Vec<Look> {
    if config.mode == Mode::Dev {
        return Vec::new();
    }
    let client = match Client::new(config.issuer_timeout, config.ca_file.as_deref()) {
        Ok(client) => client,
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
        if !issuer.introspect_jwts {
            let keys = Keys::new(config, issuer, client.clone(), metrics.clone());
            let read = keys.read().await;
            looks.push(Look {
                what: issuer.issuer.clone(),
                seen: read.map(|keys| format!("{} keys", keys.len())),
            });
        }
        if let Some(file) = &issuer.introspection_secret_file {
            let there = introspection::secret_is_there(issuer).await;
            looks.push(Look {
                what: file.display().to_string(),
                seen: there.map(|()| "the secret is there".to_owned()),
            });
        }
    }
    looks.extend(config.api_keys_file.as_deref().map(api_keys));
    looks
}

fn api_keys(file: &Path) -> Look {
    let loaded = ApiKeys::load(file);
    Look {
        what: file.display().to_string(),
        seen: loaded
            .map(|keys| format!("{} API keys", keys.len()))
            .map_err(|problems| problems.join("; ")),
    }
}
