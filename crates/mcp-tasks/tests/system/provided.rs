//! Resources, prompts and completions over several gateways and workers, while parts of them die.

use std::time::{Duration, Instant};

use harness::client::Client;
use harness::sse::Stream;
use harness::wait::{for_state, until};
use serde_json::{Value, json};

use crate::support::{SOON, System};

/// A provider's read ends in this time whatever dies: its `call_limit`, and what a busy machine adds.
const BOUNDED: Duration = Duration::from_secs(45);

/// The fixtures' resources are known to every gateway.
async fn system(gateways: usize, workers: usize) -> System {
    let system = System::of(gateways, workers).await;
    for gateway in 0..gateways {
        let client = system.cluster.client(gateway, "alice");
        let known = async || {
            let found = client.discover().await.unwrap();
            found["capabilities"].get("resources").is_some()
        };
        for_state("the provider is known", SOON, known, |known| *known)
            .await
            .unwrap();
    }
    system
}

async fn ask(client: &Client, method: &str, params: Value) -> Value {
    client.request(method, params).send().await.unwrap().message
}

async fn read(client: &Client, uri: &str) -> Value {
    ask(client, "resources/read", json!({ "uri": uri })).await
}

fn first_text(message: &Value) -> &str {
    let text = message["result"]["contents"][0]["text"].as_str();
    text.unwrap_or_else(|| panic!("no text: {message}"))
}

