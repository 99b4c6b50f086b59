//! What one principal may take: below, at and above each limit, and that nobody else notices.

use harness::client::{Answer, Client};
use protocol::TaskId;
use serde_json::{Value, json};

use crate::support::{SOON, World, config, text};

fn with(change: impl FnOnce(&mut gateway::config::Limits)) -> gateway::Config {
    let mut config = config();
    change(&mut config.limits);
    config
}

fn refused(answer: &Answer, what: &str) {
    assert_eq!(
        (answer.status, answer.error_code()),
        (429, Some(429)),
        "{:?}",
        answer.message
    );
    let seconds: u64 = answer.header("retry-after").parse().unwrap();
    assert!(seconds >= 1);
    assert_eq!(answer.error()["data"]["retryAfterSeconds"], seconds);
    let message = answer.error()["message"].as_str().unwrap();
    assert!(message.contains(what), "{message}");
}

async fn send(client: &Client, method: &str, params: Value) -> Answer {
    client.request(method, params).send().await.unwrap()
}

async fn task(client: &Client) -> Answer {
    let params = json!({"name": "task", "arguments": {}});
    send(client, "tools/call", params).await
}

#[tokio::test]
async fn requests_of_a_principal() {
    // One a second is so slow that even a busy machine does not fill it.
    let config = with(|limits| {
        limits.requests_of_principal_per_second = 1;
        limits.requests_of_principal_burst = 20;
    });
    let world = World::with(config).await;
    let (alice, bob) = (world.client("alice"), world.client("bob"));
    let started = std::time::Instant::now();
    let mut served = 0;
    let last = loop {
        let answer = send(&alice, "server/discover", json!({})).await;
        if answer.status != 200 {
            break answer;
        }
        served += 1;
        assert!(served < 1_000, "nobody stops it");
    };
    refused(&last, "requests");
    let filled = started.elapsed().as_secs() + 1;
    assert!((20..=20 + filled).contains(&served), "{served}");
    // Reads go on: they are refused last.
    let unknown = TaskId::new(0).to_string();
    let read = async || send(&alice, "tasks/get", json!({"taskId": unknown})).await;
    let mut reads = 0;
    let last = loop {
        let answer = read().await;
        if answer.status != 200 {
            break answer;
        }
        reads += 1;
        assert!(reads < 1_000, "nobody stops it");
    };
    refused(&last, "requests");
    assert!(reads >= 20, "{reads}");
    for _ in 0..10 {
        assert_eq!(send(&bob, "server/discover", json!({})).await.status, 200);
    }
}

#[tokio::test]
async fn live_tasks_of_a_principal() {
    let world = World::with(with(|limits| limits.live_tasks_of_principal_max = 3)).await;
    let (alice, bob) = (world.client("alice"), world.client("bob"));
    let keyed = async || {
        let params = json!({"name": "task", "arguments": {}});
        let request = alice.request("tools/call", params).idempotency_key("k");
        request.send().await.unwrap()
    };
    let first = keyed().await.message["result"]["taskId"].clone();
    assert!(first.is_string());
    for _ in 0..2 {
        assert_eq!(task(&alice).await.status, 200);
    }
    refused(&task(&alice).await, "live tasks");
    assert_eq!(task(&bob).await.status, 200);
    // A repeat makes no new task.
    assert_eq!(keyed().await.message["result"]["taskId"], first);
    // Neither does a finished one count.
    let id = first.as_str().unwrap().parse().unwrap();
    let claim = world.claim_task("task", id).await;
    world.complete(&claim, &text("done")).await;
    // Which is seen when its refusal is no longer remembered.
    let again = async || task(&alice).await.status;
    let served = |status: &u16| *status == 200;
    harness::wait::for_state("room for one more", SOON, again, served)
        .await
        .unwrap();
    refused(&task(&alice).await, "live tasks");
    assert_eq!(
        world
            .count("SELECT count(*) FROM tasks WHERE subject = 'alice'")
            .await,
        4
    );
}

