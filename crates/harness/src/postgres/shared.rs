//! One server for all tests of a process, and a fresh database of it for each.

use std::fmt::Display;

use tokio::sync::OnceCell;

use super::Postgres;
use crate::error::{Error, Result};

const TEMPLATE: &str = "template_migrated";

/// The server that all tests of this process share. It can't be stopped or killed: a test that
/// wants that starts [`Postgres::temporary`]. It ends with the process, however that ends.
///
/// # Errors
/// As [`Postgres::start`].
pub async fn shared() -> Result<&'static Postgres> {
    static SHARED: OnceCell<Postgres> = OnceCell::const_new();
    SHARED.get_or_try_init(Postgres::temporary).await
}

/// A fresh, migrated database of the [`shared`] server. `migrate` gets the URL of an empty
/// database, once per process; every test gets a copy of the result.
///
/// ```no_run
/// # use mcp_tasks_harness as harness;
/// # async fn migrate(url: String) -> Result<(), std::io::Error> { Ok(()) }
/// # async fn example() -> harness::Result<()> {
/// let database = harness::postgres::test_database(migrate).await?;
/// let url = database.url();
/// # Ok(()) }
/// ```
///
/// # Errors
/// As [`Postgres::start`], or [`Error::Other`] if `migrate` fails.
pub async fn test_database<F, E>(migrate: F) -> Result<Database>
where
    F: AsyncFnOnce(String) -> std::result::Result<(), E>,
    E: Display,
{
    static MIGRATED: OnceCell<()> = OnceCell::const_new();
    let server = shared().await?;
    MIGRATED
        .get_or_try_init(async || {
            let url = server.create_database(TEMPLATE).await?;
            migrate(url)
                .await
                .map_err(|error| Error::Other(format!("migrate: {error}")))
        })
        .await?;
    let url = server.create_database_from_template(TEMPLATE).await?;
    Ok(Database { url })
}

/// A database of its own for one test. It stays until the shared server goes, so that a failed
/// test's data can be looked at while the others run.
#[derive(Debug, Clone)]
pub struct Database {
    url: String,
}

impl Database {
    /// Its URL, also good for `psql`.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Runs SQL and returns the rows as text.
    ///
    /// # Errors
    /// [`Error::Postgres`] if the server refuses.
    pub async fn rows(&self, sql: &str) -> Result<Vec<Vec<Option<String>>>> {
        super::rows(&self.url, sql).await
    }
}
