//! Questions: park until they are answered, and resume by the transaction that stores the
//! last answer.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use deadpool_postgres::Transaction;
use protocol::TaskId;
use serde_json::value::RawValue;

use crate::claim::{Claim, Write, repeated};
use crate::config::ms;
use crate::delegate;
use crate::error::Fault;
use crate::journal::response_of;
use crate::opened::REQUESTS;
use crate::pool::{sql, with_connection};
use crate::seal::{Place, RowKey};
use crate::task::{ParkedFor, Principal, StopReason};
use crate::{Error, Lookup, Store};

/// One question of a task.
#[derive(Clone, Debug)]
pub struct Question {
    /// Never used twice in the task's life.
    pub key: String,
    /// Position in the journal; the questions of one round share it.
    pub seq: i32,
    /// The request (JSON: `{method, params}`).
    pub request: Bytes,
    /// What stands for an answer when the deadline passes (JSON).
    pub default_response: Option<Bytes>,
    /// How long it may wait.
    pub wait: Duration,
}

/// Whether a job may end to wait for answers.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parked {
    /// It waits now; the attempt is over.
    Parked,
    /// Refused: a stop is requested, the task expired, or this attempt lost the task.
    Stop,
}

/// What came of answers.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// The last question is answered; the task is queued: push a hint.
    Resumed {
        /// The task's tool, for the hint.
        tool: String,
        /// The task's version, for the hint.
        version: i32,
    },
    /// Stored; other questions are open.
    Waiting,
    /// Nothing to store: no key was outstanding.
    Ignored,
    /// One answer does not fit its question; nothing was stored.
    Malformed {
        /// Which.
        key: String,
        /// Why.
        problem: String,
    },
    /// The task is gone; `None` = the caller has no such task.
    Gone(Option<Lookup>),
}

/// Where a question stands.
fn request_of(key: &str) -> Place<'_> {
    let column = "inputs.request";
    Place { column, key }
}

/// Where it stands what stands for an answer.
fn default_of(key: &str) -> Place<'_> {
    let column = "inputs.default_response";
    Place { column, key }
}

struct Outstanding {
    key: String,
    request: Bytes,
    default_response: Option<Bytes>,
    overdue: bool,
}

/// `{"key": request, …}` of stored requests, byte for byte.
fn requests_object<'a>(requests: impl Iterator<Item = (&'a str, &'a [u8])>) -> Vec<u8> {
    let mut object = vec![b'{'];
    for (key, request) in requests {
        if object.len() > 1 {
            object.push(b',');
        }
        let key = serde_json::to_string(key).expect("a string is always JSON");
        object.extend_from_slice(key.as_bytes());
        object.push(b':');
        object.extend_from_slice(request);
    }
    object.push(b'}');
    object
}

impl Store {
    /// Ends the attempt to wait for answers.
    ///
    /// # Errors
    /// When Postgres could not be asked; repeating is safe.
    pub async fn park(
        &self,
        claim: &Claim,
        parked_for: ParkedFor,
        questions: &[Question],
        worked: Duration,
    ) -> Result<Parked, Error> {
        if questions.is_empty() {
            return Err(Error::Bug("a task cannot wait for no question".into()));
        }
        let object = requests_object(questions.iter().map(|q| (q.key.as_str(), &q.request[..])));
        let object = &*claim.key.seal(REQUESTS, &object)?;
        let sealed = questions.iter().map(|question| {
            let request = claim
                .key
                .seal(request_of(&question.key), &question.request)?;
            let default = question.default_response.as_deref();
            let default = claim.key.seal_some(default_of(&question.key), default)?;
            Ok((request, default))
        });
        let sealed = sealed.collect::<Result<Vec<_>, Error>>()?;
        let keys: Vec<&str> = questions.iter().map(|q| q.key.as_str()).collect();
        let seqs: Vec<i32> = questions.iter().map(|q| q.seq).collect();
        let requests: Vec<&[u8]> = sealed.iter().map(|(request, _)| &**request).collect();
        let defaults: Vec<Option<&[u8]>> = sealed
            .iter()
            .map(|(_, default)| default.as_deref())
            .collect();
        let waits: Vec<i64> = questions.iter().map(|q| ms(q.wait)).collect();
        let (parked_for, worked_ms) = (parked_for.as_str(), ms(worked));
        with_connection!(self, "park", |connection| {
            let statement = connection.prepare_cached(sql!("park")).await?;
            let parked = connection
                .query_opt(
                    &statement,
                    &[
                        &claim.id.as_uuid(),
                        &claim.attempt,
                        &claim.token,
                        &parked_for,
                        &object,
                        &keys,
                        &seqs,
                        &requests,
                        &defaults,
                        &waits,
                        &worked_ms,
                    ],
                )
                .await?;
            if parked.is_some() {
                return Ok(Parked::Parked);
            }
            // Queued: it was parked by the first try, and answered before this one.
            let before = repeated((self, "park"), connection, claim).await?;
            let before = before.and_then(|row| row.phase);
            Ok(match before.as_deref() {
                Some("parked" | "queued") => Parked::Parked,
                _ => Parked::Stop,
            })
        })
    }

