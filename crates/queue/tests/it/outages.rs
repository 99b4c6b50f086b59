//! Redis goes away, comes back empty, hangs, or forgets.

use std::time::{Duration, Instant};

use harness::redis::{Options, Persistence, Redis};
use queue::{Config, Error, Queue};
use telemetry::Registry;

use crate::support::*;

#[tokio::test]
async fn after_flushall_hints_flow_within_one_wait_and_without_an_error_loop() {
    let (redis, process) = start().await;
    let lane = lane("a");
    let mut consumer = process.queue.consumer(vec![lane.clone()]);
    for _ in 0..3 {
        nothing(&mut consumer, Duration::from_millis(100)).await;
        redis.flush().await.unwrap();
        let flushed = Instant::now();
        let expected = process.push(&lane, 10).await;
        let hints = take(&mut consumer, 10).await;
        assert_eq!(ids(&hints), sorted(expected));
        assert!(
            flushed.elapsed() < Duration::from_secs(1),
            "{:?}",
            flushed.elapsed()
        );
        for hint in &hints {
            consumer.ack(hint).await;
        }
    }
    nothing(&mut consumer, Duration::from_secs(2)).await;
    let errors = process.metric("mcp_tasks_queue_read_errors_total{kind=\"group_gone\"}");
    assert!(
        errors <= 3.0 * 4.0 * 2.0,
        "{errors} errors for three losses in four shards"
    );
    assert!(process.metric("mcp_tasks_queue_groups_made_total") >= 4.0);
}

#[tokio::test]
async fn a_deleted_group_is_made_again_from_the_beginning() {
    let (redis, process) = start().await;
    let lane = lane("a");
    let mut consumer = process.queue.consumer(vec![lane.clone()]);
    nothing(&mut consumer, Duration::from_millis(100)).await;
    let expected = process.push(&lane, 10).await;
    for stream in streams(&redis).await {
        ask::<u64>(&redis, &["XGROUP", "DESTROY", &stream, "workers"]).await;
    }
    assert_eq!(ids(&take(&mut consumer, 10).await), sorted(expected));
}

#[tokio::test]
async fn the_epoch_lives_and_dies_with_the_data() {
    let (redis, process) = start().await;
    let lane = lane("a");
    let id = process.push(&lane, 1).await[0];
    let epoch = process.queue.epoch(id).expect("known once connected");
    let epochs = process.queue.epochs().await.unwrap();
    assert_eq!(epochs.len(), 4);
    assert!(epochs.contains(&epoch));
    let other = connect(config(&redis)).await;
    assert_eq!(
        other.queue.epoch(id).as_ref(),
        Some(&epoch),
        "all processes know the same"
    );
    redis.flush().await.unwrap();
    let fresh = process.queue.epochs().await.unwrap();
    assert!(
        fresh.iter().all(|one| !epochs.contains(one)),
        "{fresh:?} after {epochs:?}"
    );
    // The other process notices by itself.
    let noticed = async || {
        other
            .queue
            .epoch(id)
            .is_some_and(|now| fresh.contains(&now))
    };
    harness::wait::for_state("the new epoch", PATIENCE, noticed, |yes| *yes)
        .await
        .unwrap();
    assert!(other.metric("mcp_tasks_queue_epoch_changes_total") >= 1.0);
}

#[tokio::test]
async fn a_push_after_a_loss_makes_a_new_epoch_by_itself() {
    let redis = Redis::temporary().await.unwrap();
    // Never probes in the time of this test.
    let lazy = Config {
        probe_interval: Duration::from_secs(30),
        ..config(&redis)
    };
    let process = connect(lazy).await;
    let id = new_id();
    let before = process.queue.epoch(id).unwrap();
    redis.flush().await.unwrap();
    process.queue.push(&lane("a"), id).await.unwrap();
    let after = process.queue.epoch(id).unwrap();
    assert_ne!(before, after);
    assert!(process.queue.epochs().await.unwrap().contains(&after));
}

