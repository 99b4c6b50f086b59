//! `tools/call` from commit to outcome: inline, as a stream, as a handle, and left alone.

use std::time::Duration;

use harness::client::{Client, Request};
use serde_json::{Value, json};

use crate::support::{SECOND, SOON, World, config, text};

fn call<'a>(client: &'a Client, tool: &str) -> Request<'a> {
    client.request("tools/call", json!({"name": tool, "arguments": {}}))
}

#[tokio::test]
async fn a_quick_outcome_is_plain_json() {
    let world = World::new().await;
    for client in [world.client("alice"), world.client("alice").undeclared()] {
        let (answer, ()) = tokio::join!(call(&client, "call").send(), async {
            let claim = world.claim("call").await;
            // As another program might have printed it.
            let result = b"{\n \"resultType\": \"complete\",\n \"content\": [], \"n\": 1.50,\n \"_meta\": {\"x\": 1}}";
            world.complete_with(&claim, result).await;
        });
        let answer = answer.unwrap();
        assert_eq!(answer.status, 200);
        assert!(!answer.is_stream() && answer.notifications.is_empty());
        let body = String::from_utf8(answer.body.to_vec()).unwrap();
        assert!(
            !body.contains('\n') && body.contains("\"n\": 1.50"),
            "{body}"
        );
        let meta = &answer.message["result"]["_meta"];
        assert_eq!(meta["x"], 1);
        assert_eq!(
            meta["io.modelcontextprotocol/serverInfo"]["name"],
            "mcp-tasks"
        );
    }
}

#[tokio::test]
async fn failures_and_stops_are_told_as_errors() {
    let world = World::new().await;
    let alice = world.client("alice");
    let (answer, ()) = tokio::join!(call(&alice, "call").send(), async {
        let claim = world.claim("call").await;
        let error = json!({"code": -32050, "message": "no luck", "data": {"why": 1}});
        world.fail(&claim, &error).await;
    });
    let answer = answer.unwrap();
    assert_eq!((answer.status, answer.error_code()), (200, Some(-32050)));
    assert_eq!(answer.error()["data"]["why"], 1);

    let (answer, ()) = tokio::join!(call(&alice, "call").send(), async {
        let claim = world.claim("call").await;
        let owner = store::Principal::verified("dev".to_owned(), "alice".to_owned(), None);
        world.store.cancel(&owner, claim.id()).await.unwrap();
        let settled = world.store.confirm_stopped(&claim).await.unwrap();
        assert_eq!(settled, store::Ended::Done);
        world.queue.wake(claim.id()).await;
    });
    let answer = answer.unwrap();
    assert_eq!((answer.status, answer.error_code()), (200, Some(-32603)));
    assert_eq!(answer.error()["data"]["reason"], "cancelled");
}

#[tokio::test]
async fn a_slow_outcome_comes_as_a_stream() {
    let world = World::new().await;
    let undeclared = world.client("alice").undeclared();
    let mut stream = call(&undeclared, "inline")
        .id(json!("s"))
        .stream()
        .await
        .unwrap();
    assert_eq!(stream.status, 200);
    for (name, value) in [
        ("content-type", "text/event-stream"),
        ("x-accel-buffering", "no"),
        ("cache-control", "no-store"),
    ] {
        assert_eq!(stream.headers[name], value);
    }
    let first = tokio::time::timeout(SECOND, stream.event())
        .await
        .unwrap()
        .unwrap();
    assert!(
        matches!(first, Some(harness::sse::Event::Comment(_))),
        "{first:?}"
    );
    let claim = world.claim("inline").await;
    world.complete(&claim, &text("done")).await;
    let last = stream.next(SOON).await.unwrap().unwrap();
    assert_eq!(last["id"], "s");
    assert_eq!(last["result"]["content"][0]["text"], "done");
    assert_eq!(
        stream.next(SOON).await.unwrap(),
        None,
        "the response ends the stream"
    );

    // A client that reads no streams waits for its JSON.
    let plain = call(&undeclared, "inline").header("accept", "application/json");
    let (answer, ()) = tokio::join!(plain.send(), async {
        tokio::time::sleep(SECOND).await;
        let claim = world.claim("inline").await;
        world.complete(&claim, &text("done")).await;
    });
    let answer = answer.unwrap();
    assert!(!answer.is_stream());
    assert_eq!(answer.message["result"]["content"][0]["text"], "done");
}

