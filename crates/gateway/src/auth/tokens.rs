//! From a token to a principal: an API key, a JWT, or an opaque token that its issuer knows.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::join_all;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::api_keys::{self, ApiKeys};
use super::cache::{self, Cache, Hash};
use super::claims::{Claims, Judge, Origin};
use super::config::Config;
use super::fetch::Client;
use super::introspection::{Introspection, REFUSED_FOR, not_active};
use super::issuer;
use super::jws::{self, Jws};
use super::keys::{Keys, Unproven};
use super::scopes;
use super::{Proven, Refused, clock, invalid, unavailable};
use crate::metrics::Metrics;

/// Checks tokens.
pub(super) struct Tokens {
    resource: String,
    leeway: i64,
    implied: BTreeMap<String, Vec<String>>,
    issuers: Vec<Issuer>,
    api_keys: Option<ApiKeys>,
    known: Cache<Known>,
    /// Apart, so that made-up tokens push out no good one.
    refused: Cache<Known>,
    metrics: Metrics,
}

struct Issuer {
    config: issuer::Issuer,
    /// `None`: all its tokens are introspected.
    keys: Option<Keys>,
    introspection: Option<Introspection>,
}

/// What is remembered of a token.
#[derive(Clone)]
struct Known {
    worth: Result<Arc<Proven>, Refused>,
    /// Seconds since 1970, as the token says.
    until: Option<i64>,
    /// After an introspection.
    ask_again: Option<Instant>,
    /// Which of the issuers, and by which key it was signed.
    signed: Option<(usize, [u8; 32])>,
}

impl Tokens {
    /// # Errors
    /// What files lack.
    pub(super) fn new(config: &Config, metrics: Metrics) -> Result<Self, Vec<String>> {
        let client = Client::new(config.issuer_timeout, config.ca_file.as_deref())
            .map_err(|problem| vec![format!("auth.ca_file: {problem}")])?;
        let issuers = config.issuers.iter().map(|issuer| Issuer {
            keys: (!issuer.introspect_jwts)
                .then(|| Keys::new(config, issuer, client.clone(), metrics.clone())),
            introspection: Introspection::new(issuer, client.clone(), metrics.clone()),
            config: issuer.clone(),
        });
        Ok(Self {
            resource: config.resource.clone(),
            leeway: i64::try_from(config.leeway.as_secs()).unwrap_or_default(),
            implied: config.implied_scopes.clone(),
            issuers: issuers.collect(),
            api_keys: config
                .api_keys_file
                .as_deref()
                .map(ApiKeys::load)
                .transpose()?,
            known: Cache::new(config.tokens_cached_max),
            refused: Cache::new(config.tokens_cached_max),
            metrics,
        })
    }

    /// Keeps keys fresh until `end`.
    pub(super) async fn keep(&self, end: &CancellationToken) {
        let issuers = self
            .issuers
            .iter()
            .filter_map(|issuer| issuer.keys.as_ref());
        let issuers = join_all(issuers.map(|keys| keys.keep(end)));
        let api_keys = async {
            if let Some(keys) = &self.api_keys {
                keys.keep(end).await;
            }
        };
        tokio::join!(issuers, api_keys);
    }

    /// Whose token it is.
    pub(super) async fn verify(&self, token: &str) -> Result<Proven, Refused> {
        let (kind, verified) = self.check(token).await;
        let outcome = match &verified {
            Ok(_) => "accepted",
            Err(Refused::Unauthorized { .. } | Refused::Malformed { .. }) => "refused",
            Err(Refused::Unavailable { .. }) => "unavailable",
        };
        self.counted(kind, outcome);
        verified
    }

    /// Whose token it is, if that is known without asking or computing anything.
    pub(super) fn remembered(&self, token: &str) -> Option<Proven> {
        let hash = cache::hash(token);
        let (kind, proven) = if token.starts_with(api_keys::PREFIX) {
            ("api_key", self.api_key(&hash).ok()?)
        } else {
            (kind(token), Arc::unwrap_or_clone(self.known(&hash)?.ok()?))
        };
        self.counted(kind, "accepted");
        Some(proven)
    }

    fn counted(&self, kind: &str, outcome: &str) {
        self.metrics
            .tokens
            .with_label_values(&[kind, outcome])
            .inc();
    }

    async fn check(&self, token: &str) -> (&'static str, Result<Proven, Refused>) {
        let hash = cache::hash(token);
        if token.starts_with(api_keys::PREFIX) {
            return ("api_key", self.api_key(&hash));
        }
        let kind = kind(token);
        if let Some(worth) = self.known(&hash) {
            return (kind, worth.map(Arc::unwrap_or_clone));
        }
        let verified = if kind == JWT {
            self.jwt(token, hash).await
        } else {
            self.opaque(token, hash).await
        };
        (kind, verified.map(Arc::unwrap_or_clone))
    }

    fn api_key(&self, hash: &Hash) -> Result<Proven, Refused> {
        let unknown = || invalid("the API key is not known");
        let keys = self.api_keys.as_ref().ok_or_else(unknown)?;
        Ok(self.implying(keys.find(hash)?))
    }

    /// With all that its scopes imply. Whatever is found out of a token comes through here before it is
    /// remembered, so that it is worth the same by whichever way it is looked up.
    fn implying(&self, mut proven: Proven) -> Proven {
        if let Some(scopes) = &mut proven.scopes {
            scopes::imply(scopes, &self.implied);
        }
        proven
    }

