//! Two actions at once on one task: what comes of them is what one after the other would have
//! come to, in one order or the other.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::RngExt;
use proptest::test_runner::{TestRng, TestRunner};

use super::action::{Action, Reply, Who};
use super::openings::{
    CANCEL, CLAIM, CREATE, TAKE_OVER, after, ask, parked, running, undoable, undoing, undone,
    with_step,
};
use super::real::Real;
use super::script::{draw, next};
use super::state::{Key, Kind, Model};
use super::{SEALED, differences, share};

/// How often each pair of the list meets: in both orders at a held row, and without one.
const MEETINGS: usize = 2;
/// Actions before a meeting that chance makes up, at most.
const BEFORE: usize = 30;
/// Draws for a pair whose order matters.
const DRAWS: usize = 40;

/// Until a meeting counts as stuck.
const PATIENCE: Duration = Duration::from_secs(30);

/// How the two get to the row.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// Both wait for the row, in this order.
    InOrder,
    /// As they come.
    Free,
}

/// A sweep passes by a row that somebody has.
fn passes_by(action: &Action) -> bool {
    matches!(
        action,
        Action::Expire
            | Action::EndHolds
            | Action::FailUnanswered
            | Action::VersionGone
            | Action::RaiseUnfetched
            | Action::Purge
    )
}

/// It may find nothing though there is something: a sweep passes by; and a claim judges what is due
/// as of its start, which was before whatever it waited for.
fn may_miss(action: &Action) -> bool {
    passes_by(action) || matches!(action, Action::Claim { .. })
}

/// What one order comes to.
struct Outcome {
    /// `None`: anything.
    said: [Option<String>; 2],
    model: Model,
}

/// The first, then the second.
fn serial(model: &Model, pair: [&Action; 2]) -> Outcome {
    let mut after = model.clone();
    let said = pair.map(|action| Some(after.act(action)));
    Outcome { said, model: after }
}

/// The action; and a sweep or claim that misses its task.
fn passed_by(model: &Model, sweep: &Action, action: &Action) -> (String, Model) {
    let mut after = model.clone();
    let slot = slot_of(model, action);
    let held = slot.and_then(|slot| after.tasks.remove_entry(&slot));
    after.act(sweep);
    after.tasks.extend(held);
    (after.act(action), after)
}

fn outcomes(model: &Model, [one, two]: [&Action; 2]) -> Vec<Outcome> {
    let mut other = serial(model, [two, one]);
    other.said.reverse();
    let mut outcomes = vec![serial(model, [one, two]), other];
    if may_miss(one) {
        let (said, model) = passed_by(model, one, two);
        let said = [None, Some(said)];
        outcomes.push(Outcome { said, model });
    }
    if may_miss(two) {
        let (said, model) = passed_by(model, two, one);
        let said = [Some(said), None];
        outcomes.push(Outcome { said, model });
    }
    outcomes
}

async fn meet(real: &Real, model: &Model, pair: [&Action; 2], way: Way) -> [String; 2] {
    let [one, two] = pair;
    real.calm_down().await;
    match (way, slot_of(model, one)) {
        (Way::InOrder, Some(slot)) => {
            real.hold_row(slot).await;
            let until = async |count: usize| {
                while real.waiting().await < count {
                    tokio::task::yield_now().await;
                }
            };
            let second = async {
                until(1).await;
                let both = async {
                    until(2).await;
                    real.let_go().await;
                };
                tokio::join!(real.act_beside(model, two), both).0
            };
            tokio::join!(real.act(model, one), second).into()
        }
        _ => tokio::join!(real.act(model, one), real.act_beside(model, two)).into(),
    }
}

/// Says what met, should the store itself panic or refuse.
struct Told(String);

impl Drop for Told {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.0);
        }
    }
}

async fn race(
    real: &Real,
    before: &[Action],
    pair: [&Action; 2],
    way: Way,
) -> Result<Model, String> {
    let _told = Told(format!("{pair:?} at once ({way:?}) after\n{before:#?}"));
    real.forget().await;
    let mut model = Model::default();
    for action in before {
        real.act(&model, action).await;
        model.act(action);
    }
    let meeting = Box::pin(meet(real, &model, pair, way));
    let said = tokio::time::timeout(PATIENCE, meeting).await;
    let said = said.map_err(|_| format!("{pair:?} ({way:?}) never end after\n{before:#?}"))?;
    let mut wrong = Vec::new();
    for outcome in outcomes(&model, pair) {
        let seen = real.look(outcome.model.now).await;
        let mut here = differences((&outcome.model.shown(), &seen.shown));
        for n in [0, 1] {
            if let Some(expected) = &outcome.said[n]
                && *expected != said[n]
            {
                here.push(format!(
                    "{:?} says {}, and not {expected}",
                    pair[n], said[n]
                ));
            }
        }
        here.extend(real.leaks().await);
        if here.is_empty() {
            return Ok(outcome.model);
        }
        wrong.push(here.join("; "));
    }
    Err(format!(
        "{pair:?} at once ({way:?}) after\n{before:#?}\ncome to no order of them:\n{}",
        wrong.join("\nor\n")
    ))
}

