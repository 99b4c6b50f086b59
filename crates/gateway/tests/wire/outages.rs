//! Redis or Postgres away.

use std::time::Duration;

use harness::proxy::{Mode, Proxy};
use harness::redis::Redis;
use serde_json::json;

use crate::support::{SECOND, SOON, World, config, migrate, text, tools};

#[tokio::test]
async fn without_redis_everything_is_only_slower() {
    let mut world = World::new().await;
    let alice = world.client("alice");
    world.redis.kill9();
    let id = alice.start("task", json!({})).await.unwrap();
    assert_eq!(alice.get(&id).await.unwrap()["status"], "working");
    let mut listen = alice.listen(json!({"taskIds": [id]})).await.unwrap();
    listen.next(SOON).await.unwrap();
    assert_eq!(
        listen.next(SOON).await.unwrap().unwrap()["params"]["status"],
        "working"
    );
    let claim = world.claim("task").await;
    world.complete(&claim, &text("done")).await;
    let told = listen.next(6 * SECOND).await.unwrap().unwrap();
    assert_eq!(
        told["params"]["status"], "completed",
        "read every two seconds"
    );

    let (result, ()) = tokio::join!(alice.call("call", json!({})), async {
        let claim = world.claim("call").await;
        world.complete(&claim, &text("inline")).await;
    });
    assert_eq!(result.unwrap()["content"][0]["text"], "inline");
    let other = alice.start("task", json!({})).await.unwrap();
    alice.cancel(&other).await.unwrap();
    assert!(world.metric("mcp_tasks_gateway_unhinted_total") > 1.5);

    // Back again: a listen that began meanwhile hears of changes at once.
    let id = alice.start("task", json!({})).await.unwrap();
    let mut listen = alice.listen(json!({"taskIds": [id]})).await.unwrap();
    listen.next(SOON).await.unwrap();
    listen.next(SOON).await.unwrap();
    world.redis.start_again().await.unwrap();
    let mut connected = world.queue.connected();
    connected.wait_for(|up| *up).await.unwrap();
    alice.cancel(&id).await.unwrap();
    let told = listen.next(6 * SECOND).await.unwrap().unwrap();
    assert_eq!(told["params"]["status"], "cancelled");
}

#[tokio::test]
async fn without_postgres_requests_wait_and_then_say_when_to_come_back() {
    let database = harness::postgres::test_database(migrate).await.unwrap();
    // postgresql://user@127.0.0.1:PORT/name
    let (_, rest) = database.url().split_once("127.0.0.1:").unwrap();
    let port: String = rest.chars().take_while(char::is_ascii_digit).collect();
    let proxy = Proxy::to_port(port.parse().unwrap()).await.unwrap();
    let redis = Redis::temporary().await.unwrap();
    let url = proxy.through(database.url());
    let mut world = World::over(config(), database, redis, &url).await;
    let alice = world.client("alice");
    let id = alice.start("task", json!({})).await.unwrap();

    // A short outage is waited out.
    proxy.set(Mode::Cut);
    let (task, ()) = tokio::join!(alice.get(&id), async {
        tokio::time::sleep(SECOND).await;
        proxy.set(Mode::Pass);
    });
    assert_eq!(task.unwrap()["status"], "working");

    proxy.set(Mode::Cut);
    let begun = std::time::Instant::now();
    for (method, params) in [
        ("tasks/get", json!({"taskId": id})),
        ("tasks/cancel", json!({"taskId": id})),
        ("tools/call", json!({"name": "task", "arguments": {}})),
    ] {
        let answer = alice.request(method, params).send().await.unwrap();
        assert_eq!(
            (answer.status, answer.error_code()),
            (503, Some(-32603)),
            "{method}"
        );
        let seconds: u64 = answer.header("retry-after").parse().unwrap();
        assert!(seconds >= 1);
    }
    assert!(begun.elapsed() > 3 * SECOND, "each was given time");
    // What needs no database is served.
    assert_eq!(alice.discover().await.unwrap()["resultType"], "complete");
    assert_eq!(alice.list().await.unwrap().len(), tools().len());
    proxy.set(Mode::Pass);
    let found = async || alice.get(&id).await.ok();
    harness::wait::until("it recovers by itself", SOON, found)
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_millis(10)).await;
    world.stop().await;
}

