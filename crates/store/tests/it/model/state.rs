//! What a task is, without Postgres: plain values, and a clock in minutes that only the test
//! moves.

use std::collections::{BTreeMap, BTreeSet};

pub use protocol::TaskStatus as Status;
use store::StopReason;

/// Minutes since the sequence began. The test's clock moves by whole hours, and no deadline
/// falls on a whole hour, so that the seconds a real run takes change nothing.
pub type Minutes = i64;

pub const LEASE: Minutes = 90;
pub const HOLD: Minutes = 90;
/// How long a failure for a TTL that ran out is shown.
pub const SHOWN: Minutes = 90;
/// How long a tombstone is kept.
pub const TOMBSTONE: Minutes = 150;
/// After this an unread failure is told of.
pub const UNREAD: Minutes = 100;
/// For how long nobody may have served a version before it counts as gone.
pub const GONE: Minutes = 90;
pub const BACKOFF: Minutes = 20;
/// What every try works, as it says when it ends.
pub const WORKED: Minutes = 7;
/// A question waits one or two hours, and a minute.
pub const WAITS: [Minutes; 2] = [61, 121];

/// What differs between tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Plain,
    /// Expires soon, and may not be extended for long.
    Short,
    /// Its first loss is its end.
    Fragile,
}

impl Kind {
    pub fn tries_max(self) -> i32 {
        match self {
            Kind::Plain | Kind::Short => 2,
            Kind::Fragile => 3,
        }
    }

    pub fn ttl(self) -> Minutes {
        match self {
            Kind::Short => 3 * 60 + 20,
            Kind::Plain | Kind::Fragile => 9 * 60 + 20,
        }
    }

    pub fn ttl_max(self) -> Minutes {
        match self {
            Kind::Short => 6 * 60 + 50,
            Kind::Plain | Kind::Fragile => 60 * 60 + 50,
        }
    }
}

/// A task with a key is kept for a day at least.
pub const KEYED_TTL_MIN: Minutes = 24 * 60;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Queued,
    Running,
    Parked,
    Undoing,
}

/// A step of the test's tool; what it is follows from its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    Once,
    Again,
    OnceUndo,
    AgainUndo,
}

impl Key {
    pub const ALL: [Key; 4] = [Key::Once, Key::Again, Key::OnceUndo, Key::AgainUndo];

    pub fn name(self) -> &'static str {
        match self {
            Key::Once => "once",
            Key::Again => "again",
            Key::OnceUndo => "once-undo",
            Key::AgainUndo => "again-undo",
        }
    }

    pub fn idempotent(self) -> bool {
        matches!(self, Key::Again | Key::AgainUndo)
    }

    pub fn undoable(self) -> bool {
        matches!(self, Key::OnceUndo | Key::AgainUndo)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undo {
    Pending,
    Started,
    Finished,
    Failed,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    pub seq: i32,
    /// Which beginning of the step this is; only that one can finish it.
    pub act: usize,
    pub finished: bool,
    pub undo: Option<Undo>,
    pub undo_tries: i32,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    pub seq: i32,
    pub has_default: bool,
    pub deadline: Minutes,
    /// What was answered, and by whom.
    pub answer: Option<(String, &'static str)>,
}

/// Why a task failed.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    pub reason: String,
    pub step: Option<Key>,
    /// Steps whose undo was given up, in the order in which undoing came to them.
    pub undo_failed: Vec<Key>,
}

impl Failure {
    pub fn new(reason: &str) -> Failure {
        Failure {
            reason: reason.to_owned(),
            step: None,
            undo_failed: Vec::new(),
        }
    }
}

/// One task, as its row and what belongs to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    pub kind: Kind,
    pub key: Option<u8>,
    pub arguments: u8,
    pub status: Status,
    pub phase: Option<Phase>,
    pub created_at: Minutes,
    pub expires_at: Minutes,
    pub run_at: Minutes,
    pub attempt: i32,
    pub tries: i32,
    /// Whose the attempt is.
    pub token: Option<u32>,
    pub claimed_at: Minutes,
    pub lease_until: Option<Minutes>,
    pub work: Minutes,
    pub journaled: bool,
    pub open_step: Option<Key>,
    pub has_undo: bool,
    /// How it ends when everything is undone.
    pub pending: Option<Status>,
    pub stop: Option<StopReason>,
    pub rounds: i32,
    pub deadline: Option<Minutes>,
    pub held_until: Minutes,
    pub handed_out: bool,
    pub fetched: bool,
    pub finished_at: Minutes,
    /// Whether to tell of the failure was judged.
    pub judged: bool,
    pub result: Option<String>,
    pub failure: Option<Failure>,
    /// What the work last said of itself.
    pub said: String,
    pub steps: BTreeMap<Key, Step>,
    pub inputs: BTreeMap<String, Input>,
    /// Changes that a client can see.
    pub changes: u32,
}