fn slot_of(model: &Model, action: &Action) -> Option<usize> {
    let of_claim = || Some(model.claims.get(&action.claim()?)?.slot);
    action.slot().or_else(of_claim)
}

fn answer(n: usize, reply: Reply) -> Action {
    Action::Answer(0, Who::Owner, vec![(n, reply)])
}

/// Pairs that must not miss each other, and what was before.
fn pairs() -> Vec<(Vec<Action>, [Action; 2])> {
    let (undoable, undoing, undone) = (undoable(), undoing(), undone());
    let lapsed = after(with_step(Key::Again), &[Action::Advance(120)]);
    let both = vec![(0, Reply::Yes), (1, Reply::Yes)];
    let both = Action::Answer(0, Who::Owner, both);
    vec![
        (running(), [CANCEL, Action::Begin(1, Key::Once)]),
        (with_step(Key::Once), [CANCEL, Action::Finish(1)]),
        (
            after(with_step(Key::Once), &[CANCEL]),
            [Action::ConfirmStopped(1), Action::Finish(1)],
        ),
        (
            after(with_step(Key::Once), &[CANCEL]),
            [Action::ConfirmStopped(1), Action::AbandonStep(1)],
        ),
        (
            after(with_step(Key::OnceUndo), &[CANCEL, Action::Advance(120)]),
            [Action::SettleStopped(0), Action::Finish(1)],
        ),
        (running(), [CANCEL, Action::Complete(1)]),
        (running(), [CANCEL, Action::Park(1, vec![ask(false)])]),
        (running(), [CANCEL, Action::Retry(1, 0)]),
        (running(), [CANCEL, Action::Release(1)]),
        (undoable.clone(), [CANCEL, Action::Release(1)]),
        (undoable, [CANCEL, Action::Fail(1)]),
        (running(), [CANCEL, Action::StopOwn(1)]),
        (parked(false), [CANCEL, both.clone()]),
        (running(), [CANCEL, CANCEL]),
        (vec![CREATE], [CLAIM, TAKE_OVER]),
        (vec![CREATE], [CLAIM, CANCEL]),
        (lapsed.clone(), [TAKE_OVER, Action::Heartbeat(1)]),
        (lapsed.clone(), [TAKE_OVER, Action::Finish(1)]),
        (
            after(running(), &[Action::Advance(120)]),
            [TAKE_OVER, Action::Complete(1)],
        ),
        (lapsed, [TAKE_OVER, Action::Begin(1, Key::Again)]),
        (parked(false), [answer(0, Reply::Yes), answer(1, Reply::No)]),
        (parked(false), [answer(0, Reply::Yes), answer(0, Reply::No)]),
        (parked(false), [both.clone(), answer(1, Reply::No)]),
        (
            after(parked(true), &[Action::Advance(120)]),
            [both.clone(), Action::FailUnanswered],
        ),
        (
            after(parked(false), &[Action::Advance(60 * 40)]),
            [both, Action::Expire],
        ),
        (
            after(running(), &[Action::Advance(60 * 40)]),
            [Action::Complete(1), Action::Expire],
        ),
        (
            undoing.clone(),
            [Action::BeginUndo(2), Action::RetryUndo(2, 0)],
        ),
        (undoing.clone(), [Action::FailUndo(2), Action::Undone(2)]),
        (
            after(undoing, &[Action::Advance(120)]),
            [Action::BeginUndo(2), Action::Claim { slot: 0, token: 3 }],
        ),
        (undone.clone(), [Action::Undone(2), CANCEL]),
        (undone.clone(), [Action::Undone(2), Action::Release(2)]),
        (
            after(undone, &[Action::Advance(120)]),
            [Action::Undone(2), Action::Claim { slot: 0, token: 3 }],
        ),
        (
            vec![Action::Create {
                slot: 0,
                key: None,
                arguments: 0,
                handed_out: false,
                kind: Kind::Plain,
            }],
            [Action::HandOut(0), Action::Abandon(0)],
        ),
    ]
}

fn check(raced: Result<Model, String>) {
    if let Err(wrong) = raced {
        panic!("{wrong}");
    }
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(work)
}

#[test]
fn two_at_once_come_to_what_one_order_of_them_comes_to() {
    every_pair_meets(MEETINGS, Real::new());
}

