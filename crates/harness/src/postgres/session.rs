//! A session of a stranger: held open, with whatever it has locked, until it is dropped.

use tokio_postgres::{Client, NoTls};
use tokio_util::task::AbortOnDropHandle;
use tokio_util::task::TaskTracker;

use crate::error::Result;

/// An open session outside any pool. Dropping it closes the connection: Postgres rolls back what
/// was not committed.
#[derive(Debug)]
pub struct Session {
    client: Client,
    _driver: AbortOnDropHandle<()>,
}

impl Session {
    /// Opens one.
    ///
    /// # Errors
    /// [`crate::Error::Postgres`] if the server can't be reached or refuses.
    pub async fn open(url: &str) -> Result<Session> {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        let driving = async move {
            // Its end is seen by whoever uses the client.
            drop(connection.await);
        };
        Ok(Session {
            client,
            _driver: AbortOnDropHandle::new(TaskTracker::new().spawn(driving)),
        })
    }

    /// Runs SQL, one or several statements.
    ///
    /// # Errors
    /// [`crate::Error::Postgres`] if the server refuses or has gone.
    pub async fn run(&self, sql: &str) -> Result<()> {
        Ok(self.client.batch_execute(sql).await?)
    }
}
