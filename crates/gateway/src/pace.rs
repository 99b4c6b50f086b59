//! Paced polling: a poll of a live task that comes before its `pollIntervalMs` is over is held,
//! not refused, because no published client survives a failed poll. Over-eager clients become
//! long-pollers: they learn of changes sooner, and cost less.
//!
//! What is remembered here no other replica misses: it only saves work.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use protocol::TaskId;
use queue::Event;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use store::{Lookup, Task};
use tokio::time::Instant;

use crate::Shared;
use crate::caller::Caller;
use crate::error::Error;
use crate::metrics::{Level, Metrics};

/// What is remembered, in tasks, before what is over is thrown out.
const REMEMBERED_MIN: usize = 1024;
/// Client names that get a label of their own; what clients send must not grow without bound.
const CLIENTS_MAX: usize = 20;
/// Of a client's name.
const NAME_BYTES_MAX: usize = 40;
/// Callers remembered for one task: a name of a client costs nothing, so there may be any number.
const CALLERS_MAX: usize = 16;

/// What happens to polls that come too early.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Pacing {
    /// They are answered, and nobody looks.
    Off,
    /// They are answered, and counted.
    Observe,
    /// They are held until the task changes or the interval is over.
    #[default]
    On,
}

/// A caller of this process: principal and client, as one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallerKey {
    principal: u64,
    client: u64,
}

/// When which state of a task was shown to a caller, and for how long that is enough.
#[derive(Clone, Copy, Debug)]
struct Shown {
    client: CallerKey,
    state: State,
    until: Instant,
}

/// What a poll is held against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    updated_at: SystemTime,
    /// A cancel is no change that a client sees yet; but who sent it, to whatever replica, may
    /// look at once.
    stopped: bool,
}

impl State {
    fn of(task: &Task) -> Self {
        Self {
            updated_at: task.last_updated_at,
            stopped: task.stop.is_some(),
        }
    }
}

/// The polls of this process.
pub(crate) struct Pace {
    shown: Mutex<Memory>,
    held: Arc<Mutex<Held>>,
    clients: Mutex<Vec<String>>,
    hasher: RandomState,
    metrics: Metrics,
}

#[derive(Default)]
struct Memory {
    tasks: HashMap<TaskId, Vec<Shown>>,
    /// Throw out what is over when there are so many.
    next_sweep: usize,
}

/// The held polls: of each principal, and all.
#[derive(Default)]
struct Held {
    of_principal: HashMap<u64, usize>,
    all: usize,
}

