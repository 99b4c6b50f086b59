//! `mcp-tasks cron`.

use std::process::ExitCode;

use super::{Failure, neighbours};
use crate::config::Config;
use crate::{lifecycle, monitor};

/// Sweeps until a signal.
///
/// # Errors
/// When it cannot start.
pub fn run(config: Config) -> Result<ExitCode, Failure> {
    lifecycle::run(config, "mcp-tasks-cron", |process| async move {
        let problems = process.config.alerts.check_files().await;
        if !problems.is_empty() {
            return Err(problems.join("\n").into());
        }
        let (store, queue) = neighbours(&process, &[]).await?;
        let cron = cron::Cron::new(
            (process.config.cron.clone(), process.config.alerts.clone()),
            store.clone(),
            queue.clone(),
            &process.registry,
            process.health.clone(),
        );
        let watching = monitor::run(store, queue, process.health, process.shutdown.clone());
        tokio::join!(cron.run(process.shutdown.clone()), watching);
        Ok(())
    })
}
