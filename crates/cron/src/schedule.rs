//! Runs the table: each sweep on its own interval, under its own leader lease.

use std::time::{Duration, Instant};

use futures::future::join_all;
use telemetry::{Beat, Health};
use tokio::time::MissedTickBehavior;
use tracing::Instrument;
use uuid::Uuid;

use crate::{Parts, Sweep, once, trace};

/// A leader that says nothing for this long is replaced. It says so three times as often, also
/// in the middle of a long sweep; so this is how long a killed replica keeps a sweep waiting.
const LEASE_MIN: Duration = Duration::from_secs(6);
/// However short its interval is, a sweep may fail for this long before that is a matter.
const OVERDUE_MIN: Duration = Duration::from_secs(15);

/// A schedule that has not come round for so long is stuck.
const LOOP_AGE_MAX: Duration = Duration::from_secs(30);
/// Between two signs of life of it.
const TURN: Duration = Duration::from_secs(1);
/// By so much two clocks may differ in what they say has passed.
const ASLEEP: Duration = Duration::from_secs(15);
/// What readiness says of a sweep then.
const OVERDUE: &str = "has not succeeded for three intervals";
/// How long it may take to say that this process leads no more.
const RESIGN: Duration = Duration::from_secs(1);
/// How long a batch under way may take once the process shall end; any can be left half way.
const LAST_BATCH: Duration = Duration::from_secs(3);

pub(crate) async fn run(parts: &Parts, health: &Health, table: Vec<Sweep>) {
    let holder = Uuid::new_v4();
    let alive = health.liveness("schedule", LOOP_AGE_MAX);
    let sweeps = join_all(table.iter().map(|sweep| keep(parts, health, sweep, holder)));
    tokio::select! {
        _ended = sweeps => {}
        () = turn(&alive) => unreachable!("it turns for ever"),
    }
}

/// Shows that the schedule comes round, beside the sweeps and in the same task: one that neither
/// awaits nor returns keeps all of them. One that only fails, or waits, shows in readiness.
async fn turn(alive: &Beat) {
    loop {
        alive.beat();
        tokio::time::sleep(TURN).await;
    }
}

