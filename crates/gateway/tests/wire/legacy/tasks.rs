//! `params.task`, `tasks/get`, `tasks/result`, `tasks/cancel`: the same rows in older words.

use harness::wait;
use serde_json::{Value, json};

use super::{Legacy, RELATED, UNKNOWN, id_of, without_modern};
use crate::support::{SOON, World, config, text};

#[tokio::test]
async fn a_task_from_its_handle_to_its_result() {
    let world = World::new().await;
    let alice = Legacy::new(&world, "alice");
    let params = json!({"name": "call", "arguments": {}, "task": {"ttl": 60000}});
    let created = alice.result("tools/call", params).await;
    without_modern(&created);
    let task = &created["task"];
    assert_eq!(created["_meta"][RELATED], id_of(task));
    assert!(created["_meta"]["io.modelcontextprotocol/model-immediate-response"].is_string());
    assert_eq!(task["status"], "working");
    for name in ["taskId", "createdAt", "lastUpdatedAt", "statusMessage"] {
        assert!(task[name].is_string(), "{name}: {task}");
    }
    // In milliseconds as in the row, whatever was wished for.
    let millis = "SELECT (extract(epoch FROM expires_at - created_at) * 1000)::bigint FROM tasks";
    assert_eq!(task["ttl"].as_i64(), Some(world.count(millis).await));
    assert!(task["pollInterval"].as_i64().unwrap() >= 100, "{task}");

    let shown = alice.result("tasks/get", id_of(task)).await;
    without_modern(&shown);
    assert_eq!(
        (&shown["status"], &shown["taskId"]),
        (&json!("working"), &task["taskId"])
    );
    assert!(shown.get("_meta").is_none() && shown.get("task").is_none());

    let (result, ()) = tokio::join!(alice.result("tasks/result", id_of(task)), async {
        let claim = world.claim("call").await;
        world.complete(&claim, &text("done")).await;
    });
    without_modern(&result);
    assert_eq!(result["content"][0]["text"], "done");
    assert_eq!(result["_meta"], json!({RELATED: id_of(task)}));
    let shown = alice.result("tasks/get", id_of(task)).await;
    assert_eq!(shown["status"], "completed");
    assert!(shown.get("result").is_none());
    // Any number of times, and today's clients see the same row.
    assert_eq!(alice.result("tasks/result", id_of(task)).await, result);
    let id = task["taskId"].as_str().unwrap();
    let modern = world.client("alice").get(id).await.unwrap();
    assert_eq!(modern["result"]["content"], result["content"]);
    assert_eq!(modern["ttlMs"], task["ttl"]);
}

/// A result is fetched by whoever gets it, and a look at a completed task shows none.
#[tokio::test]
async fn only_the_result_counts_as_fetched() {
    let world = World::new().await;
    let alice = Legacy::new(&world, "alice");
    let fetched = "SELECT count(*) FROM tasks WHERE first_fetched_at IS NOT NULL";
    let task = alice.task("task").await;
    let claim = world.claim("task").await;
    world.complete(&claim, &text("done")).await;
    let shown = alice.result("tasks/get", id_of(&task)).await;
    assert_eq!(shown["status"], "completed");
    alice.result("tools/list", json!({})).await;
    assert_eq!(world.count(fetched).await, 0);
    alice.result("tasks/result", id_of(&task)).await;
    world.until(fetched, 1).await;
}

#[tokio::test]
async fn a_tools_own_error_makes_the_task_failed() {
    let world = World::new().await;
    let alice = Legacy::new(&world, "alice");
    let task = alice.task("task").await;
    let claim = world.claim("task").await;
    let result = json!({"resultType": "complete", "isError": true,
                        "content": [{"type": "text", "text": "no such city"}]});
    world.complete(&claim, &result).await;
    let shown = alice.result("tasks/get", id_of(&task)).await;
    assert_eq!(shown["status"], "failed", "{shown}");
    assert!(shown["statusMessage"].is_string());
    let result = alice.result("tasks/result", id_of(&task)).await;
    assert_eq!(
        (&result["isError"], &result["content"][0]["text"]),
        (&json!(true), &json!("no such city"))
    );
    let told = alice.error("tasks/cancel", id_of(&task)).await;
    assert_eq!(told["code"], -32602);
    assert!(
        told["message"].as_str().unwrap().contains("'failed'"),
        "{told}"
    );
    // Today it is a completed call.
    let id = task["taskId"].as_str().unwrap();
    let modern = world.client("alice").get(id).await.unwrap();
    assert_eq!(modern["status"], "completed");
}

