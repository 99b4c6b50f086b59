//! Addresses at which a service sends later what came of its work: signed, so that nobody can make
//! one but us, and without any state but the keys, so that every replica knows them.
//!
//! An address names its task, which of the task's callbacks it is, and until when it may be called.
//! Whether that time is over is Postgres' to say; here it is only bound. The same task and key give
//! the same address as long as the key that signs is the same.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};
use sha2::{Digest as _, Sha256};

use crate::TaskId;
use crate::progress::Progress;
use crate::secret;
use crate::tools::{CallToolResult, Content};

/// Where the address travels to the service.
pub const URL_HEADER: &str = "mcp-tasks-callback-url";
/// What the path of every address begins with.
pub const PATH: &str = "/callbacks/";
/// Names the use and the format: nothing that is signed elsewhere with the same key fits here.
const PURPOSE: &[u8] = b"mcp-tasks/callback/1/result";
const MAC_BYTES: usize = 32;
const HEAD_BYTES: usize = 16 + 8;
/// Bytes of the longest key of a callback, as of all keys of a journal: what workers may be set to.
pub const KEY_BYTES_MAX: usize = 1024;
/// One with the longest key, in base64.
const TOKEN_BYTES_MAX: usize = (MAC_BYTES + HEAD_BYTES + KEY_BYTES_MAX).div_ceil(3) * 4;

/// What an address says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// The task.
    pub task: TaskId,
    /// Which of its callbacks.
    pub key: String,
    /// Until when it may be called, ms since 1970 by Postgres' clock.
    pub expires_ms: i64,
}

/// The keys: the first signs, all verify.
#[derive(Clone, Default)]
pub struct Keys(Vec<([u8; 32], String)>);

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Keys({})", self.0.len())
    }
}

impl Keys {
    /// Reads keys of the settings: 32 bytes each, in hex or base64.
    ///
    /// # Errors
    /// With the place of the one that is none, and why.
    pub fn read(texts: &[String]) -> Result<Self, (usize, String)> {
        let keys = texts.iter().enumerate().map(|(place, text)| {
            let key = secret::read_key(text).map_err(|problem| (place, problem))?;
            Ok((key, fingerprint(&key)))
        });
        Ok(Self(keys.collect::<Result<_, _>>()?))
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The fingerprint of the key that signs.
    #[must_use]
    pub fn signing(&self) -> Option<&str> {
        self.0.first().map(|(_, fingerprint)| fingerprint.as_str())
    }

    /// Signs with the key of this fingerprint, or else with the first; `None` when there is no key.
    /// The text is one segment of a path.
    #[must_use]
    pub fn sign(&self, ticket: &Ticket, by: &str) -> Option<String> {
        let named = self.0.iter().find(|(_, fingerprint)| fingerprint == by);
        let (key, _) = named.or(self.0.first())?;
        let said = said(ticket);
        let mut token = mac(key, &said).finalize().into_bytes().to_vec();
        token.extend_from_slice(&said);
        Some(BASE64_URL_SAFE_NO_PAD.encode(token))
    }

    /// What a text says that one of the keys signed; `None` for everything else.
    #[must_use]
    pub fn verify(&self, token: &str) -> Option<Ticket> {
        if token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(token).ok()?;
        let (signature, said) = bytes.split_at_checked(MAC_BYTES)?;
        let signed = |(key, _): &([u8; 32], String)| mac(key, said).verify_slice(signature).is_ok();
        // All of them, so that the time tells nothing of which.
        let fitting = self.0.iter().filter(|key| signed(key)).count();
        if fitting == 0 {
            return None;
        }
        let (head, key) = said.split_at_checked(HEAD_BYTES)?;
        let (task, expires) = head.split_at_checked(16)?;
        Some(Ticket {
            task: TaskId::from_uuid(uuid::Uuid::from_bytes(task.try_into().ok()?)),
            key: String::from_utf8(key.to_vec()).ok()?,
            expires_ms: i64::from_be_bytes(expires.try_into().ok()?),
        })
    }
}

fn said(ticket: &Ticket) -> Vec<u8> {
    let mut said = ticket.task.as_bytes().to_vec();
    said.extend_from_slice(&ticket.expires_ms.to_be_bytes());
    said.extend_from_slice(ticket.key.as_bytes());
    said
}

fn mac(key: &[u8; 32], said: &[u8]) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key of any length does");
    mac.update(PURPOSE);
    mac.update(said);
    mac
}

