//! The system that is measured: a private Postgres whose commits wait for the disk, a private Redis, and
//! our processes straight at both.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use harness::client::Client;
use harness::config::{Common, Role};
use harness::node::{self, Node};
use harness::postgres::{self, Postgres, rows};
use harness::redis::{self, Redis};
use harness::temp::Temp;
use harness::{Error, Result, config, ports, wait};

use super::processors::Group;
use crate::stack::migrate;

const DATABASE: &str = "bench";

/// What an installation of this size would have: room for its table in memory, and checkpoints that are
/// no accident of the minute. All that a commit waits for stays as it is.
const POSTGRES: [(&str, &str); 6] = [
    ("shared_buffers", "1GB"),
    ("max_wal_size", "8GB"),
    ("checkpoint_timeout", "15min"),
    ("synchronous_commit", "on"),
    ("max_connections", "300"),
    ("wal_compression", "on"),
];

/// Limits that keep one caller from taking all would measure themselves: here one caller is all.
const SETTINGS: &str = r#"
[gateway]
inline_budget = "20s"
request_state_keys = ["000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"]
drain_delay = "100ms"
drain_deadline = "2s"
[gateway.limits]
requests_of_principal_per_second = 0
live_tasks_of_principal_max = 100000000
live_tasks_of_tenant_max = 100000000
held_calls_of_principal_max = 2000
held_polls_of_principal_max = 2000
listens_of_principal_max = 20000
listens_max = 20000
connections_max = 30000
requests_max = 30000
[logs]
filter = "warn"
"#;

/// More such limits, which an older release may not know: it is measured without them.
const NEWER: [(&str, &str, i64); 2] = [
    ("gateway", "requests_of_principal_max", 30_000),
    ("gateway", "connections_of_address_max", 30_000),
];

/// The running system. Ends when dropped.
#[derive(Debug)]
pub struct System {
    /// Straight to the database.
    pub database_url: String,
    /// Our processes that run.
    pub nodes: Vec<Node>,
    binary: PathBuf,
    dir: PathBuf,
    common: Common,
    postgres: Postgres,
    redis: Redis,
    _temp: Temp,
}

impl System {
    /// Starts both servers and brings the schema up; none of our processes runs yet.
    ///
    /// # Errors
    /// If a server is not installed, or our binary is not there.
    pub async fn start(binary: &Path) -> Result<System> {
        let found = binary.canonicalize();
        let binary = found.map_err(Error::io(format!("find {}", binary.display())))?;
        let temp = Temp::new()?;
        let dir = temp.path().to_owned();
        let mut options = postgres::Options::durable();
        for (name, value) in POSTGRES {
            options = options.set(name, value);
        }
        let postgres = Postgres::temporary_with(options).await?;
        let redis = Redis::temporary_with(redis::Options::test()).await?;
        let database_url = postgres.create_database(DATABASE).await?;
        let mut settings = table(SETTINGS)?;
        let ledger = dir.join("ledger.jsonl");
        let tools = format!(
            "[tools]\nfixtures = \"chaos\"\nledger = \"{}\"\n",
            ledger.display()
        );
        config::merge(&mut settings, &table(&tools)?);
        config::merge(&mut settings, &newer(&binary)?);
        let common = Common {
            postgres_url: database_url.clone(),
            redis_url: redis.url(),
            settings,
        };
        migrate(&binary, &dir, &common).await?;
        Ok(System {
            database_url,
            nodes: Vec::new(),
            binary,
            dir,
            common,
            postgres,
            redis,
            _temp: temp,
        })
    }

    /// Starts one more process with these settings on top (TOML), and waits until it is ready. The
    /// position of its node.
    ///
    /// # Errors
    /// If it does not become ready.
    pub async fn add(&mut self, role: Role, over: &str) -> Result<usize> {
        let mut common = self.common.clone();
        config::merge(&mut common.settings, &table(over)?);
        let number = self.nodes.iter().filter(|node| node.role() == role).count() + 1;
        let mut node = Node::start(node::Plan {
            role,
            number,
            binary: self.binary.clone(),
            dir: self.dir.clone(),
            port: (role == Role::Gateway).then(ports::free).transpose()?,
            admin_port: ports::free()?,
            common,
            env: Vec::new(),
        })?;
        node.ready().await?;
        self.nodes.push(node);
        Ok(self.nodes.len() - 1)
    }

    /// Kills a process. Its position stays.
    pub fn kill(&mut self, at: usize) {
        self.nodes[at].kill9();
    }

    /// The endpoint of the gateway at this position.
    #[must_use]
    pub fn url(&self, at: usize) -> String {
        self.nodes[at].url()
    }

    /// Where that gateway listens.
    ///
    /// # Errors
    /// If the process there is no gateway.
    pub fn address(&self, at: usize) -> Result<SocketAddr> {
        address(&self.nodes[at].url())
    }

    /// Waits until the gateway at this position lists these tools.
    ///
    /// # Errors
    /// [`Error::Timeout`] that shows what it lists.
    pub async fn wait_for_tools(&self, at: usize, token: &str, tools: &[&str]) -> Result<()> {
        let client = Client::new(&self.url(at)).bearer(token);
        let look = async || {
            let listed = client.list().await.unwrap_or_default();
            let names = listed.iter().filter_map(|tool| tool["name"].as_str());
            names.map(str::to_owned).collect::<Vec<_>>()
        };
        let all = |seen: &Vec<String>| {
            tools
                .iter()
                .all(|tool| seen.iter().any(|name| name == tool))
        };
        wait::for_state("tools listed", wait::DEFAULT, look, all)
            .await
            .map(drop)
    }