    /// Journals an answer that needs no waiting: it came with the call, or it is the default
    /// of a question that this client cannot be asked.
    ///
    /// # Errors
    /// When Postgres could not be asked; repeating is safe.
    pub async fn record_answer(
        &self,
        claim: &Claim,
        question: &Question,
        response: &[u8],
        answered_by: &str,
    ) -> Result<Write, Error> {
        let request = &*claim
            .key
            .seal(request_of(&question.key), &question.request)?;
        let response = &*claim.key.seal(response_of(&question.key), response)?;
        with_connection!(self, "record_answer", |connection| {
            let statement = connection.prepare_cached(sql!("record_answer")).await?;
            let rows = connection
                .query(
                    &statement,
                    &[
                        &claim.id.as_uuid(),
                        &claim.attempt,
                        &claim.token,
                        &question.key,
                        &question.seq,
                        &request,
                        &response,
                        &answered_by,
                    ],
                )
                .await?;
            Ok(Write::from_rows(rows.len() as u64))
        })
    }

    /// Stores the owner's answers: the first to a key wins, unknown and answered keys are
    /// ignored, and one that does not fit its question refuses them all. `hint_epoch` is the
    /// epoch under which the caller will push the hint when the task resumes.
    ///
    /// # Errors
    /// When Postgres could not be asked; repeating is safe.
    pub async fn answer(
        &self,
        principal: &Principal,
        id: TaskId,
        responses: &BTreeMap<String, Box<RawValue>>,
        hint_epoch: Option<&str>,
    ) -> Result<Answer, Error> {
        self.answer_within(None, (principal, id), responses, hint_epoch)
            .await
    }

    /// Answers by the owner, or by anybody of this tenant.
    pub(crate) async fn answer_within(
        &self,
        tenant: Option<&str>,
        (principal, id): (&Principal, TaskId),
        responses: &BTreeMap<String, Box<RawValue>>,
        hint_epoch: Option<&str>,
    ) -> Result<Answer, Error> {
        with_connection!(self, "answer", |connection| {
            let transaction = connection.transaction().await?;
            let Some(locked) = delegate::lock(&transaction, tenant, principal, id).await? else {
                return Ok(Answer::Gone(
                    crate::read::tombstone(&transaction, principal, id).await?,
                ));
            };
            let parked = locked.get::<_, Option<&str>>("phase") == Some("parked");
            // A task that stops, or that no step may run for any more, has no use for answers.
            if !parked || locked.get("stopping") {
                return Ok(Answer::Ignored);
            }
            let key = self.keys.of(id, &locked);
            let outstanding = outstanding(&transaction, &key, id).await?;
            let mut answered: Vec<(&str, &[u8])> = Vec::new();
            for question in &outstanding {
                let Some(response) = responses.get(&question.key) else {
                    continue;
                };
                if let Err(problem) = fits(&question.request, response) {
                    return Ok(Answer::Malformed {
                        key: question.key.clone(),
                        problem,
                    });
                }
                answered.push((&question.key, response.get().as_bytes()));
            }
            if answered.is_empty() {
                return Ok(Answer::Ignored);
            }
            let is_own = locked.get("own");
            let left = apply(
                &transaction,
                (&key, id),
                &outstanding,
                &answered,
                if is_own { "owner" } else { "tenant" },
                hint_epoch,
            )
            .await?;
            if !is_own {
                let keys: Vec<&str> = answered.iter().map(|(key, _)| *key).collect();
                delegate::record(&transaction, principal, id, &keys).await?;
            }
            transaction.commit().await?;
            Ok(if left == 0 {
                Answer::Resumed {
                    tool: locked.get("tool"),
                    version: locked.get("tool_version"),
                }
            } else {
                Answer::Waiting
            })
        })
    }

    /// Ends the wait of the next parked task after `after` whose question's deadline passed:
    /// by its default, or by a stop that says which question went unanswered. `None` when
    /// there is no such task.
    ///
    /// # Errors
    /// When Postgres could not be asked; repeating is safe.
    pub async fn fail_unanswered(&self, after: Option<TaskId>) -> Result<Option<TaskId>, Error> {
        let mut after = after;
        loop {
            let Some(id) = self.unanswered(after).await? else {
                return Ok(None);
            };
            match self.fail_one_unanswered(id).await {
                Ok(true) => return Ok(Some(id)),
                // Answered, or being answered, since it was found.
                Ok(false) => {}
                Err(error) => self.leave_out(id, error)?,
            }
            after = Some(id);
        }
    }

