//! One process of our binary: a gateway, a worker or a cron, with a configuration file, ports that
//! it keeps over restarts, and its log.

use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::config::{self, Common, Role};
use crate::error::{Error, Result};
use crate::http::Http;
use crate::process::{Process, Spec};

/// A process that is still not ready by then is broken. (Generous: two cores may run everything.)
const READY: Duration = Duration::from_secs(60);
const PROBE: Duration = Duration::from_secs(5);

/// What a node is made of.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Which process.
    pub role: Role,
    /// Counts from 1; with the role it makes the name, e.g. `gateway-1`.
    pub number: usize,
    /// Our binary.
    pub binary: PathBuf,
    /// Folder for its configuration file and log.
    pub dir: PathBuf,
    /// Port of the MCP endpoint: a gateway's only.
    pub port: Option<u16>,
    /// Port of the admin listener.
    pub admin_port: u16,
    /// What it shares with the others.
    pub common: Common,
    /// Variables of its environment; see [`crate::clock`].
    pub env: Vec<(String, String)>,
}

/// One process of our binary. Dropping it kills it.
#[derive(Debug)]
pub struct Node {
    plan: Plan,
    name: String,
    log: PathBuf,
    process: Option<Process>,
    http: Http,
}

impl Node {
    /// Writes the configuration and starts the process; does not wait until it is ready.
    ///
    /// # Errors
    /// [`Error::Io`] if it can't be started.
    pub fn start(plan: Plan) -> Result<Node> {
        let name = format!("{}-{}", plan.role.command(), plan.number);
        let dir = &plan.dir;
        std::fs::create_dir_all(dir).map_err(Error::io(format!("make {}", dir.display())))?;
        let log = dir.join(format!("{name}.log"));
        let mut node = Node {
            plan,
            name,
            log,
            process: None,
            http: Http::new(PROBE),
        };
        node.start_again()?;
        Ok(node)
    }

    /// Which process it is.
    #[must_use]
    pub fn role(&self) -> Role {
        self.plan.role
    }

    /// Its name, e.g. `worker-2`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its process id; `None` while it is stopped.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Process::pid)
    }

    /// The MCP endpoint; empty for anything but a gateway.
    #[must_use]
    pub fn url(&self) -> String {
        self.plan
            .port
            .map_or_else(String::new, |port| format!("http://127.0.0.1:{port}/mcp"))
    }

    /// Base URL of the admin listener.
    #[must_use]
    pub fn admin(&self) -> String {
        format!("http://127.0.0.1:{}", self.plan.admin_port)
    }

    /// The file that holds its output.
    #[must_use]
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// What it was started with; changes apply to the next start.
    pub fn plan_mut(&mut self) -> &mut Plan {
        &mut self.plan
    }

    /// How it ended, or `None` while it runs or was never started.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.process.as_mut().and_then(Process::ended)
    }

    /// Starts a stopped or killed process again, on the same ports. Does nothing if it runs.
    ///
    /// # Errors
    /// [`Error::Io`] if it can't be started.
    pub fn start_again(&mut self) -> Result<()> {
        if self
            .process
            .as_mut()
            .is_some_and(|process| process.ended().is_none())
        {
            return Ok(());
        }
        let file = self.plan.dir.join(format!("{}.toml", self.name));
        let table = config::table(&self.plan.common, self.plan.port, self.plan.admin_port);
        config::write(&file, &table)?;
        let args = [self.plan.role.command(), "--config"].map(str::to_owned);
        let mut spec = Spec::new(&self.name, &self.plan.binary, &self.log)
            .args(args)
            .args([file.display().to_string()]);
        spec.dir = Some(self.plan.dir.clone());
        spec.env.clone_from(&self.plan.env);
        self.process = Some(Process::spawn(&spec)?);
        Ok(())
    }

    /// Waits until `/readyz` answers 200.
    ///
    /// # Errors
    /// [`Error::Failed`] if the process ends before, [`Error::Timeout`] after a minute.
    pub async fn ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + READY;
        let probe = format!("{}/readyz", self.admin());
        loop {
            if let Some(status) = self.ended() {
                let what = format!("{} ended before it was ready: {status}", self.name);
                return Err(Error::Failed {
                    what,
                    log: Some(self.log.clone()),
                });
            }
            let seen = match self.http.get(&probe).await {
                Ok(reply) if reply.status == 200 => return Ok(()),
                Ok(reply) => String::from_utf8_lossy(&reply.body).into_owned(),
                Err(error) => error.to_string(),
            };
            if Instant::now() >= deadline {
                let what = format!("{} ready (last answer: {seen})", self.name);
                return Err(Error::Timeout {
                    what,
                    after: READY,
                    log: Some(self.log.clone()),
                });
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    }

    /// Asks it to end (`SIGTERM`) without waiting.
    pub fn term(&mut self) {
        self.signal(Signal::SIGTERM);
    }

    /// Asks it to end and waits; kills it when `grace` is over.
    ///
    /// # Errors
    /// [`Error::Timeout`] if it had to be killed.
    pub async fn stop(&mut self, grace: Duration) -> Result<ExitStatus> {
        self.term();
        self.thaw();
        self.wait(grace).await.inspect_err(|_| self.kill9())
    }

    /// Waits until it has ended.
    ///
    /// # Errors
    /// [`Error::Timeout`] if it still runs after `within`, [`Error::Failed`] if it never ran.
    pub async fn wait(&mut self, within: Duration) -> Result<ExitStatus> {
        match &mut self.process {
            Some(process) => process.wait(within).await,
            None => Err(Error::Failed {
                what: format!("{} does not run", self.name),
                log: None,
            }),
        }
    }

    /// Kills it (`SIGKILL`).
    pub fn kill9(&mut self) {
        if let Some(process) = &mut self.process {
            process.kill9();
        }
    }

    /// Freezes it (`SIGSTOP`): its connections stay open, its clock goes on.
    pub fn freeze(&mut self) {
        self.signal(Signal::SIGSTOP);
    }

    /// Lets a frozen process go on.
    pub fn thaw(&mut self) {
        self.signal(Signal::SIGCONT);
    }

    /// Kills it, starts it again and waits until it is ready.
    ///
    /// # Errors
    /// As [`Node::ready`].
    pub async fn restart(&mut self) -> Result<()> {
        self.kill9();
        self.start_again()?;
        self.ready().await
    }

    /// The metrics page.
    ///
    /// # Errors
    /// [`Error::Http`] if it does not answer.
    pub async fn metrics(&self) -> Result<String> {
        let reply = self.http.get(&format!("{}/metrics", self.admin())).await?;
        Ok(String::from_utf8_lossy(&reply.body).into_owned())
    }

    /// The sum of all samples of this name whose labels contain `labels` (e.g. `tool="x"`; empty for
    /// any); 0 if there are none.
    ///
    /// # Errors
    /// [`Error::Http`] if it does not answer.
    pub async fn metric(&self, name: &str, labels: &str) -> Result<f64> {
        let page = self.metrics().await?;
        let samples = page.lines().filter_map(|line| {
            let rest = line
                .strip_prefix(name)
                .filter(|rest| rest.starts_with([' ', '{']))?;
            let (set, value) = rest.rsplit_once(' ')?;
            set.contains(labels).then(|| value.parse::<f64>().ok())?
        });
        Ok(samples.sum())
    }

    fn signal(&mut self, signal: Signal) {
        if let Some(process) = &mut self.process {
            process.signal(signal);
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill9();
    }
}
