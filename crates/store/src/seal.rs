//! How values are sealed: with the random key of their task, each bound to its place.
//!
//! A sealed value says itself that it is sealed, so that what is read depends on the row and never on
//! the settings of who reads: bytes begin as no JSON does, texts hold tokens (`<sealed:…>`), also where
//! SQL put one text into another. The nonce follows from the value, its place and the task's key
//! (a synthetic IV): the same value at the same place is the same bytes, so that a repeated statement
//! repeats, and SQL can tell that nothing changed. Nothing else can be told without the key.

use std::borrow::Cow;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bytes::Bytes;
use chacha20poly1305::aead::{Aead as _, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use hmac::{Hmac, Mac as _};
use protocol::TaskId;
use serde_json::{Map, Value};
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::Error;

/// What sealed bytes begin with: no JSON, and no UTF-8.
const MAGIC: [u8; 4] = [0xff, b's', b'l', 1];
const NONCE_BYTES: usize = 24;
const TAG_BYTES: usize = 16;
/// What sealing adds to a value's size.
pub(crate) const OVERHEAD: usize = MAGIC.len() + NONCE_BYTES + TAG_BYTES;
/// What a token in a text begins and ends with; between them its column, `:` and base64url.
const TOKEN: &str = "<sealed:";
const TOKEN_END: char = '>';
/// What a sealed error begins with: an object that tells what anybody may know, and holds all else.
const ERROR: &str = "{\"$sealed\":\"";
/// What is shown of a text that cannot be opened here.
pub(crate) const UNREADABLE: &str = "(sealed)";

/// Where a value stands. What is sealed for one place opens at no other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    /// `table.column`.
    pub(crate) column: &'static str,
    /// Key of the step, question or callback; empty for the task's own.
    pub(crate) key: &'a str,
}

impl Place<'static> {
    /// Of the task's own row.
    pub(crate) const fn task(column: &'static str) -> Self {
        Self { column, key: "" }
    }
}

/// The key of one task.
#[derive(Clone)]
pub(crate) struct TaskKey {
    id: TaskId,
    cipher: XChaCha20Poly1305,
    nonces: Zeroizing<[u8; 32]>,
    digests: Zeroizing<[u8; 32]>,
}

/// What a row says of its key.
#[derive(Clone)]
pub(crate) enum RowKey {
    /// Nothing of the task is sealed.
    Clear,
    /// This is it.
    Here(Box<TaskKey>),
    /// It is wrapped by a key that this process does not have.
    Missing {
        /// The task.
        id: TaskId,
        /// Name of the key that wraps it.
        key: String,
    },
}

impl std::fmt::Debug for RowKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Clear => "Clear",
            Self::Here(_) => "Here",
            Self::Missing { .. } => "Missing",
        })
    }
}

pub(crate) fn mac(key: &[u8], parts: &[&[u8]]) -> Zeroizing<[u8; 32]> {
    let mut mac = <Hmac<Sha256> as hmac::KeyInit>::new_from_slice(key)
        .expect("HMAC takes keys of any length");
    for part in parts {
        // With its length, so that no two lists of parts are the same bytes.
        mac.update(&(part.len() as u64).to_be_bytes());
        mac.update(part);
    }
    Zeroizing::new(mac.finalize().into_bytes().into())
}

impl TaskKey {
    pub(crate) fn new(id: TaskId, key: &[u8; 32]) -> Self {
        let derived = |purpose: &[u8]| mac(key, &[purpose]);
        Self {
            id,
            cipher: XChaCha20Poly1305::new((&*derived(b"mcp-tasks/values/1")).into()),
            nonces: derived(b"mcp-tasks/nonces/1"),
            digests: derived(b"mcp-tasks/digests/1"),
        }
    }

    fn bound(&self, place: Place<'_>) -> Vec<u8> {
        let mut bound = self.id.as_bytes().to_vec();
        bound.extend_from_slice(place.column.as_bytes());
        bound.push(0);
        bound.extend_from_slice(place.key.as_bytes());
        bound
    }

    fn encrypt(&self, place: Place<'_>, plain: &[u8], sealed: &mut Vec<u8>) {
        let aad = self.bound(place);
        let nonce = mac(&*self.nonces, &[&aad, plain]);
        let nonce = &nonce[..NONCE_BYTES];
        let payload = Payload {
            msg: plain,
            aad: &aad,
        };
        let cipher_text = self
            .cipher
            .encrypt(XNonce::from_slice(nonce), payload)
            .expect("a value is far below the cipher's limit");
        sealed.extend_from_slice(nonce);
        sealed.extend_from_slice(&cipher_text);
    }

    fn decrypt(&self, place: Place<'_>, sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, cipher_text) = sealed.split_at_checked(NONCE_BYTES)?;
        let payload = Payload {
            msg: cipher_text,
            aad: &self.bound(place),
        };
        self.cipher.decrypt(XNonce::from_slice(nonce), payload).ok()
    }

