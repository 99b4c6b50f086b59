//! Whatever the order: nobody waits for ever, everybody gets the answer to the own question, and
//! whoever was let down is told so.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use shuttle::future::{block_on, spawn, yield_now};

use crate::batch::{Batches, Limits};

/// Orders of each scenario and of each kind; a few seconds in all.
const ORDERS: usize = 300;
/// In how many places an order may depart from "everyone runs as far as it can".
const DEPARTURES: usize = 3;

/// How a round trip ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Answered,
    Failed,
    /// Whoever led it was dropped.
    Dropped,
}

/// What the other side of the round trips saw. Outside of the scheduler's sight.
#[derive(Default)]
struct Seen {
    in_flight: usize,
    trips: usize,
    fates: BTreeMap<u32, Fate>,
}

#[derive(Clone, Copy)]
struct Scenario {
    limits: Limits,
    callers: u32,
    /// The first so many go away at any time.
    leaving: u32,
    /// This round trip fails.
    failing: Option<usize>,
}

const ONE_BY_ONE: Limits = Limits {
    batch_max: 2,
    in_flight_max: 1,
};
const TWO_AT_ONCE: Limits = Limits {
    batch_max: 2,
    in_flight_max: 2,
};

fn answer(question: u32) -> u32 {
    question * 10 + 1
}

/// A round trip that is dropped with its leader leaves this behind.
struct Trip<'a> {
    seen: &'a Mutex<Seen>,
    questions: Vec<u32>,
    fate: Fate,
}

impl Drop for Trip<'_> {
    fn drop(&mut self) {
        let mut seen = self.seen.lock().unwrap();
        seen.in_flight -= 1;
        for question in &self.questions {
            let earlier = seen.fates.insert(*question, self.fate);
            assert_eq!(earlier, None, "question {question} was asked twice");
        }
    }
}

async fn round_trip(
    scenario: Scenario,
    seen: &Mutex<Seen>,
    questions: Vec<u32>,
) -> Result<Vec<u32>, ()> {
    assert!(!questions.is_empty(), "a round trip for nobody");
    assert!(questions.len() <= scenario.limits.batch_max);
    let this = {
        let mut seen = seen.lock().unwrap();
        seen.in_flight += 1;
        seen.trips += 1;
        assert!(seen.in_flight <= scenario.limits.in_flight_max);
        seen.trips - 1
    };
    let mut trip = Trip {
        seen,
        questions,
        fate: Fate::Dropped,
    };
    yield_now().await;
    if scenario.failing == Some(this) {
        trip.fate = Fate::Failed;
        return Err(());
    }
    trip.fate = Fate::Answered;
    Ok(trip.questions.iter().copied().map(answer).collect())
}

fn run(scenario: Scenario) {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let batches = Batches::<u32, u32>::new(scenario.limits);
    let ask = |question: u32| {
        let (batches, seen) = (batches.clone(), Arc::clone(&seen));
        spawn(async move {
            batches
                .ask(question, |questions| round_trip(scenario, &seen, questions))
                .await
        })
    };
    let mut callers: Vec<_> = (0..scenario.callers).map(ask).collect();
    let staying = callers.split_off(scenario.leaving as usize);
    for caller in &callers {
        caller.abort();
    }
    for (question, caller) in (scenario.leaving..).zip(staying) {
        let found = block_on(caller).unwrap();
        let fate = seen.lock().unwrap().fates.get(&question).copied();
        match found {
            Some(found) => {
                assert_eq!(found, answer(question), "somebody else's answer");
                assert_eq!(fate, Some(Fate::Answered));
            }
            None => assert!(
                matches!(fate, Some(Fate::Failed | Fate::Dropped)),
                "question {question} was given up though its round trip is {fate:?}"
            ),
        }
    }
    for caller in callers {
        let _ = block_on(caller);
    }
    // Every turn came back.
    let last = (100..).take(scenario.limits.in_flight_max).map(ask);
    for caller in last.collect::<Vec<_>>() {
        assert!(block_on(caller).unwrap().is_some() || scenario.failing.is_some());
    }
    assert_eq!(seen.lock().unwrap().in_flight, 0);
}

/// In orders chosen at random, and in those that depart from the straight one in few places.
fn explore(scenario: Scenario) {
    shuttle::check_random(move || run(scenario), ORDERS);
    shuttle::check_pct(move || run(scenario), ORDERS, DEPARTURES);
}

#[test]
fn a_lone_question_is_asked_at_once_and_alone() {
    shuttle::check_dfs(
        || {
            let scenario = Scenario {
                limits: TWO_AT_ONCE,
                callers: 1,
                leaving: 0,
                failing: None,
            };
            let seen = Mutex::new(Seen::default());
            let batches = Batches::<u32, u32>::new(scenario.limits);
            let found =
                block_on(batches.ask(7, |questions| round_trip(scenario, &seen, questions)));
            assert_eq!(found, Some(answer(7)));
            assert_eq!(seen.lock().unwrap().trips, 1);
        },
        None,
    );
}

#[test]
fn everybody_gets_the_answer_to_the_own_question() {
    for limits in [ONE_BY_ONE, TWO_AT_ONCE] {
        for callers in [2, 3, 5] {
            explore(Scenario {
                limits,
                callers,
                leaving: 0,
                failing: None,
            });
        }
    }
}

#[test]
fn a_caller_that_goes_away_lets_nobody_wait() {
    for limits in [ONE_BY_ONE, TWO_AT_ONCE] {
        for (callers, leaving) in [(2, 1), (4, 1), (4, 2)] {
            explore(Scenario {
                limits,
                callers,
                leaving,
                failing: None,
            });
        }
    }
}

#[test]
fn a_round_trip_that_fails_lets_nobody_wait() {
    for limits in [ONE_BY_ONE, TWO_AT_ONCE] {
        for failing in [0, 1] {
            explore(Scenario {
                limits,
                callers: 4,
                leaving: 1,
                failing: Some(failing),
            });
        }
    }
}
