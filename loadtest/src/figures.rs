//! What a run counts, and how it is told.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::fault::Fault;

/// More lines than this would hide the rest.
const TROUBLE_MAX: usize = 40;

/// Counters that everybody adds to.
#[derive(Debug, Default)]
pub struct Figures(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    tasks: u64,
    inline: u64,
    requests: BTreeMap<String, u64>,
    scenarios: BTreeMap<&'static str, u64>,
    ends: BTreeMap<String, u64>,
    faults: BTreeMap<String, u64>,
    lost_connections: BTreeMap<String, u64>,
    server_errors: BTreeMap<String, u64>,
    starts_failed: BTreeMap<String, u64>,
    recoveries: Vec<Duration>,
    trouble: Vec<String>,
}

impl Figures {
    /// A request was sent.
    pub fn request(&self, method: &str) {
        self.add(|all| &mut all.requests, method.to_owned());
    }

    /// A handle was acknowledged.
    pub fn task(&self) {
        self.with(|all| all.tasks += 1);
    }

    /// A call was answered with its result.
    pub fn inline(&self) {
        self.with(|all| all.inline += 1);
    }

    /// A client began something.
    pub fn scenario(&self, name: &'static str) {
        self.with(|all| *all.scenarios.entry(name).or_default() += 1);
    }

    /// How a task ended, at the last look.
    pub fn end(&self, status: &str) {
        self.add(|all| &mut all.ends, status.to_owned());
    }

    /// A fault was injected, and is over.
    pub fn fault(&self, fault: &Fault) {
        self.add(|all| &mut all.faults, fault.kind());
    }

    /// A request got no answer: its gateway was killed, or frozen for too long.
    pub fn lost_connection(&self, why: &str) {
        self.add(|all| &mut all.lost_connections, why.to_owned());
    }

    /// A gateway answered that it, or what is behind it, is broken.
    pub fn server_error(&self, what: String) {
        self.add(|all| &mut all.server_errors, what);
    }

    /// A process ended before it was ready.
    pub fn ended_at_start(&self, name: &str) {
        self.add(|all| &mut all.starts_failed, name.to_owned());
    }

    /// A request that waited for Postgres was answered, so long after Postgres accepted connections.
    pub fn recovered(&self, after: Duration) {
        self.with(|all| all.recoveries.push(after));
    }

    /// Something that should not have happened, though no promise to clients was broken.
    pub fn trouble(&self, what: String) {
        self.with(|all| all.trouble.push(what));
    }

    /// Why this fault could not be injected, or what it broke did not come back, if that was told.
    #[must_use]
    pub fn trouble_of(&self, fault: &Fault) -> Option<String> {
        let before = format!("{fault}: ");
        self.with(|all| {
            let told = all.trouble.iter();
            told.rev()
                .find_map(|what| what.strip_prefix(&before))
                .map(str::to_owned)
        })
    }

    /// Handles acknowledged so far.
    #[must_use]
    pub fn tasks(&self) -> u64 {
        self.with(|all| all.tasks)
    }

    /// Faults injected so far.
    #[must_use]
    pub fn faults(&self) -> u64 {
        self.with(|all| all.faults.values().sum())
    }

    /// Errors of servers that clients saw so far.
    #[must_use]
    pub fn server_errors(&self) -> u64 {
        self.with(|all| all.server_errors.values().sum())
    }

    /// Everything, for people.
    #[must_use]
    pub fn report(&self) -> String {
        self.with(|all| {
            let mut text = String::new();
            let out = &mut text;
            line(out, "tasks acknowledged", all.tasks);
            line(out, "calls answered inline", all.inline);
            table(out, "tasks by end", &all.ends);
            let scenarios = all.scenarios.iter();
            let scenarios = scenarios.map(|(name, count)| ((*name).to_owned(), *count));
            table(out, "scenarios", &scenarios.collect());
            table(out, "requests", &all.requests);
            table(out, "faults", &all.faults);
            table(out, "answers lost with a connection", &all.lost_connections);
            table(out, "server errors that clients saw", &all.server_errors);
            table(out, "starts that failed", &all.starts_failed);
            recoveries(out, &all.recoveries);
            line(out, "other trouble", all.trouble.len() as u64);
            for what in all.trouble.iter().take(TROUBLE_MAX) {
                let _ = writeln!(out, "    {}", what.replace('\n', "\n      "));
            }
            text
        })
    }

    fn add(&self, table: impl Fn(&mut Counts) -> &mut BTreeMap<String, u64>, name: String) {
        self.with(|all| *table(all).entry(name).or_default() += 1);
    }

    fn with<T>(&self, look: impl FnOnce(&mut Counts) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn line(out: &mut String, name: &str, count: u64) {
    let _ = writeln!(out, "  {name}: {count}");
}

fn table(out: &mut String, name: &str, counts: &BTreeMap<String, u64>) {
    line(out, name, counts.values().sum());
    for (row, count) in counts {
        let _ = writeln!(out, "    {row}: {count}");
    }
}

fn recoveries(out: &mut String, all: &[Duration]) {
    let slowest = all.iter().max().copied().unwrap_or_default();
    let _ = writeln!(
        out,
        "  requests that waited for Postgres to restart: {}, the slowest answered {} ms after it \
         accepted connections",
        all.len(),
        slowest.as_millis()
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_what_was_counted() {
        let figures = Figures::default();
        figures.task();
        figures.request("tasks/get");
        figures.request("tasks/get");
        figures.recovered(Duration::from_millis(7));
        figures.trouble("worker-1 ended".to_owned());
        let report = figures.report();
        for part in [
            "acknowledged: 1",
            "tasks/get: 2",
            "answered 7 ms",
            "worker-1 ended",
        ] {
            assert!(report.contains(part), "{report}");
        }
    }
}