/// What becomes of an early poll.
enum Early {
    Held(Place),
    /// This process holds as many as it may, but not of this caller, whose fault it is not.
    Answered,
    Refused,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pace {
    pub(crate) fn new(metrics: Metrics) -> Self {
        Self {
            shown: Mutex::default(),
            held: Arc::default(),
            clients: Mutex::default(),
            hasher: RandomState::new(),
            metrics,
        }
    }

    fn key(&self, caller: &Caller) -> CallerKey {
        CallerKey {
            principal: self.hasher.hash_one(&caller.principal),
            client: self.hasher.hash_one(&caller.client),
        }
    }

    /// Until when the caller knows all there is, if it has seen the task too lately.
    fn early(&self, id: TaskId, caller: CallerKey) -> Option<Shown> {
        let shown = lock(&self.shown);
        let seen = shown.tasks.get(&id)?.iter();
        let mine = seen.into_iter().find(|shown| shown.client == caller)?;
        (mine.until > Instant::now()).then_some(*mine)
    }

    /// Remembers that a live task was shown.
    fn remember(&self, id: TaskId, shown: Shown) {
        let mut memory = lock(&self.shown);
        let now = Instant::now();
        if memory.tasks.len() >= memory.next_sweep.max(REMEMBERED_MIN) {
            memory.tasks.retain(|_, seen| {
                seen.retain(|shown| shown.until > now);
                !seen.is_empty()
            });
            memory.next_sweep = 2 * memory.tasks.len();
        }
        let seen = memory.tasks.entry(id).or_default();
        seen.retain(|other| other.client != shown.client && other.until > now);
        if seen.len() == CALLERS_MAX {
            // The oldest; its next poll is answered.
            seen.remove(0);
        }
        seen.push(shown);
    }

    /// The owner changes the task: its next read is answered at once.
    pub(crate) fn forget(&self, id: TaskId) {
        lock(&self.shown).tasks.remove(&id);
    }

    /// Takes a place among the held polls, if there is one.
    fn hold(&self, caller: CallerKey, (all, each): (usize, usize)) -> Early {
        let mut held = lock(&self.held);
        let own = held.of_principal.get(&caller.principal);
        let own = own.copied().unwrap_or_default();
        if own >= each {
            return Early::Refused;
        }
        if held.all >= all {
            return Early::Answered;
        }
        held.of_principal.insert(caller.principal, own + 1);
        held.all += 1;
        Early::Held(Place {
            held: Arc::clone(&self.held),
            principal: caller.principal,
            _level: Level::raise(&self.metrics.held_polls, 1),
        })
    }

    /// The label of a client: one of the first names that were seen, or `other`.
    fn label(&self, name: &str) -> String {
        let short =
            name.len() <= NAME_BYTES_MAX && name.bytes().all(|byte| byte.is_ascii_graphic());
        if !short || name.is_empty() {
            return "other".to_owned();
        }
        let mut clients = lock(&self.clients);
        if !clients.iter().any(|known| known == name) {
            if clients.len() == CLIENTS_MAX {
                return "other".to_owned();
            }
            clients.push(name.to_owned());
        }
        name.to_owned()
    }

    fn count(&self, caller: &Caller, pace: &'static str) {
        let label = self.label(caller.client.split('/').next().unwrap_or_default());
        self.metrics
            .polls
            .with_label_values(&[label.as_str(), pace])
            .inc();
    }
}

/// A place among the held polls.
struct Place {
    held: Arc<Mutex<Held>>,
    principal: u64,
    _level: Level,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut held = lock(&self.held);
        held.all -= 1;
        if let Some(own) = held.of_principal.get_mut(&self.principal) {
            *own -= 1;
            if *own == 0 {
                held.of_principal.remove(&self.principal);
            }
        }
    }
}

/// Whether a poll came before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Came {
    InTime,
    Early,
}

/// Lets a poll through: at once, or, if it comes too early, when there may be something to see.
///
/// # Errors
/// 429 when so many early polls of this caller are held already.
pub(crate) async fn admit(shared: &Shared, caller: &Caller, id: TaskId) -> Result<Admitted, Error> {
    let pace = &shared.pace;
    let pacing = shared.config.pacing;
    if pacing == Pacing::Off {
        return Ok(Came::InTime.into());
    }
    let key = pace.key(caller);
    let Some(shown) = pace.early(id, key) else {
        return Ok(Came::InTime.into());
    };
    if pacing == Pacing::Observe {
        pace.count(caller, "early");
        return Ok(Came::Early.into());
    }
    let limits = &shared.config.limits;
    let bounds = (limits.held_polls_max, limits.held_polls_of_principal_max);
    match pace.hold(key, bounds) {
        Early::Held(_place) => {
            pace.count(caller, "held");
            return Ok(Admitted {
                came: Came::Early,
                seen: Box::pin(wait(shared, caller, id, shown)).await?,
            });
        }
        Early::Answered => pace.count(caller, "early"),
        Early::Refused => {
            pace.count(caller, "refused");
            return Err(Error::Overloaded {
                what: "of your polls that come before their pollIntervalMs is over",
            });
        }
    }
    Ok(Came::Early.into())
}

