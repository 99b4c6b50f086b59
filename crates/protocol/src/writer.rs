//! Writing a JSON object member by member, raw values copied as they are.

use std::fmt::Display;
use std::io::Write as _;

use bytes::Bytes;
use serde::Serialize;

/// An object being written. Names are ours and need no escaping, but for
/// [`Object::entry`].
pub(crate) struct Object {
    text: Vec<u8>,
}

impl Object {
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        let mut text = Vec::with_capacity(bytes);
        text.push(b'{');
        Self { text }
    }

    fn name(&mut self, name: &str) {
        if self.text.len() > 1 {
            self.text.push(b',');
        }
        self.text.push(b'"');
        self.text.extend_from_slice(name.as_bytes());
        self.text.extend_from_slice(b"\":");
    }

    /// A value that is JSON text already.
    pub(crate) fn raw(mut self, name: &str, json: impl AsRef<[u8]>) -> Self {
        self.name(name);
        self.text.extend_from_slice(json.as_ref());
        self
    }

    /// A value that prints as a JSON number: integers only, never a float
    /// (a published client refuses `500.0`).
    pub(crate) fn integer(mut self, name: &str, value: impl Display) -> Self {
        self.name(name);
        write!(self.text, "{value}").expect("writing to memory does not fail");
        self
    }

    /// A value serialised here: a string, or a small structure of ours.
    pub(crate) fn value(mut self, name: &str, value: &(impl Serialize + ?Sized)) -> Self {
        self.name(name);
        serialize_into(&mut self.text, value);
        self
    }

    /// A value that is left out when absent.
    pub(crate) fn optional(self, name: &str, value: Option<&(impl Serialize + ?Sized)>) -> Self {
        match value {
            Some(value) => self.value(name, value),
            None => self,
        }
    }

    /// A member whose name may be anything.
    pub(crate) fn entry(mut self, name: &str, json: &[u8]) -> Self {
        if self.text.len() > 1 {
            self.text.push(b',');
        }
        serialize_into(&mut self.text, name);
        self.text.push(b':');
        self.text.extend_from_slice(json);
        self
    }

    pub(crate) fn finish(mut self) -> Bytes {
        self.text.push(b'}');
        Bytes::from(self.text)
    }
}

/// The JSON text of a structure of ours.
pub(crate) fn json(value: &(impl Serialize + ?Sized)) -> Bytes {
    let mut text = Vec::with_capacity(256);
    serialize_into(&mut text, value);
    Bytes::from(text)
}

fn serialize_into(text: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) {
    serde_json::to_writer(text, value)
        .expect("our own structures have string keys and writing to memory does not fail");
}
