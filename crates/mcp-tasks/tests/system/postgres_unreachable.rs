//! Postgres stays away for longer than requests wait for it: they are told when to come back,
//! readiness says why, no step acts, and everything goes on by itself afterwards.

use std::time::{Duration, Instant};

use harness::client::Client;
use harness::http::Http;
use harness::postgres::{Postgres, rows};
use harness::proxy::{Mode, Proxy};
use serde_json::{Value, json};

use crate::postgres_load::{World, now_us};
use crate::support::{SOON, migrate};

/// Requests wait this long, plus the least time that a try gets.
const REFUSED: Duration = Duration::from_secs(6);
const SETTINGS: &str =
    "[postgres]\nwait_max = \"2s\"\nstatement_timeout = \"1s\"\nconnect_timeout = \"1s\"";

/// How it stays away.
#[derive(Clone, Copy, Debug)]
enum Away {
    /// Connections are refused and reset.
    Refused,
    /// The server is frozen: connections are made and nothing is answered.
    Frozen,
}

#[tokio::test(flavor = "multi_thread")]
async fn refused() {
    away(Away::Refused).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn frozen() {
    away(Away::Frozen).await;
}

async fn away(how: Away) {
    let postgres = Postgres::temporary().await.unwrap();
    let url = postgres.create_database("system").await.unwrap();
    migrate(url.clone()).await.unwrap();
    let road = Proxy::to_port(postgres.port()).await.unwrap();
    let mut world = World::start(&road.through(&url), (2, 1), SETTINGS).await;
    let processes = world.processes();
    let alice = world.cluster.client(0, "alice");
    // Two steps of which the second is due while Postgres is away.
    let once = |key: &str| json!({"step": {"key": key}});
    let items = json!([once("one"), {"pause": 1_500}, once("two")]);
    let id = alice
        .start("chaos_steps", json!({"call": "steps", "items": items}))
        .await
        .unwrap();
    let finished = "SELECT 1 FROM steps WHERE state = 'finished'";
    let stepped = async || (rows(&url, finished).await.unwrap().len() == 1).then_some(());
    harness::wait::until("the first step is journaled", SOON, stepped)
        .await
        .unwrap();

    match how {
        Away::Refused => road.set(Mode::Cut),
        Away::Frozen => postgres.freeze(),
    }
    let gone = now_us();
    for gateway in [0, 1] {
        refuses(&world.cluster.client(gateway, "alice"), &id).await;
    }
    not_ready(&mut world).await;
    assert_eq!(world.ledger.between(gone, now_us()), 0, "no step acted");

    match how {
        Away::Refused => road.set(Mode::Pass),
        Away::Frozen => postgres.thaw(),
    }
    let back = Instant::now();
    let task = alice.wait_end(&id, SOON).await.unwrap();
    println!(
        "{how:?}: the work that waited ended {:?} later",
        back.elapsed()
    );
    assert_eq!(task["status"], "completed", "{task}");
    let acts = world.ledger.of("steps");
    assert_eq!(acts, [("one".to_owned(), 1), ("two".to_owned(), 1)].into());
    world.cluster.ready().await.unwrap();
    assert_eq!(world.processes(), processes, "no process was restarted");
}

/// Every method says 503 and when to come back, in time.
async fn refuses(client: &Client, id: &str) {
    let requests: [(&str, Value); 5] = [
        (
            "tools/call",
            json!({"name": "chaos_steps", "arguments": {"call": "refused"}}),
        ),
        ("tasks/get", json!({"taskId": id})),
        (
            "tasks/update",
            json!({"taskId": id, "inputResponses": {"q": {"action": "decline"}}}),
        ),
        ("tasks/cancel", json!({"taskId": id})),
        (
            "subscriptions/listen",
            json!({"notifications": {"taskIds": [id]}}),
        ),
    ];
    let asking = requests.map(|(method, params)| async move {
        let asked = Instant::now();
        let answer = client.request(method, params).send().await.unwrap();
        assert_eq!(answer.status, 503, "{method}: {}", answer.message);
        let seconds: u64 = answer.header("retry-after").parse().unwrap();
        assert!(seconds > 0, "{method}");
        assert_eq!(answer.error()["data"]["reason"], "unavailable", "{method}");
        assert!(asked.elapsed() < REFUSED, "{method}: {:?}", asked.elapsed());
    });
    futures::future::join_all(asking).await;
}

/// All processes say that they are not ready, and why; and that they are alive.
async fn not_ready(world: &mut World) {
    let http = Http::new(SOON);
    for node in world.cluster.nodes() {
        let admin = node.admin();
        let look = async || {
            let reply = http.get(&format!("{admin}/readyz")).await.ok()?;
            (reply.status == 503).then(|| String::from_utf8_lossy(&reply.body).into_owned())
        };
        let said = harness::wait::until("not ready", SOON, look).await.unwrap();
        assert!(said.contains("postgres"), "{}: {said}", node.name());
        let alive = http.get(&format!("{admin}/livez")).await.unwrap();
        assert_eq!(alive.status, 200, "{} is alive", node.name());
    }
}
