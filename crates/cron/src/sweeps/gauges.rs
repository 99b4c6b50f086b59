//! Counts and ages of live tasks, of unread failures, of tools and of what stands in Redis, for
//! dashboards and alerts.

use std::collections::BTreeMap;
use std::time::Duration;

use queue::{Lane, Standing};
use store::{LiveTasks, QueueAge, Slots, Store, ToolState, Unfetched};

use crate::state::{Rows, State};
use crate::{Parts, Swept};

/// The sweep's name: its leader tells the state, and whoever stops leading falls silent.
pub(crate) const NAME: &str = "gauges";

/// What a live task can be, and what its owner sees of it.
const PHASES: [(&str, &str); 4] = [
    ("queued", "working"),
    ("running", "working"),
    ("parked", "input_required"),
    ("undoing", "working"),
];
/// A phase for those that look at the load only: queued, and waiting for a slot of a limited tool. More
/// workers would not help.
const WAITING: (&str, &str) = ("waiting", "working");

pub(crate) async fn run(parts: Parts) -> Swept {
    let store = &parts.store;
    let live = store.gauges().await?;
    let slots = store.slots().await?;
    let due = runnable(store.queue_ages().await?, &slots);
    let waiting = store.waiting_callbacks().await?;
    let unfetched = store.unfetched().await?;
    let tools = store.tool_states().await?;
    let streams = streams(&parts).await;
    let unhinted = match &streams {
        Some((epochs, _)) => Some(store.unhinted_ages(epochs).await?),
        None => None,
    };
    let state = &parts.metrics.state;
    let listed = Listed::of(store, &tools);
    show_tools(state, &tools);
    show_live(state, &listed, (live, &slots));
    let rows = jobs(&listed, due);
    state.due.tell(rows.0);
    state.due_age.tell(rows.1);
    let rows = jobs(&listed, waiting);
    state.waiting.tell(rows.0);
    state.waiting_age.tell(rows.1);
    let rows = failures(&listed, unfetched);
    state.unfetched.tell(rows.0);
    state.unfetched_age.tell(rows.1);
    state.sealed.tell(sealed(store).await?);
    // While Redis does not answer, nobody knows.
    let rows = unhinted.map(|unhinted| jobs(&listed, unhinted));
    let rows = rows.unwrap_or_default();
    state.unhinted.tell(rows.0);
    state.unhinted_age.tell(rows.1);
    show_streams(state, streams.map(|(_, lanes)| lanes).unwrap_or_default());
    Ok(0)
}

/// How many tasks each key is needed for: those of the settings, and those that rows name.
async fn sealed(store: &Store) -> Result<Rows, store::Error> {
    let zeros = store.encryption_keys().into_iter();
    let mut rows: Rows = zeros.map(|key| (vec![key], 0)).collect();
    for sealed in store.sealed_by().await? {
        rows.insert(vec![sealed.key], sealed.tasks);
    }
    Ok(rows)
}

type Lanes = Vec<(Lane, Standing)>;

/// Redis' epochs, and how its streams stand; `None` while it does not answer: nothing depends on it,
/// and that it is away is told elsewhere.
async fn streams(parts: &Parts) -> Option<(Vec<String>, Lanes)> {
    let queue = &parts.queue;
    let asked = async { Ok((queue.epochs().await?, queue.streams().await?)) };
    let answer: Result<_, queue::Error> = asked.await;
    answer
        .inspect_err(
            |error| tracing::debug!(error = %error, "redis does not say how its streams stand"),
        )
        .ok()
}

/// The tools that are listed. What there is none of is told of them as well: as zero.
struct Listed(Vec<String>);

impl Listed {
    fn of(store: &Store, tools: &[ToolState]) -> Self {
        let listed = tools.iter().filter(|tool| tool.listed);
        let names: Vec<String> = listed.map(|tool| tool.name.clone()).collect();
        for name in &names {
            store.prepare_metrics(name);
        }
        Self(names)
    }

    fn zeros(&self) -> Rows {
        self.0.iter().map(|name| (vec![name.clone()], 0)).collect()
    }
}

