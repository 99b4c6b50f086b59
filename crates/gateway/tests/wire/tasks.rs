//! `tasks/get`, `tasks/update`, `tasks/cancel`.

use serde_json::{Value, json};
use store::ParkedFor;

use crate::support::{World, text, yes};

const METHODS: [&str; 3] = ["tasks/get", "tasks/update", "tasks/cancel"];

#[tokio::test]
async fn unknown_and_foreign_ids_are_the_same_bytes() {
    let world = World::new().await;
    let alice = world.client("alice");
    let id = alice.start("task", json!({})).await.unwrap();
    let mallory = world.client("mallory");
    let upper = id.to_uppercase();
    for method in METHODS {
        let mut bodies = Vec::new();
        for id in [
            id.as_str(),
            "0198c0de-0000-7000-8000-000000000000",
            "gate-test",
            "",
            &upper,
            "☃",
            &"x".repeat(10_000),
        ] {
            let params = json!({"taskId": id, "inputResponses": {"k": yes()}});
            let answer = mallory
                .request(method, params)
                .id(json!(1))
                .send()
                .await
                .unwrap();
            assert_eq!(
                (answer.status, answer.error_code()),
                (200, Some(-32602)),
                "{method} {id}"
            );
            bodies.push(answer.body);
        }
        bodies.dedup();
        assert_eq!(bodies.len(), 1, "{method}");
    }
    assert_eq!(alice.get(&id).await.unwrap()["status"], "working");
}

#[tokio::test]
async fn expired_ones_are_told_to_their_owner_only() {
    let world = World::new().await;
    let alice = world.client("alice");
    let id = alice.start("task", json!({})).await.unwrap();
    let claim = world.claim("task").await;
    world.complete(&claim, &text("done")).await;
    world
        .database
        .rows(
            "WITH gone AS (DELETE FROM tasks RETURNING id, issuer, subject, tool, created_at)
             INSERT INTO tombstones (task_id, issuer, subject, tool, final_status, created_at,
                                     finished_at, expired_at, purge_at)
             SELECT id, issuer, subject, tool, 'completed', created_at, now(),
                    '2026-01-02T03:04:05Z', now() + interval '1 day'
             FROM gone",
        )
        .await
        .unwrap();
    for method in METHODS {
        let params = json!({"taskId": id, "inputResponses": {}});
        let answer = alice.request(method, params.clone()).send().await.unwrap();
        assert_eq!((answer.status, answer.error_code()), (200, Some(-32602)));
        assert_eq!(
            answer.error()["message"],
            "Failed to retrieve task: Task has expired"
        );
        assert_eq!(
            answer.error()["data"],
            json!({"reason": "task_expired", "finalStatus": "completed",
                   "expiredAt": "2026-01-02T03:04:05.000000Z"}),
        );
        let foreign = world
            .client("mallory")
            .request(method, params)
            .send()
            .await
            .unwrap();
        assert_eq!(
            foreign.error()["message"],
            "Failed to retrieve task: Task not found"
        );
        assert!(foreign.error().get("data").is_none());
    }
}