/// Who has as many as it may goes on calling: Postgres is asked once a second, whatever that is.
#[tokio::test]
async fn refusals_for_live_tasks_ask_postgres_rarely() {
    let world = World::with(with(|limits| limits.live_tasks_of_principal_max = 1)).await;
    let alice = world.client("alice");
    let counts =
        || world.metric("mcp_tasks_store_operation_seconds_count{operation=\"count_live\"}");
    assert_eq!(task(&alice).await.status, 200);
    refused(&task(&alice).await, "live tasks");
    let (before, started) = (counts(), std::time::Instant::now());
    for _ in 0..10 {
        let crowd = (0..20).map(|_| task(&alice));
        for answer in futures::future::join_all(crowd).await {
            refused(&answer, "live tasks");
        }
    }
    let asked = counts() - before;
    let seconds = started.elapsed().as_secs_f64();
    assert!(asked <= seconds + 1.0, "{asked} in {seconds} s");
}

#[tokio::test]
async fn live_tasks_of_a_tenant() {
    use sha2::{Digest as _, Sha256};
    let files = tempfile::tempdir().unwrap();
    let file = files.path().join("keys.toml");
    let entry = |name: &str, issuer: &str, tenant: &str| {
        let key = format!("mtk_{name}");
        let hash: String = Sha256::digest(key)
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();
        format!(
            "[[key]]\nsha256 = \"{hash}\"\nsubject = \"{name}\"\nissuer = \"{issuer}\"\n\
             tenant = \"{tenant}\"\n"
        )
    };
    let keys = [
        entry("a", "i", "acme"),
        entry("b", "i", "acme"),
        entry("c", "i", "other"),
        entry("d", "j", "acme"),
    ];
    std::fs::write(&file, keys.concat()).unwrap();
    let auth = gateway::auth::Config {
        mode: Some(gateway::auth::Mode::Tokens),
        api_keys_file: Some(file),
        ..gateway::auth::Config::default()
    };
    let config = with(|limits| limits.live_tasks_of_tenant_max = 2);
    let world = World::guarded(config, auth).await;
    let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| world.client(&format!("mtk_{name}")));
    assert_eq!(task(&a).await.status, 200);
    assert_eq!(task(&b).await.status, 200);
    refused(&task(&a).await, "live tasks of your tenant");
    refused(&task(&b).await, "live tasks of your tenant");
    assert_eq!(task(&c).await.status, 200, "another tenant");
    assert_eq!(
        task(&d).await.status,
        200,
        "another issuer's tenant of that name"
    );
}

#[tokio::test]
async fn waiting_calls_of_a_principal() {
    let world = World::with(with(|limits| limits.held_calls_of_principal_max = 2)).await;
    let (alice, bob) = (world.client("alice"), world.client("bob"));
    let call = |client: &Client| {
        let client = client.clone();
        async move {
            send(
                &client,
                "tools/call",
                json!({"name": "inline", "arguments": {}}),
            )
            .await
        }
    };
    let tasks = tokio_util::task::TaskTracker::new();
    let held = [tasks.spawn(call(&alice)), tasks.spawn(call(&alice))];
    world
        .until("SELECT count(*) FROM tasks WHERE tool = 'inline'", 2)
        .await;
    refused(&call(&alice).await, "waiting tool calls");
    // What can become a task does.
    assert_eq!(task(&alice).await.message["result"]["resultType"], "task");
    let other = tasks.spawn(call(&bob));
    world
        .until("SELECT count(*) FROM tasks WHERE tool = 'inline'", 3)
        .await;
    for _ in 0..3 {
        let claim = world.claim("inline").await;
        world.complete(&claim, &text("done")).await;
    }
    for held in held {
        assert_eq!(held.await.unwrap().status, 200);
    }
    assert_eq!(other.await.unwrap().status, 200);
    // The places are free again.
    let next = tasks.spawn(call(&alice));
    let claim = world.claim("inline").await;
    world.complete(&claim, &text("done")).await;
    assert_eq!(next.await.unwrap().status, 200);
}

