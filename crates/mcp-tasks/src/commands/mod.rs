//! The commands, one file each.

pub mod audit;
pub mod check;
pub mod cron;
pub mod cron_run;
pub mod dev;
pub mod doctor;
mod doctor_alerts;
pub mod doctor_auth;
mod doctor_fleet;
mod doctor_postgres;
mod doctor_redis;
mod doctor_tools;
pub mod gateway;
pub mod health;
pub mod migrate;
pub mod operator;
pub mod queues;
pub mod tasks;
mod tasks_act;
mod tasks_attempts;
mod tasks_callbacks;
mod tasks_erase;
mod tasks_show;
pub mod tools;
pub mod tools_file;
mod tools_show;
pub mod worker;
pub mod workers;

use queue::Queue;
use store::Store;

use crate::lifecycle::{Process, SCHEMA};
use crate::monitor;

/// Why a command failed; printed once, with all its causes.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// An error with its causes, in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// The neighbours of a process: Postgres, whose schema must fit, and Redis. `later` are the
/// readiness checks of what is started next: they are there before the schema's is ready, or the
/// process would be ready for a moment in between.
///
/// # Errors
/// When the settings cannot be used, or the schema does not fit this binary.
async fn neighbours(process: &Process, later: &[&'static str]) -> Result<(Store, Queue), Failure> {
    let store = Store::new(process.config.postgres.clone(), &process.registry)?
        .with_encryption(&process.config.encryption);
    let queue = Queue::new(process.config.redis.clone(), &process.registry)?;
    let starting = process.health.check(SCHEMA);
    for name in later.iter().chain(&monitor::CHECKS) {
        drop(process.health.check(name));
    }
    let mut told = String::new();
    loop {
        let asked_to_end = || Failure::from("asked to end while starting");
        let checked = tokio::select! {
            () = process.shutdown.cancelled() => return Err(asked_to_end()),
            checked = fit(&store) => checked,
        };
        let reason = match checked {
            Ok(None) => break,
            Ok(Some(missing)) => missing,
            // Postgres being away is waited for; a schema that does not fit is not.
            Err(error @ store::Error::Schema(_)) => return Err(error.into()),
            Err(error) => {
                let reason = monitor::reason(&error);
                if error.refusal().is_none() {
                    tracing::warn!(error = chain(&error), "waiting for postgres");
                } else if told != reason {
                    tracing::error!(
                        error = chain(&error),
                        "postgres refuses this process, which waits until that is mended"
                    );
                }
                reason
            }
        };
        starting.waits(&reason);
        told = reason;
        tokio::select! {
            () = process.shutdown.cancelled() => return Err(asked_to_end()),
            () = tokio::time::sleep(std::time::Duration::from_secs(1)) => {}
        }
    }
    starting.ready();
    Ok((store, queue))
}

/// Why no process can work on this Postgres as it is, if so.
async fn fit(store: &Store) -> Result<Option<String>, store::Error> {
    store.check_schema().await?;
    let missing = store.missing_rights().await?;
    if missing.is_empty() {
        return Ok(None);
    }
    let list: Vec<String> = missing.iter().map(ToString::to_string).collect();
    let list = list.join("; ");
    if missing.iter().any(store::MissingRights::forbids_work) {
        let reason =
            format!("the role of postgres.url lacks {list}: grant that, or use the tables' owner");
        tracing::error!(
            reason,
            "postgres refuses this process, which waits until that is mended"
        );
        return Ok(Some(reason));
    }
    tracing::warn!(
        missing = list,
        "the role of postgres.url lacks rights: what needs them will fail"
    );
    Ok(None)
}
