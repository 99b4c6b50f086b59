//! Who may sweep: a leader lease for each sweep.

use std::time::Duration;

use uuid::Uuid;

use crate::claim::millis;
use crate::config::ms;
use crate::pool::{sql, with_connection};
use crate::{Error, Store};

impl Store {
    /// Whether `holder` leads this sweep now; leads it for `lease` from now on if so.
    ///
    /// # Errors
    /// When Postgres could not be asked.
    pub async fn lead_sweep(
        &self,
        sweep: &str,
        holder: Uuid,
        lease: Duration,
    ) -> Result<bool, Error> {
        let lease_ms = ms(lease);
        with_connection!(self, "lead_sweep", |connection| {
            let statement = connection.prepare_cached(sql!("lead_sweep")).await?;
            Ok(connection
                .execute(&statement, &[&sweep, &holder, &lease_ms])
                .await?
                == 1)
        })
    }

    /// How long ago any replica last ended this sweep well; `None` = never.
    ///
    /// # Errors
    /// When Postgres could not be asked.
    pub async fn sweep_success(&self, sweep: &str) -> Result<Option<Duration>, Error> {
        with_connection!(self, "sweep_success", |connection| {
            let statement = connection.prepare_cached(sql!("sweep_success")).await?;
            let row = connection.query_opt(&statement, &[&sweep]).await?;
            let success = row.and_then(|row| row.get::<_, Option<i64>>("success_ms"));
            Ok(success.map(millis))
        })
    }

    /// Records that a sweep ended well.
    ///
    /// # Errors
    /// When Postgres could not be asked.
    pub async fn swept(&self, sweep: &str, holder: Uuid) -> Result<(), Error> {
        with_connection!(self, "swept", |connection| {
            let statement = connection.prepare_cached(sql!("swept")).await?;
            connection.execute(&statement, &[&sweep, &holder]).await?;
            Ok(())
        })
    }
}
