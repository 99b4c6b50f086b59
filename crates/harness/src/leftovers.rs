//! Processes of a killed earlier run: found by the folder they work in, and ended.
//!
//! Postgres and all its backends, and Redis, change into their data folder. A number in a pid file
//! may belong to anyone by now; a process that works in our private data folder is ours.

use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};

use crate::error::{Error, Result};
use crate::process::{as_pid, until_stopped};

/// What our servers are called: a shell that somebody left in the folder is not ours to end.
const NAMES: [&str; 5] = [
    "postgres",
    "initdb",
    "pgbouncer",
    "redis-server",
    "mcp-tasks",
];

/// All processes of such a name whose working directory is `dir` (a folder that only our own servers enter) or
/// lies below it.
pub(crate) fn working_in(dir: &Path) -> Vec<u32> {
    let Ok(dir) = dir.canonicalize() else {
        return Vec::new();
    };
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let pids = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let works_here = |pid: &u32| {
        *pid != std::process::id()
            && has_our_name(*pid)
            && std::fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(&dir))
    };
    pids.filter(works_here).collect()
}

fn has_our_name(pid: u32) -> bool {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    NAMES.contains(&name.trim_end())
}

/// Sends a signal to every process that works in `dir`.
pub(crate) fn signal(dir: &Path, signal: Signal) {
    for pid in working_in(dir) {
        let _ = kill(as_pid(pid), signal);
        if signal == Signal::SIGSTOP {
            until_stopped(pid);
        }
    }
}

/// Ends every process that works in `dir`: politely, then by force.
pub(crate) async fn end(dir: &Path, polite: Signal) -> Result<()> {
    const POLITE: Duration = Duration::from_secs(5);
    const FORCED: Duration = Duration::from_secs(10);
    if working_in(dir).is_empty() {
        return Ok(());
    }
    tracing::info!(dir = %dir.display(), "ending processes that an earlier run left behind");
    signal(dir, polite);
    signal(dir, Signal::SIGCONT);
    if gone(dir, POLITE).await {
        return Ok(());
    }
    signal(dir, Signal::SIGKILL);
    if gone(dir, FORCED).await {
        return Ok(());
    }
    let what = format!(
        "processes {:?} in {} can't be ended",
        working_in(dir),
        dir.display()
    );
    Err(Error::Failed { what, log: None })
}

/// Waits until no process works in `dir`.
pub(crate) async fn gone(dir: &Path, within: Duration) -> bool {
    let deadline = Instant::now() + within;
    while !working_in(dir).is_empty() {
        if Instant::now() >= deadline {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    true
}
