//! Sequences of actions: made up by looking at the model, so that most of them do something, and
//! made smaller by leaving actions out.

use proptest::prelude::RngExt;
use proptest::strategy::{NewTree, Strategy, ValueTree};
use proptest::test_runner::{TestRng, TestRunner};

use super::action::{Action, Ask, Reply, Who};
use super::openings::opening;
use super::state::{BACKOFF, Key, Kind, Model, Phase, Status, Task, Undo, WAITS};

/// Live tasks at once.
const TASKS: usize = 2;
/// Draws until an action is found that changes something.
const DRAWS: usize = 12;

/// Sequences of so many actions.
#[derive(Clone, Copy, Debug)]
pub struct Scripts(pub usize);

impl Strategy for Scripts {
    type Tree = Smaller;
    type Value = Vec<Action>;

    fn new_tree(&self, runner: &mut TestRunner) -> NewTree<Self> {
        let mut rng = runner.new_rng();
        let mut actions = opening(&mut rng);
        let mut model = Model::default();
        for action in &actions {
            model.act(action);
        }
        while actions.len() < self.0 {
            let action = next(&mut rng, &model);
            model.act(&action);
            actions.push(action);
        }
        Ok(Smaller::new(actions))
    }
}

/// Leaves out runs of actions, then shorter ones, for as long as the rest still fails.
#[derive(Debug)]
pub struct Smaller {
    actions: Vec<Action>,
    before: Option<Vec<Action>>,
    size: usize,
    at: usize,
    /// Some action was left out for good since this size began.
    progress: bool,
}

impl Smaller {
    fn new(actions: Vec<Action>) -> Self {
        Smaller {
            size: actions.len().div_ceil(2),
            actions,
            before: None,
            at: 0,
            progress: false,
        }
    }
}

impl ValueTree for Smaller {
    type Value = Vec<Action>;

    fn current(&self) -> Vec<Action> {
        self.actions.clone()
    }

    fn simplify(&mut self) -> bool {
        self.progress |= self.before.take().is_some();
        while self.size > 0 {
            if self.at < self.actions.len() {
                let end = (self.at + self.size).min(self.actions.len());
                self.before = Some(self.actions.clone());
                self.actions.drain(self.at..end);
                return true;
            }
            self.at = 0;
            // What could not be left out at first may be by now.
            let again = self.size == 1 && std::mem::take(&mut self.progress);
            self.size = if again { 1 } else { self.size / 2 };
        }
        false
    }

    fn complicate(&mut self) -> bool {
        let Some(before) = self.before.take() else {
            return false;
        };
        self.actions = before;
        self.at += self.size;
        true
    }
}

/// An action that is possible now: any, one that changes something, or one about a live task, by
/// its owner or another, refused or not.
pub fn next(rng: &mut TestRng, model: &Model) -> Action {
    let kind = rng.random_range(0..5);
    let mut any = None;
    for _ in 0..DRAWS {
        let action = draw(rng, model);
        if !model.possible(&action) {
            continue;
        }
        let wanted = match kind {
            0 => true,
            1 | 2 => about_a_live_one(model, &action),
            _ => changes(model, &action),
        };
        if wanted {
            return action;
        }
        any = Some(action);
    }
    any.unwrap_or(Action::Advance(60))
}

/// Time alone is no change: else it would run away.
fn changes(model: &Model, action: &Action) -> bool {
    let mut after = model.clone();
    after.act(action);
    after.now = model.now;
    after != *model
}

fn about_a_live_one(model: &Model, action: &Action) -> bool {
    let of_claim = |claim| model.claims[&claim].slot;
    let slot = action.claim().map(of_claim).or(action.slot());
    let live = |slot| model.live().any(|(live, _)| live == slot);
    slot.is_some_and(live)
}

/// Half of the time a live task, and of those one that is told to stop, past its time, or at its
/// last try.
fn slot(rng: &mut TestRng, model: &Model) -> usize {
    let odd = |task: &Task| task.stopping(model.now) || task.lapsed(model.now) || task.last_try();
    let live: Vec<usize> = model.live().map(|(slot, _)| slot).collect();
    let sharp: Vec<usize> = model
        .live()
        .filter(|(_, task)| odd(task))
        .map(|(slot, _)| slot)
        .collect();
    let any: Vec<usize> = model.slots.iter().copied().collect();
    let some = match rng.random_range(0..4) {
        0 => pick(rng, &sharp),
        1 => pick(rng, &live),
        _ => None,
    };
    some.or_else(|| pick(rng, &any)).unwrap_or(0)
}

