//! Public keys of an issuer (RFC 7517, RFC 7518 §6, RFC 8037), each for the algorithms of its own
//! kind only.
//!
//! The signatures are `ring`'s affair, the same library that our TLS rests on. What is ours is which
//! key and which algorithm may meet: the key decides, never the token.

use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256,
    RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, RsaParameters, RsaPublicKeyComponents,
    UnparsedPublicKey,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// Keys of one issuer; more are not read.
const KEYS_MAX: usize = 100;
/// Keys that a token is tried by, so that a forged one costs no more verifications than that.
const CANDIDATES_MAX: usize = 8;
/// Bytes of the modulus of the weakest RSA key (2048 bits).
const RSA_BYTES_MIN: usize = 256;
const RSA_BYTES_MAX: usize = 1024;

/// How a token may be signed (RFC 7518 §3.1, RFC 8037): asymmetric only, so that nothing that
/// verifies a token could make one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum Algorithm {
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    RS256,
    /// RSASSA-PKCS1-v1_5 with SHA-384.
    RS384,
    /// RSASSA-PKCS1-v1_5 with SHA-512.
    RS512,
    /// RSASSA-PSS with SHA-256.
    PS256,
    /// RSASSA-PSS with SHA-384.
    PS384,
    /// RSASSA-PSS with SHA-512.
    PS512,
    /// ECDSA on P-256 with SHA-256.
    ES256,
    /// ECDSA on P-384 with SHA-384.
    ES384,
    /// Ed25519.
    #[serde(rename = "EdDSA")]
    EdDsa,
}

impl Algorithm {
    /// All of them.
    pub(crate) const ALL: [Self; 9] = [
        Self::RS256,
        Self::RS384,
        Self::RS512,
        Self::PS256,
        Self::PS384,
        Self::PS512,
        Self::ES256,
        Self::ES384,
        Self::EdDsa,
    ];

    /// As `alg` names it; `None` for all that are not accepted, `none` and HMAC first.
    pub(super) fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "RS256" => Self::RS256,
            "RS384" => Self::RS384,
            "RS512" => Self::RS512,
            "PS256" => Self::PS256,
            "PS384" => Self::PS384,
            "PS512" => Self::PS512,
            "ES256" => Self::ES256,
            "ES384" => Self::ES384,
            // RFC 9864 §2.2 names it by its curve.
            "EdDSA" | "Ed25519" => Self::EdDsa,
            _ => return None,
        })
    }

    fn rsa(self) -> Option<&'static RsaParameters> {
        Some(match self {
            Self::RS256 => &RSA_PKCS1_2048_8192_SHA256,
            Self::RS384 => &RSA_PKCS1_2048_8192_SHA384,
            Self::RS512 => &RSA_PKCS1_2048_8192_SHA512,
            Self::PS256 => &RSA_PSS_2048_8192_SHA256,
            Self::PS384 => &RSA_PSS_2048_8192_SHA384,
            Self::PS512 => &RSA_PSS_2048_8192_SHA512,
            Self::ES256 | Self::ES384 | Self::EdDsa => return None,
        })
    }
}

/// One public key.
#[derive(Debug)]
pub(super) struct Key {
    kid: Option<String>,
    /// The one algorithm that it is for, if it says so.
    only: Option<Algorithm>,
    material: Material,
    /// Of the material: the same key is the same whatever it is called.
    print: [u8; 32],
}

#[derive(Debug)]
enum Material {
    Rsa { n: Vec<u8>, e: Vec<u8> },
    P256(Vec<u8>),
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
}

/// All keys of one issuer that can be used.
#[derive(Clone, Debug, Default)]
pub(super) struct KeySet {
    keys: Vec<Arc<Key>>,
}

/// A key as it is published; what we do not know is passed over (RFC 7517 §4).
#[derive(Deserialize)]
struct Published {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    usage: Option<String>,
    key_ops: Option<Vec<String>>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
    /// Of a private key, which nobody should have published.
    d: Option<String>,
}