/// Until the task changes, the interval is over, or this process ends. Answers with the task where it
/// was read and nobody told of a change since: `None` = read it.
async fn wait(
    shared: &Shared,
    caller: &Caller,
    id: TaskId,
    shown: Shown,
) -> Result<Option<Lookup>, Error> {
    // Interest first, then the look: a change in between is seen by one or the other.
    let mut watch = shared.queue.watch(id).await;
    let seen = shared.store.look(&caller.principal, id).await?;
    let changed = match &seen {
        Lookup::Found(task) => State::of(task) != shown.state,
        Lookup::Expired { .. } | Lookup::Unknown => true,
    };
    if changed {
        return Ok(Some(seen));
    }
    let until = shown.until.min(Instant::now() + shared.config.pace_max);
    let (mut connected, hears) = (shared.queue.connected(), shared.queue.connected());
    let deaf = async {
        // Nobody tells what changes while Redis is away: the poll is answered so much sooner.
        if connected.wait_for(|up| !*up).await.is_ok() {
            tokio::time::sleep(shared.config.recheck).await;
        }
    };
    tokio::pin!(deaf);
    loop {
        tokio::select! {
            biased;
            event = watch.next() => match event {
                Event::Changed | Event::Reconnected => return Ok(None),
                Event::Progress(_) => {}
            },
            () = &mut deaf => return Ok(None),
            () = tokio::time::sleep_until(until) => break,
            () = shared.closing.cancelled() => break,
        }
    }
    let told = *hears.borrow();
    Ok(told.then_some(seen))
}

/// A poll that may be answered.
pub(crate) struct Admitted {
    pub(crate) came: Came,
    /// The task, if it was read already: a poll that was held need not read it twice.
    pub(crate) seen: Option<Lookup>,
}

impl From<Came> for Admitted {
    fn from(came: Came) -> Self {
        Self { came, seen: None }
    }
}

/// Remembers what a poll was answered with; the next read of a task that is over is not early.
pub(crate) fn answered(
    shared: &Shared,
    (caller, came): (&Caller, Came),
    task: &Task,
    interval: Duration,
) {
    if shared.config.pacing == Pacing::Off {
        return;
    }
    if task.status.is_terminal() {
        shared.pace.forget(task.id);
        return;
    }
    if came == Came::InTime {
        shared.pace.count(caller, "in_time");
    }
    let shown = Shown {
        client: shared.pace.key(caller),
        state: State::of(task),
        until: Instant::now() + interval,
    };
    shared.pace.remember(task.id, shown);
}

#[cfg(test)]
mod tests {
    use telemetry::Registry;

    use super::*;

    #[expect(clippy::disallowed_methods, reason = "any time will do")]
    fn now() -> SystemTime {
        SystemTime::now()
    }

    fn shown(client: u64) -> Shown {
        Shown {
            client: CallerKey {
                principal: 1,
                client,
            },
            state: State {
                updated_at: now(),
                stopped: false,
            },
            until: Instant::now() + Duration::from_secs(600),
        }
    }

    /// One who calls their client by a new name each time is not remembered for ever.
    #[test]
    fn what_is_remembered_of_a_task_is_bounded() {
        let pace = Pace::new(Metrics::prepared(&Registry::new()));
        let id = TaskId::new(0);
        for client in 0..1_000 {
            pace.remember(id, shown(client));
        }
        assert_eq!(lock(&pace.shown).tasks[&id].len(), CALLERS_MAX);
        assert!(pace.early(id, shown(999).client).is_some());
        assert!(pace.early(id, shown(0).client).is_none());
    }

    /// What is over is thrown out, and not only when the process ends.
    #[test]
    fn tasks_that_nobody_polls_are_forgotten() {
        let pace = Pace::new(Metrics::prepared(&Registry::new()));
        for _ in 0..10 * REMEMBERED_MIN {
            let over = Shown {
                until: Instant::now(),
                ..shown(1)
            };
            pace.remember(TaskId::new(0), over);
        }
        assert!(lock(&pace.shown).tasks.len() <= REMEMBERED_MIN);
    }
}