/// Of two claims one is current, as far as there is one.
fn claim(rng: &mut TestRng, model: &Model, slot: usize) -> u32 {
    let current = rng.random_ratio(1, 2);
    let tokens = model.claims.keys().copied();
    let owning = |token: &u32| model.owned(*token).is_some_and(|task| !task.terminal());
    let of_slot = |token: &u32| model.claims[token].slot == slot;
    let here: Vec<u32> = tokens.clone().filter(of_slot).collect();
    let mine: Vec<u32> = here.iter().copied().filter(owning).collect();
    let some = if current {
        pick(rng, &mine)
    } else {
        pick(rng, &here)
    };
    let all: Vec<u32> = tokens.collect();
    some.or_else(|| pick(rng, &all)).unwrap_or(0)
}

fn pick<T: Copy>(rng: &mut TestRng, some: &[T]) -> Option<T> {
    (!some.is_empty()).then(|| some[rng.random_range(0..some.len())])
}

fn who(rng: &mut TestRng) -> Who {
    if rng.random_ratio(1, 6) {
        Who::Foreign
    } else {
        Who::Owner
    }
}

fn asks(rng: &mut TestRng) -> Vec<Ask> {
    let count = rng.random_range(1..=3);
    let ask = |_| Ask {
        has_default: rng.random(),
        wait: WAITS[rng.random_range(0..WAITS.len())],
    };
    (0..count).map(ask).collect()
}

fn replies(rng: &mut TestRng, model: &Model, slot: usize) -> Vec<(usize, Reply)> {
    // One more than there are: a key that nobody asked for.
    let asked = model.tasks.get(&slot).map_or(0, |task| task.inputs.len());
    let mut replies = Vec::new();
    for n in asked.saturating_sub(4)..=asked {
        if rng.random_ratio(2, 3) {
            let reply = match rng.random_range(0..12) {
                0 => Reply::Malformed,
                1..4 => Reply::No,
                _ => Reply::Yes,
            };
            replies.push((n, reply));
        }
    }
    replies
}

/// Any action, possible or not.
pub fn draw(rng: &mut TestRng, model: &Model) -> Action {
    let slot = slot(rng, model);
    let new = model.slots.last().map_or(0, |last| last + 1);
    let mine = claim(rng, model, slot);
    let backoff = if rng.random() { BACKOFF } else { 0 };
    let kind = [Kind::Plain, Kind::Plain, Kind::Short, Kind::Fragile];
    let kind = kind[rng.random_range(0..kind.len())];
    let key = Key::ALL[rng.random_range(0..Key::ALL.len())];
    let arguments = u8::from(rng.random_ratio(1, 4));
    let creating = |action| {
        if model.live().count() < TASKS {
            action
        } else {
            Action::Unhinted
        }
    };
    match rng.random_range(0..210) {
        0..8 => creating(Action::Create {
            slot: new,
            key: rng
                .random_ratio(1, 3)
                .then(|| u8::from(rng.random::<bool>())),
            arguments,
            handed_out: rng.random(),
            kind,
        }),
        8..10 => creating(Action::CreateTwice {
            slot: new,
            key: u8::from(rng.random::<bool>()),
            arguments,
            kind,
        }),
        10..13 => Action::HandOut(slot),
        13..16 => Action::Hold(slot),
        16..18 => Action::Abandon(slot),
        18..32 => Action::Claim {
            slot,
            token: model.claims.keys().last().map_or(1, |last| last + 1),
        },
        32..36 => Action::Claim { slot, token: mine },
        36..40 => Action::Heartbeat(mine),
        40..56 => Action::Begin(mine, key),
        56..70 => Action::Finish(mine),
        70..74 => Action::AbandonStep(mine),
        74..77 => Action::Progress(mine, if rng.random() { "half" } else { "nearly" }),
        77..85 => Action::Park(mine, asks(rng)),
        85..87 => Action::RecordAnswer(mine),
        87..96 => {
            let replies = replies(rng, model, slot);
            Action::Answer(slot, who(rng), replies)
        }
        96..101 => Action::Cancel(slot, who(rng)),
        101..103 => Action::StopOwn(mine),
        103..109 => Action::ConfirmStopped(mine),
        109..116 => Action::SettleStopped(slot),
        116..118 => Action::Stoppable,
        118..121 => Action::Complete(mine),
        121..125 => Action::Fail(mine),
        125..132 => Action::Retry(mine, backoff),
        132..136 => Action::Release(mine),
        136..139 => Action::Expire,
        139..141 => Action::EndHolds,
        141..144 => Action::FailUnanswered,
        144..148 => Action::VersionGone,
        148..149 => Action::Unhinted,
        149..151 => Action::Purge,
        151..152 => Action::PurgeTombstones,
        152..153 => Action::RaiseUnfetched,
        153..155 => Action::MarkFetched(slot),
        155..156 => Action::DeliveredInline(slot),
        156..159 => Action::Get(slot, who(rng)),
        159..168 => Action::NextUndo(mine),
        168..176 => Action::BeginUndo(mine),
        176..183 => Action::FinishUndo(mine),
        183..187 => Action::RetryUndo(mine, backoff),
        187..190 => Action::FailUndo(mine),
        190..196 => Action::Undone(mine),
        _ => Action::Advance(60 * [1, 1, 2, 5, 30][rng.random_range(0..5)]),
    }
}

