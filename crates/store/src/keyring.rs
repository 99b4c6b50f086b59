//! Keys of the settings: they wrap the keys of tasks. The first wraps, all unwrap.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use chacha20poly1305::aead::{Aead as _, KeyInit as _, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use protocol::{TaskId, secret};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio_postgres::Row;
use zeroize::Zeroizing;

use crate::row;
use crate::seal::{RowKey, TaskKey};

/// Names the use and the format: nothing that is sealed elsewhere with the same key opens here.
const PURPOSE: &[u8] = b"mcp-tasks/data key/1";
const NONCE_BYTES: usize = 24;
/// How often the files are looked at, while keys are used.
const REREAD: Duration = Duration::from_secs(10);
/// As a label of metrics, and in a column.
const ID_BYTES_MAX: usize = 64;

/// `[encryption]`: what tasks are about is sealed in Postgres. The same for gateways, workers and cron.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Encryption {
    /// Keys that wrap the key of each task. The first wraps, all unwrap: to rotate, add a new one at the
    /// end everywhere, then put it in front, and drop the old one when no row needs it any more
    /// (docs/encryption.md). Without any, nothing is sealed.
    pub keys: Vec<EncryptionKey>,
    /// Whether new tasks are sealed. `false`: keys only open what is sealed already, which is how
    /// encryption is switched on (keys first, everywhere) and off.
    pub seal: bool,
}

impl Default for Encryption {
    fn default() -> Self {
        Self {
            keys: Vec::new(),
            seal: true,
        }
    }
}

/// A key that wraps the keys of tasks: `key` or `key_file`.
#[derive(Clone, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EncryptionKey {
    /// Its name, which stands in each row: letters, digits, `-`, `_`, `.`; never used again for another
    /// key.
    pub id: String,
    /// 32 random bytes in hex or base64.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub key: String,
    /// File with the key, for secrets that are mounted; read again while the process runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_file: Option<PathBuf>,
}

/// Without the key.
impl std::fmt::Debug for EncryptionKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EncryptionKey")
            .field("id", &self.id)
            .field("key_file", &self.key_file)
            .finish_non_exhaustive()
    }
}

impl EncryptionKey {
    fn read(&self) -> Result<Zeroizing<[u8; 32]>, (&'static str, String)> {
        match (&self.key_file, self.key.is_empty()) {
            (None, true) => Err(("key", "there is neither key nor key_file".to_owned())),
            (Some(_), false) => Err(("key", "there is a key_file as well: only one".to_owned())),
            (None, false) => secret::read_key(&self.key)
                .map(Zeroizing::new)
                .map_err(|problem| ("key", problem)),
            (Some(file), true) => read_file(file).map_err(|problem| ("key_file", problem)),
        }
    }
}

fn read_file(file: &Path) -> Result<Zeroizing<[u8; 32]>, String> {
    let shown = file.display();
    let text = std::fs::read_to_string(file).map_err(|error| format!("{shown}: {error}"))?;
    let text = Zeroizing::new(text);
    let key = secret::read_key(&text).map_err(|problem| format!("{shown}: {problem}"))?;
    Ok(Zeroizing::new(key))
}

impl Encryption {
    /// Everything wrong with these settings, each naming its field; empty when they work.
    #[must_use]
    pub fn validate(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut ids = BTreeSet::new();
        for (place, key) in self.keys.iter().enumerate() {
            let odd = |c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
            if key.id.is_empty() || key.id.len() > ID_BYTES_MAX || key.id.contains(odd) {
                problems.push(format!(
                    "encryption.keys[{place}].id: {:?} must be 1 to {ID_BYTES_MAX} letters, digits, '-', '_' or '.'",
                    key.id
                ));
            } else if !ids.insert(&key.id) {
                problems.push(format!(
                    "encryption.keys[{place}].id: {:?} names another key already",
                    key.id
                ));
            }
            if let Err((field, problem)) = key.read() {
                problems.push(format!("encryption.keys[{place}].{field}: {problem}"));
            }
        }
        problems
    }
}

struct Key {
    id: String,
    cipher: XChaCha20Poly1305,
}

struct Read {
    keys: Arc<Vec<Key>>,
    at: Instant,
}

struct Inner {
    settings: Encryption,
    rereads: bool,
    read: Mutex<Read>,
    /// Keys that rows needed and that are not here, told of once each.
    told: Mutex<BTreeSet<String>>,
}

/// The keys at hand. Clones share them.
#[derive(Clone)]
pub(crate) struct Keyring(Option<Arc<Inner>>);

/// A task's key as its row keeps it.
#[derive(Clone, Debug)]
pub(crate) struct Wrapped {
    /// Name of the key that wraps it.
    pub(crate) by: String,
    pub(crate) bytes: Vec<u8>,
}

impl Keyring {
    pub(crate) fn empty() -> Self {
        Self(None)
    }

    /// The keys of these settings; those that cannot be read now may be later.
    pub(crate) fn new(settings: &Encryption) -> Self {
        if settings.keys.is_empty() {
            return Self::empty();
        }
        let read = Read {
            keys: Arc::new(read(settings, &[])),
            at: Instant::now(),
        };
        Self(Some(Arc::new(Inner {
            rereads: settings.keys.iter().any(|key| key.key_file.is_some()),
            settings: settings.clone(),
            read: Mutex::new(read),
            told: Mutex::default(),
        })))
    }

