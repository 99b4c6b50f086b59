//! A POST of JSON, signed as Standard Webhooks say (standardwebhooks.com): the receiver checks
//! `webhook-signature` over id, timestamp and body, and drops a repeat by `webhook-id`.

use std::time::UNIX_EPOCH;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::http::Request;
use super::message::Message;
use super::receivers::Failure;
use super::way::Open;

const PREFIX: &str = "whsec_";
/// Standard Webhooks: 192 to 512 bits.
const KEY_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// Reads a signing key.
pub(super) fn key(secret: &str) -> Result<Vec<u8>, String> {
    let encoded = secret.strip_prefix(PREFIX).unwrap_or(secret);
    let key = STANDARD
        .decode(encoded)
        .map_err(|_| format!("not base64 (after an optional {PREFIX})"))?;
    if KEY_BYTES.contains(&key.len()) {
        Ok(key)
    } else {
        Err(format!(
            "{} bytes long; {KEY_BYTES:?} are allowed",
            key.len()
        ))
    }
}

pub(crate) async fn send(way: &Open, message: &Message) -> Result<(), Failure> {
    let body = message.json().to_string();
    let state = if message.resolved {
        "resolved"
    } else {
        "firing"
    };
    // A repeat of the same message has the same id.
    let id = format!("{}:{state}", message.fingerprint);
    let now = message.now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let timestamp = now.as_secs().to_string();
    let signature = sign(&way.key, &[&id, &timestamp, &body]);
    way.client
        .post(Request {
            url: way.url.clone(),
            headers: vec![
                ("webhook-id", id),
                ("webhook-timestamp", timestamp),
                ("webhook-signature", signature),
            ],
            body: Bytes::from(body),
        })
        .await
}

fn sign(key: &[u8], parts: &[&str]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes a key of any length");
    mac.update(parts.join(".").as_bytes());
    format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification's reference implementation.
    #[test]
    fn signs_as_the_specification_does() {
        let key = key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let parts = [
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            "1614265330",
            r#"{"test": 2432232314}"#,
        ];
        assert_eq!(
            sign(&key, &parts),
            "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
        );
    }

    #[test]
    fn a_key_that_is_too_short_or_no_base64_is_refused() {
        assert!(key("whsec_AAAA").unwrap_err().contains("3 bytes"));
        assert!(key("not base64!").unwrap_err().contains("base64"));
    }
}
