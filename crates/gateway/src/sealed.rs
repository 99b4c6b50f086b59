//! Short texts that callers carry for us: sealed by authenticated encryption under the keys of
//! `gateway.request_state_keys`, so that every replica opens them and nobody else reads or makes one.
//!
//! What a text is for is authenticated with it: one that was sealed for something else does not open.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use chacha20poly1305::aead::{Aead as _, KeyInit as _, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use protocol::secret;
use store::Principal;

const NONCE_BYTES: usize = 24;

/// The keys: the first seals, all open.
pub(crate) struct Keys(Vec<XChaCha20Poly1305>);

impl Keys {
    /// From settings that [`Config::validate`](crate::Config::validate) accepted.
    pub(crate) fn new(texts: &[String]) -> Result<Self, String> {
        let keys = texts.iter().map(|text| {
            let key = secret::read_key(text)?;
            Ok(XChaCha20Poly1305::new((&key).into()))
        });
        Ok(Self(keys.collect::<Result<_, String>>()?))
    }

    /// Whether there is a key.
    pub(crate) fn can_seal(&self) -> bool {
        !self.0.is_empty()
    }

    /// Seals a short text for one purpose; `None` when no key is configured.
    pub(crate) fn encrypt(&self, purpose: &[u8], plain: &[u8]) -> Option<String> {
        let cipher = self.0.first()?;
        let mut sealed = vec![0_u8; NONCE_BYTES];
        getrandom::fill(&mut sealed)
            .expect("the operating system's random source is ready once a process runs");
        let payload = Payload {
            msg: plain,
            aad: purpose,
        };
        let cipher_text = cipher
            .encrypt(XNonce::from_slice(&sealed), payload)
            .expect("what is sealed is far below the cipher's limit");
        sealed.extend_from_slice(&cipher_text);
        Some(BASE64_URL_SAFE_NO_PAD.encode(sealed))
    }

    /// Opens what was sealed for this purpose; a text longer than `bytes_max` is not even read.
    pub(crate) fn decrypt(&self, purpose: &[u8], text: &str, bytes_max: usize) -> Option<Vec<u8>> {
        if text.len() > bytes_max {
            return None;
        }
        let sealed = BASE64_URL_SAFE_NO_PAD.decode(text).ok()?;
        let (nonce, cipher_text) = sealed.split_at_checked(NONCE_BYTES)?;
        self.0.iter().find_map(|cipher| {
            let payload = Payload {
                msg: cipher_text,
                aad: purpose,
            };
            cipher.decrypt(XNonce::from_slice(nonce), payload).ok()
        })
    }
}

/// Whose something sealed is.
pub(crate) fn owner(principal: &Principal) -> (String, String) {
    (principal.issuer.clone(), principal.subject.clone())
}
