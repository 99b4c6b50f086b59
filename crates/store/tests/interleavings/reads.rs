//! Whatever the order: nobody waits for ever, everybody gets the answer to the own question, and
//! whoever was let down is told so.

use std::collections::BTreeMap;
use std::future::pending;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;

use shuttle::future::{block_on, spawn, yield_now};

use crate::batch::{Asked, Batches, Limits};

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
    weight_max: 100,
    in_flight_max: 1,
    crowd: 1,
    waiting_max: 100,
};
/// No more than one waits while another is asked.
const NARROW: Limits = Limits {
    batch_max: 1,
    weight_max: 100,
    in_flight_max: 1,
    crowd: 1,
    waiting_max: 1,
};
const TWO_AT_ONCE: Limits = Limits {
    batch_max: 2,
    weight_max: 100,
    in_flight_max: 2,
    crowd: 1,
    waiting_max: 100,
};
/// A second round trip only for two.
const CROWDS: Limits = Limits {
    batch_max: 2,
    weight_max: 100,
    in_flight_max: 2,
    crowd: 2,
    waiting_max: 100,
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

/// Every other caller loses patience at some time.
async fn impatient(question: u32) {
    if question.is_multiple_of(2) {
        pending::<()>().await;
    }
    yield_now().await;
}

fn run(scenario: Scenario) {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let batches = Batches::<u32, u32>::new(scenario.limits, |_| 0);
    let ask = |question: u32| {
        let (batches, seen) = (batches.clone(), Arc::clone(&seen));
        spawn(async move {
            batches
                .ask(
                    question,
                    || impatient(question),
                    yield_now(),
                    |questions| round_trip(scenario, &seen, questions),
                )
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
            Asked::Answered(found) => {
                assert_eq!(found, answer(question), "somebody else's answer");
                assert_eq!(fate, Some(Fate::Answered));
            }
            Asked::Alone => assert!(
                matches!(fate, Some(Fate::Failed | Fate::Dropped)),
                "question {question} was given up though its round trip is {fate:?}"
            ),
            Asked::Full => {
                assert!(
                    scenario.callers as usize > scenario.limits.waiting_max,
                    "question {question} was shed though there was room"
                );
                assert_eq!(fate, None, "question {question} was shed, and asked");
            }
        }
    }
    for caller in callers {
        let _ = block_on(caller);
    }
    // Every turn came back.
    let last = scenario
        .limits
        .in_flight_max
        .min(scenario.limits.waiting_max);
    let last = (100..).take(last).map(ask);
    for caller in last.collect::<Vec<_>>() {
        let found = block_on(caller).unwrap();
        assert!(matches!(found, Asked::Answered(_)) || scenario.failing.is_some());
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
            let batches = Batches::<u32, u32>::new(scenario.limits, |_| 0);
            let found = block_on(batches.ask(7, pending::<()>, yield_now(), |questions| {
                round_trip(scenario, &seen, questions)
            }));
            assert_eq!(found, Asked::Answered(answer(7)));
            assert_eq!(seen.lock().unwrap().trips, 1);
        },
        None,
    );
}

#[test]
fn everybody_gets_the_answer_to_the_own_question() {
    for limits in [ONE_BY_ONE, TWO_AT_ONCE, CROWDS] {
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

/// One round trip never ends; whoever comes after it and loses patience is asked for beside it.
#[test]
fn one_that_hangs_holds_up_nobody_who_is_impatient() {
    let run = || {
        let batches = Batches::<u32, u32>::new(CROWDS, |_| 0);
        let hanging = async |_: Vec<u32>| pending::<Result<Vec<u32>, ()>>().await;
        let trip =
            async |questions: Vec<u32>| Ok::<_, ()>(questions.into_iter().map(answer).collect());
        block_on(async {
            let mut hangs = Box::pin(batches.ask(0, pending::<()>, yield_now(), hanging));
            assert!(poll(&mut hangs).await.is_pending());
            let other = batches.ask(1, yield_now, yield_now(), trip);
            assert_eq!(other.await, Asked::Answered(answer(1)));
        });
    };
    shuttle::check_dfs(run, None);
}

#[test]
fn a_caller_that_goes_away_lets_nobody_wait() {
    for limits in [ONE_BY_ONE, TWO_AT_ONCE, CROWDS] {
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

/// Patience ends more than once: who lost it while two round trips were in flight is asked for when one of
/// them is back, though the other one hangs and no crowd waits.
#[test]
fn who_was_impatient_while_all_were_busy_is_asked_for_later() {
    let run = || {
        let batches = Batches::<u32, u32>::new(CROWDS, |_| 0);
        let hanging = async |_: Vec<u32>| pending::<Result<Vec<u32>, ()>>().await;
        let begun = Mutex::new(false);
        let slow = async |questions: Vec<u32>| {
            *begun.lock().unwrap() = true;
            for _ in 0..3 {
                yield_now().await;
            }
            Ok::<_, ()>(questions.into_iter().map(answer).collect())
        };
        block_on(async {
            let mut hangs = Box::pin(batches.ask(0, pending::<()>, yield_now(), hanging));
            assert!(poll(&mut hangs).await.is_pending());
            let mut second = Box::pin(batches.ask(1, yield_now, yield_now(), slow));
            while !*begun.lock().unwrap() {
                assert!(poll(&mut second).await.is_pending());
            }
            let mut third = Box::pin(batches.ask(2, yield_now, yield_now(), slow));
            assert!(poll(&mut third).await.is_pending());
            assert!(poll(&mut third).await.is_pending(), "both are in flight");
            assert_eq!(second.await, Asked::Answered(answer(1)));
            assert_eq!(third.await, Asked::Answered(answer(2)));
        });
    };
    shuttle::check_dfs(run, None);
}

/// A question's weight is its number.
#[test]
fn what_is_heavy_has_less_company() {
    let run = || {
        let limits = Limits {
            batch_max: 10,
            ..ONE_BY_ONE
        };
        let batches = Batches::<u32, u32>::new(limits, |question| *question as usize);
        let trips = Mutex::new(Vec::<Vec<u32>>::new());
        let trip = async |questions: Vec<u32>| {
            trips.lock().unwrap().push(questions.clone());
            yield_now().await;
            Ok::<_, ()>(questions.into_iter().map(answer).collect())
        };
        block_on(async {
            let mut callers: Vec<_> = [7, 40, 60, 1, 1_000, 2, 3]
                .map(|question| {
                    (
                        question,
                        Box::pin(batches.ask(question, pending::<()>, yield_now(), trip)),
                    )
                })
                .into();
            for (_, caller) in &mut callers {
                assert!(poll(caller).await.is_pending());
            }
            for (question, caller) in callers {
                assert_eq!(caller.await, Asked::Answered(answer(question)));
            }
        });
        let trips = trips.into_inner().unwrap();
        assert_eq!(
            trips,
            [vec![7], vec![40, 60], vec![1], vec![1_000], vec![2, 3]]
        );
    };
    shuttle::check_dfs(run, None);
}

#[test]
fn a_round_trip_that_fails_lets_nobody_wait() {
    for limits in [ONE_BY_ONE, TWO_AT_ONCE, CROWDS] {
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

#[test]
fn what_finds_no_room_is_shed_and_not_asked() {
    for (callers, leaving) in [(2, 0), (4, 0), (4, 2)] {
        explore(Scenario {
            limits: NARROW,
            callers,
            leaving,
            failing: None,
        });
    }
}

/// Goes on as far as it can without waiting.
async fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    std::future::poll_fn(|context| Poll::Ready(Pin::new(&mut *future).poll(context))).await
}

/// Whoever went away before the own turn leaves nothing behind: it is not asked for, and takes nobody's
/// place.
#[test]
fn who_went_away_before_the_own_turn_is_not_asked_for() {
    shuttle::check_dfs(
        || {
            let asked = Arc::new(Mutex::new(Vec::<u32>::new()));
            let batches = Batches::<u32, u32>::new(NARROW, |_| 0);
            let ask = |question: u32| {
                let (batches, asked) = (batches.clone(), Arc::clone(&asked));
                async move {
                    let round_trip = async |questions: Vec<u32>| {
                        asked.lock().unwrap().extend(&questions);
                        yield_now().await;
                        Ok::<_, ()>(questions.into_iter().map(answer).collect())
                    };
                    batches
                        .ask(question, pending::<()>, yield_now(), round_trip)
                        .await
                }
            };
            block_on(async {
                let mut leader = Box::pin(ask(1));
                assert!(poll(&mut leader).await.is_pending());
                let mut gone = Box::pin(ask(2));
                assert!(poll(&mut gone).await.is_pending());
                let mut shed = Box::pin(ask(3));
                assert_eq!(poll(&mut shed).await, Poll::Ready(Asked::Full));
                drop(gone);
                let mut next = Box::pin(ask(4));
                assert!(poll(&mut next).await.is_pending());
                assert_eq!(leader.await, Asked::Answered(answer(1)));
                assert_eq!(next.await, Asked::Answered(answer(4)));
            });
            assert_eq!(*asked.lock().unwrap(), [1, 4]);
        },
        None,
    );
}