    /// A key for a new task, if new tasks are sealed.
    pub(crate) fn make(&self, id: TaskId) -> Result<Option<(RowKey, Wrapped)>, crate::Error> {
        let Some(inner) = self.0.as_ref().filter(|inner| inner.settings.seal) else {
            return Ok(None);
        };
        let first = &inner.settings.keys[0].id;
        let keys = inner.keys();
        let Some(key) = keys.iter().find(|key| key.id == *first) else {
            return Err(crate::Error::KeyMissing {
                id,
                key: first.clone(),
            });
        };
        let mut fresh = Zeroizing::new([0; 32]);
        random(&mut *fresh);
        let wrapped = Wrapped {
            by: key.id.clone(),
            bytes: key.wrap(id, &fresh),
        };
        let fresh = TaskKey::new(id, &fresh);
        Ok(Some((RowKey::Here(Box::new(fresh)), wrapped)))
    }

    /// The key of a task by its row, which has `data_key` and `sealed_by`.
    pub(crate) fn of(&self, id: TaskId, row: &Row) -> RowKey {
        self.unwrap(id, row::sealed(row).as_deref())
    }

    /// The key of a task as its row keeps it.
    pub(crate) fn unwrap(&self, id: TaskId, sealed: Option<&Wrapped>) -> RowKey {
        match sealed {
            None => RowKey::Clear,
            Some(wrapped) => self.unwrapped(id, &wrapped.by, &wrapped.bytes),
        }
    }

    fn unwrapped(&self, id: TaskId, by: &str, bytes: &[u8]) -> RowKey {
        let keys = self.0.as_ref().map(|inner| inner.keys());
        let key = keys
            .as_ref()
            .and_then(|keys| keys.iter().find(|key| key.id == by));
        match key.and_then(|key| key.unwrap(id, bytes)) {
            Some(key) => RowKey::Here(Box::new(TaskKey::new(id, &key))),
            None => RowKey::Missing {
                id,
                key: by.to_owned(),
            },
        }
    }

    /// The name of the key that wraps, and of the others.
    pub(crate) fn names(&self) -> Option<(String, Vec<String>)> {
        let inner = self.0.as_ref()?;
        let mut names = inner.settings.keys.iter().map(|key| key.id.clone());
        let first = names.next()?;
        Some((first, names.collect()))
    }

    /// The same key of a task, wrapped by the first key; `None` if it cannot be opened here.
    pub(crate) fn rewrap(&self, id: TaskId, by: &str, bytes: &[u8]) -> Option<Vec<u8>> {
        let keys = self.0.as_ref()?.keys();
        let first = &self.0.as_ref()?.settings.keys[0].id;
        let to = keys.iter().find(|key| key.id == *first)?;
        let from = keys.iter().find(|key| key.id == by)?;
        Some(to.wrap(id, &*from.unwrap(id, bytes)?))
    }

    /// Whether this is the first time that the key is missed here.
    pub(crate) fn is_news(&self, key: &str) -> bool {
        let Some(inner) = &self.0 else {
            return true;
        };
        lock(&inner.told).insert(key.to_owned())
    }
}

impl Inner {
    fn keys(&self) -> Arc<Vec<Key>> {
        let mut now = lock(&self.read);
        if self.rereads && now.at.elapsed() > REREAD {
            *now = Read {
                keys: Arc::new(read(&self.settings, &now.keys)),
                at: Instant::now(),
            };
        }
        Arc::clone(&now.keys)
    }
}

/// All keys that can be read; in place of others, what was read before.
fn read(settings: &Encryption, before: &[Key]) -> Vec<Key> {
    let keys = settings.keys.iter().filter_map(|key| match key.read() {
        Ok(bytes) => Some(Key {
            id: key.id.clone(),
            cipher: XChaCha20Poly1305::new((&*bytes).into()),
        }),
        Err((field, problem)) => {
            tracing::warn!(
                key = key.id,
                field,
                problem,
                "an encryption key cannot be read"
            );
            let before = before.iter().find(|before| before.id == key.id)?;
            Some(Key {
                id: before.id.clone(),
                cipher: before.cipher.clone(),
            })
        }
    });
    keys.collect()
}

impl Key {
    fn wrap(&self, id: TaskId, key: &[u8; 32]) -> Vec<u8> {
        let mut wrapped = vec![0; NONCE_BYTES];
        random(&mut wrapped);
        let payload = Payload {
            msg: key,
            aad: &self.bound(id),
        };
        let cipher_text = self
            .cipher
            .encrypt(XNonce::from_slice(&wrapped), payload)
            .expect("a key is far below the cipher's limit");
        wrapped.extend_from_slice(&cipher_text);
        wrapped
    }

    fn unwrap(&self, id: TaskId, wrapped: &[u8]) -> Option<Zeroizing<[u8; 32]>> {
        let (nonce, cipher_text) = wrapped.split_at_checked(NONCE_BYTES)?;
        let payload = Payload {
            msg: cipher_text,
            aad: &self.bound(id),
        };
        let opened = self.cipher.decrypt(XNonce::from_slice(nonce), payload);
        let opened = Zeroizing::new(opened.ok()?);
        Some(Zeroizing::new(opened.as_slice().try_into().ok()?))
    }

    fn bound(&self, id: TaskId) -> Vec<u8> {
        [PURPOSE, id.as_bytes(), self.id.as_bytes()].concat()
    }
}

fn random(bytes: &mut [u8]) {
    getrandom::fill(bytes)
        .expect("the operating system's random source is ready once a process runs");
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
