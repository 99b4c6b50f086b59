//! Whose turn it is, where more waits than there are places.

use deadpool_postgres::Object;
use protocol::TaskId;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Row, Statement};
use uuid::Uuid;

use crate::claim::{Claim, ClaimRequest, claim, lock_slots};
use crate::error::Fault;
use crate::pool::{sql, with_connection};
use crate::{Error, Store, ToolPolicy};

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
    /// The job that a hint named: its queue is looked at.
    pub hint: Option<TaskId>,
    /// The queue, where no hint names one that is still there.
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
    },
    /// The next job is of this tool, whose slots are counted: ask again for it alone, by
    /// [`Store::claim_slot`].
    Limited {
        /// The tool.
        tool: String,
        /// The queue that its job waits in.
        queue: String,
    },
    /// The hinted job is to be undone, or its lease ran out: [`Store::claim`] it.
    Named,
    /// The hinted job does not wait (any more, or not yet): its hint leads nowhere, and nothing was taken.
    Gone,
    /// What could be taken is being taken by others, or not; nobody knows yet.
    Busy,
    /// There is nothing for this worker.
    Nothing,
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

/// What `claim_best.sql` does with the job that it finds.
const TAKE: &str = "take";
const SURE: &str = "sure";
const LOOK: &str = "look";

/// For one transaction.
const KEEP_PLAN: &str = "SET LOCAL plan_cache_mode = force_generic_plan";

/// The tools of a request as columns.
struct Columns<'a> {
    tools: Vec<&'a str>,
    versions: Vec<i32>,
    slots: Vec<Option<i32>>,
    slots_each: Vec<Option<i32>>,
    resume_tools: Vec<&'a str>,
    resume_versions: Vec<i32>,
}

impl<'a> Columns<'a> {
    fn new(served: &'a [Served<'a>]) -> Self {
        let resumes =
            |tool: &'a Served<'a>| tool.resumes.iter().map(|version| (tool.tool, *version));
        let (resume_tools, resume_versions) = served.iter().flat_map(resumes).unzip();
        Self {
            tools: served.iter().map(|tool| tool.tool).collect(),
            versions: served.iter().map(|tool| tool.version).collect(),
            slots: served.iter().map(|tool| tool.limits.slots()).collect(),
            slots_each: served.iter().map(|tool| tool.limits.slots_each()).collect(),
            resume_tools,
            resume_versions,
        }
    }
}

/// Where among the principals to begin to look.
fn anywhere() -> i64 {
    let (high, _) = Uuid::new_v4().as_u64_pair();
    // The version's four bits are always the same: these are not.
    i64::from_ne_bytes(high.rotate_left(16).to_ne_bytes())
}

impl Store {
    /// Takes the job whose turn it is: of the queue of the hinted one, by priority, and fairly
    /// between principals.
    ///
    /// # Errors
    /// When Postgres could not be asked.
    pub async fn claim_best(&self, request: &TurnRequest<'_>) -> Result<Turn, Error> {
        let columns = Columns::new(request.tools);
        let mut again = false;
        let turn = with_connection!(self, "claim_best", |connection| {
            if std::mem::replace(&mut again, true)
                && let Some(turn) = self.taken_before(connection, request).await?
            {
                return Ok(turn);
            }
            let connected_ms = self.connected_ms(connection);
            let statement = connection.prepare_cached(sql!("claim_best")).await?;
            let asked = Asked::new(self, request, connected_ms, TAKE);
            let arguments = asked.arguments(request, &columns);
            let row = by_kept_plan(connection, &statement, &arguments).await?;
            Ok(turn(&row, request.token))
        })?;
        self.open_turn(turn).await
    }

    /// After a lost reply the job may be this worker's already.
    async fn taken_before(
        &self,
        connection: &Object,
        request: &TurnRequest<'_>,
    ) -> Result<Option<Turn>, Fault> {
        let tools: Vec<&str> = request.tools.iter().map(|tool| tool.tool).collect();
        let taken = connection.prepare_cached(sql!("claimed_as")).await?;
        let taken = connection
            .query_opt(&taken, &[&tools, &request.token])
            .await?;
        let Some(taken) = taken else { return Ok(None) };
        let version = taken.get("tool_version");
        let again = ClaimRequest {
            id: TaskId::from_uuid(taken.get("id")),
            tool: taken.get("tool"),
            version,
            resumes: &[version],
            token: request.token,
            worker: request.worker,
        };
        let statement = connection.prepare_cached(sql!("claim")).await?;
        let row = self
            .claim_named(connection, &statement, (&again, Limits::default(), 0))
            .await?;
        Ok(row.map(|row| Turn::Claimed {
            claim: Box::new(claim(&row, request.token)),
            alone: false,
        }))
    }

