//! A gateway dies after it committed a task and before Redis heard of it: the task runs all the
//! same, and only once.

use std::time::{Duration, Instant};

use harness::config::Role;
use harness::postgres::{Postgres, rows};
use harness::proxy::{Mode, Proxy};
use serde_json::json;

use crate::postgres_load::{World, step};
use crate::support::{SOON, keyed, migrate};

#[tokio::test(flavor = "multi_thread")]
async fn and_never_hinted() {
    let postgres = Postgres::temporary().await.unwrap();
    let url = postgres.create_database("system").await.unwrap();
    migrate(url.clone()).await.unwrap();
    let mut world = World::start(&url, (1, 1), "").await;
    // The gateway that will die reaches Redis by a road of its own.
    let road = Proxy::to_port(world.redis.port()).await.unwrap();
    let redis = road.through(&world.redis.url());
    let change = |plan: &mut harness::node::Plan| plan.common.redis_url = redis;
    world.cluster.add_with(Role::Gateway, change).unwrap();
    world.cluster.ready().await.unwrap();
    world.serves().await;

    // What it sends is lost.
    road.set(Mode::HalfOpen);
    let doomed = world.cluster.client(1, "alice");
    let arguments = json!({"call": "orphan", "items": [step("a", 0)]});
    let params = keyed("chaos_steps", arguments, "key");
    let calling = doomed.request("tools/call", params.clone());
    let (answer, ()) = tokio::join!(calling.send(), async {
        let committed = async || {
            let found = rows(&url, "SELECT hint_count FROM tasks").await.unwrap();
            (!found.is_empty()).then_some(())
        };
        harness::wait::until("the commit", SOON, committed)
            .await
            .unwrap();
        world.cluster.gateways[1].kill9();
    });
    let killed = Instant::now();
    assert!(answer.is_err(), "the caller heard nothing: {answer:?}");
    assert!(world.ledger.of("orphan").is_empty(), "nobody knew of it");

    let alice = world.cluster.client(0, "alice");
    let again = alice.request("tools/call", params).send().await.unwrap();
    let id = again.into_result().unwrap()["taskId"].clone();
    let id = id.as_str().unwrap();
    alice.wait_status(id, "completed", SOON).await.unwrap();
    println!(
        "committed and never hinted: completed {:?} later",
        killed.elapsed()
    );
    // After `hint_age` (5 s) the sweep doubts that Redis was told.
    assert!(killed.elapsed() < Duration::from_secs(15));
    let all = "SELECT count(*), max(attempt) FROM tasks";
    let all = rows(&url, all).await.unwrap().swap_remove(0);
    assert_eq!(all, [Some("1".to_owned()), Some("1".to_owned())]);
    assert_eq!(world.ledger.of("orphan")["a"], 1);
}
