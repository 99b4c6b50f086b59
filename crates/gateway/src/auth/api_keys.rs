//! API keys for machines: a file with their hashes, read again when it changes.
//!
//! The hash is plain SHA-256. A slow one protects words that people choose; a key has 256 random
//! bits, which nobody guesses however fast the hash is, and a slow hash at the door would be a gift
//! to whoever sends many wrong keys.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use serde::Deserialize;
use store::Principal;
use subtle::ConstantTimeEq as _;
use tokio_util::sync::CancellationToken;
use toml::Spanned;

use super::cache::Hash;
use super::claims::is_name;
use super::scopes::is_scope;
use super::{Proven, Refused, clock, invalid};

/// What every key begins with, so that scanners for secrets know one when they see it.
pub const PREFIX: &str = "mtk_";
/// Issuer of the principals that keys make, where the file does not say.
const ISSUER: &str = "api-keys";
/// The file is looked at so often.
const REFRESH: Duration = Duration::from_secs(2);
const FILE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The keys of the file, as it was last good.
pub(super) struct ApiKeys {
    file: PathBuf,
    keys: RwLock<Arc<Vec<Key>>>,
}

/// One key.
#[derive(Debug)]
struct Key {
    hash: Hash,
    principal: Principal,
    scopes: Vec<String>,
    /// Seconds since 1970.
    expires: Option<i64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    key: Vec<Spanned<Entry>>,
}

/// `[[key]]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    sha256: String,
    subject: String,
    #[serde(default = "issuer")]
    issuer: String,
    tenant: Option<String>,
    #[serde(default)]
    scopes: Vec<String>,
    expires: Option<toml::value::Datetime>,
}

fn issuer() -> String {
    ISSUER.to_owned()
}

