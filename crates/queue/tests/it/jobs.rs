//! Hints from push to ack.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use harness::redis::Redis;
use queue::Config;

use crate::support::*;

#[tokio::test]
async fn pushed_hints_are_taken_acknowledged_and_gone() {
    let (redis, process) = start().await;
    let (a, b) = (lane("a"), lane("b"));
    let mut expected = process.push(&a, 50).await;
    expected.extend(process.push(&b, 50).await);
    assert_eq!(process.queue.depth(&a).await.unwrap(), 50);
    let mut consumer = process.queue.consumer(vec![a.clone(), b.clone()]);
    let hints = take(&mut consumer, 100).await;
    assert_eq!(ids(&hints), sorted(expected));
    assert_eq!(hints.iter().filter(|hint| hint.lane == a).count(), 50);
    assert_eq!(
        process.queue.depth(&a).await.unwrap(),
        0,
        "delivered ones no longer wait"
    );
    assert_eq!(process.metric("mcp_tasks_queue_hints_held"), 100.0);
    let standing = queue::Standing {
        entries: 50,
        pending: 50,
        consumers: 1,
    };
    let streams = process.queue.streams().await.unwrap();
    assert_eq!(streams, [(a.clone(), standing), (b.clone(), standing)]);
    for hint in &hints {
        consumer.ack(hint).await;
    }
    drop(hints);
    assert_eq!(entries(&redis).await, 0, "acknowledging deletes");
    assert_eq!(process.metric("mcp_tasks_queue_hints_held"), 0.0);
    assert_eq!(
        process.metric("mcp_tasks_queue_returns_total{outcome=\"acked\"}"),
        100.0
    );
}

#[tokio::test]
async fn a_waiting_consumer_hears_of_a_push_at_once() {
    let (_redis, process) = start().await;
    let lane = lane("a");
    let mut consumer = process.queue.consumer(vec![lane.clone()]);
    nothing(&mut consumer, Duration::from_millis(600)).await;
    let pusher = process.queue.clone();
    let id = new_id();
    let pushing = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        pusher.push(&lane, id).await.unwrap();
        Instant::now()
    };
    let (pushed_at, hints) = tokio::join!(pushing, take(&mut consumer, 1));
    assert_eq!(hints[0].id, id);
    assert!(
        pushed_at.elapsed() < Duration::from_millis(200),
        "{:?}",
        pushed_at.elapsed()
    );
}

/// A wait that brings one hint where it might have brought two says that nothing else is there.
#[tokio::test]
async fn hints_that_come_one_by_one_are_waited_for_and_not_looked_for() {
    let redis = Redis::temporary().await.unwrap();
    let process = connect(Config {
        // A wait in vain is followed by a look.
        block: Duration::from_secs(10),
        reclaim_interval: Duration::from_secs(10),
        probe_interval: Duration::from_secs(10),
        ..config(&redis)
    })
    .await;
    let lanes = vec![lane("a"), lane("b"), lane("c")];
    let mut consumer = process.queue.consumer(lanes.clone());
    for (looks, free, pushes) in [(0..8, 100, 40), (20..200, 10, 40)] {
        // Connects, looks at each shard, and waits.
        let waits = tokio::time::timeout(Duration::from_millis(300), consumer.next(free));
        assert!(waits.await.is_err());
        let () = ask(&redis, &["CONFIG", "RESETSTAT"]).await;
        for n in 0..pushes {
            let pushed = process.push(&lanes[n % 3], 1).await;
            let taken = consumer.next(free).await.unwrap().hints;
            assert_eq!(ids(&taken), pushed);
            // The next operation begins.
            let none = tokio::time::timeout(Duration::from_millis(5), consumer.next(free));
            assert!(none.await.is_err());
        }
        let stats: String = ask(&redis, &["INFO", "commandstats"]).await;
        let scripts = stats
            .lines()
            .find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="))
            .and_then(|rest| rest.split(',').next()?.parse::<usize>().ok());
        let looked = scripts.unwrap() - pushes;
        assert!(looks.contains(&looked), "{looked} looks, {free} places");
    }
}

#[tokio::test]
async fn waiting_reads_do_not_hold_up_commands() {
    let (_redis, process) = start().await;
    let other = lane("other");
    let mut consumer = process.queue.consumer(vec![lane("a")]);
    let pushing = async {
        for _ in 0..200 {
            let started = Instant::now();
            process.queue.push(&other, new_id()).await.unwrap();
            assert!(
                started.elapsed() < Duration::from_millis(200),
                "{:?}",
                started.elapsed()
            );
        }
    };
    tokio::join!(pushing, nothing(&mut consumer, Duration::from_millis(300)));
}

