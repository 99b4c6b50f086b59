//! Watches: what they hear, and that they know when they may have missed something.

use std::time::{Duration, Instant};

use bytes::Bytes;
use harness::redis::Redis;
use queue::Event;

use crate::support::*;

/// The number of subscribers of a channel that starts so, over all of them.
async fn subscribers(redis: &Redis, pattern: &str) -> usize {
    ask::<Vec<String>>(redis, &["PUBSUB", "CHANNELS", pattern])
        .await
        .len()
}

#[tokio::test]
async fn a_watch_hears_of_changes_and_progress_of_its_task_only() {
    let (redis, process) = start().await;
    let other = connect(config(&redis)).await;
    let (id, foreign) = (new_id(), new_id());
    let mut watch = process.queue.watch(id).await;
    let mut stop = process.queue.watch_stop(id).await;
    other.queue.wake(foreign).await;
    other.queue.progress(id, b"{\"progress\":1}").await;
    other.queue.wake(id).await;
    assert_eq!(
        event(&mut watch).await,
        Event::Progress(Bytes::from_static(b"{\"progress\":1}"))
    );
    assert_eq!(event(&mut watch).await, Event::Changed);
    other.queue.stop(id).await;
    assert_eq!(event(&mut stop).await, Event::Changed);
    let quiet = tokio::time::timeout(Duration::from_millis(200), watch.next()).await;
    assert!(quiet.is_err(), "{quiet:?}");
}

#[tokio::test]
async fn every_watch_of_a_task_hears_and_the_last_one_unsubscribes() {
    let (redis, process) = start().await;
    let id = new_id();
    let mut watches = Vec::new();
    for _ in 0..3 {
        watches.push(process.queue.watch(id).await);
    }
    assert_eq!(process.metric("mcp_tasks_queue_watches"), 3.0);
    process.queue.wake(id).await;
    for watch in &mut watches {
        assert_eq!(event(watch).await, Event::Changed);
    }
    watches.truncate(1);
    assert_eq!(subscribers(&redis, "mcp-tasks:task:*").await, 1);
    process.queue.wake(id).await;
    assert_eq!(event(&mut watches[0]).await, Event::Changed);
    watches.clear();
    let gone = async || subscribers(&redis, "mcp-tasks:task:*").await;
    harness::wait::for_state("unsubscribed", PATIENCE, gone, |left| *left == 0)
        .await
        .unwrap();
    assert_eq!(process.metric("mcp_tasks_queue_watches"), 0.0);
}

#[tokio::test]
async fn a_wake_right_after_the_registration_is_never_missed() {
    let (redis, process) = start().await;
    let other = connect(config(&redis)).await;
    let id = new_id();
    for _ in 0..200 {
        // The same id on purpose: unsubscribing the old watch must not hit the new one.
        let mut watch = process.queue.watch(id).await;
        other.queue.wake(id).await;
        assert_eq!(event(&mut watch).await, Event::Changed);
    }
}

#[tokio::test]
async fn thousands_of_watches_are_registered_quickly() {
    let redis = Redis::temporary().await.unwrap();
    // How long a busy machine takes is not what is tested here.
    let patient = queue::Config {
        command_timeout: Duration::from_secs(5),
        ..config(&redis)
    };
    let process = connect(patient).await;
    let ids: Vec<_> = (0..2000).map(|_| new_id()).collect();
    let started = Instant::now();
    let mut watches =
        futures::future::join_all(ids.iter().map(|id| process.queue.watch(*id))).await;
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "{:?}",
        started.elapsed()
    );
    assert_eq!(
        process.metric("mcp_tasks_queue_watches_degraded_total"),
        0.0
    );
    for (id, watch) in ids.iter().zip(&mut watches) {
        process.queue.wake(*id).await;
        assert_eq!(event(watch).await, Event::Changed);
    }
}

/// How often Redis was told to do this.
async fn calls(redis: &Redis, command: &str) -> u64 {
    let stats: String = ask(redis, &["INFO", "commandstats"]).await;
    let line = format!("cmdstat_{command}:calls=");
    let calls = stats.lines().find_map(|stat| stat.strip_prefix(&line));
    calls.map_or(0, |rest| rest.split(',').next().unwrap().parse().unwrap())
}