#[tokio::test]
async fn a_redis_that_went_back_in_time_gets_a_new_epoch() {
    let settings = vec![("save".to_owned(), "3600 1".to_owned())];
    let options = Options {
        persistence: Persistence::None,
        settings,
        ..Options::test()
    };
    let mut redis = Redis::temporary_with(options).await.unwrap();
    let process = connect(config(&redis)).await;
    let lane = lane("a");
    process.push(&lane, 20).await;
    let before = process.queue.epochs().await.unwrap();
    ask::<String>(&redis, &["SAVE"]).await;
    process.push(&lane, 40).await;
    redis.kill9();
    process.lost().await;
    redis.start_again().await.unwrap();
    process.connected(true).await;
    assert_eq!(entries(&redis).await, 20, "the later ones are lost");
    let after = process.queue.epochs().await.unwrap();
    assert!(
        after.iter().all(|one| !before.contains(one)),
        "{after:?} after {before:?}"
    );
    process.push(&lane, 1).await;
    assert_eq!(process.queue.epochs().await.unwrap(), after, "noticed once");
}

#[tokio::test]
async fn a_clean_restart_with_data_keeps_the_epoch_and_the_hints() {
    let mut redis = Redis::temporary_with(Options::durable()).await.unwrap();
    let process = connect(config(&redis)).await;
    let lane = lane("a");
    let expected = process.push(&lane, 20).await;
    let before = process.queue.epochs().await.unwrap();
    redis.restart().await.unwrap();
    let mut consumer = process.queue.consumer(vec![lane]);
    assert_eq!(ids(&take(&mut consumer, 20).await), sorted(expected));
    process.connected(true).await;
    assert_eq!(process.queue.epochs().await.unwrap(), before);
}

#[tokio::test]
async fn without_redis_everything_fails_fast_and_comes_back_by_itself() {
    let (mut redis, process) = start().await;
    let lane = lane("a");
    let mut consumer = process.queue.consumer(vec![lane.clone()]);
    nothing(&mut consumer, Duration::from_millis(100)).await;
    redis.kill9();
    process.lost().await;
    let started = Instant::now();
    let refused = process.queue.push(&lane, new_id()).await;
    assert!(matches!(refused, Err(Error::Unavailable)), "{refused:?}");
    assert!(process.queue.epochs().await.is_err());
    assert!(process.queue.depth(&lane).await.is_err());
    assert!(process.queue.epoch(new_id()).is_none());
    process.queue.wake(new_id()).await;
    assert!(
        started.elapsed() < Duration::from_millis(50),
        "{:?}",
        started.elapsed()
    );
    let started = Instant::now();
    let read = consumer.next(10).await;
    let waited = started.elapsed();
    assert!(matches!(read, Err(Error::Unavailable)), "{read:?}");
    assert!(
        waited >= Duration::from_millis(400) && waited < Duration::from_secs(1),
        "{waited:?}"
    );

    redis.start_again().await.unwrap();
    process.connected(true).await;
    let expected = process.push(&lane, 10).await;
    assert_eq!(ids(&take(&mut consumer, 10).await), sorted(expected));
}

#[tokio::test]
async fn a_queue_may_start_before_redis() {
    let mut redis = Redis::temporary().await.unwrap();
    redis.stop().await.unwrap();
    let process = Process::new(config(&redis));
    let lane = lane("a");
    let mut consumer = process.queue.consumer(vec![lane.clone()]);
    assert!(consumer.next(1).await.is_err());
    assert!(process.queue.push(&lane, new_id()).await.is_err());
    redis.start_again().await.unwrap();
    process.connected(true).await;
    let expected = process.push(&lane, 5).await;
    assert_eq!(ids(&take(&mut consumer, 5).await), sorted(expected));
}

