//! Reads: one primary-key look-up by id and owner, coalesced with its neighbours.

use std::collections::HashMap;
use std::time::{Instant, SystemTime};

use deadpool_postgres::{GenericClient, Object, Transaction};
use protocol::{TaskId, TaskStatus};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::error::Fault;
use crate::pool::{sql, with_connection};
use crate::task::{Principal, Task};
use crate::{Error, Store, row};

/// Of one that is read with others: the longest result, error or questions, in bytes. 64 of these take 4 MiB.
pub(crate) const READ_WITH_OTHERS_MAX: i64 = 64 * 1024;

/// What an id is to a principal.
#[derive(Clone, Debug)]
pub enum Lookup {
    /// Its task.
    Found(Box<Task>),
    /// Its task once; the TTL is over.
    Expired {
        /// How it had ended.
        final_status: TaskStatus,
        /// When its TTL was over.
        expired_at: SystemTime,
    },
    /// Nothing: never existed, belongs to somebody else, or forgotten.
    Unknown,
}

impl PartialEq for Lookup {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Found(a), Self::Found(b)) => {
                a.id == b.id && a.last_updated_at == b.last_updated_at
            }
            (
                Self::Expired {
                    final_status: a,
                    expired_at: at,
                },
                Self::Expired {
                    final_status: b,
                    expired_at: bt,
                },
            ) => a == b && at == bt,
            (Self::Unknown, Self::Unknown) => true,
            _ => false,
        }
    }
}

impl Eq for Lookup {}

impl Lookup {
    /// How long a result, an error or questions are that were not read, in bytes.
    #[must_use]
    pub fn withheld(&self) -> usize {
        match self {
            Self::Found(task) => task.withheld,
            Self::Expired { .. } | Self::Unknown => 0,
        }
    }
}

impl Store {
    /// Reads one task, whole.
    ///
    /// # Errors
    /// When Postgres could not be asked.
    pub async fn get(&self, principal: &Principal, id: TaskId) -> Result<Lookup, Error> {
        let found = self.look(principal, id).await?;
        if found.withheld() == 0 {
            return Ok(found);
        }
        self.get_whole(principal, id).await
    }

    /// Reads one task, but no result, error or questions of more than 64 KiB: how long that is stands in
    /// [`Task::withheld`]. Reads that meet share a round trip.
    ///
    /// # Errors
    /// When Postgres could not be asked.
    pub async fn look(&self, principal: &Principal, id: TaskId) -> Result<Lookup, Error> {
        let started = Instant::now();
        let question = (principal.clone(), id);
        let reads = &self.together.reads;
        let together = self.together("get", reads, question.clone(), async |wanted| {
            self.read_many(&wanted, READ_WITH_OTHERS_MAX).await
        });
        if let Some(found) = together.await? {
            return self.open_lookup(found);
        }
        let alone = self.with_wait(self.time_left(started));
        alone.read_alone(question, READ_WITH_OTHERS_MAX).await
    }

    /// Reads one task by itself, however long what it holds is: for who has room for it.
    ///
    /// # Errors
    /// When Postgres could not be asked.
    pub async fn get_whole(&self, principal: &Principal, id: TaskId) -> Result<Lookup, Error> {
        self.read_alone((principal.clone(), id), i64::MAX).await
    }

    async fn read_alone(
        &self,
        question: (Principal, TaskId),
        result_max: i64,
    ) -> Result<Lookup, Error> {
        let found = Box::pin(self.read_many(&[question], result_max)).await?;
        self.open_lookup(found.into_iter().next().unwrap_or(Lookup::Unknown))
    }

    /// Reads many tasks in one round trip, or two where one of them is not there, as [`Store::look`] does; the answers are in the order of the
    /// questions.
    ///
    /// # Errors
    /// When Postgres could not be asked; of a single task, when what it holds cannot be opened here.
    pub async fn get_many(
        &self,
        wanted: &[(Principal, TaskId)],
    ) -> Result<Vec<Result<Lookup, Error>>, Error> {
        let found = self.read_many(wanted, READ_WITH_OTHERS_MAX).await?;
        let opened = found.into_iter().map(|lookup| self.open_lookup(lookup));
        Ok(opened.collect())
    }

    async fn read_many(
        &self,
        wanted: &[(Principal, TaskId)],
        result_max: i64,
    ) -> Result<Vec<Lookup>, Error> {
        with_connection!(self, "get", |connection| {
            let mut found = vec![Lookup::Unknown; wanted.len()];
            read_tasks(connection, wanted, result_max, &mut found).await?;
            if found.contains(&Lookup::Unknown) {
                read_tombstones(connection, wanted, &mut found).await?;
            }
            Ok(found)
        })
    }

