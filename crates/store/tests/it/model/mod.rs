//! The rules by which tasks change, twice: as a pure function, and as SQL. The same actions are
//! done to both, and after each of them both answer the same and look the same.
//!
//! `PROPTEST_CASES=5000 cargo test -p mcp-tasks-store --test it model` runs for longer;
//! `PROPTEST_RNG_SEED` repeats a run. A failure is told by the smallest sequence that still
//! fails.

mod action;
mod attempt;
mod laws;
mod look;
mod opened;
mod openings;
mod owner;
mod races;
mod real;
mod rules;
mod script;
mod state;
mod sweeps;
mod undoing;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use proptest::test_runner::{Config, TestCaseError, TestError, TestRunner};

use action::Action;
use laws::Laws;
use look::Seen;
use real::Real;
use script::{Scripts, mend};
use state::{Model, Task};

/// Actions of a sequence.
const ACTIONS: usize = 40;
/// Sequences on Postgres, unless `PROPTEST_CASES` says otherwise: about 20 s.
const CASES: u32 = 120;
/// Of so many of them, one is repeated with tasks that are sealed.
const SEALED: u32 = 4;
/// Sequences of the model alone, for each on Postgres.
const ALONE: u32 = 6;
/// How often chance gets another try to have been everywhere.
const PATIENCE: u32 = 60;
/// Actions after which every task must have ended.
const MENDED: usize = 300;

fn runner(times: u32) -> TestRunner {
    share(times, 1)
}

fn share(times: u32, of: u32) -> TestRunner {
    let config = Config {
        failure_persistence: None,
        max_shrink_iters: 1_000,
        max_shrink_time: 60_000,
        ..Config::default()
    };
    let cases = match std::env::var_os("PROPTEST_CASES") {
        Some(_) => config.cases,
        None => CASES,
    };
    TestRunner::new(Config {
        cases: (cases * times).div_ceil(of),
        ..config
    })
}

fn run(mut runner: TestRunner, check: impl Fn(&[Action]) -> Result<(), String>) {
    let checked = runner.run(&Scripts(ACTIONS), |actions| {
        check(&actions).map_err(TestCaseError::fail)
    });
    if let Err(TestError::Fail(why, actions)) = checked {
        let told: Vec<String> = actions
            .iter()
            .map(|action| format!("    {action:?},\n"))
            .collect();
        panic!("{why}\nafter the last of\n[\n{}]", told.concat());
    }
    checked.unwrap();
}

fn differences(
    (model, real): (&BTreeMap<String, String>, &BTreeMap<String, String>),
) -> Vec<String> {
    let places: BTreeSet<&String> = model.keys().chain(real.keys()).collect();
    let differ = places
        .into_iter()
        .filter(|place| model.get(*place) != real.get(*place));
    differ
        .map(|place| {
            let [model, real] =
                [model, real].map(|shown| shown.get(place).map_or("nothing", |s| s));
            format!("{place} is {real}, and not {model}")
        })
        .collect()
}

/// One sequence on both sides.
struct Both<'a> {
    real: &'a Real,
    model: Model,
    seen: Seen,
}

impl Both<'_> {
    async fn act(&mut self, action: &Action) -> Result<(), String> {
        let before = self.model.clone();
        let expected = self.model.act(action);
        let said = self.real.act(&before, action).await;
        let seen = self.real.look(self.model.now).await;
        let mut wrong = differences((&self.model.shown(), &seen.shown));
        if said != expected {
            wrong.insert(0, format!("it says {said}, and not {expected}"));
        }
        wrong.extend(self.real.leaks().await);
        for (slot, task) in &self.model.tasks {
            wrong.extend(self.update(&before, *slot, task, &seen));
        }
        self.seen = seen;
        if wrong.is_empty() {
            return Ok(());
        }
        Err(format!("{action:?}: {}", wrong.join("; ")))
    }

    /// `lastUpdatedAt` rises with every change that a client can see, and with no other.
    fn update(&self, before: &Model, slot: usize, task: &Task, seen: &Seen) -> Option<String> {
        let old = before.tasks.get(&slot)?;
        let (was, is) = (self.seen.updated.get(&slot)?, seen.updated.get(&slot)?);
        let right = if old.changes == task.changes {
            was == is
        } else {
            was < is
        };
        (!right).then(|| format!("{slot} was last updated at {is} µs, before at {was} µs"))
    }
}

async fn agree(real: &Real, actions: &[Action]) -> Result<(), String> {
    real.forget().await;
    let mut both = Both {
        real,
        model: Model::default(),
        seen: real.look(0).await,
    };
    for action in actions {
        if both.model.possible(action) {
            both.act(action).await?;
        }
    }
    let mut mended = Vec::new();
    while let Some(action) = mend(&both.model, mended.len()).filter(|_| mended.len() < MENDED) {
        let acted = both.act(&action).await;
        acted.map_err(|wrong| format!("{wrong}, mending by {mended:?}"))?;
        mended.push(action);
    }
    Ok(())
}

