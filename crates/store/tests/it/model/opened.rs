//! What is sealed, opened as docs/encryption.md says and by none of the code under test; and that
//! nothing that was said stands anywhere in clear.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use chacha20poly1305::aead::{Aead as _, KeyInit as _, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use hmac::{Hmac, Mac as _};
use serde_json::Value;
use sha2::Sha256;
use tokio_postgres::SimpleQueryMessage;
use uuid::Uuid;

use super::real::Real;

/// Name of the key that wraps those of tasks.
pub const SEALED_BY: &str = "k1";
/// What sealed bytes begin with, in hex.
const MAGIC: &str = "ff736c01";
const TOKEN: &str = "<sealed:";
/// In everything that the actions say: of callers, of tools, of questions and answers.
const SAID: [&str; 13] = [
    "month",
    "elicitation",
    "charts",
    "accept",
    "decline",
    "perhaps",
    "result of",
    "broke",
    "half",
    "nearly",
    "try again",
    "not yet",
    "\"out\"",
];
/// Columns of bytes that are random: chance may put any word there.
const RANDOM: [&str; 2] = ["data_key", "arguments_digest"];

/// The key of one task.
pub enum RowKey {
    /// It is in clear.
    Clear,
    /// It is sealed.
    Here(Uuid, Box<XChaCha20Poly1305>),
}

pub fn bytes(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks(2);
    let byte = |digits| u8::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap();
    digits.map(byte).collect()
}

fn decrypt(cipher: &XChaCha20Poly1305, bound: &[u8], sealed: &[u8]) -> Vec<u8> {
    let (nonce, sealed) = sealed.split_at(24);
    let payload = Payload {
        msg: sealed,
        aad: bound,
    };
    let opened = cipher.decrypt(XNonce::from_slice(nonce), payload);
    opened.expect("it was sealed for this place")
}

/// A text with its tokens replaced.
fn replaced(text: &str, open: impl Fn(&str, &str) -> String) -> String {
    let mut parts = text.split(TOKEN);
    let mut all = parts.next().unwrap().to_owned();
    for part in parts {
        let (token, rest) = part.split_once('>').unwrap();
        let (column, sealed) = token.split_once(':').unwrap();
        all.push_str(&open(column, sealed));
        all.push_str(rest);
    }
    all
}

impl RowKey {
    /// `data_key` of the row, unwrapped.
    fn unwrapped(master: &[u8; 32], id: Uuid, data_key: &str) -> Self {
        let master = XChaCha20Poly1305::new(master.into());
        let bound = [
            b"mcp-tasks/data key/1",
            id.as_bytes().as_slice(),
            SEALED_BY.as_bytes(),
        ];
        let key = decrypt(&master, &bound.concat(), &bytes(data_key));
        let purpose = b"mcp-tasks/values/1";
        let mut mac = <Hmac<Sha256> as hmac::KeyInit>::new_from_slice(&key).unwrap();
        mac.update(&(purpose.len() as u64).to_be_bytes());
        mac.update(purpose);
        let derived: [u8; 32] = mac.finalize().into_bytes().into();
        Self::Here(id, Box::new(XChaCha20Poly1305::new((&derived).into())))
    }

    fn opened(&self, (column, key): (&str, &str), sealed: &[u8]) -> String {
        let Self::Here(id, cipher) = self else {
            panic!("{column} is sealed in a row that has no key")
        };
        let bound = [id.as_bytes(), column.as_bytes(), b"\0", key.as_bytes()].concat();
        String::from_utf8(decrypt(cipher, &bound, sealed)).unwrap()
    }

    /// A value of bytes, in hex. In a task that has a key it is sealed.
    pub fn open(&self, place: (&str, &str), hex: &str) -> String {
        match (self, hex.strip_prefix(MAGIC)) {
            (Self::Here(..), Some(sealed)) => self.opened(place, &bytes(sealed)),
            (Self::Clear, None) => String::from_utf8(bytes(hex)).unwrap(),
            _ => panic!("{place:?} is {hex}"),
        }
    }

    /// A text: ours, with what is sealed in it.
    pub fn open_text(&self, text: &str) -> String {
        replaced(text, |column, sealed| {
            let sealed = BASE64_URL_SAFE_NO_PAD.decode(sealed).unwrap();
            self.opened((column, ""), &sealed)
        })
    }

    /// An error: sealed as a whole, or made by us of a text that is sealed.
    pub fn open_error(&self, hex: &str) -> String {
        let error = String::from_utf8(bytes(hex)).unwrap();
        let object: Value = serde_json::from_str(&error).unwrap();
        match object["$sealed"].as_str() {
            Some(sealed) => self.open_text(sealed),
            None => self.open_text(&error),
        }
    }
}

impl Real {
    /// The key of a row; the task has one if this database seals.
    pub fn row_key(&self, id: &str, data_key: Option<&str>) -> RowKey {
        assert_eq!(data_key.is_some(), self.master().is_some(), "{id}");
        match (self.master(), data_key) {
            (Some(master), Some(key)) => RowKey::unwrapped(master, id.parse().unwrap(), key),
            _ => RowKey::Clear,
        }
    }

    /// Where something that was said stands in clear; nowhere, if this database seals.
    pub async fn leaks(&self) -> Vec<String> {
        if self.master().is_none() {
            return Vec::new();
        }
        let tables = [
            "tasks",
            "steps",
            "inputs",
            "attempts",
            "tombstones",
            "idempotency_keys",
            "alerts",
            "alert_deliveries",
        ];
        let select = tables.map(|table| format!("SELECT '{table}', to_jsonb(t) FROM {table} t;"));
        let messages = self.client().simple_query(&select.concat()).await.unwrap();
        let mut leaks = Vec::new();
        for message in &messages {
            let SimpleQueryMessage::Row(row) = message else {
                continue;
            };
            let (table, columns) = (row.get(0).unwrap(), row.get(1).unwrap());
            let columns: serde_json::Map<String, Value> = serde_json::from_str(columns).unwrap();
            for (column, value) in &columns {
                let text = in_clear(value);
                let said = SAID.iter().find(|said| text.contains(**said));
                if let Some(said) = said.filter(|_| !RANDOM.contains(&column.as_str())) {
                    leaks.push(format!("{table}.{column} tells {said:?}: {text}"));
                }
            }
        }
        leaks
    }
}

/// What can be read of a value without a key.
fn in_clear(value: &Value) -> String {
    let Some(text) = value.as_str() else {
        return value.to_string();
    };
    let text = match text.strip_prefix("\\x") {
        Some(hex) if hex.starts_with(MAGIC) => return String::new(),
        Some(hex) => String::from_utf8_lossy(&bytes(hex)).into_owned(),
        None => text.to_owned(),
    };
    replaced(&text, |_, _| String::new())
}
