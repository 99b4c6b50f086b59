//! One run: the system, the load, what breaks, what is checked, the report.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use harness::temp::Temp;
use harness::{Error, Result};
use serde_json::Value;
use tokio::task::JoinSet;

use super::balance::Balance;
use super::breaks;
use super::outside::{Broken, Outside};
use super::report::Report;
use super::scenario::Scenario;
use super::series::Series;
use super::usage::Usage;
use super::{clients, page, progress};
use crate::board::Board;
use crate::caller::Shared;
use crate::faults::Breaker;
use crate::figures::Figures;
use crate::history::Recorder;
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

/// A gateway knows by then of tools that workers have just begun to serve.
const LEARNS: Duration = Duration::from_secs(10);

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

/// 0 if all objectives were met, 1 if one was missed, 2 if it could not be run.
#[must_use]
pub fn exit_code(outcome: &Result<Outcome>) -> u8 {
    match outcome {
        Ok(outcome) if outcome.good => 0,
        Ok(_) => 1,
        Err(_) => 2,
    }
}

/// The system under load.
#[derive(Debug, Clone)]
enum System {
    /// Ours, over servers of its own.
    Own(Arc<Stack>),
    /// Somebody else's.
    Theirs(Arc<Outside>),
}

impl System {
    fn told(&self) -> String {
        match self {
            System::Own(_) => "all of it on the machine of the clients".to_owned(),
            System::Theirs(outside) => outside.urls.join(", "),
        }
    }
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
    let (system, plan, gateways, names) = match &options.outside {
        None => {
            let plan =
                breaks::plan(&options.scenario.breaks, options.numbers).map_err(Error::Other)?;
            // Of an earlier run into the same folder; tools append to it.
            if ledger.exists() {
                std::fs::remove_file(&ledger).map_err(Error::io("remove an old ledger"))?;
            }
            let stack = Arc::new(start(options, &dir, &ledger).await?);
            let gateways = stack.gateways();
            let names = (1..=gateways.len()).map(|number| format!("gateway-{number}"));
            let names = names.collect();
            (System::Own(stack), plan, gateways, names)
        }
        Some(outside) => {
            let outside = outside.clone().complete()?;
            outside.check(&options.scenario.breaks)?;
            reached(&outside).await?;
            let (gateways, names) = (outside.urls.clone(), outside.names());
            (
                System::Theirs(Arc::new(outside)),
                Vec::new(),
                gateways,
                names,
            )
        }
    };
    let history = dir.join(judgement::HISTORY);
    let recorder = Recorder::create(&history);
    let recorder = recorder.map_err(Error::io("begin a history"))?;
    let began = made(&history);
    let system_told = system.told();
    let shared = Arc::new(Shared {
        gateways,
        recorder: recorder.clone(),
        figures: Arc::new(Figures::default()),
        board: Board::default(),
        tokens: tokens(options),
    });
    let series = Arc::new(Series::new(names));
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
    let mut report = Report::of(options.scenario.clone(), &series, judgement.violations);
    report.at = began;
    report.usage = usage.looks();
    report.tasks = shared.figures.tasks();
    report.checker = format!("{}{}", judgement.report, shared.figures.report());
    report.machine = machine();
    report.system = system_told;
    write(&dir.join("report.html"), &page::html(&report))?;
    let json = serde_json::to_string_pretty(&report);
    write(&dir.join("report.json"), &json.expect("figures are JSON"))?;
    let mut text = report.text();
    if judgement.violations > 0 {
        text.push_str(&judgement.report);
    }
    if options.dir.is_some() {
        text.push_str(&format!("report: {}\n", dir.join("report.html").display()));
    }
    let good = report.good;
    Ok(Outcome { text, good })
}

/// Draws the page of a `report.json` again, to this file or beside it. Where it is.
///
/// # Errors
/// If it is no such report, or can't be written.
pub fn draw(json: &Path, to: Option<&Path>) -> Result<PathBuf> {
    let report = Report::read(json)?;
    let file = to.map_or_else(|| json.with_extension("html"), Path::to_owned);
    write(&file, &page::html(&report))?;
    Ok(file)
}

/// When a file was made, in UTC.
fn made(file: &Path) -> String {
    let made = std::fs::metadata(file).and_then(|about| about.modified());
    made.map_or_else(
        |_| String::new(),
        |at| humantime::format_rfc3339_seconds(at).to_string(),
    )
}

/// Whether every endpoint answers our callers and has the tools that they call. One that has just been
/// started may learn of them in a moment.
async fn reached(outside: &Outside) -> Result<()> {
    let token = outside.tokens.first().map_or("principal-0", String::as_str);
    for url in &outside.urls {
        let client = harness::client::Client::new(url).bearer(token);
        let begun = Instant::now();
        while let Some(missing) = missing(&client.list().await?) {
            if begun.elapsed() > LEARNS {
                return Err(Error::Other(format!(
                    "{url} has no tool {missing}: a worker with `[tools] fixtures = \"chaos\"` serves what \
                     load runs call"
                )));
            }
            tokio::time::sleep(LEARNS / 50).await;
        }
    }
    Ok(())
}

/// One of the tools that load runs call, if it is not among these.
fn missing(listed: &[Value]) -> Option<&'static str> {
    let is_listed = |name: &str| listed.iter().any(|tool| tool["name"] == name);
    TOOLS.iter().copied().find(|name| !is_listed(name))
}

/// A token each, for as many principals as there are tokens.
fn tokens(options: &Options) -> BTreeMap<String, String> {
    let tokens = options.outside.iter().flat_map(|outside| &outside.tokens);
    tokens
        .enumerate()
        .map(|(number, token)| (principal(number as u64), token.clone()))
        .collect()
}

pub(super) fn principal(number: u64) -> String {
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
                let (kept, broken) = (Arc::clone(series), Arc::clone(&shared.figures));
                let note = move |span: (u64, u64), fault: crate::fault::Fault| {
                    let (target, how) = (fault.target.to_string(), fault.what.to_string());
                    recorder.fault(span.0, &how, &target);
                    let trouble = broken.trouble_of(&fault);
                    kept.broke((target, how), span, trouble);
                };
                breaker.run(plan, note).await;
            }
            System::Theirs(outside) => {
                let note = |broken: Broken| {
                    let how = format!("{:?}", broken.planned.how).to_lowercase();
                    let target = &broken.planned.target;
                    recorder.fault(broken.span.0, &how, target);
                    let named = (target.clone(), how);
                    series.broke(named, broken.span, broken.trouble.clone());
                    if let Some(trouble) = broken.trouble {
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
    tokio::join!(
        breaking,
        clients::drive((options, run), shared, series, &balance)
    );
    behind.shutdown().await;
    progress::end();
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).map_err(Error::io(format!("write {}", path.display())))
}

/// What the clients had.
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
    format!("{cores} cores ({model}), {} GiB", kib / 1_048_576)
}
