//! Who calls: a bearer token becomes a principal, or the request ends here.

use std::net::SocketAddr;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use store::Principal;

use crate::error::Error;

/// Issuer of the principals that development authentication makes.
const DEV_ISSUER: &str = "dev";
/// Who calls without a token, in development.
const ANONYMOUS: &str = "anonymous";
/// A token longer than this is no token of ours.
const TOKEN_BYTES_MAX: usize = 8 * 1024;
/// A caller's name in development.
const NAME_BYTES_MAX: usize = 256;

/// `[auth]`: who may call, and how they prove it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// How callers prove who they are.
    pub mode: Mode,
    /// Where clients find the protected resource metadata (RFC 9728), as a 401 tells them.
    /// Empty: the well-known place at our own address.
    pub resource_metadata: String,
}

/// How callers prove who they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Not at all: the bearer token is the caller's name, and no token is `anonymous`. For
    /// development; refused on anything but a loopback address.
    #[default]
    Dev,
}

impl Config {
    /// Everything wrong with these settings for a gateway at `bind`.
    pub(crate) fn validate(&self, bind: SocketAddr) -> Vec<String> {
        match self.mode {
            Mode::Dev if !bind.ip().is_loopback() => vec![format!(
                "auth.mode: \"dev\" believes every caller, so gateway.bind must be a loopback \
                 address, not {bind}"
            )],
            Mode::Dev => Vec::new(),
        }
    }
}

/// Why a request is refused before it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// No usable bearer token: 401 (RFC 6750 §3).
    Unauthorized {
        /// `error` of the challenge; `None` where no token was sent at all.
        error: Option<&'static str>,
        /// For people.
        message: &'static str,
    },
}

/// What the token proves.
#[derive(Clone, Debug)]
pub(crate) struct Proven {
    pub(crate) principal: Principal,
    /// What the token allows; `None` = everything (development).
    pub(crate) scopes: Option<Vec<String>>,
}

/// Checks tokens.
pub(crate) struct Authenticator {
    mode: Mode,
    resource_metadata: String,
}

impl Authenticator {
    /// For a gateway whose endpoint is `http://address/path`, unless the settings say otherwise.
    pub(crate) fn new(config: &Config, address: SocketAddr, path: &str) -> Self {
        let resource_metadata = if config.resource_metadata.is_empty() {
            format!("http://{address}/.well-known/oauth-protected-resource{path}")
        } else {
            config.resource_metadata.clone()
        };
        Self {
            mode: config.mode,
            resource_metadata,
        }
    }

    /// Who sends these headers.
    ///
    /// # Errors
    /// If there is no usable token.
    pub(crate) fn authenticate(&self, headers: &HeaderMap) -> Result<Proven, Refused> {
        let token = bearer(headers)?;
        match self.mode {
            Mode::Dev => dev(token),
        }
    }

    /// The challenge that goes with a refusal, if it is about who calls or what they may.
    pub(crate) fn challenge_for(&self, error: &Error) -> Option<String> {
        match error {
            Error::Auth(Refused::Unauthorized { error, .. }) => Some(self.challenge(*error, None)),
            Error::Scope { needed } => {
                Some(self.challenge(Some("insufficient_scope"), Some(&needed.join(" "))))
            }
            _ => None,
        }
    }

    /// The value of `WWW-Authenticate` (RFC 9728 §5.1, RFC 6750 §3).
    fn challenge(&self, error: Option<&str>, scope: Option<&str>) -> String {
        let mut challenge = format!("Bearer resource_metadata=\"{}\"", self.resource_metadata);
        for (name, value) in [("error", error), ("scope", scope)] {
            if let Some(value) = value {
                challenge.push_str(&format!(", {name}=\"{value}\""));
            }
        }
        challenge
    }
}

fn dev(token: Option<&str>) -> Result<Proven, Refused> {
    let name = token.unwrap_or(ANONYMOUS);
    if name.len() > NAME_BYTES_MAX {
        return Err(invalid(
            "in development the token is a name of at most 256 bytes",
        ));
    }
    Ok(Proven {
        principal: Principal::verified(DEV_ISSUER.to_owned(), name.to_owned(), None),
        scopes: None,
    })
}

/// The token of the one `Authorization: Bearer` header; `None` if there is no such header.
fn bearer(headers: &HeaderMap) -> Result<Option<&str>, Refused> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err(malformed("the Authorization header occurs twice"));
    }
    let text = value
        .to_str()
        .map_err(|_| malformed("the Authorization header is not ASCII"))?;
    let (scheme, token) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(malformed("the Authorization header must be a Bearer token"));
    }
    let token = token.trim();
    // RFC 6750 §2.1: b64token.
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=@:".contains(&byte);
    if token.is_empty() || token.len() > TOKEN_BYTES_MAX || !token.bytes().all(is_token) {
        return Err(invalid("the bearer token is malformed"));
    }
    Ok(Some(token))
}

fn malformed(message: &'static str) -> Refused {
    Refused::Unauthorized {
        error: Some("invalid_request"),
        message,
    }
}

fn invalid(message: &'static str) -> Refused {
    Refused::Unauthorized {
        error: Some("invalid_token"),
        message,
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn name(values: &[&str]) -> Option<String> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(
                AUTHORIZATION,
                HeaderValue::from_bytes(value.as_bytes()).unwrap(),
            );
        }
        let address = SocketAddr::from(([127, 0, 0, 1], 3000));
        let door = Authenticator::new(&Config::default(), address, "/mcp");
        let proven = door.authenticate(&headers).ok()?;
        assert_eq!(proven.principal.issuer, "dev");
        Some(proven.principal.subject)
    }

    #[test]
    fn the_token_is_the_name_in_development() {
        assert_eq!(name(&["Bearer alice"]).as_deref(), Some("alice"));
        assert_eq!(name(&["bearer  alice "]).as_deref(), Some("alice"));
        assert_eq!(name(&[]).as_deref(), Some("anonymous"));
    }

    #[test]
    fn anything_else_is_refused() {
        let long = format!("Bearer {}", "a".repeat(10_000));
        for values in [
            &["Basic YTpi"][..],
            &["Bearer"],
            &["Bearer "],
            &["Bearer a b"],
            &["Bearer h\u{e9}"],
            &["Bearer \"quoted\""],
            &["Bearer a", "Bearer b"],
            &[""],
            &[&long],
        ] {
            assert_eq!(name(values), None, "{values:?}");
        }
    }

    #[test]
    fn the_challenge_names_the_metadata() {
        let address = SocketAddr::from(([127, 0, 0, 1], 3000));
        let door = Authenticator::new(&Config::default(), address, "/mcp");
        assert_eq!(
            door.challenge(Some("invalid_token"), None),
            "Bearer resource_metadata=\"http://127.0.0.1:3000/.well-known/\
             oauth-protected-resource/mcp\", error=\"invalid_token\""
        );
    }

    #[test]
    fn development_stays_on_loopback() {
        let config = Config::default();
        assert!(
            config
                .validate(SocketAddr::from(([127, 0, 0, 1], 1)))
                .is_empty()
        );
        assert!(config.validate(SocketAddr::from(([0; 8], 1))).len() == 1);
        let problems = config.validate(SocketAddr::from(([0, 0, 0, 0], 1)));
        assert!(problems[0].starts_with("auth.mode: "), "{problems:?}");
    }
}
