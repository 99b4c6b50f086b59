//! What a token says: for whom, by whom, until when, and about whom (RFC 7519 §4.1, RFC 7662 §2.2).
//! A JWT's claims and an introspection's answer are judged alike.

use std::fmt;

use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use store::Principal;

use super::issuer::Issuer;
use super::scopes::is_scope;
use super::{Proven, Refused, invalid, metadata};

/// Of `sub` and of a tenant. (OpenID Connect Core §2 allows 255.)
const NAME_BYTES_MAX: usize = 512;

/// The claims of one token.
pub(super) struct Claims {
    registered: Registered,
    all: Map<String, Value>,
}

/// All claims, each once: of one that occurs twice, another reader could have taken the other.
struct Unique(Map<String, Value>);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Unique;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Unique, A::Error> {
                let mut all = Map::new();
                while let Some((name, value)) = members.next_entry::<String, Value>()? {
                    if all.insert(name, value).is_some() {
                        return Err(de::Error::custom("a claim occurs twice"));
                    }
                }
                Ok(Unique(all))
            }
        }
        deserializer.deserialize_map(Members)
    }
}

/// Those that decide.
#[derive(Deserialize)]
struct Registered {
    iss: Option<String>,
    sub: Option<String>,
    aud: Option<Audience>,
    exp: Option<f64>,
    nbf: Option<f64>,
    /// The token may only be used with a proof of possession (RFC 7800).
    cnf: Option<Value>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Many(Vec<String>),
}

/// The hash of an access token, in an ID token (OpenID Connect Core §3.1.3.6).
const AT_HASH: &str = "at_hash";
/// Claims that an access token never has, and another kind of token always: the other hashes of an ID token
/// (§3.3.2.11), the events of a security event or a logout (RFC 8417 §2.2).
/// (A `nonce` says nothing: Keycloak wrote it into access tokens until 24.)
const OF_OTHERS: [&str; 3] = ["c_hash", "s_hash", "events"];
/// Where issuers say in a claim of their own what a token is: Keycloak, Cognito, Ory.
const SAYS_KIND: [&str; 2] = ["typ", "token_use"];
/// What they call those that are no access tokens.
const OTHER_KINDS: [&str; 6] = [
    "id",
    "id_token",
    "refresh",
    "refresh_token",
    "offline",
    "logout",
];

/// What claims are judged by.
#[derive(Clone, Copy)]
pub(super) struct Judge<'a> {
    pub(super) resource: &'a str,
    pub(super) issuer: &'a Issuer,
    /// Seconds.
    pub(super) leeway: i64,
    /// Seconds since 1970.
    pub(super) now: i64,
}

/// Whether claims come from a token or from its issuer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// A JWT: it must say by whom it is and until when it holds.
    Token,
    /// An introspection, where the issuer has looked at those itself.
    Introspection,
}

impl Claims {
    pub(super) fn read(json: &[u8]) -> Result<Self, Refused> {
        let broken = |_| invalid("the claims of the access token are malformed");
        let Unique(all) = serde_json::from_slice(json).map_err(broken)?;
        Ok(Self {
            registered: Registered::deserialize(&all).map_err(broken)?,
            all,
        })
    }

    pub(super) fn issuer(&self) -> Option<&str> {
        self.registered.iss.as_deref()
    }

    /// What the claims prove.
    pub(super) fn judge(&self, by: Judge<'_>, origin: Origin) -> Result<Proven, Refused> {
        let claims = &self.registered;
        let is_token = origin == Origin::Token;
        // A refresh token is active, too, where its issuer is asked.
        if self.is_of_another_kind(by.issuer) {
            return Err(invalid("the token is no access token"));
        }
        match claims.iss.as_deref() {
            Some(issuer) if issuer == by.issuer.issuer => {}
            None if !is_token => {}
            _ => return Err(invalid("the access token is of another issuer")),
        }
        let for_us = match &claims.aud {
            Some(Audience::One(one)) => names(one, by.resource),
            Some(Audience::Many(many)) => many.iter().any(|one| names(one, by.resource)),
            None => false,
        };
        if !for_us {
            return Err(invalid("the access token is not for this server"));
        }
        let until = claims.exp.map(|exp| moment(exp.floor()));
        match until {
            Some(until) if until.saturating_add(by.leeway) <= by.now => {
                return Err(invalid("the access token has expired"));
            }
            None if is_token => return Err(invalid("the access token never expires")),
            _ => {}
        }
        let begins = claims.nbf.map(|nbf| moment(nbf.ceil()));
        if begins.is_some_and(|begins| begins.saturating_sub(by.leeway) > by.now) {
            return Err(invalid("the access token is not valid yet"));
        }
        if claims.cnf.is_some() {
            return Err(invalid(
                "the access token needs a proof of possession, which is not served",
            ));
        }
        let subject = claims.sub.as_deref().filter(|sub| is_name(sub));
        let subject = subject.ok_or_else(|| invalid("the access token names no subject"))?;
        let principal = Principal::verified(
            by.issuer.issuer.clone(),
            subject.to_owned(),
            self.tenant(by.issuer)?,
        );
        Ok(Proven {
            principal,
            scopes: Some(self.scopes(by.issuer)),
            until: until.map(|until| until.saturating_add(by.leeway)),
        })
    }