/// One sweep for as long as the process lives.
async fn keep(parts: &Parts, health: &Health, sweep: &Sweep, holder: Uuid) {
    // Three intervals without a success (of this or another replica) are visible in readiness.
    let overdue = sweep.interval * 3 + OVERDUE_MIN;
    let check = health.check(sweep.name);
    let mut last_success = Instant::now();
    let mut parts = parts.clone();
    let mut ticks = tokio::time::interval(sweep.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    check.ready();
    loop {
        tokio::select! {
            biased;
            () = parts.shutdown.cancelled() => return resign(&parts, sweep, holder).await,
            _ = ticks.tick() => {}
        }
        if once::WATCHERS.contains(&sweep.name) && slept(&parts, sweep, last_success).await {
            parts.watching_since = Instant::now();
        }
        let late = async {
            let due = last_success + overdue;
            tokio::time::sleep_until(due.into()).await;
            check.not_ready(OVERDUE);
            std::future::pending::<()>().await;
        };
        let swept = tokio::select! {
            swept = turn_of(&parts, sweep, holder) => swept,
            () = overtime(&parts) => return resign(&parts, sweep, holder).await,
            () = late => unreachable!("it only tells"),
        };
        match swept {
            Ok(Turn::Swept) => {
                last_success = Instant::now();
                check.ready();
            }
            // Whoever leads may be failing, and every replica says so.
            Ok(Turn::Elsewhere(success)) => {
                let then = success.and_then(|ago| Instant::now().checked_sub(ago));
                last_success = then.map_or(last_success, |then| then.max(last_success));
                if last_success.elapsed() > overdue {
                    check.not_ready(OVERDUE);
                } else {
                    check.ready();
                }
            }
            Err(error) => {
                // Rows that are broken are no break in looking on.
                if !matches!(error, crate::Error::Broken(_)) {
                    parts.watching_since = Instant::now();
                }
                parts
                    .metrics
                    .failures
                    .with_label_values(&[sweep.name])
                    .inc();
                tracing::warn!(sweep = sweep.name, error = ?error, "sweep failed");
                if last_success.elapsed() > overdue {
                    check.not_ready(OVERDUE);
                }
            }
        }
    }
}

/// Whether more time has passed for Postgres than for this process since the sweep last ended well, here
/// or elsewhere: a machine that slept, with all that ran on it, has heard of nobody meanwhile.
async fn slept(parts: &Parts, sweep: &Sweep, last_success: Instant) -> bool {
    let success = parts.store.sweep_success(sweep.name).await;
    matches!(success, Ok(Some(ago)) if ago > last_success.elapsed() + ASLEEP)
}

/// The process was asked to end, and what is under way had its time.
async fn overtime(parts: &Parts) {
    parts.shutdown.cancelled().await;
    tokio::time::sleep(LAST_BATCH).await;
}

async fn turn_of(parts: &Parts, sweep: &Sweep, holder: Uuid) -> Result<Turn, crate::Error> {
    let lease = LEASE_MIN.max(sweep.interval * 2);
    if !lead(parts, sweep, (holder, lease)).await? {
        return elsewhere(parts, sweep).await;
    }
    let started = Instant::now();
    let span = trace::sweep(sweep.name);
    let running = crate::sweep(parts, sweep).instrument(span.clone());
    let (moved, ended) = tokio::select! {
        swept = running => swept,
        // What is under way is left half way: another replica does it again.
        replaced = lead_on(parts, sweep, (holder, lease)) => {
            replaced?;
            return elsewhere(parts, sweep).await;
        }
    };
    trace::swept(&span, ended.as_ref().map(|()| moved));
    parts
        .metrics
        .seconds
        .with_label_values(&[sweep.name])
        .observe(started.elapsed().as_secs_f64());
    parts
        .metrics
        .swept
        .with_label_values(&[sweep.name])
        .inc_by(moved);
    if moved > 0 {
        tracing::info!(sweep = sweep.name, rows = moved, "swept");
    }
    ended?;
    parts.store.swept(sweep.name, holder).await?;
    parts.metrics.succeeded(sweep.name);
    Ok(Turn::Swept)
}

/// What came of one turn.
enum Turn {
    /// It ended well here.
    Swept,
    /// Another replica leads; so long ago it last ended well, wherever.
    Elsewhere(Option<Duration>),
}

async fn elsewhere(parts: &Parts, sweep: &Sweep) -> Result<Turn, crate::Error> {
    let success = parts.store.sweep_success(sweep.name).await?;
    Ok(Turn::Elsewhere(success))
}

/// Leads a sweep from now on, unless another replica does. From when it asked, this process counts by
/// its own clock how long it may say so: the state that a leader tells is told by one only.
async fn lead(
    parts: &Parts,
    sweep: &Sweep,
    (holder, lease): (Uuid, Duration),
) -> Result<bool, crate::Error> {
    let asked = Instant::now();
    let leads = parts.store.lead_sweep(sweep.name, holder, lease).await?;
    let until = leads.then(|| asked + lease);
    parts.metrics.leads(sweep.name, until);
    Ok(leads)
}

/// Renews the lead while a sweep runs; returns when another replica has it (this process was frozen,
/// most likely), or nobody can say.
async fn lead_on(
    parts: &Parts,
    sweep: &Sweep,
    (holder, lease): (Uuid, Duration),
) -> Result<(), crate::Error> {
    loop {
        tokio::time::sleep(lease / 3).await;
        if !lead(parts, sweep, (holder, lease)).await? {
            tracing::info!(sweep = sweep.name, "another replica took this sweep over");
            return Ok(());
        }
    }
}

/// Hands the sweep to another replica at once, instead of letting the lease run out. Best effort:
/// with Postgres away, the lease runs out.
async fn resign(parts: &Parts, sweep: &Sweep, holder: Uuid) {
    if !parts.metrics.is_leading(sweep.name) {
        return;
    }
    let store = parts.store.with_wait(Duration::ZERO);
    let resigned = store.lead_sweep(sweep.name, holder, Duration::ZERO);
    if !matches!(tokio::time::timeout(RESIGN, resigned).await, Ok(Ok(_))) {
        tracing::debug!(sweep = sweep.name, "the lease is left to run out");
    }
    parts.metrics.leads(sweep.name, None);
}
