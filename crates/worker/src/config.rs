//! The settings of a worker.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a worker runs tools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Jobs at once. A parked task holds none.
    pub slots: usize,
    /// Threads that tools run on, apart from those that renew leases; 0 = one a core, at least 2.
    pub tool_threads: usize,
    /// How long a tool may take to end after it was told to stop, before it is dropped.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub grace: Duration,
    /// How long a dropped tool may take to be gone. One that neither waits nor returns can't be
    /// stopped from inside: the worker then hands back everything else and exits.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub stuck_after: Duration,
    /// How long before its lease ends a worker drops a job whose lease it could not renew. At
    /// most half of `postgres.lease`.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub lease_margin: Duration,
    /// After a signal, how long running jobs may still finish by themselves; then they are
    /// stopped and handed back. This, `grace` and a few seconds must fit into the time that the
    /// supervisor gives the process.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub drain: Duration,
    /// Between two looks for work in Postgres while Redis can't be reached.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub fallback_interval: Duration,
    /// The process counts as dead when neither Redis nor Postgres was asked for work for so
    /// long. At least three times `redis.block`.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub poll_age_max: Duration,
    /// Between two status messages of one task that are written.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub progress_interval: Duration,
    /// Between two signs of life for the tools that are served.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub register_interval: Duration,
    /// A version without a sign of life for so long does not count as served.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub tool_alive: Duration,
    /// A tool's result, at most, where the tool's policy does not say (bytes).
    pub result_bytes_max: u64,
    /// What one step puts out, at most (bytes).
    pub step_bytes_max: u64,
    /// All questions of one round together, at most (bytes).
    pub questions_bytes_max: u64,
    /// Steps and rounds of questions of one task, at most.
    pub journal_entries_max: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            slots: 100,
            tool_threads: 0,
            grace: Duration::from_secs(5),
            stuck_after: Duration::from_secs(2),
            lease_margin: Duration::from_secs(2),
            drain: Duration::from_secs(20),
            fallback_interval: Duration::from_secs(2),
            poll_age_max: Duration::from_secs(6),
            progress_interval: Duration::from_millis(250),
            register_interval: Duration::from_secs(20),
            tool_alive: Duration::from_secs(60),
            result_bytes_max: 4 * 1024 * 1024,
            step_bytes_max: 1024 * 1024,
            questions_bytes_max: 64 * 1024,
            journal_entries_max: 10_000,
        }
    }
}

impl Config {
    /// All problems, each naming its field; empty if there are none.
    #[must_use]
    pub fn validate(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if !(1..=10_000).contains(&self.slots) {
            problems.push(format!("worker.slots: {} is not in 1 to 10000", self.slots));
        }
        if self.tool_threads > 512 {
            problems.push(format!("worker.tool_threads: {} is not in 0 to 512", self.tool_threads));
        }
        for (name, value, max) in [
            ("result_bytes_max", self.result_bytes_max, 64 << 20),
            ("step_bytes_max", self.step_bytes_max, 64 << 20),
            ("questions_bytes_max", self.questions_bytes_max, 1 << 20),
            ("journal_entries_max", self.journal_entries_max.into(), 1_000_000),
        ] {
            if !(1..=max).contains(&value) {
                problems.push(format!("worker.{name}: {value} is not in 1 to {max}"));
            }
        }
        self.check_durations(&mut problems);
        problems
    }

    fn check_durations(&self, problems: &mut Vec<String>) {
        let ms = Duration::from_millis;
        let hour = Duration::from_secs(3600);
        for (name, value, min, max) in [
            ("grace", self.grace, ms(0), hour),
            ("stuck_after", self.stuck_after, ms(100), hour),
            ("lease_margin", self.lease_margin, ms(100), hour),
            ("drain", self.drain, ms(0), 24 * hour),
            ("fallback_interval", self.fallback_interval, ms(50), ms(60_000)),
            ("poll_age_max", self.poll_age_max, ms(500), hour),
            ("progress_interval", self.progress_interval, ms(10), ms(60_000)),
            ("register_interval", self.register_interval, ms(100), hour),
        ] {
            if value < min || value > max {
                problems.push(format!("worker.{name}: {value:?} is not in {min:?} to {max:?}"));
            }
        }
        if self.tool_alive < self.register_interval * 2 {
            problems.push(format!(
                "worker.tool_alive: {:?} is less than twice worker.register_interval ({:?})",
                self.tool_alive, self.register_interval
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_valid() {
        assert_eq!(Config::default().validate(), Vec::<String>::new());
    }

    #[test]
    fn all_problems_are_told_at_once() {
        let config = Config {
            slots: 0,
            stuck_after: Duration::ZERO,
            step_bytes_max: 0,
            tool_alive: Duration::from_secs(1),
            ..Config::default()
        };
        let problems = config.validate();
        for field in ["slots", "stuck_after", "step_bytes_max", "tool_alive"] {
            let named = format!("worker.{field}:");
            assert!(problems.iter().any(|p| p.starts_with(&named)), "{field}: {problems:?}");
        }
        assert_eq!(problems.len(), 4);
    }
}
