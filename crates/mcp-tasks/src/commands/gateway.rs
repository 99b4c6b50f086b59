//! `mcp-tasks gateway`.

use std::process::ExitCode;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::{Failure, neighbours};
use crate::config::Config;
use crate::{lifecycle, monitor};

/// Serves MCP until a signal, then drains.
///
/// # Errors
/// When it cannot start.
pub fn run(config: Config) -> Result<ExitCode, Failure> {
    lifecycle::run(config, "mcp-tasks-gateway", |process| async move {
        let (store, queue) = neighbours(&process, &["catalogue"]).await?;
        let bind = process.config.gateway.bind;
        let listener = TcpListener::bind(bind)
            .await
            .map_err(|e| lifecycle::cannot_listen("gateway.bind", bind, &e))?;
        let gateway = gateway::Gateway::new(
            process.config.gateway.clone(),
            process.config.auth.clone(),
            store.clone(),
            queue.clone(),
            &process.registry,
            process.health.clone(),
        )?
        .called_back(
            process.config.callbacks.signing_keys(),
            process.config.callbacks.body_bytes_max,
        );
        // Readiness stays true to Postgres while the gateway drains.
        let drained = CancellationToken::new();
        let watching = monitor::run(store, queue, process.health, drained.clone());
        let serving = async {
            let served = gateway.run(listener, process.shutdown.clone()).await;
            drained.cancel();
            served
        };
        let (served, ()) = tokio::join!(serving, watching);
        Ok(served?)
    })
}