#[tokio::test]
async fn two_consumers_never_get_one_hint_twice() {
    let (redis, process) = start().await;
    let other = connect(config(&redis)).await;
    let lane = lane("a");
    let mut consumers = [
        process.queue.consumer(vec![lane.clone()]),
        other.queue.consumer(vec![lane.clone()]),
    ];
    let [first, second] = &mut consumers;
    let drain = async |consumer: &mut queue::Consumer| {
        let mut hints = Vec::new();
        loop {
            let more = consumer.next(7).await.unwrap().hints;
            if more.is_empty() && hints.len() > 20 {
                return hints;
            }
            hints.extend(more);
        }
    };
    let (expected, one, two) = tokio::join!(process.push(&lane, 400), drain(first), drain(second));
    let mut all = ids(&one);
    all.extend(ids(&two));
    assert_eq!(sorted(all), sorted(expected));
}

#[tokio::test]
async fn a_full_consumer_keeps_nothing_from_others() {
    let (redis, process) = start().await;
    let other = connect(config(&redis)).await;
    let lane = lane("a");
    let mut full = process.queue.consumer(vec![lane.clone()]);
    let mut idle = other.queue.consumer(vec![lane.clone()]);
    // The full one waits on all shards when its one free place is taken.
    nothing(&mut full, Duration::from_millis(100)).await;
    let (expected, held) = tokio::join!(process.push(&lane, 20), take(&mut full, 1));
    let rest = take(&mut idle, 19).await;
    let all: HashSet<_> = ids(&held).into_iter().chain(ids(&rest)).collect();
    assert_eq!(all, expected.into_iter().collect());
    assert_eq!(pending(&redis).await[full.name()], 1);
}

#[tokio::test]
async fn the_limit_holds_over_streams_and_shards() {
    let (redis, process) = start().await;
    let lanes = vec![lane("a"), lane("b"), lane("c")];
    for lane in &lanes {
        process.push(lane, 20).await;
    }
    let mut consumer = process.queue.consumer(lanes);
    let mut taken = 0;
    while taken < 60 {
        let hints = consumer.next(7).await.unwrap().hints;
        assert!(hints.len() <= 7);
        taken += hints.len();
        let pending = pending(&redis).await[consumer.name()];
        for hint in &hints {
            consumer.ack(hint).await;
        }
        assert_eq!(
            pending,
            hints.len() as u64,
            "more is pending than was given out"
        );
    }
    let handed_back = "mcp_tasks_queue_returns_total{outcome=\"handed_back\"}";
    assert_eq!(
        process.metric(handed_back),
        0.0,
        "more was taken than asked for"
    );
    assert!(consumer.next(0).await.unwrap().hints.is_empty());
}

#[tokio::test]
async fn a_dropped_call_loses_nothing() {
    let (_redis, process) = start().await;
    let lane = lane("a");
    let mut consumer = process.queue.consumer(vec![lane.clone()]);
    let mut expected = Vec::new();
    let mut hints = Vec::new();
    for round in 0..100_u64 {
        expected.extend(process.push(&lane, 1).await);
        let patience = Duration::from_micros(round * 20);
        if let Ok(more) = tokio::time::timeout(patience, consumer.next(10)).await {
            hints.extend(more.unwrap().hints);
        }
    }
    let left = expected.len() - hints.len();
    hints.extend(take(&mut consumer, left).await);
    assert_eq!(ids(&hints), sorted(expected));
}

#[tokio::test]
async fn a_hint_whose_delivery_was_lost_is_read_again() {
    let (redis, process) = start().await;
    let lane = lane("a");
    let mut consumer = process.queue.consumer(vec![lane.clone()]);
    nothing(&mut consumer, Duration::from_millis(100)).await;
    let held_ids = process.push(&lane, 3).await;
    let held = take(&mut consumer, 3).await;
    assert_eq!(ids(&held), sorted(held_ids));
    // Delivered to this consumer, as by a read whose reply never arrived.
    consumer.set_lanes(Vec::new()).await;
    let lost = process.push(&lane, 5).await;
    for stream in streams(&redis).await {
        let group = [
            "XREADGROUP",
            "GROUP",
            "workers",
            consumer.name(),
            "STREAMS",
            &stream,
            ">",
        ];
        ask::<redis::Value>(&redis, &group).await;
    }
    consumer.set_lanes(vec![lane]).await;
    let killed: u64 = ask(&redis, &["CLIENT", "KILL", "TYPE", "normal"]).await;
    assert!(killed >= 4);
    let again = take(&mut consumer, 5).await;
    assert_eq!(
        ids(&again),
        sorted(lost),
        "those in hand are not given out twice"
    );
    nothing(&mut consumer, Duration::from_millis(600)).await;
    assert_eq!(
        process.metric("mcp_tasks_queue_hints_total{source=\"recovered\"}"),
        5.0
    );
}

