//! A TOML text read table by table: every problem is kept with its place, none ends the reading.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;

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

impl Problem {
    /// As it is told of this file.
    #[must_use]
    pub fn of(&self, file: &Path) -> String {
        let Self { line, key, problem } = self;
        let place = match line {
            0 => file.display().to_string(),
            line => format!("{}:{line}", file.display()),
        };
        match key.as_str() {
            "" => format!("{place}: {problem}"),
            key => format!("{place}: {key}: {problem}"),
        }
    }
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

/// The problems of one text, and what is said beside them.
pub(super) struct Reader<'a> {
    text: &'a str,
    problems: RefCell<BTreeSet<Problem>>,
    missing: RefCell<BTreeSet<Problem>>,
    notes: RefCell<BTreeSet<Problem>>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self {
            text,
            problems: RefCell::default(),
            missing: RefCell::default(),
            notes: RefCell::default(),
        }
    }

    pub(super) fn line(&self, at: usize) -> usize {
        let before = self.text.as_bytes().iter().take(at);
        before.filter(|byte| **byte == b'\n').count() + 1
    }

    pub(super) fn problem(&self, at: usize, key: String, problem: impl Into<String>) {
        let problem = self.said(at, key, problem);
        self.problems.borrow_mut().insert(problem);
    }

    fn said(&self, at: usize, key: String, problem: impl Into<String>) -> Problem {
        // Messages of the parser may have lines, and so may keys in quotes.
        let on_one_line = |text: &str| text.trim().replace('\n', " ");
        Problem {
            line: self.line(at),
            key: on_one_line(&key),
            problem: on_one_line(&problem.into()),
        }
    }

    /// Problems, what is missing, and notes.
    pub(super) fn into_said(self) -> [Vec<Problem>; 3] {
        [self.problems, self.missing, self.notes]
            .map(|said| said.into_inner().into_iter().collect())
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

    /// Something that is not there now, and may be when it is needed.
    pub(super) fn missing(&self, at: usize, key: &str, problem: impl Into<String>) {
        let problem = self.reader.said(at, self.path(key), problem);
        self.reader.missing.borrow_mut().insert(problem);
    }

    /// Something that works, and perhaps not as it was meant.
    pub(super) fn note(&self, at: usize, key: &str, note: impl Into<String>) {
        let note = self.reader.said(at, self.path(key), note);
        self.reader.notes.borrow_mut().insert(note);
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

    /// Tells what a key allows whose value is another word.
    pub(super) fn wrong_word(&self, name: &'static str) {
        let allowed = self.key(name).allowed;
        self.problem(self.at(name), name, format!("allowed: {allowed}"));
    }

    /// The JSON of a key that is a table, or a text that holds JSON.
    pub(super) fn json(&self, name: &'static str) -> Option<serde_json::Value> {
        let (value, at) = self.value(name)?;
        let parsed = match json(value) {
            Ok(serde_json::Value::String(text)) => {
                serde_json::from_str(&text).map_err(|error| format!("is no JSON: {error}"))
            }
            other => other,
        };
        match parsed {
            Ok(value) => Some(value),
            Err(problem) => {
                self.problem(at, name, problem);
                None
            }
        }
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
                // What would not be seen, as it must be written.
                let quoted = format!("{name:?}");
                let shown = if name.trim().is_empty() {
                    &quoted
                } else {
                    name
                };
                self.problem(span.start, shown, format!("unknown; allowed: {allowed}"));
            }
        }
    }
}

/// A value as JSON.
pub(super) fn json(value: &Spanned<DeValue<'_>>) -> Result<serde_json::Value, String> {
    serde::Deserialize::deserialize(ValueDeserializer::from(value.clone()))
        .map_err(|error: toml::de::Error| error.message().to_owned())
}
