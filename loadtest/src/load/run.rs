//! One run: the system, the load, what breaks, what is checked, the report.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use harness::temp::Temp;
use harness::{Error, Result};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::balance::Balance;
use super::breaks;
use super::operation::Client;
use super::outside::{Broken, Outside};
use super::page::Told;
use super::progress;
use super::scenario::{Kind, Scenario};
use super::series::Series;
use super::usage::Usage;
use super::verdict;
use crate::board::Board;
use crate::caller::{Caller, Shared};
use crate::faults::Breaker;
use crate::figures::Figures;
use crate::history::Recorder;
use crate::rng::Rng;
use crate::run::TOOLS;
use crate::schedule::{Numbers, Planned};
use crate::stack::{Plan, Stack};
use crate::{judgement, settle, supervisor};

/// Room for what runs beside the tasks, and heartbeats that no busy machine misses: what is measured
/// here is a system as it is deployed.
const SETTINGS: &str = r#"
[postgres]
lease = "4s"
heartbeat = "1s"
[redis]
reclaim_idle = "5s"
[gateway]
drain_delay = "1s"
drain_deadline = "5s"
"#;

/// What to run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Our binary.
    pub binary: PathBuf,
    /// A system that somebody else runs, instead of one of our own.
    pub outside: Option<Outside>,
    /// What to play.
    pub scenario: Scenario,
    /// How many of each process of our own.
    pub numbers: Numbers,
    /// Decides what clients choose.
    pub seed: u64,
    /// Where reports, history and logs are put.
    pub dir: Option<PathBuf>,
}

/// How it went.
#[derive(Debug)]
pub struct Outcome {
    /// Figures, for people.
    pub text: String,
    /// Whether all objectives were met.
    pub good: bool,
}

/// The system under load.
#[derive(Debug, Clone)]
enum System {
    /// Ours, over servers of its own.
    Own(Arc<Stack>),
    /// Somebody else's.
    Theirs(Arc<Outside>),
}

/// Runs it.
///
/// # Errors
/// If the system can't be started or reached, or a report can't be written.
pub async fn run(options: &Options) -> Result<Outcome> {
    let temp = Temp::new()?;
    let dir = options.dir.as_deref().unwrap_or(temp.path());
    std::fs::create_dir_all(dir).map_err(Error::io(format!("make {}", dir.display())))?;
    let dir = dir.canonicalize().map_err(Error::io("find the folder"))?;
    let ledger = dir.join(judgement::LEDGER);
    let (system, plan, gateways) = match &options.outside {
        None => {
            let plan =
                breaks::plan(&options.scenario.breaks, options.numbers).map_err(Error::Other)?;
            // Of an earlier run into the same folder; tools append to it.
            if ledger.exists() {
                std::fs::remove_file(&ledger).map_err(Error::io("remove an old ledger"))?;
            }
            let stack = Arc::new(start(options, &dir, &ledger).await?);
            let gateways = stack.gateways();
            (System::Own(stack), plan, gateways)
        }
        Some(outside) => {
            let outside = outside.clone().complete()?;
            outside.check(&options.scenario.breaks)?;
            reached(&outside).await?;
            let gateways = outside.urls.clone();
            (System::Theirs(Arc::new(outside)), Vec::new(), gateways)
        }
    };
    let recorder = Recorder::create(&dir.join(judgement::HISTORY));
    let recorder = recorder.map_err(Error::io("begin a history"))?;
    let shared = Arc::new(Shared {
        gateways,
        recorder: recorder.clone(),
        figures: Arc::new(Figures::default()),
        board: Board::default(),
        tokens: tokens(options),
    });
    let series = Arc::new(Series::new());
    let usage = Arc::new(Usage::default());
    // A system that goes on remembers keys of earlier runs, and its ledger their acts.
    let run = match &system {
        System::Own(_) => "op-".to_owned(),
        System::Theirs(_) => format!("op-{:x}-", crate::clock::now_us()),
    };
    load((options, &run), plan, &system, &shared, &series, &usage).await;
    settle::settle(&shared, options.seed).await;
    let ledger = match &system {
        System::Own(_) => Some(ledger),
        System::Theirs(outside) => outside.ledger.clone(),
    };
    drop(system);
    let history = recorder.finish().map_err(Error::io("keep the history"))?;
    let judgement = match ledger {
        Some(ledger) => judgement::of_calls(&history, &ledger, &run)?,
        None => judgement::without_ledger(&history),
    };
    let mut told = Told::of(options.scenario.clone(), &series);
    told.judged = verdict::judge(&options.scenario, &series, judgement.violations);
    told.usage = usage.looks();
    told.tasks = shared.figures.tasks();
    told.checker = format!("{}{}", judgement.report, shared.figures.report());
    told.machine = machine(options);
    write(&dir.join("report.html"), &told.html())?;
    let json = serde_json::to_string_pretty(&told.json());
    write(&dir.join("report.json"), &json.expect("figures are JSON"))?;
    let mut text = told.text();
    if judgement.violations > 0 {
        text.push_str(&judgement.report);
    }
    if options.dir.is_some() {
        text.push_str(&format!("report: {}\n", dir.join("report.html").display()));
    }
    let good = told.good();
    Ok(Outcome { text, good })
}

