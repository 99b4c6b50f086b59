//! The development stack as real processes: this file's own binary plays the stack (`dev DIR …`),
//! and its gateways, workers and crons (`gateway --config FILE`), which only answer `/readyz`.

use std::fmt::Debug;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;

use mcp_tasks_harness as harness;

use harness::dev::{Hooks, Options, Processes};
use harness::temp::Temp;
use harness::{postgres, wait};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const WITHIN: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.first().map(String::as_str) {
        Some("gateway" | "worker" | "cron") => stand_in(&args[2]),
        Some("dev") => return stack(&args[1..]),
        // Started by cargo with a filter for other tests, or to list them.
        Some(filter) if filter != "--nocapture" && !"dev".contains(filter) => {}
        _ => runtime().block_on(scenario()),
    }
    ExitCode::SUCCESS
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Runtime::new().expect("a runtime can be started")
}

/// Answers every request on its admin port with 200.
fn stand_in(config: &str) {
    let text = std::fs::read_to_string(config).expect("the configuration is there");
    let config: toml::Table = text.parse().expect("the configuration is TOML");
    let bind = config["admin"]["listen"]
        .as_str()
        .expect("it has an admin address");
    let _mcp = config.get("gateway").map(|gateway| {
        let bind = gateway["bind"].as_str().expect("a gateway has an address");
        TcpListener::bind(bind).expect("the port is free")
    });
    for stream in TcpListener::bind(bind)
        .expect("the port is free")
        .incoming()
    {
        let mut stream = stream.expect("a connection");
        let _ = stream.read(&mut [0; 1024]);
        let _ =
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    }
}

struct Play;

impl Hooks for Play {
    async fn migrate(&self, postgres_url: &str) -> Result<(), String> {
        let sql = "CREATE TABLE IF NOT EXISTS kept (n int)";
        postgres::rows(postgres_url, sql)
            .await
            .map(drop)
            .map_err(|error| error.to_string())
    }

    async fn catalogue_complete(&self, _postgres_url: &str) -> bool {
        true
    }

    fn ready(&self, _processes: &Processes) {}

    fn say(&self, line: &str) {
        println!("dev: {line}");
    }
}

fn stack(args: &[String]) -> ExitCode {
    let has = |flag: &str| args.iter().any(|arg| arg == flag);
    let options = Options {
        binary: std::env::current_exe().expect("this file's binary"),
        data_dir: Path::new(&args[0]).to_owned(),
        port: 0,
        gateways: 2,
        workers: 1,
        fresh: has("--fresh"),
        no_restart: has("--no-restart"),
        settings: toml::Table::new(),
    };
    match runtime().block_on(harness::dev::run(options, Arc::new(Play))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("dev: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A running stack, killed with the test.
struct Stack<'a> {
    child: Child,
    dir: &'a Path,
}

impl<'a> Stack<'a> {
    fn start(dir: &'a Path, flags: &[&str]) -> Stack<'a> {
        let mut command = Command::new(std::env::current_exe().expect("this file's binary"));
        command.arg("dev").arg(dir).args(flags);
        Stack {
            child: command.spawn().expect("the stack can be started"),
            dir,
        }
    }

    /// Waits until `processes.json` is there and `good` accepts it.
    async fn processes(&self, what: &str, good: impl Fn(&Processes) -> bool) -> Processes {
        let look = async || self.read();
        let good = |seen: &Option<Processes>| seen.as_ref().is_some_and(&good);
        must(wait::for_state(what, WITHIN, look, good).await).expect("accepted only if there")
    }

    fn read(&self) -> Option<Processes> {
        let text = std::fs::read_to_string(self.dir.join("processes.json")).ok()?;
        Some(serde_json::from_str(&text).expect("never half a file"))
    }

    fn signal(&self, signal: Signal) {
        send(self.child.id(), signal);
    }

    async fn end(&mut self) -> Option<i32> {
        let look = async || self.child.try_wait().expect("our child");
        must(wait::until("end of the stack", WITHIN, look).await).code()
    }
}

impl Drop for Stack<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn must<T>(result: Result<T, impl Debug + ToString>) -> T {
    result.unwrap_or_else(|error| panic!("{}", error.to_string()))
}

fn send(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).expect("a process id"));
    kill(pid, signal).expect("it is alive");
}

/// Alive and not a zombie that nobody has reaped.
fn alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')')
        .next()
        .is_some_and(|rest| !rest.is_empty() && !rest.starts_with(" Z"))
}