async fn next(stream: &mut Stream) -> Value {
    let message = stream.next(SOON).await.unwrap();
    message.expect("the stream is open")
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_provided_is_there_on_every_gateway() {
    let system = system(2, 2).await;
    let [alice, other] = [0, 1].map(|n| system.cluster.client(n, "alice"));
    for method in ["resources/list", "resources/templates/list", "prompts/list"] {
        let mut lists = [
            ask(&alice, method, json!({})).await,
            ask(&other, method, json!({})).await,
        ];
        for list in &mut lists {
            list["id"] = Value::Null;
        }
        assert_eq!(lists[0], lists[1]);
    }
    for client in [&alice, &other.undeclared()] {
        assert!(first_text(&read(client, "test://static-text").await).contains("static text"));
        let binary = read(client, "test://static-binary").await;
        assert!(binary["result"]["contents"][0]["blob"].is_string());
        let folder = read(client, "test://folder").await;
        assert_eq!(folder["result"]["contents"].as_array().unwrap().len(), 2);
        let data = read(client, "test://template/a%2Fb/data").await;
        assert!(first_text(&data).contains("Data of a/b"));
        let unlisted = read(client, "test://unlisted/thing").await;
        assert_eq!(first_text(&unlisted), "Not listed, and there.");
        let gone = read(client, "test://unlisted/nothing").await;
        assert_eq!(gone["error"]["code"], -32602);
        assert_eq!(gone["error"]["data"]["uri"], "test://unlisted/nothing");
    }
    let mallory = system.cluster.client(1, "mallory");
    assert_eq!(
        first_text(&read(&mallory, "test://who-reads").await),
        "mallory"
    );
    assert_eq!(first_text(&read(&alice, "test://who-reads").await), "alice");

    let arguments = json!({ "arg1": "one", "arg2": "two" });
    let params = json!({ "name": "test_prompt_with_arguments", "arguments": arguments });
    let got = ask(&alice, "prompts/get", params).await;
    let said = got["result"]["messages"][0]["content"]["text"]
        .as_str()
        .unwrap();
    assert!(said.contains("'one'") && said.contains("'two'"));
    let params = json!({
        "ref": { "type": "ref/resource", "uri": "test://template/{id}/data" },
        "argument": { "name": "id", "value": "1" }
    });
    let completed = ask(&alice, "completion/complete", params).await;
    assert_eq!(completed["result"]["completion"]["total"], 111);

    let slow = alice.request("resources/read", json!({ "uri": "test://slow/1000" }));
    let mut stream = slow
        .meta("progressToken", json!("p"))
        .stream()
        .await
        .unwrap();
    let progress = next(&mut stream).await;
    assert_eq!(progress["method"], "notifications/progress");
    let result = next(&mut stream).await;
    assert_eq!(first_text(&result), "attempt 1");
    // They never become tasks, and leave nothing.
    let rows = "SELECT count(*) FROM tasks";
    for_state(
        "nothing is left",
        SOON,
        async || system.count(rows).await,
        |n| *n == 0,
    )
    .await
    .unwrap();
    assert_eq!(system.count("SELECT count(*) FROM tombstones").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_whose_worker_is_killed_is_done_by_another() {
    let mut system = system(2, 1).await;
    let client = system.cluster.client(1, "alice");
    let mut reading = tokio::task::JoinSet::new();
    reading.spawn(async move { read(&client, "test://slow/1500").await });
    let running = "SELECT count(*) FROM tasks WHERE phase = 'running'";
    for_state(
        "it runs",
        SOON,
        async || system.count(running).await,
        |n| *n == 1,
    )
    .await
    .unwrap();
    system.cluster.workers[0].kill9();
    system.cluster.workers[0].start_again().unwrap();
    let read = tokio::time::timeout(BOUNDED, reading.join_all())
        .await
        .unwrap();
    assert_eq!(first_text(&read[0]), "attempt 2");
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_go_on_without_redis() {
    let mut system = system(2, 2).await;
    let client = system.cluster.client(0, "alice");
    let listener = system.cluster.client(1, "alice");
    let wanted = json!({ "resourceSubscriptions": ["test://watched-resource"] });
    let mut stream = listener.listen(wanted).await.unwrap();
    next(&mut stream).await;
    system.redis.kill9();
    let begun = Instant::now();
    assert!(first_text(&read(&client, "test://static-text").await).contains("static text"));
    let told = client.call("test_trigger_resource_update", json!({})).await;
    told.unwrap();
    let message = next(&mut stream).await;
    assert_eq!(message["params"]["uri"], "test://watched-resource");
    assert!(begun.elapsed() < BOUNDED, "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn without_workers_lists_stay_and_reads_end_soon() {
    let mut system = system(1, 1).await;
    let client = system.cluster.client(0, "alice");
    system.cluster.workers[0].stop(SOON).await.unwrap();
    let begun = Instant::now();
    let refused = read(&client, "test://static-text").await;
    assert_eq!(
        refused["error"]["data"]["reason"], "call_limit",
        "{refused}"
    );
    assert!(begun.elapsed() < BOUNDED);
    let listed = ask(&client, "resources/list", json!({})).await;
    assert!(listed["result"]["resources"].is_array());
    system.cluster.workers[0].start_again().unwrap();
    let again = async || {
        let message = read(&client, "test://static-text").await;
        message["result"]["contents"].is_array().then_some(())
    };
    until("it is read again", SOON, again).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn listens_hear_of_changes_over_every_gateway() {
    let system = system(2, 2).await;
    let [alice, other] = [0, 1].map(|n| system.cluster.client(n, "alice"));
    let uris = json!([
        "test://watched-resource",
        "test://template/7/data",
        "none://"
    ]);
    let wanted = json!({ "resourceSubscriptions": uris, "promptsListChanged": true });
    let mut stream = alice.listen(wanted).await.unwrap();
    let ack = next(&mut stream).await;
    let agreed = &ack["params"]["notifications"]["resourceSubscriptions"];
    assert_eq!(
        *agreed,
        json!(["test://template/7/data", "test://watched-resource"])
    );
    // Every worker hears what is listened to.
    for _ in 0..2 {
        let told = async || {
            let told = other
                .call("test_wanted_resources", json!({}))
                .await
                .unwrap();
            let told = crate::support::text(&told);
            told.contains("watched") && told.contains("template/7")
        };
        for_state("the workers know", SOON, told, |told| *told)
            .await
            .unwrap();
    }
    for uri in [
        "test://template/7/data",
        "test://watched-resource",
        "test://template/7/data",
    ] {
        let told = other.call("test_trigger_resource_update", json!({ "uri": uri }));
        told.await.unwrap();
        let message = next(&mut stream).await;
        assert_eq!(message["method"], "notifications/resources/updated");
        assert_eq!(message["params"]["uri"], uri);
    }
    let told = other.call("test_trigger_prompt_change", json!({})).await;
    told.unwrap();
    let message = next(&mut stream).await;
    assert_eq!(message["method"], "notifications/prompts/list_changed");
}