    fn token(&self, column: &'static str, plain: &[u8]) -> String {
        let mut sealed = Vec::with_capacity(plain.len() + OVERHEAD);
        self.encrypt(Place::task(column), plain, &mut sealed);
        let text = BASE64_URL_SAFE_NO_PAD.encode(sealed);
        format!("{TOKEN}{column}:{text}{TOKEN_END}")
    }

    /// What a token holds; `token` without its beginning and end.
    fn open_token(&self, token: &str) -> Option<Vec<u8>> {
        let (column, text) = token.split_once(':')?;
        let column = TEXTS.iter().find(|known| **known == column)?;
        let sealed = BASE64_URL_SAFE_NO_PAD.decode(text).ok()?;
        self.decrypt(Place::task(column), &sealed)
    }
}

/// Columns of texts: a token says which it was made for, because SQL puts some of them together.
const TEXTS: [&str; 7] = [
    "tasks.error",
    "tasks.status_message",
    "tasks.last_error",
    "tasks.stop_detail",
    "tasks.baggage",
    "attempts.reason",
    "steps.undo_error",
];

impl RowKey {
    /// Why nothing of it can be opened or sealed here.
    pub(crate) fn missing(&self) -> Option<Error> {
        match self {
            Self::Missing { id, key } => Some(Error::KeyMissing {
                id: *id,
                key: key.clone(),
            }),
            Self::Clear | Self::Here(_) => None,
        }
    }

