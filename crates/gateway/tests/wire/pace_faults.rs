//! Early polls while there is too much of everything, or something is away.

use std::time::{Duration, Instant};

use gateway::pace::Pacing;
use harness::client::{Answer, Client};
use harness::proxy::{Mode, Proxy};
use harness::redis::Redis;
use serde_json::{Value, json};
use store::{ParkedFor, Write};
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;

use crate::pace::{held_poll, polls, slow, status};
use crate::support::{SECOND, SOON, World, migrate, text, yes};

const HELD: &str = "mcp_tasks_gateway_held_polls";

async fn until_held(world: &World, number: f64) {
    let look = async || (world.metric(HELD) - number).abs() < 0.5;
    harness::wait::until("so many polls are held", SOON, async || {
        look().await.then_some(())
    })
    .await
    .unwrap();
}

/// Shows a task for the first time, so that the next poll is early.
async fn shown(client: &Client) -> String {
    let id = client.start("task", json!({})).await.unwrap();
    client.get(&id).await.unwrap();
    id
}

/// A held poll that has looked: now only a change or the clock answers it. Reads before it: `reads`.
async fn waiting_poll(world: &World, client: &Client, id: &str, reads: f64) -> JoinHandle<Answer> {
    let poll = held_poll(world, client, id, 1).await;
    let series = "mcp_tasks_store_operation_seconds_count{operation=\"get\"}";
    let looked = async || (world.metric(series) > reads + 0.5).then_some(());
    harness::wait::until("it has looked", SOON, looked)
        .await
        .unwrap();
    poll
}

