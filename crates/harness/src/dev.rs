//! The stack behind `mcp-tasks dev`: private servers and all our processes in one folder, watched
//! and restarted, described by `processes.json`, and stopped together.

mod folder;
mod processes;
mod supervise;

use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::config::{Common, Role};
use crate::error::{Error, Result};
use crate::node::{self, Node};
use crate::postgres::Postgres;
use crate::redis::Redis;
use crate::{ports, postgres, redis};
use folder::Folder;
use processes::{Board, Slot};
use supervise::{Child, supervise};

pub use processes::{Gateway, Process, Processes, Server};

const DATABASE: &str = "mcp_tasks";
/// Workers publish their tools as they start; only something broken takes this long.
const CATALOGUE: Duration = Duration::from_secs(120);
/// A process that was killed a moment ago may hold its port for as long.
const PORT: Duration = Duration::from_secs(3);

/// What to start.
#[derive(Debug, Clone)]
pub struct Options {
    /// Our binary, which is also the one that runs this.
    pub binary: PathBuf,
    /// Folder for data, configuration, logs and `processes.json`; made if need be.
    pub data_dir: PathBuf,
    /// Port of the first gateway; further ones take the next free ports. 0: any.
    pub port: u16,
    /// How many gateways.
    pub gateways: usize,
    /// How many workers.
    pub workers: usize,
    /// Forget all data of earlier runs.
    pub fresh: bool,
    /// Leave a process that died dead, for tests.
    pub no_restart: bool,
    /// Settings for our processes, section by section.
    pub settings: toml::Table,
}

/// What the harness can't know, since it depends on no other crate of ours.
pub trait Hooks: Send + Sync {
    /// Brings the database to the newest schema.
    fn migrate(&self, postgres_url: &str) -> impl Future<Output = Result<(), String>> + Send;

    /// Whether every tool that the workers have is in the catalogue. Asked until it is.
    fn catalogue_complete(&self, postgres_url: &str) -> impl Future<Output = bool> + Send;

    /// Called once, after `processes.json` was written.
    fn ready(&self, processes: &Processes);

    /// Tells the user that something happened.
    fn say(&self, line: &str);
}

/// Runs the stack until ctrl-C, `SIGTERM` or `SIGHUP`; a second one stops it without grace. If this
/// process is killed, its children are too (where `setpriv` exists), and in any case the next run
/// in the same folder ends what is left of them.
///
/// # Errors
/// If something can't be started, or another run uses the folder. A process that dies later is no
/// error: it is started again after a second.
pub async fn run<H: Hooks + 'static>(options: Options, hooks: std::sync::Arc<H>) -> Result<()> {
    let mut signals = Signals::new()?;
    let (servers, ours) = (CancellationToken::new(), CancellationToken::new());
    let stack = async {
        let folder = Folder::open(&options.data_dir, options.fresh).await?;
        let say = |line: &str| hooks.say(line);
        say(&format!("data folder: {}", folder.path().display()));
        let start = Running::start(&options, &folder, hooks.as_ref());
        let Some(running) = ours.run_until_cancelled(start).await else {
            return Ok(());
        };
        let mut running = running?;
        running.watch(&options, &hooks, (&servers, &ours));
        if let Some(complete) = ours
            .run_until_cancelled(running.complete(hooks.as_ref()))
            .await
        {
            complete?;
        }
        ours.cancelled().await;
        say("stopping (ctrl-C again stops at once)");
        while running.nodes.join_next().await.is_some() {}
        servers.cancel();
        while running.servers.join_next().await.is_some() {}
        folder.forget_processes();
        say("stopped");
        Ok(())
    };
    tokio::pin!(stack);
    tokio::select! {
        ended = &mut stack => return ended,
        () = signals.next() => ours.cancel(),
    }
    // A second signal drops everything where it stands, which kills all processes.
    tokio::select! {
        ended = &mut stack => ended,
        () = signals.next() => Ok(()),
    }
}

/// Everything that runs.
struct Running {
    board: Board,
    postgres_url: String,
    started: Vec<(Slot, Child)>,
    servers: JoinSet<()>,
    nodes: JoinSet<()>,
}

impl Running {
    async fn start<H: Hooks>(options: &Options, folder: &Folder, hooks: &H) -> Result<Running> {
        // Told before anything is started.
        let port = first_port(options.port).await?;
        let dir = folder.path();
        let (postgres, redis) = tokio::try_join!(
            Postgres::start(dir, postgres::Options::durable()),
            Redis::start(dir, redis::Options::durable()),
        )?;
        hooks.say("Postgres and Redis are up");
        let postgres_url = postgres.create_database(DATABASE).await?;
        hooks
            .migrate(&postgres_url)
            .await
            .map_err(|error| Error::Other(format!("migrations: {error}")))?;
        let common = Common {
            postgres_url: postgres_url.clone(),
            redis_url: redis.url(),
            settings: options.settings.clone(),
        };
        let mut nodes = start_nodes((options, port), folder, &common)?;
        for node in &mut nodes {
            node.ready().await?;
        }
        let processes = Processes::of(&postgres, &postgres_url, &redis, &nodes);
        let board = Board::new(folder.processes_file(), processes);
        let mut started = vec![
            (Slot::Postgres, Child::Postgres(postgres)),
            (Slot::Redis, Child::Redis(redis)),
        ];
        let mut counts = std::collections::HashMap::new();
        for node in nodes {
            let index = counts.entry(node.role()).or_insert(0);
            started.push((Slot::Node(node.role(), *index), Child::Node(node)));
            *index += 1;
        }
        let (servers, nodes) = (JoinSet::new(), JoinSet::new());
        Ok(Running {
            board,
            postgres_url,
            started,
            servers,
            nodes,
        })
    }