    /// The bytes to store. In a task without a key they stay as they are.
    pub(crate) fn seal<'v>(
        &self,
        place: Place<'_>,
        plain: &'v [u8],
    ) -> Result<Cow<'v, [u8]>, Error> {
        match self {
            Self::Clear => Ok(Cow::Borrowed(plain)),
            Self::Here(key) => {
                let mut sealed = Vec::with_capacity(plain.len() + OVERHEAD);
                sealed.extend_from_slice(&MAGIC);
                key.encrypt(place, plain, &mut sealed);
                Ok(Cow::Owned(sealed))
            }
            Self::Missing { .. } => Err(self.missing().expect("it is missing")),
        }
    }

    /// The same of a value that may be absent.
    pub(crate) fn seal_some<'v>(
        &self,
        place: Place<'_>,
        plain: Option<&'v [u8]>,
    ) -> Result<Option<Cow<'v, [u8]>>, Error> {
        plain.map(|plain| self.seal(place, plain)).transpose()
    }

    /// The value of stored bytes.
    pub(crate) fn open(&self, place: Place<'_>, stored: &[u8]) -> Result<Bytes, Error> {
        let Some(sealed) = stored.strip_prefix(&MAGIC) else {
            return Ok(Bytes::copy_from_slice(stored));
        };
        match self {
            Self::Here(key) => match key.decrypt(place, sealed) {
                Some(plain) => Ok(plain.into()),
                None => Err(damaged(key.id, place.column)),
            },
            Self::Missing { .. } => Err(self.missing().expect("it is missing")),
            // Sealed in a row that has no key: nobody can say by whom.
            Self::Clear => Err(damaged("unknown", place.column)),
        }
    }

    /// The same of a value that may be absent.
    pub(crate) fn open_some(
        &self,
        place: Place<'_>,
        stored: Option<&[u8]>,
    ) -> Result<Option<Bytes>, Error> {
        stored.map(|stored| self.open(place, stored)).transpose()
    }

    /// A text to store.
    pub(crate) fn seal_text<'v>(&self, column: &'static str, plain: &'v str) -> Cow<'v, str> {
        match self {
            Self::Here(key) => Cow::Owned(key.token(column, plain.as_bytes())),
            Self::Clear | Self::Missing { .. } => Cow::Borrowed(plain),
        }
    }

    /// A stored text as people read it: what cannot be opened here is left out by a word, because no
    /// text is worth that nothing else of its task is shown.
    pub(crate) fn open_text(&self, stored: String) -> String {
        match self {
            Self::Clear => stored,
            Self::Here(_) | Self::Missing { .. } if !stored.contains(TOKEN) => stored,
            Self::Here(key) => replace(&stored, |token| {
                let plain = key.open_token(token);
                plain.map(|plain| String::from_utf8_lossy(&plain).into_owned())
            }),
            Self::Missing { .. } => replace(&stored, |_| None),
        }
    }

    /// A trace context to store: the ids in it are no content and SQL adds to them, but whoever called
    /// may have put anything into the baggage.
    pub(crate) fn seal_trace<'v>(&self, plain: &'v [u8]) -> Cow<'v, [u8]> {
        let Self::Here(key) = self else {
            return Cow::Borrowed(plain);
        };
        match serde_json::from_slice::<Map<String, Value>>(plain) {
            Ok(mut context) => {
                if let Some(Value::String(baggage)) = context.get_mut("baggage") {
                    *baggage = key.token("tasks.baggage", baggage.as_bytes());
                }
                Cow::Owned(Value::Object(context).to_string().into_bytes())
            }
            // Not made here: of no use to anybody, and nobody knows what it says.
            Err(_) => Cow::Borrowed(b"{}"),
        }
    }

    /// A stored trace context.
    pub(crate) fn open_trace(&self, stored: Option<Bytes>) -> Option<Bytes> {
        let context = std::str::from_utf8(stored.as_deref()?).ok();
        if !context.is_some_and(has_token) {
            return stored;
        }
        let mut context = serde_json::from_slice::<Map<String, Value>>(stored.as_deref()?).ok()?;
        if let Some(Value::String(baggage)) = context.get_mut("baggage") {
            *baggage = self.open_text(std::mem::take(baggage));
        }
        Some(Value::Object(context).to_string().into_bytes().into())
    }

    /// An error object to store: what it is about stays readable where it is a word of ours, so that
    /// operators see why tasks fail; all of it is in the token, byte for byte.
    pub(crate) fn seal_error<'v>(&self, plain: &'v [u8]) -> Result<Cow<'v, [u8]>, Error> {
        let key = match self {
            Self::Clear => return Ok(Cow::Borrowed(plain)),
            Self::Missing { .. } => return Err(self.missing().expect("it is missing")),
            Self::Here(key) => key,
        };
        let token = key.token("tasks.error", plain);
        let error: Value = serde_json::from_slice(plain).unwrap_or_default();
        let code = error["code"].as_i64();
        let reason = error["data"]["reason"].as_str();
        let reason = reason.filter(|reason| protocol::code::reason::ALL.contains(reason));
        let told = serde_json::json!({ "code": code, "data": { "reason": reason } }).to_string();
        Ok(Cow::Owned(
            format!("{ERROR}{token}\",{}", &told[1..]).into_bytes(),
        ))
    }

    /// A stored error object, as it was written.
    pub(crate) fn open_error(&self, stored: &[u8]) -> Result<Bytes, Error> {
        let as_it_is = || Ok(Bytes::copy_from_slice(stored));
        if matches!(self, Self::Clear) {
            return as_it_is();
        }
        let Some(text) = std::str::from_utf8(stored)
            .ok()
            .filter(|t| t.contains(TOKEN))
        else {
            return as_it_is();
        };
        if let Some(missing) = self.missing() {
            return Err(missing);
        }
        let Self::Here(key) = self else {
            return as_it_is();
        };
        let damaged = || damaged(key.id, "tasks.error");
        if let Some(rest) = text.strip_prefix(ERROR) {
            let token = rest.strip_prefix(TOKEN);
            let token = token.and_then(|rest| rest.split(TOKEN_END).next());
            let plain = token.and_then(|token| key.open_token(token));
            return plain.map(Bytes::from).ok_or_else(damaged);
        }
        // Made by SQL, of a text that is sealed.
        let mut whole = true;
        let opened = replace(text, |token| {
            let plain = key.open_token(token);
            whole &= plain.is_some();
            let json = serde_json::to_string(&String::from_utf8_lossy(&plain?)).ok()?;
            Some(json[1..json.len() - 1].to_owned())
        });
        if whole {
            Ok(opened.into_bytes().into())
        } else {
            Err(damaged())
        }
    }

    /// What is stored of a digest, so that it confirms no guess of what it is a digest of.
    pub(crate) fn digest(&self, digest: &[u8]) -> Result<Vec<u8>, Error> {
        match self {
            Self::Clear => Ok(digest.to_vec()),
            Self::Here(key) => Ok(mac(&*key.digests, &[digest]).to_vec()),
            Self::Missing { .. } => Err(self.missing().expect("it is missing")),
        }
    }
}

/// Whether stored bytes are sealed.
pub(crate) fn is_sealed(stored: &[u8]) -> bool {
    stored.starts_with(&MAGIC)
}

/// Whether something in a stored text is sealed.
pub(crate) fn has_token(stored: &str) -> bool {
    stored.contains(TOKEN)
}

fn damaged(id: impl ToString, column: &'static str) -> Error {
    let (table, column) = column.split_once('.').unwrap_or(("tasks", column));
    Error::Corrupt {
        table,
        column,
        id: id.to_string(),
    }
}

/// The text with each token replaced by what `open` says of it.
fn replace(text: &str, mut open: impl FnMut(&str) -> Option<String>) -> String {
    let mut opened = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(TOKEN) {
        opened.push_str(before);
        // One that was cut off ends with the text.
        let (token, after) = after.split_once(TOKEN_END).unwrap_or((after, ""));
        opened.push_str(&open(token).unwrap_or_else(|| UNREADABLE.to_owned()));
        rest = after;
    }
    opened.push_str(rest);
    opened
}

#[cfg(test)]
mod tests;