/// What a healthy installation would do next, when clients have gone and all that ran was lost:
/// sweeps, and a worker that ends whatever it gets. `None`: nothing is left.
pub fn mend(model: &Model, done: usize) -> Option<Action> {
    let token = model.claims.keys().last().map_or(1, |last| last + 1);
    // Whoever is lost is lost; and everything is asked for once, whether it may be had or not.
    let probe = |(slot, _)| Action::Claim { slot, token };
    let first = match done {
        0 => Some(Action::Advance(2 * 60)),
        1..=TASKS => Some(model.live().nth(done - 1).map_or(Action::Unhinted, probe)),
        _ => [Action::EndHolds, Action::FailUnanswered]
            .get(done - TASKS - 1)
            .cloned(),
    };
    if first.is_some() {
        return first;
    }
    for (slot, task) in model.live() {
        let mut after = model.clone();
        after.act(&Action::SettleStopped(slot));
        if after != *model {
            return Some(Action::SettleStopped(slot));
        }
        after.act(&Action::Claim { slot, token });
        if after != *model {
            return Some(Action::Claim { slot, token });
        }
        let owning =
            |(token, _): &(&u32, _)| model.owned(**token).is_some_and(|t| std::ptr::eq(t, task));
        let Some((mine, claim)) = model.claims.iter().find(owning) else {
            continue;
        };
        let lost = task.lease_until.is_none_or(|until| until < model.now);
        match task.phase {
            Some(Phase::Running) if lost => {}
            Some(Phase::Running) if task.stop.is_some() => {
                return Some(Action::ConfirmStopped(*mine));
            }
            Some(Phase::Running) if task.open_step.is_some() => return Some(Action::Fail(*mine)),
            Some(Phase::Running) => return Some(Action::Complete(*mine)),
            Some(Phase::Undoing) if lost => {}
            Some(Phase::Undoing) => match (task.next_undo(), claim.undo) {
                (None, _) => return Some(Action::Undone(*mine)),
                (Some((next, step)), Some((key, tries))) if key == next => {
                    return Some(match step.undo {
                        Some(Undo::Started) if step.undo_tries > tries => Action::FinishUndo(*mine),
                        _ if step.undo_tries > tries => Action::NextUndo(*mine),
                        _ => Action::BeginUndo(*mine),
                    });
                }
                (Some(_), _) => return Some(Action::NextUndo(*mine)),
            },
            Some(Phase::Queued | Phase::Parked) | None => {}
        }
    }
    if model.live().next().is_some() {
        let mut after = model.clone();
        after.act(&Action::Expire);
        let expires = after != *model;
        return Some(if expires {
            Action::Expire
        } else {
            Action::Advance(2 * 60)
        });
    }
    // And in the end nothing is left of them.
    let task = model.tasks.values().next()?;
    Some(if !task.expired(model.now) {
        Action::Advance(30 * 60)
    } else if task.status == Status::Failed && !task.fetched && !task.judged {
        Action::RaiseUnfetched
    } else {
        Action::Purge
    })
}
