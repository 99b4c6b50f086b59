//! Calls whose connection is held while a person is asked: older servers ask in the middle of a
//! call, and a call that must not be repeated cannot be given up meanwhile. They live in this
//! process only.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use protocol::TaskId;
use serde_json::value::RawValue;

use super::exchange::Exchange;

/// A call that waits for an answer.
pub(super) struct Held {
    pub(super) exchange: Exchange,
    /// The server's question.
    pub(super) id: Box<RawValue>,
    since: Instant,
}

impl Held {
    pub(super) fn new(exchange: Exchange, id: Box<RawValue>) -> Self {
        Self {
            exchange,
            id,
            since: Instant::now(),
        }
    }
}

/// The held calls of one upstream, by their tasks.
#[derive(Default)]
pub(super) struct Holding(Mutex<HashMap<TaskId, Held>>);

impl Holding {
    pub(super) fn put(&self, task: TaskId, held: Held) {
        self.lock().insert(task, held);
    }

    pub(super) fn take(&self, task: TaskId) -> Option<Held> {
        self.lock().remove(&task)
    }

    /// Whether none is held.
    pub(super) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Takes those that have waited for longer than this.
    pub(super) fn overdue(&self, hold: Duration) -> Vec<Held> {
        let mut held = self.lock();
        let over: Vec<TaskId> = held
            .iter()
            .filter(|(_, held)| held.since.elapsed() > hold)
            .map(|(task, _)| *task)
            .collect();
        over.into_iter()
            .filter_map(|task| held.remove(&task))
            .collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<TaskId, Held>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
