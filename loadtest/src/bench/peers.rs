//! Other servers with task handles, under the same clients with the same no-op tool in the same run.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use harness::http::Http;
use harness::process::{Process, Spec};
use harness::redis::{self, Redis};
use harness::{Error, Result, ports};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::connection::Connection;
use super::drive::{self, Driven, Worker};
use super::machine::{self, Machine};
use super::measure::Spread;
use super::pairs::driving;
use super::processors::resident_with_children;
use super::run::{Bench, Options, TASK, arguments, say};
use super::system::address;
use super::wire::Wire;
use super::works;

const READY: Duration = Duration::from_secs(60);
/// What was called may wait for its worker so long.
const DRAIN: Duration = Duration::from_secs(120);
/// Connections that look whether it is over.
const DRAINERS: usize = 32;

/// Where the peers are.
#[derive(Debug, Clone)]
pub struct Places {
    /// The folder with `peer-rmcp` and `peer-tower-mcp`.
    pub programs: PathBuf,
    /// A Python that has `fastmcp` and `fastmcp-tasks`.
    pub python: PathBuf,
    /// The folder with `fastmcp_server.py`.
    pub scripts: PathBuf,
}

/// One server under the clients.
struct Contender {
    name: &'static str,
    keeps: &'static str,
    url: String,
    token: &'static str,
    tool: &'static str,
    pids: Vec<u32>,
    figures: Vec<Figures>,
    _processes: Vec<Process>,
}

#[derive(Debug, Clone)]
struct Figures {
    create: f64,
    get: f64,
    life: f64,
    life_p99_ms: f64,
    memory: f64,
}

/// Measures all that there are, and tells it. With `needed`, one that is not there is an error.
///
/// # Errors
/// If ours can't be started, or a request fails.
pub async fn measure(options: &Options, places: &Places, needed: bool) -> Result<String> {
    let load_before = machine::load();
    let mut bench = Bench::start(options).await?;
    let machine = Machine::look(&bench.system, load_before).await?;
    bench.with_worker().await?;
    let redis = Redis::temporary_with(redis::Options::test()).await?;
    let mut all = vec![ours(&bench)];
    let mut absent = Vec::new();
    for peer in [
        fastmcp(&bench, places, &redis).await,
        program(&bench, places, ("rmcp", "peer-rmcp")).await,
        program(&bench, places, ("tower-mcp", "peer-tower-mcp")).await,
    ] {
        match peer {
            Ok(peer) => all.push(peer),
            Err(error) if needed => return Err(error),
            Err(error) => absent.push(error.to_string()),
        }
    }
    for round in 0..options.repeats.max(1) {
        say(&format!("round {}", round + 1));
        for contender in &mut all {
            let figures = one(&bench, contender).await?;
            say(&format!("  {}: {figures:?}", contender.name));
            contender.figures.push(figures);
        }
        bench.clear().await?;
    }
    let mut text = machine.told();
    let _ = writeln!(
        text,
        "{} connections, {} s each, {} rounds; every server runs the same no-op tool\n",
        options.connections,
        options.time.as_secs_f64(),
        options.repeats
    );
    tell(&all, &mut text);
    for why in absent {
        let _ = writeln!(text, "left out: {why}");
    }
    Ok(text)
}

fn ours(bench: &Bench) -> Contender {
    let nodes = [Some(bench.gateway), bench.worker].into_iter().flatten();
    Contender {
        name: "mcp-tasks",
        keeps: "Postgres, every commit on disk",
        url: bench.system.url(bench.gateway),
        token: super::run::PRINCIPAL,
        tool: TASK,
        pids: nodes
            .filter_map(|at| bench.system.nodes[at].pid())
            .collect(),
        figures: Vec::new(),
        _processes: Vec::new(),
    }
}

