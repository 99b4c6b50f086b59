//! Reading a JSON object one level deep: names decoded, values left as raw text.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::ops::Range;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::jsonrpc::InvalidParams;

/// So many names are compared with each other sooner than they are hashed.
const FEW: usize = 16;

/// The members of one object, in the order they were sent.
///
/// serde_json skips raw values without recursion, so any nesting is safe here;
/// the depth limit is checked once for the whole body.
#[derive(Debug, Default)]
pub(crate) struct Object<'a> {
    members: Vec<(Cow<'a, str>, &'a RawValue)>,
}

#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Object<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Object<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some((Name(name), value)) = map.next_entry::<Name<'de>, &RawValue>()? {
                    members.push((name, value));
                }
                Ok(Object { members })
            }
        }
        deserializer.deserialize_map(Members)
    }
}

impl<'a> Object<'a> {
    /// Reads `text`; fails if it isn't one JSON object.
    pub(crate) fn read(text: &'a str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// Reads the object at `path` (for messages), which must have unique names.
    pub(crate) fn strict(value: &'a RawValue, path: &str) -> Result<Self, InvalidParams> {
        if !is_object(value) {
            return Err(InvalidParams::new(format!("{path} must be an object")));
        }
        let object = Self::read(value.get())
            .map_err(|error| InvalidParams::new(format!("{path} can't be read: {error}")))?;
        match object.duplicate() {
            None => Ok(object),
            Some(name) => {
                let name = shorten(name);
                Err(InvalidParams::new(format!(
                    "{path} has the key `{name}` twice"
                )))
            }
        }
    }

    /// Reads a request's `params`; absent params are an empty object.
    pub(crate) fn params(params: Option<&'a RawValue>) -> Result<Self, InvalidParams> {
        params.map_or_else(
            || Ok(Self::default()),
            |value| Self::strict(value, "params"),
        )
    }

    /// The member's value; `null` is a value. Of two members of one name the
    /// last counts, as for every parser that will read the same text later.
    pub(crate) fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.members
            .iter()
            .rev()
            .find(|(member, _)| member == name)
            .map(|(_, value)| *value)
    }

    /// The member's value, where `null` counts as absent.
    pub(crate) fn present(&self, name: &str) -> Option<&'a RawValue> {
        self.get(name).filter(|value| value.get() != "null")
    }

    /// An optional string; `null` counts as absent.
    pub(crate) fn string(&self, name: &str) -> Result<Option<String>, InvalidParams> {
        let Some(value) = self.present(name) else {
            return Ok(None);
        };
        string(value)
            .map(Some)
            .ok_or_else(|| InvalidParams::new(format!("`{name}` must be a string")))
    }

    /// A string that must be there.
    pub(crate) fn required_string(&self, name: &str) -> Result<String, InvalidParams> {
        self.string(name)?
            .ok_or_else(|| InvalidParams::new(format!("`{name}` is missing: it must be a string")))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The members in order.
    pub(crate) fn into_members(self) -> Vec<(Cow<'a, str>, &'a RawValue)> {
        self.members
    }

    /// A name that occurs twice, if there is one (RFC 8259 §4: behaviour is
    /// then unpredictable, so what we checked may not be what others read).
    pub(crate) fn duplicate(&self) -> Option<&str> {
        let names = || self.members.iter().map(|(name, _)| name.as_ref());
        if self.members.len() <= FEW {
            let before = |n: usize, name: &str| names().take(n).any(|other| other == name);
            return names()
                .enumerate()
                .find(|(n, name)| before(*n, name))
                .map(|(_, name)| name);
        }
        let mut seen = HashSet::with_capacity(self.members.len());
        names().find(|name| !seen.insert(*name))
    }
}

/// Whether the raw value is an object.
pub(crate) fn is_object(value: &RawValue) -> bool {
    value.get().starts_with('{')
}

