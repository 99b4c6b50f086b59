//! A private Redis server on a free loopback port, which can be stopped, killed, restarted, frozen
//! and emptied.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::error::{Error, Result};
use crate::process::{Process, Spec, find_program};
use crate::temp::Temp;
use crate::{leftovers, ports};

const START: Duration = Duration::from_secs(30);
const STOP: Duration = Duration::from_secs(15);
const ANSWER: Duration = Duration::from_secs(5);

/// Whether data survives a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Persistence {
    /// An append-only file, written to disk every second (`mcp-tasks dev`).
    AppendOnly,
    /// Nothing is kept: every restart is empty, as after the loss of the server.
    None,
}

/// How to start a server.
#[derive(Debug, Clone)]
pub struct Options {
    /// Whether data survives a restart.
    pub persistence: Persistence,
    /// The TCP port on 127.0.0.1; a free one if `None`.
    pub port: Option<u16>,
    /// Further settings, as in `redis.conf`; they win over ours.
    pub settings: Vec<(String, String)>,
}

impl Options {
    /// Settings for tests: nothing survives a restart.
    #[must_use]
    pub fn test() -> Options {
        Options {
            persistence: Persistence::None,
            port: None,
            settings: Vec::new(),
        }
    }

    /// Settings for data that should last.
    #[must_use]
    pub fn durable() -> Options {
        Options {
            persistence: Persistence::AppendOnly,
            ..Options::test()
        }
    }
}

/// A Redis server of our own. Dropping it kills the server.
#[derive(Debug)]
pub struct Redis {
    options: Options,
    dir: PathBuf,
    log: PathBuf,
    port: u16,
    process: Option<Process>,
    /// Dropped last: the folder outlives the server.
    temp: Option<Temp>,
}

impl Redis {
    /// Starts a server whose data and log live in `dir`. One that an earlier, killed run left
    /// behind in this folder is ended first.
    ///
    /// # Errors
    /// If Redis is not installed or does not answer within 30 s.
    pub async fn start(dir: &Path, options: Options) -> Result<Redis> {
        let data = dir.join("redis");
        std::fs::create_dir_all(&data).map_err(Error::io(format!("make {}", data.display())))?;
        let data = data
            .canonicalize()
            .map_err(Error::io(format!("find {}", data.display())))?;
        leftovers::end(&data, Signal::SIGTERM).await?;
        let port = options.port.map_or_else(ports::free, Ok)?;
        let log = dir.join("redis.log");
        let mut server = Redis {
            options,
            dir: data,
            log,
            port,
            process: None,
            temp: None,
        };
        server.start_again().await?;
        Ok(server)
    }

    /// Starts a server for tests in a temporary folder: nothing survives a restart, gone on drop.
    ///
    /// # Errors
    /// As [`Redis::start`].
    pub async fn temporary() -> Result<Redis> {
        Redis::temporary_with(Options::test()).await
    }

    /// Starts a server with the given options in a temporary folder.
    ///
    /// # Errors
    /// As [`Redis::start`].
    pub async fn temporary_with(options: Options) -> Result<Redis> {
        let temp = Temp::new()?;
        let mut server = Redis::start(temp.path(), options).await?;
        server.temp = Some(temp);
        Ok(server)
    }

