//! What a file of API keys holds.

use std::collections::HashSet;
use std::path::Path;

use serde::Deserialize;
use store::Principal;
use toml::Spanned;

use super::super::cache::Hash;
use super::super::claims::is_name;
use super::super::scopes::is_scope;

/// Issuer of the principals that keys make, where the file does not say.
const ISSUER: &str = "api-keys";
const FILE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// One key.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) hash: Hash,
    pub(super) principal: Principal,
    pub(super) scopes: Vec<String>,
    /// Seconds since 1970.
    pub(super) expires: Option<i64>,
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

/// A problem of the file, as it is told.
pub(super) fn told(file: &Path, error: &dyn std::fmt::Display) -> String {
    format!("auth.api_keys_file: {}: {error}", file.display())
}

/// The keys of a file that holds this text.
///
/// # Errors
/// Everything that is wrong with it.
pub(super) fn read(file: &Path, text: &str) -> Result<Vec<Key>, Vec<String>> {
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
    let (mut keys, mut known) = (Vec::new(), HashSet::new());
    for (place, entry) in parsed.key.into_iter().enumerate() {
        let start = entry.span().start;
        let read = entry.into_inner().read();
        let twice = || "sha256: occurs twice".to_owned();
        let new = read.and_then(|key| known.insert(key.hash).then_some(key).ok_or_else(twice));
        match new {
            Ok(key) => keys.push(key),
            Err(problem) => {
                let at = format!("line {}: key[{place}]", line(start));
                problems.push(told(file, &format!("{at}.{problem}")));
            }
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
}