impl KeySet {
    /// Reads a JWK set. A key that we cannot use (encryption, a kind that we do not know, too weak)
    /// is passed over; another may be good.
    pub(super) fn read(json: &[u8]) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Set {
            keys: Vec<Value>,
        }
        let set: Set =
            serde_json::from_slice(json).map_err(|error| format!("is no set of keys: {error}"))?;
        let read = set.keys.into_iter().take(KEYS_MAX);
        let keys: Vec<_> = read.filter_map(Key::read).map(Arc::new).collect();
        if keys.is_empty() {
            return Err("holds no key that could have signed a token".to_owned());
        }
        Ok(Self { keys })
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// The keys that may have signed a token, in the set's order: those of the name that it gives, or
    /// all where it gives none, as far as its algorithm fits them; at most [`CANDIDATES_MAX`].
    ///
    /// Where no key has that name, keys without any are tried: `kid` is a hint (RFC 7515 §4.1.4) that
    /// a key need not have (RFC 7517 §4.5). A key that has another name says that it is another.
    pub(super) fn candidates(&self, kid: Option<&str>, algorithm: Algorithm) -> Vec<Arc<Key>> {
        let is_named = self.names(kid);
        let may = |key: &&Arc<Key>| match kid {
            None => true,
            Some(_) if is_named => key.kid.as_deref() == kid,
            Some(_) => key.kid.is_none(),
        };
        let fitting = self.keys.iter().filter(|key| key.takes(algorithm));
        fitting.filter(may).take(CANDIDATES_MAX).cloned().collect()
    }

    /// Whether a key goes by that name, whatever it is for.
    pub(super) fn names(&self, kid: Option<&str>) -> bool {
        kid.is_some() && self.keys.iter().any(|key| key.kid.as_deref() == kid)
    }

    /// Whether the key is still among them.
    pub(super) fn holds(&self, print: &[u8; 32]) -> bool {
        self.keys.iter().any(|key| key.print == *print)
    }
}

impl Key {
    fn read(json: Value) -> Option<Self> {
        let key: Published = serde_json::from_value(json).ok()?;
        let signs = key.usage.as_deref().is_none_or(|usage| usage == "sig")
            && (key.key_ops.as_ref()).is_none_or(|ops| ops.iter().any(|op| op == "verify"));
        if !signs || key.d.is_some() {
            return None;
        }
        let bytes = |text: &Option<String>| {
            let text = text.as_deref()?;
            BASE64_URL_SAFE_NO_PAD.decode(text).ok()
        };
        let material = match (key.kty.as_str(), key.crv.as_deref()) {
            ("RSA", _) => {
                let n = without_zeros(bytes(&key.n)?);
                let e = without_zeros(bytes(&key.e)?);
                if !(RSA_BYTES_MIN..=RSA_BYTES_MAX).contains(&n.len()) {
                    return None;
                }
                Material::Rsa { n, e }
            }
            ("EC", Some("P-256")) => Material::P256(point(&bytes(&key.x)?, &bytes(&key.y)?, 32)?),
            ("EC", Some("P-384")) => Material::P384(point(&bytes(&key.x)?, &bytes(&key.y)?, 48)?),
            ("OKP", Some("Ed25519")) => {
                let x = bytes(&key.x)?;
                Material::Ed25519((x.len() == 32).then_some(x)?)
            }
            _ => return None,
        };
        let only = match key.alg.as_deref() {
            // For an algorithm that we do not know, it is for none that we do.
            Some(name) => Some(Algorithm::parse(name)?),
            None => None,
        };
        Some(Self {
            kid: key.kid,
            only,
            print: material.print(),
            material,
        })
    }

    /// Which key this is.
    pub(super) fn print(&self) -> [u8; 32] {
        self.print
    }