/// Makes the next poll an early one: after the caller's own act this one may or may not be.
async fn seen(world: &World, client: &Client, id: &str) {
    drop(tokio::time::timeout(SECOND, client.get(id)).await);
    until_held(world, 0.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn five_hundred_polls_of_one_leave_the_others_alone() {
    let world = World::with(slow(Pacing::On)).await;
    let (alice, bob) = (world.client("alice"), world.client("bob"));
    let flooded = shown(&alice).await;
    let flood = TaskTracker::new();
    let sent: Vec<_> = (0..500)
        .map(|_| {
            let (alice, params) = (alice.clone(), json!({"taskId": flooded}));
            flood.spawn(async move {
                let answer = alice.request("tasks/get", params).send().await.unwrap();
                (answer.status, answer.headers.contains_key("retry-after"))
            })
        })
        .collect();
    until_held(&world, 200.0).await;
    let refused = async || (polls(&world, "refused") == 300).then_some(());
    harness::wait::until("the others are refused", SOON, refused)
        .await
        .unwrap();
    // Whoever floods keeps nobody else from polling, holding, cancelling or creating.
    let his = shown(&bob).await;
    let poll = held_poll(&world, &bob, &his, 201).await;
    bob.cancel(&his).await.unwrap();
    assert_eq!(status(poll.await.unwrap()), "cancelled");
    // The flood itself hears of the change, too.
    alice.cancel(&flooded).await.unwrap();
    let mut answers = std::collections::BTreeMap::<(u16, bool), usize>::new();
    for one in sent {
        *answers.entry(one.await.unwrap()).or_default() += 1;
    }
    let expected = [((200, false), 200), ((429, true), 300)];
    assert_eq!(answers, expected.into());
    until_held(&world, 0.0).await;
}

/// The process holds all that it may, of others: no fault of whoever polls now, so no error.
#[tokio::test]
async fn a_full_process_answers_instead_of_refusing() {
    let mut config = slow(Pacing::On);
    config.limits.held_polls_max = 2;
    config.limits.held_polls_of_principal_max = 2;
    let world = World::with(config).await;
    let (alice, bob) = (world.client("alice"), world.client("bob"));
    let (hers, his) = (shown(&alice).await, shown(&bob).await);
    let first = held_poll(&world, &alice, &hers, 1).await;
    let second = held_poll(&world, &alice, &hers, 2).await;
    for _ in 0..3 {
        assert_eq!(bob.get(&his).await.unwrap()["status"], "working");
    }
    assert_eq!((polls(&world, "early"), polls(&world, "refused")), (3, 0));
    let refused = alice.request("tasks/get", json!({"taskId": hers}));
    assert_eq!(refused.send().await.unwrap().status, 429);
    world.shutdown.cancel();
    for poll in [first, second] {
        assert_eq!(status(poll.await.unwrap()), "working");
    }
}

#[tokio::test]
async fn every_change_that_a_client_sees_answers_a_held_poll() {
    let world = World::with(slow(Pacing::On)).await;
    let alice = world.client("alice");
    let id = shown(&alice).await;
    let claim = world.claim("task").await;

    let poll = held_poll(&world, &alice, &id, 1).await;
    let written = world.store.progress(&claim, "half way").await.unwrap();
    assert_eq!(written, Write::Done);
    world.queue.wake(claim.id()).await;
    let task = poll.await.unwrap().into_result().unwrap();
    assert_eq!(task["statusMessage"], "half way");

    let poll = held_poll(&world, &alice, &id, 1).await;
    world.park(&claim, ParkedFor::Task, &["one", "two"]).await;
    assert_eq!(status(poll.await.unwrap()), "input_required");

    let poll = held_poll(&world, &alice, &id, 1).await;
    alice.update(&id, json!({"one": yes()})).await.unwrap();
    let task = poll.await.unwrap().into_result().unwrap();
    assert_eq!(task["status"], "input_required");
    assert!(task["inputRequests"].get("one").is_none(), "{task}");
    seen(&world, &alice, &id).await;

    let poll = held_poll(&world, &alice, &id, 1).await;
    alice.update(&id, json!({"two": yes()})).await.unwrap();
    assert_eq!(status(poll.await.unwrap()), "working");
    seen(&world, &alice, &id).await;

    let poll = held_poll(&world, &alice, &id, 1).await;
    let claim = world.claim_task("task", claim.id()).await;
    let error = json!({"code": -32000, "message": "no"});
    world.fail(&claim, &error).await;
    assert_eq!(status(poll.await.unwrap()), "failed");
    assert!(polls(&world, "held") >= 5);
}

/// What is gone meanwhile is told as what it is: expired.
#[tokio::test]
async fn a_purged_task_answers_a_held_poll() {
    let world = World::with(slow(Pacing::On)).await;
    let alice = world.client("alice");
    let id = shown(&alice).await;
    let claim = world.claim("task").await;
    let poll = waiting_poll(&world, &alice, &id, 1.0).await;
    let done = world.store.complete(&claim, b"{\"content\":[]}", SECOND);
    assert_eq!(done.await.unwrap(), Write::Done);
    let expire = "UPDATE tasks SET expires_at = now()";
    world.database.rows(expire).await.unwrap();
    assert_eq!(world.store.purge(10, 600 * SECOND).await.unwrap(), 1);
    world.queue.wake(claim.id()).await;
    let answer = poll.await.unwrap();
    assert_eq!(answer.error_code(), Some(-32602));
    assert_eq!(answer.error()["data"]["reason"], "task_expired");
}

/// The owner cancelled through another replica; here nothing but the row tells of it.
#[tokio::test]
async fn the_read_after_a_cancel_elsewhere_is_answered_at_once() {
    let world = World::with(slow(Pacing::On)).await;
    let alice = world.client("alice");
    let id = shown(&alice).await;
    let _claim = world.claim("task").await;
    let elsewhere = "UPDATE tasks SET stop_requested_at = now(), stop_reason = 'cancelled'";
    world.database.rows(elsewhere).await.unwrap();
    let begun = Instant::now();
    assert_eq!(alice.get(&id).await.unwrap()["status"], "working");
    assert!(begun.elapsed() < 30 * SECOND, "not the interval");
    let poll = held_poll(&world, &alice, &id, 1).await;
    world.shutdown.cancel();
    assert_eq!(status(poll.await.unwrap()), "working");
}

#[tokio::test]
async fn redis_that_goes_while_a_poll_is_held_delays_it_by_a_moment() {
    let mut config = slow(Pacing::On);
    config.recheck = Duration::from_millis(300);
    let mut world = World::with(config).await;
    let alice = world.client("alice");
    let id = shown(&alice).await;
    let poll = waiting_poll(&world, &alice, &id, 1.0).await;
    let claim = world.claim("task").await;
    world.redis.kill9();
    let done = world.store.complete(&claim, b"{\"content\":[]}", SECOND);
    assert_eq!(done.await.unwrap(), Write::Done);
    let answer = tokio::time::timeout(SOON, poll).await.unwrap().unwrap();
    // The read right after the loss of Redis may have been before the result was there.
    if status(answer) == "working" {
        assert_eq!(alice.get(&id).await.unwrap()["status"], "completed");
    }
    // One that begins without Redis.
    let id = shown(&alice).await;
    let begun = Instant::now();
    assert_eq!(alice.get(&id).await.unwrap()["status"], "working");
    assert!(begun.elapsed() < 30 * SECOND, "not the interval");
    assert!(polls(&world, "held") >= 2);
    assert_eq!(polls(&world, "refused"), 0);
}

#[tokio::test]
async fn a_poll_that_is_held_while_postgres_stalls_is_answered_after_it() {
    let database = harness::postgres::test_database(migrate).await.unwrap();
    let (_, rest) = database.url().split_once("127.0.0.1:").unwrap();
    let port: String = rest.chars().take_while(char::is_ascii_digit).collect();
    let proxy = Proxy::to_port(port.parse().unwrap()).await.unwrap();
    let redis = Redis::temporary().await.unwrap();
    let url = proxy.through(database.url());
    let world = World::over(slow(Pacing::On), database, redis, &url).await;
    let alice = world.client("alice");
    let id = shown(&alice).await;
    let poll = waiting_poll(&world, &alice, &id, 1.0).await;
    proxy.set(Mode::Stall);
    // It waits for Postgres' news of a change that it was told of.
    let claim = world.claim("task").await;
    world.complete(&claim, &text("done")).await;
    until_held(&world, 0.0).await;
    proxy.set(Mode::Pass);
    assert_eq!(status(poll.await.unwrap()), "completed");
}

#[tokio::test]
async fn a_caller_that_hangs_up_frees_its_place_and_a_read_writes_nothing() {
    let mut config = slow(Pacing::On);
    config.limits.held_polls_of_principal_max = 1;
    let world = World::with(config).await;
    let alice = world.client("alice");
    let id = shown(&alice).await;
    let row = async || world.count("SELECT xmin::text::bigint FROM tasks").await;
    let before = row().await;
    for _ in 0..3 {
        let poll = held_poll(&world, &alice, &id, 1).await;
        poll.abort();
        assert!(poll.await.unwrap_err().is_cancelled());
        until_held(&world, 0.0).await;
    }
    assert_eq!(polls(&world, "held"), 3);
    assert_eq!(polls(&world, "refused"), 0);
    assert_eq!(row().await, before, "polls write nothing");
}

/// Clients call themselves what they like: what is counted and remembered stays bounded.
#[tokio::test]
async fn a_thousand_names_of_one_client_are_a_few_series() {
    let world = World::with(slow(Pacing::Observe)).await;
    let alice = world.client("alice");
    let id = shown(&alice).await;
    for number in 0..100 {
        let info = json!({"name": format!("client-{number}"), "version": "1"});
        let poll = alice.request("tasks/get", json!({"taskId": id}));
        let poll = poll.meta("io.modelcontextprotocol/clientInfo", info);
        let task: Value = poll.send().await.unwrap().into_result().unwrap();
        assert_eq!(task["status"], "working");
    }
    let rendered = world.registry.render();
    let series = rendered
        .lines()
        .filter(|line| line.starts_with("mcp_tasks_gateway_polls_total{"));
    let names: std::collections::BTreeSet<&str> = series
        .map(|line| line.split("client=\"").nth(1).unwrap())
        .map(|rest| rest.split('"').next().unwrap())
        .collect();
    assert!(names.len() <= 21, "{names:?}");
    assert!(names.contains("other") && names.contains("client-3"));
}
