//! Claims: who owns a job, and for how long.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use deadpool_postgres::{GenericClient, Object, Transaction};
use protocol::TaskId;
use tokio_postgres::{Row, Statement};
use uuid::Uuid;

use crate::config::{ms, text};
use crate::error::Fault;
use crate::keyring::Wrapped;
use crate::pool::{sql, with_connection};
use crate::seal::RowKey;
use crate::task::{Principal, StopReason};
use crate::{Error, Limits, Store, row};

/// What a worker asks for.
#[derive(Clone, Debug)]
pub struct ClaimRequest<'a> {
    /// The job a hint named.
    pub id: TaskId,
    /// The tool the worker would run it with.
    pub tool: &'a str,
    /// The version of that tool which the worker serves.
    pub version: i32,
    /// Versions whose journals it can resume; its own among them.
    pub resumes: &'a [i32],
    /// The fencing token, chosen by the worker: a repeat of the same request is the same claim.
    pub token: Uuid,
    /// The worker, for operators.
    pub worker: &'a str,
}

/// The same, whoever asks: of a tool without limits.
#[derive(Debug)]
pub(crate) struct Due {
    id: TaskId,
    tool: String,
    version: i32,
    token: Uuid,
    worker: String,
}

impl Due {
    fn of(request: &ClaimRequest<'_>) -> Self {
        Self {
            id: request.id,
            tool: request.tool.to_owned(),
            version: request.version,
            token: request.token,
            worker: request.worker.to_owned(),
        }
    }
}

/// Proof of owning one attempt of a job. Only [`Store::claim`] makes one, and every write of
/// an attempt needs it: an unfenced write does not compile (I3).
#[derive(Debug)]
pub struct Claim {
    pub(crate) id: TaskId,
    pub(crate) attempt: i32,
    pub(crate) token: Uuid,
    /// The owner of the task.
    pub principal: Principal,
    /// The queue that it waited in.
    pub queue: String,
    /// Name of the tool.
    pub tool: String,
    /// Version of the tool: pinned once the journal has an entry.
    pub tool_version: i32,
    /// Tries spent before this one (losses and retryable errors, never resumptions).
    pub tries: i32,
    /// Tries there are.
    pub tries_max: i32,
    /// Arguments (JSON object).
    pub arguments: Bytes,
    /// Client capabilities of the creating call (JSON object).
    pub client_capabilities: Bytes,
    /// Answers that came with the creating call (JSON object).
    pub offered_responses: Option<Bytes>,
    /// Trace context of the creating call (JSON object).
    pub trace_context: Option<Bytes>,
    /// The journal has entries: read it before running.
    pub journaled: bool,
    /// A step that an earlier attempt began and did not finish.
    pub open_step: Option<String>,
    /// Nothing is run: what finished steps did is to be undone.
    pub undoing: bool,
    /// A handle is out: questions are asked as a task.
    pub handed_out: bool,
    /// What the work last said of itself.
    pub status_message: Option<String>,
    /// What is left of the tool's work limit.
    pub work_left: Duration,
    /// How long the job was due before it was claimed.
    pub waited: Duration,
    /// How long ago the task was created when it was claimed, by Postgres' clock.
    pub age: Duration,
    /// The key that its contents are sealed with, until they are opened.
    pub(crate) sealed: Option<Arc<Wrapped>>,
    /// The key that everything of this attempt is sealed with.
    pub(crate) key: RowKey,
}

impl Claim {
    /// The task.
    #[must_use]
    pub fn id(&self) -> TaskId {
        self.id
    }

    /// Which attempt this is, from 1.
    #[must_use]
    pub fn attempt(&self) -> i32 {
        self.attempt
    }
}

/// What became of a fenced write.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// Written.
    Done,
    /// Not written: this attempt no longer owns the task, or the task is in no state for it.
    Lost,
}

impl Write {
    pub(crate) fn from_rows(rows: u64) -> Self {
        if rows == 0 { Self::Lost } else { Self::Done }
    }
}

/// What became of an attempt's end that is no result.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Written; the task is over.
    Done,
    /// Written; what finished steps did is undone before the task is over: push a hint.
    Undoing,
    /// Not written: this attempt no longer owns the task, or the task is in no state for it.
    Lost,
}

impl Ended {
    pub(crate) fn new(undoing: bool) -> Self {
        if undoing { Self::Undoing } else { Self::Done }
    }

    /// By what an earlier try of the same owner left, if `over` says that it was the same end.
    pub(crate) fn repeated(row: Option<&Repeated>, over: impl Fn(&Repeated) -> bool) -> Self {
        match row {
            Some(row) if row.phase.as_deref() == Some("undoing") => Self::Undoing,
            Some(row) if over(row) => Self::Done,
            _ => Self::Lost,
        }
    }
}

/// What a heartbeat says of one job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beat {
    /// The job.
    pub id: TaskId,
    /// It is to be stopped, for this reason.
    pub stop: Option<StopReason>,
}

