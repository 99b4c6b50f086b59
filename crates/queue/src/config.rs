//! The settings of the queue.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Redis: where it is and how patiently it is asked.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Address, as `redis://[user:password@]host[:port][/database]` or
    /// `unix:///path/to/socket[?db=database]`; `rediss://…` encrypts, and checks the server's
    /// certificate and its host name. Of a Redis Cluster, one address that leads to its servers, or
    /// several: `redis://[user:password@]host:port,host:port,…`.
    pub url: String,
    /// Whether `url` leads to a Redis Cluster (Redis 7 or newer): each shard of ours is kept by one
    /// of its servers, found and followed as they change.
    pub cluster: bool,
    /// File with the password, for secrets that are mounted; it wins over one in the URL. Read for
    /// each new connection, so a change needs no restart. A line break at its end does not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password_file: Option<PathBuf>,
    /// File (PEM) with the certificates of the authorities that may sign the certificate of a
    /// server at `rediss://…`. Unset: those that this machine trusts. Read for each new connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// First part of every key and channel, so that several installations can share one Redis.
    /// Letters, digits, `-`, `_`, `.` and `:`.
    pub key_prefix: String,
    /// Parts that the job streams are split into by task id, for Redis Cluster to spread: there, two
    /// to four for each of its primaries. A worker has a connection for each, and so has every process
    /// where `cluster` is set. The same in all processes; a change delays what is queued at that moment
    /// by one reconcile interval.
    pub shards: u16,
    /// How long one command may take before the hint counts as lost.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub command_timeout: Duration,
    /// How long one connection attempt may take.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub connect_timeout: Duration,
    /// How long a worker waits for a hint before it looks up and says that it is alive.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub block: Duration,
    /// How often each process asks whether Redis is there and has kept its data.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub probe_interval: Duration,
    /// How long a delivered hint may stay unfinished before another worker looks at the task. Near
    /// the lease of a job: a job that still runs just costs one refused claim.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub reclaim_idle: Duration,
    /// How often each worker looks for such hints.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub reclaim_interval: Duration,
    /// Size up to which the progress of a held call is passed on; more is dropped.
    pub progress_bytes_max: usize,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            url: "redis://127.0.0.1:6379".to_owned(),
            cluster: false,
            password_file: None,
            ca_file: None,
            key_prefix: "mcp-tasks".to_owned(),
            shards: 4,
            command_timeout: Duration::from_secs(1),
            connect_timeout: Duration::from_secs(2),
            block: Duration::from_secs(2),
            probe_interval: Duration::from_secs(1),
            reclaim_idle: Duration::from_secs(30),
            reclaim_interval: Duration::from_secs(5),
            progress_bytes_max: 16 * 1024,
        }
    }
}

/// Without the address, which may hold a password.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("key_prefix", &self.key_prefix)
            .field("cluster", &self.cluster)
            .field("shards", &self.shards)
            .finish_non_exhaustive()
    }
}

impl Config {
    /// All problems, each naming its field; empty if there are none.
    pub fn validate(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if let Err(problem) = crate::address::Address::new(self).and_then(|a| a.check()) {
            problems.push(problem);
        }
        let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
        if self.key_prefix.is_empty()
            || self.key_prefix.len() > 64
            || !self.key_prefix.bytes().all(letter)
        {
            problems.push(format!(
                "key_prefix: {:?} is not 1 to 64 letters, digits, '-', '_', '.' or ':'",
                self.key_prefix
            ));
        }
        if !(1..=256).contains(&self.shards) {
            problems.push(format!("shards: {} is not in 1 to 256", self.shards));
        }
        if !(1..=1024 * 1024).contains(&self.progress_bytes_max) {
            problems.push(format!(
                "progress_bytes_max: {} is not in 1 to 1048576",
                self.progress_bytes_max
            ));
        }
        self.check_durations(&mut problems);
        problems
    }

    /// The URL as anybody may see it: user, hosts, ports and database, and that there is a password. `None` where
    /// it cannot be read.
    #[must_use]
    pub fn shown_url(&self) -> Option<String> {
        crate::address::Address::new(self).ok()?.shown()
    }

