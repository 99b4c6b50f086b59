//! Happy ways through the whole system.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{SOON, System, text};

/// A task made through one gateway is read on the second, answered on the third and listened
/// to on the second: the same task everywhere.
#[tokio::test(flavor = "multi_thread")]
async fn one_task_over_three_gateways() {
    let system = System::of(3, 1).await;
    let [first, second, third] = [0, 1, 2].map(|n| system.cluster.client(n, "alice"));
    let id = first
        .start("confirm_delete", json!({"filename": "a.txt"}))
        .await
        .unwrap();
    let mut listen = second.listen(json!({"taskIds": [id]})).await.unwrap();
    let acknowledged = listen.next(SOON).await.unwrap().unwrap();
    assert_eq!(
        acknowledged["method"],
        "notifications/subscriptions/acknowledged"
    );
    assert_eq!(
        acknowledged["params"]["notifications"]["taskIds"],
        json!([id])
    );
    let asked = second
        .wait_status(&id, "input_required", SOON)
        .await
        .unwrap();
    let (key, _) = asked["inputRequests"]
        .as_object()
        .unwrap()
        .iter()
        .next()
        .unwrap();
    let answer = json!({key: {"action": "accept", "content": {"confirm": true}}});
    let acknowledged = third.update(&id, answer).await.unwrap();
    assert_eq!(acknowledged["resultType"], "complete");
    assert!(acknowledged.get("taskId").is_none());
    let done = first.wait_status(&id, "completed", SOON).await.unwrap();
    assert_eq!(done["result"]["resultType"], "complete");
    let seen = listen
        .find(SOON, |message| message["params"]["status"] == "completed")
        .await
        .unwrap();
    assert_eq!(seen["method"], "notifications/tasks");
    assert_eq!(seen["params"]["result"], done["result"]);
    assert_eq!(seen["params"]["taskId"], json!(id));
    assert!(seen["params"].get("resultType").is_none());
    assert!(!seen["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"].is_null());
    system.cluster.quiet(&[]).unwrap();
}

/// One tool, two sizes of input: the deadline decides, not the name.
#[tokio::test(flavor = "multi_thread")]
async fn inline_or_task_by_deadline() {
    let system = System::of(1, 1).await;
    let client = system.cluster.client(0, "alice");
    let small = client
        .call("reindex_corpus", json!({"collection": "small"}))
        .await
        .unwrap();
    assert_eq!(small["resultType"], "complete", "{small}");
    let large = client
        .call("reindex_corpus", json!({"collection": "large"}))
        .await
        .unwrap();
    assert_eq!(large["resultType"], "task", "{large}");
    for absent in ["task", "result", "error", "inputRequests", "requestState"] {
        assert!(large.get(absent).is_none(), "{absent} in {large}");
    }
    let id = large["taskId"].as_str().unwrap();
    client.cancel(id).await.unwrap();
    client.wait_status(id, "cancelled", SOON).await.unwrap();
    // What was delivered inline without a key leaves no row behind.
    let gone = harness::wait::until("inline rows gone", SOON, async || {
        (system
            .count("SELECT count(*) FROM tasks WHERE handed_out_at IS NULL")
            .await
            == 0)
            .then_some(())
    });
    gone.await.unwrap();
}

/// A client without the extension never gets a handle: it waits, sees progress, and is asked
/// nothing that only a task may ask.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_without_tasks_is_served_inline() {
    let system = System::of(1, 1).await;
    let client = system.cluster.client(0, "alice").undeclared();
    let params = json!({"name": "build_report", "arguments": {"month": "2026-11"}, "_meta": {"progressToken": "p"}});
    let started = Instant::now();
    let answer = client.request("tools/call", params).send().await.unwrap();
    assert!(answer.is_stream());
    assert!(!answer.notifications.is_empty(), "progress was streamed");
    assert!(
        answer
            .notifications
            .iter()
            .all(|n| n["method"] == "notifications/progress")
    );
    let result = answer.into_result().unwrap();
    assert_eq!(result["resultType"], "complete", "{result}");
    assert!(
        started.elapsed() > Duration::from_secs(5),
        "it is a slow tool"
    );
}

/// A tool that is only offered as a task refuses a client that cannot take one, and says why.
#[tokio::test(flavor = "multi_thread")]
async fn a_task_only_tool_names_the_missing_capability() {
    let system = System::of(1, 1).await;
    let client = system.cluster.client(0, "alice").undeclared();
    let refused = client
        .request(
            "tools/call",
            json!({"name": "failing_job", "arguments": {}}),
        )
        .send()
        .await
        .unwrap();
    assert_eq!((refused.status, refused.error_code()), (400, Some(-32021)));
    let needed = &refused.error()["data"]["requiredCapabilities"]["extensions"];
    assert_eq!(needed["io.modelcontextprotocol/tasks"], json!({}));
}

