//! All acknowledged tasks of a run: what strangers probe, and what is read at the end.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use crate::rng::Rng;

/// One's own task among those of many principals is found by as many draws.
const OWN_DRAWS: usize = 200;

/// A task that a client was given a handle of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its id.
    pub task: String,
    /// Whose it is.
    pub principal: String,
    /// Whether it ends only when somebody cancels it.
    pub waits: bool,
}

/// The tasks in the order of their acknowledgement, each once.
#[derive(Debug, Default)]
pub struct Board(Mutex<Tasks>);

#[derive(Debug, Default)]
struct Tasks {
    all: Vec<Entry>,
    known: HashSet<String>,
}

impl Board {
    /// Adds a task. False if it was there already: a call that was repeated under its key.
    pub fn add(&self, entry: Entry) -> bool {
        self.with(|tasks| {
            let new = tasks.known.insert(entry.task.clone());
            if new {
                tasks.all.push(entry);
            }
            new
        })
    }

    /// One that is not this principal's, if the first few drawn are not all his.
    #[must_use]
    pub fn foreign(&self, to: &str, rng: &mut Rng) -> Option<Entry> {
        const DRAWS: usize = 8;
        self.with(|Tasks { all, .. }| {
            if all.is_empty() {
                return None;
            }
            let mut drawn = (0..DRAWS).map(|_| rng.pick(all));
            drawn.find(|entry| entry.principal != to).cloned()
        })
    }

    /// One that is this principal's, if the first few drawn are not all others'.
    #[must_use]
    pub fn own(&self, of: &str, rng: &mut Rng) -> Option<Entry> {
        self.with(|Tasks { all, .. }| {
            if all.is_empty() {
                return None;
            }
            let mut drawn = (0..OWN_DRAWS).map(|_| rng.pick(all));
            drawn.find(|entry| entry.principal == of).cloned()
        })
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> Vec<Entry> {
        self.with(|tasks| tasks.all.clone())
    }

    fn with<T>(&self, look: impl FnOnce(&mut Tasks) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_get_no_task_of_their_own() {
        let board = Board::default();
        assert_eq!(board.foreign("bob", &mut Rng::new(1)), None);
        let entry = Entry {
            task: "1".to_owned(),
            principal: "bob".to_owned(),
            waits: false,
        };
        assert!(board.add(entry.clone()));
        assert!(!board.add(entry));
        assert_eq!(board.foreign("bob", &mut Rng::new(1)), None);
        let seen = board.foreign("eve", &mut Rng::new(1)).unwrap();
        assert_eq!(seen.task, "1");
        assert_eq!(board.all().len(), 1);
    }
}