#[tokio::test]
async fn progress_goes_to_who_gave_a_token() {
    let world = World::new().await;
    let undeclared = world.client("alice").undeclared();
    let request = call(&undeclared, "inline").meta("progressToken", json!("p-1"));
    let report = async |values: &[i64]| {
        let claim = world.claim("inline").await;
        for value in values {
            let report = json!({"progress": value, "total": 100});
            world
                .queue
                .progress(claim.id(), report.to_string().as_bytes())
                .await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        world.complete(&claim, &text("done")).await;
    };
    // 40 comes from an attempt that began again.
    let (answer, ()) = tokio::join!(request.send(), report(&[0, 50, 40, 100]));
    let answer = answer.unwrap();
    assert!(answer.is_stream());
    let seen: Vec<&Value> = answer
        .notifications
        .iter()
        .map(|n| &n["params"]["progress"])
        .collect();
    assert_eq!(seen, [&json!(0), &json!(50), &json!(100)]);
    for notification in &answer.notifications {
        assert_eq!(notification["method"], "notifications/progress");
        assert_eq!(notification["params"]["progressToken"], "p-1");
    }
    assert_eq!(answer.message["result"]["content"][0]["text"], "done");
    // Without a token there is none.
    let (answer, ()) = tokio::join!(call(&undeclared, "inline").send(), report(&[0, 50]));
    assert_eq!(answer.unwrap().notifications, Vec::<Value>::new());
}

#[tokio::test]
async fn the_budget_makes_a_task() {
    let world = World::new().await;
    let alice = world.client("alice");
    for tool in ["task", "only_task", "brief"] {
        let answer = call(&alice, tool).send().await.unwrap();
        let handle = &answer.message["result"];
        assert_eq!(handle["resultType"], "task", "{handle}");
        assert_eq!(handle["status"], "working");
        let message = handle["statusMessage"].as_str().unwrap();
        assert!(message.contains("does not exist yet"), "{message}");
        for absent in [
            "task",
            "result",
            "error",
            "inputRequests",
            "requestState",
            "ttl",
        ] {
            assert!(handle.get(absent).is_none(), "{absent}");
        }
        assert!(handle["ttlMs"].as_i64().unwrap() > 0);
        assert!(handle["pollIntervalMs"].as_u64().unwrap() >= 500);
        let created = handle["createdAt"].as_str().unwrap();
        assert!(
            created.ends_with('Z') && created.as_bytes()[10] == b'T',
            "{created}"
        );
        assert!(handle["_meta"]["io.modelcontextprotocol/serverInfo"]["version"].is_string());
        let got = alice.get(handle["taskId"].as_str().unwrap()).await.unwrap();
        assert_eq!(got["status"], "working");
    }
    let handed = "SELECT count(*) FROM tasks WHERE handed_out_at IS NOT NULL";
    assert_eq!(world.count(handed).await, 3);
    assert!(world.metric("mcp_tasks_gateway_promotions_total{reason=\"no_budget\"}") > 1.5);
    assert!(world.metric("mcp_tasks_gateway_promotions_total{reason=\"deadline\"}") > 0.5);
    // What can't be a task is never one.
    let undeclared = world.client("alice").undeclared();
    for (client, tool) in [(&undeclared, "task"), (&alice, "inline")] {
        let (answer, ()) = tokio::join!(call(client, tool).send(), async {
            let claim = loop {
                let claim = world.claim(tool).await;
                if !claim.handed_out {
                    break claim;
                }
            };
            tokio::time::sleep(SECOND).await;
            world.complete(&claim, &text("done")).await;
        });
        assert_eq!(answer.unwrap().message["result"]["resultType"], "complete");
    }
}

#[tokio::test]
async fn a_status_message_of_the_work_does_not_hide_that_there_is_no_result() {
    let world = World::new().await;
    let alice = world.client("alice");
    let (answer, ()) = tokio::join!(call(&alice, "brief").send(), async {
        let claim = world.claim("brief").await;
        let written = world.store.progress(&claim, "stage 1 of 3").await.unwrap();
        assert_eq!(written, store::Write::Done);
    });
    let answer = answer.unwrap();
    let message = answer.message["result"]["statusMessage"].as_str().unwrap();
    assert!(message.starts_with("stage 1 of 3") && message.contains("does not exist yet"));
}

#[tokio::test]
async fn a_caller_that_goes_away_stops_the_work() {
    let world = World::new().await;
    for client in [world.client("alice"), world.client("alice").undeclared()] {
        let stream = call(&client, "call").stream().await.unwrap();
        let claim = world.claim("call").await;
        drop(stream);
        let stopped = format!(
            "SELECT count(*) FROM tasks WHERE id = '{}' AND stop_reason = 'abandoned'",
            claim.id()
        );
        world.until(&stopped, 1).await;
    }
    // Before the head of the answer left, too.
    let client = world
        .client("alice")
        .undeclared()
        .timeout(Duration::from_millis(300));
    call(&client, "inline").send().await.unwrap_err();
    world
        .until(
            "SELECT count(*) FROM tasks WHERE stop_reason = 'abandoned'",
            3,
        )
        .await;
    let held = async || world.metric("mcp_tasks_gateway_held_calls");
    harness::wait::for_state("no call is held", SOON, held, |n| *n < 0.5)
        .await
        .unwrap();
    let abandoned = world.metric("mcp_tasks_gateway_abandoned_total");
    assert!((abandoned - 3.0).abs() < 0.1, "{abandoned}");
}

#[tokio::test]
async fn a_key_lets_the_caller_come_back() {
    let world = World::new().await;
    let alice = world.client("alice");
    let first = call(&alice, "call")
        .idempotency_key("k")
        .stream()
        .await
        .unwrap();
    let claim = world.claim("call").await;
    drop(first);
    let (again, ()) = tokio::join!(call(&alice, "call").idempotency_key("k").send(), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        world.complete(&claim, &text("once")).await;
    });
    assert_eq!(
        again.unwrap().message["result"]["content"][0]["text"],
        "once"
    );
    // And once more, from the stored result.
    let later = call(&alice, "call")
        .idempotency_key("k")
        .send()
        .await
        .unwrap();
    assert_eq!(later.message["result"]["content"][0]["text"], "once");
    assert_eq!(world.count("SELECT count(*) FROM tasks").await, 1);
    let stopped = "SELECT count(*) FROM tasks WHERE stop_requested_at IS NOT NULL";
    assert_eq!(world.count(stopped).await, 0);

    let other = alice.request("tools/call", json!({"name": "call", "arguments": {"x": 1}}));
    let conflict = other.idempotency_key("k").send().await.unwrap();
    assert_eq!(
        (conflict.status, conflict.error_code()),
        (200, Some(-32602))
    );
    assert_eq!(conflict.error()["data"]["reason"], "idempotency_conflict");
    // Another principal's key is another key, and so is another tool's.
    let mallory = world.client("mallory");
    let own = call(&mallory, "task")
        .idempotency_key("k")
        .send()
        .await
        .unwrap();
    assert_eq!(own.message["result"]["resultType"], "task");
}

