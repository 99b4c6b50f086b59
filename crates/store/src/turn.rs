//! Whose turn it is, where more waits than there are places.

mod pick;

use std::sync::Arc;
use std::time::Instant;

use deadpool_postgres::Object;
use protocol::TaskId;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Row, Statement};
use uuid::Uuid;

use crate::claim::{Claim, ClaimRequest, claim, lock_slots};
use crate::error::Fault;
use crate::pool::{sql, with_connection};
use crate::{Error, Store, ToolPolicy};

pub(crate) use pick::Pick;
use pick::{Arguments, LOOK, SURE, TAKE};

/// How many jobs of a tool may run at once, over all workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Of all principals; `None` = no limit.
    pub all: Option<u32>,
    /// Of one principal; `None` = no limit.
    pub each: Option<u32>,
}

impl Limits {
    /// Those of a tool.
    #[must_use]
    pub fn of(policy: &ToolPolicy) -> Self {
        Self {
            all: policy.concurrency,
            each: policy.concurrency_per_principal,
        }
    }

    /// Whether there is no limit.
    #[must_use]
    pub fn are_none(self) -> bool {
        self == Self::default()
    }

    pub(crate) fn slots(self) -> Option<i32> {
        self.all.map(whole)
    }

    pub(crate) fn slots_each(self) -> Option<i32> {
        self.each.map(whole)
    }
}

fn whole(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// A tool that a worker serves.
#[derive(Clone, Debug)]
pub struct Served<'a> {
    /// Its name.
    pub tool: &'a str,
    /// The version that runs.
    pub version: i32,
    /// Versions whose journals it can resume; its own among them.
    pub resumes: Vec<i32>,
    /// How many may run at once.
    pub limits: Limits,
}

/// What a worker asks for that takes whatever is next.
#[derive(Clone, Debug)]
pub struct TurnRequest<'a> {
    /// Whose turn it is in this queue.
    pub queue: &'a str,
    /// What the worker serves.
    pub tools: &'a [Served<'a>],
    /// The fencing token, chosen by the worker: a repeat of the same request is the same claim.
    pub token: Uuid,
    /// The worker, for operators.
    pub worker: &'a str,
    /// The priority goes first whose jobs have waited longest.
    pub oldest_first: bool,
}

/// What came of it.
#[derive(Debug)]
pub enum Turn {
    /// This job is the worker's.
    Claimed {
        /// Of the job.
        claim: Box<Claim>,
        /// All that was due was of one principal and of one priority.
        alone: bool,
        /// It was of several priorities.
        priorities: bool,
    },
    /// The next job is of this tool, whose slots are counted: ask again for it alone, by
    /// [`Store::claim_slot`].
    Limited {
        /// The tool.
        tool: String,
        /// The queue that its job waits in.
        queue: String,
        /// As of a job that was claimed.
        alone: bool,
        /// The same.
        priorities: bool,
    },
    /// What could be taken is being taken by others, or not; nobody knows yet.
    Busy,
    /// There is nothing for this worker.
    Nothing,
}

/// What a hint leads to, where more waits than there are places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hinted {
    /// To whoever's turn it is in this queue, in which its job waits.
    Turn(String),
    /// To its job, which is to be undone, or whose lease ran out: [`Store::claim`] it.
    Named,
    /// Nowhere: its job does not wait (any more, or not yet). The queue that it is of, where it is known.
    Gone(Option<String>),
}

/// Who gets the next slot of a limited tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// This job: push a hint.
    Next {
        /// The job.
        id: TaskId,
        /// The version whose workers can run it.
        version: i32,
    },
    /// Somebody is at the rows of those who wait: look again.
    Busy,
    /// No slot is free, or nobody waits.
    Nobody,
}

/// For one transaction. Postgres takes this statement for a long one, and to compile it would take longer than a
/// thousand of them.
const KEEP_PLAN: &str = "SET LOCAL plan_cache_mode = force_generic_plan; SET LOCAL jit = off";

impl Store {
    /// Takes the job whose turn it is, by priority, and fairly between principals. Who asks for the same in the
    /// same moment shares the statement.
    ///
    /// # Errors
    /// When Postgres could not be asked.
    pub async fn claim_best(&self, request: &TurnRequest<'_>) -> Result<Turn, Error> {
        let started = Instant::now();
        let pick = Arc::new(Pick::new(request));
        let turns = &self.together.turns;
        let together = self.together("claim_best", turns, Arc::clone(&pick), async |picks| {
            self.pick_together(&picks).await
        });
        let turn = match together.await? {
            Some(turn) => turn,
            None => {
                let alone = self.with_wait(self.time_left(started));
                alone.pick_alone(&pick).await?
            }
        };
        self.open_turn(turn).await
    }

