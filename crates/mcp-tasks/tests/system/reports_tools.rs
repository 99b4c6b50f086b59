//! A worker process of the tests' own: tools that act where everyone can see it, in a file.
//!
//! The process is this test binary itself, started again for one test that is none. So the tools
//! are a tool author's, on the public API, and the process can be killed and frozen like any.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use harness::process::{Process, Spec};
use harness::temp::Temp;
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use telemetry::{Health, Registry};
use tokio_util::sync::CancellationToken;
use worker::{
    Arguments, CallToolResult, Context, Definition, Question, Step, Tool, ToolError, ToolSet,
    ToolSpec, Worker,
};

use crate::support::{SOON, System};

/// Where the process finds its settings.
const SETTINGS: &str = "MCP_TASKS_TESTS_WORKER";
/// All tools that it serves.
pub const TOOLS: [&str; 4] = ["toil", "hang", "deaf", "converse"];

/// What the process is started with.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Settings {
    pub postgres: String,
    pub redis: String,
    pub ledger: PathBuf,
    pub lease_ms: u64,
    pub heartbeat_ms: u64,
    pub reclaim_idle_ms: u64,
    pub stop_grace_ms: u64,
    pub drain_deadline_ms: u64,
}

impl Settings {
    /// For the servers of a system, with its leases.
    pub fn of(system: &System, ledger: &Ledger) -> Settings {
        Settings::over(system.database.url(), &system.redis.url(), ledger)
    }

    /// The same for any servers.
    pub fn over(postgres: &str, redis: &str, ledger: &Ledger) -> Settings {
        Settings {
            postgres: postgres.to_owned(),
            redis: redis.to_owned(),
            ledger: ledger.path.clone(),
            lease_ms: 3_000,
            heartbeat_ms: 1_000,
            reclaim_idle_ms: 30_000,
            stop_grace_ms: 500,
            drain_deadline_ms: 1_000,
        }
    }
}

/// One act, as the world outside saw it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Act {
    pub at_ms: u64,
    pub pid: u32,
    pub task: String,
    pub attempt: i32,
    pub label: String,
    pub what: String,
}

/// The file that every act is written to.
pub struct Ledger {
    path: PathBuf,
    dir: Temp,
}

impl Ledger {
    pub fn new() -> Ledger {
        let dir = Temp::new().expect("a folder");
        let path = dir.path().join("ledger.jsonl");
        std::fs::write(&path, "").expect("an empty ledger");
        Ledger { path, dir }
    }

    /// What was done under this label, in order.
    pub fn acts(&self, label: &str) -> Vec<Act> {
        let text = std::fs::read_to_string(&self.path).expect("the ledger");
        text.lines()
            .map(|line| serde_json::from_str::<Act>(line).expect("one act a line"))
            .filter(|act| act.label == label)
            .collect()
    }

    /// Waits until something was done under this label.
    pub async fn acted(&self, label: &str, times: usize) -> Vec<Act> {
        let look = async || self.acts(label);
        harness::wait::for_state("acts", SOON, look, |acts| acts.len() >= times)
            .await
            .expect("the tool acts")
    }

    /// Milliseconds now, as acts are stamped.
    #[expect(
        clippy::disallowed_methods,
        reason = "one machine, one clock: acts of several processes are put in order"
    )]
    pub fn now_ms() -> u64 {
        let since = std::time::SystemTime::now().duration_since(UNIX_EPOCH);
        u64::try_from(since.expect("after 1970").as_millis()).expect("small")
    }
}

/// One worker process. Dropping it kills it.
pub struct Tools {
    settings: Settings,
    log: PathBuf,
    process: Process,
}

impl Tools {
    /// Starts a process; does not wait until its tools are listed.
    pub fn start(settings: &Settings, ledger: &Ledger) -> Tools {
        let log = ledger.dir.path().join("worker.log");
        let process = spawn(settings, &log);
        Tools {
            settings: settings.clone(),
            log,
            process,
        }
    }

    /// Kills it, and starts it again at once: the same host, the same settings.
    pub fn restart(&mut self) {
        self.process.kill9();
        self.process = spawn(&self.settings, &self.log);
    }

    pub fn kill9(&mut self) {
        self.process.kill9();
    }

    pub fn term(&mut self) {
        self.process.signal(Signal::SIGTERM);
    }

