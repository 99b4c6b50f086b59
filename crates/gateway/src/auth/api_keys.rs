//! API keys for machines: a file with their hashes, read again when it changes.
//!
//! The hash is plain SHA-256. A slow one protects words that people choose; a key has 256 random
//! bits, which nobody guesses however fast the hash is, and a slow hash at the door would be a gift
//! to whoever sends many wrong keys.

mod format;

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use subtle::ConstantTimeEq as _;
use tokio_util::sync::CancellationToken;

use super::cache::{self, Hash};
use super::{Proven, Refused, clock, invalid};
use format::{Key, read, told};

/// What every key begins with, so that scanners for secrets know one when they see it.
pub const PREFIX: &str = "mtk_";
/// The file is looked at so often.
const REFRESH: Duration = Duration::from_secs(2);

/// The keys of the file, as it was last good.
pub(super) struct ApiKeys {
    file: PathBuf,
    keys: RwLock<Arc<Vec<Key>>>,
    /// Of what the file held at first.
    loaded: Hash,
}

/// What was seen of the file.
struct Seen {
    /// What it held when its keys were last read.
    read: Hash,
    /// What it held at the last look, if that is something else.
    changed: Option<Hash>,
    /// It could not be read at the last look.
    away: bool,
}

impl ApiKeys {
    /// # Errors
    /// Everything that is wrong with the file.
    pub(super) fn load(file: &Path) -> Result<Self, Vec<String>> {
        let text = std::fs::read_to_string(file).map_err(|error| vec![told(file, &error)])?;
        Ok(Self {
            file: file.to_owned(),
            keys: RwLock::new(Arc::new(read(file, &text)?)),
            loaded: cache::hash(&text),
        })
    }

    pub(super) fn len(&self) -> usize {
        self.current().len()
    }

    /// Who has the key. All keys are compared, each in constant time.
    pub(super) fn find(&self, hash: &Hash) -> Result<Proven, Refused> {
        let keys = self.current();
        let mut found = None;
        for key in keys.iter() {
            if bool::from(key.hash.ct_eq(hash)) {
                found = Some(key);
            }
        }
        let key = found.ok_or_else(|| invalid("the API key is not known"))?;
        if key.expires.is_some_and(|expires| expires <= clock::now()) {
            return Err(invalid("the API key has expired"));
        }
        Ok(Proven {
            principal: key.principal.clone(),
            scopes: Some(key.scopes.clone()),
            until: key.expires,
        })
    }

