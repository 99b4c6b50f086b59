//! Every sabotage at the same time on one system, each for principals of its own, beside some whose
//! tasks are left alone: each must be found as the breach it is, and nothing else.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use harness::temp::Temp;
use harness::{Error, Result};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Sabotage;
use crate::board::Board;
use crate::caller::{Caller, Shared};
use crate::checker::{self, Rule, Violation};
use crate::figures::Figures;
use crate::history::Recorder;
use crate::ledger::{self, Line};
use crate::rng::Rng;
use crate::run::TOOLS;
use crate::scene::{MIX, Scene};
use crate::schedule::Numbers;
use crate::settle;
use crate::stack::{Plan, Stack};
use crate::timeline;

const NUMBERS: Numbers = Numbers {
    gateways: 2,
    workers: 2,
    crons: 1,
};
/// Clients of one sabotage; two of them share a principal.
const CLIENTS: u64 = 3;
/// Rounds that clients play, at most, until a sabotage shows. A busy machine needs more time: each
/// is twice as long as the one before.
const ROUNDS: u32 = 3;
/// A task that is not over by then is lost.
const PATIENCE: Duration = Duration::from_secs(60);
/// The same where tasks are lost on purpose.
const PATIENCE_WITH_LOST: Duration = Duration::from_secs(10);
/// Nothing dies here, so nothing needs short leases, and a busy machine must not look like a dead one.
const SETTINGS: &str = r#"
[postgres]
lease = "20s"
heartbeat = "2s"
[cron]
reconcile_interval = "500ms"
[tools]
fixtures = "chaos"
"#;
/// Principals whose tasks are left alone.
const HONEST: &str = "honest";

/// What to run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Our binary.
    pub binary: PathBuf,
    /// How long clients begin something new.
    pub duration: Duration,
    /// Decides what clients do.
    pub seed: u64,
    /// Where histories, ledger, configuration and logs are kept; nowhere if `None`.
    pub keep: Option<PathBuf>,
}

/// How it went.
#[derive(Debug)]
pub struct Outcome {
    /// A line a sabotage, and what should not have been found with its timeline.
    pub report: String,
    /// The verdict in one line.
    pub verdict: String,
    /// Whether every sabotage was found as what it is, and nothing else.
    pub good: bool,
}

/// Some clients, and what is done to their tasks.
struct Group {
    name: &'static str,
    sabotage: Option<&'static Sabotage>,
    shared: Arc<Shared>,
}

/// Runs it.
///
/// # Errors
/// If the system can't be started, or a history can't be kept.
pub async fn run(options: &Options) -> Result<Outcome> {
    let temp = Temp::new()?;
    let dir = options.keep.as_deref().unwrap_or(temp.path());
    std::fs::create_dir_all(dir).map_err(Error::io(format!("make {}", dir.display())))?;
    let dir = &dir.canonicalize().map_err(Error::io("find the folder"))?;
    let ledger = dir.join("ledger.jsonl");
    let stack = start(options, dir, &ledger).await?;
    let mut groups = vec![group(&stack, dir, HONEST, None)?];
    for sabotage in super::all() {
        let group = group(&stack, dir, sabotage.name, Some(sabotage))?;
        groups.push(group);
    }
    let each = groups.iter().map(|group| group.play(options, &ledger));
    futures::future::try_join_all(each).await?;
    drop(stack);
    let acts = read(&ledger)?;
    judge(&groups, &acts)
}

fn read(ledger: &Path) -> Result<Vec<Line>> {
    ledger::read(ledger).map_err(Error::io("read the ledger"))
}

async fn start(options: &Options, dir: &Path, ledger: &Path) -> Result<Stack> {
    let binary = options.binary.canonicalize();
    let missing = format!("find {}", options.binary.display());
    let plan = Plan {
        binary: binary.map_err(Error::io(missing))?,
        dir: dir.to_owned(),
        numbers: NUMBERS,
        settings: format!("{SETTINGS}ledger = \"{}\"\n", ledger.display()),
    };
    let sabotage = async |url: &str| {
        for sabotage in super::all() {
            sabotage.install(url, sabotage.name).await?;
        }
        Ok(())
    };
    let stack = Stack::start(&plan, sabotage).await?;
    stack.wait_for_tools(&TOOLS).await?;
    Ok(stack)
}