    /// Gives each process a keeper of its own.
    fn watch<H: Hooks + 'static>(
        &mut self,
        options: &Options,
        hooks: &std::sync::Arc<H>,
        (servers, ours): (&CancellationToken, &CancellationToken),
    ) {
        for (slot, child) in self.started.drain(..) {
            let (keepers, stop) = match slot {
                Slot::Postgres | Slot::Redis => (&mut self.servers, servers),
                Slot::Node(..) => (&mut self.nodes, ours),
            };
            let hooks = std::sync::Arc::clone(hooks);
            let keeper = supervise::Keeper {
                slot,
                board: self.board.clone(),
                no_restart: options.no_restart,
                stop: stop.clone(),
                say: Box::new(move |line| hooks.say(line)),
            };
            keepers.spawn(supervise(child, keeper));
        }
    }

    /// Waits for the catalogue, then announces the stack.
    async fn complete<H: Hooks>(&self, hooks: &H) -> Result<()> {
        let look = async || {
            hooks
                .catalogue_complete(&self.postgres_url)
                .await
                .then_some(())
        };
        crate::wait::until("all tools in the catalogue", CATALOGUE, look).await?;
        hooks.ready(&self.board.announce()?);
        Ok(())
    }
}

/// Starts all our processes at once; none is ready yet.
fn start_nodes(
    (options, first_port): (&Options, u16),
    folder: &Folder,
    common: &Common,
) -> Result<Vec<Node>> {
    let mut nodes: Vec<Node> = Vec::new();
    let mut next_port = first_port;
    let mut common = common.clone();
    for (role, count) in [
        (Role::Gateway, options.gateways),
        (Role::Worker, options.workers),
        (Role::Cron, 1),
    ] {
        if let Some(gateway) = nodes.first() {
            call_back(&mut common, &gateway.url());
        }
        for number in 1..=count {
            let port = match role {
                Role::Gateway => Some(ports::free_from(next_port)?),
                Role::Worker | Role::Cron => None,
            };
            next_port = port.map_or(next_port, |port| port.saturating_add(1));
            // Not the next one after a fixed port: two stacks that start at once would both find it
            // free.
            let admin_port = ports::free()?;
            nodes.push(Node::start(node::Plan {
                role,
                number,
                binary: options.binary.clone(),
                dir: folder.run(),
                port,
                admin_port,
                common: common.clone(),
                env: addresses(&common, port, admin_port),
            })?);
        }
    }
    Ok(nodes)
}

/// Services that workers call find the first gateway, unless the settings say where.
fn call_back(common: &mut Common, endpoint: &str) {
    let base = match endpoint.match_indices('/').nth(2) {
        Some((end, _)) => &endpoint[..end],
        None => endpoint,
    };
    if let Some(toml::Value::Table(callbacks)) = common.settings.get_mut("callbacks")
        && !callbacks.contains_key("public_url")
    {
        callbacks.insert("public_url".to_owned(), base.into());
    }
}

/// Variables win over the settings file, and ours are inherited: those of a developer who works with
/// another installation must not lead the processes of this stack there.
fn addresses(common: &Common, port: Option<u16>, admin_port: u16) -> Vec<(String, String)> {
    let local = |port: u16| format!("127.0.0.1:{port}");
    let mut addresses = vec![
        ("POSTGRES__URL", common.postgres_url.clone()),
        ("REDIS__URL", common.redis_url.clone()),
        ("ADMIN__LISTEN", local(admin_port)),
    ];
    addresses.extend(port.map(|port| ("GATEWAY__BIND", local(port))));
    let named = addresses.into_iter();
    named
        .map(|(name, value)| (format!("MCP_TASKS__{name}"), value))
        .collect()
}

/// The first gateway's port is a promise to the user: taken is an error, not a reason for another.
async fn first_port(port: u16) -> Result<u16> {
    if port == 0 {
        return Ok(ports::SOME);
    }
    let look = async || ports::is_free(port).then_some(port);
    crate::wait::until("free port", PORT, look)
        .await
        .map_err(|_| {
            let what =
                format!("port {port} is in use; end what listens there or choose another --port");
            Error::Failed { what, log: None }
        })
}

/// The signals that end the stack.
struct Signals([Signal; 3]);

impl Signals {
    fn new() -> Result<Signals> {
        let catch = |kind| signal(kind).map_err(Error::io("catch a signal"));
        let kinds = [
            SignalKind::interrupt(),
            SignalKind::terminate(),
            SignalKind::hangup(),
        ];
        let [first, second, third] = kinds;
        Ok(Signals([catch(first)?, catch(second)?, catch(third)?]))
    }

    async fn next(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}
