//! How an attempt ends: with a result, with an error, or with another try.

use std::time::Duration;

use crate::claim::{Claim, Write};
use crate::config::ms;
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
        with_connection!(self, "complete", |connection| {
            let statement = connection.prepare_cached(sql!("complete")).await?;
            let row = connection
                .query_one(
                    &statement,
                    &[
                        &claim.id.as_uuid(),
                        &claim.attempt,
                        &claim.token,
                        &result,
                        &worked_ms,
                    ],
                )
                .await?;
            Ok(write(row.get("done"), row.get("repeated")))
        })
    }

    /// Writes a JSON-RPC error object (JSON) and a message for people, once.
    ///
    /// # Errors
    /// When Postgres could not be asked; repeating is safe.
    pub async fn fail(
        &self,
        claim: &Claim,
        error: &[u8],
        message: &str,
        worked: Duration,
    ) -> Result<Write, Error> {
        let worked_ms = ms(worked);
        with_connection!(self, "fail", |connection| {
            let statement = connection.prepare_cached(sql!("fail")).await?;
            let row = connection
                .query_one(
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
            Ok(write(row.get("done"), row.get("repeated")))
        })
    }

    /// Queues another try, due after `backoff`. `Lost` also when that was the last try or a
    /// stop is requested: fail or settle the task instead.
    ///
    /// # Errors
    /// When Postgres could not be asked.
    pub async fn retry(
        &self,
        claim: &Claim,
        error: &str,
        backoff: Duration,
        worked: Duration,
    ) -> Result<Write, Error> {
        let (backoff_ms, worked_ms) = (ms(backoff), ms(worked));
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
            Ok(Write::from_rows(rows))
        })
    }
}

pub(crate) fn write(done: bool, repeated: bool) -> Write {
    if done || repeated {
        Write::Done
    } else {
        Write::Lost
    }
}