fn group(
    stack: &Stack,
    dir: &Path,
    name: &'static str,
    sabotage: Option<&'static Sabotage>,
) -> Result<Group> {
    let recorder = Recorder::create(&dir.join(format!("{name}.jsonl")));
    let shared = Arc::new(Shared {
        gateways: stack.gateways(),
        recorder: recorder.map_err(Error::io("begin a history"))?,
        figures: Arc::new(Figures::default()),
        board: Board::default(),
        tokens: std::collections::BTreeMap::new(),
    });
    Ok(Group {
        name,
        sabotage,
        shared,
    })
}

impl Group {
    /// Plays until the sabotage shows, then waits for all ends.
    async fn play(&self, options: &Options, ledger: &Path) -> Result<()> {
        for round in 0..ROUNDS {
            self.round(options, round).await;
            let Some(sabotage) = self.sabotage else { break };
            let violations =
                checker::check(&self.shared.recorder.so_far(), &self.own(&read(ledger)?));
            if violations.iter().any(|one| one.rule == sabotage.rule) {
                break;
            }
        }
        let lost = self
            .sabotage
            .is_some_and(|sabotage| sabotage.rule == Rule::Ends);
        let patience = if lost { PATIENCE_WITH_LOST } else { PATIENCE };
        settle::within(&self.shared, options.seed, patience).await;
        Ok(())
    }

    async fn round(&self, options: &Options, round: u32) {
        let until = Instant::now() + options.duration * 2_u32.pow(round);
        let mix = self.sabotage.map_or(&MIX[..], |sabotage| sabotage.mix);
        let mut clients = JoinSet::new();
        for number in 0..CLIENTS {
            let caller = Caller::new(
                &format!("{}-{number}-{round}", self.name),
                &format!("{}-principal-{}", self.name, number % 2),
                Arc::clone(&self.shared),
            );
            let rng = Rng::part(options.seed + u64::from(round), number);
            clients.spawn(Scene::new(caller, rng, until).only(mix).play());
        }
        while let Some(played) = clients.join_next().await {
            played.expect("a client does not panic");
        }
    }

    /// What its own tasks did.
    fn own(&self, acts: &[Line]) -> Vec<Line> {
        let own = format!("{}-", self.name);
        let acts = acts.iter().filter(|line| line.call.starts_with(&own));
        acts.cloned().collect()
    }
}

fn judge(groups: &[Group], acts: &[Line]) -> Result<Outcome> {
    let (mut report, mut found, mut wrong) = (String::new(), 0, 0);
    for group in groups {
        let history = group.shared.recorder.finish();
        let history = history.map_err(Error::io("keep the history"))?;
        let acts = group.own(acts);
        let violations = checker::check(&history, &acts);
        let wanted = group.sabotage.map(|sabotage| sabotage.rule);
        let caught = violations.iter().any(|one| Some(one.rule) == wanted);
        found += usize::from(caught);
        let _ = writeln!(
            report,
            "  {:<18} {:>4} tasks, {}{}",
            group.name,
            group.shared.figures.tasks(),
            counts(&violations),
            match group.sabotage {
                Some(sabotage) if caught => format!(": {}", sabotage.what),
                Some(sabotage) => format!(": NOT FOUND: {} ({})", sabotage.rule, sabotage.what),
                None => String::new(),
            }
        );
        let others = violations.iter().filter(|one| Some(one.rule) != wanted);
        for other in others {
            wrong += 1;
            report.push_str(&timeline::of(other, &history, &acts));
        }
    }
    let all = super::all().len();
    Ok(Outcome {
        report,
        verdict: format!("sabotage: {found} of {all} found, {wrong} violations of other rules"),
        good: found == all && wrong == 0,
    })
}

fn counts(violations: &[Violation]) -> String {
    let mut counts: BTreeMap<Rule, usize> = BTreeMap::new();
    for violation in violations {
        *counts.entry(violation.rule).or_default() += 1;
    }
    if counts.is_empty() {
        return "no violation".to_owned();
    }
    let counts: Vec<String> = counts
        .iter()
        .map(|(rule, n)| format!("{n} {rule}"))
        .collect();
    counts.join(", ")
}