    /// What is remembered, if it still holds.
    fn known(&self, hash: &Hash) -> Option<Result<Arc<Proven>, Refused>> {
        let known = self.known.get(hash).or_else(|| self.refused.get(hash))?;
        let holds = known.until.is_none_or(|until| until > clock::now())
            && known.ask_again.is_none_or(|at| at > Instant::now())
            && known.signed.is_none_or(|(issuer, print)| {
                let keys = self.issuers[issuer].keys.as_ref();
                keys.is_some_and(|keys| keys.holds(&print))
            });
        if !holds {
            self.known.forget(hash);
            self.refused.forget(hash);
            return None;
        }
        Some(known.worth)
    }

    /// First what costs nothing and asks nobody, so that a token that is of no use anyway makes us
    /// look for no key; believed is none of it before the signature.
    async fn jwt(&self, token: &str, hash: Hash) -> Result<Arc<Proven>, Refused> {
        let jws = Jws::parse(token)?;
        let claims = Claims::read(&jws.payload)?;
        let named = claims.issuer();
        let mut issuers = self.issuers.iter().enumerate();
        let (place, issuer) = issuers
            .find(|(_, issuer)| Some(issuer.config.issuer.as_str()) == named)
            .ok_or_else(|| invalid("the access token is of an issuer that is not believed"))?;
        if !issuer.config.algorithms.contains(&jws.algorithm) {
            return Err(invalid(
                "the access token is signed by an algorithm that is not accepted",
            ));
        }
        if issuer.config.at_jwt_only && !jws.is_at_jwt {
            return Err(invalid("the token does not say that it is an access token"));
        }
        let proven = self.judge(&claims, &issuer.config, Origin::Token)?;
        let Some(keys) = &issuer.keys else {
            let verified = self.introspect(issuer, token, hash, proven.until).await;
            if let Err(refused) = &verified {
                self.remember_refusal(hash, refused);
            }
            return verified;
        };
        let key = keys.signer(&jws).await.map_err(|unproven| match unproven {
            Unproven::Unknown => invalid("the access token is signed by a key that is not known"),
            Unproven::Wrong => invalid("the access token's signature is wrong"),
            Unproven::Unavailable => unavailable("the keys of the token's issuer cannot be read"),
        })?;
        let proven = Arc::new(proven);
        let known = Known {
            worth: Ok(Arc::clone(&proven)),
            until: proven.until,
            ask_again: None,
            signed: Some((place, key.print())),
        };
        self.known.put(hash, known);
        Ok(proven)
    }

    /// An opaque token says nothing of whose it is but how it begins. Only that issuer is asked: another
    /// one would learn a token that is good here, and what it says of it is worth nothing.
    async fn opaque(&self, token: &str, hash: Hash) -> Result<Arc<Proven>, Refused> {
        let mut issuers = self.issuers.iter();
        let issuer = issuers
            .find(|issuer| issuer.config.is_asked_about(token))
            .ok_or_else(|| invalid("the access token is malformed"))?;
        let verified = self.introspect(issuer, token, hash, None).await;
        if let Err(refused) = &verified {
            self.remember_refusal(hash, refused);
        }
        verified
    }

    /// So that a client that keeps sending a dead token costs its issuer little.
    fn remember_refusal(&self, hash: Hash, refused: &Refused) {
        if refused.is_unavailable() {
            return;
        }
        let known = Known {
            worth: Err(refused.clone()),
            until: None,
            ask_again: Some(Instant::now() + REFUSED_FOR),
            signed: None,
        };
        self.refused.put(hash, known);
    }

    /// `until`: when the token itself says that it ends, seconds since 1970; its issuer need not (RFC 7662 §2.2).
    async fn introspect(
        &self,
        issuer: &Issuer,
        token: &str,
        hash: Hash,
        until: Option<i64>,
    ) -> Result<Arc<Proven>, Refused> {
        let introspection = issuer.introspection.as_ref().ok_or_else(not_active)?;
        let told = introspection.ask(token, hash).await?;
        let claims = Claims::read(&told.ok_or_else(not_active)?)?;
        let mut proven = self.judge(&claims, &issuer.config, Origin::Introspection)?;
        proven.until = proven.until.into_iter().chain(until).min();
        let proven = Arc::new(proven);
        let known = Known {
            worth: Ok(Arc::clone(&proven)),
            until: proven.until,
            ask_again: Some(Instant::now() + introspection.cache),
            signed: None,
        };
        if !introspection.cache.is_zero() {
            self.known.put(hash, known);
        }
        Ok(proven)
    }

    fn judge(
        &self,
        claims: &Claims,
        issuer: &issuer::Issuer,
        origin: Origin,
    ) -> Result<Proven, Refused> {
        let judge = Judge {
            resource: &self.resource,
            issuer,
            leeway: self.leeway,
            now: clock::now(),
        };
        Ok(self.implying(claims.judge(judge, origin)?))
    }
}

const JWT: &str = "jwt";

/// What it is to be judged as, if it is no API key.
fn kind(token: &str) -> &'static str {
    match jws::looks_like_one(token) {
        true => JWT,
        false => "opaque",
    }
}