    fn current(&self) -> Arc<Vec<Key>> {
        Arc::clone(&self.keys.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Looks at the file until `end`.
    pub(super) async fn keep(&self, end: &CancellationToken) {
        let mut seen = Seen {
            read: self.loaded,
            changed: None,
            away: false,
        };
        loop {
            tokio::select! {
                () = tokio::time::sleep(REFRESH) => {}
                () = end.cancelled() => return,
            }
            self.look(&mut seen).await;
        }
    }

    /// Reads the keys again when the file holds something else, and did so at the last look already:
    /// many write in place, and a half of a file can be a good file with fewer keys. One that is
    /// broken changes nothing, and is told of once.
    async fn look(&self, seen: &mut Seen) {
        let text = match tokio::fs::read_to_string(&self.file).await {
            Ok(text) => text,
            Err(error) => {
                if !seen.away {
                    let error = told(&self.file, &error);
                    tracing::warn!(error, "API keys cannot be read; known ones stay");
                }
                seen.away = true;
                seen.changed = None;
                return;
            }
        };
        seen.away = false;
        let holds = cache::hash(&text);
        if holds == seen.read {
            seen.changed = None;
            return;
        }
        if seen.changed.replace(holds) != Some(holds) {
            return;
        }
        match read(&self.file, &text) {
            Ok(keys) => {
                tracing::info!(keys = keys.len(), "API keys read");
                self.replace(keys);
            }
            Err(problems) => {
                let error = problems.join("; ");
                tracing::warn!(error, "API keys are broken; known ones stay");
            }
        }
        seen.read = holds;
        seen.changed = None;
    }

    fn replace(&self, keys: Vec<Key>) {
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(hash: Hash) -> String {
        hash.iter().map(|byte| format!("{byte:02X}")).collect()
    }

    /// Keys in a file of their own, which holds these now.
    struct Filed {
        file: tempfile::NamedTempFile,
        keys: ApiKeys,
        seen: Seen,
    }

    impl Filed {
        fn new(text: &str) -> Self {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(&file, text).unwrap();
            let keys = ApiKeys::load(file.path()).unwrap();
            let seen = Seen {
                read: keys.loaded,
                changed: None,
                away: false,
            };
            Self { file, keys, seen }
        }

        /// Which keys are known after a look at this content.
        async fn known(&mut self, text: impl AsRef<[u8]>) -> Vec<&'static str> {
            std::fs::write(&self.file, text).unwrap();
            self.keys.look(&mut self.seen).await;
            let names = ["mtk_one", "mtk_two", "mtk_three"].into_iter();
            let is_known = |name: &&str| self.keys.find(&cache::hash(name)).is_ok();
            names.filter(is_known).collect()
        }
    }

    fn file(keys: &[&str]) -> String {
        let entry = |key: &&str| {
            let hash = hex(cache::hash(key));
            format!("[[key]]\nsha256 = \"{hash}\"\nsubject = \"{key}\"\n")
        };
        keys.iter().map(entry).collect()
    }

    #[tokio::test]
    async fn a_file_that_is_being_written_takes_no_key_away() {
        let (both, one) = (file(&["mtk_one", "mtk_two"]), file(&["mtk_one"]));
        let three = file(&["mtk_three"]);
        let mut filed = Filed::new(&both);
        let before = ["mtk_one", "mtk_two"];
        // Each of these is a good file, too.
        assert_eq!(filed.known("").await, before, "truncated");
        assert_eq!(filed.known(&one).await, before, "half of it");
        assert_eq!(filed.known(&both).await, before, "written");
        assert_eq!(filed.known(&one).await, before, "half of it again");
        assert_eq!(filed.known(&three).await, before, "something else");
        assert_eq!(
            filed.known(&three).await,
            ["mtk_three"],
            "and that it stays"
        );
    }

    #[tokio::test]
    async fn keys_are_revoked_at_the_second_look() {
        let mut filed = Filed::new(&file(&["mtk_one", "mtk_two"]));
        let one = file(&["mtk_one"]);
        assert_eq!(filed.known(&one).await, ["mtk_one", "mtk_two"]);
        assert_eq!(filed.known(&one).await, ["mtk_one"]);
        assert_eq!(filed.known("").await, ["mtk_one"]);
        assert!(filed.known("").await.is_empty(), "an empty file has none");
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_used_changes_nothing() {
        let one = file(&["mtk_one"]);
        let mut filed = Filed::new(&one);
        for broken in [&b"[[key]]\nsha256 = 1"[..], b"[[key", b"\xff\xfe"] {
            for _ in 0..3 {
                assert_eq!(filed.known(broken).await, ["mtk_one"]);
            }
        }
        // What is seen before and after such a look was not seen twice in a row.
        let two = file(&["mtk_two"]);
        assert_eq!(filed.known(&two).await, ["mtk_one"]);
        assert_eq!(filed.known(b"\xff").await, ["mtk_one"]);
        assert_eq!(filed.known(&two).await, ["mtk_one"]);
        let path = filed.file.path().to_owned();
        std::fs::remove_file(&path).unwrap();
        filed.keys.look(&mut filed.seen).await;
        assert_eq!(filed.known(&two).await, ["mtk_one"]);
        assert_eq!(filed.known(&two).await, ["mtk_two"]);
    }

    #[test]
    fn keys_are_found_by_their_hash() {
        let (one, two) = (cache::hash("mtk_one"), cache::hash("mtk_two"));
        let text = format!(
            "[[key]]\nsha256 = \"{}\"\nsubject = \"one\"\nscopes = [\"a\"]\nexpires = 2999-01-01\n\
             [[key]]\nsha256 = \"{}\"\nsubject = \"two\"\nexpires = 2020-01-01T00:00:00Z\n",
            hex(one),
            hex(two)
        );
        let keys = ApiKeys {
            file: PathBuf::new(),
            keys: RwLock::new(Arc::new(read(Path::new("keys.toml"), &text).unwrap())),
            loaded: cache::hash(&text),
        };
        assert_eq!(keys.find(&one).unwrap().principal.subject, "one");
        assert!(keys.find(&two).is_err(), "expired");
        assert!(keys.find(&cache::hash("mtk_three")).is_err());
    }
}