#[tokio::test]
async fn keys_come_from_four_places_and_must_agree() {
    let world = World::new().await;
    let alice = world.client("alice");
    let arguments = json!({"order": "o-7"});
    let call = || {
        alice.request(
            "tools/call",
            json!({"name": "keyed", "arguments": arguments}),
        )
    };
    let mut ids = Vec::new();
    for request in [
        call(),
        call().idempotency_key("o-7"),
        call().param("idempotencyKey", json!("o-7")),
        call().header("idempotency-key", "\"o-7\""),
    ] {
        let result = request.send().await.unwrap().into_result().unwrap();
        ids.push(result["taskId"].clone());
    }
    assert!(
        ids.iter().all(|id| *id == ids[0] && id.is_string()),
        "{ids:?}"
    );
    for request in [
        call().idempotency_key("other"),
        call().param("idempotencyKey", json!("other")),
        call().header("idempotency-key", "other"),
    ] {
        let answer = request.send().await.unwrap();
        assert_eq!((answer.status, answer.error_code()), (200, Some(-32602)));
    }
    let spelled = json!({"name": "keyed", "arguments": {"order": "o-8", "n": 1.0}});
    let otherwise = json!({"name": "keyed", "arguments": {"n": 1, "order": "o-8"}});
    let first = alice.request("tools/call", spelled).send().await.unwrap();
    let second = alice.request("tools/call", otherwise).send().await.unwrap();
    assert_eq!(
        first.message["result"]["taskId"], second.message["result"]["taskId"],
        "spelling is no difference"
    );
}