    fn takes(&self, algorithm: Algorithm) -> bool {
        self.only.is_none_or(|only| only == algorithm)
            && match (&self.material, algorithm) {
                (Material::Rsa { .. }, _) => algorithm.rsa().is_some(),
                (Material::P256(_), Algorithm::ES256)
                | (Material::P384(_), Algorithm::ES384)
                | (Material::Ed25519(_), Algorithm::EdDsa) => true,
                (Material::P256(_) | Material::P384(_) | Material::Ed25519(_), _) => false,
            }
    }

    /// Whether it made this signature by this algorithm.
    pub(super) fn verifies(&self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        if !self.takes(algorithm) {
            return false;
        }
        let verified =
            match &self.material {
                Material::Rsa { n, e } => {
                    let Some(parameters) = algorithm.rsa() else {
                        return false;
                    };
                    RsaPublicKeyComponents { n, e }.verify(parameters, message, signature)
                }
                Material::P256(point) => UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point)
                    .verify(message, signature),
                Material::P384(point) => UnparsedPublicKey::new(&ECDSA_P384_SHA384_FIXED, point)
                    .verify(message, signature),
                Material::Ed25519(key) => {
                    UnparsedPublicKey::new(&ED25519, key).verify(message, signature)
                }
            };
        verified.is_ok()
    }
}

impl Material {
    fn print(&self) -> [u8; 32] {
        let parts: [&[u8]; 3] = match self {
            Self::Rsa { n, e } => [b"rsa", n, e],
            Self::P256(point) => [b"p256", point, b""],
            Self::P384(point) => [b"p384", point, b""],
            Self::Ed25519(key) => [b"ed25519", key, b""],
        };
        let mut hasher = Sha256::new();
        for part in parts {
            hasher.update(part.len().to_be_bytes());
            hasher.update(part);
        }
        hasher.finalize().into()
    }
}

/// Some issuers put a zero before a number, which is not allowed and means nothing.
fn without_zeros(mut bytes: Vec<u8>) -> Vec<u8> {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    bytes.drain(..zeros);
    bytes
}