    /// The server's URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// The port on 127.0.0.1; the same after every restart.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The server's process id; `None` while stopped.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Process::pid)
    }

    /// The server's log file.
    #[must_use]
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Whether the server runs.
    pub fn is_running(&mut self) -> bool {
        self.process
            .as_mut()
            .is_some_and(|process| process.ended().is_none())
    }

    /// How the server ended; `None` while it runs or after [`Redis::stop`].
    pub fn ended(&mut self) -> Option<std::process::ExitStatus> {
        self.process.as_mut().and_then(Process::ended)
    }

    /// Starts a stopped or killed server again on the same port and waits until it answers. If
    /// it runs, only waits.
    ///
    /// # Errors
    /// As [`Redis::start`].
    pub async fn start_again(&mut self) -> Result<()> {
        if self.is_running() {
            return self.ready().await;
        }
        self.process = Some(Process::spawn(&self.spec()?)?);
        self.ready().await
    }

    /// Stops the server in good order.
    ///
    /// # Errors
    /// [`Error::Timeout`] if it has not stopped after 15 s.
    pub async fn stop(&mut self) -> Result<()> {
        let Some(mut process) = self.process.take() else {
            return Ok(());
        };
        process.signal(Signal::SIGTERM);
        process.signal(Signal::SIGCONT);
        let stopped = process.wait(STOP).await;
        if stopped.is_err() {
            self.process = Some(process);
        }
        stopped.map(drop)
    }

    /// Kills the server (`SIGKILL`).
    pub fn kill9(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill9();
        }
    }

    /// [`Redis::stop`], then [`Redis::start_again`]; empty afterwards unless it persists.
    ///
    /// # Errors
    /// As those.
    pub async fn restart(&mut self) -> Result<()> {
        self.stop().await?;
        self.start_again().await
    }

    /// Freezes the server (`SIGSTOP`): connections stay open, nothing answers.
    pub fn freeze(&mut self) {
        if let Some(process) = &mut self.process {
            process.signal(Signal::SIGSTOP);
        }
    }

    /// Lets a frozen server go on.
    pub fn thaw(&mut self) {
        if let Some(process) = &mut self.process {
            process.signal(Signal::SIGCONT);
        }
    }

    /// Forgets everything (`FLUSHALL`): data, streams, groups.
    ///
    /// # Errors
    /// [`Error::Redis`] if the server can't be reached.
    pub async fn flush(&self) -> Result<()> {
        self.command(&["FLUSHALL"]).await.map(drop)
    }

    /// Runs any command on a connection of its own.
    ///
    /// # Errors
    /// [`Error::Redis`] if the server can't be reached or refuses.
    pub async fn command(&self, words: &[&str]) -> Result<::redis::Value> {
        let client = ::redis::Client::open(self.url())?;
        let config = ::redis::AsyncConnectionConfig::new()
            .set_connection_timeout(Some(ANSWER))
            .set_response_timeout(Some(ANSWER));
        let mut connection = client
            .get_multiplexed_async_connection_with_config(&config)
            .await?;
        let mut command = ::redis::Cmd::new();
        command.arg(words);
        Ok(command.query_async(&mut connection).await?)
    }

    /// Runs a command whose answer is a number.
    ///
    /// # Errors
    /// As [`Redis::command`], and [`Error::Redis`] if the answer is no number.
    pub async fn number(&self, words: &[&str]) -> Result<i64> {
        let answer = ::redis::from_redis_value(self.command(words).await?);
        answer.map_err(|error| ::redis::RedisError::from(error).into())
    }

    fn spec(&self) -> Result<Spec> {
        let program = find_program("redis-server").ok_or_else(|| Error::Missing {
            program: "redis-server".into(),
            hint: "install Redis 7 (on Debian: .ci/install dev)",
        })?;
        let append = match self.options.persistence {
            Persistence::AppendOnly => "yes",
            Persistence::None => "no",
        };
        let mut settings: Vec<(String, String)> = [
            ("port", self.port.to_string()),
            ("bind", "127.0.0.1".to_owned()),
            ("dir", self.dir.display().to_string()),
            ("save", String::new()),
            ("appendonly", append.to_owned()),
            ("appendfsync", "everysec".to_owned()),
            // Hints must not vanish to make room: an error is noticed, an eviction is not.
            ("maxmemory-policy", "noeviction".to_owned()),
            ("daemonize", "no".to_owned()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        let socket = self.dir.join("redis.sock");
        if socket.as_os_str().len() <= 107 {
            settings.push(("unixsocket".to_owned(), socket.display().to_string()));
        }
        settings.extend(self.options.settings.iter().cloned());
        let args = settings
            .into_iter()
            .flat_map(|(name, value)| [format!("--{name}"), value]);
        let mut spec = Spec::new("redis", &program, &self.log).args(args);
        spec.dir = Some(self.dir.clone());
        spec.death_signal = Signal::SIGTERM;
        Ok(spec)
    }

    /// Waits until the server answers: after a start it may have a file to load.
    async fn ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + START;
        loop {
            let ended = self.process.as_mut().and_then(Process::ended);
            if let Some(status) = ended {
                self.process = None;
                let what = format!("redis on port {} ended at start: {status}", self.port);
                return Err(Error::Failed {
                    what,
                    log: Some(self.log.clone()),
                });
            }
            let Err(error) = self.command(&["PING"]).await else {
                return Ok(());
            };
            if Instant::now() >= deadline {
                let what = format!("first answer of redis on port {} ({error})", self.port);
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

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill9();
    }
}