    pub fn freeze(&mut self) {
        self.process.signal(Signal::SIGSTOP);
    }

    pub fn thaw(&mut self) {
        self.process.signal(Signal::SIGCONT);
    }

    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    pub fn ended(&mut self) -> bool {
        self.process.ended().is_some()
    }
}

impl Drop for Tools {
    fn drop(&mut self) {
        self.process.kill9();
        if std::thread::panicking() {
            eprint!("{}", harness::logs::tail(&self.log, 30));
        }
    }
}

/// A system whose only worker is one of these.
pub async fn system(gateways: usize, settings: &str) -> (System, Ledger, Tools) {
    let system = System::with(gateways, 0, settings).await;
    let ledger = Ledger::new();
    let tools = Tools::start(&Settings::of(&system, &ledger), &ledger);
    for gateway in 0..gateways {
        let listed = system.cluster.wait_for_tools(gateway, &TOOLS).await;
        listed.expect("tools");
    }
    (system, ledger, tools)
}

fn spawn(settings: &Settings, log: &Path) -> Process {
    let binary = std::env::current_exe().expect("this binary");
    let name = concat!(module_path!(), "::worker_process");
    let name = name.split_once("::").expect("a crate and a path").1;
    let mut spec = Spec::new("worker", &binary, log).args([name, "--exact", "--nocapture"]);
    let settings = serde_json::to_string(settings).expect("JSON");
    spec.env.push((SETTINGS.to_owned(), settings));
    Process::spawn(&spec).expect("a worker")
}

/// No test: the worker process, when it is started as one.
#[tokio::test(flavor = "multi_thread")]
async fn worker_process() {
    #[expect(
        clippy::disallowed_methods,
        reason = "how this process is told what it is"
    )]
    let Ok(settings) = std::env::var(SETTINGS) else {
        return;
    };
    let settings: Settings = serde_json::from_str(&settings).expect("settings");
    let mut logs = telemetry::Config::default();
    logs.logs.filter = "info".to_owned();
    let _guard = telemetry::init(&logs, "worker-of-the-tests").expect("logs");
    let shutdown = CancellationToken::new();
    let mut terminate =
        tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).expect("signals");
    let worker = serve(&settings);
    tokio::select! {
        ended = Box::pin(worker.run(shutdown.clone())) => ended.expect("the worker"),
        () = async {
            terminate.recv().await;
            shutdown.cancel();
            std::future::pending::<()>().await;
        } => {}
    }
}

fn serve(settings: &Settings) -> Worker {
    let registry = Registry::new();
    let ms = Duration::from_millis;
    let store = store::Config {
        url: settings.postgres.clone(),
        pool_size: 6,
        lease: ms(settings.lease_ms),
        heartbeat: ms(settings.heartbeat_ms),
        ..store::Config::default()
    };
    let queue = queue::Config {
        url: settings.redis.clone(),
        reclaim_idle: ms(settings.reclaim_idle_ms),
        reclaim_interval: ms(500),
        ..queue::Config::default()
    };
    let config = worker::Config {
        stop_grace: ms(settings.stop_grace_ms),
        drain_deadline: ms(settings.drain_deadline_ms),
        ..worker::Config::default()
    };
    let tools = ToolSet::new();
    let out = Out(settings.ledger.clone());
    let all: [Arc<dyn Tool>; 4] = [
        Arc::new(Toil(out.clone())),
        Arc::new(Hang(out.clone())),
        Arc::new(Deaf(out.clone())),
        Arc::new(Converse(out)),
    ];
    for tool in all {
        tools.insert(tool).expect("a good tool");
    }
    let store = store::Store::new(store, &registry).expect("a store");
    let queue = queue::Queue::new(queue, &registry).expect("a queue");
    Worker::new(
        config,
        store,
        queue,
        tools,
        &registry,
        Health::new(&registry),
    )
}

/// Where acts go: one line, one write, so that lines of several processes never mix.
#[derive(Clone)]
struct Out(PathBuf);

impl Out {
    fn act(&self, context: &(String, i32), label: &str, what: &str) {
        let act = Act {
            at_ms: Ledger::now_ms(),
            pid: std::process::id(),
            task: context.0.clone(),
            attempt: context.1,
            label: label.to_owned(),
            what: what.to_owned(),
        };
        let line = format!("{}\n", serde_json::to_string(&act).expect("JSON"));
        let mut file = OpenOptions::new()
            .append(true)
            .open(&self.0)
            .expect("the ledger");
        file.write_all(line.as_bytes()).expect("the ledger");
    }
}

