//! A signed token in its compact form (RFC 7515 §7.1), taken apart within bounds. Nothing in here is
//! believed yet.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::Value;

use super::jwk::Algorithm;
use super::{Refused, invalid};

const KID_BYTES_MAX: usize = 256;

/// The parts of a token.
pub(super) struct Jws<'a> {
    pub(super) algorithm: Algorithm,
    pub(super) kid: Option<String>,
    /// Its header says that it is an access token (RFC 9068 §2.1), and not just some JWT.
    pub(super) is_at_jwt: bool,
    pub(super) payload: Vec<u8>,
    /// What the signature is over.
    pub(super) signed: &'a str,
    pub(super) signature: Vec<u8>,
}

/// `jku`, `jwk`, `x5u` and `x5c` are not even read: a token does not say what it is checked by.
#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    typ: Option<String>,
    crit: Option<Value>,
    /// Of an encrypted token.
    enc: Option<Value>,
}

/// Whether a token has the looks of a JWT; if not, it is opaque.
pub(super) fn looks_like_one(token: &str) -> bool {
    let mut parts = token.split('.');
    let head = parts.next().unwrap_or_default();
    // `{"`, of whatever header.
    let is_object = head.starts_with("ey");
    is_object && parts.count() >= 2
}

impl<'a> Jws<'a> {
    /// Takes a token apart.
    pub(super) fn parse(token: &'a str) -> Result<Self, Refused> {
        let broken = || invalid("the access token is no signed JWT");
        let (signed, signature) = token.rsplit_once('.').ok_or_else(broken)?;
        let (header, payload) = signed.split_once('.').ok_or_else(broken)?;
        if payload.contains('.') {
            return Err(broken());
        }
        let decode = |part: &str| BASE64_URL_SAFE_NO_PAD.decode(part).map_err(|_| broken());
        let header: Header = serde_json::from_slice(&decode(header)?).map_err(|_| broken())?;
        if header.enc.is_some() {
            return Err(broken());
        }
        // RFC 7515 §4.1.11: what must be understood is not.
        if header.crit.is_some() {
            return Err(invalid(
                "the access token needs an extension that is not served",
            ));
        }
        let typ = header.typ.as_deref().map(media_type);
        // RFC 9068 §2.1, and the older habit. Other types (of logout tokens, proofs, …) are other things.
        if !matches!(typ.as_deref(), None | Some("jwt" | "at+jwt")) {
            return Err(invalid("the token is no access token"));
        }
        if header
            .kid
            .as_ref()
            .is_some_and(|kid| kid.len() > KID_BYTES_MAX)
        {
            return Err(broken());
        }
        let algorithm = Algorithm::parse(&header.alg).ok_or_else(|| {
            invalid("the access token is signed by an algorithm that is not accepted")
        })?;
        Ok(Self {
            algorithm,
            kid: header.kid,
            is_at_jwt: typ.as_deref() == Some("at+jwt"),
            payload: decode(payload)?,
            signed,
            signature: decode(signature)?,
        })
    }
}

/// A `typ` as it is compared: of any case, and with or without what all of them begin with (RFC 7515 §4.1.9).
fn media_type(typ: &str) -> String {
    let typ = typ.to_ascii_lowercase();
    typ.strip_prefix("application/")
        .map_or(typ.clone(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(header: &str) -> Result<(), Refused> {
        let part = |text: &str| BASE64_URL_SAFE_NO_PAD.encode(text);
        let token = format!("{}.{}.{}", part(header), part("{}"), part("x"));
        Jws::parse(&token).map(drop)
    }

    #[test]
    fn headers_are_read() {
        for good in [
            r#"{"alg":"ES256"}"#,
            r#"{"alg":"RS256","kid":"a","typ":"JWT"}"#,
            r#"{"alg":"EdDSA","typ":"application/at+jwt","jku":"https://evil.example"}"#,
        ] {
            assert!(parse(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "{}",
            "[]",
            "ES256",
            r#"{"alg":"none"}"#,
            r#"{"alg":"HS256"}"#,
            r#"{"alg":null}"#,
            r#"{"alg":["ES256"]}"#,
            r#"{"alg":"ES256","alg":"none"}"#,
            r#"{"alg":"ES256","crit":["exp"]}"#,
            r#"{"alg":"ES256","crit":[]}"#,
            r#"{"alg":"ES256","enc":"A256GCM"}"#,
            r#"{"alg":"ES256","typ":"dpop+jwt"}"#,
            r#"{"alg":"ES256","typ":"logout+jwt"}"#,
            r#"{"alg":"ES256","kid":7}"#,
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        let long = format!(r#"{{"alg":"ES256","kid":"{}"}}"#, "k".repeat(257));
        assert!(parse(&long).is_err());
    }

    #[test]
    fn only_three_parts_of_strict_base64() {
        for bad in [
            "",
            ".",
            "..",
            "a.b",
            "e30.e30",
            "e30.e30.e30.e30",
            "e30=.e30.e30",
            "e31.e30.e30",
        ] {
            assert!(Jws::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn opaque_tokens_are_told_apart() {
        assert!(looks_like_one("eyJhbGciOiJub25lIn0.e30."));
        for opaque in ["abc", "ey", "a.b.c", "eyJ.b", ""] {
            assert!(!looks_like_one(opaque), "{opaque}");
        }
    }
}