#[tokio::test]
async fn a_life() {
    let world = World::new().await;
    let alice = world.client("alice");
    let id = alice.start("task", json!({})).await.unwrap();
    let first = alice.get(&id).await.unwrap();
    assert_eq!(
        (&first["resultType"], &first["status"]),
        (&json!("complete"), &json!("working"))
    );
    assert_eq!(first["taskId"], id.as_str());
    assert_eq!(alice.get(&id).await.unwrap(), first, "nothing changed");

    let claim = world.claim("task").await;
    world.park(&claim, ParkedFor::Task, &["a", "b"]).await;
    let asked = alice.get(&id).await.unwrap();
    assert_eq!(asked["status"], "input_required");
    let message = asked["statusMessage"].as_str().unwrap();
    assert!(message.contains("tasks/update"), "{message}");
    assert_eq!(asked["inputRequests"].as_object().unwrap().len(), 2);
    assert!(
        asked["pollIntervalMs"].as_u64() >= Some(5000),
        "people are slow"
    );
    for absent in ["result", "error", "requestState"] {
        assert!(asked.get(absent).is_none());
    }

    let update = async |responses: Value| alice.update(&id, responses).await;
    let malformed = update(json!({"a": yes(), "b": {"action": "perhaps"}}))
        .await
        .unwrap_err();
    assert!(malformed.to_string().contains('b'), "{malformed}");
    assert_eq!(alice.get(&id).await.unwrap(), asked, "nothing was applied");
    for ignored in [json!({}), json!({"unknown-key": {"ignored": true}})] {
        is_acknowledgement(&update(ignored).await.unwrap());
        assert_eq!(alice.get(&id).await.unwrap(), asked);
    }
    is_acknowledgement(&update(json!({"a": yes(), "unknown": 1})).await.unwrap());
    let partly = alice.get(&id).await.unwrap();
    assert_eq!(partly["status"], "input_required");
    let left: Vec<&String> = partly["inputRequests"]
        .as_object()
        .unwrap()
        .keys()
        .collect();
    assert_eq!(left, ["b"]);
    is_acknowledgement(
        &update(json!({"b": yes(), "a": {"action": "decline"}}))
            .await
            .unwrap(),
    );
    assert_eq!(alice.get(&id).await.unwrap()["status"], "working");

    let claim = world.claim("task").await;
    let stored = b"{\"resultType\":\"complete\",\"content\":[],\"n\":1.50}";
    world.complete_with(&claim, stored).await;
    let done = alice
        .request("tasks/get", json!({"taskId": id}))
        .id(json!(1));
    let done = done.send().await.unwrap().body;
    let shown = String::from_utf8(done.to_vec()).unwrap();
    assert!(
        shown.contains(std::str::from_utf8(stored).unwrap()),
        "{shown}"
    );
    let again = alice
        .request("tasks/get", json!({"taskId": id}))
        .id(json!(1));
    assert_eq!(again.send().await.unwrap().body, done, "terminal is final");
    is_acknowledgement(&alice.cancel(&id).await.unwrap());
    is_acknowledgement(&update(json!({"a": yes()})).await.unwrap());
    assert_eq!(alice.get(&id).await.unwrap()["status"], "completed");
}

fn is_acknowledgement(result: &Value) {
    let names: Vec<&String> = result.as_object().unwrap().keys().collect();
    assert_eq!(names, ["_meta", "resultType"]);
    assert_eq!(result["resultType"], "complete");
}

#[tokio::test]
async fn cancel_is_at_once_where_nothing_runs() {
    let world = World::new().await;
    let alice = world.client("alice");
    let queued = alice.start("task", json!({})).await.unwrap();
    is_acknowledgement(&alice.cancel(&queued).await.unwrap());
    let task = alice.get(&queued).await.unwrap();
    assert_eq!(task["status"], "cancelled");
    assert!(task.get("result").is_none() && task.get("error").is_none());
    is_acknowledgement(&alice.cancel(&queued).await.unwrap());

    let running = alice.start("task", json!({})).await.unwrap();
    let claim = world.claim("task").await;
    let mut stop = world.queue.watch_stop(claim.id()).await;
    is_acknowledgement(&alice.cancel(&running).await.unwrap());
    assert_eq!(
        stop.next().await,
        queue::Event::Changed,
        "the worker is told"
    );
    assert_eq!(alice.get(&running).await.unwrap()["status"], "working");
    let settled = world.store.confirm_stopped(&claim).await.unwrap();
    assert_eq!(settled, store::Ended::Done);
    assert_eq!(alice.get(&running).await.unwrap()["status"], "cancelled");
}

#[tokio::test]
async fn failed_tasks_hold_the_error_and_no_result() {
    let world = World::new().await;
    let alice = world.client("alice");
    let id = alice.start("task", json!({})).await.unwrap();
    let claim = world.claim("task").await;
    let error = json!({"code": -32603, "message": "gone", "data": {"reason": "work_limit"}});
    world.fail(&claim, &error).await;
    let task = alice.get(&id).await.unwrap();
    assert_eq!(
        (&task["status"], &task["error"]),
        (&json!("failed"), &error)
    );
    assert!(task.get("result").is_none());
    assert!(task["statusMessage"].is_string());
}
