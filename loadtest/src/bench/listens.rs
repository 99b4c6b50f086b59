//! Many open listens on one gateway: what each costs, and how late events come while others finish tasks.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use harness::config::Role;
use harness::{Error, Result};
use hdrhistogram::Histogram;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::connection::Connection;
use super::drive::{self, Load, Worker};
use super::fill;
use super::measure::Spread;
use super::pairs::driving;
use super::processors::{Cores, Look, resident};
use super::report::Row;
use super::run::{Bench, TASK, arguments, say};
use super::wire::Wire;
use super::{machine, works};

/// Listens opened at the same time.
const OPENING: usize = 64;
/// Tasks that others finish each second meanwhile.
const FINISHED: f64 = 500.0;
/// Events each second.
const EVENTS: f64 = 100.0;
/// An event that has not come by then is lost.
const PATIENCE: Duration = Duration::from_secs(60);
/// After the listens are open: what only opening needed is given back.
const REST: Duration = Duration::from_secs(3);

/// Longer is shown as this.
const LONGEST_US: u64 = 120_000_000;

/// When each listened task was heard to be over.
type Heard = Arc<Mutex<Vec<Option<Instant>>>>;

/// Both rows.
///
/// # Errors
/// If so many connections are not allowed, or a listen is refused.
pub async fn measure(bench: &mut Bench) -> Result<Vec<Row>> {
    let count = bench.options.listens;
    machine::allow_files(count + 1_000).map_err(Error::Other)?;
    bench.with_worker().await?;
    let gateway = bench.system.add(Role::Gateway, "").await?;
    let tools = [TASK];
    bench
        .system
        .wait_for_tools(gateway, super::run::PRINCIPAL, &tools)
        .await?;
    let (first, last) = (bench.filled + 1, bench.filled + count);
    bench
        .waiting
        .fill(&bench.system, first, last, |_| ())
        .await?;
    bench.filled = last;
    let rows = listened(bench, gateway, first).await;
    bench.system.kill(gateway);
    let ids = format!("id >= '{}' AND id <= '{}'", fill::id(first), fill::id(last));
    bench
        .system
        .sql(&format!("DELETE FROM tasks WHERE {ids}"))
        .await?;
    bench.clear().await?;
    rows
}

async fn listened(bench: &Bench, gateway: usize, first: u64) -> Result<Vec<Row>> {
    let count = bench.options.listens;
    let wire = Wire::new(&bench.system.url(gateway), super::run::PRINCIPAL);
    let at = bench.system.address(gateway)?;
    let pid = bench.system.nodes[gateway].pid().unwrap_or_default();
    // Nobody's first requests count: what every gateway needs once is there before.
    let warm = Load {
        connections: 16,
        warmup: Duration::ZERO,
        time: Duration::from_secs(1),
    };
    let reads =
        async |worker: &mut Worker| works::read(worker, &wire, (1, bench.options.rows)).await;
    drive::closed(&[at], warm, reads).await.map_err(driving)?;
    sleep(REST).await;
    let empty = resident(pid).unwrap_or_default();
    let size = usize::try_from(count).map_err(|error| Error::Other(error.to_string()))?;
    let heard: Heard = Arc::new(Mutex::new(vec![None; size]));
    let mut listeners = JoinSet::new();
    open_all(&mut listeners, (at, &wire), (first, count), &heard).await?;
    sleep(REST).await;
    let full = resident(pid).unwrap_or_default();
    let each = kib(full.saturating_sub(empty)) / float(count);
    say(&format!("  {count} listens: {each:.1} kB each"));
    let memory = Row {
        key: "listens_memory",
        unit: "kB",
        baseline: None,
        ours: Spread::one(each),
        ratio: Spread::one(each),
        errors: 0,
        notes: vec![format!(
            "{count} listens, one connection each: resident {:.0} MiB, empty {:.0} MiB",
            kib(full) / 1024.0,
            kib(empty) / 1024.0
        )],
        cores: Cores::new(),
    };
    let event = events(bench, (at, &wire), first, &heard).await?;
    drop(listeners);
    Ok(vec![memory, event])
}