fn who(context: &Context) -> (String, i32) {
    (context.task_id().to_string(), context.attempt())
}

fn spec(name: &str, properties: Value) -> ToolSpec {
    let schema = json!({"type": "object", "properties": properties, "required": ["label"]});
    let mut spec = ToolSpec::new(Definition::new(name, &schema));
    spec.policy.inline_budget = Some(Duration::ZERO);
    spec
}

#[derive(Deserialize)]
struct Wanted {
    label: String,
    #[serde(default)]
    steps: u32,
    #[serde(default)]
    pause_ms: u64,
    #[serde(default)]
    rounds: u32,
}

/// Acts in steps, with a pause after each.
struct Toil(Out);

#[worker::async_trait]
impl Tool for Toil {
    fn spec(&self) -> ToolSpec {
        let number = json!({"type": "integer", "minimum": 0});
        let label = json!({"type": "string"});
        spec(
            "toil",
            json!({"label": label, "steps": number, "pause_ms": number}),
        )
    }

    async fn call(
        &self,
        context: &mut Context,
        given: Arguments,
    ) -> Result<CallToolResult, ToolError> {
        let wanted: Wanted = given.parse()?;
        let who = who(context);
        for step in 0..wanted.steps {
            let key = format!("act {step}");
            let (out, label) = (&self.0, &wanted.label);
            context
                .step(Step::new(&key), |_| async {
                    out.act(&who, label, &key);
                    Ok(())
                })
                .await?;
            context
                .pause(Duration::from_millis(wanted.pause_ms))
                .await?;
        }
        Ok(CallToolResult::text(format!(
            "{} acts for {}",
            wanted.steps, wanted.label
        )))
    }
}

/// Never comes to an end, and may work for two seconds.
struct Hang(Out);

#[worker::async_trait]
impl Tool for Hang {
    fn spec(&self) -> ToolSpec {
        let mut spec = spec("hang", json!({"label": {"type": "string"}}));
        spec.policy.work_limit = Duration::from_secs(2);
        spec
    }

    async fn call(
        &self,
        context: &mut Context,
        given: Arguments,
    ) -> Result<CallToolResult, ToolError> {
        let wanted: Wanted = given.parse()?;
        self.0.act(&who(context), &wanted.label, "began");
        std::future::pending().await
    }
}

/// Acts every few milliseconds outside of any step, and never looks whether it should stop.
struct Deaf(Out);

#[worker::async_trait]
impl Tool for Deaf {
    fn spec(&self) -> ToolSpec {
        spec("deaf", json!({"label": {"type": "string"}}))
    }

    async fn call(
        &self,
        context: &mut Context,
        given: Arguments,
    ) -> Result<CallToolResult, ToolError> {
        let wanted: Wanted = given.parse()?;
        let who = who(context);
        loop {
            self.0.act(&who, &wanted.label, "on and on");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Asks one question a round, then tells which arguments it was called with.
struct Converse(Out);

#[worker::async_trait]
impl Tool for Converse {
    fn spec(&self) -> ToolSpec {
        spec(
            "converse",
            json!({"label": {"type": "string"}, "rounds": {"type": "integer"}, "blob": {}}),
        )
    }

    async fn call(
        &self,
        context: &mut Context,
        given: Arguments,
    ) -> Result<CallToolResult, ToolError> {
        let wanted: Wanted = given.parse()?;
        let who = who(context);
        for round in 0..wanted.rounds {
            let key = format!("round {round}");
            let schema = json!({
                "type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]
            });
            let question = Question::elicit(&key, "Which word?", schema);
            let answers = context.ask(vec![question]).await?;
            let answer: Value = answers.result(&key)?;
            let (out, label) = (&self.0, &wanted.label);
            let heard = format!("heard {}", answer["content"]["word"]);
            context
                .step(Step::new(&format!("hear {round}")), |_| async {
                    out.act(&who, label, &heard);
                    Ok(())
                })
                .await?;
        }
        let mut result = CallToolResult::text("heard all");
        result.structured_content =
            Some(serde_json::from_slice(given.as_json()).expect("arguments are JSON"));
        Ok(result)
    }
}
