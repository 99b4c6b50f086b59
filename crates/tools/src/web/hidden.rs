//! Secrets that we have shown to a server, and that are not to be seen in what it says: neither by
//! callers nor in logs, whether it repeats them by mistake or on purpose.
//!
//! A text is looked at as it stands and as what it says if it is JSON: there every letter may be
//! written in several ways, and each library has its own (`\/`, `\u002B`, `\u003d`).

mod escapes;

use std::ops::Range;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use escapes::Decoded;

/// So many bytes are worth hiding: what is shorter stands in much that is no secret, and hiding it
/// would break what the server says (`text` and `true` in every message).
pub(crate) const SECRET_BYTES_MIN: usize = 8;
/// So many bytes of a secret, where the rest of it was cut off.
const BEGUN_BYTES_MIN: usize = 4;
/// JSON, and JSON in a text of it: results of tools often are that.
const DECODED_MAX: usize = 2;
/// What stands in their place.
const MASK: &str = "***";
/// What no header begins or ends with, when it arrives.
pub(crate) const BLANK: [char; 4] = [' ', '\t', '\r', '\n'];

/// The secrets of one request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hidden(Vec<String>);

impl Hidden {
    pub(crate) fn new(secrets: impl IntoIterator<Item = String>) -> Self {
        let mut all = Vec::new();
        for secret in secrets {
            let secret = secret.trim_matches(BLANK);
            // What stands behind a scheme, `Basic` for one.
            let part = secret.rsplit_once(' ').map(|(_, part)| part.to_owned());
            all.extend(part);
            all.push(secret.to_owned());
        }
        all.retain(|secret| secret.len() >= SECRET_BYTES_MIN);
        Self(all)
    }

    /// A text without them.
    pub(crate) fn text(&self, text: &str) -> String {
        self.string(text.to_owned())
    }

    /// The same, without a copy where none is there.
    pub(crate) fn string(&self, text: String) -> String {
        match self.masked(text.as_bytes(), false) {
            Some(kept) => String::from_utf8_lossy(&kept).into_owned(),
            None => text,
        }
    }

    /// JSON without them: strings, and names of members. `None` where that cannot be had, since a secret is more
    /// than a part of one.
    pub(crate) fn json<T: Serialize + DeserializeOwned>(&self, value: T) -> Option<T> {
        let text = serde_json::to_vec(&value).ok()?;
        match self.masked(&text, false) {
            None => Some(value),
            Some(kept) => serde_json::from_slice(&kept).ok(),
        }
    }

    /// Bytes of whatever kind without them.
    pub(crate) fn bytes(&self, bytes: Bytes) -> Bytes {
        self.masked(&bytes, false).map_or(bytes, Bytes::from)
    }

    /// The same for bytes that were cut off, in the middle of a secret for all we know.
    pub(crate) fn cut(&self, bytes: Bytes) -> Bytes {
        self.masked(&bytes, true).map_or(bytes, Bytes::from)
    }

    /// `None` where none of them is there.
    fn masked(&self, text: &[u8], cut: bool) -> Option<Vec<u8>> {
        if self.0.is_empty() {
            return None;
        }
        let mut places = self.places(text, cut, DECODED_MAX);
        if places.is_empty() {
            return None;
        }
        places.sort_unstable_by_key(|place| place.start);
        let mut kept = Vec::with_capacity(text.len());
        let mut done = 0;
        for place in places {
            // One may be a part of another, or overlap it.
            if place.start >= done {
                kept.extend_from_slice(&text[done..place.start]);
                kept.extend_from_slice(MASK.as_bytes());
            }
            done = done.max(place.end);
        }
        kept.extend_from_slice(&text[done..]);
        Some(kept)
    }

    /// Where they stand, in any order.
    fn places(&self, text: &[u8], cut: bool, decoded_max: usize) -> Vec<Range<usize>> {
        let mut places = Vec::new();
        for secret in &self.0 {
            let secret = secret.as_bytes();
            places.extend(standing(text, secret));
            if cut {
                places.extend(begun(text, secret));
            }
        }
        let read = || Decoded::read(text, cut);
        let Some(decoded) = (decoded_max > 0).then(read).flatten() else {
            return places;
        };
        // Half an escape would be left, and JSON would be none any more.
        for place in &mut places {
            *place = decoded.unbroken(place);
        }
        let said = self.places(&decoded.text, cut, decoded_max - 1);
        places.extend(said.iter().map(|place| decoded.source(place)));
        places
    }
}

/// Everywhere that a secret stands, also where it overlaps itself.
fn standing(text: &[u8], secret: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let windows = text.windows(secret.len()).enumerate();
    windows
        .filter(move |(_, window)| window[0] == secret[0] && *window == secret)
        .map(|(at, window)| at..at + window.len())
}

/// Where the end of a text is the beginning of a secret.
fn begun(text: &[u8], secret: &[u8]) -> Option<Range<usize>> {
    let mut lengths = (BEGUN_BYTES_MIN..secret.len()).rev();
    let length = lengths.find(|length| text.ends_with(&secret[..*length]))?;
    Some(text.len() - length..text.len())
}

#[cfg(test)]
mod tests;