async fn open_all(
    listeners: &mut JoinSet<()>,
    (at, wire): (SocketAddr, &Wire),
    (first, count): (u64, u64),
    heard: &Heard,
) -> Result<()> {
    let failed = |error: io::Error| Error::Other(format!("a listen: {error}"));
    let mut opening: JoinSet<io::Result<(usize, Connection)>> = JoinSet::new();
    let mut next = 0;
    while next < count || !opening.is_empty() {
        if next < count && opening.len() < OPENING {
            let request = wire.listen(&fill::id(first + next));
            let index = usize::try_from(next).map_err(|error| Error::Other(error.to_string()))?;
            next += 1;
            opening.spawn(async move {
                let mut connection = Connection::open(at).await?;
                connection.begin(&request).await?;
                // The acknowledgement; what the task is now follows.
                let acknowledged = connection.event().await?;
                acknowledged.ok_or(io::ErrorKind::UnexpectedEof)?;
                Ok((index, connection))
            });
            continue;
        }
        let Some(opened) = opening.join_next().await else {
            continue;
        };
        let opened = opened.map_err(|error| Error::Other(error.to_string()))?;
        let (index, mut connection) = opened.map_err(failed)?;
        let heard = Arc::clone(heard);
        listeners.spawn(async move {
            while let Ok(Some(event)) = connection.event().await {
                if memchr::memmem::find(&event, b"\"status\":\"cancelled\"").is_some() {
                    let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
                    heard[index].get_or_insert_with(Instant::now);
                }
            }
        });
    }
    Ok(())
}

/// From when a cancel was sent to when the listener of its task heard of it.
async fn events(
    bench: &Bench,
    (at, wire): (SocketAddr, &Wire),
    first: u64,
    heard: &Heard,
) -> Result<Row> {
    let time = (bench.options.time * 2).max(Duration::from_secs(2));
    let cancels = Load {
        connections: 16,
        warmup: Duration::ZERO,
        time,
    };
    let others = Load {
        connections: 256,
        warmup: Duration::ZERO,
        time,
    };
    let size = heard.lock().unwrap_or_else(PoisonError::into_inner).len();
    let sent: Mutex<Vec<(usize, Instant)>> = Mutex::new(Vec::new());
    let next = std::cell::Cell::new(0_usize);
    let cancel = async |worker: &mut Worker| {
        let index = next.get();
        if index >= size {
            return Ok(());
        }
        next.set(index + 1);
        sent.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push((index, Instant::now()));
        let status = worker
            .connection
            .ask(&wire.cancel(&fill::id(first + index as u64)))
            .await?;
        if status == 200 && !worker.connection.holds("\"error\"") {
            return Ok(());
        }
        Err(drive::unexpected(status, worker.connection.body()))
    };
    let request = wire.call(TASK, &arguments());
    let live = async |worker: &mut Worker| works::live(worker, wire, &request).await;
    let before = Look::now(&bench.system.groups());
    let addresses = [at];
    // A quick run on a busy machine could not keep up.
    let finished_each_second = FINISHED.min(float(bench.options.listens));
    let (cancelled, finished) = tokio::join!(
        drive::open(&addresses, cancels, EVENTS, cancel),
        drive::open(&addresses, others, finished_each_second, live)
    );
    let cores = before.until(&Look::now(&bench.system.groups()));
    let (cancelled, finished) = (cancelled.map_err(driving)?, finished.map_err(driving)?);
    let sent = sent.into_inner().unwrap_or_else(PoisonError::into_inner);
    let all = async {
        while !all_heard(heard, &sent) {
            sleep(Duration::from_millis(50)).await;
        }
    };
    let complete = timeout(PATIENCE, all).await.is_ok();
    let mut latency: Histogram<u64> =
        Histogram::new_with_bounds(1, LONGEST_US, 3).expect("the bounds are valid");
    let heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
    for (index, at) in &sent {
        if let Some(then) = heard[*index] {
            let us = u64::try_from((then - *at).as_micros()).unwrap_or(u64::MAX);
            latency.saturating_record(us);
        }
    }
    let lost = sent.len() as u64 - latency.len();
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52 µs")]
    let ms = |percentile: f64| latency.value_at_quantile(percentile) as f64 / 1_000.0;
    say(&format!(
        "  {} events: p50 {:.1} ms, p99 {:.1} ms",
        latency.len(),
        ms(0.5),
        ms(0.99)
    ));
    let mut notes = vec![format!(
        "{} events, p50 {:.1} ms, from when a cancel was sent; others finished {:.0} tasks/s, p99 {:.0} ms",
        latency.len(),
        ms(0.5),
        finished.rate(),
        finished.ms(99.0)
    )];
    if !complete {
        notes.push(format!("{lost} events never came"));
    }
    notes.extend(finished.error.clone());
    notes.extend(cancelled.error.clone());
    Ok(Row {
        key: "listens_event",
        unit: "ms",
        baseline: None,
        ours: Spread::one(ms(0.99)),
        ratio: Spread::one(ms(0.99)),
        errors: cancelled.errors + finished.errors + lost,
        notes,
        cores,
    })
}

fn all_heard(heard: &Heard, sent: &[(usize, Instant)]) -> bool {
    let heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
    sent.iter().all(|(index, _)| heard[*index].is_some())
}

fn kib(bytes: u64) -> f64 {
    float(bytes) / 1024.0
}

#[expect(
    clippy::cast_precision_loss,
    reason = "bytes and counts of one machine"
)]
fn float(number: u64) -> f64 {
    number as f64
}
