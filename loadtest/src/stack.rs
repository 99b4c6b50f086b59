//! The system under attack: our processes over a Postgres and a Redis of their own, each process
//! with a proxy of its own to either server, so that one can be cut off while the others go on.

use std::path::{Path, PathBuf};
use std::time::Duration;

use harness::client::Client;
use harness::config::{self, Common, Role};
use harness::node::{self, Node};
use harness::postgres::Postgres;
use harness::process::{Process, Spec};
use harness::proxy::Proxy;
use harness::redis::Redis;
use harness::{Error, Result, clock, ports};
use tokio::sync::Mutex;

use crate::schedule::Numbers;

const DATABASE: &str = "chaos";
const MIGRATE: Duration = Duration::from_secs(60);
/// How wrong the last worker's wall clock is.
const SKEW_SECONDS: i64 = -3_600;

/// Leases as short as they may be: a run shall see many run out. Pools so small that all processes'
/// together stay well below Postgres' limit after a few unclean ends.
const SETTINGS: &str = r#"
[postgres]
lease = "2s"
heartbeat = "600ms"
pool_size = 8
[gateway]
request_state_keys = ["000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"]
inline_budget = "1s"
drain_delay = "200ms"
drain_deadline = "2s"
[redis]
reclaim_idle = "3s"
reclaim_interval = "1s"
[worker]
drain_deadline = "1s"
stop_grace = "1s"
"#;

/// How to start one.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Our binary.
    pub binary: PathBuf,
    /// Where configuration files, logs and the ledger lie.
    pub dir: PathBuf,
    /// How many of each process.
    pub numbers: Numbers,
    /// Settings on top of ours (TOML).
    pub settings: String,
}

/// The running system. Ends when dropped.
#[derive(Debug)]
pub struct Stack {
    /// The processes: gateways, workers, crons.
    pub units: Vec<Unit>,
    /// The Postgres server.
    pub postgres: Mutex<Postgres>,
    /// The Redis server.
    pub redis: Mutex<Redis>,
    /// Straight to the database, past every proxy.
    pub database_url: String,
    /// Whether a worker's wall clock is off.
    pub skewed: bool,
}

/// One process and its ways to the two servers.
#[derive(Debug)]
pub struct Unit {
    /// Which process.
    pub role: Role,
    /// Counted from 0 within its role.
    pub index: usize,
    /// The process. Whoever breaks it holds the lock until it is whole again.
    pub node: Mutex<Node>,
    /// Its way to Postgres.
    pub postgres: Proxy,
    /// Its way to Redis.
    pub redis: Proxy,
    /// The MCP endpoint; empty for anything but a gateway.
    pub url: String,
}

impl Stack {
    /// Starts everything and waits until it is ready. `prepare` gets the URL of the migrated
    /// database before any of our processes runs.
    ///
    /// # Errors
    /// If a server is not installed, or a process does not become ready.
    pub async fn start<F>(plan: &Plan, prepare: F) -> Result<Stack>
    where
        F: AsyncFnOnce(&str) -> Result<()>,
    {
        let postgres = Postgres::temporary().await?;
        let redis = Redis::temporary().await?;
        let database_url = postgres.create_database(DATABASE).await?;
        let common = Common {
            postgres_url: database_url.clone(),
            redis_url: redis.url(),
            settings: settings(&plan.settings)?,
        };
        migrate(&plan.binary, &plan.dir, &common).await?;
        prepare(&database_url).await?;
        let mut stack = Stack {
            units: Vec::new(),
            postgres: Mutex::new(postgres),
            redis: Mutex::new(redis),
            database_url,
            skewed: false,
        };
        let Numbers {
            gateways,
            workers,
            crons,
        } = plan.numbers;
        for (role, count) in [
            (Role::Gateway, gateways),
            (Role::Worker, workers),
            (Role::Cron, crons),
        ] {
            for index in 0..count {
                let last_worker = role == Role::Worker && index + 1 == count && count > 1;
                // Plans panic on purpose, and a backtrace of each costs more than the rest.
                let mut env = vec![("RUST_BACKTRACE".to_owned(), "0".to_owned())];
                if let (true, Ok(skew)) = (last_worker, clock::off_by(SKEW_SECONDS)) {
                    env.extend(skew);
                    stack.skewed = true;
                }
                let unit = stack.unit(plan, &common, role, index, env).await?;
                stack.units.push(unit);
            }
        }
        for unit in &stack.units {
            unit.node.lock().await.ready().await?;
        }
        Ok(stack)
    }

