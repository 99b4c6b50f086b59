//! How a connection comes to be: host by host, each in its own time, and with the settings that
//! every session of ours has.
//!
//! They are set by a statement and not by the startup packet: a pooler that hands sessions on
//! refuses packets with `options`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use deadpool_postgres::Connect;
use tokio::task::JoinHandle;
use tokio_postgres::config::{Host, TargetSessionAttrs};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use crate::error::Fault;
use crate::pool::sql;
use crate::refusal::Refusal;
use crate::tls;
use crate::{Config, Error, Store};

/// An idle connection is probed after this, and then as often as below.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(3);
const KEEPALIVE_RETRIES: u32 = 3;
/// Looks at two sessions, by turns: more than a pooler with several servers can get right.
const ROUNDS: usize = 3;

/// Opens connections to whichever host is the primary.
pub(crate) struct Connector {
    /// One host each.
    hosts: Vec<tokio_postgres::Config>,
    /// `None`: never encrypted.
    tls: Option<MakeRustlsConnect>,
    password: Option<PasswordFile>,
    /// Where the next connection is tried first: the last host that worked.
    first: AtomicUsize,
    connect_timeout: Duration,
    statement_timeout: String,
    idle_timeout: String,
    drivers: TaskTracker,
}

impl Connector {
    /// # Errors
    /// [`Error::Schema`] when the URL, or a file that the settings name, cannot be read.
    pub(crate) fn new(config: &Config) -> Result<Self, Error> {
        let (mut postgres, tls) = tls::read(config).map_err(Error::Schema)?;
        let password = config.password_file.as_deref().map(PasswordFile::new);
        postgres
            .application_name("mcp-tasks")
            .connect_timeout(config.connect_timeout)
            // A standby would take connections, refuse writes, and show the past to reads.
            .target_session_attrs(TargetSessionAttrs::ReadWrite)
            // Half-open connections are noticed in seconds and not in hours. What was sent is
            // acknowledged by the other machine's system, however slow its Postgres is.
            .keepalives_idle(KEEPALIVE_IDLE)
            .keepalives_interval(KEEPALIVE_INTERVAL)
            .keepalives_retries(KEEPALIVE_RETRIES)
            .tcp_user_timeout(config.connect_timeout);
        // A transaction whose client hangs holds its locks for less time than others wait.
        let (statement, idle) = (config.statement_timeout, config.statement_timeout / 2);
        Ok(Self {
            hosts: single_hosts(&postgres),
            tls,
            password: password.transpose().map_err(Error::Schema)?,
            first: AtomicUsize::new(0),
            connect_timeout: config.connect_timeout,
            statement_timeout: crate::config::ms(statement).to_string(),
            idle_timeout: crate::config::ms(idle).max(1).to_string(),
            drivers: TaskTracker::new(),
        })
    }

    /// How long it may take to find the primary behind hosts that do not answer.
    pub(crate) fn patience(&self) -> Duration {
        let hosts = u32::try_from(self.hosts.len()).unwrap_or(u32::MAX);
        self.connect_timeout.saturating_mul(hosts)
    }

