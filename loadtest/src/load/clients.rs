//! Begins operations: when they are due, whatever became of earlier ones (an open loop), or so many at a
//! time (a closed loop).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::balance::Balance;
use super::operation::Client;
use super::run::{Options, principal};
use super::scenario::{Kind, Scenario};
use super::series::Series;
use crate::caller::{Caller, Shared};
use crate::rng::Rng;

/// Begins operations, and returns when all are over.
pub(super) async fn drive(
    (options, run): (&Options, &str),
    shared: &Arc<Shared>,
    series: &Arc<Series>,
    balance: &Arc<Balance>,
) {
    let scenario = &options.scenario;
    let many = if shared.tokens.is_empty() {
        scenario.principals
    } else {
        shared.tokens.len() as u64
    };
    let callers = (0..many)
        .map(principal)
        .map(|name| Caller::new(&name, &name, Arc::clone(shared)));
    let clients = Clients {
        callers: callers.collect(),
        balance: Arc::clone(balance),
        series: Arc::clone(series),
        seed: options.seed,
        run: run.to_owned(),
        next: AtomicU64::new(0),
        weights: scenario.weights(),
    };
    let end = series.start() + scenario.duration;
    match scenario.clients {
        Some(count) => closed(count, Arc::new(clients), end).await,
        None => open(scenario, &clients, end).await,
    }
}

/// What clients are made from.
#[derive(Debug)]
struct Clients {
    callers: Vec<Caller>,
    balance: Arc<Balance>,
    series: Arc<Series>,
    seed: u64,
    /// What the names of all calls begin with.
    run: String,
    next: AtomicU64,
    weights: Vec<(u64, Kind)>,
}

impl Clients {
    /// One for one operation.
    fn one(&self, rng: &mut Rng, kind: Kind) -> Client {
        let number = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        self.series.begun(kind.as_str());
        Client {
            caller: rng.pick(&self.callers).clone(),
            balance: Arc::clone(&self.balance),
            series: Arc::clone(&self.series),
            rng: Rng::part(self.seed, number),
            name: format!("{}{number}", self.run),
        }
    }
}

/// When they are due, whatever became of earlier ones.
async fn open(scenario: &Scenario, clients: &Clients, end: Instant) {
    let mut rng = Rng::new(clients.seed);
    let mut due = clients.series.start();
    let mut running = JoinSet::new();
    loop {
        due += pause(&mut rng, scenario.rate.unwrap_or(1.0));
        if due >= end {
            break;
        }
        sleep_until(due).await;
        while running.try_join_next().is_some() {}
        let kind = rng.weighted(&clients.weights);
        if running.len() >= scenario.in_flight_max {
            clients.series.fault(kind.as_str(), 0, false);
            continue;
        }
        running.spawn(clients.one(&mut rng, kind).play(kind, due));
    }
    while let Some(ended) = running.join_next().await {
        ended.expect("an operation does not panic");
    }
}

/// So many at a time, each when the one before is over.
async fn closed(count: usize, clients: Arc<Clients>, end: Instant) {
    let mut running = JoinSet::new();
    for number in 0..count {
        let clients = Arc::clone(&clients);
        running.spawn(async move {
            let mut rng = Rng::part(clients.seed, u64::MAX - number as u64);
            while Instant::now() < end {
                let kind = rng.weighted(&clients.weights);
                clients.one(&mut rng, kind).play(kind, Instant::now()).await;
            }
        });
    }
    while let Some(ended) = running.join_next().await {
        ended.expect("an operation does not panic");
    }
}

/// Until the next operation is due: exponentially distributed, as of clients that know nothing of
/// each other.
fn pause(rng: &mut Rng, rate: f64) -> Duration {
    #[expect(clippy::cast_precision_loss, reason = "53 bits of chance are enough")]
    let chance = (rng.bits() >> 11) as f64 / (1_u64 << 53) as f64;
    Duration::from_secs_f64(-(1.0 - chance).ln() / rate)
}