#[tokio::test]
async fn a_hung_redis_costs_one_timeout_and_is_used_again() {
    let (mut redis, process) = start().await;
    let lane = lane("a");
    let mut consumer = process.queue.consumer(vec![lane.clone()]);
    nothing(&mut consumer, Duration::from_millis(100)).await;
    redis.freeze();
    let started = Instant::now();
    assert!(process.queue.push(&lane, new_id()).await.is_err());
    assert!(
        started.elapsed() < Duration::from_millis(800),
        "{:?}",
        started.elapsed()
    );
    process.lost().await;
    let started = Instant::now();
    assert!(matches!(
        process.queue.push(&lane, new_id()).await,
        Err(Error::Unavailable)
    ));
    assert!(started.elapsed() < Duration::from_millis(50));
    let started = Instant::now();
    assert!(
        consumer.next(1).await.is_err(),
        "a worker must learn that it reads nothing"
    );
    assert!(started.elapsed() < Duration::from_secs(1));
    redis.thaw();
    process.connected(true).await;
    // The first push may have been carried out after all.
    let id = process.push(&lane, 1).await[0];
    let deadline = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < deadline);
        let taken = consumer.next(1).await.unwrap_or_default();
        if taken.hints.iter().any(|hint| hint.id == id) {
            break;
        }
    }
}