#[tokio::test]
async fn subscriptions_of_a_principal() {
    let world = World::with(with(|limits| limits.listens_of_principal_max = 2)).await;
    let (alice, bob) = (world.client("alice"), world.client("bob"));
    let wanted = || json!({"toolsListChanged": true});
    let open = async |client: &Client| client.listen(wanted()).await;
    let one = open(&alice).await.unwrap();
    let two = open(&alice).await.unwrap();
    refused(
        &send(
            &alice,
            "subscriptions/listen",
            json!({"notifications": wanted()}),
        )
        .await,
        "subscriptions",
    );
    let other = open(&bob).await.unwrap();
    drop(one);
    let again = async || {
        let stream = open(&alice).await;
        stream.ok().map(drop)
    };
    harness::wait::until("a place is free", SOON, again)
        .await
        .unwrap();
    drop((two, other));
}

/// Below, at and above what the process takes on, whoever it is for; and then there is room again.
#[tokio::test]
async fn subscriptions_of_all() {
    let world = World::with(with(|limits| limits.listens_max = 2)).await;
    let wanted = || json!({"toolsListChanged": true});
    let open = async |name: &str| world.client(name).listen(wanted()).await;
    let one = open("alice").await.unwrap();
    let two = open("bob").await.unwrap();
    let params = json!({"notifications": wanted()});
    let carol = world.client("carol");
    refused(
        &send(&carol, "subscriptions/listen", params).await,
        "subscriptions",
    );
    drop(one);
    let again = async || open("carol").await.ok().map(drop);
    harness::wait::until("a place is free", SOON, again)
        .await
        .unwrap();
    drop(two);
}

#[tokio::test]
async fn waiting_calls_of_all() {
    let world = World::with(with(|limits| limits.held_calls_max = 2)).await;
    let inline = |client: Client| async move {
        let params = json!({"name": "inline", "arguments": {}});
        send(&client, "tools/call", params).await
    };
    let tasks = tokio_util::task::TaskTracker::new();
    let mut held = Vec::new();
    for (name, count) in [("alice", 1.0), ("bob", 2.0)] {
        held.push(tasks.spawn(inline(world.client(name))));
        let waiting = async || world.metric("mcp_tasks_gateway_held_calls");
        harness::wait::for_state("it waits", SOON, waiting, |n| *n == count)
            .await
            .unwrap();
    }
    let carol = world.client("carol");
    refused(&inline(carol.clone()).await, "tool calls");
    // What can become a task does.
    assert_eq!(task(&carol).await.message["result"]["resultType"], "task");
    for _ in 0..2 {
        let claim = world.claim("inline").await;
        world.complete(&claim, &text("done")).await;
    }
    for held in held {
        assert_eq!(held.await.unwrap().status, 200);
    }
}

#[tokio::test]
async fn requests_of_all() {
    let world = World::with(with(|limits| limits.requests_max = 2)).await;
    let carol = world.client("carol");
    let mut half = Vec::new();
    for name in ["alice", "bob"] {
        assert!(carol.discover().await.is_ok(), "{name}");
        let mut socket = harness::client::Socket::connect(world.address)
            .await
            .unwrap();
        let head = format!(
            "POST /mcp HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {name}\r\n\
             Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{{",
            world.address
        );
        socket.write(head.as_bytes()).await.unwrap();
        half.push(socket);
    }
    let over = async || {
        let answer = send(&carol, "server/discover", json!({})).await;
        (answer.status == 429).then_some(answer)
    };
    let answer = harness::wait::until("no place is left", SOON, over)
        .await
        .unwrap();
    refused(&answer, "requests");
    drop(half);
    let free = async || carol.discover().await.ok().map(drop);
    harness::wait::until("the places are free", SOON, free)
        .await
        .unwrap();
}