impl Task {
    pub fn expired(&self, now: Minutes) -> bool {
        self.expires_at <= now
    }

    /// Told to stop, or past its TTL.
    pub fn stopping(&self, now: Minutes) -> bool {
        self.stop.is_some() || self.expired(now)
    }

    pub fn lapsed(&self, now: Minutes) -> bool {
        self.lease_until.is_some_and(|until| until < now)
    }

    pub fn terminal(&self) -> bool {
        self.phase.is_none()
    }

    pub fn last_try(&self) -> bool {
        self.tries + 1 >= self.kind.tries_max()
    }

    /// Open questions, in the order in which they were asked.
    pub fn outstanding(&self) -> Vec<String> {
        let mut open: Vec<_> = self
            .inputs
            .iter()
            .filter(|(_, input)| input.answer.is_none())
            .map(|(key, input)| (input.seq, key.clone()))
            .collect();
        open.sort();
        open.into_iter().map(|(_, key)| key).collect()
    }

    /// The next place in the journal.
    pub fn next_seq(&self) -> i32 {
        let steps = self.steps.values().map(|step| step.seq);
        let inputs = self.inputs.values().map(|input| input.seq);
        steps.chain(inputs).max().map_or(0, |last| last + 1)
    }

    /// The last finished step that is still to be undone.
    pub fn next_undo(&self) -> Option<(Key, &Step)> {
        self.steps
            .iter()
            .filter(|(_, step)| matches!(step.undo, Some(Undo::Pending | Undo::Started)))
            .max_by_key(|(_, step)| step.seq)
            .map(|(key, step)| (*key, step))
    }
}

/// What is left of a purged task.
#[derive(Clone, Debug, PartialEq)]
pub struct Tombstone {
    pub status: Status,
    pub purge_at: Minutes,
}

/// One answer to "is it mine?", kept for as long as the test runs: most of them are long out of
/// date.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    pub slot: usize,
    pub attempt: i32,
    pub token: u32,
    /// Permits to act, oldest first.
    pub permits: Vec<(Key, usize)>,
    /// What it was last told to undo, and the tries before.
    pub undo: Option<(Key, i32)>,
}

/// Everything there is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Model {
    pub now: Minutes,
    pub tasks: BTreeMap<usize, Task>,
    /// Slots that were ever taken.
    pub slots: BTreeSet<usize>,
    /// Which task a key names.
    pub keys: BTreeMap<u8, usize>,
    pub tombstones: BTreeMap<usize, Tombstone>,
    /// By the token that the worker chose.
    pub claims: BTreeMap<u32, Claim>,
    pub acts: usize,
}

impl Model {
    pub fn live(&self) -> impl Iterator<Item = (usize, &Task)> {
        let all = self.tasks.iter().map(|(slot, task)| (*slot, task));
        all.filter(|(_, task)| !task.terminal())
    }

