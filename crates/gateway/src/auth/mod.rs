//! Who calls: a bearer token becomes a principal, or the request ends here. We are an OAuth 2.1
//! resource server (MCP 2026-07-28 §Authorization): tokens are checked, never given out, and never
//! passed on.
//!
//! What is remembered here (keys, checked tokens) no other replica misses: it only saves work.

mod api_keys;
mod bearer;
mod cache;
mod claims;
mod clock;
pub mod config;
mod discovery;
pub mod doctor;
mod fetch;
pub(crate) mod fuzzed;
mod introspection;
mod issuer;
mod jwk;
mod jws;
mod keys;
mod lasting;
mod metadata;
mod scopes;
mod tokens;

use bytes::Bytes;
use http::HeaderMap;
use store::Principal;
use tokio_util::sync::CancellationToken;

use crate::error::Error;
use crate::metrics::Metrics;

pub use api_keys::PREFIX as API_KEY_PREFIX;
pub use config::{Config, Mode};
pub use issuer::Issuer;
pub use jwk::Algorithm;
pub use scopes::Scopes;

pub(crate) use bearer::none_in_url;
pub(crate) use clock::now as time_of_day;
pub(crate) use lasting::Lasting;
pub(crate) use scopes::together;

use metadata::Metadata;
use tokens::Tokens;

/// Issuer of the principals that development authentication makes.
const DEV_ISSUER: &str = "dev";
/// Who calls without a token, in development.
const ANONYMOUS: &str = "anonymous";
/// A caller's name in development.
const NAME_BYTES_MAX: usize = 256;
/// Seconds after which it makes sense to try again when an issuer is away.
pub(crate) const RETRY_ISSUER_SECONDS: u64 = 5;

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
    /// The credentials come in a way that none may come: 400 (RFC 6750 §3.1 `invalid_request`).
    Malformed {
        /// For people.
        message: &'static str,
    },
    /// Whether the token is good cannot be found out now: 503. A 401 would have the client throw
    /// away a good token and send its user to log in again.
    Unavailable {
        /// For people.
        message: &'static str,
    },
}

impl Refused {
    fn is_unavailable(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }
}

/// Whether the caller is anybody: development's callers without a name.
pub(crate) fn is_anonymous(principal: &Principal) -> bool {
    principal.issuer == DEV_ISSUER && principal.subject == ANONYMOUS
}

/// What the token proves.
#[derive(Clone, Debug)]
pub(crate) struct Proven {
    pub(crate) principal: Principal,
    /// What the token allows; `None` = everything (development).
    pub(crate) scopes: Option<Vec<String>>,
    /// Until when that holds, leeway included: seconds since 1970; `None` = as long as the token
    /// is good.
    pub(crate) until: Option<i64>,
}

impl Proven {
    /// Whether the token allows all of `needed`.
    pub(crate) fn allows(&self, needed: &[String]) -> bool {
        allow(self.scopes.as_deref(), needed)
    }
}

/// Whether a token's `scopes`, of which `None` is everything, hold all of `needed`.
pub(crate) fn allow(scopes: Option<&[String]>, needed: &[String]) -> bool {
    scopes.is_none_or(|scopes| needed.iter().all(|scope| scopes.contains(scope)))
}

/// Checks tokens.
pub(crate) struct Authenticator {
    how: How,
    metadata: Option<Metadata>,
    scopes: Scopes,
    token_bytes_max: usize,
}

enum How {
    Dev,
    Tokens(Box<Tokens>),
}

impl Authenticator {
    /// For an endpoint at `path`, which takes tokens of at most so many bytes.
    ///
    /// # Errors
    /// What the files that the settings name lack.
    pub(crate) fn new(
        config: &Config,
        path: &str,
        token_bytes_max: usize,
        metrics: Metrics,
    ) -> Result<Self, Vec<String>> {
        let how = match config.mode() {
            Mode::Dev => How::Dev,
            Mode::Tokens => How::Tokens(Box::new(Tokens::new(config, metrics)?)),
        };
        Ok(Self {
            how,
            metadata: Metadata::new(config, path),
            scopes: config.scopes.clone(),
            token_bytes_max,
        })
    }

    /// Keeps keys fresh until `end`.
    pub(crate) async fn keep(&self, end: CancellationToken) {
        match &self.how {
            How::Dev => {}
            How::Tokens(tokens) => tokens.keep(&end).await,
        }
    }

    /// Who sends these headers.
    ///
    /// # Errors
    /// If there is no usable token.
    pub(crate) async fn authenticate(&self, headers: &HeaderMap) -> Result<Proven, Refused> {
        let token = bearer::token(headers, self.token_bytes_max)?;
        match &self.how {
            How::Dev => dev(token),
            How::Tokens(tokens) => {
                let token = token.ok_or_else(none_shown)?;
                Box::pin(tokens.verify(token)).await
            }
        }
    }

    /// Who sends these headers, if the token was seen to be good before, which costs next to nothing.
    ///
    /// # Errors
    /// If they show no token that could be looked at.
    pub(crate) fn remembered(&self, headers: &HeaderMap) -> Result<Option<Proven>, Refused> {
        let token = bearer::token(headers, self.token_bytes_max)?;
        match &self.how {
            How::Dev => dev(token).map(Some),
            How::Tokens(tokens) => Ok(tokens.remembered(token.ok_or_else(none_shown)?)),
        }
    }

    /// Scopes that methods need.
    pub(crate) fn scopes(&self) -> &Scopes {
        &self.scopes
    }

    /// The public document at that path, if it is one.
    pub(crate) fn document(&self, path: &str) -> Option<Bytes> {
        self.metadata.as_ref()?.at(path)
    }