    /// Whether this says of itself that it is no access token: it may be signed by the same key, and even be
    /// for us where a client has our name.
    fn is_of_another_kind(&self, issuer: &Issuer) -> bool {
        let is_other = |name: &&str| {
            let kind = self.all.get(*name).and_then(Value::as_str);
            kind.is_some_and(|kind| OTHER_KINDS.iter().any(|one| one.eq_ignore_ascii_case(kind)))
        };
        let has = |name: &str| self.all.contains_key(name);
        (has(AT_HASH) && !issuer.access_tokens_have_at_hash)
            || OF_OTHERS.iter().any(|name| has(name))
            || SAYS_KIND.iter().any(is_other)
    }

    fn tenant(&self, issuer: &Issuer) -> Result<Option<String>, Refused> {
        if issuer.tenant_claim.is_empty() {
            return Ok(None);
        }
        match self.all.get(&issuer.tenant_claim) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(tenant)) if is_name(tenant) => Ok(Some(tenant.clone())),
            Some(_) => Err(invalid("the tenant in the access token is malformed")),
        }
    }

    fn scopes(&self, issuer: &Issuer) -> Vec<String> {
        let mut scopes = Vec::new();
        for name in &issuer.scope_claims {
            match self.all.get(name) {
                Some(Value::String(text)) => scopes.extend(text.split(' ').map(str::to_owned)),
                Some(Value::Array(list)) => {
                    scopes.extend(list.iter().filter_map(Value::as_str).map(str::to_owned));
                }
                _ => {}
            }
        }
        scopes.retain(|scope| is_scope(scope));
        scopes.sort();
        scopes.dedup();
        scopes
    }
}

/// Whether an audience is our resource. Scheme and host are compared without their case, as MCP
/// 2026-07-28 §Canonical Server URI asks, and at the root a path of `/` is none (RFC 3986 §6.2.3;
/// many clients write it so); all else is compared byte for byte.
fn names(audience: &str, resource: &str) -> bool {
    let (origin, path) = metadata::split(audience);
    let (our_origin, our_path) = metadata::split(resource);
    let root = |path| matches!(path, "" | "/");
    origin.eq_ignore_ascii_case(our_origin) && (path == our_path || (root(path) && root(our_path)))
}

/// Seconds since 1970, of whatever number; what is none lies in the past.
fn moment(seconds: f64) -> i64 {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the cast saturates, and NaN is 0: long ago"
    )]
    let moment = seconds as i64;
    moment
}