/// What the row of this attempt says after a fenced write found nothing to do. `None`: the
/// attempt no longer owns it. A statement of its own, so that it sees what the write waited for.
pub(crate) struct Repeated {
    pub(crate) status: String,
    pub(crate) phase: Option<String>,
    /// From its creation to its end, or until now.
    pub(crate) age: Duration,
}

/// `write`: the operation that found nothing to do, for counting.
pub(crate) async fn repeated(
    (store, write): (&Store, &str),
    connection: &Object,
    claim: &Claim,
) -> Result<Option<Repeated>, Fault> {
    let statement = connection.prepare_cached(sql!("repeated")).await?;
    let row = connection
        .query_opt(
            &statement,
            &[&claim.id.as_uuid(), &claim.attempt, &claim.token],
        )
        .await?;
    if row.is_none() {
        store.metrics.fenced(write);
    }
    Ok(row.map(|row| Repeated {
        status: row.get("status"),
        phase: row.get("phase"),
        age: millis(row.get("age_ms")),
    }))
}

pub(crate) fn millis(value: i64) -> Duration {
    Duration::from_millis(u64::try_from(value).unwrap_or(0))
}

pub(crate) fn claim(row: &Row, token: Uuid) -> Claim {
    Claim {
        id: TaskId::from_uuid(row.get("id")),
        attempt: row.get("attempt"),
        token,
        principal: Principal::verified(row.get("issuer"), row.get("subject"), row.get("tenant")),
        queue: row.get("queue"),
        tool: row.get("tool"),
        tool_version: row.get("tool_version"),
        tries: row.get("tries"),
        tries_max: row.get("tries_max"),
        arguments: row::bytes(row, "arguments").unwrap_or_default(),
        client_capabilities: row::bytes(row, "client_capabilities").unwrap_or_default(),
        offered_responses: row::bytes(row, "offered_responses"),
        trace_context: row::bytes(row, "trace_context"),
        journaled: row.get("journaled"),
        open_step: row.get("open_step"),
        undoing: row.get("undoing"),
        handed_out: row.get("handed_out"),
        status_message: row.get("status_message"),
        work_left: millis(row.get("work_ms_left")),
        waited: millis(row.get("waited_ms")),
        age: millis(row.get("age_ms")),
        sealed: row::sealed(row),
        key: RowKey::Clear,
    }
}

/// Nobody else counts this tool's running jobs and adds one, until the transaction is over.
pub(crate) async fn lock_slots(transaction: &Transaction<'_>, tool: &str) -> Result<(), Fault> {
    let lock = transaction.prepare_cached(sql!("lock_slots")).await?;
    transaction.execute(&lock, &[&tool]).await?;
    Ok(())
}

impl Store {
    /// Takes the job if it is due and nobody owns it, or if its owner's lease ran out. `None`:
    /// nothing to do for this worker; drop the hint.
    ///
    /// # Errors
    /// When Postgres could not be asked.
    pub async fn claim(&self, request: &ClaimRequest<'_>) -> Result<Option<Claim>, Error> {
        self.claim_limited(request, Limits::default()).await
    }

    /// The same, unless as many jobs of the tool run already as may. `None` may mean that: whoever
    /// ends one looks who is next.
    ///
    /// # Errors
    /// As [`Store::claim`].
    pub async fn claim_limited(
        &self,
        request: &ClaimRequest<'_>,
        limits: Limits,
    ) -> Result<Option<Claim>, Error> {
        match self.claim_sealed(request, limits).await? {
            Some(claim) => self.open_claim(claim).await,
            None => Ok(None),
        }
    }

    async fn claim_sealed(
        &self,
        request: &ClaimRequest<'_>,
        limits: Limits,
    ) -> Result<Option<Claim>, Error> {
        let started = Instant::now();
        if limits.are_none() {
            let due = Arc::new(Due::of(request));
            let together = self.together("claim_queued", &self.together.claims, due, async |due| {
                self.claim_queued(&due).await
            });
            if let Some(Some(claim)) = together.await? {
                return Ok(Some(claim));
            }
        }
        self.with_wait(self.time_left(started))
            .claim_alone(request, limits)
            .await
    }

    /// Takes those jobs that are plainly due; the answers are in the order of the requests.
    async fn claim_queued(&self, due: &[Arc<Due>]) -> Result<Vec<Option<Claim>>, Error> {
        let ids: Vec<_> = due.iter().map(|due| due.id.as_uuid()).collect();
        let tools: Vec<&str> = due.iter().map(|due| due.tool.as_str()).collect();
        let versions: Vec<i32> = due.iter().map(|due| due.version).collect();
        let tokens: Vec<Uuid> = due.iter().map(|due| due.token).collect();
        let workers: Vec<&str> = due.iter().map(|due| due.worker.as_str()).collect();
        let lease_ms = self.config.lease_ms();
        with_connection!(self, "claim_queued", |connection| {
            let claim_queued = match due {
                [_] => sql!("claim_one"),
                _ => sql!("claim_queued"),
            };
            let statement = connection.prepare_cached(claim_queued).await?;
            let rows = connection
                .query(
                    &statement,
                    &[&ids, &tools, &versions, &tokens, &workers, &lease_ms],
                )
                .await?;
            let mut claims: HashMap<Uuid, Claim> = HashMap::with_capacity(rows.len());
            for row in &rows {
                let token = row.get("claim_token");
                claims.insert(token, claim(row, token));
            }
            Ok(due.iter().map(|due| claims.remove(&due.token)).collect())
        })
    }