fn both_agree(runner: TestRunner, real: impl Future<Output = Real>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let real = RefCell::new(runtime.block_on(real));
    run(runner, |actions| {
        runtime.block_on(agree(&real.borrow(), actions))
    });
}

#[test]
fn the_database_does_what_the_model_does() {
    both_agree(runner(1), Real::new());
}

#[test]
fn the_database_does_so_with_what_is_sealed_and_tells_nothing_of_it() {
    both_agree(share(1, SEALED), Real::sealed());
}

/// Chance seldom says the same thing twice. A value that is sealed anew would look like news.
#[test]
fn what_is_said_again_is_no_news_where_it_is_sealed() {
    let say = |message| Action::Progress(1, message);
    let again = [say("half"), say("half"), say("nearly"), say("half")];
    let ends = [Action::Complete(1), Action::Complete(1)];
    let actions = openings::after(openings::running(), &[&again[..], &ends].concat());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let agreed = runtime.block_on(async { agree(&Real::sealed().await, &actions).await });
    agreed.unwrap();
}

/// Does a sequence on the model alone, and what a healthy installation would do after it, until
/// every task has ended and is gone. `told` learns which actions got which answers.
fn alone(actions: &[Action], told: &mut BTreeSet<String>) -> Result<(), String> {
    let (mut model, mut laws) = (Model::default(), Laws::default());
    let mut act = |model: &mut Model, action: &Action| {
        let before = model.clone();
        let said = model.act(action);
        told.insert(format!("{} {}", word(&format!("{action:?}")), word(&said)));
        laws.check((&before, model), action, &said)
            .map_err(|broken| format!("{action:?}, answered {said}: {broken}"))
    };
    for action in actions {
        if model.possible(action) {
            act(&mut model, action)?;
        }
    }
    for done in 0..MENDED {
        let Some(action) = mend(&model, done) else {
            return Ok(());
        };
        act(&mut model, &action)?;
    }
    Err(format!("nothing would ever end {:?}", model.tasks))
}

fn word(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && !matches!(c, '-' | '_'));
    &text[..end.unwrap_or(text.len())]
}

#[test]
fn whatever_is_asked_the_laws_hold_and_every_task_ends() {
    let told = RefCell::new(BTreeSet::new());
    let mut missing = Vec::new();
    // The sequences get to everything that there is to answer; to some of it seldom.
    for _ in 0..PATIENCE {
        run(runner(ALONE), |actions| {
            alone(actions, &mut told.borrow_mut())
        });
        let answers = ANSWERS.iter().flat_map(|(action, answers)| {
            let answers = answers.split(' ');
            answers.map(move |answer| format!("{action} {answer}"))
        });
        missing = answers
            .filter(|answer| !told.borrow().contains(answer))
            .collect();
        if missing.is_empty() {
            break;
        }
    }
    assert!(missing.is_empty(), "never {missing:?}, but {told:?}");
}

/// Actions, with all answers that their rules tell apart.
const ANSWERS: &[(&str, &str)] = &[
    ("Create", "New Existing KeyReused"),
    ("CreateTwice", "Existing KeyReused"),
    ("HandOut", "Done Lost"),
    ("Claim", "attempt -"),
    ("Heartbeat", "beat Lost"),
    ("Begin", "Act InDoubt Stop"),
    ("Finish", "Done Lost"),
    ("AbandonStep", "Done Lost"),
    ("Park", "Parked Stop"),
    ("Answer", "Resumed Waiting Ignored Malformed Gone -"),
    (
        "Cancel",
        "Cancelled Requested Undoing AlreadyTerminal Gone -",
    ),
    ("StopOwn", "Done Lost"),
    ("ConfirmStopped", "Done Undoing Lost"),
    (
        "SettleStopped",
        "cancelled abandoned task_expired work_limit input_deadline version_gone worker_lost \
         attempts_exhausted step_in_doubt -",
    ),
    ("Complete", "Done Lost"),
    ("Fail", "Done Undoing Lost"),
    ("Retry", "Done Lost"),
    ("Release", "Done Lost"),
    ("NextUndo", "once-undo again-undo -"),
    ("BeginUndo", "Done Lost"),
    ("FinishUndo", "Done Lost"),
    ("RetryUndo", "Done Lost"),
    ("FailUndo", "Done Lost"),
    ("Undone", "Done Lost"),
    ("RaiseUnfetched", "0 1"),
    ("Get", "Found Gone -"),
];