    /// Records that terminal outcomes reached their owner.
    ///
    /// # Errors
    /// When Postgres could not be asked; the mark is then lost, and alerts err toward firing.
    pub async fn mark_fetched(&self, ids: &[TaskId]) -> Result<(), Error> {
        let ids: Vec<_> = ids.iter().map(TaskId::as_uuid).collect();
        with_connection!(self, "mark_fetched", |connection| {
            let statement = connection.prepare_cached(sql!("mark_fetched")).await?;
            connection.execute(&statement, &[&ids]).await?;
            Ok(())
        })
    }

    /// Forgets finished tasks whose outcome was delivered inline: without a key and without a
    /// handle, no client can name them.
    ///
    /// # Errors
    /// When Postgres could not be asked; they then expire like all others.
    pub async fn delivered_inline(&self, ids: &[TaskId]) -> Result<(), Error> {
        let ids: Vec<_> = ids.iter().map(TaskId::as_uuid).collect();
        with_connection!(self, "delivered_inline", |connection| {
            let statement = connection.prepare_cached(sql!("delivered_inline")).await?;
            connection.execute(&statement, &[&ids]).await?;
            Ok(())
        })
    }
}

/// What statements of reads name: ids and their owners, in columns.
#[derive(Default)]
struct Asked<'a> {
    ids: Vec<&'a Uuid>,
    issuers: Vec<&'a str>,
    subjects: Vec<&'a str>,
}

impl<'a> Asked<'a> {
    fn of(wanted: impl IntoIterator<Item = &'a (Principal, TaskId)>) -> Self {
        let mut asked = Self::default();
        for (principal, id) in wanted {
            asked.ids.push(id.as_uuid());
            asked.issuers.push(&principal.issuer);
            asked.subjects.push(&principal.subject);
        }
        asked
    }
}

/// The question that a row answers: they are counted from 1 in the first column.
fn answers(row: &Row) -> usize {
    usize::try_from(row.get::<_, i64>(0) - 1).unwrap_or(usize::MAX)
}

async fn read_tasks(
    connection: &Object,
    wanted: &[(Principal, TaskId)],
    result_max: i64,
    found: &mut [Lookup],
) -> Result<(), Fault> {
    let get = match wanted {
        [_] => sql!("get_one"),
        _ => sql!("get"),
    };
    let get = connection.prepare_cached(get).await?;
    let asked = Asked::of(wanted);
    let arguments: [&(dyn ToSql + Sync); 4] =
        [&asked.ids, &asked.issuers, &asked.subjects, &result_max];
    let columns = row::Columns::of(get.columns());
    for read in connection.query(&get, &arguments).await? {
        // The second column is `withheld`.
        let withheld = usize::try_from(read.get::<_, i32>(1)).unwrap_or(0);
        let task = columns.task(&read)?;
        if let Some(place) = found.get_mut(answers(&read)) {
            *place = Lookup::Found(Box::new(Task { withheld, ..task }));
        }
    }
    Ok(())
}

/// Of those that no task was found of.
async fn read_tombstones(
    connection: &Object,
    wanted: &[(Principal, TaskId)],
    found: &mut [Lookup],
) -> Result<(), Fault> {
    let (missing, places): (Vec<&(Principal, TaskId)>, Vec<&mut Lookup>) = wanted
        .iter()
        .zip(found)
        .filter(|(_, found)| **found == Lookup::Unknown)
        .unzip();
    let tombstones = connection.prepare_cached(sql!("tombstones")).await?;
    let asked = Asked::of(missing.iter().copied());
    let arguments: [&(dyn ToSql + Sync); 3] = [&asked.ids, &asked.issuers, &asked.subjects];
    let mut left = HashMap::new();
    for read in connection.query(&tombstones, &arguments).await? {
        left.insert(answers(&read), read);
    }
    for (n, (place, (_, id))) in places.into_iter().zip(missing).enumerate() {
        if let Some(read) = left.get(&n) {
            *place = Lookup::Expired {
                final_status: row::status(read.get("final_status"), *id)?,
                expired_at: read.get("expired_at"),
            };
        }
    }
    Ok(())
}

/// What is left of a task that is gone, for its owner.
pub(crate) async fn tombstone(
    transaction: &Transaction<'_>,
    principal: &Principal,
    id: TaskId,
) -> Result<Option<Lookup>, Fault> {
    let statement = transaction.prepare_cached(sql!("tombstone")).await?;
    let found = transaction
        .query_opt(
            &statement,
            &[&id.as_uuid(), &principal.issuer, &principal.subject],
        )
        .await?;
    Ok(match found {
        None => None,
        Some(found) => Some(Lookup::Expired {
            final_status: row::status(found.get("final_status"), id)?,
            expired_at: found.get("expired_at"),
        }),
    })
}
