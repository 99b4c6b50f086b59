//! A run against its journal: where it stands, whether it goes the way it went before, and
//! whether the journal has room for more.

use std::collections::{BTreeMap, BTreeSet};

use protocol::code::reason;
use serde_json::value::RawValue;
use store::{JournalEntry, JournalKind};

use crate::config::Config;
use crate::error::ToolError;
use crate::question::Question;

/// How much a task may write into its journal; see [`Config`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) key_bytes_max: usize,
    pub(crate) entries_max: usize,
    pub(crate) bytes_max: usize,
    pub(crate) step_bytes_max: usize,
    pub(crate) question_bytes_max: usize,
}

impl From<&Config> for Limits {
    fn from(config: &Config) -> Self {
        Self {
            key_bytes_max: config.key_bytes_max,
            entries_max: config.journal_entries_max,
            bytes_max: config.journal_bytes_max,
            step_bytes_max: config.step_bytes_max,
            question_bytes_max: config.question_bytes_max,
        }
    }
}

/// The journal of a task, as one run of its tool comes through it.
#[derive(Debug)]
pub(crate) struct Replay {
    journal: BTreeMap<i32, Vec<JournalEntry>>,
    /// Of an earlier run, longer than is allowed by now: they were not then.
    long: BTreeSet<(JournalKind, String)>,
    position: i32,
    /// Keys used in this run; a step and a question may share one.
    steps: BTreeSet<String>,
    questions: BTreeSet<String>,
    callbacks: BTreeSet<String>,
    /// A step that said it did not take effect: the journal knows nothing of it.
    failed: Option<String>,
    limits: Limits,
    entries: usize,
    bytes: usize,
}

impl Replay {
    pub(crate) fn new(entries: Vec<JournalEntry>, limits: Limits) -> Self {
        let (count, mut bytes) = (entries.len(), 0);
        let long = entries
            .iter()
            .filter(|entry| entry.key.len() > limits.key_bytes_max);
        let long = long.map(|entry| (entry.kind, entry.key.clone())).collect();
        let mut journal: BTreeMap<i32, Vec<JournalEntry>> = BTreeMap::new();
        for entry in entries {
            bytes += usize::try_from(entry.bytes).unwrap_or(usize::MAX);
            journal.entry(entry.seq).or_default().push(entry);
        }
        Self {
            journal,
            long,
            position: 0,
            steps: BTreeSet::new(),
            questions: BTreeSet::new(),
            callbacks: BTreeSet::new(),
            failed: None,
            limits,
            entries: count,
            bytes,
        }
    }

    /// Whether the run is still where an earlier one has been.
    pub(crate) fn is_behind(&self) -> bool {
        let last = self.journal.keys().next_back();
        last.is_some_and(|last| self.position <= *last)
    }

    /// The step that failed in this run, if one did.
    pub(crate) fn failed(&self) -> Option<&str> {
        self.failed.as_deref()
    }

    /// A step reported that it did not take effect.
    pub(crate) fn step_failed(&mut self, key: &str) {
        self.failed = Some(key.to_owned());
    }

    /// The next place in the journal, for an entry of this key.
    pub(crate) fn next(&mut self, kind: JournalKind, key: &str) -> Result<i32, ToolError> {
        self.take_key(kind, key)?;
        let seq = self.position;
        self.position += 1;
        Ok(seq)
    }

    /// Uses a key, which may be done once.
    pub(crate) fn take_key(&mut self, kind: JournalKind, key: &str) -> Result<(), ToolError> {
        let max = self.limits.key_bytes_max;
        let is_good = (1..=max).contains(&key.len());
        if !is_good && !self.long.contains(&(kind, key.to_owned())) {
            return Err(drift(format!(
                "the key \"{key}\" is not between 1 and {max} bytes long"
            )));
        }
        let keys = match kind {
            JournalKind::Step => &mut self.steps,
            JournalKind::Input => &mut self.questions,
            JournalKind::Callback => &mut self.callbacks,
        };
        if keys.insert(key.to_owned()) {
            Ok(())
        } else {
            Err(drift(format!("{} comes twice", name(kind, key))))
        }
    }

    /// What the journal holds of the step that the run comes to.
    pub(crate) fn step(&self, seq: i32, key: &str) -> Result<Option<JournalEntry>, ToolError> {
        self.only(JournalKind::Step, seq, key)
    }

    /// The same of a callback.
    pub(crate) fn callback(&self, seq: i32, key: &str) -> Result<Option<JournalEntry>, ToolError> {
        self.only(JournalKind::Callback, seq, key)
    }

    /// An entry that stands alone in its place.
    fn only(
        &self,
        kind: JournalKind,
        seq: i32,
        key: &str,
    ) -> Result<Option<JournalEntry>, ToolError> {
        let Some(entries) = self.journal.get(&seq) else {
            return Ok(None);
        };
        match entries.as_slice() {
            [entry] if entry.kind == kind && entry.key == key => Ok(Some(entry.clone())),
            others => Err(drift(format!(
                "the tool comes to {} where its journal holds {}",
                name(kind, key),
                describe(others)
            ))),
        }
    }

