//! What the processes of the system use, second by second, as Linux counts it.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval};

/// Clock ticks a second in `/proc/PID/stat`: the same on every Linux that we run on (`USER_HZ`).
const TICKS: f64 = 100.0;

/// One look at one process.
#[derive(Debug, Clone, Copy, Default)]
pub struct Look {
    /// Seconds from the start of the run.
    pub at: f64,
    /// Resident memory (bytes).
    pub memory: u64,
    /// Share of one core since the last look, 1 = all of it.
    pub cpu: f64,
}

/// Looks, by process.
#[derive(Debug, Default)]
pub struct Usage(Mutex<BTreeMap<String, Vec<Look>>>);

impl Usage {
    /// Looks at these processes once a second until dropped.
    pub async fn watch(&self, processes: impl Fn() -> Vec<(String, u32)>, start: Instant) {
        let mut ticks: BTreeMap<u32, (f64, f64)> = BTreeMap::new();
        let mut second = interval(Duration::from_secs(1));
        second.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            second.tick().await;
            for (name, pid) in processes() {
                let at = start.elapsed().as_secs_f64();
                let Some((memory, spent)) = read(pid) else {
                    continue;
                };
                let before = ticks.insert(pid, (at, spent));
                let cpu = before.map_or(0.0, |(then, was)| (spent - was) / TICKS / (at - then));
                let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                kept.entry(name).or_default().push(Look { at, memory, cpu });
            }
        }
    }

    /// Everything seen.
    #[must_use]
    pub fn looks(&self) -> BTreeMap<String, Vec<Look>> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// Resident memory (bytes) and time spent (ticks).
fn read(pid: u32) -> Option<(u64, f64)> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let memory = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = memory.trim().strip_suffix(" kB")?.parse().ok()?;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command's name, in brackets, may hold anything.
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut spent = fields.split(' ').skip(11).take(2).map(str::parse::<f64>);
    let (user, system) = (spent.next()?.ok()?, spent.next()?.ok()?);
    Some((kib * 1024, user + system))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_very_process_uses_something() {
        let (memory, _) = read(std::process::id()).unwrap();
        assert!(memory > 100_000, "{memory}");
    }
}
