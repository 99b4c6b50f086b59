//! Cursors of lists: after which item the next page begins. Sealed, so that nobody makes one, and of
//! use in one list, in one revision of the protocol, to one principal, for a day.
//!
//! A page that is the same for every caller is `public`: a cache may hand it, cursor and all, to others.
//! Its cursor is everybody's; that of every other page is its owner's alone.

use protocol::jsonrpc::InvalidParams;
use serde::{Deserialize, Serialize};
use store::Principal;

use crate::sealed::{Keys, owner};

/// How long a cursor is good: whoever turns pages turns them within minutes. Judged by the time of
/// day, because a list asks nothing of Postgres; clocks that differ by seconds make no difference.
const GOOD_FOR_SECONDS: i64 = 24 * 60 * 60;
/// The longest cursor: a URI of 8 KiB within, escaped and encoded.
const TEXT_BYTES_MAX: usize = 80 * 1024;

/// What a cursor is good for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Use<'a> {
    /// The method, as `tools/list`.
    pub(crate) list: &'static str,
    /// The revision that is spoken.
    pub(crate) version: &'static str,
    /// Whose it is; `None` = everybody's.
    pub(crate) principal: Option<&'a Principal>,
}

#[derive(Serialize, Deserialize)]
struct Cursor {
    /// The last item of the page before.
    #[serde(rename = "a")]
    after: String,
    /// When it is over, seconds since 1970.
    #[serde(rename = "e")]
    until: i64,
}

impl Use<'_> {
    /// Authenticated with the cursor: nothing sealed for another use opens here.
    fn purpose(&self) -> Vec<u8> {
        let principal = self.principal.map(owner);
        let all = ("mcp-tasks/cursor/2", self.list, self.version, principal);
        serde_json::to_vec(&all).expect("strings always print")
    }

    /// The cursor of the page after this item, made `now` (seconds since 1970); `None` when no key is
    /// configured.
    pub(crate) fn seal(&self, keys: &Keys, after: &str, now: i64) -> Option<String> {
        let cursor = Cursor {
            after: after.to_owned(),
            until: now.saturating_add(GOOD_FOR_SECONDS),
        };
        let plain = serde_json::to_vec(&cursor).expect("strings always print");
        keys.encrypt(&self.purpose(), &plain)
    }

    /// After which item the page begins that a cursor asks for.
    ///
    /// # Errors
    /// If it was not made by us for this use, or its time is over.
    pub(crate) fn open(&self, keys: &Keys, text: &str, now: i64) -> Result<String, InvalidParams> {
        let plain = keys.decrypt(&self.purpose(), text, TEXT_BYTES_MAX);
        let cursor: Option<Cursor> = plain.and_then(|plain| serde_json::from_slice(&plain).ok());
        cursor
            .filter(|cursor| now < cursor.until)
            .map(|cursor| cursor.after)
            .ok_or_else(refused)
    }
}

/// One answer for all reasons: nothing is to be learnt from it.
pub(crate) fn refused() -> InvalidParams {
    InvalidParams::new("`cursor` is not one of ours, or is over: begin again without it")
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_790_000_000;

    fn keys(bytes: &[u8]) -> Keys {
        let texts: Vec<String> = bytes
            .iter()
            .map(|byte| format!("{byte:02x}").repeat(32))
            .collect();
        Keys::new(&texts).unwrap()
    }

    fn principal(issuer: &str, subject: &str) -> Principal {
        Principal::verified(issuer.to_owned(), subject.to_owned(), None)
    }

    #[test]
    fn a_cursor_opens_for_its_own_use_only() {
        let keys = keys(&[1]);
        let (alice, bob) = (principal("i", "alice"), principal("i", "bob"));
        let elsewhere = principal("j", "alice");
        // Joined they read alike.
        let shifted = principal("i\",\"a", "lice");
        let own = Use {
            list: "tools/list",
            version: "2026-07-28",
            principal: Some(&alice),
        };
        let text = own.seal(&keys, "last", NOW).unwrap();
        assert_eq!(own.open(&keys, &text, NOW).unwrap(), "last");
        let mut others = Vec::new();
        for principal in [Some(&bob), Some(&elsewhere), Some(&shifted), None] {
            others.push(Use { principal, ..own });
        }
        for list in ["tasks/list", "prompts/list", "resources/list"] {
            others.push(Use { list, ..own });
        }
        for version in ["2025-11-25", "2025-06-18"] {
            others.push(Use { version, ..own });
        }
        for other in others {
            assert!(other.open(&keys, &text, NOW).is_err(), "{other:?}");
            let theirs = other.seal(&keys, "last", NOW).unwrap();
            assert!(own.open(&keys, &theirs, NOW).is_err(), "{other:?}");
        }
    }

    #[test]
    fn a_cursor_ends() {
        let (keys, own) = (keys(&[1]), of_everybody());
        let text = own.seal(&keys, "last", NOW).unwrap();
        let end = NOW + GOOD_FOR_SECONDS;
        assert!(own.open(&keys, &text, end - 1).is_ok());
        assert!(own.open(&keys, &text, end).is_err());
        assert!(own.open(&keys, &text, i64::MAX).is_err());
    }

    #[test]
    fn every_damage_is_noticed_and_keys_rotate() {
        let (old, own) = (keys(&[1]), of_everybody());
        let text = own.seal(&old, "last", NOW).unwrap();
        for at in 0..text.len() {
            let mut damaged = text.clone().into_bytes();
            damaged[at] = if damaged[at] == b'A' { b'B' } else { b'A' };
            let damaged = String::from_utf8(damaged).unwrap();
            assert!(own.open(&old, &damaged, NOW).is_err(), "at {at}");
            assert!(own.open(&old, &text[..at], NOW).is_err(), "up to {at}");
        }
        for junk in ["", "A", "=", "☃", "bGFzdA", &"A".repeat(100_000)] {
            assert!(own.open(&old, junk, NOW).is_err());
        }
        assert!(own.open(&keys(&[2, 1]), &text, NOW).is_ok());
        assert!(own.open(&keys(&[2]), &text, NOW).is_err());
        assert!(own.open(&keys(&[]), &text, NOW).is_err());
        assert!(own.seal(&keys(&[]), "last", NOW).is_none());
    }

    #[test]
    fn the_longest_names_come_back() {
        let (keys, own) = (keys(&[1]), of_everybody());
        for name in ["\u{1}".repeat(8 * 1024), "☃".repeat(2730), String::new()] {
            let text = own.seal(&keys, &name, NOW).unwrap();
            assert_eq!(own.open(&keys, &text, NOW).unwrap(), name);
        }
    }

    fn of_everybody() -> Use<'static> {
        Use {
            list: "tools/list",
            version: "2026-07-28",
            principal: None,
        }
    }
}
