//! Whatever the order: a task is left alone when its last caller goes away unanswered, then for
//! certain, and not while another one waits; and nothing stays in the register.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use protocol::TaskId;
use shuttle::future::block_on;
use shuttle::thread;
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;
use crate::waiters::{Unanswered, Waiters};

/// Orders of each scenario and of each kind; a few seconds in all.
const ORDERS: usize = 150;
/// In how many places an order may depart from "everyone runs as far as it can".
const DEPARTURES: usize = 3;

/// How a call ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Answered,
    GoneAway,
    /// It has a key to come back with.
    GoneAwayWithKey,
}

use End::{Answered, GoneAway, GoneAwayWithKey};

/// When the calls begin to wait.
#[derive(Clone, Copy, Debug)]
enum Begin {
    /// All of them before the first one ends.
    Together,
    /// While others end.
    AnyTime,
}

/// What happened, by a clock that counts. Outside of the scheduler's sight.
#[derive(Default)]
struct Log {
    clock: AtomicUsize,
    /// Calls that wait, and have not begun to end.
    waiting: AtomicUsize,
    last_end: AtomicUsize,
    /// When the task was told to stop, and how many waited for it.
    told: Mutex<Vec<(usize, usize)>>,
}

impl Log {
    fn now(&self) -> usize {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }
}

fn run(ends: &[End], begin: Begin) {
    let metrics = Metrics::default();
    let (waiters, mut left) = Waiters::new(metrics.clone());
    let (ended, log) = (CancellationToken::new(), Arc::new(Log::default()));
    let id = TaskId::new(0);

    let telling = {
        let (ended, log) = (ended.clone(), Arc::clone(&log));
        thread::spawn(move || {
            block_on(async {
                while let Some(ids) = left.next(&ended).await {
                    assert!(ids.iter().all(|left| *left == id));
                    let waiting = log.waiting.load(Ordering::SeqCst);
                    let mut told = log.told.lock().unwrap();
                    told.extend(ids.iter().map(|_| (log.now(), waiting)));
                }
            });
        })
    };
    let hold = |end: End| {
        let unanswered = match end {
            Answered | GoneAway => Unanswered::Abandon,
            GoneAwayWithKey => Unanswered::Keep,
        };
        let (waiters, log) = (Arc::clone(&waiters), Arc::clone(&log));
        move || {
            let holding = waiters.hold(id, unanswered);
            log.waiting.fetch_add(1, Ordering::SeqCst);
            holding
        }
    };
    let calls: Vec<_> = ends
        .iter()
        .map(|end| {
            let (end, hold, log) = (*end, hold(*end), Arc::clone(&log));
            let held = match begin {
                Begin::Together => Ok(hold()),
                Begin::AnyTime => Err(hold),
            };
            move || {
                let holding = held.unwrap_or_else(|hold| hold());
                thread::yield_now();
                log.waiting.fetch_sub(1, Ordering::SeqCst);
                log.last_end.store(log.now(), Ordering::SeqCst);
                match end {
                    Answered => holding.answered(),
                    GoneAway | GoneAwayWithKey => drop(holding),
                }
            }
        })
        .collect();
    if let Begin::Together = begin {
        assert_eq!(waiters.len(), 1);
    }
    let calls: Vec<_> = calls.into_iter().map(thread::spawn).collect();
    for call in calls {
        call.join().unwrap();
    }
    assert_eq!(waiters.ids(), [], "nothing stays to be renewed for ever");
    assert_eq!(metrics.held_calls.load(Ordering::SeqCst), 0);
    ended.cancel();
    telling.join().unwrap();

    let told = log.told.lock().unwrap();
    let last_end = log.last_end.load(Ordering::SeqCst);
    if ends.iter().all(|end| *end == GoneAway) {
        let last = told
            .last()
            .expect("the task is left alone, and nobody is told");
        assert!(last.0 > last_end, "told before its last caller went away");
    }
    if !ends.contains(&GoneAway) {
        assert!(told.is_empty(), "nobody went away for good");
    }
    if let Begin::Together = begin {
        assert!(told.len() <= 1, "told {} times", told.len());
        let waiting = told.iter().map(|(_, waiting)| *waiting).max();
        assert_eq!(waiting.unwrap_or(0), 0, "told while somebody waits");
    }
}

fn explore(ends: &'static [End]) {
    for begin in [Begin::Together, Begin::AnyTime] {
        shuttle::check_random(move || run(ends, begin), ORDERS);
        shuttle::check_pct(move || run(ends, begin), ORDERS, DEPARTURES);
    }
}

#[test]
fn a_task_whose_callers_all_go_away_is_left_alone() {
    explore(&[GoneAway]);
    explore(&[GoneAway, GoneAway]);
    explore(&[GoneAway, GoneAway, GoneAway]);
}

#[test]
fn answered_and_keyed_calls_leave_the_task_alone() {
    explore(&[Answered]);
    explore(&[GoneAwayWithKey]);
    explore(&[Answered, GoneAwayWithKey, Answered]);
}

#[test]
fn a_caller_that_goes_away_takes_nothing_from_another() {
    explore(&[GoneAway, Answered]);
    explore(&[GoneAway, Answered, GoneAway]);
    explore(&[GoneAway, GoneAwayWithKey, Answered]);
}
