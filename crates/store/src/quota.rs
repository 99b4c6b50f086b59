//! How much of the store one principal and one tenant use.

use crate::pool::{sql, with_connection};
use crate::task::Principal;
use crate::{Error, Store};

/// Tasks that are not over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Live {
    /// Of the principal; never more than was asked for.
    pub of_principal: u64,
    /// Of its tenant (of the same issuer); 0 without one.
    pub of_tenant: u64,
}

impl Store {
    /// Counts the live tasks of a principal and of its tenant, up to these numbers: more need not
    /// be known, and costs.
    ///
    /// # Errors
    /// When Postgres could not be asked.
    pub async fn count_live(
        &self,
        principal: &Principal,
        (own_max, tenant_max): (i64, i64),
    ) -> Result<Live, Error> {
        with_connection!(self, "count_live", |connection| {
            let statement = connection.prepare_cached(sql!("count_live")).await?;
            let row = connection
                .query_one(
                    &statement,
                    &[
                        &principal.issuer,
                        &principal.subject,
                        &principal.tenant,
                        &own_max,
                        &tenant_max,
                    ],
                )
                .await?;
            let count = |name| u64::try_from(row.get::<_, i64>(name)).unwrap_or_default();
            Ok(Live {
                of_principal: count("of_principal"),
                of_tenant: count("of_tenant"),
            })
        })
    }
}
