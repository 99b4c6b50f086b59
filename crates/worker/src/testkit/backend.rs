//! The journal in memory, and the client that answers from a script.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use protocol::progress::Progress;
use serde_json::Value;
use serde_json::value::RawValue;
use store::{JournalEntry, JournalKind, ParkedFor, StepSpec};
use tokio::sync::Notify;

use super::{Declared, Kit, Loss, World};
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
    world: Mutex<World>,
    cancel_at: Option<String>,
    lost: Notify,
}

impl KitBackend {
    pub(super) fn new(kit: &Kit) -> Self {
        let world = World {
            journal: kit.journal.clone(),
            undos: kit.undos.clone(),
            questions: kit.questions.clone(),
            losses: kit.losses.clone(),
            ..World::default()
        };
        Self {
            world: Mutex::new(world),
            cancel_at: kit.cancel_at.clone(),
            lost: Notify::new(),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keys of the questions that wait for an answer.
    pub(super) fn unanswered(&self) -> Vec<String> {
        let world = self.lock();
        let open = world.journal.iter();
        let open = open.filter(|e| e.kind == JournalKind::Input && !e.done);
        open.map(|entry| entry.key.clone()).collect()
    }

    /// How long a question waits, and what stands in for its answer.
    pub(super) fn waits(&self, key: &str) -> (Duration, Option<Bytes>) {
        let world = self.lock();
        let question = world.questions.get(key);
        question.map_or((Duration::MAX, None), |question| {
            (question.wait, question.default_response.clone())
        })
    }

    /// Why no gateway would take this answer to a question, if none would.
    pub(super) fn misfit(&self, key: &str, response: &Value) -> Option<String> {
        let world = self.lock();
        let request = serde_json::from_slice(&world.questions.get(key)?.request).ok();
        let request: Box<RawValue> = request?;
        let response = RawValue::from_string(response.to_string()).ok()?;
        protocol::input::validate_response(&request, &response).err()
    }

    /// A question is answered.
    pub(super) fn answer(&self, key: &str, response: Bytes) {
        let mut world = self.lock();
        let mut entries = world.journal.iter_mut();
        if let Some(entry) = entries.find(|e| e.kind == JournalKind::Input && e.key == key) {
            entry.done = true;
            entry.value = Some(response);
        }
    }

    /// The step that began and did not end: its key, and whether it may be repeated.
    pub(super) fn open_step(&self) -> Option<(String, bool)> {
        let world = self.lock();
        let mut entries = world.journal.iter();
        let open = entries.find(|e| e.kind == JournalKind::Step && !e.done);
        open.map(|entry| (entry.key.clone(), entry.idempotent))
    }

    /// Until the worker is lost.
    pub(super) async fn lost(&self) {
        self.lost.notified().await;
    }

    /// The worker is lost here, if it is scripted so: then nothing goes on.
    async fn lose(&self, loss: Loss) {
        let here = {
            let mut world = self.lock();
            let at = world.losses.iter().position(|scripted| *scripted == loss);
            at.map(|at| world.losses.remove(at)).is_some()
        };
        if here {
            self.lost.notify_one();
            std::future::pending::<()>().await;
        }
    }

    fn question(&self, question: &store::Question) {
        let request = serde_json::from_slice(&question.request).unwrap_or_default();
        let mut world = self.lock();
        world.asked.push((question.key.clone(), request));
        let key = question.key.clone();
        world.questions.insert(key, question.clone());
        let asked = entry(JournalKind::Input, &question.key, question.seq, None);
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
        self.lose(Loss::In(key.clone())).await;
        {
            let mut world = self.lock();
            let mut entries = world.journal.iter_mut();
            let entry = entries.find(|e| e.kind == JournalKind::Step && e.key == key);
            if let Some(entry) = entry {
                entry.done = true;
                entry.value = Some(Bytes::copy_from_slice(output));
            }
        }
        self.lose(Loss::After(key)).await;
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
            self.question(question);
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