#[tokio::test]
async fn what_a_dead_consumer_left_is_reclaimed() {
    let (redis, process) = start().await;
    let lane = lane("a");
    let mut dead = process.queue.consumer(vec![lane.clone()]);
    let expected = process.push(&lane, 5).await;
    drop((take(&mut dead, 5).await, dead));
    let quick = Config {
        reclaim_idle: Duration::from_millis(200),
        ..config(&redis)
    };
    let heir = connect(quick).await;
    let mut heir_consumer = heir.queue.consumer(vec![lane]);
    let hints = take(&mut heir_consumer, 5).await;
    assert_eq!(ids(&hints), sorted(expected));
    assert_eq!(
        heir.metric("mcp_tasks_queue_hints_total{source=\"reclaimed\"}"),
        5.0
    );
    // In hand, they are not reclaimed from oneself.
    nothing(&mut heir_consumer, Duration::from_millis(800)).await;
}

#[tokio::test]
async fn long_jobs_in_hand_do_not_keep_a_consumer_from_reclaiming() {
    let redis = harness::redis::Redis::temporary().await.unwrap();
    let slow = Config {
        shards: 1,
        ..config(&redis)
    };
    let quick = Config {
        reclaim_idle: Duration::from_millis(200),
        ..slow.clone()
    };
    let (heir, other) = (connect(quick).await, connect(slow).await);
    let lane = lane("a");
    let mut busy = heir.queue.consumer(vec![lane.clone()]);
    heir.push(&lane, 5).await;
    let long = take(&mut busy, 5).await;
    let mut dead = other.queue.consumer(vec![lane.clone()]);
    let left = heir.push(&lane, 1).await;
    drop((take(&mut dead, 1).await, dead));
    assert_eq!(ids(&take(&mut busy, 1).await), left);
    drop(long);
}

#[tokio::test]
async fn a_hint_taken_over_meanwhile_is_not_acknowledged_by_its_former_owner() {
    let (redis, process) = start().await;
    let lane = lane("a");
    let mut slow = process.queue.consumer(vec![lane.clone()]);
    process.push(&lane, 1).await;
    let old = take(&mut slow, 1).await;
    let quick = Config {
        reclaim_idle: Duration::from_millis(100),
        ..config(&redis)
    };
    let heir = connect(quick).await;
    let mut heir_consumer = heir.queue.consumer(vec![lane]);
    let new = take(&mut heir_consumer, 1).await;
    slow.ack(&old[0]).await;
    assert_eq!(pending(&redis).await[heir_consumer.name()], 1);
    assert_eq!(
        process.metric("mcp_tasks_queue_returns_total{outcome=\"not_ours\"}"),
        1.0
    );
    heir_consumer.ack(&new[0]).await;
    assert_eq!(entries(&redis).await, 0);
}

#[tokio::test]
async fn a_hint_that_was_dropped_comes_back() {
    let (redis, _process) = start().await;
    let quick = Config {
        reclaim_idle: Duration::from_millis(100),
        ..config(&redis)
    };
    let process = connect(quick).await;
    let lane = lane("a");
    let mut consumer = process.queue.consumer(vec![lane.clone()]);
    let expected = process.push(&lane, 1).await;
    drop(take(&mut consumer, 1).await);
    let again = take(&mut consumer, 1).await;
    assert_eq!(ids(&again), expected);
}

#[tokio::test]
async fn a_hint_handed_back_goes_to_another() {
    let (redis, process) = start().await;
    let lane = lane("a");
    let mut leaving = process.queue.consumer(vec![lane.clone()]);
    let expected = process.push(&lane, 3).await;
    for hint in take(&mut leaving, 3).await {
        leaving.hand_back(hint).await;
    }
    leaving.close().await;
    assert!(
        pending(&redis).await.is_empty(),
        "nothing pending, so the consumer is gone"
    );
    let mut other = process.queue.consumer(vec![lane]);
    assert_eq!(ids(&take(&mut other, 3).await), sorted(expected));
}

