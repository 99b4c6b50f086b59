//! The commands, one file each.

pub mod audit;
pub mod cron;
pub mod cron_run;
pub mod dev;
pub mod doctor;
mod doctor_fleet;
mod doctor_postgres;
mod doctor_redis;
pub mod gateway;
pub mod migrate;
pub mod operator;
pub mod queues;
pub mod tasks;
mod tasks_act;
mod tasks_show;
pub mod tools;
pub mod worker;
pub mod workers;

use queue::Queue;
use store::Store;

use crate::lifecycle::{Process, SCHEMA};
use crate::monitor;

/// Why a command failed; printed once, with all its causes.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// An error with its causes, in one line.
fn chain(error: &dyn std::error::Error) -> String {
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
    let store = Store::new(process.config.postgres.clone(), &process.registry)?;
    let queue = Queue::new(process.config.redis.clone(), &process.registry)?;
    let starting = process.health.check(SCHEMA);
    for name in later.iter().chain(&monitor::CHECKS) {
        drop(process.health.check(name));
    }
    loop {
        let asked_to_end = || Failure::from("asked to end while starting");
        let checked = tokio::select! {
            () = process.shutdown.cancelled() => return Err(asked_to_end()),
            checked = store.check_schema() => checked,
        };
        // Postgres being away is waited for; a schema that does not fit is not.
        match checked {
            Ok(()) => break,
            Err(error @ store::Error::Schema(_)) => return Err(error.into()),
            Err(error) => {
                tracing::warn!(error = chain(&error), "waiting for postgres");
                starting.not_ready(error.to_string());
            }
        }
        tokio::select! {
            () = process.shutdown.cancelled() => return Err(asked_to_end()),
            () = tokio::time::sleep(std::time::Duration::from_secs(1)) => {}
        }
    }
    starting.ready();
    Ok((store, queue))
}