    /// The next task after `after` whose question's deadline passed.
    async fn unanswered(&self, after: Option<TaskId>) -> Result<Option<TaskId>, Error> {
        let after = after.map_or_else(uuid::Uuid::nil, |id| *id.as_uuid());
        with_connection!(self, "unanswered", |connection| {
            let statement = connection.prepare_cached(sql!("unanswered")).await?;
            let found = connection.query_opt(&statement, &[&after]).await?;
            Ok(found.map(|row| TaskId::from_uuid(row.get("id"))))
        })
    }

    async fn fail_one_unanswered(&self, id: TaskId) -> Result<bool, Error> {
        with_connection!(self, "fail_unanswered", |connection| {
            let transaction = connection.transaction().await?;
            let lock = transaction.prepare_cached(sql!("lock_unanswered")).await?;
            let locked = transaction.query_opt(&lock, &[&id.as_uuid()]).await?;
            let Some(locked) = locked else {
                return Ok(false);
            };
            let key = self.keys.of(id, &locked);
            let outstanding = outstanding(&transaction, &key, id).await?;
            let overdue = outstanding.iter().filter(|q| q.overdue);
            let unanswered = overdue.clone().find(|q| q.default_response.is_none());
            if let Some(question) = unanswered {
                let detail = format!("question \"{}\" went unanswered", question.key);
                let stop = transaction.prepare_cached(sql!("request_stop")).await?;
                let reason = StopReason::InputDeadline.as_str();
                transaction
                    .execute(&stop, &[&id.as_uuid(), &reason, &detail])
                    .await?;
            } else {
                let answered: Vec<(&str, &[u8])> = overdue
                    .filter_map(|q| Some((q.key.as_str(), q.default_response.as_deref()?)))
                    .collect();
                if !answered.is_empty() {
                    let task = (&key, id);
                    apply(&transaction, task, &outstanding, &answered, "default", None).await?;
                }
            }
            transaction.commit().await?;
            Ok(true)
        })
    }
}

fn fits(request: &[u8], response: &RawValue) -> Result<(), String> {
    let request: &RawValue =
        serde_json::from_slice(request).map_err(|e| format!("the question cannot be read: {e}"))?;
    protocol::input::validate_response(request, response)
}

async fn outstanding(
    transaction: &Transaction<'_>,
    sealed: &RowKey,
    id: TaskId,
) -> Result<Vec<Outstanding>, Fault> {
    let statement = transaction.prepare_cached(sql!("outstanding")).await?;
    let rows = transaction.query(&statement, &[&id.as_uuid()]).await?;
    let questions = rows.iter().map(|row| {
        let key: String = row.get("key");
        Ok(Outstanding {
            request: sealed.open(request_of(&key), row.get("request"))?,
            default_response: sealed.open_some(default_of(&key), row.get("default_response"))?,
            overdue: row.get("overdue"),
            key,
        })
    });
    Ok(questions.collect::<Result<_, Error>>()?)
}

/// The request, or sweep, that lets a task go on: the next attempt is linked to it.
pub(crate) fn answering() -> Option<String> {
    let context = telemetry::TraceContext {
        baggage: None,
        ..telemetry::traces::current_context()
    };
    context.to_json()
}

/// Stores answers under the row lock and says how many questions are left.
async fn apply(
    transaction: &Transaction<'_>,
    (sealed, id): (&RowKey, TaskId),
    outstanding: &[Outstanding],
    answered: &[(&str, &[u8])],
    answered_by: &str,
    hint_epoch: Option<&str>,
) -> Result<usize, Fault> {
    let keys: Vec<&str> = answered.iter().map(|(key, _)| *key).collect();
    let values = answered
        .iter()
        .map(|(key, value)| sealed.seal(response_of(key), value));
    let values = values.collect::<Result<Vec<_>, Error>>()?;
    let values: Vec<&[u8]> = values.iter().map(|value| &**value).collect();
    let store = transaction.prepare_cached(sql!("store_answers")).await?;
    transaction
        .execute(&store, &[&id.as_uuid(), &keys, &values, &answered_by])
        .await?;
    let left: Vec<&Outstanding> = outstanding
        .iter()
        .filter(|q| !keys.contains(&q.key.as_str()))
        .collect();
    if left.is_empty() {
        let resume = transaction.prepare_cached(sql!("resume")).await?;
        transaction
            .execute(&resume, &[&id.as_uuid(), &hint_epoch, &answering()])
            .await?;
    } else {
        let object = requests_object(left.iter().map(|q| (q.key.as_str(), &q.request[..])));
        let object = &*sealed.seal(REQUESTS, &object)?;
        let keep = transaction.prepare_cached(sql!("keep_waiting")).await?;
        transaction
            .execute(&keep, &[&id.as_uuid(), &object])
            .await?;
    }
    Ok(left.len())
}