    /// Runs SQL.
    ///
    /// # Errors
    /// If Postgres refuses.
    pub async fn sql(&self, sql: &str) -> Result<Vec<Vec<Option<String>>>> {
        rows(&self.database_url, sql).await
    }

    /// The one number that SQL tells.
    ///
    /// # Errors
    /// If Postgres refuses, or tells none.
    pub async fn number(&self, sql: &str) -> Result<f64> {
        let rows = self.sql(sql).await?;
        let first = rows.first().and_then(|row| row.first()).cloned().flatten();
        let number = first.and_then(|text| text.parse().ok());
        number.ok_or_else(|| Error::Other(format!("no number: {sql}")))
    }

    /// A part of what Redis tells about itself.
    ///
    /// # Errors
    /// If it does not answer.
    pub async fn redis_info(&self, section: &str) -> Result<String> {
        let answer = self.redis.command(&["INFO", section]).await?;
        Ok(match answer {
            ::redis::Value::BulkString(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            ::redis::Value::VerbatimString { text, .. } | ::redis::Value::SimpleString(text) => {
                text
            }
            other => format!("{other:?}"),
        })
    }

    /// Bytes that Redis uses for data.
    ///
    /// # Errors
    /// If it does not answer.
    pub async fn redis_bytes(&self) -> Result<f64> {
        let info = self.redis_info("memory").await?;
        let line = info
            .lines()
            .find_map(|line| line.strip_prefix("used_memory_dataset:"));
        let number = line.and_then(|rest| rest.trim().parse().ok());
        number.ok_or_else(|| Error::Other("Redis tells no used_memory_dataset".to_owned()))
    }

    /// Entries of all streams together.
    ///
    /// # Errors
    /// If Redis does not answer.
    pub async fn stream_entries(&self) -> Result<f64> {
        let script = "local n = 0 for _, key in ipairs(redis.call('KEYS', '*')) do \
                      if redis.call('TYPE', key).ok == 'stream' then \
                      n = n + redis.call('XLEN', key) end end return n";
        let entries = self.redis.number(&["EVAL", script, "0"]).await?;
        #[expect(clippy::cast_precision_loss, reason = "few enough to be exact")]
        Ok(entries as f64)
    }

    /// Takes away all entries of all streams; groups stay.
    ///
    /// # Errors
    /// If Redis does not answer.
    pub async fn empty_streams(&self) -> Result<()> {
        let script = "for _, key in ipairs(redis.call('KEYS', '*')) do \
                      if redis.call('TYPE', key).ok == 'stream' then \
                      redis.call('XTRIM', key, 'MAXLEN', 0) end end return 0";
        self.redis.number(&["EVAL", script, "0"]).await.map(drop)
    }

    /// Writes down what is dirty, so that no measurement pays for the one before.
    ///
    /// # Errors
    /// If Postgres refuses.
    pub async fn settle(&self) -> Result<()> {
        self.sql("CHECKPOINT").await.map(drop)
    }

    /// Where Postgres' data lies.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.postgres.data()
    }

    /// A folder for scripts and logs.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What uses the processors: both servers, and our processes by role.
    #[must_use]
    pub fn groups(&self) -> Vec<Group> {
        let group = |name: &str, pid: Option<u32>| {
            pid.map(|pid| Group {
                name: name.to_owned(),
                pid,
            })
        };
        let servers = [
            group("postgres", self.postgres.pid()),
            group("redis", self.redis.pid()),
        ];
        let nodes = self
            .nodes
            .iter()
            .map(|node| group(node.role().command(), node.pid()));
        servers.into_iter().chain(nodes).flatten().collect()
    }
}

/// Where an endpoint on this machine listens.
///
/// # Errors
/// If the URL names no address.
pub fn address(url: &str) -> Result<SocketAddr> {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let place = rest.split('/').next().unwrap_or(rest);
    let parsed = place.replace("localhost", "127.0.0.1").parse();
    parsed.map_err(|_| Error::Other(format!("{url}: not http://ADDRESS:PORT/PATH")))
}

/// Those settings of [`NEWER`] that this binary has.
fn newer(binary: &Path) -> Result<toml::Table> {
    let output = std::process::Command::new(binary)
        .args(["config", "reference"])
        .output()
        .map_err(Error::io(format!("run {}", binary.display())))?;
    let page = String::from_utf8_lossy(&output.stdout);
    let known = NEWER
        .iter()
        .filter(|(_, name, _)| page.contains(&format!("`{name}`")));
    let lines =
        known.map(|(section, name, value)| format!("[{section}]\nlimits.{name} = {value}\n"));
    let mut all = toml::Table::new();
    for line in lines {
        config::merge(&mut all, &table(&line)?);
    }
    Ok(all)
}

fn table(text: &str) -> Result<toml::Table> {
    let parsed: std::result::Result<toml::Table, _> = text.parse();
    parsed.map_err(|error| Error::Other(format!("settings: {error}")))
}