fn show_tools(state: &State, tools: &[ToolState]) {
    let (mut workers, mut paused) = (Rows::new(), Rows::new());
    for tool in tools.iter().filter(|tool| tool.listed && tool.current) {
        // Workers of an older release are seen, and say nothing more of themselves.
        let alive = tool.workers.max(tool.alive.into());
        workers.insert(labels([&tool.name]), alive);
        let whats = [("calls", tool.paused.calls), ("jobs", tool.paused.jobs)];
        for (what, is_paused) in whats {
            paused.insert(labels([&tool.name, what]), is_paused.into());
        }
    }
    state.workers.tell(workers);
    state.paused.tell(paused);
}

/// Due jobs without those that wait for a slot.
fn runnable(due: Vec<QueueAge>, slots: &[Slots]) -> Vec<QueueAge> {
    let due = due.into_iter().map(|age| {
        let Some(limited) = slots.iter().find(|slots| slots.tool == age.tool) else {
            return age;
        };
        let jobs = age.jobs.min(limited.able);
        let waited = if jobs == 0 {
            Duration::ZERO
        } else {
            limited.waited
        };
        QueueAge {
            jobs,
            waited,
            ..age
        }
    });
    due.collect()
}

fn show_live(state: &State, listed: &Listed, (live, slots): (Vec<LiveTasks>, &[Slots])) {
    let (mut count, mut oldest) = (Rows::new(), Rows::new());
    for tool in &listed.0 {
        count.insert(labels([tool, WAITING.0, WAITING.1]), 0);
        for (phase, status) in PHASES {
            count.insert(labels([tool, phase, status]), 0);
            oldest.insert(labels([tool, phase]), 0);
        }
    }
    for row in live {
        let known = PHASES.iter().find(|(phase, _)| *phase == row.phase);
        let status = known.map_or("working", |(_, status)| status);
        count.insert(labels([&row.tool, &row.phase, status]), row.tasks);
        oldest.insert(labels([&row.tool, &row.phase]), seconds(row.oldest));
    }
    for limited in slots {
        let waiting = (limited.due - limited.able).max(0);
        count.insert(labels([&limited.tool, WAITING.0, WAITING.1]), waiting);
        let queued = count.get_mut(&labels([&limited.tool, "queued", "working"]));
        if let Some(queued) = queued {
            *queued = (*queued - waiting).max(0);
        }
    }
    state.live.tell(count);
    state.oldest.tell(oldest);
}

/// How many, and the age of the oldest.
fn jobs(listed: &Listed, jobs: Vec<QueueAge>) -> (Rows, Rows) {
    let (mut count, mut age) = (listed.zeros(), listed.zeros());
    for row in jobs {
        count.insert(labels([&row.tool]), row.jobs);
        age.insert(labels([&row.tool]), seconds(row.waited));
    }
    (count, age)
}

fn failures(listed: &Listed, unfetched: Vec<Unfetched>) -> (Rows, Rows) {
    let (mut count, mut age) = (listed.zeros(), listed.zeros());
    for row in unfetched {
        count.insert(labels([&row.tool]), row.failures);
        age.insert(labels([&row.tool]), seconds(row.oldest));
    }
    (count, age)
}

/// All versions of a tool together.
fn show_streams(state: &State, lanes: Lanes) {
    let mut tools: BTreeMap<String, Standing> = BTreeMap::new();
    for (lane, standing) in lanes {
        let sum = tools.entry(lane.tool).or_default();
        sum.entries += standing.entries;
        sum.pending += standing.pending;
        // A worker that serves several versions is one.
        sum.consumers = sum.consumers.max(standing.consumers);
    }
    let rows = |number: fn(&Standing) -> u64| -> Rows {
        let sums = tools.iter();
        sums.map(|(tool, sum)| (labels([tool]), whole(number(sum))))
            .collect()
    };
    state.hints.tell(rows(|sum| sum.entries));
    state.hints_pending.tell(rows(|sum| sum.pending));
    state.consumers.tell(rows(|sum| sum.consumers));
}

fn labels<const N: usize>(values: [&str; N]) -> Vec<String> {
    values.map(str::to_owned).to_vec()
}

fn seconds(duration: Duration) -> i64 {
    whole(duration.as_secs())
}

fn whole(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