async fn program(
    bench: &Bench,
    places: &Places,
    (name, file): (&'static str, &str),
) -> Result<Contender> {
    let path = places.programs.join(file);
    let port = ports::free()?;
    let log = bench.system.dir().join(format!("{file}.log"));
    let spec = Spec::new(name, &found(&path)?, &log).args([port.to_string()]);
    let process = Process::spawn(&spec)?;
    start(
        name,
        "its memory: all lost at a restart",
        port,
        vec![process],
    )
    .await
}

async fn fastmcp(bench: &Bench, places: &Places, redis: &Redis) -> Result<Contender> {
    let script = found(&places.scripts.join("fastmcp_server.py"))?;
    let python = found(&places.python)?;
    let port = ports::free()?;
    let script = script.display().to_string();
    let spec = |name: &str, args: Vec<String>| {
        let log = bench.system.dir().join(format!("{name}.log"));
        let mut spec = Spec::new(name, &python, &log).args(args);
        spec.env = vec![
            ("FASTMCP_DOCKET_URL".to_owned(), redis.url()),
            ("FASTMCP_DOCKET_CONCURRENCY".to_owned(), "100".to_owned()),
        ];
        spec
    };
    let server = Process::spawn(&spec(
        "fastmcp-server",
        vec![script.clone(), port.to_string()],
    ))?;
    let worker = ["-m", "fastmcp_tasks.worker_cli", "worker", &script].map(str::to_owned);
    let worker = Process::spawn(&spec("fastmcp-worker", worker.into()))?;
    let keeps = "Redis, not on disk";
    start("FastMCP", keeps, port, vec![server, worker]).await
}

fn found(path: &Path) -> Result<PathBuf> {
    // Not canonical: a virtual environment's Python is a link, and knows itself by its place.
    std::path::absolute(path)
        .ok()
        .filter(|path| path.exists())
        .ok_or_else(|| {
            Error::Other(format!(
                "{} is not there (`make bench-peers` makes it)",
                path.display()
            ))
        })
}

/// Waits until it answers a call with a handle.
async fn start(
    name: &'static str,
    keeps: &'static str,
    port: u16,
    mut processes: Vec<Process>,
) -> Result<Contender> {
    let url = format!("http://127.0.0.1:{port}/mcp");
    let deadline = Instant::now() + READY;
    let http = Http::new(Duration::from_secs(2));
    while http.get(&url).await.is_err() {
        if let Some(status) = processes.iter_mut().find_map(Process::ended) {
            let log = processes.first().map(|process| process.log().to_owned());
            let what = format!("{name} ended at its start: {status}");
            return Err(Error::Failed { what, log });
        }
        if Instant::now() > deadline {
            let what = format!("{name} listens");
            return Err(Error::Timeout {
                what,
                after: READY,
                log: None,
            });
        }
        sleep(Duration::from_millis(100)).await;
    }
    Ok(Contender {
        name,
        keeps,
        url,
        token: "",
        tool: "noop",
        pids: processes.iter().map(Process::pid).collect(),
        figures: Vec::new(),
        _processes: processes,
    })
}

/// One round of one server: handles, reads of them, whole lives.
async fn one(bench: &Bench, contender: &Contender) -> Result<Figures> {
    let options = &bench.options;
    let at = [address(&contender.url)?];
    let wire = Wire::new(&contender.url, contender.token);
    let request = wire.call(contender.tool, &arguments_of(contender.tool));
    let load = options.load(options.connections);
    let checked = |driven: Driven| match &driven.error {
        Some(error) => Err(Error::Other(format!("{}: {error}", contender.name))),
        None => Ok(driven),
    };
    let tasks = RefCell::new(Vec::new());
    let create = async |worker: &mut Worker| {
        let task = works::handle(worker, &request).await?;
        tasks.borrow_mut().push(task);
        Ok(())
    };
    let create = checked(drive::closed(&at, load, create).await.map_err(driving)?)?;
    let tasks = drained(contender, (&wire, &at), tasks.into_inner()).await?;
    let memory: u64 = contender
        .pids
        .iter()
        .map(|pid| resident_with_children(*pid))
        .sum();
    let get = async |worker: &mut Worker| {
        let read = wire.get(worker.rng.pick::<String>(&tasks));
        let status = worker.connection.ask(&read).await?;
        if status == 200 && worker.connection.holds("\"status\":\"completed\"") {
            return Ok(());
        }
        Err(drive::unexpected(status, worker.connection.body()))
    };
    let get = checked(drive::closed(&at, load, get).await.map_err(driving)?)?;
    let live = async |worker: &mut Worker| works::live(worker, &wire, &request).await;
    let life = checked(drive::closed(&at, load, live).await.map_err(driving)?)?;
    #[expect(clippy::cast_precision_loss, reason = "bytes of one machine")]
    let memory = memory as f64 / 1_048_576.0;
    Ok(Figures {
        create: create.rate(),
        get: get.rate(),
        life: life.rate(),
        life_p99_ms: life.ms(99.0),
        memory,
    })
}

/// The same text for everybody.
fn arguments_of(tool: &str) -> Value {
    if tool == TASK {
        return arguments();
    }
    json!({"call": arguments()["call"]})
}

/// Waits until all tasks are over: not everybody takes them in their order. Those that are; of the others it is told.
async fn drained(
    contender: &Contender,
    (wire, at): (&Wire, &[std::net::SocketAddr]),
    tasks: Vec<String>,
) -> Result<Vec<String>> {
    let deadline = Instant::now() + DRAIN;
    let each = tasks.len().div_ceil(DRAINERS).max(1);
    // Side by side: one of them takes 40 ms for each read.
    let parts = tasks
        .chunks(each)
        .map(|part| over((wire, at), part, deadline));
    let over = futures::future::try_join_all(parts).await?.concat();
    let (name, made) = (contender.name, tasks.len());
    let left = made - over.len();
    if over.is_empty() {
        let told = format!("{name}: none of {made} tasks was over after {DRAIN:?}");
        return Err(Error::Other(told));
    }
    if left > 0 {
        say(&format!(
            "  {name}: {left} of {made} tasks were not over after {DRAIN:?}"
        ));
    }
    Ok(over)
}

/// Those of the tasks that are over by then.
async fn over(
    (wire, at): (&Wire, &[std::net::SocketAddr]),
    tasks: &[String],
    deadline: Instant,
) -> Result<Vec<String>> {
    let mut connection = Connection::open(at[0]).await.map_err(driving)?;
    let mut over = Vec::with_capacity(tasks.len());
    for task in tasks {
        let read = wire.get(task);
        loop {
            let status = connection.ask(&read).await.map_err(driving)?;
            if connection.holds("\"status\":\"completed\"") {
                over.push(task.clone());
                break;
            }
            if !connection.holds("\"status\":\"working\"") {
                return Err(driving(drive::unexpected(status, connection.body())));
            }
            if Instant::now() > deadline {
                break;
            }
            sleep(Duration::from_millis(50)).await;
        }
    }
    Ok(over)
}

fn tell(all: &[Contender], text: &mut String) {
    let _ = writeln!(
        text,
        "{:<12} {:>18} {:>18} {:>18} {:>14} {:>10}  keeps tasks in",
        "server", "create /s", "get /s", "life /s", "life p99 ms", "MiB"
    );
    let spread = |contender: &Contender, of: &dyn Fn(&Figures) -> f64| {
        let figures: Vec<f64> = contender.figures.iter().map(of).collect();
        Spread::of(&figures).map_or_else(|| "-".to_owned(), |spread| spread.told(0))
    };
    for contender in all {
        let _ = writeln!(
            text,
            "{:<12} {:>18} {:>18} {:>18} {:>14} {:>10}  {}",
            contender.name,
            spread(contender, &|figures| figures.create),
            spread(contender, &|figures| figures.get),
            spread(contender, &|figures| figures.life),
            spread(contender, &|figures| figures.life_p99_ms),
            spread(contender, &|figures| figures.memory),
            contender.keeps
        );
    }
    let Some((ours, peers)) = all.split_first() else {
        return;
    };
    text.push_str("\nours ÷ theirs, round by round (memory: less is better)\n");
    for peer in peers {
        let ratio = |of: &dyn Fn(&Figures) -> f64| {
            let pairs = ours.figures.iter().zip(&peer.figures);
            let ratios: Vec<f64> = pairs.map(|(ours, theirs)| of(ours) / of(theirs)).collect();
            Spread::of(&ratios).map_or_else(|| "-".to_owned(), |spread| spread.told(2))
        };
        let _ = writeln!(
            text,
            "{:<12} {:>18} {:>18} {:>18} {:>14} {:>10}  {}",
            peer.name,
            ratio(&|figures| figures.create),
            ratio(&|figures| figures.get),
            ratio(&|figures| figures.life),
            ratio(&|figures| figures.life_p99_ms),
            ratio(&|figures| figures.memory),
            peer.keeps
        );
    }
}
