//! One run: the system, the load, what breaks, what is checked, the report.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use harness::temp::Temp;
use harness::{Error, Result};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::balance::Balance;
use super::breaks;
use super::operation::Client;
use super::page::Told;
use super::scenario::Scenario;
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

const PROGRESS: Duration = Duration::from_secs(5);
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
    /// What to play.
    pub scenario: Scenario,
    /// How many of each process.
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

/// Runs it.
///
/// # Errors
/// If the system can't be started, or a report can't be written.
pub async fn run(options: &Options) -> Result<Outcome> {
    let plan = breaks::plan(&options.scenario.breaks, options.numbers).map_err(Error::Other)?;
    let temp = Temp::new()?;
    let dir = options.dir.as_deref().unwrap_or(temp.path());
    std::fs::create_dir_all(dir).map_err(Error::io(format!("make {}", dir.display())))?;
    let dir = dir.canonicalize().map_err(Error::io("find the folder"))?;
    let ledger = dir.join(judgement::LEDGER);
    // Of an earlier run into the same folder; tools append to it.
    if ledger.exists() {
        std::fs::remove_file(&ledger).map_err(Error::io("remove an old ledger"))?;
    }
    let recorder = Recorder::create(&dir.join(judgement::HISTORY));
    let recorder = recorder.map_err(Error::io("begin a history"))?;
    let stack = Arc::new(start(options, &dir, &ledger).await?);
    let shared = Arc::new(Shared {
        gateways: stack.gateways(),
        recorder: recorder.clone(),
        figures: Arc::new(Figures::default()),
        board: Board::default(),
    });
    let series = Arc::new(Series::new());
    let usage = Arc::new(Usage::default());
    load(options, plan, &stack, &shared, &series, &usage).await;
    settle::settle(&shared, options.seed).await;
    drop(stack);
    let history = recorder.finish().map_err(Error::io("keep the history"))?;
    let judgement = judgement::of(&history, &ledger)?;
    let mut told = Told::of(options.scenario.clone(), &series);
    told.judged = verdict::judge(&options.scenario, &series, judgement.violations);
    told.usage = usage.looks();
    told.tasks = shared.figures.tasks();
    told.checker = format!("{}{}", judgement.report, shared.figures.report());
    told.machine = machine();
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
    options: &Options,
    plan: Vec<Planned>,
    stack: &Arc<Stack>,
    shared: &Arc<Shared>,
    series: &Arc<Series>,
    usage: &Arc<Usage>,
) {
    let balance = Arc::new(Balance::new(&shared.gateways));
    let mut behind = JoinSet::new();
    let watching = Arc::clone(&balance);
    behind.spawn(async move { watching.watch().await });
    let (looking, at, start) = (Arc::clone(usage), Arc::clone(stack), series.start());
    behind.spawn(async move { looking.watch(&at, start).await });
    let (watched, figures) = (Arc::clone(stack), Arc::clone(&shared.figures));
    behind.spawn(async move { supervisor::watch(&watched, &figures).await });
    let (counted, going) = (Arc::clone(series), Arc::clone(shared));
    behind.spawn(async move { progress(&counted, &going).await });

    let breaker = Arc::new(Breaker::new(Arc::clone(stack), Arc::clone(&shared.figures)));
    let recorder = shared.recorder.clone();
    let breaking = breaker.run(plan, move |(began, _), fault| {
        recorder.fault(began, &fault.what.to_string(), &fault.target.to_string());
    });
    tokio::join!(breaking, clients(options, shared, series, &balance));
    behind.shutdown().await;
}

/// Begins operations when they are due, and returns when all are over.
async fn clients(
    options: &Options,
    shared: &Arc<Shared>,
    series: &Arc<Series>,
    balance: &Arc<Balance>,
) {
    let scenario = &options.scenario;
    let names = (0..scenario.principals).map(|number| format!("principal-{number}"));
    let callers = names.map(|name| Caller::new(&name, &name, Arc::clone(shared)));
    let callers: Vec<Caller> = callers.collect();
    let weights = scenario.weights();
    let mut rng = Rng::new(options.seed);
    let mut due = series.start();
    let end = due + scenario.duration;
    let mut running = JoinSet::new();
    let mut number = 0_u64;
    loop {
        due += pause(&mut rng, scenario.rate);
        if due >= end {
            break;
        }
        sleep_until(due).await;
        while running.try_join_next().is_some() {}
        let kind = rng.weighted(&weights);
        if running.len() >= scenario.in_flight_max {
            series.fault(kind.as_str(), 0, false);
            continue;
        }
        number += 1;
        series.begun(kind.as_str());
        let client = Client {
            caller: rng.pick(&callers).clone(),
            balance: Arc::clone(balance),
            series: Arc::clone(series),
            rng: Rng::part(options.seed, number),
            name: format!("op-{number}"),
        };
        running.spawn(client.play(kind, due));
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

async fn progress(series: &Series, shared: &Shared) {
    let mut next = Instant::now();
    loop {
        next += PROGRESS;
        sleep_until(next).await;
        eprintln!(
            "load: {} s, {} tasks, {} errors",
            series.start().elapsed().as_secs(),
            shared.figures.tasks(),
            series.faults().len()
        );
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).map_err(Error::io(format!("write {}", path.display())))
}

/// What the figures were reached on.
fn machine() -> String {
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
    format!(
        "{cores} cores ({model}), {} GiB, clients on the same machine",
        kib / 1_048_576
    )
}