impl ApiKeys {
    /// # Errors
    /// Everything that is wrong with the file.
    pub(super) fn load(file: &Path) -> Result<Self, Vec<String>> {
        let text = std::fs::read_to_string(file).map_err(|error| vec![told(file, &error)])?;
        Ok(Self {
            file: file.to_owned(),
            keys: RwLock::new(Arc::new(read(file, &text)?)),
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

    /// Reads the file again when its content has changed. One that is broken changes nothing, and is
    /// told of once.
    pub(super) async fn keep(&self, end: &CancellationToken) {
        let mut seen = tokio::fs::read_to_string(&self.file).await.ok();
        // It may have changed between the first reading and this.
        if let Some(keys) = seen.as_deref().and_then(|text| read(&self.file, text).ok()) {
            self.replace(keys);
        }
        let mut away = false;
        loop {
            tokio::select! {
                () = tokio::time::sleep(REFRESH) => {}
                () = end.cancelled() => return,
            }
            let text = match tokio::fs::read_to_string(&self.file).await {
                Ok(text) => text,
                Err(error) => {
                    if !away {
                        let error = told(&self.file, &error);
                        tracing::warn!(error, "API keys cannot be read; known ones stay");
                    }
                    away = true;
                    continue;
                }
            };
            away = false;
            if seen.as_deref() == Some(&text) {
                continue;
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
            seen = Some(text);
        }
    }

    fn replace(&self, keys: Vec<Key>) {
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
    }
}

fn told(file: &Path, error: &dyn std::fmt::Display) -> String {
    format!("auth.api_keys_file: {}: {error}", file.display())
}

fn read(file: &Path, text: &str) -> Result<Vec<Key>, Vec<String>> {
    if text.len() > FILE_BYTES_MAX {
        let problem = format!("is larger than {FILE_BYTES_MAX} bytes");
        return Err(vec![told(file, &problem)]);
    }
    let line = |at: usize| {
        1 + text
            .get(..at)
            .map_or(0, |before| before.matches('\n').count())
    };
    let parsed: Result<File, toml::de::Error> = toml::from_str(text);
    let parsed = parsed.map_err(|error| {
        // Without the line itself: somebody may have put a key where its hash belongs.
        let line = line(error.span().map_or(0, |span| span.start));
        vec![told(file, &format!("line {line}: {}", error.message()))]
    })?;
    let mut problems = Vec::new();
    let mut keys: Vec<Key> = Vec::new();
    for (place, entry) in parsed.key.into_iter().enumerate() {
        let at = format!("line {}: key[{place}]", line(entry.span().start));
        match entry.into_inner().read() {
            Ok(key) if keys.iter().any(|other| other.hash == key.hash) => {
                problems.push(told(file, &format!("{at}.sha256: occurs twice")));
            }
            Ok(key) => keys.push(key),
            Err(problem) => problems.push(told(file, &format!("{at}.{problem}"))),
        }
    }
    if problems.is_empty() {
        Ok(keys)
    } else {
        Err(problems)
    }
}

impl Entry {
    fn read(self) -> Result<Key, String> {
        let hash = hash(&self.sha256)
            .ok_or("sha256: must be the SHA-256 of a key, 64 hexadecimal digits")?;
        for (field, name) in [
            ("subject", Some(&self.subject)),
            ("issuer", Some(&self.issuer)),
            ("tenant", self.tenant.as_ref()),
        ] {
            if name.is_some_and(|name| !is_name(name)) {
                return Err(format!("{field}: must be a name of up to 512 bytes"));
            }
        }
        if let Some(scope) = self.scopes.iter().find(|scope| !is_scope(scope)) {
            return Err(format!("scopes: {scope:?} is no scope"));
        }
        let expires = match self.expires {
            Some(date) => Some(
                moment(&date).ok_or("expires: must be a moment such as 2027-01-31T00:00:00Z")?,
            ),
            None => None,
        };
        Ok(Key {
            hash,
            principal: Principal::verified(self.issuer, self.subject, self.tenant),
            scopes: self.scopes,
            expires,
        })
    }
}

fn hash(hex: &str) -> Option<Hash> {
    if hex.len() != 64 || !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut hash = [0; 32];
    for (byte, pair) in hash.iter_mut().zip(hex.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(hash)
}

/// Seconds since 1970; a date without a time is its beginning in UTC.
fn moment(date: &toml::value::Datetime) -> Option<i64> {
    use toml::value::Offset;
    let day = date.date?;
    let days = days_from_civil(
        i64::from(day.year),
        i64::from(day.month),
        i64::from(day.day),
    );
    let of_day = match (&date.time, &date.offset) {
        (None, None) => 0,
        (Some(time), Some(offset)) => {
            let minutes = match offset {
                Offset::Z => 0,
                Offset::Custom { minutes } => i64::from(*minutes),
            };
            let second = i64::from(time.second.unwrap_or_default());
            i64::from(time.hour) * 3600 + (i64::from(time.minute) - minutes) * 60 + second
        }
        // A time of nowhere.
        _ => return None,
    };
    Some(days * 86_400 + of_day)
}

/// Days since 1970-01-01 (Howard Hinnant, "chrono-compatible low-level date algorithms").
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let march_month = (month + 9) % 12;
    let day_of_year = (153 * march_month + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

#[cfg(test)]
mod tests {
    use super::super::cache;
    use super::*;

    fn parse(text: &str) -> Result<Vec<Key>, Vec<String>> {
        read(Path::new("keys.toml"), text)
    }

    fn entry(more: &str) -> String {
        let hash = "0123456789abcdef".repeat(4);
        format!("[[key]]\nsha256 = \"{hash}\"\n{more}\n")
    }

    #[test]
    fn moments_are_read() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2027-01-15T08:00:00Z", 1_800_000_000),
            ("2027-01-15T10:00:00+02:00", 1_800_000_000),
            ("2024-02-29", 1_709_164_800),
        ] {
            let date = text.parse().unwrap();
            assert_eq!(moment(&date), Some(seconds), "{text}");
        }
        assert_eq!(moment(&"2027-01-15T08:00:00".parse().unwrap()), None);
        assert_eq!(moment(&"08:00:00".parse().unwrap()), None);
    }

    #[test]
    fn all_problems_of_a_file_are_told() {
        let good = entry("subject = \"ci\"");
        assert_eq!(parse(&good).unwrap()[0].principal.issuer, "api-keys");
        assert!(parse("").unwrap().is_empty());
        for (text, told) in [
            (
                format!("{good}{good}"),
                "line 4: key[1].sha256: occurs twice",
            ),
            (
                "# ours\n\n[[key]]\nsha256 = \"ab\"\nsubject = \"a\"".to_owned(),
                "line 3: key[0].sha256",
            ),
            (entry("subject = \"\""), "key[0].subject"),
            (
                entry("subject = \"a\"\ntenant = \"a\\u0000\""),
                "key[0].tenant",
            ),
            (
                entry("subject = \"a\"\nscopes = [\"a b\"]"),
                "key[0].scopes",
            ),
            (
                entry("subject = \"a\"\nexpires = 08:00:00"),
                "key[0].expires",
            ),
            (entry("subject = \"a\"\nsecret = \"x\""), "secret"),
            (entry(""), "subject"),
            ("key".to_owned(), "auth.api_keys_file: keys.toml"),
        ] {
            let problems = parse(&text).unwrap_err();
            assert!(problems[0].contains(told), "{told}: {problems:?}");
        }
    }

    #[test]
    fn a_key_in_the_place_of_its_hash_is_not_repeated() {
        for text in [
            "[[key]]\nkey = \"mtk_sesame\"\n".to_owned(),
            "[[key]]\nsha256 = \"mtk_sesame\"\nsubject = \"a\"\n".to_owned(),
            "[[key]]\nsha256 = \"mtk_sesame\n".to_owned(),
        ] {
            let problems = parse(&text).unwrap_err();
            assert!(!problems[0].contains("sesame"), "{problems:?}");
        }
    }

    #[test]
    fn keys_are_found_by_their_hash() {
        let (one, two) = (cache::hash("mtk_one"), cache::hash("mtk_two"));
        let hex = |hash: Hash| -> String { hash.iter().map(|b| format!("{b:02X}")).collect() };
        let text = format!(
            "[[key]]\nsha256 = \"{}\"\nsubject = \"one\"\nscopes = [\"a\"]\nexpires = 2999-01-01\n\
             [[key]]\nsha256 = \"{}\"\nsubject = \"two\"\nexpires = 2020-01-01T00:00:00Z\n",
            hex(one),
            hex(two)
        );
        let keys = ApiKeys {
            file: PathBuf::new(),
            keys: RwLock::new(Arc::new(parse(&text).unwrap())),
        };
        assert_eq!(keys.find(&one).unwrap().principal.subject, "one");
        assert!(keys.find(&two).is_err(), "expired");
        assert!(keys.find(&cache::hash("mtk_three")).is_err());
    }
}