/// Whether every endpoint answers our callers and has the tools that they call.
async fn reached(outside: &Outside) -> Result<()> {
    let token = outside.tokens.first().map_or("principal-0", String::as_str);
    for url in &outside.urls {
        let client = harness::client::Client::new(url).bearer(token);
        let listed = client.list().await?;
        let missing = TOOLS
            .iter()
            .find(|name| !listed.iter().any(|tool| tool["name"] == **name));
        if let Some(missing) = missing {
            return Err(Error::Other(format!(
                "{url} has no tool {missing}: a worker with `[tools] fixtures = \"chaos\"` serves what load \
                 runs call"
            )));
        }
    }
    Ok(())
}

/// A token each, for as many principals as there are tokens.
fn tokens(options: &Options) -> BTreeMap<String, String> {
    let tokens = options.outside.iter().flat_map(|outside| &outside.tokens);
    tokens
        .enumerate()
        .map(|(number, token)| (principal(number as u64), token.clone()))
        .collect()
}

fn principal(number: u64) -> String {
    format!("principal-{number}")
}

async fn start(options: &Options, dir: &Path, ledger: &Path) -> Result<Stack> {
    let tools = format!(
        "{SETTINGS}\n[tools]\nfixtures = \"chaos\"\nledger = \"{}\"\n",
        ledger.display()
    );
    let binary = options.binary.canonicalize();
    let plan = Plan {
        binary: binary.map_err(Error::io(format!("find {}", options.binary.display())))?,
        dir: dir.to_owned(),
        numbers: options.numbers,
        settings: tools,
    };
    let stack = Stack::start(&plan, async |_: &str| Ok(())).await?;
    stack.wait_for_tools(&TOOLS).await?;
    Ok(stack)
}

/// Load and breaks at the same time, until both are over.
async fn load(
    (options, run): (&Options, &str),
    plan: Vec<Planned>,
    system: &System,
    shared: &Arc<Shared>,
    series: &Arc<Series>,
    usage: &Arc<Usage>,
) {
    let balance = Arc::new(Balance::new(&shared.gateways));
    let mut behind = JoinSet::new();
    let watching = Arc::clone(&balance);
    behind.spawn(async move { watching.watch().await });
    let (looking, at, start) = (Arc::clone(usage), system.clone(), series.start());
    behind.spawn(async move {
        let pids = || match &at {
            System::Own(stack) => stack.pids(),
            System::Theirs(outside) => outside.pids(),
        };
        looking.watch(pids, start).await;
    });
    let (counted, going, whole) = (
        Arc::clone(series),
        Arc::clone(shared),
        options.scenario.duration,
    );
    behind.spawn(async move { progress::tell(&counted, &going.figures, whole).await });
    let recorder = shared.recorder.clone();
    let breaking = async {
        match system {
            System::Own(stack) => {
                let (watched, figures) = (Arc::clone(stack), Arc::clone(&shared.figures));
                behind.spawn(async move { supervisor::watch(&watched, &figures).await });
                let breaker =
                    Arc::new(Breaker::new(Arc::clone(stack), Arc::clone(&shared.figures)));
                let note = move |(began, _), fault: crate::fault::Fault| {
                    recorder.fault(began, &fault.what.to_string(), &fault.target.to_string());
                };
                breaker.run(plan, note).await;
            }
            System::Theirs(outside) => {
                let note = |broken: Broken| {
                    let how = format!("{:?}", broken.planned.how).to_lowercase();
                    recorder.fault(broken.span.0, &how, &broken.planned.target);
                    if let Some(trouble) = broken.trouble {
                        let target = &broken.planned.target;
                        eprintln!("load: break of {target}: {trouble}");
                        shared
                            .figures
                            .trouble(format!("break of {target}: {trouble}"));
                    }
                };
                outside.break_all(&options.scenario.breaks, note).await;
            }
        }
    };
    tokio::join!(breaking, clients((options, run), shared, series, &balance));
    behind.shutdown().await;
    progress::end();
}

