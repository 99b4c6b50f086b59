//! Latencies and errors, second by second.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;
use tokio::time::Instant;

/// Longer is shown as this.
const LONGEST_US: u64 = 120_000_000;

/// What was measured of one kind of request in one second.
#[derive(Debug, Clone)]
pub struct Second {
    /// Answered in it, µs from when it was due.
    pub latency: Histogram<u32>,
}

/// An error that a client saw.
#[derive(Debug, Clone)]
pub struct Fault {
    /// From the start of the run.
    pub at: Duration,
    /// Which gateway was asked.
    pub gateway: usize,
    /// Whether the connection broke, rather than the server answering with an error.
    pub connection: bool,
    /// What it was about.
    pub what: &'static str,
}

/// Everything measured in a run.
#[derive(Debug)]
pub struct Series {
    start: Instant,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    seconds: BTreeMap<&'static str, Vec<Second>>,
    begun: BTreeMap<&'static str, u64>,
    faults: Vec<Fault>,
}

impl Default for Second {
    fn default() -> Second {
        let latency = Histogram::new_with_bounds(1, LONGEST_US, 3);
        Second {
            latency: latency.expect("the bounds are valid"),
        }
    }
}

impl Series {
    /// Begins now.
    #[must_use]
    pub fn new() -> Series {
        Series {
            start: Instant::now(),
            kept: Mutex::default(),
        }
    }

    /// When the run began.
    #[must_use]
    pub fn start(&self) -> Instant {
        self.start
    }

    /// An operation began.
    pub fn begun(&self, kind: &'static str) {
        self.with(|kept| *kept.begun.entry(kind).or_default() += 1);
    }

    /// What was due then is answered now.
    pub fn answered(&self, what: &'static str, due: Instant) {
        let (at, took) = (self.start.elapsed(), due.elapsed());
        let second = usize::try_from(at.as_secs()).unwrap_or(usize::MAX);
        let us = u64::try_from(took.as_micros()).unwrap_or(LONGEST_US);
        self.with(|kept| {
            let seconds = kept.seconds.entry(what).or_default();
            if seconds.len() <= second {
                seconds.resize_with(second + 1, Second::default);
            }
            seconds[second].latency.saturating_record(us.max(1));
        });
    }

    /// A client saw an error.
    pub fn fault(&self, what: &'static str, gateway: usize, connection: bool) {
        let fault = Fault {
            at: self.start.elapsed(),
            gateway,
            connection,
            what,
        };
        self.with(|kept| kept.faults.push(fault));
    }

    /// The seconds of every kind of request.
    #[must_use]
    pub fn seconds(&self) -> BTreeMap<&'static str, Vec<Second>> {
        self.with(|kept| kept.seconds.clone())
    }

    /// The last whole seconds, of all requests together.
    #[must_use]
    pub fn latest(&self, seconds: usize) -> Vec<Second> {
        let now = usize::try_from(self.start.elapsed().as_secs()).unwrap_or(usize::MAX);
        let from = now.saturating_sub(seconds);
        self.with(|kept| {
            let requests = kept.seconds.iter();
            let requests = requests.filter(|(kind, _)| !["life", "heard"].contains(*kind));
            let latest = requests.flat_map(|(_, all)| all.iter().take(now).skip(from));
            latest.cloned().collect()
        })
    }

    /// How many errors there were.
    #[must_use]
    pub fn fault_count(&self) -> usize {
        self.with(|kept| kept.faults.len())
    }

    /// Operations begun, by kind.
    #[must_use]
    pub fn operations(&self) -> BTreeMap<&'static str, u64> {
        self.with(|kept| kept.begun.clone())
    }

    /// All errors, in the order of time.
    #[must_use]
    pub fn faults(&self) -> Vec<Fault> {
        self.with(|kept| kept.faults.clone())
    }

    fn with<T>(&self, look: impl FnOnce(&mut Kept) -> T) -> T {
        look(&mut self.kept.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Default for Series {
    fn default() -> Series {
        Series::new()
    }
}

/// All these seconds as one; those of several kinds too.
#[must_use]
pub fn together<'a>(seconds: impl IntoIterator<Item = &'a Second>) -> Histogram<u32> {
    let mut all = Second::default().latency;
    for second in seconds {
        all.add(&second.latency).expect("the bounds are the same");
    }
    all
}

/// A percentile in milliseconds.
#[must_use]
pub fn ms(latency: &Histogram<u32>, percentile: f64) -> f64 {
    #[expect(
        clippy::cast_precision_loss,
        reason = "below two minutes in microseconds"
    )]
    let us = latency.value_at_quantile(percentile / 100.0) as f64;
    us / 1_000.0
}
