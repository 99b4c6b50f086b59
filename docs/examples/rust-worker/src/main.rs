//! The worker: serves the tools for as long as it runs, beside workers of others.
//!
//! `POSTGRES_URL` and `REDIS_URL` say where its system is. Beside `mcp-tasks dev` these are
//! in `.dev/processes.json`.

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;

use rust_worker::{Machines, Provision};
use telemetry::{Health, Registry};
use worker::{CancellationToken, ToolSet, Worker};

fn main() -> ExitCode {
    // First of all, before there is a runtime: this program supervises its tools' commands.
    if let Some(code) = worker::process::supervise_if_asked() {
        return code;
    }
    let runtime = tokio::runtime::Runtime::new().expect("a runtime can be made");
    match runtime.block_on(serve()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rust-worker: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve() -> Result<(), Box<dyn Error>> {
    let registry = Registry::new();
    let postgres = store::Config {
        url: std::env::var("POSTGRES_URL")?,
        ..store::Config::default()
    };
    let redis = queue::config::Config {
        url: std::env::var("REDIS_URL")?,
        ..queue::config::Config::default()
    };
    let store = store::Store::new(postgres, &registry)?;
    store.check_schema().await?;
    let queue = queue::Queue::new(redis, &registry)?;
    let tools = ToolSet::new();
    let machines = Machines::default();
    tools.insert(Arc::new(Provision { machines }))?;
    let config = worker::Config::default();
    let worker = Worker::new(
        config,
        store,
        queue,
        tools,
        &registry,
        Health::new(&registry),
    );
    let shutdown = CancellationToken::new();
    let working = worker.run(shutdown.clone());
    tokio::pin!(working);
    tokio::select! {
        ended = &mut working => return Ok(ended?),
        signal = tokio::signal::ctrl_c() => signal?,
    }
    // Jobs are finished, or handed back without the loss of a try.
    shutdown.cancel();
    Ok(working.await?)
}
