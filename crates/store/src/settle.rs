//! How an attempt ends: with a result, with an error, or with another try.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use deadpool_postgres::Object;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::claim::{Claim, Ended, Write, millis, repeated};
use crate::config::{ms, text};
use crate::opened::RESULT;
use crate::pool::{sql, with_connection};
use crate::{Error, Store};

/// Of why an attempt ended, in its history.
const REASON_CHARS_MAX: usize = 200;

/// A result on its way to its row.
#[derive(Debug)]
pub(crate) struct Finished {
    id: Uuid,
    attempt: i32,
    token: Uuid,
    result: Bytes,
    worked_ms: i64,
    is_error: bool,
}

impl Finished {
    /// What of it may be long.
    pub(crate) fn bytes(&self) -> usize {
        self.result.len()
    }
}

async fn complete(
    connection: &Object,
    results: &[Arc<Finished>],
) -> Result<Vec<Row>, tokio_postgres::Error> {
    let ids: Vec<Uuid> = results.iter().map(|result| result.id).collect();
    let attempts: Vec<i32> = results.iter().map(|result| result.attempt).collect();
    let tokens: Vec<Uuid> = results.iter().map(|result| result.token).collect();
    let bytes: Vec<&[u8]> = results.iter().map(|result| &result.result[..]).collect();
    let worked: Vec<i64> = results.iter().map(|result| result.worked_ms).collect();
    let errors: Vec<bool> = results.iter().map(|result| result.is_error).collect();
    let complete = match results {
        [_] => sql!("complete_one"),
        _ => sql!("complete"),
    };
    let statement = connection.prepare_cached(complete).await?;
    connection
        .query(
            &statement,
            &[&ids, &attempts, &tokens, &bytes, &worked, &errors],
        )
        .await
}

impl Store {
    /// Writes the result (JSON), once. Results that meet share a commit.
    ///
    /// # Errors
    /// When Postgres could not be asked; repeating is safe.
    pub async fn complete(
        &self,
        claim: &Claim,
        result: &[u8],
        worked: Duration,
    ) -> Result<Write, Error> {
        let started = Instant::now();
        let sealed = claim.key.seal(RESULT, result)?.into_owned().into();
        let finished = Arc::new(Finished {
            id: *claim.id.as_uuid(),
            attempt: claim.attempt,
            token: claim.token,
            result: sealed,
            worked_ms: ms(worked),
            is_error: says_error(result),
        });
        let results = &self.together.results;
        let together = self.together(
            "complete",
            results,
            Arc::clone(&finished),
            async |results| self.complete_many(&results).await,
        );
        let age = match together.await? {
            Some(Some(age)) => Some(age),
            // Not written, or whoever wrote for us was let down.
            Some(None) | None => {
                let alone = self.with_wait(self.time_left(started));
                alone.complete_alone(claim, &finished).await?
            }
        };
        if let Some(age) = age {
            let outcome = if finished.is_error {
                "tool_error"
            } else {
                "completed"
            };
            self.metrics.ended(&claim.tool, outcome, age);
        }
        Ok(Write::from_rows(age.is_some().into()))
    }

    /// How old each task was that got its result; the answers are in the order of the results.
    async fn complete_many(
        &self,
        results: &[Arc<Finished>],
    ) -> Result<Vec<Option<Duration>>, Error> {
        with_connection!(self, "complete", |connection| {
            let rows = complete(connection, results).await?;
            let ages: HashMap<Uuid, i64> = rows
                .iter()
                .map(|row| (row.get("claim_token"), row.get("age_ms")))
                .collect();
            let age = |result: &Arc<Finished>| ages.get(&result.token).copied().map(millis);
            Ok(results.iter().map(age).collect())
        })
    }

    async fn complete_alone(
        &self,
        claim: &Claim,
        result: &Arc<Finished>,
    ) -> Result<Option<Duration>, Error> {
        with_connection!(self, "complete", |connection| {
            let completed = complete(connection, std::slice::from_ref(result)).await?;
            if let Some(row) = completed.first() {
                return Ok(Some(millis(row.get("age_ms"))));
            }
            let before = repeated((self, "complete"), connection, claim).await?;
            let before = before.filter(|row| row.status == "completed");
            Ok(before.map(|row| row.age))
        })
    }

