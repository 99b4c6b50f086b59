//! Latencies and errors, second by second.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

/// Longer is shown as this.
const LONGEST_US: u64 = 120_000_000;
/// Of every latency, that is, to one percent: a histogram a second and kind is kept.
const DIGITS: u8 = 2;

/// What was measured of one kind of request in one second.
#[derive(Debug, Clone)]
pub struct Second {
    /// How many answers came in it.
    pub answered: u64,
    /// Of what was due in it, whenever it was answered: µs from then. A stall thus stands where it held
    /// requests up, and not where it ended.
    pub latency: Histogram<u32>,
}

/// A time in which something was broken.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// What: `gateway-1`.
    pub target: String,
    /// How: `killed`.
    pub how: String,
    /// Seconds from the start of the run.
    pub from: f64,
    /// When it was whole again.
    pub to: f64,
    /// Why it could not be broken, or did not come back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

/// An error that a client saw.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fault {
    /// Seconds from the start of the run.
    pub at: f64,
    /// Which endpoint was asked: `gateway-1`, or its URL where nobody here knows which gateway that is.
    pub endpoint: String,
    /// Whether the connection broke, rather than the server answering with an error.
    pub connection: bool,
    /// What it was about.
    pub request: String,
}

/// Everything measured in a run.
#[derive(Debug)]
pub struct Series {
    start: Instant,
    /// The same moment by the clock of histories.
    start_us: u64,
    /// Of the endpoints.
    names: Vec<String>,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    seconds: BTreeMap<&'static str, Vec<Second>>,
    begun: BTreeMap<&'static str, u64>,
    faults: Vec<Fault>,
    spans: Vec<Span>,
}

impl Default for Second {
    fn default() -> Second {
        // Grows with what is recorded: an hour has thousands of these.
        let latency = Histogram::new(DIGITS);
        Second {
            answered: 0,
            latency: latency.expect("so many digits are allowed"),
        }
    }
}

impl Series {
    /// Begins now, with endpoints of these names.
    #[must_use]
    pub fn new(names: Vec<String>) -> Series {
        Series {
            start: Instant::now(),
            start_us: crate::clock::now_us(),
            names,
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
        let now = Instant::now();
        let whole = |then: Instant| {
            let since = then.saturating_duration_since(self.start);
            usize::try_from(since.as_secs()).unwrap_or(usize::MAX)
        };
        let (at, second) = (whole(now), whole(due));
        let us = u64::try_from((now - due).as_micros()).unwrap_or(LONGEST_US);
        self.with(|kept| {
            let seconds = kept.seconds.entry(what).or_default();
            if seconds.len() <= at {
                seconds.resize_with(at + 1, Second::default);
            }
            seconds[at].answered += 1;
            let latency = &mut seconds[second].latency;
            latency
                .record(us.clamp(1, LONGEST_US))
                .expect("it grows as far as that");
        });
    }

    /// A client saw an error of the endpoint of this position.
    pub fn fault(&self, what: &'static str, endpoint: usize, connection: bool) {
        let fault = Fault {
            at: self.start.elapsed().as_secs_f64(),
            endpoint: self.names.get(endpoint).cloned().unwrap_or_default(),
            connection,
            request: what.to_owned(),
        };
        self.with(|kept| kept.faults.push(fault));
    }

    /// Something was broken from one microsecond of the clock of histories to another.
    pub fn broke(&self, (target, how): (String, String), us: (u64, u64), trouble: Option<String>) {
        let since = |us: u64| Duration::from_micros(us.saturating_sub(self.start_us)).as_secs_f64();
        let span = Span {
            target,
            how,
            from: since(us.0),
            to: since(us.1),
            trouble,
        };
        self.with(|kept| kept.spans.push(span));
    }

    /// What was broken, in the order in which it began.
    #[must_use]
    pub fn spans(&self) -> Vec<Span> {
        let mut spans = self.with(|kept| kept.spans.clone());
        spans.sort_by(|one, other| one.from.total_cmp(&other.from));
        spans
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

/// All these seconds as one; those of several kinds too.
#[must_use]
pub fn together<'a>(seconds: impl IntoIterator<Item = &'a Second>) -> Histogram<u32> {
    let mut all = Second::default().latency;
    for second in seconds {
        all.add(&second.latency).expect("it grows as far as needed");
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
