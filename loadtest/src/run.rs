//! One run: start everything, let clients and faults loose on it, settle, judge.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use harness::temp::Temp;
use harness::{Error, Result};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::board::Board;
use crate::caller::{Caller, Shared};
use crate::fault::Fault;
use crate::faults::Breaker;
use crate::figures::Figures;
use crate::history::{Event, Kind, Recorder};
use crate::lives::{self, Life};
use crate::operator::Operator;
use crate::rng::Rng;
use crate::sabotage::Sabotage;
use crate::scene::Scene;
use crate::schedule::{self, Numbers};
use crate::stack::{Plan, Stack};
use crate::{judgement, settle, supervisor};

/// As in a small installation, on one machine.
pub const NUMBERS: Numbers = Numbers {
    gateways: 3,
    workers: 3,
    crons: 2,
};
/// The tools that runs call.
pub const TOOLS: [&str; 5] = [
    "chaos_quick",
    "chaos_steps",
    "chaos_ask",
    "chaos_undo",
    "chaos_gives_up",
];
const PROGRESS: Duration = Duration::from_secs(15);

/// What to run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Our binary.
    pub binary: PathBuf,
    /// How long clients work and things break.
    pub duration: Duration,
    /// Decides which faults come when, and what clients do.
    pub seed: u64,
    /// How many clients work at the same time.
    pub clients: u64,
    /// Fewer acknowledged tasks than this are a failure too.
    pub tasks_min: u64,
    /// Where history, ledger, configuration and logs are kept; nowhere if `None`.
    pub keep: Option<PathBuf>,
    /// What is broken on purpose.
    pub sabotage: Option<&'static Sabotage>,
}

/// How it went.
#[derive(Debug)]
pub struct Outcome {
    /// Figures, for people.
    pub report: String,
    /// The verdict in one line.
    pub verdict: String,
    /// Whether every promise was kept, and enough was done.
    pub good: bool,
}

/// Runs it.
///
/// # Errors
/// If the system can't be started, or the history can't be kept.
pub async fn run(options: &Options) -> Result<Outcome> {
    let temp = Temp::new()?;
    let dir = options.keep.as_deref().unwrap_or(temp.path()).to_owned();
    std::fs::create_dir_all(&dir).map_err(Error::io(format!("make {}", dir.display())))?;
    let dir = dir.canonicalize().map_err(Error::io("find the folder"))?;
    if dir.join(judgement::HISTORY).exists() {
        let what = format!("{} holds another run", dir.display());
        return Err(Error::Failed { what, log: None });
    }
    let recorder = Recorder::create(&dir.join(judgement::HISTORY));
    let recorder = recorder.map_err(Error::io("begin a history"))?;
    let figures = Arc::new(Figures::default());

    let stack = Arc::new(start(options, &dir).await?);
    if !stack.skewed {
        figures.trouble("libfaketime is not installed: all clocks were right".to_owned());
    }
    let shared = Arc::new(Shared {
        gateways: stack.gateways(),
        recorder: recorder.clone(),
        figures: Arc::clone(&figures),
        board: Board::default(),
        tokens: std::collections::BTreeMap::new(),
    });
    attack(options, &stack, &shared).await;
    settle::settle(&shared, options.seed).await;
    let lives = lives::tell(&options.binary, &stack.database_url, &dir).await;
    drop(stack);
    let history = recorder.finish().map_err(Error::io("keep the history"))?;
    let judgement = judgement::of(&history, &dir.join(judgement::LEDGER))?;
    let tasks = figures.tasks();
    let mut report = format!(
        "chaos: {} s\n{}",
        options.duration.as_secs(),
        figures.report()
    );
    if tasks < options.tasks_min {
        report.push_str(&format!("  fewer tasks than {}\n", options.tasks_min));
    }
    report.push_str(&judgement.report);
    report.push_str(&told(lives, options.keep.is_some()));
    Ok(Outcome {
        report,
        verdict: format!(
            "chaos: seed={} tasks={tasks} faults={} violations={}",
            options.seed,
            figures.faults(),
            judgement.violations
        ),
        good: judgement.violations == 0 && tasks >= options.tasks_min,
    })
}