    /// The task, if this claim is the one its row names.
    pub fn owned(&self, claim: u32) -> Option<&Task> {
        let claim = &self.claims[&claim];
        self.tasks
            .get(&claim.slot)
            .filter(|task| task.attempt == claim.attempt && task.token == Some(claim.token))
    }

    /// All that can be seen, as `place → text`, to be compared with the database.
    pub fn shown(&self) -> BTreeMap<String, String> {
        let mut shown = BTreeMap::new();
        for (slot, task) in &self.tasks {
            for (name, text) in fields(task) {
                shown.insert(format!("{slot}.{name}"), text);
            }
        }
        for (key, slot) in &self.keys {
            shown.insert(format!("key {key}"), slot.to_string());
        }
        for (slot, tombstone) in &self.tombstones {
            let text = format!("{} until {}", tombstone.status, tombstone.purge_at);
            shown.insert(format!("tombstone {slot}"), text);
        }
        shown
    }
}

pub fn or_none<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

pub fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Queued => "queued",
        Phase::Running => "running",
        Phase::Parked => "parked",
        Phase::Undoing => "undoing",
    }
}

fn undo_name(undo: Undo) -> &'static str {
    match undo {
        Undo::Pending => "pending",
        Undo::Started => "started",
        Undo::Finished => "finished",
        Undo::Failed => "failed",
    }
}

fn failure_text(failure: &Failure) -> String {
    let step = or_none(failure.step.map(Key::name));
    let undo_failed: Vec<_> = failure.undo_failed.iter().map(|key| key.name()).collect();
    format!("{} {step} [{}]", failure.reason, undo_failed.join(" "))
}

fn fields(task: &Task) -> Vec<(&'static str, String)> {
    let steps = task.steps.iter().map(|(key, step)| {
        let state = if step.finished { "finished" } else { "started" };
        let undo = or_none(step.undo.map(undo_name));
        let seq = step.seq;
        format!("{}#{seq} {state} {undo} {}", key.name(), step.undo_tries)
    });
    let mut steps: Vec<String> = steps.collect();
    steps.sort();
    let inputs: Vec<String> = task
        .inputs
        .iter()
        .map(|(key, input)| match &input.answer {
            None => format!("{key}#{} by {}", input.seq, input.deadline),
            Some((answer, who)) => format!("{key}#{} {answer} of {who}", input.seq),
        })
        .collect();
    let asked = (task.phase == Some(Phase::Parked)).then(|| task.outstanding().join(" "));
    let mut fields = vec![
        ("status", task.status.to_string()),
        ("phase", or_none(task.phase.map(phase_name))),
        ("stop", or_none(task.stop.map(StopReason::as_str))),
        ("expires", task.expires_at.to_string()),
        ("attempt", task.attempt.to_string()),
        ("token", or_none(task.token)),
        ("tries", task.tries.to_string()),
        ("work", task.work.to_string()),
        ("journaled", task.journaled.to_string()),
        ("open", or_none(task.open_step.map(Key::name))),
        ("undo", task.has_undo.to_string()),
        ("pending", or_none(task.pending)),
        ("rounds", task.rounds.to_string()),
        ("asked", or_none(asked)),
        ("handed", task.handed_out.to_string()),
        ("fetched", task.fetched.to_string()),
        ("judged", task.judged.to_string()),
        ("result", or_none(task.result.clone())),
        ("failure", or_none(task.failure.as_ref().map(failure_text))),
        ("steps", steps.join(", ")),
        ("inputs", inputs.join(", ")),
    ];
    // What no longer means anything once the task is over.
    if !task.terminal() {
        fields.push(("lease", or_none(task.lease_until)));
        fields.push(("deadline", or_none(task.deadline)));
        fields.push(("run_at", task.run_at.to_string()));
        fields.push(("held", task.held_until.to_string()));
    }
    if !task.terminal() && task.phase != Some(Phase::Undoing) {
        fields.push(("message", task.said.clone()));
    }
    fields
}
