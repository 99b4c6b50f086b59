//! How an attempt ends: with a result, with an error, or with another try.

use std::time::Duration;

use crate::claim::{Claim, Ended, Write, millis, repeated};
use crate::config::{ms, text};
use crate::pool::{sql, with_connection};
use crate::{Error, Store};

impl Store {
    /// Writes the result (JSON), once.
    ///
    /// # Errors
    /// When Postgres could not be asked; repeating is safe.
    pub async fn complete(
        &self,
        claim: &Claim,
        result: &[u8],
        worked: Duration,
    ) -> Result<Write, Error> {
        let worked_ms = ms(worked);
        let is_error = says_error(result);
        with_connection!(self, "complete", |connection| {
            let statement = connection.prepare_cached(sql!("complete")).await?;
            let completed = connection
                .query_opt(
                    &statement,
                    &[
                        &claim.id.as_uuid(),
                        &claim.attempt,
                        &claim.token,
                        &result,
                        &worked_ms,
                        &is_error,
                    ],
                )
                .await?;
            let age = match completed {
                Some(row) => Some(millis(row.get("age_ms"))),
                None => repeated((self, "complete"), connection, claim)
                    .await?
                    .filter(|row| row.status == "completed")
                    .map(|row| row.age),
            };
            if let Some(age) = age {
                let outcome = if is_error { "tool_error" } else { "completed" };
                self.metrics.ended(&claim.tool, outcome, age);
            }
            Ok(Write::from_rows(age.is_some().into()))
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
            if ended != Ended::Lost && is_doubt(error) {
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
