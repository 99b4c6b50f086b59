//! Baselines: Postgres' own benchmark tool, with scripts of ours.

use std::path::{Path, PathBuf};
use std::time::Duration;

use harness::process::find_program;
use harness::{Error, Result};
use tokio::process::Command;

/// One run of it.
#[derive(Debug, Clone, Copy)]
pub struct Run<'a> {
    /// The database.
    pub url: &'a str,
    /// The file with the statement.
    pub script: &'a Path,
    /// Clients at once.
    pub clients: usize,
    /// For how long; pgbench counts whole seconds.
    pub time: Duration,
    /// What `:rows` in the script is.
    pub rows: u64,
}

/// What it measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// Statements a second.
    pub rate: f64,
    /// Median, milliseconds; only where it was asked for.
    pub p50_ms: Option<f64>,
}

/// Runs a script, each client with a connection and a prepared statement of its own. With `each`, every
/// statement's time is logged, for the median.
///
/// # Errors
/// If it is not installed, or says that a statement failed.
pub async fn run(run: Run<'_>, each: Option<&Path>) -> Result<Measured> {
    let program = program().ok_or_else(|| Error::Other("pgbench is not installed".to_owned()))?;
    let threads = run.clients.min(2);
    let mut command = Command::new(program);
    command
        .args(["-n", "-M", "prepared"])
        .args(["-c", &run.clients.to_string(), "-j", &threads.to_string()])
        .args(["-T", &run.time.as_secs().max(1).to_string()])
        .args(["-D", &format!("rows={}", run.rows)])
        .arg("-f")
        .arg(run.script)
        .kill_on_drop(true);
    if let Some(dir) = each {
        forget(dir)?;
        let prefix = dir.join(PREFIX);
        command
            .arg("-l")
            .arg(format!("--log-prefix={}", prefix.display()));
    }
    command.arg(run.url);
    let output = command.output().await.map_err(Error::io("run pgbench"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let trouble = String::from_utf8_lossy(&output.stderr);
    let rate = rate(&text).filter(|_| output.status.success());
    let rate = rate.ok_or_else(|| Error::Other(format!("pgbench failed: {text}{trouble}")))?;
    let p50_ms = each.map(median).transpose()?;
    Ok(Measured { rate, p50_ms })
}

const PREFIX: &str = "pgbench-each";

/// `pgbench` of the path, or of the newest Debian package.
fn program() -> Option<PathBuf> {
    let mut debian: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path().join("bin/pgbench")))
        .filter(|path| path.exists())
        .collect();
    debian.sort();
    debian.pop().or_else(|| find_program("pgbench"))
}

fn rate(text: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix("tps = "))?;
    line.split_whitespace().next()?.parse().ok()
}

fn logs(dir: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(dir).map_err(Error::io(format!("read {}", dir.display())))?;
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let ours = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with(PREFIX))
    };
    Ok(paths.filter(ours).collect())
}

fn forget(dir: &Path) -> Result<()> {
    for log in logs(dir)? {
        std::fs::remove_file(&log).map_err(Error::io("remove an old log of pgbench"))?;
    }
    Ok(())
}

/// The median of the third column, µs, of all logs.
fn median(dir: &Path) -> Result<f64> {
    let mut all: Vec<f64> = Vec::new();
    for log in logs(dir)? {
        let text = std::fs::read_to_string(&log).map_err(Error::io("read a log of pgbench"))?;
        let third = |line: &str| line.split(' ').nth(2)?.parse::<f64>().ok();
        all.extend(text.lines().filter_map(third));
    }
    all.sort_by(f64::total_cmp);
    let middle = all.get(all.len() / 2);
    let middle = middle.ok_or_else(|| Error::Other("pgbench logged nothing".to_owned()))?;
    Ok(middle / 1_000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_words_are_understood() {
        let text = "latency average = 2.1 ms\ntps = 15210.5 (without initial connection time)\n";
        assert_eq!(rate(text), Some(15_210.5));
        assert_eq!(rate("nothing"), None);
    }
}