    /// What becomes of the hint of this job. Hints that come together share a round trip.
    ///
    /// # Errors
    /// When Postgres could not be asked.
    pub async fn hinted(&self, hint: TaskId) -> Result<Hinted, Error> {
        let started = Instant::now();
        let hints = &self.together.hints;
        let together = self.together("hinted", hints, hint, async |hints| {
            self.look_at_hints(&hints).await
        });
        if let Some(hinted) = together.await? {
            return Ok(hinted);
        }
        let alone = self.with_wait(self.time_left(started));
        let hinted = alone.look_at_hints(&[hint]).await?;
        Ok(hinted.into_iter().next().unwrap_or(Hinted::Gone(None)))
    }

    /// In the order of the hints.
    async fn look_at_hints(&self, hints: &[TaskId]) -> Result<Vec<Hinted>, Error> {
        let ids: Vec<_> = hints.iter().map(TaskId::as_uuid).collect();
        with_connection!(self, "hinted", |connection| {
            let statement = connection.prepare_cached(sql!("hinted")).await?;
            let mut found = vec![Hinted::Gone(None); hints.len()];
            for row in connection.query(&statement, &[&ids]).await? {
                let place = usize::try_from(row.get::<_, i64>("n") - 1);
                if let Some(hinted) = place.ok().and_then(|place| found.get_mut(place)) {
                    *hinted = hinted_by(&row);
                }
            }
            Ok(found)
        })
    }

    /// In the order of the picks. Those of another queue, or of a worker that serves something else, have a
    /// statement of their own.
    async fn pick_together(&self, picks: &[Arc<Pick>]) -> Result<Vec<Turn>, Error> {
        let mut turns: Vec<Option<Turn>> = picks.iter().map(|_| None).collect();
        while let Some(first) = turns.iter().position(Option::is_none) {
            let of = &picks[first];
            let same = |at: &usize| turns[*at].is_none() && picks[*at].asks_as(of);
            let places: Vec<usize> = (first..picks.len()).filter(same).collect();
            let tokens: Vec<Uuid> = places.iter().map(|at| picks[*at].token).collect();
            for (at, turn) in places.into_iter().zip(self.pick_once(of, &tokens).await?) {
                turns[at] = Some(turn);
            }
        }
        Ok(turns.into_iter().flatten().collect())
    }

    /// One try: after a lost reply some of them may have their jobs, and each asks for its own.
    async fn pick_once(&self, of: &Pick, tokens: &[Uuid]) -> Result<Vec<Turn>, Error> {
        let mut again = false;
        with_connection!(self, "claim_best", |connection| {
            if std::mem::replace(&mut again, true) {
                let lost = "the reply of a claim by turn was lost";
                return Err(Fault::Final(Error::Unavailable(lost.into())));
            }
            let rows = self.best(connection, of, tokens).await?;
            Ok(turns(&rows, tokens))
        })
    }

    /// For one that was let down: it may have its job already.
    async fn pick_alone(&self, pick: &Pick) -> Result<Turn, Error> {
        with_connection!(self, "claim_best", |connection| {
            if let Some(turn) = self.taken_before(connection, pick).await? {
                return Ok(turn);
            }
            let tokens = [pick.token];
            let rows = self.best(connection, pick, &tokens).await?;
            Ok(turns(&rows, &tokens).pop().unwrap_or(Turn::Nothing))
        })
    }

    async fn best(
        &self,
        connection: &Object,
        pick: &Pick,
        tokens: &[Uuid],
    ) -> Result<Vec<Row>, Fault> {
        let connected_ms = self.connected_ms(connection);
        let statement = connection.prepare_cached(sql!("claim_best")).await?;
        let asked = Arguments::new(self, tokens, connected_ms, TAKE);
        by_kept_plan(connection, &statement, &asked.of(pick)).await
    }

    /// After a lost reply the job may be this worker's already.
    async fn taken_before(&self, connection: &Object, pick: &Pick) -> Result<Option<Turn>, Fault> {
        let taken = connection.prepare_cached(sql!("claimed_as")).await?;
        let taken = connection
            .query_opt(&taken, &[&pick.tools, &pick.token])
            .await?;
        let Some(taken) = taken else { return Ok(None) };
        let version = taken.get("tool_version");
        let again = ClaimRequest {
            id: TaskId::from_uuid(taken.get("id")),
            tool: taken.get("tool"),
            version,
            resumes: &[version],
            token: pick.token,
            worker: &pick.worker,
        };
        let statement = connection.prepare_cached(sql!("claim")).await?;
        let row = self
            .claim_named(connection, &statement, (&again, Limits::default(), 0))
            .await?;
        Ok(row.map(|row| Turn::Claimed {
            claim: Box::new(claim(&row, pick.token)),
            alone: false,
            priorities: true,
        }))
    }