#[tokio::test]
async fn a_consumer_survives_broken_connections_in_a_row() {
    let (redis, process) = start().await;
    let lane = lane("a");
    let mut consumer = process.queue.consumer(vec![lane.clone()]);
    let kill = async {
        for _ in 0..5 {
            tokio::time::sleep(Duration::from_millis(400)).await;
            ask::<u64>(&redis, &["CLIENT", "KILL", "TYPE", "normal"]).await;
        }
    };
    let reading = async {
        for _ in 0..10 {
            drop(consumer.next(1).await);
        }
    };
    tokio::join!(kill, reading);
    process.connected(true).await;
    let started = Instant::now();
    let expected = process.push(&lane, 10).await;
    assert_eq!(ids(&take(&mut consumer, 10).await), sorted(expected));
    assert!(
        started.elapsed() < Duration::from_secs(3),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test]
async fn a_redis_that_may_evict_is_told() {
    let settings = vec![
        ("maxmemory".to_owned(), "50mb".to_owned()),
        ("maxmemory-policy".to_owned(), "allkeys-lru".to_owned()),
    ];
    let redis = Redis::temporary_with(Options {
        settings,
        ..Options::test()
    })
    .await
    .unwrap();
    let process = connect(config(&redis)).await;
    assert_eq!(process.metric("mcp_tasks_queue_eviction_possible"), 1.0);
}

#[tokio::test]
async fn a_full_redis_refuses_hints_and_nothing_else_breaks() {
    let settings = vec![("maxmemory".to_owned(), "1".to_owned())];
    let redis = Redis::temporary_with(Options {
        settings,
        ..Options::test()
    })
    .await
    .unwrap();
    let process = Process::new(config(&redis));
    let refused = process.queue.push(&lane("a"), new_id()).await;
    assert!(refused.is_err());
    ask::<String>(&redis, &["CONFIG", "SET", "maxmemory", "0"]).await;
    process.connected(true).await;
    ask::<String>(&redis, &["CONFIG", "SET", "maxmemory", "1"]).await;
    let refused = process.queue.push(&lane("a"), new_id()).await;
    assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");
    assert!(*process.queue.connected().borrow());
    ask::<String>(&redis, &["CONFIG", "SET", "maxmemory", "0"]).await;
    process.push(&lane("a"), 1).await;
}

#[tokio::test]
async fn wrong_settings_are_refused_at_once() {
    let config = Config {
        shards: 0,
        ..Config::default()
    };
    let refused = Queue::new(config, &Registry::new());
    assert!(matches!(refused, Err(Error::Config(problem)) if problem.contains("shards")));
}

/// A replica that was cut off is promoted: what was acknowledged by the old primary since is gone.
#[tokio::test]
async fn a_promoted_replica_that_lagged_gets_a_new_epoch() {
    // A replica is sent the data at once, not after five seconds.
    let settings = vec![("repl-diskless-sync-delay".to_owned(), "0".to_owned())];
    let primary = Options {
        settings,
        ..Options::test()
    };
    let mut redis = Redis::temporary_with(primary).await.unwrap();
    let process = connect(config(&redis)).await;
    let settings = vec![(
        "replicaof".to_owned(),
        format!("127.0.0.1 {}", redis.port()),
    )];
    let replica = Redis::temporary_with(Options {
        settings,
        ..Options::test()
    })
    .await
    .unwrap();
    let lane = lane("a");
    process.push(&lane, 40).await;
    let before = process.queue.epochs().await.unwrap();
    let copied = async || entries(&replica).await;
    harness::wait::for_state("the replica", PATIENCE, copied, |n| *n == 40)
        .await
        .unwrap();
    ask::<String>(&replica, &["REPLICAOF", "NO", "ONE"]).await;
    process.push(&lane, 100).await;
    redis.kill9();
    process.lost().await;
    let port = redis.port().to_string();
    ask::<String>(&replica, &["CONFIG", "SET", "port", &port]).await;
    process.connected(true).await;
    assert_eq!(
        entries(&redis).await,
        40,
        "a hundred acknowledged hints are lost"
    );
    let after = process.queue.epochs().await.unwrap();
    assert!(
        after.iter().all(|one| !before.contains(one)),
        "{after:?} after {before:?}"
    );
}

#[tokio::test]
async fn redis_may_evict_is_known_by_name() {
    let settings = vec![
        ("maxmemory".to_owned(), "50mb".to_owned()),
        ("maxmemory-policy".to_owned(), "volatile-lru".to_owned()),
    ];
    let redis = Redis::temporary_with(Options {
        settings,
        ..Options::test()
    })
    .await
    .unwrap();
    let process = connect(config(&redis)).await;
    assert!(process.queue.may_evict());
    let (_good, process) = start().await;
    assert!(!process.queue.may_evict());
}

/// A primary that was demoted answers, and refuses every write: that is an outage like any other,
/// found out once, and not at every hint again.
#[tokio::test]
async fn a_demoted_redis_counts_as_gone() {
    let (redis, process) = start().await;
    let lane = lane("a");
    let mut consumer = process.queue.consumer(vec![lane.clone()]);
    nothing(&mut consumer, Duration::from_millis(100)).await;
    let connects = || process.metric("mcp_tasks_queue_connects_total{link=\"commands\"}");
    let before = connects();
    ask::<String>(&redis, &["REPLICAOF", "127.0.0.1", "1"]).await;
    let refused = process.queue.push(&lane, new_id()).await;
    assert!(refused.is_err(), "{refused:?}");
    process.connected(false).await;
    let until = Instant::now() + Duration::from_secs(2);
    while Instant::now() < until {
        assert!(process.queue.push(&lane, new_id()).await.is_err());
        assert!(!*process.queue.connected().borrow());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(connects(), before, "it was taken for a good one again");
    assert!(consumer.next(1).await.is_err(), "a worker must learn of it");
    ask::<String>(&redis, &["REPLICAOF", "NO", "ONE"]).await;
    process.connected(true).await;
    let expected = process.push(&lane, 5).await;
    assert_eq!(ids(&take(&mut consumer, 5).await), sorted(expected));
}

#[tokio::test]
async fn a_primary_without_enough_replicas_refuses_hints_and_nothing_else_breaks() {
    let (redis, process) = start().await;
    let lane = lane("a");
    let set = |n| ["CONFIG", "SET", "min-replicas-to-write", n];
    ask::<String>(&redis, &set("1")).await;
    let refused = process.queue.push(&lane, new_id()).await;
    assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");
    assert!(*process.queue.connected().borrow());
    ask::<String>(&redis, &set("0")).await;
    let mut consumer = process.queue.consumer(vec![lane.clone()]);
    let expected = process.push(&lane, 1).await;
    assert_eq!(ids(&take(&mut consumer, 1).await), expected);
}
