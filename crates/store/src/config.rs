//! Settings of the connection to Postgres, shared by every process.

use std::borrow::Cow;
use std::fmt;
use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio_postgres::config::Host;

/// `[postgres]`: where tasks live.
#[derive(Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Connection URL. Of several hosts the primary is found, also after a failover. A pooler in
    /// between must keep sessions together (PgBouncer: `pool_mode = session`); another is refused.
    /// `sslmode` is `disable`, `prefer` (the default: encrypted where the server offers it, whoever
    /// it is), `require`, `verify-ca` or `verify-full` (the certificate must be signed by
    /// `sslrootcert`, or by an authority that this machine trusts, and be for this host).
    pub url: String,
    /// File with the password, for secrets that are mounted; it wins over one in the URL. Read for
    /// each new connection, so a change needs no restart. A line break at its end does not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password_file: Option<PathBuf>,
    /// File (PEM) with the certificates of authorities, as `sslrootcert` in the URL; needs
    /// `sslmode=require` or more, which then checks the server's certificate and its host name
    /// (`verify-ca`: not its name). Read when the process starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// Connections this process keeps at most.
    pub pool_size: usize,
    /// How long one connection attempt may take, for each host of the URL.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub connect_timeout: Duration,
    /// How long one statement may take, enforced by Postgres.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub statement_timeout: Duration,
    /// How long a request waits for Postgres to come back before it is refused.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub wait_max: Duration,
    /// How long a worker owns a job without a heartbeat, by Postgres' clock. The same for
    /// every process of an installation.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub lease: Duration,
    /// How often a worker renews its leases. At most a third of `lease`.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub heartbeat: Duration,
    /// For how long a task whose TTL ran out is still shown as failed, before "expired" is all
    /// that is left of it.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub expired_grace: Duration,
}

/// Without the URL, which may hold a password.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("pool_size", &self.pool_size)
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            url: "postgres://localhost/mcp_tasks".to_owned(),
            password_file: None,
            ca_file: None,
            pool_size: 16,
            connect_timeout: Duration::from_secs(3),
            statement_timeout: Duration::from_secs(5),
            wait_max: Duration::from_secs(10),
            lease: Duration::from_secs(10),
            heartbeat: Duration::from_secs(3),
            expired_grace: Duration::from_secs(3600),
        }
    }
}

impl Config {
    /// Everything wrong with these settings, each naming its field; empty when they work.
    #[must_use]
    pub fn validate(&self) -> Vec<String> {
        let mut problems = Vec::new();
        problems.extend(crate::tls::read(self).err());
        if let Some(file) = &self.password_file
            && let Err(error) = std::fs::read_to_string(file)
        {
            let file = file.display();
            problems.push(format!("postgres.password_file: {file}: {error}"));
        }
        if self.pool_size == 0 {
            problems.push("postgres.pool_size: must be at least 1".to_owned());
        }
        if self.heartbeat.is_zero() || self.heartbeat * 3 > self.lease {
            problems.push(format!(
                "postgres.heartbeat: {:?} must be above 0 and at most a third of postgres.lease ({:?})",
                self.heartbeat, self.lease
            ));
        }
        if self.lease < LEASE_MIN {
            problems.push(format!(
                "postgres.lease: {:?} is below {LEASE_MIN:?}, shorter than an ordinary pause of Postgres",
                self.lease
            ));
        }
        for (name, value) in [
            ("connect_timeout", self.connect_timeout),
            ("statement_timeout", self.statement_timeout),
        ] {
            if value.is_zero() {
                problems.push(format!("postgres.{name}: must be above 0"));
            }
        }
        problems
    }

    /// The URL as anybody may see it: user, hosts, ports and database, and that there is a password. `None` where
    /// it cannot be read, or where one of them may hold a piece of the password.
    #[must_use]
    pub fn shown_url(&self) -> Option<String> {
        let address = crate::tls::address(&self.url)?;
        let plain = |text: &str| {
            let odd = |c: char| !c.is_alphanumeric() && !"-_.".contains(c);
            (!text.contains(odd)).then(|| text.to_owned())
        };
        let mut shown = "postgres://".to_owned();
        if let Some(user) = address.get_user() {
            shown.push_str(&plain(user)?);
        }
        if address.get_password().is_some() {
            shown.push_str(":(hidden)");
        }
        if address.get_user().is_some() || address.get_password().is_some() {
            shown.push('@');
        }
        let (mut hosts, mut sockets) = (Vec::new(), Vec::new());
        for host in address.get_hosts() {
            match host {
                Host::Tcp(name) if name.parse::<Ipv6Addr>().is_ok() => {
                    hosts.push(format!("[{name}]"));
                }
                Host::Tcp(name) => hosts.push(plain(name)?),
                Host::Unix(path) => sockets.push(path.display().to_string()),
            }
        }
        if hosts.is_empty() {
            hosts.extend(address.get_hostaddrs().iter().map(ToString::to_string));
        }
        let ports = address.get_ports();
        for (place, host) in hosts.iter_mut().enumerate() {
            if let Some(port) = ports.get(place).or(ports.first())
                && *port != PORT
            {
                host.push_str(&format!(":{port}"));
            }
        }
        shown.push_str(&hosts.join(","));
        if let Some(database) = address.get_dbname() {
            shown.push('/');
            shown.push_str(&plain(database)?);
        }
        if !sockets.is_empty() {
            shown.push_str(&format!("?host={}", sockets.join(",")));
        }
        Some(shown)
    }