#[tokio::test]
async fn a_consumer_that_stopped_gets_nothing_more() {
    let (redis, process) = start().await;
    let lane = lane("a");
    let mut stopping = process.queue.consumer(vec![lane.clone()]);
    nothing(&mut stopping, Duration::from_millis(100)).await;
    stopping.stop().await;
    let expected = process.push(&lane, 20).await;
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert_eq!(pending(&redis).await.values().sum::<u64>(), 0);
    let mut other = process.queue.consumer(vec![lane]);
    assert_eq!(ids(&take(&mut other, 20).await), sorted(expected));
    stopping.close().await;
}

#[tokio::test]
async fn closing_keeps_a_consumer_that_has_something_pending() {
    let (redis, process) = start().await;
    let lane = lane("a");
    let mut consumer = process.queue.consumer(vec![lane.clone()]);
    let name = consumer.name().to_owned();
    process.push(&lane, 1).await;
    let hints = take(&mut consumer, 1).await;
    consumer.close().await;
    assert_eq!(pending(&redis).await.get(&name), Some(&1));
    drop(hints);
}

#[tokio::test]
async fn only_consumers_without_pending_hints_are_reaped() {
    let (redis, process) = start().await;
    let (a, b) = (lane("a"), lane("b"));
    let mut idle = process.queue.consumer(vec![b.clone()]);
    process.push(&b, 1).await;
    let hint = take(&mut idle, 1).await.remove(0);
    idle.ack(&hint).await;
    drop((hint, idle));
    let mut busy = process.queue.consumer(vec![a.clone()]);
    let name = busy.name().to_owned();
    process.push(&a, 1).await;
    let hints = take(&mut busy, 1).await;
    drop((hints, busy));
    let an_hour = Duration::from_secs(3600);
    assert_eq!(process.queue.reap_consumers(an_hour).await.unwrap(), 0);
    assert!(!streams(&redis).await.is_empty());
    // Redis counts the use of a stream in whole seconds.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let a_second = Duration::from_secs(1);
    assert_eq!(process.queue.reap_consumers(a_second).await.unwrap(), 1);
    assert_eq!(
        pending(&redis).await.into_iter().collect::<Vec<_>>(),
        [(name, 1)]
    );
    let left = streams(&redis).await;
    assert!(
        left.iter().all(|stream| stream.contains(":jobs:a:")),
        "{left:?}"
    );
    // A reaped lane works as before.
    let mut consumer = process.queue.consumer(vec![b.clone()]);
    let expected = process.push(&b, 2).await;
    assert_eq!(ids(&take(&mut consumer, 2).await), sorted(expected));
}

#[tokio::test]
async fn many_short_lived_consumers_leave_nothing_behind() {
    let (redis, process) = start().await;
    let lane = lane("a");
    for _ in 0..20 {
        process.push(&lane, 1).await;
        let mut consumer = process.queue.consumer(vec![lane.clone()]);
        let hints = take(&mut consumer, 1).await;
        consumer.ack(&hints[0]).await;
        consumer.close().await;
    }
    assert!(pending(&redis).await.is_empty());
    assert_eq!(entries(&redis).await, 0);
}

#[tokio::test]
async fn a_consumer_reads_its_own_lanes_only() {
    let (_redis, process) = start().await;
    let (a, b) = (lane("a"), lane("b"));
    let mut consumer = process.queue.consumer(vec![a.clone()]);
    let for_b = process.push(&b, 3).await;
    nothing(&mut consumer, Duration::from_millis(600)).await;
    consumer.set_lanes(vec![b.clone()]).await;
    let hints = take(&mut consumer, 3).await;
    assert_eq!(ids(&hints), sorted(for_b));
    assert!(hints.iter().all(|hint| hint.lane == b));
    process.push(&a, 3).await;
    nothing(&mut consumer, Duration::from_millis(600)).await;
    consumer.set_lanes(Vec::new()).await;
    nothing(&mut consumer, Duration::from_millis(600)).await;
}