#[tokio::test]
async fn a_failed_task_is_answered_with_its_error() {
    let world = World::new().await;
    let alice = Legacy::new(&world, "alice");
    let task = alice.task("task").await;
    let claim = world.claim("task").await;
    world
        .fail(
            &claim,
            &json!({"code": -32050, "message": "broken", "data": {"a": 1}}),
        )
        .await;
    assert_eq!(
        alice.result("tasks/get", id_of(&task)).await["status"],
        "failed"
    );
    let told = alice.error("tasks/result", id_of(&task)).await;
    assert_eq!(
        told,
        json!({"code": -32050, "message": "broken", "data": {"a": 1}})
    );
}

#[tokio::test]
async fn a_cancelled_task_is_the_answer() {
    let world = World::new().await;
    let alice = Legacy::new(&world, "alice");
    // Nobody runs it: over at once.
    let task = alice.task("task").await;
    let cancelled = alice.result("tasks/cancel", id_of(&task)).await;
    without_modern(&cancelled);
    assert_eq!(
        (&cancelled["status"], &cancelled["taskId"]),
        (&json!("cancelled"), &task["taskId"])
    );
    assert!(cancelled["ttl"].is_number());
    let told = alice.error("tasks/cancel", id_of(&task)).await;
    assert_eq!(told["code"], -32602);
    assert_eq!(
        told["message"],
        "Cannot cancel task: already in terminal status 'cancelled'"
    );
    assert_eq!(alice.code("tasks/result", id_of(&task)).await, -32603);

    // A worker runs it: the answer waits until it has stopped.
    let task = alice.task("task").await;
    let claim = world.claim("task").await;
    let stop = async {
        world
            .until(
                "SELECT count(*) FROM tasks WHERE stop_reason = 'cancelled' AND phase = 'running'",
                1,
            )
            .await;
        let ended = world.store.confirm_stopped(&claim).await.unwrap();
        assert_eq!(ended, store::Ended::Done);
        world.queue.wake(claim.id()).await;
    };
    let (cancelled, ()) = tokio::join!(alice.result("tasks/cancel", id_of(&task)), stop);
    assert_eq!(cancelled["status"], "cancelled");

    // It ends before it could be stopped: that is told.
    let task = alice.task("task").await;
    let claim = world.claim("task").await;
    let end = async {
        world
            .until(
                "SELECT count(*) FROM tasks WHERE stop_reason = 'cancelled' AND phase = 'running'",
                1,
            )
            .await;
        world.complete(&claim, &text("too late")).await;
    };
    let (told, ()) = tokio::join!(alice.error("tasks/cancel", id_of(&task)), end);
    assert_eq!(
        told["message"],
        "Cannot cancel task: already in terminal status 'completed'"
    );
    let result = alice.result("tasks/result", id_of(&task)).await;
    assert_eq!(result["content"][0]["text"], "too late");
}

/// A cancel that waits is as much as a subscription; who has no place left is answered at once.
#[tokio::test]
async fn cancels_wait_in_their_principals_places() {
    let mut config = config();
    config.limits.listens_of_principal_max = 2;
    let world = World::with(config).await;
    let (alice, bob) = (Legacy::new(&world, "alice"), Legacy::new(&world, "bob"));
    let cancel = |of: &Legacy, task: &Value| {
        let (of, id) = (of.clone(), id_of(task));
        async move { of.result("tasks/cancel", id).await }
    };
    let waiting = async |n: f64| {
        let look = async || world.metric("mcp_tasks_gateway_listens");
        wait::for_state("they wait", SOON, look, |seen| (seen - n).abs() < 0.5)
            .await
            .unwrap();
    };
    let asked = "SELECT count(*) FROM tasks WHERE stop_reason = 'cancelled'";
    let stop = async |claim: &store::Claim| {
        let ended = world.store.confirm_stopped(claim).await.unwrap();
        assert_eq!(ended, store::Ended::Done);
        world.queue.wake(claim.id()).await;
    };
    let (mut running, mut claims) = (Vec::new(), Vec::new());
    for owner in [&alice, &alice, &alice, &bob] {
        running.push(owner.task("task").await);
        claims.push(world.claim("task").await);
    }
    let tasks = tokio_util::task::TaskTracker::new();
    let mut waits = vec![
        tasks.spawn(cancel(&alice, &running[0])),
        tasks.spawn(cancel(&alice, &running[1])),
    ];
    waiting(2.0).await;
    let told = cancel(&alice, &running[2]).await;
    assert_eq!(told["status"], "working", "{told}");
    let message = told["statusMessage"].as_str().unwrap();
    assert!(message.starts_with("Told to stop."), "{told}");
    assert_eq!(world.count(asked).await, 3, "it is told all the same");
    assert!(!waits.iter().any(tokio::task::JoinHandle::is_finished));
    // Nobody else notices.
    waits.push(tasks.spawn(cancel(&bob, &running[3])));
    waiting(3.0).await;
    for claim in &claims {
        stop(claim).await;
    }
    for wait in waits {
        assert_eq!(wait.await.unwrap()["status"], "cancelled");
    }
    waiting(0.0).await;
}

