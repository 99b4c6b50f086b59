//! A private Redis Cluster on free loopback ports: primaries, and replicas where wanted, each a
//! [`Redis`] that can be killed, frozen and started again.

use std::process::Stdio;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::ports;
use crate::process::find_program;
use crate::redis::{Options, Redis};
use crate::temp::Temp;
use crate::wait;

/// Until all servers agree.
const AGREE: Duration = Duration::from_secs(60);
/// After so long without an answer the others call a server dead: short, so that a test need not
/// wait long for a promotion, and longer than a loaded machine's pauses.
const NODE_TIMEOUT_MS: u32 = 2_000;

/// How to start a cluster.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Servers that keep slots; at least three.
    pub primaries: usize,
    /// Replicas of each.
    pub replicas: usize,
    /// Further settings of every server; they win over ours.
    pub settings: Vec<(String, String)>,
}

impl Plan {
    /// Three primaries without replicas.
    #[must_use]
    pub fn of(primaries: usize, replicas: usize) -> Plan {
        Plan {
            primaries,
            replicas,
            settings: Vec::new(),
        }
    }

    /// One more setting.
    #[must_use]
    pub fn set(mut self, name: &str, value: &str) -> Plan {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Starts the cluster and waits until all its servers know each other and serve.
    ///
    /// # Errors
    /// If Redis is not installed, or the servers do not agree within a minute.
    pub async fn start(self) -> Result<RedisCluster> {
        let temp = Temp::new()?;
        let count = self.primaries * (1 + self.replicas);
        let mut nodes = Vec::with_capacity(count);
        for number in 0..count {
            let dir = temp.path().join(format!("node-{number}"));
            std::fs::create_dir_all(&dir).map_err(Error::io(format!("make {}", dir.display())))?;
            let mut options = Options::test();
            for (name, value) in [
                ("cluster-enabled", "yes".to_owned()),
                ("cluster-config-file", "nodes.conf".to_owned()),
                ("cluster-node-timeout", NODE_TIMEOUT_MS.to_string()),
                ("cluster-port", ports::free()?.to_string()),
                // Also one that was away for a while may take over.
                ("cluster-replica-validity-factor", "0".to_owned()),
                ("repl-diskless-sync-delay", "0".to_owned()),
            ] {
                options.settings.push((name.to_owned(), value));
            }
            options.settings.extend(self.settings.iter().cloned());
            nodes.push(Redis::start(&dir, options).await?);
        }
        let cluster = RedisCluster { nodes, _temp: temp };
        cluster.create(self.replicas).await?;
        cluster.agreed().await?;
        Ok(cluster)
    }
}

/// A running cluster. Dropping it kills every server.
#[derive(Debug)]
pub struct RedisCluster {
    /// The servers: at the start the primaries come first.
    pub nodes: Vec<Redis>,
    _temp: Temp,
}

impl RedisCluster {
    /// The address of all of its servers, for `redis.url` beside `redis.cluster = true`.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts = self
            .nodes
            .iter()
            .map(|node| format!("127.0.0.1:{}", node.port()));
        format!("redis://{}", hosts.collect::<Vec<_>>().join(","))
    }

    async fn create(&self, replicas: usize) -> Result<()> {
        let mut words = vec!["--cluster".to_owned(), "create".to_owned()];
        words.extend(
            self.nodes
                .iter()
                .map(|node| format!("127.0.0.1:{}", node.port())),
        );
        words.extend(["--cluster-replicas".to_owned(), replicas.to_string()]);
        words.push("--cluster-yes".to_owned());
        self.cli(&words).await.map(drop)
    }

    /// Runs `redis-cli` with these words, and returns what it printed.
    ///
    /// # Errors
    /// If it is not installed, fails, or is not done within a minute.
    pub async fn cli(&self, words: &[String]) -> Result<String> {
        let program = find_program("redis-cli").ok_or_else(|| Error::Missing {
            program: "redis-cli".into(),
            hint: "install Redis 7 (on Debian: .ci/install dev)",
        })?;
        let mut command = tokio::process::Command::new(program);
        command.args(words).stdin(Stdio::null()).kill_on_drop(true);
        let running = command.output();
        let output = tokio::time::timeout(AGREE, running).await;
        let output = output.map_err(|_| Error::Timeout {
            what: format!("redis-cli {}", words.join(" ")),
            after: AGREE,
            log: None,
        })?;
        let output = output.map_err(Error::io("run redis-cli"))?;
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() {
            return Ok(told);
        }
        let also = String::from_utf8_lossy(&output.stderr);
        Err(Error::Failed {
            what: format!("redis-cli {}: {told}{also}", words.join(" ")),
            log: None,
        })
    }

    /// Waits until all servers that run say that the cluster is well, and know of each other.
    ///
    /// # Errors
    /// If that is not so within a minute.
    pub async fn agreed(&self) -> Result<()> {
        let running: Vec<&Redis> = self
            .nodes
            .iter()
            .filter(|node| node.pid().is_some())
            .collect();
        let agree = async || {
            let mut seen = Vec::new();
            for node in &running {
                seen.push(self.standing(node, running.len()).await);
            }
            seen
        };
        let well = |seen: &Vec<String>| seen.iter().all(|one| one == "ok");
        wait::for_state("agreement of the redis cluster", AGREE, agree, well)
            .await
            .map(drop)
    }

