//! `mcp-tasks worker`.

use std::process::ExitCode;

use tokio_util::sync::CancellationToken;
use worker::ToolSet;

use super::{Failure, neighbours};
use crate::config::{Config, Fixtures, Tools};
use crate::{lifecycle, monitor};

/// Runs tools until a signal, then drains.
///
/// # Errors
/// When it cannot start.
pub fn run(config: Config) -> Result<ExitCode, Failure> {
    lifecycle::run(config, "mcp-tasks-worker", |process| async move {
        let (store, queue) = neighbours(&process, &["tools"]).await?;
        let tools = serve(&process.config.tools)?;
        let worker = worker::Worker::new(
            process.config.worker.clone(),
            store.clone(),
            queue.clone(),
            tools,
            &process.registry,
            process.health.clone(),
        );
        let drained = CancellationToken::new();
        let watching = monitor::run(store, queue, process.health, drained.clone());
        let working = async {
            let worked = Box::pin(worker.run(process.shutdown.clone())).await;
            drained.cancel();
            worked
        };
        let (worked, ()) = tokio::join!(working, watching);
        Ok(worked?)
    })
}

fn serve(settings: &Tools) -> Result<ToolSet, Failure> {
    let tools = ToolSet::new();
    if settings.demo {
        for tool in tools::demo() {
            tools.insert(tool)?;
        }
    }
    let fixtures = match (settings.fixtures, &settings.ledger) {
        (Some(Fixtures::Conformance), _) => fixtures::conformance(&tools),
        (Some(Fixtures::Chaos), Some(ledger)) => fixtures::chaos(ledger)
            .map_err(|error| format!("tools.ledger: {}: {error}", ledger.display()))?,
        // The settings were checked: chaos tools come with a ledger.
        (Some(Fixtures::Chaos), None) | (None, _) => Vec::new(),
    };
    for tool in fixtures {
        tools.insert(tool)?;
    }
    if let Some(version) = settings.drills {
        for tool in fixtures::drills(version, &settings.drills_resume) {
            tools.insert(tool)?;
        }
    }
    if settings.shell {
        tools.insert(fixtures::shell())?;
    }
    if tools.is_empty() {
        tracing::warn!("no tools to serve: set tools.demo, or link tools of your own");
    }
    Ok(tools)
}
