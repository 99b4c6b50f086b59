//! Rows that Postgres refuses to change, or that cannot be read. A batch that holds one fails whole;
//! a store that leaves broken rows out does it again row by row, and notes which it left.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use protocol::TaskId;
use uuid::Uuid;

use crate::{Error, Store};

/// So many are left out of one batch, at most: then something else is broken.
const ROWS_MAX: usize = 1_000;
/// A row that takes too long costs seconds: fewer of those.
const SLOW_MAX: usize = 3;

/// What was left out, and why. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Broken(Arc<Mutex<BTreeMap<TaskId, String>>>);

impl Broken {
    /// The tasks, and what is wrong with each; never their content.
    #[must_use]
    pub fn rows(&self) -> Vec<(TaskId, String)> {
        let rows = self.lock();
        rows.iter().map(|(id, why)| (*id, why.clone())).collect()
    }

    fn note(&self, id: TaskId, error: &Error) {
        let mut why = error.to_string();
        let mut source = std::error::Error::source(error);
        while let Some(error) = source {
            why = format!("{why}: {error}");
            source = error.source();
        }
        self.lock().insert(id, why);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<TaskId, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether one row may be why; else every other would fail as well.
fn is_of_a_row(error: &Error) -> bool {
    match error {
        Error::Bug(_) | Error::Corrupt { .. } | Error::KeyMissing { .. } | Error::Timeout(_) => {
            true
        }
        Error::Unavailable(_) | Error::Schema(_) => false,
    }
}

impl Store {
    /// The same store, whose batches leave out what is broken and note it in `broken`.
    #[must_use]
    pub fn leaving_out(&self, broken: &Broken) -> Self {
        Self {
            broken: Some(broken.clone()),
            ..self.clone()
        }
    }

    /// The tasks that were left out so far.
    pub(crate) fn left_out(&self) -> Vec<Uuid> {
        let broken = self.broken.iter();
        broken
            .flat_map(|broken| broken.lock().keys().copied().collect::<Vec<_>>())
            .map(|id| *id.as_uuid())
            .collect()
    }

    /// Notes that a task is left out, if that is allowed.
    pub(crate) fn leave_out(&self, id: TaskId, error: Error) -> Result<(), Error> {
        match &self.broken {
            Some(broken) if is_of_a_row(&error) => {
                broken.note(id, &error);
                Ok(())
            }
            _ => Err(error),
        }
    }

    /// After a batch failed: each row of it by itself, until `limit` were moved. `find` names what
    /// is due, but for those given; `act` moves one, and says what became of it.
    pub(crate) async fn one_by_one<T, F, A>(
        &self,
        failed: Error,
        limit: i64,
        find: impl Fn(Vec<Uuid>) -> F,
        act: impl Fn(TaskId) -> A,
    ) -> Result<Vec<T>, Error>
    where
        F: Future<Output = Result<Vec<TaskId>, Error>>,
        A: Future<Output = Result<Vec<T>, Error>>,
    {
        if self.broken.is_none() || !is_of_a_row(&failed) {
            return Err(failed);
        }
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let (mut tried, mut moved, mut slow) = (self.left_out(), Vec::new(), 0);
        while moved.len() < limit {
            let found = find(tried.clone()).await?;
            if found.is_empty() {
                break;
            }
            for id in found {
                tried.push(*id.as_uuid());
                match act(id).await {
                    Ok(done) => moved.extend(done),
                    Err(error) => {
                        slow += usize::from(matches!(error, Error::Timeout(_)));
                        if slow > SLOW_MAX || tried.len() - moved.len() > ROWS_MAX + limit {
                            return Err(error);
                        }
                        self.leave_out(id, error)?;
                    }
                }
            }
        }
        Ok(moved)
    }

    /// The same for rows that are named.
    pub(crate) async fn each<T, A>(
        &self,
        failed: Error,
        ids: &[TaskId],
        act: impl Fn(TaskId) -> A,
    ) -> Result<Vec<T>, Error>
    where
        A: Future<Output = Result<Vec<T>, Error>>,
    {
        let limit = i64::try_from(ids.len()).unwrap_or(i64::MAX);
        let find = async |tried: Vec<Uuid>| {
            let left = ids.iter().filter(|id| !tried.contains(id.as_uuid()));
            Ok(left.copied().collect())
        };
        self.one_by_one(failed, limit, find, act).await
    }
}
