//! From start to exit of one process: telemetry, admin listener, signals, exit code.

use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use telemetry::{Beat, Health, Registry};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::commands::Failure;
use crate::config::Config;

/// The first readiness check: the schema fits this binary.
pub const SCHEMA: &str = "schema";

/// A loop that has not come round for so long is stuck. No dependency makes one wait nearly as long,
/// and a restart costs more than a late one.
const LOOP_AGE_MAX: Duration = Duration::from_secs(30);
/// Between two signs of life of the runtime.
const TURN: Duration = Duration::from_secs(1);

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
        let listen = settings.admin.listen;
        let listener = telemetry::admin::bind(listen).await;
        let listener = listener.map_err(|e| cannot_listen("admin.listen", listen, &e))?;
        let admin_address = listener.local_addr()?;
        let (shutdown, admin_off) = (CancellationToken::new(), CancellationToken::new());
        let process = Process {
            config,
            registry: registry.clone(),
            health: health.clone(),
            shutdown: shutdown.clone(),
        };
        tracing::info!(
            service,
            release = store::migrate::release(),
            admin = %admin_address,
            "started"
        );
        let (drained, turning) = (health.clone(), health.liveness("runtime", LOOP_AGE_MAX));
        let admin = telemetry::admin::spawn(listener, registry, health, admin_off.clone())?;
        let ended = tokio::select! {
            ended = main(process) => ended.map(|()| ExitCode::SUCCESS),
            _ = admin => Err("the admin listener ended by itself".into()),
            signalled = signals(&shutdown, &drained) => signalled,
            () = turn(&turning) => unreachable!("it turns for ever"),
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

/// Shows that the runtime comes round, beside whatever `main` itself does.
async fn turn(turning: &Beat) {
    loop {
        turning.beat();
        tokio::time::sleep(TURN).await;
    }
}

/// Why nothing listens there, and what to change.
pub fn cannot_listen(setting: &str, address: SocketAddr, error: &io::Error) -> String {
    let (section, field) = setting.split_once('.').unwrap_or(("", setting));
    let variable = format!(
        "MCP_TASKS__{}__{}",
        section.to_uppercase(),
        field.to_uppercase()
    );
    match error.kind() {
        io::ErrorKind::AddrInUse => format!(
            "{setting}: {address} is in use. Each process on one machine needs an address of its \
             own: set {setting}, or {variable}={}",
            SocketAddr::new(address.ip(), 0)
        ),
        io::ErrorKind::AddrNotAvailable => {
            format!("{setting}: {} is no address of this machine", address.ip())
        }
        io::ErrorKind::PermissionDenied => format!(
            "{setting}: this user may not listen on port {}: take one above 1023",
            address.port()
        ),
        _ => format!("{setting}: {address}: {error}"),
    }
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