    /// Writes a JSON-RPC error object (JSON) and a message for people, once; finished steps with
    /// an undo are undone before it shows.
    ///
    /// # Errors
    /// When Postgres could not be asked; repeating is safe.
    pub async fn fail(
        &self,
        claim: &Claim,
        error: &[u8],
        message: &str,
        worked: Duration,
    ) -> Result<Ended, Error> {
        let (message, worked_ms) = (text(message), ms(worked));
        let message = claim.key.seal_text("tasks.status_message", &message);
        let doubt = is_doubt(error);
        let error = &*claim.key.seal_error(error)?;
        with_connection!(self, "fail", |connection| {
            let statement = connection.prepare_cached(sql!("fail")).await?;
            let failed = connection
                .query_opt(
                    &statement,
                    &[
                        &claim.id.as_uuid(),
                        &claim.attempt,
                        &claim.token,
                        &error,
                        &message,
                        &worked_ms,
                    ],
                )
                .await?;
            let (ended, age) = match failed {
                Some(row) => (
                    Ended::new(row.get::<_, Option<&str>>("phase").is_some()),
                    millis(row.get("age_ms")),
                ),
                None => {
                    let before = repeated((self, "fail"), connection, claim).await?;
                    let ended = Ended::repeated(before.as_ref(), |row| row.status == "failed");
                    (ended, before.map(|row| row.age).unwrap_or_default())
                }
            };
            if ended == Ended::Done {
                self.metrics.ended(&claim.tool, "failed", age);
            }
            if ended != Ended::Lost && doubt {
                self.metrics.in_doubt(&claim.tool);
            }
            Ok(ended)
        })
    }

    /// Queues another try, due after `backoff`. `Lost` also when that was the last try or a
    /// stop is requested: fail or settle the task instead.
    ///
    /// # Errors
    /// When Postgres could not be asked; repeating is safe.
    pub async fn retry(
        &self,
        claim: &Claim,
        error: &str,
        backoff: Duration,
        worked: Duration,
    ) -> Result<Write, Error> {
        let (error, backoff_ms, worked_ms) = (text(error), ms(backoff), ms(worked));
        let reason = claim.key.seal_text("attempts.reason", short(&error));
        let error = claim.key.seal_text("tasks.last_error", &error);
        with_connection!(self, "retry", |connection| {
            let statement = connection.prepare_cached(sql!("retry")).await?;
            let rows = connection
                .execute(
                    &statement,
                    &[
                        &claim.id.as_uuid(),
                        &claim.attempt,
                        &claim.token,
                        &error,
                        &backoff_ms,
                        &worked_ms,
                        &reason,
                    ],
                )
                .await?;
            if rows > 0 {
                return Ok(Write::Done);
            }
            let before = repeated((self, "retry"), connection, claim).await?;
            let queued = before.is_some_and(|row| row.phase.as_deref() == Some("queued"));
            Ok(Write::from_rows(queued.into()))
        })
    }
}

/// What the history of a task's attempts keeps of a text.
pub(crate) fn short(text: &str) -> &str {
    let end = text.char_indices().nth(REASON_CHARS_MAX);
    end.map_or(text, |(end, _)| &text[..end])
}

/// Whether a tool's result tells of a failure: `completed` to the protocol, a failure to its reader.
fn says_error(result: &[u8]) -> bool {
    #[derive(serde::Deserialize)]
    struct Result {
        #[serde(rename = "isError", default)]
        is_error: bool,
    }
    serde_json::from_slice::<Result>(result).is_ok_and(|result| result.is_error)
}

/// Whether an error says that a step's end is unknown.
fn is_doubt(error: &[u8]) -> bool {
    let error = serde_json::from_slice::<serde_json::Value>(error).unwrap_or_default();
    error["data"]["reason"] == protocol::code::reason::STEP_IN_DOUBT
}