/// The holds of waiting calls are renewed as soon as Postgres is back, not at the next turn: by
/// then they might have run out, and the sweep would stop what callers wait for.
#[tokio::test]
async fn holds_are_renewed_right_after_an_outage() {
    let database = harness::postgres::test_database(migrate).await.unwrap();
    let (_, rest) = database.url().split_once("127.0.0.1:").unwrap();
    let port: String = rest.chars().take_while(char::is_ascii_digit).collect();
    let proxy = Proxy::to_port(port.parse().unwrap()).await.unwrap();
    let redis = Redis::temporary().await.unwrap();
    let url = proxy.through(database.url());
    let mut config = config();
    config.hold = 6 * SECOND;
    let direct = database.clone();
    let mut world = World::over(config, database, redis, &url).await;
    let alice = world.client("alice").undeclared();
    let held_until = async || {
        let rows = direct.rows("SELECT held_until FROM tasks").await.unwrap();
        rows.into_iter().next()?.into_iter().next()?
    };
    let renewed = async |before: Option<String>, within: Duration| {
        let look = async || {
            held_until()
                .await
                .filter(|now| Some(now) != before.as_ref())
        };
        harness::wait::until("a hold is renewed", within, look).await
    };
    let calling = alice.call("call", json!({}));
    let (result, ()) = tokio::join!(calling, async {
        let first = renewed(None, SOON).await.unwrap();
        let second = renewed(Some(first), SOON).await.unwrap();
        // The turn in two seconds finds nobody.
        proxy.set(Mode::Cut);
        tokio::time::sleep(SECOND * 5 / 2).await;
        proxy.set(Mode::Pass);
        renewed(Some(second), SECOND).await.unwrap();
        let claim = world.claim("call").await;
        world.complete(&claim, &text("done")).await;
    });
    assert_eq!(result.unwrap()["content"][0]["text"], "done");
    world.stop().await;
}

/// As many wait for Postgres as may (32,768; here two): whoever comes then is told at once when to come back,
/// and is not kept. Who waits already is answered when Postgres is.
#[tokio::test]
async fn beyond_those_that_may_wait_for_postgres_the_next_is_sent_away() {
    const WAITING: usize = 2;
    /// A statement or two are under way, each for all that waited when it began.
    const ADMITTED: std::ops::RangeInclusive<usize> = 1 + WAITING..=2 + 3 * WAITING;
    const ALL: usize = 20;
    let database = harness::postgres::test_database(migrate).await.unwrap();
    let (_, rest) = database.url().split_once("127.0.0.1:").unwrap();
    let port: String = rest.chars().take_while(char::is_ascii_digit).collect();
    let proxy = Proxy::to_port(port.parse().unwrap()).await.unwrap();
    let redis = Redis::temporary().await.unwrap();
    let registry = telemetry::Registry::new();
    let settings = store::Config {
        url: proxy.through(database.url()),
        // Used up by failures only.
        wait_max: 3 * SOON,
        ..store::Config::default()
    };
    let store = store::Store::new(settings, &registry).unwrap();
    let store = store.with_waiting_max(WAITING);
    let auth = gateway::auth::Config::default();
    let mut world = World::on((config(), auth), database, redis, (store, registry)).await;
    let alice = world.client("alice");
    let id = alice.start("task", json!({})).await.unwrap();
    assert_eq!(alice.get(&id).await.unwrap()["status"], "working");

    proxy.set(Mode::Stall);
    let mut reads = tokio::task::JoinSet::new();
    for _ in 0..ALL {
        let client = alice.clone();
        let params = json!({"taskId": protocol::TaskId::new(0).to_string()});
        reads.spawn(async move { client.request("tasks/get", params).send().await.unwrap() });
    }
    let mut refused = 0;
    while refused < ALL - ADMITTED.end() {
        let answer = tokio::time::timeout(SOON, reads.join_next()).await;
        let answer = answer.expect("it is sent away at once").unwrap().unwrap();
        assert_eq!((answer.status, answer.error_code()), (503, Some(-32603)));
        let seconds: u64 = answer.header("retry-after").parse().unwrap();
        assert!(seconds >= 1);
        refused += 1;
    }
    proxy.set(Mode::Pass);
    let mut answered = 0;
    while let Some(answer) = reads.join_next().await {
        let answer = answer.unwrap();
        match answer.status {
            200 => answered += 1,
            503 => refused += 1,
            other => panic!("{other}"),
        }
    }
    assert_eq!(answered + refused, ALL);
    assert!(ADMITTED.contains(&answered), "{answered}");
    // There is room again.
    assert_eq!(alice.get(&id).await.unwrap()["status"], "working");
    world.stop().await;
}