#[tokio::test]
async fn an_entry_without_a_task_id_is_dropped() {
    let (redis, process) = start().await;
    let lane = lane("a");
    let expected = process.push(&lane, 1).await;
    let stream = streams(&redis).await.remove(0);
    ask::<String>(&redis, &["XADD", &stream, "*", "task", "../../etc"]).await;
    let mut consumer = process.queue.consumer(vec![lane]);
    let hints = take(&mut consumer, 1).await;
    assert_eq!(ids(&hints), expected);
    nothing(&mut consumer, Duration::from_millis(600)).await;
    assert_eq!(entries(&redis).await, 1);
    assert_eq!(
        process.metric("mcp_tasks_queue_malformed_entries_total"),
        1.0
    );
}

#[tokio::test]
async fn a_consumer_that_waited_long_hears_at_once_over_the_connection_it_has() {
    let redis = harness::redis::Redis::temporary().await.unwrap();
    // The waits as they come: longer than any client library waits for an answer by itself.
    let defaults = Config {
        url: redis.url(),
        ..Config::default()
    };
    let process = connect(defaults).await;
    let lane = lane("a");
    let mut consumer = process.queue.consumer(vec![lane.clone()]);
    nothing(&mut consumer, Duration::from_secs(4)).await;
    let connects = || process.metric("mcp_tasks_queue_connects_total{link=\"reader\"}");
    assert_eq!(connects(), 4.0, "one for each shard");
    let pushing = async {
        tokio::time::sleep(Duration::from_millis(700)).await;
        let id = process.push(&lane, 1).await[0];
        (Instant::now(), id)
    };
    let ((pushed, id), hints) = tokio::join!(pushing, take(&mut consumer, 1));
    let took = pushed.elapsed();
    assert!(took < Duration::from_millis(300), "{took:?}");
    assert_eq!(ids(&hints), [id]);
    assert_eq!(connects(), 4.0, "no read was given up");
}

/// Redis starts a wait anew when another consumer snatched the entry that ended it, so a wait may
/// last much longer than it says.
#[tokio::test]
async fn a_wait_that_redis_prolongs_is_no_failure() {
    let redis = harness::redis::Redis::temporary().await.unwrap();
    let one_shard = Config {
        shards: 1,
        ..config(&redis)
    };
    let (process, other) = (connect(one_shard.clone()).await, connect(one_shard).await);
    let lane = lane("a");
    let mut first = process.queue.consumer(vec![lane.clone()]);
    let mut second = other.queue.consumer(vec![lane.clone()]);
    let end = Instant::now() + Duration::from_secs(3);
    let reading = async |consumer: &mut queue::Consumer| {
        let mut taken = 0;
        while Instant::now() < end {
            for hint in consumer.next(10).await.unwrap().hints {
                consumer.ack(&hint).await;
                taken += 1;
            }
        }
        taken
    };
    let pushing = async {
        let mut pushed = 0;
        // Just before a wait of 500 ms would end.
        while Instant::now() + Duration::from_millis(450) < end {
            tokio::time::sleep(Duration::from_millis(400)).await;
            process.push(&lane, 1).await;
            pushed += 1;
        }
        pushed
    };
    let (pushed, one, two) = tokio::join!(pushing, reading(&mut first), reading(&mut second));
    assert_eq!(one + two, pushed);
    for process in [&process, &other] {
        for kind in ["timeout", "connection", "refused"] {
            let line = format!("mcp_tasks_queue_read_errors_total{{kind=\"{kind}\"}}");
            assert_eq!(process.metric(&line), 0.0, "{kind}");
        }
        let line = "mcp_tasks_queue_connects_total{link=\"reader\"}";
        assert_eq!(process.metric(line), 1.0, "no read was given up");
    }
}

#[tokio::test]
async fn a_backlog_is_never_trimmed_and_leaves_nothing_behind() {
    let redis = harness::redis::Redis::temporary().await.unwrap();
    // A thousand pushes at once may take a while.
    let patient = Config {
        command_timeout: Duration::from_secs(10),
        ..config(&redis)
    };
    let process = connect(patient).await;
    let lane = lane("a");
    let mut expected = Vec::new();
    for _ in 0..20 {
        let pushes = (0..1_000).map(|_| process.push(&lane, 1));
        expected.extend(futures::future::join_all(pushes).await.concat());
    }
    assert_eq!(entries(&redis).await, 20_000);
    assert_eq!(process.queue.depth(&lane).await.unwrap(), 20_000);
    let mut consumer = process.queue.consumer(vec![lane]);
    let mut seen = HashSet::new();
    let deadline = Instant::now() + PATIENCE * 3;
    while seen.len() < expected.len() {
        assert!(Instant::now() < deadline, "only {} came", seen.len());
        let hints = consumer.next(500).await.unwrap().hints;
        futures::future::join_all(hints.iter().map(|hint| consumer.ack(hint))).await;
        seen.extend(hints.iter().map(|hint| hint.id));
    }
    assert!(expected.iter().all(|id| seen.contains(id)));
    assert_eq!(entries(&redis).await, 0, "acknowledged is deleted");
    let calls: String = ask(&redis, &["INFO", "commandstats"]).await;
    assert!(!calls.contains("cmdstat_xtrim"), "{calls}");
}

