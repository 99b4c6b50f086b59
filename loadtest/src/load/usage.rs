//! What the processes of the system use, second by second, as Linux counts it.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::{Instant, MissedTickBehavior, interval};

/// Clock ticks a second in `/proc/PID/stat`: the same on every Linux that we run on (`USER_HZ`).
const TICKS: f64 = 100.0;

/// One look at one process and all that descend from it: Postgres is one for each connection.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Look {
    /// Seconds from the start of the run.
    pub at: f64,
    /// Memory (bytes): resident; of several processes what each has for itself and its part of what
    /// they share.
    pub memory: u64,
    /// Cores used since the last look; none at the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<f64>,
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
            let parents = parents();
            for (name, pid) in processes() {
                let at = start.elapsed().as_secs_f64();
                let Some((memory, spent)) = read(pid, &parents) else {
                    continue;
                };
                let before = ticks.insert(pid, (at, spent));
                // Whoever ended and was not waited for counts no longer.
                let cpu = before
                    .map(|(then, was)| (spent - was).max(0.0) / TICKS / (at - then).max(0.001));
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

/// Of every process its parent.
fn parents() -> Vec<(u32, u32)> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten();
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| Some((pid, fields(pid)?.first()?.parse().ok()?)))
        .collect()
}

/// What `/proc/PID/stat` tells, from the parent on: the command's name, in brackets, may hold anything.
fn fields(pid: u32) -> Option<Vec<String>> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    Some(fields.split(' ').skip(1).map(str::to_owned).collect())
}

/// Memory (bytes) and time spent (ticks) of a process and all that descend from it.
fn read(pid: u32, parents: &[(u32, u32)]) -> Option<(u64, f64)> {
    let mut pids = vec![pid];
    let mut at = 0;
    while at < pids.len() {
        let parent = pids[at];
        let children = parents.iter().filter(|(_, of)| *of == parent);
        pids.extend(children.map(|(child, _)| *child));
        at += 1;
    }
    let (mut memory, mut ticks) = (resident(pid)?, 0.0);
    if pids.len() > 1 {
        // Shared memory once, and not for each process.
        let shares = pids.iter().filter_map(|pid| share(*pid));
        memory = memory.max(shares.sum());
    }
    for fields in pids.iter().filter_map(|pid| fields(*pid)) {
        // In user and system mode, its own and of children that have ended: those are counted nowhere else.
        let spent = fields.iter().skip(10).take(4);
        ticks += spent
            .filter_map(|ticks| ticks.parse::<f64>().ok())
            .sum::<f64>();
    }
    Some((memory, ticks))
}

fn resident(pid: u32) -> Option<u64> {
    bytes(&format!("/proc/{pid}/status"), "VmRSS:")
}

/// What it has for itself, and its part of what it shares; only the same user may look.
fn share(pid: u32) -> Option<u64> {
    bytes(&format!("/proc/{pid}/smaps_rollup"), "Pss:")
}

fn bytes(file: &str, key: &str) -> Option<u64> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_very_process_uses_something() {
        let own = std::process::id();
        let alone = read(own, &[]).unwrap();
        assert!(alone.0 > 100_000, "{alone:?}");
        // Its parent, with all its children, has spent at least as much.
        let parents = parents();
        let (_, parent) = parents.iter().find(|(pid, _)| *pid == own).unwrap();
        let spent = read(own, &parents).unwrap().1;
        assert!(read(*parent, &parents).unwrap().1 >= spent);
    }
}
