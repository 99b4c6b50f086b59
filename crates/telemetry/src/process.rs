//! What the process is and what it uses, under the names that Prometheus' own clients use.
//!
//! Read from `/proc`, which waits for nothing; where there is none, the metrics stay at zero.

use std::fs;

use crate::Registry;
use crate::metrics::{Counter, Gauge, IntGauge, IntGaugeVec};

/// Ticks in a second in `/proc`: fixed by Linux' interface (`USER_HZ`), whatever the kernel's own.
const TICKS: f64 = 100.0;
/// Of one page of memory; `/proc/self/status` tells kibibytes instead.
const KIB: f64 = 1024.0;

crate::metrics! {
    /// Of one process.
    struct Metrics {
        /// 1, with the release (`version`) and the process (`service`) in its labels.
        build: IntGaugeVec = "mcp_tasks_build_info" ["service", "version"],
        /// Seconds of processor time used.
        cpu: Counter = "process_cpu_seconds_total",
        /// Bytes of memory in use.
        resident: Gauge = "process_resident_memory_bytes",
        /// Bytes of address space in use.
        virtual_bytes: Gauge = "process_virtual_memory_bytes",
        /// Threads.
        threads: IntGauge = "process_threads",
        /// File descriptors open.
        open_fds: IntGauge = "process_open_fds",
        /// File descriptors that may be open.
        max_fds: IntGauge = "process_max_fds",
        /// When it was started, in seconds since 1970.
        started: Gauge = "process_start_time_seconds",
    }
}

/// Publishes which release of which process this is, and what it uses, in `registry`. Once a
/// process.
pub fn describe_process(registry: &Registry, service: &str, version: &str) {
    let metrics = Metrics::new(registry);
    metrics.build.with_label_values(&[service, version]).set(1);
    metrics.look();
    registry.before_scrape(move || metrics.look());
}

impl Metrics {
    fn look(&self) {
        if let Some(stat) = Stat::read() {
            let grown = stat.cpu_ticks / TICKS - self.cpu.get();
            self.cpu.inc_by(grown.max(0.0));
            let booted = field("/proc/stat", "btime").unwrap_or_default();
            self.started.set(booted + stat.start_ticks / TICKS);
        }
        let status = |name: &str| field("/proc/self/status", name).unwrap_or_default();
        self.resident.set(status("VmRSS:") * KIB);
        self.virtual_bytes.set(status("VmSize:") * KIB);
        self.threads.set(whole(status("Threads:")));
        if let Ok(open) = fs::read_dir("/proc/self/fd") {
            // The look itself has one open.
            let open = i64::try_from(open.count()).unwrap_or(i64::MAX) - 1;
            self.open_fds.set(open);
        }
        let max = field("/proc/self/limits", "Max open files").unwrap_or_default();
        self.max_fds.set(whole(max));
    }
}

/// What `/proc/self/stat` tells (proc(5)).
struct Stat {
    cpu_ticks: f64,
    /// After boot.
    start_ticks: f64,
}

impl Stat {
    fn read() -> Option<Stat> {
        let text = fs::read_to_string("/proc/self/stat").ok()?;
        // The program's name comes second, in parentheses, and may hold anything.
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        // Counted from the third: 14 and 15 are user and system time, 22 the start.
        let ticks = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
        Some(Stat {
            cpu_ticks: ticks(14)? + ticks(15)?,
            start_ticks: ticks(22)?,
        })
    }
}

/// The first number after `name` at the beginning of a line.
fn field(path: &str, name: &str) -> Option<f64> {
    let text = fs::read_to_string(path).ok()?;
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}

/// `/proc` tells whole numbers, far below 2^53.
fn whole(value: f64) -> i64 {
    format!("{value:.0}").parse().unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_knows_what_it_uses() {
        let registry = Registry::new();
        describe_process(&registry, "mcp-tasks-test", "1.2.3");
        let text = registry.render();
        let told = r#"mcp_tasks_build_info{service="mcp-tasks-test",version="1.2.3"} 1"#;
        assert!(text.contains(told), "{text}");
        for name in [
            "process_cpu_seconds_total",
            "process_resident_memory_bytes",
            "process_virtual_memory_bytes",
            "process_threads",
            "process_open_fds",
            "process_max_fds",
            "process_start_time_seconds",
        ] {
            let value = text
                .lines()
                .find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok());
            // A test may have used less than a tick of processor time.
            let least = if name.ends_with("_total") { 0.0 } else { 1.0 };
            assert!(value.is_some_and(|value| value >= least), "{name}: {text}");
        }
    }
}
