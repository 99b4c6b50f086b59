//! A TOML text read table by table: every problem is kept with its place, none ends the reading.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Range;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

/// Something wrong with a tools file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// From 1; 0 when it is about the file as a whole.
    pub line: usize,
    /// The key, with what it is in: `command "deploy": policy.ttl`.
    pub key: String,
    /// What is wrong, and what is allowed.
    pub problem: String,
}

/// A key of a table: one row of the reference.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// As it is written.
    pub name: &'static str,
    /// What may stand there.
    pub allowed: &'static str,
    /// What it does, and its default.
    pub text: &'static str,
}

/// The problems of one text.
pub(super) struct Reader<'a> {
    text: &'a str,
    problems: RefCell<BTreeSet<Problem>>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self {
            text,
            problems: RefCell::default(),
        }
    }

    pub(super) fn line(&self, at: usize) -> usize {
        let before = self.text.as_bytes().iter().take(at);
        before.filter(|byte| **byte == b'\n').count() + 1
    }

    pub(super) fn problem(&self, at: usize, key: String, problem: impl Into<String>) {
        // Messages of the parser may have lines.
        let problem = problem.into().trim().replace('\n', " ");
        self.problems.borrow_mut().insert(Problem {
            line: self.line(at),
            key,
            problem,
        });
    }

    pub(super) fn into_problems(self) -> Vec<Problem> {
        self.problems.into_inner().into_iter().collect()
    }
}

/// One table.
pub(super) struct Section<'r, 'a> {
    pub(super) reader: &'r Reader<'a>,
    /// What it is, for people: `command "deploy": policy`.
    pub(super) place: String,
    /// Where it begins.
    pub(super) at: usize,
    pub(super) table: &'r DeTable<'a>,
    keys: &'static [Key],
    taken: RefCell<BTreeSet<&'static str>>,
}

impl<'r, 'a> Section<'r, 'a> {
    pub(super) fn new(
        reader: &'r Reader<'a>,
        place: impl Into<String>,
        table: &'r DeTable<'a>,
        at: usize,
        keys: &'static [Key],
    ) -> Self {
        Self {
            reader,
            place: place.into(),
            at,
            table,
            keys,
            taken: RefCell::default(),
        }
    }

    pub(super) fn path(&self, key: &str) -> String {
        match (self.place.as_str(), key) {
            ("", key) => key.to_owned(),
            (place, "") => place.to_owned(),
            // Within a table of its own a key is joined by a dot, else it follows its owner.
            (place, key) if place.ends_with('"') || place.ends_with(']') => {
                format!("{place}: {key}")
            }
            (place, key) => format!("{place}.{key}"),
        }
    }

    pub(super) fn problem(&self, at: usize, key: &str, problem: impl Into<String>) {
        self.reader.problem(at, self.path(key), problem);
    }

    fn key(&self, name: &'static str) -> Key {
        self.taken.borrow_mut().insert(name);
        let key = self.keys.iter().find(|key| key.name == name);
        *key.expect("every key that is read stands in the table of keys")
    }

    /// The value of a key, and where it is.
    pub(super) fn value(&self, name: &'static str) -> Option<(&'r Spanned<DeValue<'a>>, usize)> {
        self.key(name);
        let value = self.table.get(name)?;
        Some((value, value.span().start))
    }

    /// Where the key's value is, or else the table.
    pub(super) fn at(&self, name: &str) -> usize {
        self.table
            .get(name)
            .map_or(self.at, |value| value.span().start)
    }

    /// The value of a key, as a `T`.
    pub(super) fn take<T: DeserializeOwned>(&self, name: &'static str) -> Option<T> {
        let (value, at) = self.value(name)?;
        match T::deserialize(ValueDeserializer::from(value.clone())) {
            Ok(value) => Some(value),
            Err(error) => {
                let at = error.span().map_or(at, |span| span.start);
                let allowed = self.key(name).allowed;
                let said = error.message();
                self.problem(at, name, format!("{said}; allowed: {allowed}"));
                None
            }
        }
    }

    /// The same for a key that must be there.
    pub(super) fn require<T: DeserializeOwned>(&self, name: &'static str) -> Option<T> {
        if !self.table.contains_key(name) {
            let allowed = self.key(name).allowed;
            self.problem(self.at, name, format!("is missing: {allowed}"));
            return None;
        }
        self.take(name)
    }

    /// A table below this one.
    pub(super) fn table(
        &self,
        name: &'static str,
        keys: &'static [Key],
    ) -> Option<Section<'r, 'a>> {
        let (value, at) = self.value(name)?;
        let Some(table) = value.get_ref().as_table() else {
            let allowed = self.key(name).allowed;
            self.problem(at, name, format!("is no table; allowed: {allowed}"));
            return None;
        };
        Some(Section::new(self.reader, self.path(name), table, at, keys))
    }

    /// All entries: name, place of the name, value.
    pub(super) fn entries(
        &self,
    ) -> impl Iterator<Item = (&'r str, Range<usize>, &'r Spanned<DeValue<'a>>)> {
        self.table
            .iter()
            .map(|(key, value)| (key.get_ref().as_ref(), key.span(), value))
    }

    /// Refuses keys that nobody knows.
    pub(super) fn finish(self) {
        let names: Vec<&str> = self.keys.iter().map(|key| key.name).collect();
        let taken = self.taken.borrow();
        debug_assert!(
            names.iter().all(|name| taken.contains(name)),
            "{:?} stand in the table of keys and are not read",
            names.iter().find(|name| !taken.contains(*name))
        );
        for (name, span, _) in self.entries() {
            if !names.contains(&name) {
                let allowed = names.join(", ");
                self.problem(span.start, name, format!("unknown; allowed: {allowed}"));
            }
        }
    }
}

/// A value as JSON.
pub(super) fn json(value: &Spanned<DeValue<'_>>) -> Result<serde_json::Value, String> {
    serde::Deserialize::deserialize(ValueDeserializer::from(value.clone()))
        .map_err(|error: toml::de::Error| error.message().to_owned())
}