/// An uncompressed point (SEC 1 §2.3.3).
fn point(x: &[u8], y: &[u8], length: usize) -> Option<Vec<u8>> {
    if x.len() != length || y.len() != length {
        return None;
    }
    Some([&[4], x, y].concat())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(keys: Value) -> Result<KeySet, String> {
        KeySet::read(json!({ "keys": keys }).to_string().as_bytes())
    }

    fn x(length: usize) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(vec![7; length])
    }

    #[test]
    fn keys_that_sign_nothing_are_passed_over() {
        let ed = json!({"kty": "OKP", "crv": "Ed25519", "x": x(32)});
        let with = |name: &str, value: Value| {
            let mut key = ed.clone();
            key[name] = value;
            key
        };
        assert_eq!(set(json!([ed])).unwrap().len(), 1);
        for unusable in [
            with("use", json!("enc")),
            with("key_ops", json!(["sign"])),
            with("alg", json!("HS256")),
            with("alg", json!("ES512")),
            with("d", json!(x(32))),
            with("x", json!(x(31))),
            with("x", json!("not base64!")),
            with("crv", json!("X25519")),
            with("kty", json!("oct")),
            json!({"kty": "oct", "k": x(32)}),
            json!({"kty": "RSA", "n": x(128), "e": "AQAB"}),
            json!({"kty": "RSA", "n": x(1025), "e": "AQAB"}),
            json!({"kty": "EC", "crv": "P-256", "x": x(32), "y": x(31)}),
            json!({"kty": "EC", "crv": "P-521", "x": x(66), "y": x(66)}),
            json!({"kty": 1}),
            json!("key"),
            json!(null),
        ] {
            assert!(set(json!([unusable])).is_err(), "{unusable}");
            assert_eq!(set(json!([unusable, ed])).unwrap().len(), 1, "{unusable}");
        }
        for garbage in ["", "[]", "{}", "{\"keys\": 1}", "<html>", "{\"keys\": []}"] {
            assert!(KeySet::read(garbage.as_bytes()).is_err(), "{garbage}");
        }
    }

    #[test]
    fn a_key_is_for_the_algorithms_of_its_kind() {
        let keys = set(json!([
            {"kty": "RSA", "kid": "r", "n": x(256), "e": "AQAB"},
            {"kty": "RSA", "kid": "r-pss", "alg": "PS256", "n": x(257), "e": "AQAB"},
            {"kty": "EC", "kid": "e", "crv": "P-256", "x": x(32), "y": x(32)},
            {"kty": "OKP", "kid": "o", "crv": "Ed25519", "x": x(32)},
        ]))
        .unwrap();
        for (kid, takes) in [
            ("r", "RS256 RS384 RS512 PS256 PS384 PS512"),
            ("r-pss", "PS256"),
            ("e", "ES256"),
            ("o", "EdDSA Ed25519"),
        ] {
            for name in "RS256 RS384 RS512 PS256 PS384 PS512 ES256 ES384 EdDSA".split(' ') {
                let algorithm = Algorithm::parse(name).unwrap();
                let found = keys.candidates(Some(kid), algorithm).len();
                let expected = usize::from(takes.split(' ').any(|one| one == name));
                assert_eq!(found, expected, "{kid} {name}");
            }
        }
        assert_eq!(keys.candidates(None, Algorithm::ES256).len(), 1);
        assert_eq!(keys.candidates(None, Algorithm::PS256).len(), 2);
        assert!(keys.candidates(Some("x"), Algorithm::ES256).is_empty());
    }

    #[test]
    fn keys_without_a_name_are_tried_where_no_key_has_the_name() {
        let keys = set(json!([
            {"kty": "OKP", "kid": "a", "crv": "Ed25519", "x": x(32)},
            {"kty": "OKP", "kid": "a", "crv": "Ed25519", "x": BASE64_URL_SAFE_NO_PAD.encode([8; 32])},
            {"kty": "OKP", "crv": "Ed25519", "x": BASE64_URL_SAFE_NO_PAD.encode([9; 32])},
            {"kty": "EC", "crv": "P-256", "x": x(32), "y": x(32)},
        ]))
        .unwrap();
        for (kid, names) in [
            (None, vec![Some("a"), Some("a"), None]),
            (Some("a"), vec![Some("a"), Some("a")]),
            (Some("b"), vec![None]),
            (Some(""), vec![None]),
        ] {
            let found = keys.candidates(kid, Algorithm::EdDsa);
            let found: Vec<_> = found.iter().map(|key| key.kid.as_deref()).collect();
            assert_eq!(found, names, "{kid:?}");
        }
        // A name that is known for another algorithm is no name that is not known.
        assert!(keys.candidates(Some("a"), Algorithm::ES256).is_empty());
    }

    #[test]
    fn a_token_is_tried_by_a_few_keys_only() {
        let keys = |kid: Value| -> Vec<_> {
            let key = |n: u8| {
                let x = BASE64_URL_SAFE_NO_PAD.encode([n; 32]);
                json!({"kty": "OKP", "kid": kid, "crv": "Ed25519", "x": x})
            };
            (0..100).map(key).collect()
        };
        for (published, asked) in [
            (json!(null), None),
            (json!(null), Some("a")),
            (json!("a"), Some("a")),
            (json!("a"), None),
        ] {
            let all = set(json!(keys(published))).unwrap();
            let tried = all.candidates(asked, Algorithm::EdDsa);
            assert_eq!(tried.len(), CANDIDATES_MAX);
        }
    }

    #[test]
    fn symmetric_and_absent_algorithms_have_no_name() {
        for name in [
            "none", "None", "HS256", "HS512", "rs256", "ES512", "ES256K", "",
        ] {
            assert_eq!(Algorithm::parse(name), None, "{name}");
        }
    }
}