    async fn claim_alone(
        &self,
        request: &ClaimRequest<'_>,
        limits: Limits,
    ) -> Result<Option<Claim>, Error> {
        with_connection!(self, "claim", |connection| {
            let connected_ms = self.connected_ms(connection);
            let row = if limits.are_none() {
                let statement = connection.prepare_cached(sql!("claim")).await?;
                self.claim_named(&*connection, &statement, (request, limits, connected_ms))
                    .await?
            } else {
                let transaction = connection.transaction().await?;
                lock_slots(&transaction, request.tool).await?;
                let statement = transaction.prepare_cached(sql!("claim")).await?;
                let row = self
                    .claim_named(&transaction, &statement, (request, limits, connected_ms))
                    .await?;
                transaction.commit().await?;
                row
            };
            if row.as_ref().is_some_and(|row| row.get("taken_over")) {
                self.metrics.lease_ran_out(request.tool);
            }
            Ok(row.map(|row| claim(&row, request.token)))
        })
    }

    pub(crate) async fn claim_named(
        &self,
        client: &impl GenericClient,
        statement: &Statement,
        (request, limits, connected_ms): (&ClaimRequest<'_>, Limits, i64),
    ) -> Result<Option<Row>, tokio_postgres::Error> {
        let (lease_ms, grace_ms) = (self.config.lease_ms(), self.config.lease_grace_ms());
        client
            .query_opt(
                statement,
                &[
                    &request.id.as_uuid(),
                    &request.tool,
                    &request.version,
                    &request.resumes,
                    &request.token,
                    &lease_ms,
                    &grace_ms,
                    &connected_ms,
                    &request.worker,
                    &limits.slots(),
                    &limits.slots_each(),
                ],
            )
            .await
    }

    /// Extends the leases of all given jobs. A job missing from the answer is lost.
    ///
    /// # Errors
    /// When Postgres could not be asked; the leases then run out by themselves.
    pub async fn heartbeat<'a>(
        &self,
        claims: impl IntoIterator<Item = &'a Claim>,
    ) -> Result<Vec<Beat>, Error> {
        let (mut ids, mut attempts, mut tokens) = (Vec::new(), Vec::new(), Vec::new());
        for claim in claims {
            ids.push(claim.id.as_uuid());
            attempts.push(claim.attempt);
            tokens.push(claim.token);
        }
        let lease_ms = self.config.lease_ms();
        with_connection!(self, "heartbeat", |connection| {
            let statement = connection.prepare_cached(sql!("heartbeat")).await?;
            let rows = connection
                .query(&statement, &[&ids, &attempts, &tokens, &lease_ms])
                .await?;
            Ok(rows
                .iter()
                .map(|row| Beat {
                    id: TaskId::from_uuid(row.get("id")),
                    stop: row
                        .get::<_, Option<&str>>("stop_reason")
                        .and_then(StopReason::parse),
                })
                .collect())
        })
    }

    /// Hands the job back to the queue without spending a try (a drained worker). `worked` is
    /// added to the work done so far.
    ///
    /// # Errors
    /// When Postgres could not be asked; repeating is safe, else the lease runs out by itself.
    pub async fn release(
        &self,
        claim: &Claim,
        hint_epoch: Option<&str>,
        worked: Duration,
    ) -> Result<Write, Error> {
        let worked_ms = ms(worked);
        with_connection!(self, "release", |connection| {
            let statement = connection.prepare_cached(sql!("release")).await?;
            let rows = connection
                .execute(
                    &statement,
                    &[
                        &claim.id.as_uuid(),
                        &claim.attempt,
                        &claim.token,
                        &hint_epoch,
                        &worked_ms,
                    ],
                )
                .await?;
            if rows > 0 {
                return Ok(Write::Done);
            }
            let before = repeated((self, "release"), connection, claim).await?;
            let back = before
                .is_some_and(|row| matches!(row.phase.as_deref(), Some("queued" | "undoing")));
            Ok(Write::from_rows(back.into()))
        })
    }

    /// Sets the status message.
    ///
    /// # Errors
    /// When Postgres could not be asked.
    pub async fn progress(&self, claim: &Claim, message: &str) -> Result<Write, Error> {
        let message = text(message);
        let message = claim.key.seal_text("tasks.status_message", &message);
        with_connection!(self, "progress", |connection| {
            let statement = connection.prepare_cached(sql!("progress")).await?;
            let rows = connection
                .execute(
                    &statement,
                    &[&claim.id.as_uuid(), &claim.attempt, &claim.token, &message],
                )
                .await?;
            Ok(Write::from_rows(rows))
        })
    }
}