    /// After an outage, for how long (ms) a lease does not count as run out: one heartbeat
    /// and a second.
    pub(crate) fn lease_grace_ms(&self) -> i64 {
        ms(self.heartbeat + Duration::from_secs(1))
    }

    /// The lease in ms.
    pub(crate) fn lease_ms(&self) -> i64 {
        ms(self.lease)
    }
}

/// Where Postgres listens unless it is told otherwise.
const PORT: u16 = 5432;

/// Below this every checkpoint would look like a dead worker.
const LEASE_MIN: Duration = Duration::from_secs(2);

/// Longer than any promise: a hundred years. More would leave the range of a timestamp.
const MS_MAX: i64 = 100 * 365 * 24 * 3600 * 1000;

/// A duration in whole milliseconds, as SQL wants it; a hundred years at most.
pub(crate) fn ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).map_or(MS_MAX, |ms| ms.min(MS_MAX))
}

/// Text that Postgres can store: it knows no NUL, and tools may print one.
pub(crate) fn text(text: &str) -> Cow<'_, str> {
    if text.contains('\0') {
        Cow::Owned(text.replace('\0', "\u{fffd}"))
    } else {
        Cow::Borrowed(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_its_password() {
        for (url, shown) in [
            ("postgres://u@h/d", Some("postgres://u@h/d")),
            ("postgres://h", Some("postgres://h")),
            (
                "postgres://u:sesame@h:1,[::1]:2/d?sslmode=verify-full",
                Some("postgres://u:(hidden)@h:1,[::1]:2/d"),
            ),
            (
                "postgres://u:ses?ame@h/d",
                Some("postgres://u:(hidden)@h/d"),
            ),
            (
                "postgres://u:ses/ame@h/d",
                Some("postgres://u:(hidden)@h/d"),
            ),
            ("postgres://u:ses%40ame@h", Some("postgres://u:(hidden)@h")),
            ("postgres://u:ses:ame@h", Some("postgres://u:(hidden)@h")),
            (
                "postgres://h/d?user=u&password=sesame&application_name=x",
                Some("postgres://u:(hidden)@h/d"),
            ),
            (
                "postgres:///d?host=/run/postgresql&password=sesame",
                Some("postgres://:(hidden)@/d?host=/run/postgresql"),
            ),
            (
                "host=h password = sesame user=u",
                Some("postgres://u:(hidden)@h"),
            ),
            (
                r"host=h password='ses\'ame' port=7",
                Some("postgres://:(hidden)@h:7"),
            ),
            (
                r"host=h password=ses\ ame user=u dbname=d",
                Some("postgres://u:(hidden)@h/d"),
            ),
            (
                "hostaddr=127.0.0.1 password=sesame",
                Some("postgres://:(hidden)@127.0.0.1"),
            ),
            // The rest of the password is taken for a part of the host, of the user, of a parameter.
            ("postgres://u:ses@ame@h:1/d", None),
            ("postgres://u%3Asesame@h/d", None),
            ("host=h password=ses ame", None),
            ("postgres://u:ses@h/d?x=ame", None),
            ("sesame", None),
        ] {
            let config = Config {
                url: url.to_owned(),
                ..Config::default()
            };
            assert_eq!(config.shown_url().as_deref(), shown, "{url}");
        }
    }

    /// With a blank in it, what follows looks like something else.
    #[test]
    fn no_problem_of_an_address_shows_a_piece_of_its_password() {
        for url in [
            "host=h password=a sesame=b",
            "host=h password=a sesame b",
            "host=h password=a \u{2603}",
            "postgres://u:a@h/d?sesame=b",
            "postgres://u:sesame",
        ] {
            let config = Config {
                url: url.to_owned(),
                ..Config::default()
            };
            let problems = config.validate();
            let told = problems.join("; ");
            assert!(told.starts_with("postgres.url: "), "{url}: {told}");
            let shown = ["sesame", "\u{2603}"]
                .iter()
                .any(|piece| told.contains(piece));
            assert!(!shown, "{url}: {told}");
        }
    }
}