    /// Takes the next job of one limited tool (the only one of the request), if it has a slot.
    ///
    /// # Errors
    /// When Postgres could not be asked.
    pub async fn claim_slot(&self, request: &TurnRequest<'_>) -> Result<Turn, Error> {
        let columns = Columns::new(request.tools);
        let mut again = false;
        let turn = with_connection!(self, "claim_slot", |connection| {
            if std::mem::replace(&mut again, true)
                && let Some(turn) = self.taken_before(connection, request).await?
            {
                return Ok(turn);
            }
            let connected_ms = self.connected_ms(connection);
            let transaction = connection.transaction().await?;
            let statement = transaction.prepare_cached(sql!("claim_best")).await?;
            // Before the lock, which is held for no longer than it must be.
            transaction.batch_execute(KEEP_PLAN).await?;
            for tool in &columns.tools {
                lock_slots(&transaction, tool).await?;
            }
            let asked = Asked::new(self, request, connected_ms, SURE);
            let row = transaction
                .query_one(&statement, &asked.arguments(request, &columns))
                .await?;
            transaction.commit().await?;
            Ok(turn(&row, request.token))
        })?;
        self.open_turn(turn).await
    }

    /// The job that gets the next slot of a limited tool, if there is a slot: for a hint, when one
    /// of its jobs has ended.
    ///
    /// # Errors
    /// When Postgres could not be asked; the reconcile sweep then finds the job.
    pub async fn next_waiting(&self, queue: &str, tool: &Served<'_>) -> Result<Waiting, Error> {
        let tools = std::slice::from_ref(tool);
        let columns = Columns::new(tools);
        let request = TurnRequest {
            hint: None,
            queue,
            tools,
            token: Uuid::nil(),
            worker: "",
            oldest_first: false,
        };
        with_connection!(self, "next_waiting", |connection| {
            let connected_ms = self.connected_ms(connection);
            let statement = connection.prepare_cached(sql!("claim_best")).await?;
            let asked = Asked::new(self, &request, connected_ms, LOOK);
            let arguments = asked.arguments(&request, &columns);
            let row = by_kept_plan(connection, &statement, &arguments).await?;
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
) -> Result<Row, Fault> {
    let begin = format!("BEGIN; {KEEP_PLAN}");
    let (begun, row, ended) = tokio::join!(
        connection.batch_execute(&begin),
        connection.query_one(statement, arguments),
        connection.batch_execute("COMMIT"),
    );
    begun?;
    let row = row?;
    ended?;
    Ok(row)
}

/// The other arguments of `claim_best.sql`.
struct Asked {
    hint: Option<Uuid>,
    lease_ms: i64,
    grace_ms: i64,
    connected_ms: i64,
    start: i64,
    mode: &'static str,
}

impl Asked {
    fn new(
        store: &Store,
        request: &TurnRequest<'_>,
        connected_ms: i64,
        mode: &'static str,
    ) -> Self {
        Self {
            hint: request.hint.map(|id| *id.as_uuid()),
            lease_ms: store.config.lease_ms(),
            grace_ms: store.config.lease_grace_ms(),
            connected_ms,
            start: anywhere(),
            mode,
        }
    }

    fn arguments<'a>(
        &'a self,
        request: &'a TurnRequest<'_>,
        columns: &'a Columns<'_>,
    ) -> [&'a (dyn ToSql + Sync); 16] {
        [
            &self.hint,
            &request.queue,
            &columns.tools,
            &columns.versions,
            &columns.slots,
            &columns.slots_each,
            &columns.resume_tools,
            &columns.resume_versions,
            &request.token,
            &self.lease_ms,
            &self.grace_ms,
            &self.connected_ms,
            &request.worker,
            &self.start,
            &request.oldest_first,
            &self.mode,
        ]
    }
}

fn turn(row: &Row, token: Uuid) -> Turn {
    if row.get::<_, Option<Uuid>>("id").is_some() {
        return Turn::Claimed {
            claim: Box::new(claim(row, token)),
            alone: row.get("alone"),
        };
    }
    if row.get("named") {
        return Turn::Named;
    }
    if row.get("gone") {
        return Turn::Gone;
    }
    let tool: Option<String> = row.get("best_tool");
    match tool {
        Some(tool) => Turn::Limited {
            tool,
            queue: row.get("best_queue"),
        },
        None if row.get("busy") => Turn::Busy,
        None => Turn::Nothing,
    }
}