/// Tells keys apart and says nothing of them.
fn fingerprint(key: &[u8; 32]) -> String {
    let digest = Sha256::new_with_prefix(PURPOSE)
        .chain_update(key)
        .finalize();
    BASE64_URL_SAFE_NO_PAD.encode(&digest[..6])
}

/// What a service sends.
#[derive(Clone, Debug, PartialEq)]
pub enum Report {
    /// What came of its work: the last word.
    Result(Outcome),
    /// How its work goes.
    Progress(Progress),
}

/// What came of a service's work, as a service says it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outcome {
    /// A text for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Structured content: what the tool's output schema promises.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structured: Option<Value>,
    /// Blocks of content, as in MCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Vec<Content>>,
    /// It failed, and the rest says how.
    #[serde(default, rename = "isError")]
    pub is_error: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Said {
    progress: Number,
    #[serde(default)]
    total: Option<Number>,
    #[serde(default)]
    message: Option<String>,
}

impl Report {
    /// Reads the body of a callback.
    ///
    /// # Errors
    /// With what is wrong and what is allowed.
    pub fn read(body: &[u8]) -> Result<Self, String> {
        const ALLOWED: &str = "allowed: {text, structured, content, isError} with at least one of \
                               the first three, or {progress, total, message}";
        let value: Value = serde_json::from_slice(body)
            .map_err(|error| format!("the body is no JSON: {error}"))?;
        let Some(object) = value.as_object() else {
            return Err(format!("the body is no JSON object; {ALLOWED}"));
        };
        if object.contains_key("progress") {
            let said: Said =
                serde_json::from_slice(body).map_err(|error| format!("{error}; {ALLOWED}"))?;
            return Ok(Self::Progress(Progress {
                progress: said.progress,
                total: said.total,
                message: said.message,
            }));
        }
        let outcome: Outcome =
            serde_json::from_slice(body).map_err(|error| format!("{error}; {ALLOWED}"))?;
        if outcome.text.is_none() && outcome.structured.is_none() && outcome.content.is_none() {
            return Err(format!("the body says nothing; {ALLOWED}"));
        }
        if outcome.text.is_some() && outcome.content.is_some() {
            return Err("give text or content, not both".to_owned());
        }
        Ok(Self::Result(outcome))
    }
}

impl Outcome {
    /// As a tool's result.
    #[must_use]
    pub fn into_result(self) -> CallToolResult {
        let mut result = match (self.content, self.text, &self.structured) {
            (Some(content), _, _) => CallToolResult::content(content),
            (None, Some(text), _) => CallToolResult::text(text),
            (None, None, Some(structured)) => CallToolResult::text(structured.to_string()),
            (None, None, None) => CallToolResult::default(),
        };
        result.structured_content = self.structured;
        result.is_error = self.is_error;
        result
    }
}

#[cfg(test)]
mod tests {
    use base64::prelude::BASE64_STANDARD;

    use super::*;

    fn keys(bytes: &[u8]) -> Keys {
        let texts: Vec<String> = bytes
            .iter()
            .map(|byte| BASE64_STANDARD.encode([*byte; 32]))
            .collect();
        Keys::read(&texts).unwrap()
    }

    fn ticket() -> Ticket {
        Ticket {
            task: TaskId::new(1_790_000_000_000),
            key: "call".to_owned(),
            expires_ms: 1_790_000_123_456,
        }
    }