/// Calls begin and end in turns: who ends one must not make the next one wait.
#[tokio::test]
async fn watches_that_come_and_go_share_commands() {
    let (redis, process) = start().await;
    let mut old = Vec::new();
    for _ in 0..200 {
        old.push(process.queue.watch(new_id()).await);
    }
    let before = calls(&redis, "subscribe").await + calls(&redis, "unsubscribe").await;
    let ids: Vec<_> = old.iter().map(|_| new_id()).collect();
    // All of them are ordered before one is carried out: nothing else runs here meanwhile.
    let turns = old.into_iter().zip(&ids).map(|(old, id)| async {
        drop(old);
        process.queue.watch(*id).await
    });
    let new = futures::future::join_all(turns).await;
    let after = calls(&redis, "subscribe").await + calls(&redis, "unsubscribe").await;
    assert!(after - before <= 10, "{} commands", after - before);
    let channels = async || subscribers(&redis, "mcp-tasks:task:*").await;
    harness::wait::for_state("the new ones are left", PATIENCE, channels, |n| {
        *n == ids.len()
    })
    .await
    .unwrap();
    let other = connect(config(&redis)).await;
    for (id, mut watch) in ids.iter().zip(new) {
        other.queue.wake(*id).await;
        assert_eq!(event(&mut watch).await, Event::Changed);
    }
}

#[tokio::test]
async fn a_broken_subscription_is_told_and_mended() {
    let (redis, process) = start().await;
    let id = new_id();
    let mut watch = process.queue.watch(id).await;
    let mut catalogue = process.queue.catalogue_watch();
    catalogue.mark_unchanged();
    for _ in 0..3 {
        let killed: u64 = ask(&redis, &["CLIENT", "KILL", "TYPE", "pubsub"]).await;
        assert_eq!(killed, 1);
        assert_eq!(event(&mut watch).await, Event::Reconnected);
        process.queue.wake(id).await;
        assert_eq!(event(&mut watch).await, Event::Changed);
    }
    assert!(
        catalogue.has_changed().unwrap(),
        "the catalogue may have changed meanwhile"
    );
    process.connected(true).await;
}

#[tokio::test]
async fn watches_outlive_a_restart() {
    let (mut redis, process) = start().await;
    let ids: Vec<_> = (0..600).map(|_| new_id()).collect();
    let mut watches =
        futures::future::join_all(ids.iter().map(|id| process.queue.watch(*id))).await;
    redis.kill9();
    process.lost().await;
    redis.start_again().await.unwrap();
    for watch in &mut watches {
        assert_eq!(event(watch).await, Event::Reconnected);
    }
    process.connected(true).await;
    for (id, watch) in ids.iter().zip(&mut watches) {
        process.queue.wake(*id).await;
        assert_eq!(event(watch).await, Event::Changed);
    }
}

#[tokio::test]
async fn without_redis_a_watch_begins_at_once_and_hears_of_the_connection() {
    let (mut redis, process) = start().await;
    redis.kill9();
    process.lost().await;
    let id = new_id();
    let started = Instant::now();
    let mut watch = process.queue.watch(id).await;
    assert!(
        started.elapsed() < Duration::from_millis(50),
        "{:?}",
        started.elapsed()
    );
    assert!(process.metric("mcp_tasks_queue_watches_degraded_total") >= 1.0);
    redis.start_again().await.unwrap();
    assert_eq!(event(&mut watch).await, Event::Reconnected);
    process.connected(true).await;
    process.queue.wake(id).await;
    assert_eq!(event(&mut watch).await, Event::Changed);
}

#[tokio::test]
async fn a_change_of_the_catalogue_reaches_every_process() {
    let (redis, process) = start().await;
    let other = connect(config(&redis)).await;
    let mut catalogue = process.queue.catalogue_watch();
    catalogue.mark_unchanged();
    other.queue.catalogue_changed().await;
    let changed = tokio::time::timeout(PATIENCE, catalogue.changed()).await;
    changed.expect("in time").expect("the queue lives");
}

#[tokio::test]
async fn progress_has_a_size() {
    let (_redis, process) = start().await;
    let id = new_id();
    let mut watch = process.queue.watch(id).await;
    for (bytes, passes) in [(16_383, true), (16_384, true), (16_385, false)] {
        let progress = Bytes::from(vec![b'x'; bytes]);
        process.queue.progress(id, &progress).await;
        process.queue.wake(id).await;
        if passes {
            assert_eq!(event(&mut watch).await, Event::Progress(progress));
        }
        assert_eq!(event(&mut watch).await, Event::Changed, "{bytes}");
    }
    let line = "mcp_tasks_queue_published_total{kind=\"progress\",outcome=\"too_large\"}";
    assert_eq!(process.metric(line), 1.0);
}