    /// Tries every host once. Without a limit for the last of them, which is the caller's to set.
    async fn open(&self) -> Result<(Client, JoinHandle<()>), tokio_postgres::Error> {
        let (client, driver) = self.open_bare().await?;
        let settings: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 2] = [
            (&self.statement_timeout, Type::TEXT),
            (&self.idle_timeout, Type::TEXT),
        ];
        client.query_typed(sql!("session"), &settings).await?;
        Ok((client, driver))
    }

    /// The same, and the session stays as Postgres makes it.
    pub(crate) async fn open_bare(
        &self,
    ) -> Result<(Client, JoinHandle<()>), tokio_postgres::Error> {
        let (hosts, begin) = (self.hosts.len(), self.first.load(Ordering::Relaxed));
        // Says more than that another host is away.
        let mut refused = None;
        for turn in 0.. {
            let at = (begin + turn) % hosts;
            // Also where a caller gives up here, the next one begins elsewhere.
            self.first.store((at + 1) % hosts, Ordering::Relaxed);
            let opening = self.open_host(&self.hosts[at]);
            let is_last = turn + 1 >= hosts;
            let opened = if is_last {
                Some(opening.await)
            } else {
                tokio::time::timeout(self.connect_timeout, opening)
                    .await
                    .ok()
            };
            match opened {
                Some(Ok(opened)) => {
                    self.first.store(at, Ordering::Relaxed);
                    return Ok(opened);
                }
                Some(Err(error)) if is_last => return Err(refused.unwrap_or(error)),
                Some(Err(error)) if Refusal::is(&error) => refused = Some(error),
                Some(Err(_)) | None => {}
            }
        }
        unreachable!("the last host ends the loop")
    }

    async fn open_host(
        &self,
        host: &tokio_postgres::Config,
    ) -> Result<(Client, JoinHandle<()>), tokio_postgres::Error> {
        let with_password = match &self.password {
            None => None,
            Some(file) => {
                let mut host = host.clone();
                host.password(file.current().await);
                Some(host)
            }
        };
        let host = with_password.as_ref().unwrap_or(host);
        Ok(match &self.tls {
            None => {
                let (client, connection) = host.connect(NoTls).await?;
                (client, self.drivers.spawn(drive(connection)))
            }
            Some(tls) => {
                let (client, connection) = host.connect(tls.clone()).await?;
                (client, self.drivers.spawn(drive(connection)))
            }
        })
    }
}

async fn drive(connection: impl Future<Output = Result<(), tokio_postgres::Error>>) {
    if let Err(error) = connection.await {
        tracing::debug!(error = %error, "a connection to postgres ended");
    }
}

/// A password that may change while this process runs: it is read for each new connection.
struct PasswordFile {
    path: PathBuf,
    /// As it was last read; for when it cannot be read just now.
    last: Mutex<String>,
}

impl PasswordFile {
    fn new(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("postgres.password_file: {}: {error}", path.display()))?;
        Ok(Self {
            path: path.to_owned(),
            last: Mutex::new(trimmed(&text)),
        })
    }

    async fn current(&self) -> String {
        let read = tokio::fs::read_to_string(&self.path).await;
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match read {
            Ok(text) => *last = trimmed(&text),
            Err(error) => {
                tracing::warn!(error = %error, path = %self.path.display(), "postgres.password_file cannot be read: going on with what it held");
            }
        }
        last.clone()
    }
}

/// Editors end files with a line break.
fn trimmed(text: &str) -> String {
    text.trim_end_matches(['\r', '\n']).to_owned()
}

impl Connect for Connector {
    fn connect(
        &self,
        _: &tokio_postgres::Config,
    ) -> Pin<
        Box<
            dyn Future<Output = Result<(Client, JoinHandle<()>), tokio_postgres::Error>>
                + Send
                + '_,
        >,
    > {
        Box::pin(self.open())
    }
}

/// The same settings for each of the hosts alone.
fn single_hosts(all: &tokio_postgres::Config) -> Vec<tokio_postgres::Config> {
    let (names, addresses, ports) = (all.get_hosts(), all.get_hostaddrs(), all.get_ports());
    let count = names.len().max(addresses.len());
    let lists = [names.len(), addresses.len()];
    if count < 2
        || lists.iter().any(|len| *len != 0 && *len != count)
        || (ports.len() > 1 && ports.len() != count)
    {
        // One host, or lists that do not fit each other: the connection says what is wrong.
        return vec![all.clone()];
    }
    let single = |at: usize| {
        let mut one = without_hosts(all);
        match names.get(at) {
            Some(Host::Tcp(name)) => drop(one.host(name)),
            Some(Host::Unix(path)) => drop(one.host_path(path)),
            None => {}
        }
        if let Some(address) = addresses.get(at) {
            one.hostaddr(*address);
        }
        if let Some(port) = ports.get(at).or(ports.first()) {
            one.port(*port);
        }
        one
    };
    (0..count).map(single).collect()
}