#[tokio::test]
async fn a_hundred_racing_calls_with_one_key_are_one_task() {
    let world = World::new().await;
    let alice = world.client("alice");
    let calls = (0..100).map(|_| call(&alice, "task").idempotency_key("race").send());
    let answers = futures::future::join_all(calls).await;
    let mut ids: Vec<String> = answers
        .into_iter()
        .map(|a| {
            a.unwrap().into_result().unwrap()["taskId"]
                .as_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    ids.dedup();
    assert_eq!(ids.len(), 1);
    assert_eq!(world.count("SELECT count(*) FROM tasks").await, 1);
}

#[tokio::test]
async fn a_long_queue_promotes_at_once() {
    let world = World::new().await;
    let alice = world.client("alice");
    for _ in 0..2 {
        let begun = std::time::Instant::now();
        let id = alice.start("call", json!({})).await.unwrap();
        assert!(!id.is_empty());
        if begun.elapsed() < SECOND {
            let reason = "mcp_tasks_gateway_promotions_total{reason=\"queue\"}";
            assert!(world.metric(reason) > 0.5);
            return;
        }
        // The first waited out its budget; its job waits longer than the next one's would.
        tokio::time::sleep(3 * SECOND).await;
    }
    panic!("the second call waited although the queue was longer than its budget");
}

#[tokio::test]
async fn a_lost_wake_up_costs_two_seconds() {
    let world = World::new().await;
    let undeclared = world.client("alice").undeclared();
    let begun = std::time::Instant::now();
    let (answer, ()) = tokio::join!(call(&undeclared, "inline").send(), async {
        let claim = world.claim("inline").await;
        let result = text("done").to_string();
        let written = world
            .store
            .complete(&claim, result.as_bytes(), SECOND)
            .await
            .unwrap();
        assert_eq!(written, store::Write::Done);
    });
    assert_eq!(
        answer.unwrap().message["result"]["content"][0]["text"],
        "done"
    );
    assert!(begun.elapsed() < 4 * SECOND);
}

#[tokio::test]
async fn the_end_of_the_process_promotes_and_finishes_what_it_holds() {
    let mut config = config();
    config.inline_budget = 60 * SECOND;
    let mut world = World::with(config).await;
    let alice = world.client("alice");
    let undeclared = world.client("alice").undeclared();
    let declared = call(&alice, "call").stream().await.unwrap();
    let held = call(&undeclared, "inline").stream().await.unwrap();
    let mut listen = alice
        .listen(json!({"toolsListChanged": true}))
        .await
        .unwrap();
    let ack = listen.next(SOON).await.unwrap().unwrap();
    assert_eq!(ack["method"], "notifications/subscriptions/acknowledged");
    let claim = world.claim("inline").await;
    let gateway = world.gateway.take().unwrap();
    world.shutdown.cancel();
    let (mut declared, mut held) = (declared, held);
    let handle = declared.next(SOON).await.unwrap().unwrap();
    assert_eq!(handle["result"]["resultType"], "task");
    let last = listen.next(SOON).await.unwrap().unwrap();
    assert_eq!(last["result"]["resultType"], "complete");
    assert_eq!(listen.next(SOON).await.unwrap(), None);
    assert!(!world.health.readiness().ok);
    world.complete(&claim, &text("done")).await;
    let result = held.next(SOON).await.unwrap().unwrap();
    assert_eq!(result["result"]["content"][0]["text"], "done");
    tokio::time::timeout(SOON, gateway)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    alice.discover().await.unwrap_err();
}
