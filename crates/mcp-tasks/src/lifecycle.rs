//! From start to exit of one process: telemetry, admin listener, signals, exit code.

use std::process::ExitCode;

use telemetry::{Health, Registry};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::commands::Failure;
use crate::config::Config;

/// The first readiness check: the schema fits this binary.
pub const SCHEMA: &str = "schema";

/// What a process is made with.
pub struct Process {
    /// All settings.
    pub config: Config,
    /// Its metrics.
    pub registry: Registry,
    /// Its probes.
    pub health: Health,
    /// Cancelled by SIGTERM or SIGINT.
    pub shutdown: CancellationToken,
}

/// Runs `main` as the process `service` until it ends by itself or by a signal. The first
/// signal drains, the second ends the process at once.
///
/// # Errors
/// When it could not start, or `main` failed.
pub fn run<F>(
    config: Config,
    service: &'static str,
    main: impl FnOnce(Process) -> F,
) -> Result<ExitCode, Failure>
where
    F: Future<Output = Result<(), Failure>>,
{
    let runtime = tokio::runtime::Builder::new_multi_thread()
        // Telemetry must never starve on a one-core pod.
        .worker_threads(std::thread::available_parallelism().map_or(2, |n| n.get().max(2)))
        .enable_all()
        .build()?;
    let code = runtime.block_on(async {
        let settings = config.telemetry();
        let guard = telemetry::init(&settings, service)?;
        let registry = Registry::new();
        guard.observe(&registry);
        telemetry::describe_process(&registry, service, store::migrate::release());
        let health = Health::new(&registry);
        // A probe may be faster than we are: not ready before anything was looked at.
        drop(health.check(SCHEMA));
        let listener = telemetry::admin::bind(settings.admin.listen)
            .await
            .map_err(|e| format!("admin.listen {}: {e}", settings.admin.listen))?;
        let (shutdown, admin_off) = (CancellationToken::new(), CancellationToken::new());
        let process = Process {
            config,
            registry: registry.clone(),
            health: health.clone(),
            shutdown: shutdown.clone(),
        };
        tracing::info!(service, release = store::migrate::release(), "started");
        let drained = health.clone();
        let admin = telemetry::admin::serve(listener, registry, health, admin_off.clone());
        let ended = tokio::select! {
            ended = main(process) => ended.map(|()| ExitCode::SUCCESS),
            () = admin => Err("the admin listener ended by itself".into()),
            signalled = signals(&shutdown, &drained) => signalled,
        };
        admin_off.cancel();
        tracing::info!(service, "ended");
        drop(guard);
        ended
    });
    // A tool that never returns must not keep the process.
    runtime.shutdown_background();
    code
}

/// Drains at the first signal, gives up waiting at the second.
async fn signals(shutdown: &CancellationToken, health: &Health) -> Result<ExitCode, Failure> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    for first in [true, false] {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        if first {
            tracing::info!("asked to end, draining");
            health.drain();
            shutdown.cancel();
        }
    }
    tracing::warn!("asked to end twice, ending at once");
    Ok(ExitCode::FAILURE)
}