    async fn unit(
        &self,
        plan: &Plan,
        common: &Common,
        role: Role,
        index: usize,
        env: Vec<(String, String)>,
    ) -> Result<Unit> {
        let postgres = Proxy::to_port(self.postgres.lock().await.port()).await?;
        let redis = Proxy::to_port(self.redis.lock().await.port()).await?;
        let common = Common {
            postgres_url: postgres.through(&common.postgres_url),
            redis_url: redis.through(&common.redis_url),
            settings: common.settings.clone(),
        };
        let node = Node::start(node::Plan {
            role,
            number: index + 1,
            binary: plan.binary.clone(),
            dir: plan.dir.clone(),
            port: (role == Role::Gateway).then(ports::free).transpose()?,
            admin_port: ports::free()?,
            common,
            env,
        })?;
        Ok(Unit {
            role,
            index,
            url: node.url(),
            node: Mutex::new(node),
            postgres,
            redis,
        })
    }

    /// The processes of a role, in order.
    pub fn of(&self, role: Role) -> impl Iterator<Item = &Unit> {
        self.units.iter().filter(move |unit| unit.role == role)
    }

    /// The endpoints of all gateways.
    #[must_use]
    pub fn gateways(&self) -> Vec<String> {
        self.of(Role::Gateway)
            .map(|unit| unit.url.clone())
            .collect()
    }

    /// Names and process ids of our processes, without those that a break has in hand.
    #[must_use]
    pub fn pids(&self) -> Vec<(String, u32)> {
        let nodes = self
            .units
            .iter()
            .filter_map(|unit| unit.node.try_lock().ok());
        nodes
            .filter_map(|node| Some((node.name().to_owned(), node.pid()?)))
            .collect()
    }

    /// Waits until every gateway lists these tools.
    ///
    /// # Errors
    /// [`Error::Timeout`] that shows what one lists.
    pub async fn wait_for_tools(&self, tools: &[&str]) -> Result<()> {
        for url in self.gateways() {
            let client = Client::new(&url).bearer("harness");
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
            harness::wait::for_state("tools listed", harness::wait::DEFAULT, look, all).await?;
        }
        Ok(())
    }
}

fn settings(over: &str) -> Result<toml::Table> {
    let parse = |text: &str| {
        let table: std::result::Result<toml::Table, _> = text.parse();
        table.map_err(|error| Error::Other(format!("settings: {error}")))
    };
    let mut all = parse(SETTINGS)?;
    config::merge(&mut all, &parse(over)?);
    Ok(all)
}

/// The binary's own command, so that this crate needs to know nothing of the schema.
pub(crate) async fn migrate(binary: &Path, dir: &Path, common: &Common) -> Result<()> {
    let file = dir.join("migrate.toml");
    config::write(&file, &config::table(common, None, ports::free()?))?;
    let log = dir.join("migrate.log");
    let spec = Spec::new("migrate", binary, &log).args([
        "migrate".to_owned(),
        "--config".to_owned(),
        file.display().to_string(),
    ]);
    let status = Process::spawn(&spec)?.wait(MIGRATE).await?;
    if status.success() {
        return Ok(());
    }
    Err(Error::Failed {
        what: format!("mcp-tasks migrate: {status}"),
        log: Some(log),
    })
}
