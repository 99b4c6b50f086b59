//! How long calls are held: no longer than the ceiling, less under load, and where there can be no
//! task, up to a limit of its own.

use std::time::{Duration, Instant};

use harness::client::{Client, Request};
use protocol::tools::Tool;
use serde_json::json;
use store::{ParkedFor, ToolSpec};
use tokio::net::TcpStream;

use crate::support::{SECOND, SOON, World, config, text, yes};

fn call<'a>(client: &'a Client, tool: &str) -> Request<'a> {
    client.request("tools/call", json!({"name": tool, "arguments": {}}))
}

#[tokio::test]
async fn what_cannot_become_a_task_is_given_up_at_its_limit_and_stopped() {
    let mut config = config();
    config.call_limit = SECOND;
    config.stream_after = Duration::from_millis(50);
    let world = World::with(config).await;
    let alice = world.client("alice");
    let undeclared = world.client("alice").undeclared();
    for (client, tool, advice) in [(&undeclared, "call", true), (&alice, "inline", false)] {
        let begun = Instant::now();
        let answer = call(client, tool).send().await.unwrap();
        assert!(begun.elapsed() >= SECOND, "it had its time");
        assert_eq!((answer.status, answer.error_code()), (200, Some(-32603)));
        assert!(answer.is_stream(), "it was streamed until then");
        assert_eq!(answer.error()["data"]["reason"], "call_limit");
        let message = answer.error()["message"].as_str().unwrap();
        assert!(message.contains("not there within 1s"), "{message}");
        let declares = message.contains("io.modelcontextprotocol/tasks");
        assert_eq!(declares, advice, "{message}");
    }
    let stopped = "SELECT count(*) FROM tasks WHERE stop_reason = 'abandoned'";
    world.until(stopped, 2).await;
    // A client that reads no streams is told the same.
    let plain = call(&undeclared, "call").header("accept", "application/json");
    let answer = plain.send().await.unwrap();
    assert!(!answer.is_stream());
    assert_eq!(answer.error()["data"]["reason"], "call_limit");
    world.until(stopped, 3).await;
    // What may become a task knows no such limit.
    let handle = call(&alice, "call").send().await.unwrap();
    assert_eq!(handle.message["result"]["resultType"], "task");
    world.until(stopped, 3).await;
}

/// A key makes the work reachable again: it has the grace that a disconnect has.
#[tokio::test]
async fn what_was_given_up_can_be_fetched_by_its_key_for_a_grace() {
    let mut config = config();
    config.call_limit = SECOND;
    let world = World::with(config).await;
    let undeclared = world.client("alice").undeclared();
    let keyed = || call(&undeclared, "call").idempotency_key("k");
    let given_up = keyed().send().await.unwrap();
    assert_eq!(given_up.error()["data"]["reason"], "call_limit");
    let claim = world.claim("call").await;
    world.complete(&claim, &text("once")).await;
    let again = keyed().send().await.unwrap();
    assert_eq!(again.message["result"]["content"][0]["text"], "once");
    assert_eq!(world.count("SELECT count(*) FROM tasks").await, 1);
    // Without a caller nothing keeps it: its hold is that of one who may come back, and no longer.
    let given_up = call(&undeclared, "call").idempotency_key("other");
    given_up.send().await.unwrap();
    let grace = "SELECT count(*) FROM tasks WHERE idempotency_key = 'other' \
                 AND handed_out_at IS NULL AND held_until < now() + interval '15 s'";
    assert_eq!(world.count(grace).await, 1);
}

