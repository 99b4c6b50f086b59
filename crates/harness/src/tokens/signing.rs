//! Private keys, and tokens that they sign.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair,
    KeyPair as _, RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512, RSA_PSS_SHA256,
    RSA_PSS_SHA384, RSA_PSS_SHA512, RsaKeyPair, RsaPublicKeyComponents,
};
use serde_json::{Value, json};

/// Keys of RSA take long to make, so these are always the same; they protect nothing.
const RSA: [&[u8]; 2] = [include_bytes!("rsa_1.pk8"), include_bytes!("rsa_2.pk8")];

/// A private key.
pub struct SigningKey {
    /// As its issuer calls it.
    pub kid: String,
    pair: Pair,
}

enum Pair {
    Rsa(Box<RsaKeyPair>),
    P256(EcdsaKeyPair),
    P384(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

impl SigningKey {
    /// The first or the second RSA key of 2048 bits.
    ///
    /// # Panics
    /// If there is no such key.
    #[must_use]
    pub fn rsa(kid: &str, which: usize) -> SigningKey {
        let pair = RsaKeyPair::from_pkcs8(RSA[which]).expect("the key in the file is good");
        Self::new(kid, Pair::Rsa(Box::new(pair)))
    }

    /// A new key on the curve P-256.
    ///
    /// # Panics
    /// If the system has no randomness.
    #[must_use]
    pub fn p256(kid: &str) -> SigningKey {
        let (algorithm, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &random).expect("randomness");
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref(), &random);
        Self::new(kid, Pair::P256(pair.expect("a key just made is good")))
    }

    /// A new key on the curve P-384.
    ///
    /// # Panics
    /// If the system has no randomness.
    #[must_use]
    pub fn p384(kid: &str) -> SigningKey {
        let (algorithm, random) = (&ECDSA_P384_SHA384_FIXED_SIGNING, SystemRandom::new());
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &random).expect("randomness");
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref(), &random);
        Self::new(kid, Pair::P384(pair.expect("a key just made is good")))
    }

    /// A new key on the curve Ed25519.
    ///
    /// # Panics
    /// If the system has no randomness.
    #[must_use]
    pub fn ed25519(kid: &str) -> SigningKey {
        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).expect("randomness");
        let pair = Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).expect("a key just made is good");
        Self::new(kid, Pair::Ed25519(pair))
    }

    fn new(kid: &str, pair: Pair) -> SigningKey {
        SigningKey {
            kid: kid.to_owned(),
            pair,
        }
    }

    /// The algorithm that it signs by unless told otherwise.
    #[must_use]
    pub fn algorithm(&self) -> &'static str {
        match self.pair {
            Pair::Rsa(_) => "RS256",
            Pair::P256(_) => "ES256",
            Pair::P384(_) => "ES384",
            Pair::Ed25519(_) => "EdDSA",
        }
    }

    /// The public key as it is published.
    #[must_use]
    pub fn jwk(&self) -> Value {
        let mut jwk = match &self.pair {
            Pair::Rsa(pair) => {
                let public = RsaPublicKeyComponents::<Vec<u8>>::from(pair.public());
                json!({"kty": "RSA", "n": encode(public.n), "e": encode(public.e)})
            }
            Pair::P256(pair) => point("P-256", pair.public_key().as_ref()),
            Pair::P384(pair) => point("P-384", pair.public_key().as_ref()),
            Pair::Ed25519(pair) => {
                json!({"kty": "OKP", "crv": "Ed25519", "x": encode(pair.public_key().as_ref())})
            }
        };
        jwk["kid"] = json!(self.kid);
        jwk["use"] = json!("sig");
        jwk
    }

    /// A token with the usual header.
    #[must_use]
    pub fn sign(&self, claims: &Value) -> String {
        let header = json!({"alg": self.algorithm(), "kid": self.kid, "typ": "at+jwt"});
        self.sign_with(&header, claims)
    }

    /// A token with this header; signed as its `alg` says if the key can, else as the key does.
    #[must_use]
    pub fn sign_with(&self, header: &Value, claims: &Value) -> String {
        let algorithm = header["alg"].as_str().unwrap_or_default();
        self.sign_text(algorithm, &header.to_string(), &claims.to_string())
    }

    /// A token of these texts, be they JSON or not; signed by this algorithm if the key can, else as
    /// the key does.
    #[must_use]
    pub fn sign_text(&self, algorithm: &str, header: &str, claims: &str) -> String {
        let signed = format!("{}.{}", encode(header), encode(claims));
        let signature = self.signature(algorithm, &signed);
        format!("{signed}.{}", encode(signature))
    }

    fn signature(&self, algorithm: &str, signed: &str) -> Vec<u8> {
        let random = SystemRandom::new();
        let message = signed.as_bytes();
        match &self.pair {
            Pair::Rsa(pair) => {
                let padding: &dyn ring::signature::RsaEncoding = match algorithm {
                    "RS384" => &RSA_PKCS1_SHA384,
                    "RS512" => &RSA_PKCS1_SHA512,
                    "PS256" => &RSA_PSS_SHA256,
                    "PS384" => &RSA_PSS_SHA384,
                    "PS512" => &RSA_PSS_SHA512,
                    _ => &RSA_PKCS1_SHA256,
                };
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(padding, &random, message, &mut signature)
                    .expect("the signature has its place");
                signature
            }
            Pair::P256(pair) | Pair::P384(pair) => {
                let signature = pair.sign(&random, message).expect("randomness");
                signature.as_ref().to_vec()
            }
            Pair::Ed25519(pair) => pair.sign(message).as_ref().to_vec(),
        }
    }
}

fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn point(curve: &str, uncompressed: &[u8]) -> Value {
    let (x, y) = uncompressed[1..].split_at(uncompressed.len() / 2);
    json!({"kty": "EC", "crv": curve, "x": encode(x), "y": encode(y)})
}
