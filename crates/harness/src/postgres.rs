//! A private Postgres server: a cluster of our own on a free loopback port, which can be stopped,
//! killed, restarted and frozen.

mod admin;
mod binaries;
mod home;
mod session;
mod shared;
mod standby;

use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::error::{Error, Result};
use crate::process::{Process, Spec};
use crate::temp::Temp;
use crate::user::Identity;
use crate::{leftovers, ports};

pub use admin::rows;
pub use home::end_and_remove;
pub use session::Session;
pub use shared::{Database, shared, test_database};

/// A server on a busy machine may have a long journal to replay.
const START: Duration = Duration::from_secs(60);
/// A fast shutdown ends every session and writes a checkpoint.
const STOP: Duration = Duration::from_secs(30);
/// `sockaddr_un` holds 107 bytes; the socket's own name takes up to 20 of them.
const SOCKET_DIR_BYTES_MAX: usize = 87;

/// What happens to a commit when the *machine* loses power. A killed server loses nothing either
/// way: what it wrote is in the system's page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Commits wait for the disk: for data that should last (`mcp-tasks dev`).
    Fsync,
    /// Commits don't wait for the disk: for tests.
    NoFsync,
}

/// How to start a server.
#[derive(Debug, Clone)]
pub struct Options {
    /// Whether commits wait for the disk.
    pub durability: Durability,
    /// The TCP port on 127.0.0.1; a free one if `None`.
    pub port: Option<u16>,
    /// Further settings, as in `postgresql.conf`; they win over ours.
    pub settings: Vec<(String, String)>,
    /// Variables of its environment; see [`crate::clock`].
    pub env: Vec<(String, String)>,
}

impl Options {
    /// Settings for tests: no fsync.
    #[must_use]
    pub fn test() -> Options {
        Options {
            durability: Durability::NoFsync,
            port: None,
            settings: Vec::new(),
            env: Vec::new(),
        }
    }

    /// Settings for data that should last.
    #[must_use]
    pub fn durable() -> Options {
        Options {
            durability: Durability::Fsync,
            ..Options::test()
        }
    }

    /// Adds a setting, as in `postgresql.conf`.
    #[must_use]
    pub fn set(mut self, name: &str, value: &str) -> Options {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }
}

/// A Postgres server of our own. Dropping it stops the server at once (the data stays, and is
/// recovered by the next start; a [`Postgres::temporary`] one is removed).
#[derive(Debug)]
pub struct Postgres {
    options: Options,
    identity: Option<Identity>,
    home: PathBuf,
    log: PathBuf,
    port: u16,
    process: Option<Process>,
    /// Dropped last: the folder outlives the server.
    temp: Option<Temp>,
}

impl Postgres {
    /// Starts a server whose data lives in `dir` (made and initialised if need be). As root, the
    /// server runs as user `postgres`, else `nobody`; where that user can't enter `dir`, the data
    /// lies in a private folder elsewhere, which a file in `dir` names. A server that an earlier,
    /// killed run left behind in this folder is ended first.
    ///
    /// # Errors
    /// If Postgres is not installed, can't be initialised, or does not answer within a minute.
    pub async fn start(dir: &Path, options: Options) -> Result<Postgres> {
        let identity = Identity::unprivileged()?;
        let home = home::prepare(dir, identity.as_ref())?;
        let log = dir.join("postgres.log");
        let data = home.join("data");
        leftovers::end(&data, Signal::SIGINT).await?;
        if !data.join("PG_VERSION").exists() {
            home::init(&home, &log, identity.as_ref()).await?;
        }
        let port = options.port.map_or_else(ports::free, Ok)?;
        let mut server = Postgres {
            options,
            identity,
            home,
            log,
            port,
            process: None,
            temp: None,
        };
        server.start_again().await?;
        Ok(server)
    }

    /// Starts a server for tests in a temporary folder: no fsync, gone on drop.
    ///
    /// # Errors
    /// As [`Postgres::start`].
    pub async fn temporary() -> Result<Postgres> {
        Postgres::temporary_with(Options::test()).await
    }

    /// Starts a server with the given options in a temporary folder.
    ///
    /// # Errors
    /// As [`Postgres::start`].
    pub async fn temporary_with(options: Options) -> Result<Postgres> {
        let temp = Temp::new()?;
        let mut server = Postgres::start(temp.path(), options).await?;
        server.temp = Some(temp);
        Ok(server)
    }