    /// The challenge that goes with a refusal, if it is about who calls or what they may.
    pub(crate) fn challenge_for(&self, error: &Error) -> Option<String> {
        match error {
            Error::Auth(Refused::Unauthorized { error, message }) => {
                let scope = self.scopes.all().join(" ");
                Some(self.challenge(*error, message, &scope))
            }
            Error::Auth(Refused::Malformed { message }) => {
                Some(self.challenge(Some("invalid_request"), message, ""))
            }
            Error::Scope { needed } => {
                let message = "the access token lacks a scope";
                let challenge =
                    self.challenge(Some("insufficient_scope"), message, &needed.join(" "));
                Some(challenge)
            }
            _ => None,
        }
    }

    /// The value of `WWW-Authenticate` (RFC 9728 §5.1, RFC 6750 §3). All that is put into it is ours:
    /// scopes and URLs were checked with the settings.
    fn challenge(&self, error: Option<&str>, message: &str, scope: &str) -> String {
        let url = self.metadata.as_ref().map(|metadata| metadata.url.as_str());
        let description = error.map(|_| message);
        let scope = (!scope.is_empty()).then_some(scope);
        let parts = [
            ("resource_metadata", url),
            ("error", error),
            ("error_description", description),
            ("scope", scope),
        ];
        let parts: Vec<String> = parts
            .iter()
            .filter_map(|(name, value)| Some(format!("{name}=\"{}\"", (*value)?)))
            .collect();
        match parts.is_empty() {
            true => "Bearer".to_owned(),
            false => format!("Bearer {}", parts.join(", ")),
        }
    }
}

fn dev(token: Option<&str>) -> Result<Proven, Refused> {
    let name = token.unwrap_or(ANONYMOUS);
    if name.starts_with(api_keys::PREFIX) {
        return Err(invalid(
            "in development the token is a name, and this is an API key: auth.mode is not \"tokens\"",
        ));
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(invalid(
            "in development the token is a name of at most 256 bytes",
        ));
    }
    Ok(Proven {
        principal: Principal::verified(DEV_ISSUER.to_owned(), name.to_owned(), None),
        scopes: None,
        until: None,
    })
}

/// RFC 6750 §3.1: no error code where nothing was sent.
fn none_shown() -> Refused {
    Refused::Unauthorized {
        error: None,
        message: "an access token is needed",
    }
}

fn malformed(message: &'static str) -> Refused {
    Refused::Malformed { message }
}

fn invalid(message: &'static str) -> Refused {
    Refused::Unauthorized {
        error: Some("invalid_token"),
        message,
    }
}

fn unavailable(message: &'static str) -> Refused {
    Refused::Unavailable { message }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use http::header::AUTHORIZATION;
    use telemetry::Registry;

    use super::*;

    fn door(config: &Config) -> Authenticator {
        let metrics = Metrics::prepared(&Registry::new());
        Authenticator::new(config, "/mcp", 8 * 1024, metrics).unwrap()
    }

    async fn name(values: &[&str]) -> Option<String> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(
                AUTHORIZATION,
                HeaderValue::from_bytes(value.as_bytes()).unwrap(),
            );
        }
        let proven = door(&Config::default()).authenticate(&headers).await.ok()?;
        assert_eq!(proven.principal.issuer, "dev");
        Some(proven.principal.subject)
    }

    #[tokio::test]
    async fn the_token_is_the_name_in_development() {
        assert_eq!(name(&["Bearer alice"]).await.as_deref(), Some("alice"));
        assert_eq!(name(&["bearer  alice "]).await.as_deref(), Some("alice"));
        assert_eq!(name(&[]).await.as_deref(), Some("anonymous"));
    }

    #[tokio::test]
    async fn anything_else_is_refused() {
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
            assert_eq!(name(values).await, None, "{values:?}");
        }
    }

    #[tokio::test]
    async fn the_challenge_says_where_to_get_what() {
        let config = Config {
            mode: Some(Mode::Tokens),
            resource: "https://mcp.example.com/mcp".to_owned(),
            issuers: vec![Issuer {
                issuer: "https://id.example.com".to_owned(),
                ..Issuer::default()
            }],
            scopes: Scopes {
                call: vec!["tools:call".to_owned()],
                read: vec!["tasks:read".to_owned()],
                ..Scopes::default()
            },
            ..Config::default()
        };
        let place = "resource_metadata=\"https://mcp.example.com/.well-known/\
                     oauth-protected-resource/mcp\"";
        let door = door(&config);
        let none = door.authenticate(&HeaderMap::new()).await.unwrap_err();
        assert_eq!(
            door.challenge_for(&Error::Auth(none)).unwrap(),
            format!("Bearer {place}, scope=\"tasks:read tools:call\"")
        );
        let needed = vec!["tools:call".to_owned(), "reports".to_owned()];
        assert_eq!(
            door.challenge_for(&Error::Scope { needed }).unwrap(),
            format!(
                "Bearer {place}, error=\"insufficient_scope\", \
                 error_description=\"the access token lacks a scope\", scope=\"tools:call reports\""
            )
        );
        assert_eq!(door.challenge_for(&Error::Leaving), None);
        let away = Error::Auth(unavailable("away"));
        assert_eq!(
            door.challenge_for(&away),
            None,
            "nobody shall log in for that"
        );
    }

    #[tokio::test]
    async fn without_an_authorization_server_there_is_no_metadata() {
        let door = door(&Config::default());
        let invalid = Error::Auth(invalid("no"));
        assert_eq!(
            door.challenge_for(&invalid).unwrap(),
            "Bearer error=\"invalid_token\", error_description=\"no\""
        );
    }
}