    /// Takes the next job of one limited tool (the only one of the request), if it has a slot.
    ///
    /// # Errors
    /// When Postgres could not be asked.
    pub async fn claim_slot(&self, request: &TurnRequest<'_>) -> Result<Turn, Error> {
        let pick = Pick::new(request);
        let tokens = [pick.token];
        let mut again = false;
        let turn = with_connection!(self, "claim_slot", |connection| {
            if std::mem::replace(&mut again, true)
                && let Some(turn) = self.taken_before(connection, &pick).await?
            {
                return Ok(turn);
            }
            let connected_ms = self.connected_ms(connection);
            let transaction = connection.transaction().await?;
            let statement = transaction.prepare_cached(sql!("claim_best")).await?;
            // Before the lock, which is held for no longer than it must be.
            transaction.batch_execute(KEEP_PLAN).await?;
            for tool in &pick.tools {
                lock_slots(&transaction, tool).await?;
            }
            let asked = Arguments::new(self, &tokens, connected_ms, SURE);
            let rows = transaction.query(&statement, &asked.of(&pick)).await?;
            transaction.commit().await?;
            Ok(turns(&rows, &tokens).pop().unwrap_or(Turn::Nothing))
        })?;
        self.open_turn(turn).await
    }

    /// The job that gets the next slot of a limited tool, if there is a slot: for a hint, when one
    /// of its jobs has ended.
    ///
    /// # Errors
    /// When Postgres could not be asked; the reconcile sweep then finds the job.
    pub async fn next_waiting(&self, queue: &str, tool: &Served<'_>) -> Result<Waiting, Error> {
        let request = TurnRequest {
            queue,
            tools: std::slice::from_ref(tool),
            token: Uuid::nil(),
            worker: "",
            oldest_first: false,
        };
        let pick = Pick::new(&request);
        let tokens = [pick.token];
        with_connection!(self, "next_waiting", |connection| {
            let connected_ms = self.connected_ms(connection);
            let statement = connection.prepare_cached(sql!("claim_best")).await?;
            let asked = Arguments::new(self, &tokens, connected_ms, LOOK);
            let rows = by_kept_plan(connection, &statement, &asked.of(&pick)).await?;
            let Some(row) = rows.first() else {
                return Ok(Waiting::Nobody);
            };
            Ok(match row.get::<_, Option<Uuid>>("best_id") {
                Some(id) => Waiting::Next {
                    id: TaskId::from_uuid(id),
                    version: row.get("served_version"),
                },
                None if row.get("busy") => Waiting::Busy,
                None => Waiting::Nobody,
            })
        })
    }
}

/// Runs `claim_best.sql` by the plan that is made once, without regard to its arguments: one made anew costs
/// more than it finds, and what Postgres counted before a backlog misleads it. A transaction of its own, in
/// one round trip.
async fn by_kept_plan(
    connection: &Object,
    statement: &Statement,
    arguments: &[&(dyn ToSql + Sync)],
) -> Result<Vec<Row>, Fault> {
    let begin = format!("BEGIN; {KEEP_PLAN}");
    let (begun, rows, ended) = tokio::join!(
        connection.batch_execute(&begin),
        connection.query(statement, arguments),
        connection.batch_execute("COMMIT"),
    );
    begun?;
    let rows = rows?;
    ended?;
    Ok(rows)
}

fn hinted_by(row: &Row) -> Hinted {
    if row.get("named") {
        return Hinted::Named;
    }
    if row.get("gone") {
        return Hinted::Gone(row.get("queue"));
    }
    Hinted::Turn(row.get("queue"))
}

/// What became of those who asked with these tokens: whose job it is, its token says.
fn turns(rows: &[Row], tokens: &[Uuid]) -> Vec<Turn> {
    let mut limited = rows.iter().filter(|row| {
        row.get::<_, Option<Uuid>>("best_id").is_some()
            && row.get::<_, Option<Uuid>>("id").is_none()
    });
    let claimed = |token: &Uuid| {
        let mut rows = rows.iter();
        rows.find(|row| row.get::<_, Option<Uuid>>("claim_token") == Some(*token))
    };
    let busy = rows.first().is_some_and(|row| row.get("busy"));
    let turn = |token: &Uuid| match claimed(token) {
        Some(row) => Turn::Claimed {
            claim: Box::new(claim(row, *token)),
            alone: row.get("alone"),
            priorities: row.get("priorities"),
        },
        None => match limited.next() {
            Some(row) => Turn::Limited {
                tool: row.get("best_tool"),
                queue: row.get("best_queue"),
                alone: row.get("alone"),
                priorities: row.get("priorities"),
            },
            None if busy => Turn::Busy,
            None => Turn::Nothing,
        },
    };
    tokens.iter().map(turn).collect()
}
