//! Drives clients: so many without a pause (a closed loop), or so many requests a second whatever
//! becomes of the earlier ones (an open loop, whose latencies count from when a request was due).

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use hdrhistogram::Histogram;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::connection::Connection;
use crate::rng::Rng;

/// Longer is shown as this.
const LONGEST_US: u64 = 120_000_000;
/// What is under way at the end may take so long.
const PATIENCE: Duration = Duration::from_secs(60);
/// Before a broken connection is opened again.
const AGAIN: Duration = Duration::from_millis(20);

/// How long, and how many.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Connections; of an open loop, at most.
    pub connections: usize,
    /// Not counted.
    pub warmup: Duration,
    /// Counted.
    pub time: Duration,
}

/// One client.
#[derive(Debug)]
pub struct Worker {
    /// Its connection.
    pub connection: Connection,
    /// Its choices.
    pub rng: Rng,
    /// Which one, from 0 on.
    pub number: usize,
    /// How often it has begun.
    pub turn: u64,
}

/// What came of it.
#[derive(Debug, Clone)]
pub struct Driven {
    /// µs.
    pub latency: Histogram<u64>,
    /// Done in the time that counts.
    pub done: u64,
    /// That time.
    pub time: Duration,
    /// Failed, at any time.
    pub errors: u64,
    /// The first failure.
    pub error: Option<String>,
}

impl Driven {
    fn new(time: Duration) -> Driven {
        Driven {
            latency: Histogram::new_with_bounds(1, LONGEST_US, 3).expect("the bounds are valid"),
            done: 0,
            time,
            errors: 0,
            error: None,
        }
    }

    /// Done a second.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "few enough to be exact")]
    pub fn rate(&self) -> f64 {
        self.done as f64 / self.time.as_secs_f64()
    }

    /// A percentile in milliseconds.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        reason = "below two minutes in microseconds"
    )]
    pub fn ms(&self, percentile: f64) -> f64 {
        self.latency.value_at_quantile(percentile / 100.0) as f64 / 1_000.0
    }

    fn count(&mut self, began: Instant, counted: (Instant, Instant)) {
        let now = Instant::now();
        if now < counted.0 || now >= counted.1 {
            return;
        }
        let us = u64::try_from((now - began).as_micros()).unwrap_or(LONGEST_US);
        self.latency.saturating_record(us.max(1));
        self.done += 1;
    }

    fn failed(&mut self, why: &io::Error) {
        self.errors += 1;
        self.error.get_or_insert_with(|| why.to_string());
    }
}

/// So many clients, each of which begins again when it is done. They are spread over the addresses.
///
/// # Errors
/// If nobody can connect, or clients are not done long after the time is over.
pub async fn closed(
    at: &[SocketAddr],
    load: Load,
    work: impl AsyncFn(&mut Worker) -> io::Result<()>,
) -> io::Result<Driven> {
    let driven = RefCell::new(Driven::new(load.time));
    let mut workers = Vec::new();
    for number in 0..load.connections {
        workers.push(worker(at, number).await?);
    }
    let begin = Instant::now() + load.warmup;
    let end = begin + load.time;
    let (driven_by, work) = (&driven, &work);
    let clients: FuturesUnordered<_> = workers
        .into_iter()
        .map(|mut worker| async move {
            while Instant::now() < end {
                let began = Instant::now();
                worker.turn += 1;
                match work(&mut worker).await {
                    Ok(()) => driven_by.borrow_mut().count(began, (begin, end)),
                    Err(why) => {
                        driven_by.borrow_mut().failed(&why);
                        sleep(AGAIN).await;
                        if let Ok(new) = Connection::open(at[worker.number % at.len()]).await {
                            worker.connection = new;
                        }
                    }
                }
            }
        })
        .collect();
    let all = clients.for_each(async |()| ());
    timeout(load.warmup + load.time + PATIENCE, all)
        .await
        .map_err(|_| io::Error::other("clients are not done a minute after the end"))?;
    Ok(driven.into_inner())
}

/// So many begun each second at even distances. Requests that find no free connection wait, and their
/// latency counts on.
///
/// # Errors
/// As [`closed`].
pub async fn open(
    at: &[SocketAddr],
    load: Load,
    rate: f64,
    work: impl AsyncFn(&mut Worker) -> io::Result<()>,
) -> io::Result<Driven> {
    let driven = RefCell::new(Driven::new(load.time));
    let start = Instant::now();
    let begin = start + load.warmup;
    let end = begin + load.time;
    // Which request is the next one.
    let next = Cell::new(0_u32);
    let mut workers = Vec::new();
    for number in 0..load.connections {
        workers.push(worker(at, number).await?);
    }
    let (driven_by, next, work) = (&driven, &next, &work);
    let clients: FuturesUnordered<_> = workers
        .into_iter()
        .map(|mut worker| async move {
            loop {
                let due = start + Duration::from_secs_f64(f64::from(next.get()) / rate);
                if due >= end {
                    return;
                }
                next.set(next.get() + 1);
                sleep_until(due).await;
                worker.turn += 1;
                match work(&mut worker).await {
                    Ok(()) if due >= begin => {
                        driven_by.borrow_mut().count(due, (begin, end + PATIENCE));
                    }
                    Ok(()) => {}
                    Err(why) => {
                        driven_by.borrow_mut().failed(&why);
                        if let Ok(new) = Connection::open(at[worker.number % at.len()]).await {
                            worker.connection = new;
                        }
                    }
                }
            }
        })
        .collect();
    let all = clients.for_each(async |()| ());
    timeout(load.warmup + load.time + PATIENCE, all)
        .await
        .map_err(|_| io::Error::other("clients are not done a minute after the end"))?;
    Ok(driven.into_inner())
}

async fn worker(at: &[SocketAddr], number: usize) -> io::Result<Worker> {
    Ok(Worker {
        connection: Connection::open(at[number % at.len()]).await?,
        rng: Rng::part(crate::clock::now_us(), number as u64),
        number,
        turn: 0,
    })
}

/// An error that says what was answered.
#[must_use]
pub fn unexpected(status: u16, body: &[u8]) -> io::Error {
    let shown: String = String::from_utf8_lossy(body).chars().take(300).collect();
    io::Error::other(format!("HTTP {status}: {shown}"))
}
