//! Answers: none is thrown away, none counts twice, and what is no answer changes nothing.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use harness::client::Client;
use serde_json::{Value, json};

use crate::reports_tools::{self, Tools};
use crate::support::SOON;

/// A talk of three rounds, with everything that is no answer in between.
#[tokio::test(flavor = "multi_thread")]
async fn only_answers_to_open_questions_count() {
    let (system, ledger, _tools) = reports_tools::system(2, "").await;
    let [alice, other] = [0, 1].map(|n| system.cluster.client(n, "alice"));
    let blob = json!({"unicode": "\u{e9}\u{1F600}\u{2028}", "number": 1e2, "deep": [[[null]]]});
    let arguments = json!({"label": "talk", "rounds": 3, "blob": blob});
    let id = alice.start("converse", arguments.clone()).await.unwrap();
    let mut seen = BTreeSet::new();
    for round in 0..3 {
        let asked = alice
            .wait_status(&id, "input_required", SOON)
            .await
            .unwrap();
        let key = only_key(&asked);
        assert!(seen.insert(key.clone()), "{key} was asked before");
        nothing_changes(&other, &id, &asked, json!({})).await;
        nothing_changes(&other, &id, &asked, json!({"nobody asked": accept("x")})).await;
        for old in seen.iter().filter(|old| **old != key) {
            nothing_changes(&other, &id, &asked, json!({old.clone(): accept("again")})).await;
        }
        malformed_is_named(&other, &id, &asked, &key).await;
        // An inert key beside a good one takes nothing from it.
        let answer = json!({"nobody asked": accept("x"), key.clone(): accept(&round.to_string())});
        other.update(&id, answer).await.unwrap();
        let answered = Instant::now();
        let left = |task: &Value| task["inputRequests"].get(&key).is_none();
        alice.wait(&id, Duration::from_secs(1), left).await.unwrap();
        assert!(answered.elapsed() < Duration::from_secs(1));
        // The first answer counts, a second one to the same question does not.
        other
            .update(&id, json!({key: accept("changed my mind")}))
            .await
            .unwrap();
    }
    let done = alice.wait_status(&id, "completed", SOON).await.unwrap();
    let heard: Vec<String> = ledger
        .acts("talk")
        .into_iter()
        .map(|act| act.what)
        .collect();
    assert_eq!(heard, ["heard \"0\"", "heard \"1\"", "heard \"2\""]);
    // A real result of the tool, and the arguments are what they were.
    assert_eq!(done["result"]["content"][0]["text"], "heard all");
    assert_eq!(done["result"]["structuredContent"], arguments);
}

/// The gateway that took the answer dies, Redis forgets, no worker is there at that moment: the
/// answer counts all the same, because it queued the work in the statement that stored it.
#[tokio::test(flavor = "multi_thread")]
async fn an_acknowledged_answer_is_never_lost() {
    let (mut system, ledger, tools) = reports_tools::system(2, "").await;
    let [alice, other] = [0, 1].map(|n| system.cluster.client(n, "alice"));
    let id = alice
        .start("converse", json!({"label": "kept", "rounds": 1}))
        .await
        .unwrap();
    let asked = alice
        .wait_status(&id, "input_required", SOON)
        .await
        .unwrap();
    drop(tools);
    alice
        .update(&id, json!({only_key(&asked): accept("once")}))
        .await
        .unwrap();
    system.cluster.gateways[0].kill9();
    assert_eq!(other.get(&id).await.unwrap()["status"], "working");
    system.redis.flush().await.unwrap();
    let settings = reports_tools::Settings::of(&system, &ledger);
    let _tools = Tools::start(&settings, &ledger);
    other.wait_status(&id, "completed", SOON).await.unwrap();
    let acts = ledger.acts("kept");
    assert_eq!(acts.len(), 1);
    assert_eq!(acts[0].what, "heard \"once\"");
}

/// An update that is acknowledged and must change nothing.
async fn nothing_changes(client: &Client, id: &str, before: &Value, responses: Value) {
    let acknowledged = client.update(id, responses.clone()).await;
    assert_eq!(
        acknowledged.unwrap()["resultType"],
        "complete",
        "{responses}"
    );
    let after = client.get(id).await.unwrap();
    for field in ["status", "inputRequests", "lastUpdatedAt"] {
        assert_eq!(after[field], before[field], "{responses}");
    }
}

/// What is no answer to an open question is refused, and the question is named.
async fn malformed_is_named(client: &Client, id: &str, before: &Value, key: &str) {
    for wrong in [
        json!("yes"),
        json!({}),
        json!({"action": "perhaps"}),
        json!(null),
    ] {
        let params = json!({"taskId": id, "inputResponses": {key: wrong.clone()}});
        let refused = client.request("tasks/update", params).send().await.unwrap();
        assert_eq!(
            refused.error_code(),
            Some(-32602),
            "{wrong}: {}",
            refused.message
        );
        assert!(
            refused.error().to_string().contains(key),
            "{wrong}: {}",
            refused.message
        );
    }
    let after = client.get(id).await.unwrap();
    assert_eq!(after["inputRequests"], before["inputRequests"]);
}

fn only_key(task: &Value) -> String {
    let requests = task["inputRequests"].as_object().expect("questions");
    assert_eq!(requests.len(), 1, "{task}");
    requests.keys().next().expect("one").clone()
}

fn accept(word: &str) -> Value {
    json!({"action": "accept", "content": {"word": word}})
}