    /// The URL of a database for any local user: TCP loopback, no password. The user is the
    /// superuser `postgres`.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// The port on 127.0.0.1; the same after every restart.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The postmaster's process id; `None` while stopped.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Process::pid)
    }

    /// The cluster's data folder.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.home.join("data")
    }

    /// The server's log file.
    #[must_use]
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Whether the postmaster runs.
    pub fn is_running(&mut self) -> bool {
        self.process
            .as_mut()
            .is_some_and(|process| process.ended().is_none())
    }

    /// How the postmaster ended; `None` while it runs or after [`Postgres::stop`].
    pub fn ended(&mut self) -> Option<std::process::ExitStatus> {
        self.process.as_mut().and_then(Process::ended)
    }

    /// Starts a stopped or killed server again, on the same port, and waits until it answers. If it
    /// runs, only waits.
    ///
    /// # Errors
    /// As [`Postgres::start`].
    pub async fn start_again(&mut self) -> Result<()> {
        if self.is_running() {
            return self.ready().await;
        }
        // A postmaster that was killed leaves backends behind for a moment; they hold the cluster.
        leftovers::end(&self.data(), Signal::SIGQUIT).await?;
        home::forget_stale_pid(&self.data());
        self.process = Some(Process::spawn(&self.spec()?)?);
        self.ready().await
    }

    /// Stops the server in good order (open sessions are ended, open transactions rolled back).
    ///
    /// # Errors
    /// [`Error::Timeout`] if it has not stopped after 30 s.
    pub async fn stop(&mut self) -> Result<()> {
        let Some(mut process) = self.process.take() else {
            return Ok(());
        };
        process.signal(Signal::SIGINT);
        self.thaw();
        let stopped = process.wait(STOP).await;
        if stopped.is_err() {
            self.process = Some(process);
        }
        stopped.map(drop)
    }

    /// Kills the postmaster and every backend, as when the machine dies (`SIGKILL`).
    pub async fn kill9(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill9();
        }
        leftovers::signal(&self.data(), Signal::SIGKILL);
        leftovers::gone(&self.data(), Duration::from_secs(10)).await;
    }

    /// [`Postgres::stop`], then [`Postgres::start_again`].
    ///
    /// # Errors
    /// As those.
    pub async fn restart(&mut self) -> Result<()> {
        self.stop().await?;
        self.start_again().await
    }

    /// Freezes the server with all its sessions (`SIGSTOP`): connections stay open, nothing answers.
    pub fn freeze(&self) {
        // The postmaster first, so that no new backend escapes the round over the folder.
        if let Some(process) = &self.process {
            let _ = nix::sys::signal::kill(crate::process::as_pid(process.pid()), Signal::SIGSTOP);
        }
        leftovers::signal(&self.data(), Signal::SIGSTOP);
    }

    /// Lets a frozen server go on.
    pub fn thaw(&self) {
        leftovers::signal(&self.data(), Signal::SIGCONT);
    }

    fn spec(&self) -> Result<Spec> {
        let data = self.data();
        let program = binaries::find("postgres", Some(&data))?;
        let sockets = if self.home.as_os_str().len() <= SOCKET_DIR_BYTES_MAX {
            self.home.display().to_string()
        } else {
            String::new()
        };
        let mut settings: Vec<(String, String)> = [
            ("listen_addresses", "127.0.0.1".to_owned()),
            ("port", self.port.to_string()),
            ("unix_socket_directories", sockets),
            ("max_connections", "300".to_owned()),
            ("shared_buffers", "64MB".to_owned()),
            ("timezone", "UTC".to_owned()),
            ("log_line_prefix", "%m [%p] %q%a ".to_owned()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        if self.options.durability == Durability::NoFsync {
            let off = ["fsync", "full_page_writes"];
            settings.extend(off.map(|name| (name.to_owned(), "off".to_owned())));
        }
        settings.extend(self.options.settings.iter().cloned());
        let settings = settings
            .into_iter()
            .map(|(name, value)| format!("--{name}={value}"));
        let mut spec = Spec::new("postgres", &program, &self.log)
            .args(["-D".to_owned(), data.display().to_string()])
            .args(settings);
        spec.identity = self.identity.clone();
        spec.env.clone_from(&self.options.env);
        spec.dir = Some(data);
        // A fast shutdown: the next start needs no recovery, and no shared memory is left behind.
        spec.death_signal = Signal::SIGINT;
        Ok(spec)
    }

    /// Waits until a session can be opened.
    async fn ready(&mut self) -> Result<()> {
        let deadline = std::time::Instant::now() + START;
        let url = self.url("postgres");
        loop {
            let ended = self.process.as_mut().and_then(Process::ended);
            if let Some(status) = ended {
                self.process = None;
                let what = format!("postgres on port {} ended at start: {status}", self.port);
                return Err(Error::Failed {
                    what,
                    log: Some(self.log.clone()),
                });
            }
            let Err(error) = admin::rows(&url, "SELECT 1").await else {
                return Ok(());
            };
            if std::time::Instant::now() >= deadline {
                let what = format!("first answer of postgres on port {} ({error})", self.port);
                return Err(Error::Timeout {
                    what,
                    after: START,
                    log: Some(self.log.clone()),
                });
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let Some(mut process) = self.process.take() else {
            return;
        };
        // An immediate shutdown gives the shared memory back, which `SIGKILL` would not.
        process.signal(Signal::SIGQUIT);
        self.thaw();
        if process.wait_blocking(Duration::from_secs(5)).is_none() {
            process.kill9();
            leftovers::signal(&self.data(), Signal::SIGKILL);
        }
    }
}