/// The decoded string, if the raw value is one.
pub(crate) fn string(value: &RawValue) -> Option<String> {
    serde_json::from_str(value.get()).ok()
}

/// The value of member `name` of a raw object; `None` if absent or no object.
pub(crate) fn member<'a>(value: &'a RawValue, name: &str) -> Option<&'a RawValue> {
    Object::read(value.get()).ok()?.get(name)
}

/// Where `inner`, a value borrowed from `outer`, lies in it.
pub(crate) fn position(outer: &str, inner: &RawValue) -> Range<usize> {
    let start = inner.get().as_ptr().addr() - outer.as_ptr().addr();
    start..start + inner.get().len()
}

/// Valid JSON without the white space between its tokens: stored text must fit
/// on one line, for a server-sent event is split at line ends.
pub(crate) fn compact(json: &str) -> String {
    let mut out = Vec::with_capacity(json.len());
    let mut strings = Strings::default();
    for byte in json.bytes() {
        let is_inside = strings.feed(byte);
        if is_inside || !matches!(byte, b' ' | b'\t' | b'\r' | b'\n') {
            out.push(byte);
        }
    }
    String::from_utf8(out).expect("only ASCII white space was left out of a text")
}

/// Tells which bytes of valid JSON belong to strings.
#[derive(Default)]
pub(crate) struct Strings {
    is_open: bool,
    is_escaped: bool,
}

impl Strings {
    /// Whether `byte`, the next one, belongs to a string, quotes included.
    pub(crate) fn feed(&mut self, byte: u8) -> bool {
        let was_open = self.is_open;
        match byte {
            _ if self.is_escaped => self.is_escaped = false,
            b'\\' if was_open => self.is_escaped = true,
            b'"' => self.is_open = !was_open,
            _ => {}
        }
        was_open || self.is_open
    }
}

/// At most 100 characters of a text that a caller chose, for a message.
pub(crate) fn shorten(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(100) {
        None => Cow::Borrowed(text),
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_names_and_leaves_values() {
        let text = r#" {"a" : 1.50, "b\u0063":{"x":[ 1 ]}, "n":null} "#;
        let object = Object::read(text).unwrap();
        assert_eq!(object.get("a").unwrap().get(), "1.50");
        assert_eq!(object.get("bc").unwrap().get(), r#"{"x":[ 1 ]}"#);
        assert!(object.get("n").is_some() && object.present("n").is_none());
        assert_eq!(&text[position(text, object.get("a").unwrap())], "1.50");
        assert_eq!(object.duplicate(), None);
    }

    #[test]
    fn sees_duplicates_however_they_are_spelled() {
        let object = Object::read(r#"{"a":1,"b":2,"\u0061":3}"#).unwrap();
        assert_eq!(object.duplicate(), Some("a"));
    }

    #[test]
    fn any_depth_is_safe() {
        let text = format!("{{\"a\":{}{}}}", "[".repeat(200_000), "]".repeat(200_000));
        assert_eq!(
            Object::read(&text).unwrap().get("a").unwrap().get().len(),
            400_000
        );
    }

    #[test]
    fn compacts_between_tokens_only() {
        let text = "{ \"a b\\\" \" :\n[ 1 ,\t\"\\\\\" , \"\\u0020 é\"\r\n] }";
        let tight = compact(text);
        assert_eq!(tight, "{\"a b\\\" \":[1,\"\\\\\",\"\\u0020 é\"]}");
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(value(&tight), value(text));
    }

    #[test]
    fn the_last_of_two_counts_as_in_serde_json() {
        let text = r#"{"a":1,"a":2}"#;
        assert_eq!(Object::read(text).unwrap().get("a").unwrap().get(), "2");
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(text).unwrap()["a"],
            2
        );
    }

    #[test]
    fn shortens_at_characters() {
        assert_eq!(shorten("abc"), "abc");
        assert_eq!(shorten(&"é".repeat(101)), format!("{}…", "é".repeat(100)));
    }
}
