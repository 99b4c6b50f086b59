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
use store::Task;
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
    updated_at: SystemTime,
    until: Instant,
}

/// The polls of this process.
pub(crate) struct Pace {
    shown: Mutex<Memory>,
    held: Arc<Mutex<HashMap<u64, usize>>>,
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
        seen.push(shown);
    }

    /// The owner changes the task: its next read is answered at once.
    pub(crate) fn forget(&self, id: TaskId) {
        lock(&self.shown).tasks.remove(&id);
    }

    /// Takes a place among the held polls; `None` when there is none.
    fn hold(&self, caller: CallerKey, (all, each): (usize, usize)) -> Option<Place> {
        let mut held = lock(&self.held);
        let total: usize = held.values().sum();
        let own = held.entry(caller.principal).or_default();
        if total >= all || *own >= each {
            if *own == 0 {
                held.remove(&caller.principal);
            }
            return None;
        }
        *own += 1;
        Some(Place {
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
    held: Arc<Mutex<HashMap<u64, usize>>>,
    principal: u64,
    _level: Level,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut held = lock(&self.held);
        if let Some(own) = held.get_mut(&self.principal) {
            *own -= 1;
            if *own == 0 {
                held.remove(&self.principal);
            }
        }
    }
}

/// Lets a poll through: at once, or, if it comes too early, when there may be something to see.
///
/// # Errors
/// 429 when too many early polls are held, of this caller or of all.
pub(crate) async fn admit(shared: &Shared, caller: &Caller, id: TaskId) -> Result<(), Error> {
    let pace = &shared.pace;
    let pacing = shared.config.pacing;
    if pacing == Pacing::Off {
        return Ok(());
    }
    let key = pace.key(caller);
    let Some(shown) = pace.early(id, key) else {
        pace.count(caller, "in_time");
        return Ok(());
    };
    if pacing == Pacing::Observe {
        pace.count(caller, "early");
        return Ok(());
    }
    let limits = &shared.config.limits;
    let bounds = (limits.held_polls_max, limits.held_polls_of_principal_max);
    let Some(_place) = pace.hold(key, bounds) else {
        pace.count(caller, "refused");
        return Err(Error::Overloaded {
            what: "polls that come before their pollIntervalMs is over",
        });
    };
    pace.count(caller, "held");
    wait(shared, caller, id, shown).await
}

/// Until the task changes, the interval is over, or this process ends.
async fn wait(shared: &Shared, caller: &Caller, id: TaskId, shown: Shown) -> Result<(), Error> {
    // Interest first, then the look: a change in between is seen by one or the other.
    let mut watch = shared.queue.watch(id).await;
    let changed = match shared.store.get(&caller.principal, id).await? {
        store::Lookup::Found(task) => task.last_updated_at != shown.updated_at,
        store::Lookup::Expired { .. } | store::Lookup::Unknown => true,
    };
    if changed {
        return Ok(());
    }
    let until = shown.until.min(Instant::now() + shared.config.pace_max);
    loop {
        tokio::select! {
            biased;
            event = watch.next() => match event {
                Event::Changed | Event::Reconnected => return Ok(()),
                Event::Progress(_) => {}
            },
            () = tokio::time::sleep_until(until) => return Ok(()),
            () = shared.closing.cancelled() => return Ok(()),
        }
    }
}

/// Remembers what a poll was answered with; the next read of a task that is over is not early.
pub(crate) fn answered(shared: &Shared, caller: &Caller, task: &Task, interval: Duration) {
    if shared.config.pacing == Pacing::Off {
        return;
    }
    if task.status.is_terminal() {
        shared.pace.forget(task.id);
        return;
    }
    let shown = Shown {
        client: shared.pace.key(caller),
        updated_at: task.last_updated_at,
        until: Instant::now() + interval,
    };
    shared.pace.remember(task.id, shown);
}
