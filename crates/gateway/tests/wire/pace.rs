//! Polls that come before their `pollIntervalMs` is over.

use std::time::Duration;

use gateway::Config;
use gateway::pace::Pacing;
use harness::client::{Answer, Client};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;

use crate::support::{SECOND, SOON, World, config, text};

/// Polls may be early for a minute, and are then held for so long.
pub fn slow(pacing: Pacing) -> Config {
    let mut config = config();
    config.poll_min = 60 * SECOND;
    config.poll_max = 60 * SECOND;
    config.poll_input = 60 * SECOND;
    config.pacing = pacing;
    config.pace_max = 60 * SECOND;
    config
}

/// A poll in the background, once the gateway holds so many.
pub async fn held_poll(
    world: &World,
    client: &Client,
    id: &str,
    number: usize,
) -> JoinHandle<Answer> {
    let (client, params) = (client.clone(), json!({"taskId": id}));
    let poll = async move {
        let request = client.request("tasks/get", params);
        request.send().await.unwrap()
    };
    let poll = TaskTracker::new().spawn(poll);
    let line = format!("mcp_tasks_gateway_held_polls {number}\n");
    harness::wait::until("the poll is held", SOON, async || {
        world.registry.render().contains(&line).then_some(())
    })
    .await
    .unwrap();
    poll
}

pub fn polls(world: &World, pace: &str) -> u64 {
    let rendered = world.registry.render();
    let mine = rendered
        .lines()
        .filter(|line| line.starts_with("mcp_tasks_gateway_polls_total{"))
        .filter(|line| line.contains(&format!("pace=\"{pace}\"")));
    mine.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
        .sum()
}

pub fn status(answer: Answer) -> Value {
    answer.into_result().unwrap()["status"].clone()
}

#[tokio::test]
async fn an_early_poll_waits_for_the_change() {
    let world = World::with(slow(Pacing::On)).await;
    let alice = world.client("alice");
    let id = alice.start("task", json!({})).await.unwrap();
    assert_eq!(
        alice.get(&id).await.unwrap()["status"],
        "working",
        "the first is answered"
    );
    let poll = held_poll(&world, &alice, &id, 1).await;
    let claim = world.claim("task").await;
    world.complete(&claim, &text("done")).await;
    assert_eq!(status(poll.await.unwrap()), "completed");
    for _ in 0..5 {
        assert_eq!(alice.get(&id).await.unwrap()["status"], "completed");
    }
    assert_eq!(polls(&world, "held"), 1, "what is over is never held");
}

#[tokio::test]
async fn an_early_poll_is_answered_when_the_interval_is_over() {
    let mut config = slow(Pacing::On);
    config.pace_max = Duration::from_millis(300);
    let world = World::with(config).await;
    let alice = world.client("alice");
    let id = alice.start("task", json!({})).await.unwrap();
    let reads = "mcp_tasks_store_reads_together_sum";
    let before = world.metric(reads);
    for _ in 0..3 {
        assert_eq!(alice.get(&id).await.unwrap()["status"], "working");
    }
    assert_eq!(polls(&world, "held"), 2);
    let each = world.metric(reads) - before;
    assert_eq!(each, 3.0, "a poll that is held reads once, as any other");
}

#[tokio::test]
async fn the_read_after_the_callers_own_act_is_answered_at_once() {
    let world = World::with(slow(Pacing::On)).await;
    let alice = world.client("alice");
    let id = alice.start("task", json!({})).await.unwrap();
    let _claim = world.claim("task").await;
    alice.get(&id).await.unwrap();
    alice.cancel(&id).await.unwrap();
    assert_eq!(alice.get(&id).await.unwrap()["status"], "working");
    alice.update(&id, json!({})).await.unwrap();
    assert_eq!(alice.get(&id).await.unwrap()["status"], "working");
    assert_eq!(polls(&world, "held"), 0);
}

#[tokio::test]
async fn another_principal_is_not_held() {
    let world = World::with(slow(Pacing::On)).await;
    let alice = world.client("alice");
    let id = alice.start("task", json!({})).await.unwrap();
    alice.get(&id).await.unwrap();
    let mallory = world.client("mallory");
    for _ in 0..3 {
        assert!(mallory.get(&id).await.is_err());
    }
    assert_eq!(
        polls(&world, "held"),
        0,
        "a hold would tell that the task is there"
    );
}

#[tokio::test]
async fn one_principals_flood_is_refused_and_others_are_served() {
    let mut config = slow(Pacing::On);
    config.limits.held_polls_of_principal_max = 2;
    let world = World::with(config).await;
    let (alice, bob) = (world.client("alice"), world.client("bob"));
    let mine = alice.start("task", json!({})).await.unwrap();
    let his = bob.start("task", json!({})).await.unwrap();
    alice.get(&mine).await.unwrap();
    bob.get(&his).await.unwrap();
    let first = held_poll(&world, &alice, &mine, 1).await;
    let second = held_poll(&world, &alice, &mine, 2).await;
    let refused = alice.request("tasks/get", json!({"taskId": mine}));
    let refused = refused.send().await.unwrap();
    assert_eq!(refused.status, 429);
    assert!(refused.headers.contains_key("retry-after"));
    let third = held_poll(&world, &bob, &his, 3).await;
    // A gateway that ends answers what it holds.
    world.shutdown.cancel();
    for poll in [first, second, third] {
        assert_eq!(status(poll.await.unwrap()), "working");
    }
}

#[tokio::test]
async fn pacing_can_be_watched_or_off() {
    for (pacing, early) in [(Pacing::Observe, 2), (Pacing::Off, 0)] {
        let world = World::with(slow(pacing)).await;
        let alice = world.client("alice");
        let id = alice.start("task", json!({})).await.unwrap();
        for _ in 0..3 {
            assert_eq!(alice.get(&id).await.unwrap()["status"], "working");
        }
        assert_eq!(polls(&world, "early"), early);
        assert_eq!(polls(&world, "held"), 0);
    }
}
