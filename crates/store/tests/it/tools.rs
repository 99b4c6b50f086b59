//! The catalogue: one version of a tool is current, and a tool without a worker stays listed.

use std::time::Duration;

use protocol::tools::Tool;
use store::{Observed, ToolSpec};
use tokio::task::JoinSet;

use crate::support::{HOUR, World};

fn spec(name: &str, version: i32) -> ToolSpec {
    let mut spec = ToolSpec::new(Tool::new(name, &serde_json::json!({"type": "object"})));
    spec.version = version;
    spec
}

pub async fn register(world: &World, tools: &[(&str, i32)], alive: Duration) {
    let specs: Vec<_> = tools
        .iter()
        .map(|(name, version)| spec(name, *version))
        .collect();
    world.store.register_tools(&specs, alive).await.unwrap();
}

async fn listed(world: &World) -> Vec<(String, i32)> {
    let tools = world.store.tools().await.unwrap();
    tools
        .into_iter()
        .map(|entry| (entry.spec.name().to_owned(), entry.spec.version))
        .collect()
}

fn of(expected: &[(&str, i32)]) -> Vec<(String, i32)> {
    expected
        .iter()
        .map(|(name, version)| ((*name).to_owned(), *version))
        .collect()
}

async fn dies(world: &World, name: &str, version: i32) {
    let sql = format!(
        "UPDATE tools SET last_seen_at = now() - interval '2 h' WHERE name = '{name}' AND version = {version}"
    );
    world.run(&sql).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_highest_version_that_is_served_is_current() {
    let world = World::new().await;
    register(&world, &[("report", 1), ("Zebra", 1), ("deploy", 1)], HOUR).await;
    assert_eq!(
        listed(&world).await,
        of(&[("Zebra", 1), ("deploy", 1), ("report", 1)])
    );
    register(&world, &[("report", 2)], HOUR).await;
    register(&world, &[("report", 1)], HOUR).await;
    let all = of(&[("Zebra", 1), ("deploy", 1), ("report", 2)]);
    assert_eq!(
        listed(&world).await,
        all,
        "an old worker does not take it back"
    );
    // Dead is not gone: its calls queue.
    for (name, version) in [("report", 2), ("report", 1), ("deploy", 1), ("Zebra", 1)] {
        dies(&world, name, version).await;
    }
    register(&world, &[("Zebra", 1)], HOUR).await;
    assert_eq!(listed(&world).await, all);
    // A roll-back: the old version is served again, the new one is not.
    register(&world, &[("report", 1)], HOUR).await;
    assert_eq!(
        listed(&world).await,
        of(&[("Zebra", 1), ("deploy", 1), ("report", 1)])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_is_taken_off_the_list_leaves_the_place_to_one_that_is_served() {
    let world = World::new().await;
    register(&world, &[("report", 1), ("report", 2), ("report", 3)], HOUR).await;
    dies(&world, "report", 2).await;
    world.store.delist_tool("report", 3).await.unwrap();
    assert_eq!(
        listed(&world).await,
        of(&[("report", 1)]),
        "2 is higher, and dead"
    );
    // Nobody serves any: what was current stays so, though another is higher.
    dies(&world, "report", 1).await;
    world.store.delist_tool("report", 3).await.unwrap();
    assert_eq!(listed(&world).await, of(&[("report", 1)]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_is_a_new_digest_and_a_repeat_is_none() {
    let world = World::new().await;
    register(&world, &[("report", 1)], HOUR).await;
    let before = world.store.tools().await.unwrap().pop().unwrap();
    let changed = world.value("SELECT changed_at FROM tools").await;
    register(&world, &[("report", 1)], HOUR).await;
    world.store.observe(&[]).await.unwrap();
    assert_eq!(world.value("SELECT changed_at FROM tools").await, changed);
    let mut other = spec("report", 1);
    other.policy.tries_max = 9;
    world.store.register_tools(&[other], HOUR).await.unwrap();
    let after = world.store.tools().await.unwrap().pop().unwrap();
    assert_ne!(before.digest, after.digest);
    assert_eq!(after.spec.policy.tries_max, 9);
    assert_ne!(world.value("SELECT changed_at FROM tools").await, changed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_is_gone_is_delisted_and_may_come_back() {
    let world = World::new().await;
    register(&world, &[("report", 1), ("report", 2), ("deploy", 1)], HOUR).await;
    world.store.delist_tool("deploy", 1).await.unwrap();
    world.store.delist_tool("report", 2).await.unwrap();
    assert_eq!(
        listed(&world).await,
        of(&[("report", 1)]),
        "the version that is left takes over"
    );
    register(&world, &[("report", 1)], HOUR).await;
    assert_eq!(
        listed(&world).await,
        of(&[("report", 1)]),
        "and keeps the place"
    );
    world.store.delist_tool("report", 1).await.unwrap();
    world.store.delist_tool("report", 1).await.unwrap();
    assert_eq!(listed(&world).await, []);
    register(&world, &[("deploy", 1), ("report", 2)], HOUR).await;
    assert_eq!(listed(&world).await, of(&[("deploy", 1), ("report", 2)]));
}

#[tokio::test(flavor = "multi_thread")]
async fn measurements_decay() {
    let world = World::new().await;
    register(&world, &[("report", 1)], HOUR).await;
    let observe = async |run_ms, change_ms| {
        let seen = Observed {
            name: "report".to_owned(),
            version: 1,
            run_ms,
            change_ms,
        };
        world.store.observe(&[seen]).await.unwrap();
        let entry = world.store.tools().await.unwrap().pop().unwrap();
        (
            entry.run.map(|d| d.as_millis()),
            entry.change.map(|d| d.as_millis()),
        )
    };
    assert_eq!(observe(None, None).await, (None, None));
    assert_eq!(observe(Some(1000.0), None).await, (Some(1000), None));
    assert_eq!(
        observe(Some(2000.0), Some(50.0)).await,
        (Some(1200), Some(50))
    );
    assert_eq!(observe(None, None).await, (Some(1200), Some(50)));
    assert_eq!(
        observe(Some(f64::MAX), Some(f64::NAN)).await.1,
        None,
        "nonsense is no panic"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_that_start_together_elect_one_version() {
    let world = World::new().await;
    let mut workers = JoinSet::new();
    for version in 1..=8 {
        let store = world.store.clone();
        workers.spawn(async move {
            for _ in 0..5 {
                let tools = [spec("report", version), spec("deploy", 9 - version)];
                store.register_tools(&tools, HOUR).await.unwrap();
                let seen = ["deploy", "report"].map(|name| Observed {
                    name: name.to_owned(),
                    version,
                    run_ms: Some(1.0),
                    change_ms: None,
                });
                store.observe(&seen).await.unwrap();
            }
        });
    }
    workers.join_all().await;
    assert_eq!(listed(&world).await, of(&[("deploy", 8), ("report", 8)]));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_of_a_newer_release_is_left_out() {
    let world = World::new().await;
    register(&world, &[("report", 1), ("deploy", 1)], HOUR).await;
    world
        .run("UPDATE tools SET spec = '{\"shape\": 2}' WHERE name = 'deploy'")
        .await;
    assert_eq!(listed(&world).await, of(&[("report", 1)]));
}