/// The job begins with the call, and goes on when its call becomes a task: never once more.
#[tokio::test]
async fn the_handle_is_that_of_the_job_that_runs() {
    let mut config = config();
    config.inline_budget = 5 * SECOND;
    let world = World::with(config).await;
    let alice = world.client("alice");
    let (answer, claim) = tokio::join!(call(&alice, "call").send(), world.claim("call"));
    let handle = answer.unwrap().into_result().unwrap();
    assert_eq!(handle["resultType"], "task");
    assert!(!claim.handed_out, "it ran while its call was held");
    let id = handle["taskId"].as_str().unwrap();
    assert_eq!(id, claim.id().to_string());
    world.complete(&claim, &text("once")).await;
    let task = alice.get(id).await.unwrap();
    assert_eq!(task["result"]["content"][0]["text"], "once", "{task}");
    let attempts = "SELECT sum(attempt) FROM tasks";
    assert_eq!(world.count(attempts).await, 1);
}

#[tokio::test]
async fn no_budget_is_above_the_ceiling() {
    let mut config = config();
    config.inline_budget = Duration::from_millis(100);
    config.inline_budget_max = Duration::from_millis(100);
    let world = World::with(config).await;
    let alice = world.client("alice");
    let schema = json!({"type": "object"});
    let mut patient = ToolSpec::new(Tool::new("patient", &schema).with_description("p"));
    patient.policy.inline_budget = Some(3600 * SECOND);
    world
        .store
        .register_tools(&[patient], 60 * SECOND)
        .await
        .unwrap();
    let listed = async || {
        let tools = alice.list().await.unwrap();
        tools
            .iter()
            .any(|tool| tool["name"] == "patient")
            .then_some(())
    };
    harness::wait::until("the tool is listed", SOON, listed)
        .await
        .unwrap();
    let handle = call(&alice, "patient").send().await.unwrap();
    assert_eq!(handle.message["result"]["resultType"], "task");
}

#[tokio::test]
async fn near_the_limit_of_connections_calls_become_tasks_at_once() {
    let mut config = config();
    config.limits.connections_max = 10;
    config.inline_budget = 60 * SECOND;
    let world = World::with(config).await;
    let alice = world.client("alice");
    let mut idle = Vec::new();
    for _ in 0..8 {
        idle.push(TcpStream::connect(world.address).await.unwrap());
    }
    let open = async || world.metric("mcp_tasks_gateway_connections");
    harness::wait::for_state("they are accepted", SOON, open, |n| *n > 7.5)
        .await
        .unwrap();
    // The ninth is the call's own.
    let handle = call(&alice, "call").send().await.unwrap();
    assert_eq!(handle.message["result"]["resultType"], "task");
    let held = "mcp_tasks_gateway_promotions_total{reason=\"held\"}";
    assert!(world.metric(held) > 0.5);
    drop(idle);
}

#[tokio::test]
async fn a_state_is_over_when_its_time_is_over_whatever_became_of_the_task() {
    let mut config = config();
    config.request_state_ttl = Duration::from_millis(1);
    let world = World::with(config).await;
    let alice = world.client("alice");
    let keyed = || call(&alice, "asks").idempotency_key("k");
    let (first, ()) = tokio::join!(keyed().send(), async {
        let claim = world.claim("asks").await;
        world.park(&claim, ParkedFor::Caller, &["first"]).await;
    });
    let first = first.unwrap().message["result"].clone();
    assert_eq!(first["resultType"], "input_required", "{first}");
    let state = &first["requestState"];
    let late = keyed()
        .param("requestState", state.clone())
        .param("inputResponses", json!({"first": yes()}));
    let late = late.send().await.unwrap();
    assert_eq!((late.status, late.error_code()), (200, Some(-32602)));
    let message = late.error()["message"].as_str().unwrap();
    assert!(
        message.contains("expired: repeat the call without it"),
        "{message}"
    );
    let open = "SELECT count(*) FROM tasks WHERE phase = 'parked' AND stop_requested_at IS NULL";
    assert_eq!(world.count(open).await, 1, "nothing was answered");
    // As the message says: the key finds the question again.
    let again = keyed().send().await.unwrap();
    assert_eq!(again.message["result"]["resultType"], "input_required");
}