/// Where the lives of tasks are; the first one itself if the folder is gone with the run.
fn told(lives: Result<Vec<Life>>, kept: bool) -> String {
    let mut text = String::new();
    match lives {
        Ok(lives) if kept => {
            for life in lives {
                let file = life.file.display();
                let _ = writeln!(text, "  {}: {file}", life.kind);
            }
        }
        Ok(lives) => {
            if let Some(life) = lives.first() {
                let _ = writeln!(text, "the task with the most attempts:\n{}", life.text);
            }
        }
        Err(error) => {
            let _ = writeln!(text, "  no lives of tasks: {error}");
        }
    }
    text
}

async fn start(options: &Options, dir: &Path) -> Result<Stack> {
    let tools = format!(
        "[tools]\nfixtures = \"chaos\"\nledger = \"{}\"\n",
        dir.join(judgement::LEDGER).display()
    );
    let plan = Plan {
        binary: options
            .binary
            .canonicalize()
            .map_err(Error::io(format!("find {}", options.binary.display())))?,
        dir: dir.to_owned(),
        numbers: NUMBERS,
        settings: tools,
    };
    let prepare = async |url: &str| match options.sabotage {
        Some(sabotage) => sabotage.install(url, "").await,
        None => Ok(()),
    };
    let stack = Stack::start(&plan, prepare).await?;
    stack.wait_for_tools(&TOOLS).await?;
    Ok(stack)
}

/// Clients and faults at the same time, until both are done.
async fn attack(options: &Options, stack: &Arc<Stack>, shared: &Arc<Shared>) {
    let figures = Arc::clone(&shared.figures);
    let until = Instant::now() + options.duration;
    let mut clients = JoinSet::new();
    for number in 0..options.clients {
        let caller = Caller::new(
            &format!("client-{number}"),
            &principal(number, options.clients),
            Arc::clone(shared),
        );
        let scene = Scene::new(caller, Rng::part(options.seed, number), until);
        clients.spawn(scene.play());
    }

    let mut behind = JoinSet::new();
    let (watched, watching) = (Arc::clone(stack), Arc::clone(&figures));
    behind.spawn(async move { supervisor::watch(&watched, &watching).await });
    let (counted, started) = (Arc::clone(&figures), Instant::now());
    behind.spawn(async move { progress(&counted, started).await });

    let redis_url = stack.redis.lock().await.url();
    let (binary, desk, trouble) = (
        options.binary.clone(),
        Arc::clone(stack),
        Arc::clone(&figures),
    );
    let rng = Rng::part(options.seed, u64::MAX - 2);
    let at = redis_url.clone();
    behind.spawn(async move {
        let operator = operator_of((&binary, &at), &desk, &trouble);
        operator.work(rng).await;
    });

    let plan = schedule::plan(options.seed, options.duration, NUMBERS);
    let breaker = Arc::new(Breaker::new(Arc::clone(stack), figures));
    let recorder = shared.recorder.clone();
    let note = move |span, fault| recorder.record(event(span, fault));
    breaker.run(plan, note).await;
    while let Some(ended) = clients.join_next().await {
        ended.expect("a client does not panic");
    }
    behind.shutdown().await;
    let operator = operator_of((&options.binary, &redis_url), stack, &shared.figures);
    operator.leave().await;
}

fn operator_of<'a>(
    (binary, redis_url): (&'a Path, &'a str),
    stack: &'a Stack,
    figures: &'a Figures,
) -> Operator<'a> {
    Operator {
        binary,
        postgres_url: &stack.database_url,
        redis_url,
        figures,
    }
}

fn event((at_us, until_us): (u64, u64), fault: Fault) -> Event {
    Event {
        at_us,
        until_us,
        client: "schedule".to_owned(),
        principal: String::new(),
        gateway: String::new(),
        kind: Kind::Fault {
            what: format!("{} ({} ms)", fault.what, fault.lasts.as_millis()),
            target: fault.target.to_string(),
        },
    }
}

/// Every fourth client shares its principal with another.
fn principal(number: u64, clients: u64) -> String {
    let principals = (clients * 3 / 4).max(1);
    format!("principal-{}", number % principals)
}

async fn progress(figures: &Figures, started: Instant) {
    loop {
        sleep(PROGRESS).await;
        eprintln!(
            "chaos: {} s, {} tasks, {} faults, {} server errors",
            started.elapsed().as_secs(),
            figures.tasks(),
            figures.faults(),
            figures.server_errors()
        );
    }
}