fn pids(all: &Processes) -> Vec<u32> {
    let mut pids = vec![all.postgres.pid, all.redis.pid];
    pids.extend(all.gateways.iter().map(|gateway| gateway.pid));
    pids.extend(
        all.workers
            .iter()
            .chain(&all.cron)
            .map(|process| process.pid),
    );
    pids
}

async fn all_gone(pids: &[u32]) {
    let look = async || {
        pids.iter()
            .copied()
            .filter(|pid| alive(*pid))
            .collect::<Vec<_>>()
    };
    must(wait::for_state("all processes gone", WITHIN, look, |left| left.is_empty()).await);
}

async fn scenario() {
    let temp = Temp::new().expect("a temporary folder");
    let dir = temp.path();
    let mut stack = Stack::start(dir, &[]);
    let first = stack.processes("a ready stack", |_| true).await;
    assert_eq!(
        (first.gateways.len(), first.workers.len(), first.cron.len()),
        (2, 1, 1)
    );
    assert!(pids(&first).into_iter().all(alive));
    must(postgres::rows(&first.postgres.url, "INSERT INTO kept VALUES (1)").await);

    println!("a second run in the same folder is refused");
    assert_eq!(Stack::start(dir, &[]).end().await, Some(1));

    println!("what dies is started again, on the same ports, and the file says so");
    send(first.gateways[1].pid, Signal::SIGKILL);
    send(first.postgres.pid, Signal::SIGKILL);
    let second = stack
        .processes("both restarted", |now| {
            now.gateways[1].pid != first.gateways[1].pid && now.postgres.pid != first.postgres.pid
        })
        .await;
    let mut expected = first.clone();
    expected.gateways[1].pid = second.gateways[1].pid;
    expected.postgres.pid = second.postgres.pid;
    assert_eq!(second, expected);
    assert_eq!(count(&second).await, "1");

    println!("when the stack is killed, all of it ends");
    stack.signal(Signal::SIGKILL);
    stack.end().await;
    all_gone(&pids(&second)).await;

    println!("data survives, also when Postgres was frozen as the stack was killed");
    let mut stack = Stack::start(dir, &["--no-restart"]);
    let third = stack.processes("a ready stack", |now| now != &second).await;
    assert_eq!(count(&third).await, "1");
    send(third.postgres.pid, Signal::SIGSTOP);
    stack.signal(Signal::SIGKILL);
    stack.end().await;
    let mut stack = Stack::start(dir, &["--no-restart"]);
    let fourth = stack.processes("a ready stack", |now| now != &third).await;
    assert_eq!(count(&fourth).await, "1");
    assert!(!alive(third.postgres.pid));

    println!("with --no-restart the dead stay dead; SIGTERM stops everything in order");
    send(fourth.workers[0].pid, Signal::SIGKILL);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(stack.read().as_ref(), Some(&fourth));
    stack.signal(Signal::SIGTERM);
    assert_eq!(stack.end().await, Some(0));
    all_gone(&pids(&fourth)).await;
    assert!(
        stack.read().is_none(),
        "no description of what does not run"
    );

    println!("--fresh forgets");
    let mut stack = Stack::start(dir, &["--fresh"]);
    let fifth = stack.processes("a ready stack", |_| true).await;
    assert_eq!(count(&fifth).await, "0");
    stack.signal(Signal::SIGINT);
    assert_eq!(stack.end().await, Some(0));
}

async fn count(processes: &Processes) -> String {
    let rows = must(postgres::rows(&processes.postgres.url, "SELECT count(*) FROM kept").await);
    rows[0][0].clone().expect("a count is never null")
}
