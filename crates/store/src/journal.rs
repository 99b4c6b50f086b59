//! The step journal: nothing externally visible happens without being asked for here first.

use bytes::Bytes;
use uuid::Uuid;

use crate::claim::{Claim, Write};
use crate::pool::{sql, with_connection};
use crate::seal::{OVERHEAD, Place, RowKey};
use crate::{Error, Store};

/// What a journal entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum JournalKind {
    /// An externally visible act.
    Step,
    /// A question.
    Input,
    /// A result that a service sends later.
    Callback,
}

/// One entry of a task's journal, in the order in which they came to be.
#[derive(Clone, Debug)]
pub struct JournalEntry {
    /// What it is.
    pub kind: JournalKind,
    /// Its key, unique among the task's entries of this kind.
    pub key: String,
    /// Position; the questions of one round share it.
    pub seq: i32,
    /// Step: finished. Question: answered. Callback: received.
    pub done: bool,
    /// The step may be repeated.
    pub idempotent: bool,
    /// Output of a finished step, the answer, or what was received (JSON).
    pub value: Option<Bytes>,
    /// What the entry takes up: key, output and undo, or key, question and answer.
    pub bytes: i64,
}

/// A step about to begin.
#[derive(Clone, Copy, Debug)]
pub struct StepSpec<'a> {
    /// Unique in the task.
    pub key: &'a str,
    /// Position in the journal.
    pub seq: i32,
    /// May act again when its end is unknown.
    pub idempotent: bool,
    /// What takes it back, if the task does not complete.
    pub undo: Option<UndoSpec<'a>>,
}

/// How a finished step is undone.
#[derive(Clone, Copy, Debug)]
pub struct UndoSpec<'a> {
    /// What the tool needs to know to undo it (JSON).
    pub how: &'a [u8],
    /// Undoing may act again when its end is unknown.
    pub idempotent: bool,
}

/// Whether a step may act.
#[derive(Debug)]
pub enum Begin {
    /// It may, once; the permit is needed to finish it.
    Act(Permit),
    /// It began before and its end is unknown: it may have taken effect.
    InDoubt,
    /// It may not: a stop is requested, the task expired, or this attempt lost the task.
    Stop,
}

/// Permission to act once; given back by [`Store::finish_step`] or [`Store::abandon_step`].
#[derive(Debug)]
pub struct Permit {
    key: String,
    act: Uuid,
}

/// Where the output of a step stands.
pub(crate) fn output_of(key: &str) -> Place<'_> {
    let column = "steps.output";
    Place { column, key }
}

/// Where it stands how a step is undone.
pub(crate) fn undo_of(key: &str) -> Place<'_> {
    let column = "steps.undo";
    Place { column, key }
}

/// Where the answer to a question stands.
pub(crate) fn response_of(key: &str) -> Place<'_> {
    let column = "inputs.response";
    Place { column, key }
}

/// Where it stands what a service sent.
pub(crate) fn sent_of(key: &str) -> Place<'_> {
    let column = "callbacks.response";
    Place { column, key }
}

fn entry(sealed: &RowKey, row: &tokio_postgres::Row) -> Result<JournalEntry, Error> {
    let key: String = row.get("key");
    let value: Option<&[u8]> = row.get("value");
    let (kind, value) = match row.get::<_, &str>("kind") {
        "step" => (JournalKind::Step, sealed.open_some(output_of(&key), value)?),
        "callback" => (
            JournalKind::Callback,
            sealed.open_some(sent_of(&key), value)?,
        ),
        _ => (
            JournalKind::Input,
            sealed.open_some(response_of(&key), value)?,
        ),
    };
    // What sealing adds counts for nobody.
    let added = row.get::<_, i32>("sealed") * i32::try_from(OVERHEAD).unwrap_or_default();
    Ok(JournalEntry {
        kind,
        seq: row.get("seq"),
        done: row.get("done"),
        idempotent: row.get("idempotent"),
        value,
        bytes: row.get::<_, i64>("bytes") - i64::from(added),
        key,
    })
}

impl Store {
    /// The journal of a claimed task.
    ///
    /// # Errors
    /// When Postgres could not be asked.
    pub async fn journal(&self, claim: &Claim) -> Result<Vec<JournalEntry>, Error> {
        with_connection!(self, "journal", |connection| {
            let statement = connection.prepare_cached(sql!("journal")).await?;
            let rows = connection.query(&statement, &[&claim.id.as_uuid()]).await?;
            let entries = rows.iter().map(|row| entry(&claim.key, row));
            Ok(entries.collect::<Result<_, Error>>()?)
        })
    }

    /// Asks whether a step may act, and journals that it began.
    ///
    /// # Errors
    /// When Postgres could not be asked; the step must then not act.
    pub async fn begin_step(&self, claim: &Claim, step: StepSpec<'_>) -> Result<Begin, Error> {
        // Chosen before the first try: a repeat is the same act.
        let act = Uuid::new_v4();
        let undo = step.undo.map(|undo| undo.how);
        let undo = claim.key.seal_some(undo_of(step.key), undo)?;
        let undo = undo.as_deref();
        let undo_idempotent = step.undo.is_some_and(|undo| undo.idempotent);
        with_connection!(self, "begin_step", |connection| {
            let statement = connection.prepare_cached(sql!("begin_step")).await?;
            let row = connection
                .query_one(
                    &statement,
                    &[
                        &claim.id.as_uuid(),
                        &claim.attempt,
                        &claim.token,
                        &step.key,
                        &step.seq,
                        &act,
                        &step.idempotent,
                        &undo,
                        &undo_idempotent,
                    ],
                )
                .await?;
            Ok(
                match (row.get::<_, i64>("allowed"), row.get::<_, i64>("begun")) {
                    (0, _) => Begin::Stop,
                    (_, 0) => Begin::InDoubt,
                    _ => Begin::Act(Permit {
                        key: step.key.to_owned(),
                        act,
                    }),
                },
            )
        })
    }

    /// Keeps what a step put out (JSON), so that no replay acts again.
    ///
    /// # Errors
    /// When Postgres could not be asked; the step is then in doubt.
    pub async fn finish_step(
        &self,
        claim: &Claim,
        permit: Permit,
        output: &[u8],
    ) -> Result<Write, Error> {
        let output = &*claim.key.seal(output_of(&permit.key), output)?;
        with_connection!(self, "finish_step", |connection| {
            let statement = connection.prepare_cached(sql!("finish_step")).await?;
            let rows = connection
                .execute(
                    &statement,
                    &[
                        &claim.id.as_uuid(),
                        &claim.attempt,
                        &claim.token,
                        &permit.key,
                        &permit.act,
                        &output,
                    ],
                )
                .await?;
            if rows == 0 {
                self.metrics.fenced("finish_step");
            }
            Ok(Write::from_rows(rows))
        })
    }

    /// The act itself reported that it did not happen: as if it had never begun.
    ///
    /// # Errors
    /// When Postgres could not be asked; the step is then in doubt.
    pub async fn abandon_step(&self, claim: &Claim, permit: Permit) -> Result<Write, Error> {
        with_connection!(self, "abandon_step", |connection| {
            let statement = connection.prepare_cached(sql!("abandon_step")).await?;
            let rows = connection
                .execute(
                    &statement,
                    &[
                        &claim.id.as_uuid(),
                        &claim.attempt,
                        &claim.token,
                        &permit.key,
                        &permit.act,
                    ],
                )
                .await?;
            Ok(Write::from_rows(rows))
        })
    }
}
