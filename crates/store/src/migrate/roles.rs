//! Rights of the roles for gateway, worker and cron: `deploy/postgres/roles.sql`, run as the tables' owner.

use tokio_postgres::error::SqlState;
use tokio_util::task::AbortOnDropHandle;

use crate::Config;
use crate::connect::Connector;
use crate::error::{Error, Fault};

use super::wait_for_lock;

const ROLES: &str = include_str!("../../../../deploy/postgres/roles.sql");

/// Makes the roles that are missing, and gives each the rights that its processes need on the schema as
/// it is, and no others. At once: while it happens, processes in these roles miss nothing.
///
/// # Errors
/// When Postgres cannot be reached, or the user does not own the tables, or may not make roles.
pub async fn grant_roles(config: &Config) -> Result<(), Error> {
    grant(config).await.map_err(|fault| match fault {
        Fault::Final(error) => error,
        Fault::Transient(source) => Error::Unavailable(source),
    })
}

async fn grant(config: &Config) -> Result<(), Fault> {
    let opened = Connector::new(config)?.open_bare().await;
    let (client, driver) = opened.map_err(Fault::connecting)?;
    let _driver = AbortOnDropHandle::new(driver);
    // Two at once would change the same rows of Postgres' catalogue, which it refuses.
    wait_for_lock(&client).await?;
    client.batch_execute("BEGIN").await?;
    client.batch_execute(ROLES).await.map_err(explain)?;
    client.batch_execute("COMMIT").await?;
    Ok(())
}

fn explain(error: tokio_postgres::Error) -> Fault {
    if error.code() != Some(&SqlState::INSUFFICIENT_PRIVILEGE) {
        return error.into();
    }
    let told = error.as_db_error().map_or("", |e| e.message());
    Fault::Final(Error::Schema(format!(
        "cannot give the roles of gateway, worker and cron their rights: {told}: run this as the owner of the \
         tables, who has CREATEROLE; or let a superuser make the roles mcp_tasks_gateway, mcp_tasks_worker and \
         mcp_tasks_cron before"
    )))
}