/// A name that Postgres can keep and a log can show.
pub(super) fn is_name(text: &str) -> bool {
    !text.is_empty() && text.len() <= NAME_BYTES_MAX && !text.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: i64 = 1_800_000_000;

    fn issuer() -> Issuer {
        Issuer {
            issuer: "https://id".to_owned(),
            tenant_claim: "org".to_owned(),
            ..Issuer::default()
        }
    }

    fn judge_as(claims: &Value, origin: Origin) -> Result<Proven, Refused> {
        judge_of(&issuer(), claims, origin)
    }

    fn judge_of(issuer: &Issuer, claims: &Value, origin: Origin) -> Result<Proven, Refused> {
        let by = Judge {
            resource: "https://us/mcp",
            issuer,
            leeway: 30,
            now: NOW,
        };
        Claims::read(claims.to_string().as_bytes())?.judge(by, origin)
    }

    fn with(change: impl FnOnce(&mut Value)) -> Result<Proven, Refused> {
        let mut claims = json!({"iss": "https://id", "sub": "alice", "aud": "https://us/mcp",
                                "exp": NOW + 60});
        change(&mut claims);
        judge_as(&claims, Origin::Token)
    }

    #[test]
    fn a_good_token_proves_who_calls() {
        let judged = with(|claims| {
            claims["org"] = json!("acme");
            claims["scope"] = json!("b a  b");
            claims["scp"] = json!(["c", "a b", 7]);
        });
        let judged = judged.unwrap_or_else(|refused| panic!("{refused:?}"));
        let principal = judged.principal;
        assert_eq!(
            (principal.issuer.as_str(), principal.subject.as_str()),
            ("https://id", "alice")
        );
        assert_eq!(principal.tenant.as_deref(), Some("acme"));
        assert_eq!(judged.scopes.unwrap(), ["a", "b", "c"]);
        assert_eq!(judged.until, Some(NOW + 90));
    }

    #[test]
    fn tokens_of_other_kinds_are_told_by_what_they_claim() {
        for (name, value) in [
            ("at_hash", json!("x")),
            ("c_hash", json!(null)),
            ("s_hash", json!("x")),
            ("events", json!({})),
            ("typ", json!("ID")),
            ("typ", json!("Refresh")),
            ("typ", json!("Offline")),
            ("typ", json!("Logout")),
            ("typ", json!("refresh_token")),
            ("token_use", json!("id")),
            ("token_use", json!("id_token")),
            ("token_use", json!("refresh_token")),
        ] {
            assert!(
                with(|claims| claims[name] = value.clone()).is_err(),
                "{name}: {value}"
            );
            let told =
                json!({"active": true, "sub": "alice", "aud": "https://us/mcp", name: value});
            assert!(judge_as(&told, Origin::Introspection).is_err(), "{told}");
        }
        for (name, value) in [
            ("nonce", json!("x")),
            ("typ", json!("Bearer")),
            ("typ", json!(7)),
            ("token_use", json!("access")),
            ("token_use", json!("access_token")),
        ] {
            assert!(
                with(|claims| claims[name] = value.clone()).is_ok(),
                "{name}: {value}"
            );
        }
    }

    /// Dex writes the hash of nothing into its access tokens; nobody else's are let in by that, and nothing else.
    #[test]
    fn an_issuer_may_have_at_hash_in_its_access_tokens() {
        let dex = Issuer {
            access_tokens_have_at_hash: true,
            ..issuer()
        };
        let mut claims = json!({"iss": "https://id", "sub": "alice", "aud": "https://us/mcp",
                                "exp": NOW + 60, "at_hash": "x"});
        for origin in [Origin::Token, Origin::Introspection] {
            assert!(judge_of(&dex, &claims, origin).is_ok());
            assert!(judge_as(&claims, origin).is_err());
        }
        for name in ["c_hash", "s_hash", "events"] {
            claims[name] = json!("x");
            assert!(judge_of(&dex, &claims, Origin::Token).is_err(), "{name}");
            claims.as_object_mut().unwrap().remove(name);
        }
    }

    #[test]
    fn audiences_are_compared_as_uris_are() {
        for (audience, resource) in [
            ("https://us/mcp", "https://us/mcp"),
            ("HTTPS://Us/mcp", "https://us/mcp"),
            ("https://us", "https://us"),
            ("https://us/", "https://us"),
            ("https://US:8443/", "https://us:8443"),
        ] {
            assert!(names(audience, resource), "{audience} {resource}");
        }
        for (audience, resource) in [
            ("https://us/MCP", "https://us/mcp"),
            ("https://us/mcp/", "https://us/mcp"),
            ("https://us/mcp?x", "https://us/mcp"),
            ("https://us/mcp#x", "https://us/mcp"),
            ("https://us", "https://us/mcp"),
            ("https://us/mcp", "https://us"),
            ("https://us//", "https://us"),
            ("http://us/mcp", "https://us/mcp"),
            ("https://us:443/mcp", "https://us/mcp"),
            ("https://us.evil/mcp", "https://us/mcp"),
            ("https://evil@us/mcp", "https://us/mcp"),
            ("us/mcp", "https://us/mcp"),
            ("", "https://us"),
            ("/", "https://us"),
        ] {
            assert!(!names(audience, resource), "{audience} {resource}");
        }
    }

    #[test]
    fn times_have_their_edges() {
        let exp = |exp: Value| with(|claims| claims["exp"] = exp).is_ok();
        assert!(exp(json!(NOW - 29)) && exp(json!(1e300)) && exp(json!(f64::from(u32::MAX))));
        assert!(!exp(json!(NOW - 30)) && !exp(json!(-1)) && !exp(json!(0)));
        assert!(!exp(json!("1900000000")) && !exp(json!(null)) && !exp(json!(true)));
        let nbf = |nbf: Value| with(|claims| claims["nbf"] = nbf).is_ok();
        assert!(nbf(json!(NOW + 30)) && nbf(json!(0)) && nbf(json!(-1e300)));
        assert!(!nbf(json!(NOW + 31)) && !nbf(json!(1e300)) && !nbf(json!("0")));
    }

    #[test]
    fn an_introspection_may_leave_out_what_the_issuer_looked_at() {
        let short = json!({"active": true, "sub": "alice", "aud": ["x", "https://us/mcp"]});
        assert!(judge_as(&short, Origin::Introspection).is_ok());
        assert!(judge_as(&short, Origin::Token).is_err());
        let other = json!({"iss": "https://other", "sub": "alice", "aud": "https://us/mcp"});
        assert!(judge_as(&other, Origin::Introspection).is_err());
    }
}
