//! How often Postgres is asked, with a count that is no more than a closure, and how long its answers are
//! good for, by a clock that is no more than a number.

use std::cell::{Cell, RefCell};

use futures::future::join_all;

use super::*;

const HOUR: Duration = Duration::from_secs(3600);
const ALICE: u64 = 1;
const ACME: u64 = 1_000_000;

/// Time passes by asking, not by itself.
fn timeless() -> LiveTasks {
    LiveTasks {
        times: Times {
            believed: HOUR,
            meanwhile: HOUR,
            full: HOUR,
            counting: HOUR,
        },
        ..LiveTasks::default()
    }
}

fn own(key: u64, max: u64) -> Limit {
    let whose = Whose::Principal;
    Limit { whose, key, max }
}

/// A principal of the tenant, with its limits of 10 and of 1,000.
fn of_acme(key: u64) -> [Limit; 2] {
    let tenant = Limit {
        whose: Whose::Tenant,
        key: ACME,
        max: 1_000,
    };
    [own(key, 10), tenant]
}

fn live(of_principal: u64, of_tenant: u64) -> Live {
    Live {
        of_principal,
        of_tenant,
    }
}

fn is_limited(taken: Result<(), Error>) -> Option<&'static str> {
    match taken {
        Ok(()) => None,
        Err(Error::Limited { what, retry_after }) => {
            assert!(
                retry_after >= Times::default().full,
                "it would come too early"
            );
            Some(what)
        }
        Err(other) => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_refusal_costs_no_further_count() {
    let (rooms, counts) = (timeless(), Cell::new(0));
    let count = |_, _| {
        counts.set(counts.get() + 1);
        async { Ok(live(10, 0)) }
    };
    for _ in 0..1_000 {
        let taken = rooms.take(&[own(ALICE, 10)], HOUR, count).await;
        assert_eq!(is_limited(taken), Some("live tasks"));
    }
    assert_eq!(counts.get(), 1);
}

#[tokio::test]
async fn who_is_full_takes_nothing_from_its_tenant() {
    let (rooms, asked) = (timeless(), RefCell::new(Vec::new()));
    let (alice, bob, carol) = (of_acme(ALICE), of_acme(2), of_acme(3));
    let take = async |limits: &[Limit], found: Live| {
        let count = |maxima, _| {
            asked.borrow_mut().push(maxima);
            async move { Ok(found) }
        };
        is_limited(rooms.take(limits, HOUR, count).await)
    };
    for _ in 0..100 {
        assert_eq!(take(&alice, live(10, 500)).await, Some("live tasks"));
    }
    for _ in 0..2 {
        assert_eq!(take(&bob, live(1, 0)).await, None);
        assert_eq!(take(&carol, live(1, 0)).await, None);
        assert_eq!(take(&alice, live(10, 0)).await, Some("live tasks"));
    }
    // Bob's room and Carol's are their own; their tenant's is known by Alice's count.
    assert_eq!(*asked.borrow(), [(10, 1_000), (10, 0), (10, 0)]);
}

#[tokio::test]
async fn a_full_tenant_is_counted_for_none_of_its_principals() {
    let (rooms, counts) = (timeless(), Cell::new(0));
    let count = |_, _| {
        counts.set(counts.get() + 1);
        async { Ok(live(1, 1_000)) }
    };
    for principal in 1..=100 {
        let taken = rooms.take(&of_acme(principal), HOUR, count).await;
        assert_eq!(is_limited(taken), Some("live tasks of your tenant"));
    }
    assert_eq!(counts.get(), 1);
    let elsewhere = rooms.take(&[own(101, 10)], HOUR, count).await;
    assert_eq!(is_limited(elsewhere), None);
}

#[tokio::test]
async fn of_a_crowd_that_finds_nothing_one_counts() {
    for (found, fit) in [(live(0, 0), 100), (live(1_000, 0), 0)] {
        let (rooms, counts) = (timeless(), Cell::new(0));
        let count = |_, _| {
            counts.set(counts.get() + 1);
            async move {
                tokio::task::yield_now().await;
                Ok(found)
            }
        };
        let limits = [own(ALICE, 1_000)];
        let crowd = (0..100).map(|_| rooms.take(&limits, HOUR, count));
        let taken = join_all(crowd).await.into_iter().map(is_limited);
        assert_eq!(taken.filter(Option::is_none).count(), fit);
        assert_eq!(counts.get(), 1);
    }
}

#[tokio::test]
async fn a_crowd_fills_its_room_by_a_quarter_at_a_time() {
    let (rooms, made, counts) = (timeless(), Cell::new(0), Cell::new(0));
    let count = |_, _| {
        counts.set(counts.get() + 1);
        async {
            tokio::task::yield_now().await;
            Ok(live(made.get(), 0))
        }
    };
    let call = async || {
        let taken = is_limited(rooms.take(&[own(ALICE, 40)], HOUR, count).await);
        made.set(made.get() + u64::from(taken.is_none()));
    };
    join_all((0..1_000).map(|_| call())).await;
    assert_eq!(made.get(), 40);
    assert!(counts.get() <= 20, "{} counts", counts.get());
}

#[tokio::test]
async fn who_counts_and_goes_away_holds_up_nobody() {
    let (rooms, counts) = (timeless(), Cell::new(0));
    let limits = [own(ALICE, 10)];
    let never = |_, _| std::future::pending();
    let count = |_, _| {
        counts.set(counts.get() + 1);
        async { Ok(live(0, 0)) }
    };
    let mut gone = Box::pin(rooms.take(&limits, HOUR, never));
    let mut waits = Box::pin(rooms.take(&limits, HOUR, count));
    assert!(futures::poll!(&mut gone).is_pending());
    assert!(futures::poll!(&mut waits).is_pending());
    assert_eq!(counts.get(), 0, "somebody counts already");
    drop(gone);
    assert_eq!(is_limited(waits.await), None);
    assert_eq!(counts.get(), 1);
}

#[tokio::test]
async fn a_failed_count_is_no_answer_and_the_next_one_counts() {
    let (rooms, counts) = (timeless(), Cell::new(0));
    let limits = [own(ALICE, 10)];
    let count = |_, _| {
        counts.set(counts.get() + 1);
        let fails = counts.get() == 1;
        async move {
            tokio::task::yield_now().await;
            match fails {
                true => Err(store::Error::Unavailable("away".into())),
                false => Ok(live(0, 0)),
            }
        }
    };
    let crowd = (0..2).map(|_| rooms.take(&limits, HOUR, count));
    let taken = join_all(crowd).await;
    assert!(matches!(&taken[0], Err(Error::Store(_))) && taken[1].is_ok());
    assert_eq!(counts.get(), 2);
}

#[tokio::test]
async fn nobody_waits_for_a_count_beyond_its_patience() {
    let rooms = timeless();
    let limits = [own(ALICE, 10)];
    let never = |_, _| std::future::pending();
    let mut hangs = Box::pin(rooms.take(&limits, HOUR, never));
    assert!(futures::poll!(&mut hangs).is_pending());
    let waits = rooms.take(&limits, Duration::from_millis(1), never);
    let waited = tokio::time::timeout(Duration::from_secs(20), waits).await;
    assert!(matches!(waited, Ok(Err(Error::Store(_)))), "{waited:?}");
}

/// What a look at this moment comes to, as one letter, and the count if it is to be made.
fn letter(look: Look<'_>) -> (char, Option<Count<'_>>) {
    match look {
        Look::Fits => ('f', None),
        Look::Full(_) => ('x', None),
        Look::Count(count) => ('c', Some(count)),
        Look::Wait(..) => ('w', None),
    }
}

#[test]
fn an_old_count_is_believed_a_little_longer_and_no_more() {
    let (rooms, start) = (LiveTasks::default(), Instant::now());
    let at = |ms| start + Duration::from_millis(ms);
    let look = |ms| letter(rooms.look(at(ms), &[own(ALICE, 1_000)]));
    let (first, count) = look(0);
    assert_eq!(first, 'c', "nobody has counted");
    count.unwrap().found(at(0), live(0, 0));
    for (ms, expected) in [(0, 'f'), (1_999, 'f')] {
        assert_eq!(look(ms).0, expected, "{ms}");
    }
    // One counts, the others go on by the old count.
    let (counting, count) = look(2_000);
    assert_eq!((counting, look(2_000).0, look(2_249).0), ('c', 'f', 'f'));
    assert_eq!(look(2_250).0, 'w', "too old: its answer is waited for");
    drop(count);
    // However often it fails, the old count ends when it ends.
    for ms in (2_000..2_250).step_by(10) {
        let (failing, count) = look(ms);
        assert_eq!((failing, look(ms).0), ('c', 'f'), "{ms}");
        drop(count);
    }
    for ms in [2_250, 2_251, 60_000] {
        let (counting, _count) = look(ms);
        assert_eq!((counting, look(ms).0), ('c', 'w'), "{ms}");
    }
}

#[test]
fn a_quarter_of_the_room_is_filled_before_it_is_counted_again() {
    let (rooms, start) = (LiveTasks::default(), Instant::now());
    for (free, quarter) in [(100, 25), (7, 1), (1, 1)] {
        let look = || letter(rooms.look(start, &[own(free, 1_000)]));
        look().1.unwrap().found(start, live(1_000 - free, 0));
        assert!((0..quarter).all(|_| look().0 == 'f'), "{free}");
        let (counting, _count) = look();
        assert_eq!((counting, look().0), ('c', 'w'), "{free}");
    }
}

#[test]
fn what_is_full_is_asked_again_after_a_second() {
    let (rooms, start) = (LiveTasks::default(), Instant::now());
    let at = |ms| start + Duration::from_millis(ms);
    let look = |ms| letter(rooms.look(at(ms), &[own(ALICE, 10)]));
    look(0).1.unwrap().found(at(5), live(10, 0));
    assert_eq!((look(5).0, look(1_004).0), ('x', 'x'));
    let (counting, count) = look(1_005);
    assert_eq!((counting, look(1_005).0), ('c', 'w'));
    count.unwrap().found(at(1_006), live(9, 0));
    assert_eq!(look(1_006).0, 'f');
}

#[test]
fn who_does_not_come_back_is_overtaken() {
    let (rooms, start) = (LiveTasks::default(), Instant::now());
    let at = |ms| start + Duration::from_millis(ms);
    let look = |ms| letter(rooms.look(at(ms), &[own(ALICE, 10)]));
    let slow = look(0).1.unwrap();
    assert_eq!(look(999).0, 'w');
    let faster = look(1_000).1.unwrap();
    faster.found(at(1_100), live(10, 0));
    assert_eq!(look(1_100).0, 'x');
    // It saw an earlier moment.
    slow.found(at(1_200), live(0, 0));
    assert_eq!(look(1_200).0, 'x');
}

#[test]
fn a_slow_count_is_an_answer_while_there_is_no_later_one() {
    let (rooms, start) = (LiveTasks::default(), Instant::now());
    let at = |ms| start + Duration::from_millis(ms);
    let look = |ms| letter(rooms.look(at(ms), &[own(ALICE, 10)]));
    let slow = look(0).1.unwrap();
    let other = look(1_000).1.unwrap();
    slow.found(at(1_500), live(0, 0));
    assert_eq!(look(1_500).0, 'f');
    drop(other);
    assert_eq!(look(1_500).0, 'f');
}

#[test]
fn who_has_not_come_for_long_is_forgotten() {
    let (rooms, start) = (LiveTasks::default(), Instant::now());
    let counting = letter(rooms.look(start, &[own(ALICE, 10)])).1.unwrap();
    for n in 0..10 * ROOMS_MIN as u64 {
        let now = start + Duration::from_secs(3 * n);
        let count = letter(rooms.look(now, &[own(1_000 + n, 10)])).1;
        count.unwrap().found(now, live(0, 0));
    }
    let known = rooms.lock().rooms.len();
    assert!(known <= ROOMS_MIN, "{known} rooms");
    counting.found(start, live(10, 0));
    assert_eq!(letter(rooms.look(start, &[own(ALICE, 10)])).0, 'x');
}
