//! Whether more waits than was given out: whoever is told that nothing is left takes what it has in any
//! order, so that must be true.

use std::time::{Duration, Instant};

use futures::FutureExt as _;
use queue::{Config, Consumer, Lane, Taken};

use crate::support::*;

/// Nobody takes over what others left: that is another read.
async fn start() -> (harness::redis::Redis, Process) {
    let redis = harness::redis::Redis::temporary().await.unwrap();
    let config = Config {
        reclaim_interval: Duration::from_secs(600),
        ..config(&redis)
    };
    let process = connect(config).await;
    (redis, process)
}

async fn next(consumer: &mut Consumer, max: usize) -> Taken {
    let deadline = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < deadline, "no hint came");
        let taken = consumer.next(max).await.unwrap();
        if !taken.hints.is_empty() {
            return taken;
        }
    }
}

/// Takes all hints, for so many places at a time, and looks each time whether it is told of those that
/// are left.
async fn is_told(
    process: &Process,
    lanes: &[Lane],
    consumer: &mut Consumer,
    places: impl Iterator<Item = usize>,
) {
    for max in places {
        let left = async || {
            let mut left = 0;
            for lane in lanes {
                left += process.queue.depth(lane).await.unwrap();
            }
            left
        };
        let before = left().await;
        if before == 0 {
            return;
        }
        let taken = next(consumer, max).await;
        let left = left().await;
        assert!(
            taken.more || left == 0,
            "{} for {max} places, and {left} are left",
            taken.hints.len()
        );
        for hint in taken.hints {
            consumer.ack_owned(hint).await;
        }
    }
}

#[tokio::test]
async fn a_read_that_was_begun_for_fewer_places_tells_of_the_others() {
    let (_redis, process) = start().await;
    let lane = lane("a");
    process.push(&lane, 200).await;
    let mut consumer = process.queue.consumer(vec![lane]);
    let _held = take(&mut consumer, 3).await;
    for _ in 0..20 {
        // One place came free; then more did, and the call was dropped.
        assert!(consumer.next(1).now_or_never().is_none());
        let taken = next(&mut consumer, 3).await;
        assert_eq!(taken.hints.len(), 1, "as it was begun");
        assert!(taken.more, "more than a hundred wait");
    }
}

#[tokio::test]
async fn a_shard_with_little_says_nothing_of_the_others() {
    for count in [1, 2, 5, 40] {
        let (_redis, process) = start().await;
        let lanes = [lane("a"), lane("b")];
        for lane in &lanes {
            process.push(lane, count).await;
        }
        let mut consumer = process.queue.consumer(lanes.to_vec());
        let places = [1, 2, 3, 7].into_iter().cycle();
        is_told(&process, &lanes, &mut consumer, places).await;
    }
}

#[tokio::test]
async fn who_was_full_knows_nothing_of_what_came_meanwhile() {
    let (_redis, process) = start().await;
    let lanes = [lane("a")];
    let mut consumer = process.queue.consumer(lanes.to_vec());
    for places in [1, 50] {
        nothing(&mut consumer, Duration::from_millis(300)).await;
        process.push(&lanes[0], 1).await;
        assert_eq!(next(&mut consumer, 1).await.hints.len(), 1);
        // It is full now, and does not read.
        process.push(&lanes[0], 12).await;
        let places = std::iter::repeat(places);
        is_told(&process, &lanes, &mut consumer, places).await;
    }
}

/// Or all would be taken by turn, which costs more.
#[tokio::test]
async fn where_places_are_free_a_new_hint_is_soon_known_to_be_the_only_one() {
    let (_redis, process) = start().await;
    let lane = lane("a");
    let mut consumer = process.queue.consumer(vec![lane.clone()]);
    let deadline = Instant::now() + PATIENCE;
    let mut alone = 0;
    while alone < 5 {
        assert!(Instant::now() < deadline, "{alone} were alone");
        process.push(&lane, 1).await;
        let taken = next(&mut consumer, 10).await;
        alone += usize::from(!taken.more);
    }
}
