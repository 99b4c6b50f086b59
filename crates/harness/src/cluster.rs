//! Several gateways, workers and crons of our binary over one Postgres and one Redis.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::client::Client;
use crate::config::{Common, Role};
use crate::error::{Error, Result};
use crate::node::{self, Node};
use crate::temp::Temp;
use crate::{logs, ports};

/// Longer than any grace period of our processes in tests.
const STOP: Duration = Duration::from_secs(20);
/// Of each log, after a failed test.
const TAIL_LINES: usize = 30;

/// How many of which, and what they share.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Our binary: in its own integration tests `env!("CARGO_BIN_EXE_mcp-tasks")`.
    pub binary: PathBuf,
    /// Gateways to start.
    pub gateways: usize,
    /// Workers to start.
    pub workers: usize,
    /// Crons to start.
    pub crons: usize,
    /// What they share. URLs may lead through a [`crate::proxy::Proxy`].
    pub common: Common,
}

impl Plan {
    /// One of each.
    #[must_use]
    pub fn new(binary: impl AsRef<Path>, postgres_url: &str, redis_url: &str) -> Plan {
        Plan {
            binary: binary.as_ref().to_owned(),
            gateways: 1,
            workers: 1,
            crons: 1,
            common: Common {
                postgres_url: postgres_url.to_owned(),
                redis_url: redis_url.to_owned(),
                settings: toml::Table::new(),
            },
        }
    }

    /// Other numbers.
    #[must_use]
    pub fn of(self, gateways: usize, workers: usize, crons: usize) -> Plan {
        Plan {
            gateways,
            workers,
            crons,
            ..self
        }
    }

    /// Adds settings, written as TOML; they win over what was set before.
    ///
    /// # Panics
    /// If it is not TOML: the text is part of a test.
    #[must_use]
    pub fn settings(mut self, toml: &str) -> Plan {
        let over = toml.parse().expect("a test's settings are valid TOML");
        crate::config::merge(&mut self.common.settings, &over);
        self
    }

    /// Starts them and waits until all are ready.
    ///
    /// # Errors
    /// If one can't be started or does not become ready.
    pub async fn start(self) -> Result<Cluster> {
        let mut cluster = Cluster {
            gateways: Vec::new(),
            workers: Vec::new(),
            crons: Vec::new(),
            temp: Temp::new()?,
            plan: self,
        };
        let Plan {
            gateways,
            workers,
            crons,
            ..
        } = cluster.plan;
        for (role, count) in [
            (Role::Gateway, gateways),
            (Role::Worker, workers),
            (Role::Cron, crons),
        ] {
            for _ in 0..count {
                cluster.add(role)?;
            }
        }
        cluster.ready().await?;
        Ok(cluster)
    }
}

/// A running cluster. Dropping it kills every process and removes configuration and logs.
#[derive(Debug)]
pub struct Cluster {
    /// The gateways, in order of their start.
    pub gateways: Vec<Node>,
    /// The workers.
    pub workers: Vec<Node>,
    /// The crons.
    pub crons: Vec<Node>,
    plan: Plan,
    temp: Temp,
}

impl Cluster {
    /// Starts one more, without waiting for it, and returns it.
    ///
    /// # Errors
    /// [`Error::Io`] if it can't be started.
    pub fn add(&mut self, role: Role) -> Result<&mut Node> {
        self.add_with(role, |_| ())
    }

    /// The same, after `change` made it different from the others: another database URL, another
    /// clock.
    ///
    /// # Errors
    /// As [`Cluster::add`].
    pub fn add_with(
        &mut self,
        role: Role,
        change: impl FnOnce(&mut node::Plan),
    ) -> Result<&mut Node> {
        let nodes = match role {
            Role::Gateway => &mut self.gateways,
            Role::Worker => &mut self.workers,
            Role::Cron => &mut self.crons,
        };
        let mut plan = node::Plan {
            role,
            number: nodes.len() + 1,
            binary: self.plan.binary.clone(),
            dir: self.temp.path().to_owned(),
            port: if role == Role::Gateway {
                Some(ports::free()?)
            } else {
                None
            },
            admin_port: ports::free()?,
            common: self.plan.common.clone(),
            env: Vec::new(),
        };
        change(&mut plan);
        nodes.push(Node::start(plan)?);
        Ok(nodes.last_mut().expect("one was just added"))
    }

    /// All processes.
    pub fn nodes(&mut self) -> impl Iterator<Item = &mut Node> {
        self.gateways
            .iter_mut()
            .chain(&mut self.workers)
            .chain(&mut self.crons)
    }

    /// Waits until every process is ready.
    ///
    /// # Errors
    /// As [`Node::ready`].
    pub async fn ready(&mut self) -> Result<()> {
        for node in self.nodes() {
            node.ready().await?;
        }
        Ok(())
    }

    /// A caller of this name at the gateway of this index.
    #[must_use]
    pub fn client(&self, gateway: usize, name: &str) -> Client {
        Client::new(&self.gateways[gateway].url()).bearer(name)
    }

    /// Waits until the gateway of this index lists every one of these tools.
    ///
    /// # Errors
    /// [`Error::Timeout`] that shows what it lists.
    pub async fn wait_for_tools(&self, gateway: usize, tools: &[&str]) -> Result<()> {
        let client = self.client(gateway, "harness");
        let look = async || {
            let listed = client.list().await.unwrap_or_default();
            listed
                .iter()
                .filter_map(|tool| tool["name"].as_str().map(str::to_owned))
                .collect()
        };
        let all = |seen: &Vec<String>| {
            tools
                .iter()
                .all(|tool| seen.iter().any(|name| name == tool))
        };
        crate::wait::for_state("tools listed", crate::wait::DEFAULT, look, all)
            .await
            .map(drop)
    }

    /// Stops every process in good order, gateways first.
    ///
    /// # Errors
    /// [`Error::Timeout`] for the first that had to be killed.
    pub async fn stop(&mut self) -> Result<()> {
        let mut first = Ok(());
        for node in self.nodes() {
            if node.pid().is_some() && node.ended().is_none() {
                first = first.and(node.stop(STOP).await.map(drop));
            }
        }
        first
    }

    /// Fails if a log holds a warning or an error that contains none of the allowed texts.
    ///
    /// # Errors
    /// [`Error::Failed`] that quotes them.
    pub fn quiet(&self, allowed: &[&str]) -> Result<()> {
        let nodes = self.gateways.iter().chain(&self.workers).chain(&self.crons);
        let mut bad = Vec::new();
        for node in nodes {
            let lines = logs::unexpected(node.log(), allowed)?;
            bad.extend(
                lines
                    .into_iter()
                    .map(|line| format!("{}: {line}", node.name())),
            );
        }
        if bad.is_empty() {
            return Ok(());
        }
        let what = format!("unexpected log lines:\n  {}", bad.join("\n  "));
        Err(Error::Failed { what, log: None })
    }
}

impl Drop for Cluster {
    /// The logs go with the folder; after a failed test their ends are worth more than tidiness.
    fn drop(&mut self) {
        if std::thread::panicking() {
            for node in self.nodes() {
                eprint!("{}", logs::tail(node.log(), TAIL_LINES));
            }
        }
    }
}