/// Hosts can be added to settings and not taken away.
fn without_hosts(all: &tokio_postgres::Config) -> tokio_postgres::Config {
    let mut some = tokio_postgres::Config::new();
    some.ssl_mode(all.get_ssl_mode())
        .ssl_negotiation(all.get_ssl_negotiation())
        .channel_binding(all.get_channel_binding())
        .target_session_attrs(all.get_target_session_attrs())
        .keepalives(all.get_keepalives())
        .keepalives_idle(all.get_keepalives_idle());
    if let Some(user) = all.get_user() {
        some.user(user);
    }
    if let Some(password) = all.get_password() {
        some.password(password);
    }
    if let Some(database) = all.get_dbname() {
        some.dbname(database);
    }
    if let Some(options) = all.get_options() {
        some.options(options);
    }
    if let Some(name) = all.get_application_name() {
        some.application_name(name);
    }
    if let Some(timeout) = all.get_connect_timeout() {
        some.connect_timeout(*timeout);
    }
    if let Some(timeout) = all.get_tcp_user_timeout() {
        some.tcp_user_timeout(*timeout);
    }
    if let Some(interval) = all.get_keepalives_interval() {
        some.keepalives_interval(interval);
    }
    if let Some(retries) = all.get_keepalives_retries() {
        some.keepalives_retries(retries);
    }
    some
}

impl Store {
    /// Refuses a pooler between us and Postgres that gives one session's statements to several
    /// servers: prepared statements and the session's settings would be lost.
    ///
    /// # Errors
    /// [`Error::Schema`] says what to change; others mean that Postgres could not be asked.
    pub async fn check_sessions(&self) -> Result<(), Error> {
        check_sessions(&self.config).await
    }
}

/// See [`Store::check_sessions`].
pub(crate) async fn check_sessions(config: &Config) -> Result<(), Error> {
    let connector = Connector::new(config)?;
    let looking = look(&connector);
    let same = match tokio::time::timeout(connector.patience() * 2, looking).await {
        Ok(Ok(same)) => same,
        Ok(Err(error)) => {
            return Err(match Fault::connecting(error) {
                Fault::Transient(source) => Error::Unavailable(source),
                Fault::Final(error) => error,
            });
        }
        Err(elapsed) => return Err(Error::Unavailable(Box::new(elapsed))),
    };
    if same {
        return Ok(());
    }
    Err(Error::Schema(
        "postgres.url leads through a pooler that gives the statements of one session to several \
         servers (PgBouncer with pool_mode = transaction or statement): set pool_mode = session \
         for this database, or connect to Postgres directly"
            .to_owned(),
    ))
}

/// Whether each of two sessions keeps a server of its own.
async fn look(connector: &Connector) -> Result<bool, tokio_postgres::Error> {
    let ((one, driven), (other, too)) = (connector.open().await?, connector.open().await?);
    let (_one, _other) = (AbortOnDropHandle::new(driven), AbortOnDropHandle::new(too));
    let (mut ones, mut others) = (BTreeSet::new(), BTreeSet::new());
    for _ in 0..ROUNDS {
        for (client, servers) in [(&one, &mut ones), (&other, &mut others)] {
            let row = client.query_typed_one(sql!("server"), &[]).await?;
            servers.insert(row.get::<_, i32>(0));
        }
    }
    Ok(ones.len() == 1 && others.len() == 1 && ones != others)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(url: &str) -> Vec<tokio_postgres::Config> {
        single_hosts(&url.parse().unwrap())
    }

    #[test]
    fn every_host_has_its_own_port_and_what_all_share() {
        let hosts = split("postgres://u:p@one:1,two:2,%2Frun:3/db?options=-c%20x%3D1");
        assert_eq!(hosts.len(), 3);
        assert_eq!(hosts[1].get_hosts(), [Host::Tcp("two".to_owned())]);
        assert_eq!(hosts[2].get_hosts(), [Host::Unix("/run".into())]);
        for (host, port) in hosts.iter().zip(1..) {
            assert_eq!(host.get_ports(), [port]);
            assert_eq!(
                (host.get_user(), host.get_dbname()),
                (Some("u"), Some("db"))
            );
            assert_eq!(host.get_password(), Some(&b"p"[..]));
            assert_eq!(host.get_options(), Some("-c x=1"));
        }
    }

    #[test]
    fn one_host_and_what_does_not_fit_stay_as_they_are() {
        let one = "postgres://u@one/db";
        assert_eq!(split(one), [one.parse().unwrap()]);
        let mut odd: tokio_postgres::Config = "postgres://u@one,two/db".parse().unwrap();
        odd.hostaddr([127, 0, 0, 1].into());
        assert_eq!(single_hosts(&odd), [odd.clone()]);
    }
}