    #[test]
    fn what_was_signed_is_verified_and_is_always_the_same() {
        let (keys, ticket) = (keys(&[1]), ticket());
        let by = keys.signing().unwrap();
        let token = keys.sign(&ticket, by).unwrap();
        assert_eq!(keys.sign(&ticket, by).unwrap(), token);
        assert_eq!(keys.verify(&token), Some(ticket.clone()));
        let safe = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        assert!(token.bytes().all(safe), "one segment of a path: {token}");
        for other in [
            Ticket {
                key: "cal".to_owned(),
                ..ticket.clone()
            },
            Ticket {
                expires_ms: 0,
                ..ticket.clone()
            },
            Ticket {
                task: TaskId::new(0),
                ..ticket.clone()
            },
        ] {
            assert_ne!(keys.sign(&other, by).unwrap(), token);
        }
    }

    #[test]
    fn every_forgery_is_noticed() {
        let (keys, ticket) = (keys(&[1]), ticket());
        let token = keys.sign(&ticket, "").unwrap();
        for at in 0..token.len() {
            let mut forged = token.clone().into_bytes();
            forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
            let forged = String::from_utf8(forged).unwrap();
            assert!(keys.verify(&forged).is_none(), "at {at}");
        }
        let long = "A".repeat(10_000);
        for junk in [
            "",
            "A",
            "=",
            "☃",
            "../..",
            &long,
            &token[..40],
            &format!("{token}A"),
        ] {
            assert_eq!(keys.verify(junk), None, "{junk}");
        }
    }

    #[test]
    fn keys_may_be_as_long_as_a_journal_takes() {
        let keys = keys(&[1]);
        for (length, fits) in [(1_023, true), (1_024, true), (1_025, false)] {
            let ticket = Ticket {
                key: "k".repeat(length),
                ..ticket()
            };
            let token = keys.sign(&ticket, "").unwrap();
            assert_eq!(keys.verify(&token), fits.then_some(ticket), "{length}");
        }
    }

    #[test]
    fn keys_rotate_and_addresses_stay() {
        let (old, ticket) = (keys(&[1]), ticket());
        let by = old.signing().unwrap().to_owned();
        let token = old.sign(&ticket, &by).unwrap();
        let rotated = keys(&[2, 1]);
        assert_eq!(rotated.sign(&ticket, &by).unwrap(), token);
        assert!(rotated.verify(&token).is_some());
        let new = keys(&[2]);
        assert_eq!(new.verify(&token), None);
        assert_ne!(new.sign(&ticket, &by).unwrap(), token);
        assert!(keys(&[]).sign(&ticket, &by).is_none() && keys(&[]).verify(&token).is_none());
        assert!(!format!("{old:?}").contains("AQEB"), "keys are not printed");
    }

    #[test]
    fn bodies_are_read_strictly() {
        let result = |body: &str| match Report::read(body.as_bytes()) {
            Ok(Report::Result(outcome)) => outcome.into_result(),
            other => panic!("{body}: {other:?}"),
        };
        assert_eq!(result(r#"{"text":"t"}"#).content[0].as_text(), Some("t"));
        let structured = result(r#"{"structured":{"a":1}}"#);
        assert_eq!(structured.content[0].as_text(), Some(r#"{"a":1}"#));
        let both = result(r#"{"structured":{"a":1},"text":"t"}"#);
        assert_eq!(both.content[0].as_text(), Some("t"));
        assert!(both.structured_content.is_some());
        assert!(result(r#"{"text":"no","isError":true}"#).is_error);
        let blocks = r#"{"content":[{"type":"image","data":"","mimeType":"image/png"}]}"#;
        assert_eq!(result(blocks).content.len(), 1);
        let progress = Report::read(br#"{"progress":1,"total":2,"message":"m"}"#).unwrap();
        assert!(matches!(progress, Report::Progress(p) if p.total == Some(2.into())));
        for bad in [
            "",
            "[]",
            "{}",
            "null",
            "{",
            r#"{"isError":true}"#,
            r#"{"result":1}"#,
            r#"{"text":"a","content":[]}"#,
            r#"{"text":1}"#,
            r#"{"progress":"x"}"#,
            r#"{"progress":1,"text":"t"}"#,
            "\u{0}",
            r#"{"text":"a"} x"#,
        ] {
            assert!(Report::read(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(Report::read(b"\xff").is_err());
    }
}