    /// `ok`, or what is wrong with the cluster as this server sees it.
    async fn standing(&self, node: &Redis, running: usize) -> String {
        let asked = async {
            let info = text(node.command(&["CLUSTER", "INFO"]).await?);
            if !info.contains("cluster_state:ok") {
                return Ok(info);
            }
            let nodes = text(node.command(&["CLUSTER", "NODES"]).await?);
            let alive = nodes.lines().filter(|line| !line.contains("fail"));
            let linked = alive.filter(|line| line.contains(" connected"));
            if linked.count() < running {
                return Ok(nodes);
            }
            let info = text(node.command(&["INFO", "replication"]).await?);
            if info.contains("master_link_status:down") {
                return Ok(info);
            }
            Ok::<_, Error>("ok".to_owned())
        };
        asked.await.unwrap_or_else(|error| error.to_string())
    }

    /// The number of the server that keeps a key, as the others see it now.
    ///
    /// # Errors
    /// [`Error::Redis`] if no server answers, [`Error::Failed`] if nobody keeps it.
    pub async fn keeper(&self, key: &str) -> Result<usize> {
        for node in self.nodes.iter().filter(|node| node.pid().is_some()) {
            let slot = node.number(&["CLUSTER", "KEYSLOT", key]).await?;
            let nodes = text(node.command(&["CLUSTER", "NODES"]).await?);
            for line in nodes.lines().filter(|line| line.contains("master")) {
                if line.contains("fail") || !keeps(line, slot) {
                    continue;
                }
                let port = line.split([':', '@']).nth(1);
                let found = self
                    .nodes
                    .iter()
                    .position(|node| port.is_some_and(|port| port == node.port().to_string()));
                if let Some(found) = found {
                    return Ok(found);
                }
            }
        }
        Err(Error::Failed {
            what: format!("nobody of the redis cluster keeps {key}"),
            log: None,
        })
    }

    /// Runs a command on the server that keeps `key`.
    ///
    /// # Errors
    /// [`Error::Redis`] if it can't be reached or refuses.
    pub async fn command(&self, key: &str, words: &[&str]) -> Result<::redis::Value> {
        let keeper = self.keeper(key).await?;
        self.nodes[keeper].command(words).await
    }

    /// Forgets everything on all servers that run.
    ///
    /// # Errors
    /// [`Error::Redis`] if one can't be reached.
    pub async fn flush(&self) -> Result<()> {
        for node in self.nodes.iter().filter(|node| node.pid().is_some()) {
            let role = text(node.command(&["INFO", "replication"]).await?);
            // A replica follows its primary.
            if role.contains("role:master") {
                node.flush().await?;
            }
        }
        Ok(())
    }

    /// Lets a replica of the server that keeps a key change places with it, losing nothing.
    ///
    /// # Errors
    /// If that has not happened after a minute.
    pub async fn change_roles(&self, key: &str) -> Result<()> {
        let keeper = self.keeper(key).await?;
        let of_keeper = format!("master_port:{}\r", self.nodes[keeper].port());
        let mut asked = None::<std::time::Instant>;
        let changed = async || {
            // A server gives a change up that takes longer than 5 s: on a loaded machine, one does.
            if asked.is_none_or(|at| at.elapsed() > Duration::from_secs(6)) {
                asked = Some(std::time::Instant::now());
                for node in &self.nodes {
                    let info = node.command(&["INFO", "replication"]).await;
                    if info.is_ok_and(|info| text(info).contains(&of_keeper)) {
                        // Refused while it is not in step with its primary; asked again.
                        drop(node.command(&["CLUSTER", "FAILOVER"]).await);
                        break;
                    }
                }
            }
            let now = self.keeper(key).await.ok()?;
            (now != keeper).then_some(())
        };
        wait::until("change of roles in the redis cluster", AGREE, changed).await
    }

    /// Moves the slot of a key to another server, with all that it holds.
    ///
    /// # Errors
    /// If a server can't be reached or refuses.
    pub async fn move_slot(&self, key: &str, to: usize) -> Result<()> {
        let from = self.keeper(key).await?;
        let slot = self.nodes[from]
            .number(&["CLUSTER", "KEYSLOT", key])
            .await?;
        let slot = slot.to_string();
        let id = async |node: usize| {
            let id = self.nodes[node].command(&["CLUSTER", "MYID"]).await?;
            Ok::<_, Error>(text(id))
        };
        let (source, target) = (id(from).await?, id(to).await?);
        self.nodes[to]
            .command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source])
            .await?;
        self.nodes[from]
            .command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target])
            .await?;
        let port = self.nodes[to].port().to_string();
        loop {
            let keys = self.nodes[from]
                .command(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"])
                .await?;
            let keys: Vec<String> =
                ::redis::from_redis_value(keys).map_err(::redis::RedisError::from)?;
            if keys.is_empty() {
                break;
            }
            for key in keys {
                self.nodes[from]
                    .command(&["MIGRATE", "127.0.0.1", &port, &key, "0", "5000"])
                    .await?;
            }
        }
        for node in [to, from] {
            self.nodes[node]
                .command(&["CLUSTER", "SETSLOT", &slot, "NODE", &target])
                .await?;
        }
        Ok(())
    }
}

fn text(value: ::redis::Value) -> String {
    ::redis::from_redis_value(value).unwrap_or_default()
}

/// Whether this line of `CLUSTER NODES` names the slot: from its ninth word on, `a-b` or `a`.
fn keeps(line: &str, slot: i64) -> bool {
    line.split(' ').skip(8).any(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        match (first.parse::<i64>(), last.parse::<i64>()) {
            (Ok(first), Ok(last)) => (first..=last).contains(&slot),
            // A slot on its way.
            _ => false,
        }
    })
}
