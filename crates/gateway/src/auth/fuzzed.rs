//! What of tokens is decoded before anything is believed, for fuzzers.

use http::HeaderMap;

use super::bearer;
use super::claims::{Claims, Judge, Origin};
use super::issuer::Issuer;
use super::jwk::KeySet;
use super::jws::{self, Jws};

/// What claims prove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// `iss`.
    pub issuer: String,
    /// `sub`.
    pub subject: String,
    /// Until when, leeway included.
    pub until: Option<i64>,
    /// What is allowed.
    pub scopes: Option<Vec<String>>,
}

/// The token of a request, of at most so many bytes; `None` where there is none or it is refused.
#[must_use]
pub fn bearer(headers: &HeaderMap, bytes_max: usize) -> Option<&str> {
    bearer::token(headers, bytes_max).ok().flatten()
}

/// Whether a token has the looks of a JWT.
#[must_use]
pub fn looks_like_jwt(token: &str) -> bool {
    jws::looks_like_one(token)
}

/// A JWT taken apart: what is signed, the payload and the signature.
#[must_use]
pub fn jwt(token: &str) -> Option<(&str, Vec<u8>, Vec<u8>)> {
    let jws = Jws::parse(token).ok()?;
    Some((jws.signed, jws.payload, jws.signature))
}

/// What these claims prove of `https://issuer.example` for `https://resource.example/mcp` at a time,
/// without leeway; from a token or from an introspection.
#[must_use]
pub fn claims(json: &[u8], now: i64, introspected: bool) -> Option<Claimed> {
    let issuer = Issuer {
        issuer: "https://issuer.example".to_owned(),
        ..Issuer::default()
    };
    let judge = Judge {
        resource: "https://resource.example/mcp",
        issuer: &issuer,
        leeway: 0,
        now,
    };
    let origin = if introspected {
        Origin::Introspection
    } else {
        Origin::Token
    };
    let proven = Claims::read(json).ok()?.judge(judge, origin).ok()?;
    Some(Claimed {
        issuer: proven.principal.issuer.clone(),
        subject: proven.principal.subject.clone(),
        until: proven.until,
        scopes: proven.scopes,
    })
}

/// How many keys of a key set can be used.
#[must_use]
pub fn jwks(json: &[u8]) -> Option<usize> {
    KeySet::read(json).ok().map(|keys| keys.len())
}
