//! The journal in memory, and the client that answers from a script.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use protocol::progress::Progress;
use serde_json::Value;
use store::{JournalEntry, JournalKind, ParkedFor, StepSpec};

use super::{Declared, World};
use crate::backend::{Backend, Begun, Ticket, Unreachable};

/// An unfinished one if it has no value.
pub(super) fn entry(kind: JournalKind, key: &str, seq: i32, value: Option<Bytes>) -> JournalEntry {
    let bytes = key.len() + value.as_ref().map_or(0, Bytes::len);
    JournalEntry {
        kind,
        key: key.to_owned(),
        seq,
        done: value.is_some(),
        idempotent: false,
        bytes: i64::try_from(bytes).unwrap_or(i64::MAX),
        value,
    }
}

pub(super) struct KitBackend {
    pub(super) world: Mutex<World>,
    pub(super) answers: BTreeMap<String, Value>,
    pub(super) cancel_at: Option<String>,
}

impl KitBackend {
    pub(super) fn lock(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether every question has an answer now.
    pub(super) fn answered(&self) -> bool {
        self.lock()
            .journal
            .iter()
            .all(|e| e.kind == JournalKind::Step || e.done)
    }

    fn question(&self, question: &store::Question, response: Option<Bytes>) {
        let request = serde_json::from_slice(&question.request).unwrap_or_default();
        let mut world = self.lock();
        world.asked.push((question.key.clone(), request));
        let asked = entry(JournalKind::Input, &question.key, question.seq, response);
        world.journal.push(asked);
    }
}

#[async_trait]
impl Backend for KitBackend {
    async fn begin_step(&self, step: StepSpec<'_>) -> Result<Begun, Unreachable> {
        if self.cancel_at.as_deref() == Some(step.key) {
            return Ok(Begun::Stop);
        }
        let mut world = self.lock();
        world.acts.push(step.key.to_owned());
        if let Some(undo) = step.undo {
            let declared = Declared {
                how: Bytes::copy_from_slice(undo.how),
                idempotent: undo.idempotent,
            };
            world.undos.insert(step.key.to_owned(), declared);
        }
        world
            .journal
            .retain(|entry| entry.kind == JournalKind::Input || entry.key != step.key);
        world.journal.push(JournalEntry {
            idempotent: step.idempotent,
            ..entry(JournalKind::Step, step.key, step.seq, None)
        });
        Ok(Begun::Act(Ticket::Kit(step.key.to_owned())))
    }

    async fn finish_step(&self, ticket: Ticket, output: &[u8]) -> Result<bool, Unreachable> {
        let Ticket::Kit(key) = ticket else {
            return Ok(false);
        };
        let mut world = self.lock();
        let entry = world
            .journal
            .iter_mut()
            .find(|e| e.kind == JournalKind::Step && e.key == key);
        if let Some(entry) = entry {
            entry.done = true;
            entry.value = Some(Bytes::copy_from_slice(output));
        }
        Ok(true)
    }

    async fn abandon_step(&self, ticket: Ticket) -> Result<bool, Unreachable> {
        let Ticket::Kit(key) = ticket else {
            return Ok(false);
        };
        self.lock()
            .journal
            .retain(|e| e.kind == JournalKind::Input || e.key != key);
        Ok(true)
    }

    async fn park(&self, _: ParkedFor, questions: &[store::Question]) -> Result<bool, Unreachable> {
        let cancelled = |q: &store::Question| self.cancel_at.as_deref() == Some(&q.key);
        if questions.iter().any(cancelled) {
            return Ok(false);
        }
        for question in questions {
            let response = self.answers.get(&question.key);
            self.question(
                question,
                response.map(|value| Bytes::from(value.to_string())),
            );
        }
        Ok(true)
    }

    async fn record_answer(
        &self,
        question: &store::Question,
        response: &[u8],
        _answered_by: &str,
    ) -> Result<bool, Unreachable> {
        let response = Some(Bytes::copy_from_slice(response));
        let answered = entry(JournalKind::Input, &question.key, question.seq, response);
        self.lock().journal.push(answered);
        Ok(true)
    }

    async fn status(&self, message: &str) -> Result<bool, Unreachable> {
        self.lock().statuses.push(message.to_owned());
        Ok(true)
    }

    async fn publish(&self, progress: &Progress) {
        self.lock().progress.push(progress.clone());
    }
}