/// Questions before the task exists: the state is opened by any gateway, the id never leaves.
#[tokio::test(flavor = "multi_thread")]
async fn asked_before_the_task_exists() {
    let system = System::of(2, 1).await;
    let params = json!({"name": "test_tool_with_task", "arguments": {}});
    let first = system.cluster.client(0, "alice");
    let asked = first
        .request("tools/call", params.clone())
        .send()
        .await
        .unwrap()
        .into_result()
        .unwrap();
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    assert!(asked.get("taskId").is_none());
    let (key, _) = asked["inputRequests"]
        .as_object()
        .unwrap()
        .iter()
        .next()
        .unwrap();
    let mut again = params.clone();
    again["inputResponses"] = json!({key: {"action": "accept", "content": {"name": "Alice"}}});
    again["requestState"] = asked["requestState"].clone();
    // Somebody else's state opens nothing.
    let foreign = system
        .cluster
        .client(1, "mallory")
        .request("tools/call", again.clone())
        .send()
        .await
        .unwrap();
    assert_eq!(foreign.error_code(), Some(-32602));
    let second = system.cluster.client(1, "alice");
    let handle = second
        .request("tools/call", again)
        .send()
        .await
        .unwrap()
        .into_result()
        .unwrap();
    assert_eq!(handle["resultType"], "task", "{handle}");
    let id = handle["taskId"].as_str().unwrap();
    let done = first.wait_status(id, "completed", SOON).await.unwrap();
    assert!(text(&done["result"]).contains("Alice"));
}

/// Clients send a call twice, or again when an answer was lost: the state of a round that is
/// over meets the result.
#[tokio::test(flavor = "multi_thread")]
async fn a_round_sent_again_meets_the_result() {
    let system = System::of(2, 1).await;
    let params = json!({"name": "test_input_required_result_elicitation", "arguments": {}});
    let clients = [0, 1].map(|n| system.cluster.client(n, "alice"));
    let asked = clients[0].request("tools/call", params.clone());
    let asked = asked.send().await.unwrap().into_result().unwrap();
    let mut again = params;
    again["inputResponses"] =
        json!({"user_name": {"action": "accept", "content": {"name": "Alice"}}});
    again["requestState"] = asked["requestState"].clone();
    let calls = (0..20).map(|n| {
        let request = clients[n % 2].request("tools/call", again.clone());
        async move { request.send().await.unwrap().into_result().unwrap() }
    });
    for result in futures::future::join_all(calls).await {
        assert_eq!(text(&result), "Hello, Alice!");
    }
    let late = clients[1].request("tools/call", again.clone());
    let late = late.send().await.unwrap().into_result().unwrap();
    assert_eq!(text(&late), "Hello, Alice!");
    assert_eq!(
        system.count("SELECT max(attempt) FROM tasks").await,
        2,
        "asked, and resumed once"
    );
}

/// The story of the README: a suite, a question, a deployment only on yes.
#[tokio::test(flavor = "multi_thread")]
async fn the_suite_deploys_only_on_yes() {
    let system = System::of(1, 1).await;
    let client = system.cluster.client(0, "alice");
    for (answer, expected) in [(true, "deployed"), (false, "not deployed")] {
        let id = client
            .start("run_suite", json!({"suite": "flaky"}))
            .await
            .unwrap();
        let asked = client
            .wait(&id, SOON, |t| t["status"] != "working")
            .await
            .unwrap();
        assert_eq!(asked["status"], "input_required", "{asked}");
        let (key, request) = asked["inputRequests"]
            .as_object()
            .unwrap()
            .iter()
            .next()
            .unwrap();
        let field = request["params"]["requestedSchema"]["properties"]
            .as_object()
            .unwrap()
            .keys()
            .next()
            .unwrap();
        let content = json!({field: answer});
        client
            .update(&id, json!({key: {"action": "accept", "content": content}}))
            .await
            .unwrap();
        let done = client.wait_status(&id, "completed", SOON).await.unwrap();
        let said = done["result"].to_string();
        assert!(said.contains(expected), "{expected}: {said}");
    }
}

/// Everything that exists only as a task can be seen by its owner alone.
#[tokio::test(flavor = "multi_thread")]
async fn another_token_sees_nothing() {
    let system = System::of(2, 1).await;
    let id = system
        .cluster
        .client(0, "alice")
        .start("slow_compute", json!({"seconds": 30}))
        .await
        .unwrap();
    let mallory = system.cluster.client(1, "mallory");
    let unknown = "0190a0a0-0000-7000-8000-000000000000";
    for (method, extra) in [
        ("tasks/get", json!({})),
        ("tasks/update", json!({"inputResponses": {}})),
        ("tasks/cancel", json!({})),
    ] {
        let mut answers = Vec::new();
        for id in [id.as_str(), unknown] {
            let mut params = extra.clone();
            params["taskId"] = json!(id);
            let answer = mallory
                .request(method, params)
                .id(json!(7))
                .send()
                .await
                .unwrap();
            assert_eq!(
                (answer.status, answer.error_code()),
                (200, Some(-32602)),
                "{method}"
            );
            answers.push(answer.body);
        }
        assert_eq!(
            answers[0], answers[1],
            "{method}: foreign and unknown differ"
        );
    }
    let mut listen = mallory
        .listen(json!({"taskIds": [id, unknown]}))
        .await
        .unwrap();
    let acknowledged = listen.next(SOON).await.unwrap().unwrap();
    let agreed = acknowledged["params"]["notifications"]["taskIds"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    assert_eq!(agreed, Vec::<Value>::new());
    let alice = system.cluster.client(1, "alice");
    assert_eq!(alice.get(&id).await.unwrap()["status"], "working");
    alice.cancel(&id).await.unwrap();
}