#[test]
fn two_at_once_come_to_one_order_of_what_is_sealed() {
    every_pair_meets(1, Real::sealed());
}

fn every_pair_meets(times: usize, real: impl Future<Output = Real>) {
    block_on(async {
        let real = real.await;
        for (before, [one, two]) in pairs() {
            for _ in 0..times {
                let mut meetings = vec![([&one, &two], Way::Free), ([&two, &one], Way::Free)];
                if !passes_by(&one) && !passes_by(&two) {
                    meetings.push(([&one, &two], Way::InOrder));
                    meetings.push(([&two, &one], Way::InOrder));
                }
                for (pair, way) in meetings {
                    check(race(&real, &before, pair, way).await);
                }
            }
        }
    });
}

/// Where in the journal it would write.
fn place(model: &Model, action: &Action) -> (i32, usize) {
    match action {
        Action::Begin(claim, key) => (model.seq(*claim, *key), 0),
        Action::Park(claim, _) | Action::RecordAnswer(claim) => {
            (model.next_seq(*claim), model.asked(*claim))
        }
        _ => (0, 0),
    }
}

fn name(action: &Action) -> String {
    super::word(&format!("{action:?}")).to_owned()
}

/// A pair of actions that both do something to one task, and whose order matters; of those drawn,
/// the one that met least.
fn pair(
    rng: &mut TestRng,
    model: &Model,
    met: &BTreeMap<[String; 2], usize>,
) -> Option<[Action; 2]> {
    let mut found = Vec::new();
    for _ in 0..DRAWS {
        let [one, two] = [draw(rng, model), draw(rng, model)];
        let apart = |action: &Action| {
            let makes = matches!(action, Action::Create { .. } | Action::CreateTwice { .. });
            makes || matches!(action, Action::Advance(_) | Action::NextUndo(_))
        };
        if [&one, &two]
            .iter()
            .any(|one| apart(one) || !model.possible(one))
        {
            continue;
        }
        let [first, second] = [(&one, &two), (&two, &one)].map(|(first, second)| {
            let mut after = model.clone();
            let said = after.act(first);
            let changed = after.tasks != model.tasks;
            let possible = after.possible(second);
            // One attempt journals one thing after the other.
            let same = place(model, second) == place(&after, second);
            (changed && possible && same).then(|| (said, after.act(second), after))
        });
        let (Some(first), Some(second)) = (first, second) else {
            continue;
        };
        let matters = first.2 != second.2 || first.0 != second.1 || first.1 != second.0;
        let named = |action| slot_of(model, action);
        let one_task = match (named(&one), named(&two)) {
            (Some(one), Some(two)) => one == two,
            (Some(_), None) => passes_by(&two),
            (None, Some(_)) => passes_by(&one),
            (None, None) => false,
        };
        if matters && one_task {
            let names = [name(&one), name(&two)];
            found.push((met.get(&names).copied().unwrap_or(0), [one, two]));
        }
    }
    let least = found.into_iter().min_by_key(|(times, _)| *times)?;
    Some(least.1)
}

/// A pair, and what was before; chance may lead to where there is none.
fn meeting(
    rng: &mut TestRng,
    met: &BTreeMap<[String; 2], usize>,
) -> Option<(Vec<Action>, [Action; 2])> {
    let (mut model, mut before) = (Model::default(), Vec::new());
    for _ in 0..rng.random_range(2..BEFORE) {
        let action = next(rng, &model);
        model.act(&action);
        before.push(action);
    }
    pair(rng, &model, met).map(|pair| (before, pair))
}

#[test]
fn whoever_meets_comes_to_one_order() {
    some_meet(share(1, 1), Real::new());
}

#[test]
fn whoever_meets_comes_to_one_order_of_what_is_sealed() {
    some_meet(share(1, SEALED), Real::sealed());
}

fn some_meet(mut runner: TestRunner, real: impl Future<Output = Real>) {
    let rounds = runner.config().cases;
    let rng = runner.rng();
    let mut met = BTreeMap::new();
    block_on(async {
        let real = real.await;
        for _ in 0..rounds {
            let (before, found) = loop {
                if let Some(met) = meeting(rng, &met) {
                    break met;
                }
            };
            let [one, two] = &found;
            *met.entry([name(one), name(two)]).or_default() += 1;
            let held = !passes_by(one) && !passes_by(two) && rng.random_ratio(1, 2);
            let way = if held { Way::InOrder } else { Way::Free };
            check(race(&real, &before, [one, two], way).await);
        }
    });
    // Enough of them to mean something.
    assert!(met.len() > rounds as usize / 8, "{met:?}");
}
