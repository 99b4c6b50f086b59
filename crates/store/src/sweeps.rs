//! Who may sweep: a leader lease for each sweep.

use std::time::Duration;

use uuid::Uuid;

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