    /// The answers that the journal holds to the questions that the run asks.
    pub(crate) fn answers(
        &self,
        seq: i32,
        questions: &[Question],
    ) -> Result<BTreeMap<String, Box<RawValue>>, ToolError> {
        let mut answers = BTreeMap::new();
        for entry in self.journal.get(&seq).into_iter().flatten() {
            let asked = questions.iter().any(|question| question.key == entry.key);
            if entry.kind != JournalKind::Input || !asked {
                let keys: Vec<&str> = questions.iter().map(|q| q.key.as_str()).collect();
                return Err(drift(format!(
                    "the tool asks {keys:?} where its journal holds {}",
                    describe(std::slice::from_ref(entry))
                )));
            }
            let answer = entry.value.as_ref().and_then(|value| {
                RawValue::from_string(String::from_utf8_lossy(value).into_owned()).ok()
            });
            let Some(answer) = answer else {
                return Err(drift(format!(
                    "question \"{}\" has no answer yet",
                    entry.key
                )));
            };
            answers.insert(entry.key.clone(), answer);
        }
        Ok(answers)
    }

    /// Comes through everything that is finished, whatever it is.
    pub(crate) fn recall(&mut self) -> Result<Vec<JournalEntry>, ToolError> {
        let mut recalled = Vec::new();
        while let Some(entries) = self.journal.get(&self.position).cloned() {
            if entries.iter().any(|entry| !entry.done) {
                break;
            }
            for entry in &entries {
                self.take_key(entry.kind, &entry.key)?;
            }
            self.position += 1;
            recalled.extend(entries);
        }
        Ok(recalled)
    }

    /// The step at which the run stands, if an earlier one began it.
    pub(crate) fn begun(&self) -> Option<String> {
        let entries = self.journal.get(&self.position)?;
        entries.first().map(|entry| entry.key.clone())
    }

    /// The tool has a result, so it must have come through all that its journal holds: an
    /// earlier run went another way.
    pub(crate) fn finish(&self) -> Result<(), ToolError> {
        let Some((_, entries)) = self.journal.range(self.position..).next() else {
            return Ok(());
        };
        Err(drift(format!(
            "the tool returned a result, and its journal still holds {}",
            describe(entries)
        )))
    }

    /// Room for another entry of this many bytes (its key included), before anything acts.
    pub(crate) fn add(
        &mut self,
        kind: JournalKind,
        key: &str,
        bytes: usize,
    ) -> Result<(), ToolError> {
        if self.entries >= self.limits.entries_max {
            return Err(full(format!(
                "{} does not fit: the task's journal may have {} entries",
                name(kind, key),
                self.limits.entries_max
            )));
        }
        self.grow(kind, key, bytes)?;
        self.entries += 1;
        Ok(())
    }

    /// Room for more bytes in an entry.
    pub(crate) fn grow(
        &mut self,
        kind: JournalKind,
        key: &str,
        bytes: usize,
    ) -> Result<(), ToolError> {
        let grown = self.bytes.saturating_add(bytes);
        if grown > self.limits.bytes_max {
            return Err(full(format!(
                "{} does not fit: the task's journal would have {grown} bytes; {} are allowed",
                name(kind, key),
                self.limits.bytes_max
            )));
        }
        self.bytes = grown;
        Ok(())
    }

    /// Room for what a step put out.
    pub(crate) fn take_output(&mut self, key: &str, bytes: usize) -> Result<(), ToolError> {
        let max = self.limits.step_bytes_max;
        if bytes > max {
            return Err(full(format!(
                "output of step \"{key}\" is {bytes} bytes long; {max} are allowed"
            )));
        }
        self.grow(JournalKind::Step, key, bytes)
    }

    /// Whether what undoes a step is small enough.
    pub(crate) fn check_undo(&self, key: &str, bytes: usize) -> Result<(), ToolError> {
        let max = self.limits.step_bytes_max;
        if bytes > max {
            return Err(full(format!(
                "what undoes step \"{key}\" is {bytes} bytes long; {max} are allowed"
            )));
        }
        Ok(())
    }

    /// Whether a question is small enough.
    pub(crate) fn check_question(&self, question: &store::Question) -> Result<(), ToolError> {
        let default = question
            .default_response
            .as_ref()
            .map_or(0, bytes::Bytes::len);
        let (bytes, max) = (
            question.request.len() + default,
            self.limits.question_bytes_max,
        );
        if bytes > max {
            return Err(full(format!(
                "question \"{}\" is {bytes} bytes long, its default included; {max} are allowed",
                question.key
            )));
        }
        Ok(())
    }
}

fn name(kind: JournalKind, key: &str) -> String {
    match kind {
        JournalKind::Step => format!("step \"{key}\""),
        JournalKind::Input => format!("question \"{key}\""),
        JournalKind::Callback => format!("callback \"{key}\""),
    }
}

fn describe(entries: &[JournalEntry]) -> String {
    let words: Vec<String> = entries.iter().map(|e| name(e.kind, &e.key)).collect();
    words.join(", ")
}

pub(crate) fn drift(message: String) -> ToolError {
    ToolError::reason(reason::JOURNAL_DRIFT, message)
}

fn full(message: String) -> ToolError {
    ToolError::reason(reason::JOURNAL_FULL, message)
}