#[tokio::test]
async fn reaping_beside_reading_loses_nothing() {
    let (redis, process) = start().await;
    let lane = lane("a");
    let mut consumer = process.queue.consumer(vec![lane.clone()]);
    let mut other = process.queue.consumer(vec![lane.clone()]);
    let done = std::cell::Cell::new(false);
    let reaping = async {
        let mut reaped = 0;
        while !done.get() {
            // Nobody is too young to be reaped: only what is pending protects a consumer.
            reaped += process.queue.reap_consumers(Duration::ZERO).await.unwrap();
            tokio::task::yield_now().await;
        }
        reaped
    };
    let working = async {
        let mut seen = Vec::new();
        let mut expected = Vec::new();
        for _ in 0..150 {
            expected.extend(process.push(&lane, 4).await);
            for consumer in [&mut consumer, &mut other] {
                let hints = take(consumer, 2).await;
                tokio::time::sleep(Duration::from_millis(1)).await;
                for hint in &hints {
                    consumer.ack(hint).await;
                }
                seen.extend(ids(&hints));
            }
        }
        done.set(true);
        (sorted(seen), sorted(expected))
    };
    let (reaped, (seen, expected)) = tokio::join!(reaping, working);
    assert_eq!(seen, expected);
    assert!(reaped > 10, "{reaped} reaped: not much of an attack");
    assert_eq!(entries(&redis).await, 0);
    let not_ours = "mcp_tasks_queue_returns_total{outcome=\"not_ours\"}";
    assert_eq!(
        process.metric(not_ours),
        0.0,
        "a pending hint lost its owner"
    );
}

#[tokio::test]
async fn consumers_that_died_without_a_word_are_reaped() {
    let (redis, process) = start().await;
    let lane = lane("a");
    for _ in 0..50 {
        process.push(&lane, 1).await;
        let mut consumer = process.queue.consumer(vec![lane.clone()]);
        let hints = take(&mut consumer, 1).await;
        consumer.ack(&hints[0]).await;
        // Dropped without `close`, as by a kill.
    }
    let dead = pending(&redis).await.len();
    assert!(dead >= 50, "{dead}");
    let reaped = process.queue.reap_consumers(Duration::ZERO).await.unwrap();
    assert!(reaped >= 50, "{reaped}");
    assert!(pending(&redis).await.is_empty());
}

/// Whoever reclaims may die at any point of it, as often as it likes: nothing locks others out.
#[tokio::test]
async fn a_reclaimer_that_dies_again_and_again_keeps_nothing() {
    let redis = harness::redis::Redis::temporary().await.unwrap();
    let quick = Config {
        reclaim_idle: Duration::from_millis(100),
        ..config(&redis)
    };
    let process = connect(quick).await;
    let lane = lane("a");
    let expected = sorted(process.push(&lane, 30).await);
    for round in 0..20_u64 {
        let mut mortal = process.queue.consumer(vec![lane.clone()]);
        let life = Duration::from_millis(20 + round * 10);
        let life = tokio::time::timeout(life, async { take(&mut mortal, 31).await });
        assert!(life.await.is_err(), "there are only 30");
    }
    let mut heir = process.queue.consumer(vec![lane]);
    let mut left: HashSet<_> = expected.iter().copied().collect();
    let deadline = Instant::now() + PATIENCE;
    while !left.is_empty() {
        assert!(
            Instant::now() < deadline,
            "{} are held by nobody",
            left.len()
        );
        for hint in heir.next(30).await.unwrap().hints {
            heir.ack(&hint).await;
            left.remove(&hint.id);
        }
    }
    assert_eq!(entries(&redis).await, 0);
    assert!(pending(&redis).await.values().all(|pending| *pending == 0));
}