#[tokio::test]
async fn foreign_unknown_and_broken_ids_are_the_same_nothing() {
    let world = World::new().await;
    let (alice, bob) = (Legacy::new(&world, "alice"), Legacy::new(&world, "bob"));
    let task = alice.task("task").await;
    for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
        let mut answers = Vec::new();
        for id in [
            task["taskId"].clone(),
            json!(UNKNOWN),
            json!("nonsense"),
            json!(""),
        ] {
            answers.push(bob.error(method, json!({"taskId": id})).await);
        }
        answers.dedup();
        assert_eq!(answers.len(), 1, "{method}: {answers:?}");
        assert_eq!(answers[0]["code"], -32602);
        for bad in [json!({}), json!({"taskId": 1}), json!({"taskId": null})] {
            assert_eq!(bob.code(method, bad).await, -32602);
        }
    }
    assert_eq!(
        alice.result("tasks/get", id_of(&task)).await["status"],
        "working"
    );
}

#[tokio::test]
async fn whoever_waits_for_a_result_may_go_away() {
    let world = World::new().await;
    let alice = Legacy::new(&world, "alice");
    let task = alice.task("task").await;
    let claim = world.claim("task").await;
    let stream = alice
        .request("tasks/result", id_of(&task))
        .stream()
        .await
        .unwrap();
    assert_eq!(stream.headers["content-type"], "text/event-stream");
    let waiting = async || (world.metric("mcp_tasks_gateway_listens") > 0.0).then_some(());
    wait::until("it waits", SOON, waiting).await.unwrap();
    drop(stream);
    let gone = async || (world.metric("mcp_tasks_gateway_listens") < 1.0).then_some(());
    wait::until("it is gone", SOON, gone).await.unwrap();
    world.complete(&claim, &text("done")).await;
    let result = alice.result("tasks/result", id_of(&task)).await;
    assert_eq!(result["content"][0]["text"], "done");
}

#[tokio::test]
async fn progress_goes_to_whoever_waits_for_the_result() {
    let world = World::new().await;
    let alice = Legacy::new(&world, "alice");
    let task = alice.task("task").await;
    let claim = world.claim("task").await;
    let mut params = id_of(&task);
    params["_meta"] = json!({"progressToken": "p", RELATED: {"taskId": "ignored"}});
    let mut stream = alice
        .request("tasks/result", params)
        .stream()
        .await
        .unwrap();
    world
        .queue
        .progress(claim.id(), br#"{"progress":1,"message":"half"}"#)
        .await;
    let first = stream.next(SOON).await.unwrap().unwrap();
    assert_eq!(first["params"]["progressToken"], "p", "{first}");
    world.complete(&claim, &text("done")).await;
    let last = stream.next(SOON).await.unwrap().unwrap();
    assert_eq!(last["result"]["content"][0]["text"], "done");
}

/// An idempotency key is one task for whoever repeats it, also where the first call was inline.
#[tokio::test]
async fn a_repeat_by_key_is_given_the_same_task() {
    let world = World::new().await;
    let alice = Legacy::new(&world, "alice");
    let keyed = |task: Option<Value>| {
        let mut params = json!({"name": "keyed", "arguments": {"order": "a-1"}});
        if let Some(task) = task {
            params["task"] = task;
        }
        params
    };
    let first = alice.result("tools/call", keyed(Some(json!({})))).await;
    let second = alice.result("tools/call", keyed(Some(json!({})))).await;
    assert_eq!(first["task"]["taskId"], second["task"]["taskId"]);
    let claim = world.claim("keyed").await;
    world.complete(&claim, &text("done")).await;
    let third = alice.result("tools/call", keyed(Some(json!({})))).await;
    assert_eq!(third["task"]["status"], "completed");
    let inline = alice.result("tools/call", keyed(None)).await;
    assert_eq!(inline["content"][0]["text"], "done");
    assert_eq!(world.count("SELECT count(*) FROM tasks").await, 1);
}

#[tokio::test]
async fn at_the_end_of_the_process_waits_are_told_to_come_again() {
    let mut world = World::new().await;
    let alice = Legacy::new(&world, "alice");
    let task = alice.task("task").await;
    let stream = alice.request("tasks/result", id_of(&task)).stream();
    let mut stream = stream.await.unwrap();
    let (last, ()) = tokio::join!(
        async { stream.next(SOON).await.unwrap().unwrap() },
        world.stop()
    );
    assert_eq!(last["error"]["code"], -32603, "{last}");
    let told = last["error"]["message"].as_str().unwrap();
    assert!(told.contains("the task goes on"), "{told}");
}