    fn check_durations(&self, problems: &mut Vec<String>) {
        let ms = Duration::from_millis;
        let bounds = [
            ("command_timeout", self.command_timeout, ms(10), ms(30_000)),
            ("connect_timeout", self.connect_timeout, ms(10), ms(30_000)),
            ("block", self.block, ms(50), ms(10_000)),
            ("probe_interval", self.probe_interval, ms(50), ms(30_000)),
            ("reclaim_idle", self.reclaim_idle, ms(100), ms(3_600_000)),
            (
                "reclaim_interval",
                self.reclaim_interval,
                ms(50),
                ms(600_000),
            ),
        ];
        for (name, value, min, max) in bounds {
            if value < min || value > max {
                problems.push(format!("{name}: {value:?} is not in {min:?} to {max:?}"));
            }
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
    fn unix_sockets_are_addresses() {
        let config = Config {
            url: "unix:///tmp/redis.sock".to_owned(),
            ..Config::default()
        };
        assert_eq!(config.validate(), Vec::<String>::new());
    }

    #[test]
    fn an_address_is_shown_without_its_password() {
        for (url, cluster, shown) in [
            ("redis://h", false, Some("redis://h:6379")),
            ("redis://:sesame@h", false, Some("redis://:(hidden)@h:6379")),
            (
                "rediss://u:ses@ame@h:7/2",
                false,
                Some("rediss://u:(hidden)@h:7/2"),
            ),
            (
                "redis://u:sesame@a:1,[::1]:2",
                true,
                Some("redis://u:(hidden)@a:1,[::1]:2"),
            ),
            (
                "unix:///tmp/redis.sock?db=1&user=u&pass=sesame",
                false,
                Some("unix:///tmp/redis.sock?db=1"),
            ),
            ("redis://u:ses?ame@h", false, None),
            ("redis://u%3Asesame@h", false, None),
            ("sesame", false, None),
        ] {
            let config = Config {
                url: url.to_owned(),
                cluster,
                ..Config::default()
            };
            assert_eq!(config.shown_url().as_deref(), shown, "{url}");
        }
    }

    #[test]
    fn a_cluster_has_one_address_or_several() {
        let problems = |url: &str, cluster: bool| {
            Config {
                url: url.to_owned(),
                cluster,
                ..Config::default()
            }
            .validate()
            .join("; ")
        };
        for url in [
            "redis://a",
            "redis://a:1,b:2,c",
            "rediss://user:p%40ss,word@a:1,b:2/",
            "redis://[::1]:7000,b/0",
        ] {
            assert_eq!(problems(url, true), "", "{url}");
        }
        for (url, cluster, told) in [
            ("redis://a:1,b:2", false, "redis.cluster = true"),
            ("redis://a:1,b:2/1", true, "no database but 0"),
            ("redis://a,,b", true, "a host between commas is missing"),
            ("redis://a,redis://b", true, "the scheme comes once"),
            (
                "redis://u:secret@a,u:secret@b",
                true,
                "before the first host",
            ),
            (
                "unix:///tmp/redis.sock",
                true,
                "not the address of a Redis Cluster",
            ),
            ("rediss://a/#insecure", true, "not supported"),
            ("redis://a:x,b", true, "not a Redis address"),
        ] {
            let said = problems(url, cluster);
            assert!(said.contains(told), "{url}: {said}");
            assert!(!said.contains("secret"), "{said}");
        }
    }

    #[test]
    fn all_problems_are_told_at_once_without_the_password() {
        let config = Config {
            url: "http://user:secret@host".to_owned(),
            key_prefix: "a{b}".to_owned(),
            shards: 0,
            block: Duration::from_secs(60),
            progress_bytes_max: 0,
            ..Config::default()
        };
        let problems = config.validate();
        for field in [
            "url:",
            "key_prefix:",
            "shards:",
            "block:",
            "progress_bytes_max:",
        ] {
            assert!(
                problems.iter().any(|problem| problem.starts_with(field)),
                "{problems:?}"
            );
        }
        assert_eq!(problems.len(), 5);
        assert!(!format!("{problems:?} {config:?}").contains("secret"));
    }
}
