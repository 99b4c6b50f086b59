//! How often cron looks, and how much it moves at a time.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `[cron]`: sweeps.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Between two looks for jobs that Redis does not know of.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub reconcile_interval: Duration,
    /// After this without a claim, a job's hint may be lost; doubles with every further hint.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub hint_age: Duration,
    /// Between two looks for ended holds, TTLs and input deadlines.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub deadline_interval: Duration,
    /// Between two looks for what nobody looks at.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub alerts_interval: Duration,
    /// Between two rounds of purging, and of looking for tasks whose tool's version is gone.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub purge_interval: Duration,
    /// Between two counts of live tasks.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub gauges_interval: Duration,
    /// For how long "expired" is told apart from "never existed".
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub tombstone_keep: Duration,
    /// A task that is bound to a version of its tool fails (`version_gone`) when no worker has
    /// served that version, or one that can resume it, for this long. Counted anew
    /// when cron starts or has lost Postgres: workers need time to come back as well. At least
    /// three times `worker.publish_interval`.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub version_wait: Duration,
    /// A version of a tool is taken off the list when no worker has served it for this long. A tool
    /// without any other is then not listed, calls of it are refused, and whoever listens is told;
    /// tasks under way go on, and it is back as soon as a worker serves it. Counted anew when cron
    /// starts or has lost Postgres. At least three times `worker.publish_interval`.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub tool_wait: Duration,
    /// What operators did is forgotten after this; not while a task is there that they did it to. At
    /// least a day.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub audit_keep: Duration,
    /// A Redis consumer idle for this long, with nothing pending, is forgotten.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub consumer_idle: Duration,
    /// Rows moved by one statement, at most.
    pub batch: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            reconcile_interval: Duration::from_secs(2),
            hint_age: Duration::from_secs(5),
            deadline_interval: Duration::from_secs(1),
            alerts_interval: Duration::from_secs(2),
            purge_interval: Duration::from_secs(10),
            gauges_interval: Duration::from_secs(10),
            tombstone_keep: Duration::from_secs(7 * 24 * 3600),
            version_wait: Duration::from_secs(3600),
            tool_wait: Duration::from_secs(600),
            // Three months, as settings are written.
            audit_keep: Duration::from_secs(3 * 2_630_016),
            consumer_idle: Duration::from_secs(3600),
            batch: 500,
        }
    }
}

impl Config {
    /// Everything wrong with these settings, each naming its field; empty when they work.
    /// `publish_interval`: how often workers say which versions they serve.
    #[must_use]
    pub fn validate(&self, publish_interval: Duration) -> Vec<String> {
        let mut problems = Vec::new();
        for (name, value) in [
            ("reconcile_interval", self.reconcile_interval),
            ("deadline_interval", self.deadline_interval),
            ("alerts_interval", self.alerts_interval),
            ("purge_interval", self.purge_interval),
            ("gauges_interval", self.gauges_interval),
            ("hint_age", self.hint_age),
        ] {
            if value < Duration::from_millis(100) {
                problems.push(format!("cron.{name}: {value:?} is below 100ms"));
            }
        }
        for (name, value) in [
            ("version_wait", self.version_wait),
            ("tool_wait", self.tool_wait),
        ] {
            if value < publish_interval * 3 {
                problems.push(format!(
                    "cron.{name}: {value:?} is below three times worker.publish_interval \
                     ({publish_interval:?}): versions would count as gone while they are served"
                ));
            }
        }
        if self.audit_keep < Duration::from_secs(24 * 3600) {
            problems.push(format!(
                "cron.audit_keep: {:?} is below 1day: nobody could look at it in time",
                self.audit_keep
            ));
        }
        if self.batch == 0 || self.batch > 10_000 {
            problems.push(format!(
                "cron.batch: {} is not between 1 and 10000",
                self.batch
            ));
        }
        problems
    }

    pub(crate) fn batch_rows(&self) -> i64 {
        i64::from(self.batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PUBLISH: Duration = Duration::from_secs(20);

    #[test]
    fn the_default_is_valid() {
        assert_eq!(Config::default().validate(PUBLISH), Vec::<String>::new());
    }

    /// A version that is served must never count as gone between two signs of life.
    #[test]
    fn all_problems_are_told_at_once() {
        let config = Config {
            reconcile_interval: Duration::ZERO,
            version_wait: PUBLISH * 2,
            tool_wait: PUBLISH * 2,
            audit_keep: Duration::from_secs(3600),
            batch: 0,
            ..Config::default()
        };
        let problems = config.validate(PUBLISH);
        for field in [
            "reconcile_interval",
            "version_wait",
            "tool_wait",
            "audit_keep",
            "batch",
        ] {
            let named = |problem: &String| problem.starts_with(&format!("cron.{field}:"));
            assert!(problems.iter().any(named), "{field}: {problems:?}");
        }
        assert_eq!(problems.len(), 5);
    }
}
