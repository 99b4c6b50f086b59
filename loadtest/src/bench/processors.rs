//! What processes spend and hold, as Linux counts it: who used the processors while something was
//! measured tells what bounds it.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

/// Clock ticks a second in `/proc/PID/stat` (`USER_HZ`), the same on every Linux that we run on.
const TICKS: f64 = 100.0;

/// One process, or one with all its children.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// The process.
    pub pid: u32,
}

/// Time spent until now.
#[derive(Debug)]
pub struct Look {
    at: Instant,
    spent: BTreeMap<String, f64>,
}

/// Cores used on average, by name.
pub type Cores = BTreeMap<String, f64>;

impl Look {
    /// Looks at these, their children included, and at this process (`clients`).
    #[must_use]
    pub fn now(groups: &[Group]) -> Look {
        let all = stats();
        let mut spent: BTreeMap<String, f64> = BTreeMap::new();
        let own = Group {
            name: "clients".to_owned(),
            pid: std::process::id(),
        };
        for group in groups.iter().chain([&own]) {
            let theirs = all.iter().filter(|stat| {
                stat.pid == group.pid || (stat.parent == group.pid && group.name != own.name)
            });
            let ticks: f64 = theirs.map(|stat| stat.ticks).sum();
            *spent.entry(group.name.clone()).or_default() += ticks / TICKS;
        }
        Look {
            at: Instant::now(),
            spent,
        }
    }

    /// Cores used since.
    #[must_use]
    pub fn until(&self, later: &Look) -> Cores {
        let time = (later.at - self.at).as_secs_f64().max(0.001);
        let later = later.spent.iter();
        later
            .map(|(name, spent)| {
                let before = self.spent.get(name).copied().unwrap_or_default();
                (name.clone(), ((spent - before) / time).max(0.0))
            })
            .collect()
    }

    /// Processor time spent since, by name.
    #[must_use]
    pub fn spent_until(&self, later: &Look) -> BTreeMap<String, Duration> {
        let later = later.spent.iter();
        later
            .map(|(name, spent)| {
                let before = self.spent.get(name).copied().unwrap_or_default();
                (
                    name.clone(),
                    Duration::from_secs_f64((spent - before).max(0.0)),
                )
            })
            .collect()
    }
}

/// `gateway 0.4, postgres 0.9`: cores, in the order of how much.
#[must_use]
pub fn told(cores: &Cores) -> String {
    let mut all: Vec<(&String, &f64)> =
        cores.iter().filter(|(_, cores)| **cores >= 0.005).collect();
    all.sort_by(|one, other| other.1.total_cmp(one.1));
    let all = all.iter().map(|(name, cores)| format!("{name} {cores:.2}"));
    all.collect::<Vec<_>>().join(", ")
}

struct Stat {
    pid: u32,
    parent: u32,
    ticks: f64,
}

/// All processes. The time of children that have ended counts for their parent.
fn stats() -> Vec<Stat> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten();
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(stat).collect()
}

fn stat(pid: u32) -> Option<Stat> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command's name, in brackets, may hold anything.
    let (_, fields) = text.rsplit_once(") ")?;
    let fields: Vec<&str> = fields.split(' ').collect();
    let number = |at: usize| fields.get(at)?.parse::<f64>().ok();
    Some(Stat {
        pid,
        parent: fields.get(1)?.parse().ok()?,
        ticks: number(11)? + number(12)? + number(13)? + number(14)?,
    })
}

/// Resident memory of a process, bytes.
#[must_use]
pub fn resident(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1024)
}

/// The same of a process and all that descend from it.
#[must_use]
pub fn resident_with_children(pid: u32) -> u64 {
    let all = stats();
    let mut pids = vec![pid];
    let mut at = 0;
    while at < pids.len() {
        let parent = pids[at];
        pids.extend(
            all.iter()
                .filter(|stat| stat.parent == parent)
                .map(|stat| stat.pid),
        );
        at += 1;
    }
    pids.into_iter().filter_map(resident).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_this_process_spends_is_seen() {
        let before = Look::now(&[]);
        let mut sum = 0_u64;
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(300) {
            sum = sum.wrapping_mul(3).wrapping_add(1);
        }
        let cores = before.until(&Look::now(&[]));
        assert!(cores["clients"] > 0.0, "{cores:?} {sum}");
        assert!(told(&cores).starts_with("clients "));
        assert!(resident_with_children(std::process::id()) > 100_000);
    }
}