/// Begins operations, and returns when all are over.
async fn clients(
    (options, run): (&Options, &str),
    shared: &Arc<Shared>,
    series: &Arc<Series>,
    balance: &Arc<Balance>,
) {
    let scenario = &options.scenario;
    let many = if shared.tokens.is_empty() {
        scenario.principals
    } else {
        shared.tokens.len() as u64
    };
    let callers = (0..many)
        .map(principal)
        .map(|name| Caller::new(&name, &name, Arc::clone(shared)));
    let clients = Clients {
        callers: callers.collect(),
        balance: Arc::clone(balance),
        series: Arc::clone(series),
        seed: options.seed,
        run: run.to_owned(),
        next: AtomicU64::new(0),
        weights: scenario.weights(),
    };
    let end = series.start() + scenario.duration;
    match scenario.clients {
        Some(count) => closed(count, Arc::new(clients), end).await,
        None => open(scenario, &clients, end).await,
    }
}

/// What clients are made from.
#[derive(Debug)]
struct Clients {
    callers: Vec<Caller>,
    balance: Arc<Balance>,
    series: Arc<Series>,
    seed: u64,
    /// What the names of all calls begin with.
    run: String,
    next: AtomicU64,
    weights: Vec<(u64, Kind)>,
}

impl Clients {
    /// One for one operation.
    fn one(&self, rng: &mut Rng, kind: Kind) -> Client {
        let number = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        self.series.begun(kind.as_str());
        Client {
            caller: rng.pick(&self.callers).clone(),
            balance: Arc::clone(&self.balance),
            series: Arc::clone(&self.series),
            rng: Rng::part(self.seed, number),
            name: format!("{}{number}", self.run),
        }
    }
}

/// When they are due, whatever became of earlier ones.
async fn open(scenario: &Scenario, clients: &Clients, end: Instant) {
    let mut rng = Rng::new(clients.seed);
    let mut due = clients.series.start();
    let mut running = JoinSet::new();
    loop {
        due += pause(&mut rng, scenario.rate.unwrap_or(1.0));
        if due >= end {
            break;
        }
        sleep_until(due).await;
        while running.try_join_next().is_some() {}
        let kind = rng.weighted(&clients.weights);
        if running.len() >= scenario.in_flight_max {
            clients.series.fault(kind.as_str(), 0, false);
            continue;
        }
        running.spawn(clients.one(&mut rng, kind).play(kind, due));
    }
    while let Some(ended) = running.join_next().await {
        ended.expect("an operation does not panic");
    }
}

/// So many at a time, each when the one before is over.
async fn closed(count: usize, clients: Arc<Clients>, end: Instant) {
    let mut running = JoinSet::new();
    for number in 0..count {
        let clients = Arc::clone(&clients);
        running.spawn(async move {
            let mut rng = Rng::part(clients.seed, u64::MAX - number as u64);
            while Instant::now() < end {
                let kind = rng.weighted(&clients.weights);
                clients.one(&mut rng, kind).play(kind, Instant::now()).await;
            }
        });
    }
    while let Some(ended) = running.join_next().await {
        ended.expect("an operation does not panic");
    }
}

/// Until the next operation is due: exponentially distributed, as of clients that know nothing of
/// each other.
fn pause(rng: &mut Rng, rate: f64) -> Duration {
    #[expect(clippy::cast_precision_loss, reason = "53 bits of chance are enough")]
    let chance = (rng.bits() >> 11) as f64 / (1_u64 << 53) as f64;
    Duration::from_secs_f64(-(1.0 - chance).ln() / rate)
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).map_err(Error::io(format!("write {}", path.display())))
}

/// What the figures were reached on.
fn machine(options: &Options) -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpu = read("/proc/cpuinfo");
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name"));
    let model = model.map_or("", |rest| rest.trim_start_matches([' ', '\t', ':']));
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let memory = read("/proc/meminfo");
    let kib: u64 = memory
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))
        .and_then(|rest| rest.trim().trim_end_matches(" kB").parse().ok())
        .unwrap_or_default();
    let whose = match &options.outside {
        None => "the whole system on the same machine".to_owned(),
        Some(outside) => format!("clients of {}", outside.urls.join(", ")),
    };
    format!("{cores} cores ({model}), {} GiB, {whose}", kib / 1_048_576)
}
