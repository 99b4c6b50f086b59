//! The catalogue: one version of a tool is current, and a tool without a worker stays listed.

use std::collections::BTreeSet;
use std::time::Duration;

use protocol::tools::Tool;
use store::{Introduction, Observed, ToolSpec, ToolsSwept, Write};
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

/// Tools that nobody serves any more: not listed, and back with the next worker. Tasks are not harmed.
#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_no_worker_serves_is_taken_off_the_list() {
    let world = World::new().await;
    register(&world, &[("report", 1), ("report", 2), ("deploy", 1)], HOUR).await;
    let queued = world.queued().await;
    let running = world.running().await;
    let none = world.store.sweep_tools(HOUR).await.unwrap();
    assert_eq!(none, ToolsSwept::default());
    dies(&world, "report", 2).await;
    dies(&world, "deploy", 1).await;
    let swept = world.store.sweep_tools(HOUR).await.unwrap();
    let delisted: BTreeSet<_> = swept.delisted.into_iter().collect();
    let gone = of(&[("deploy", 1), ("report", 2)]);
    assert_eq!(delisted, gone.into_iter().collect());
    assert_eq!(swept.elected, of(&[("report", 1)]));
    assert_eq!(listed(&world).await, of(&[("report", 1)]));
    let again = world.store.sweep_tools(HOUR).await.unwrap();
    assert_eq!(again, ToolsSwept::default(), "told once");
    dies(&world, "report", 1).await;
    world.store.sweep_tools(HOUR).await.unwrap();
    assert_eq!(listed(&world).await, []);
    // What was accepted goes on.
    let done = world.store.complete(&running, b"{}", Duration::ZERO).await;
    assert_eq!(done.unwrap(), Write::Done);
    assert!(world.claim(queued).await.is_some());
    register(&world, &[("report", 2), ("deploy", 1)], HOUR).await;
    let all = of(&[("deploy", 1), ("report", 2)]);
    assert_eq!(listed(&world).await, all, "they are back");
}

/// The current version gives its place to one that is served, also while nobody registers anything:
/// when its worker says good-bye at once, else after a minute.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_ends_leaves_the_place_to_a_version_that_is_served() {
    let world = World::new().await;
    let store = &world.store;
    register(&world, &[("report", 1), ("report", 2)], HOUR).await;
    let introduce = async |name: &str, versions: &[i32]| {
        let tools: Vec<_> = versions.iter().map(|v| ("report".to_owned(), *v)).collect();
        let introduction = Introduction {
            name,
            host: "here",
            slots: 1,
            tools: &tools,
        };
        store.worker_alive(&introduction).await.unwrap();
    };
    introduce("old", &[1]).await;
    introduce("new", &[2]).await;
    introduce("both", &[1, 2]).await;
    store.worker_gone("new").await.unwrap();
    assert_eq!(listed(&world).await, of(&[("report", 2)]), "one is left");
    store.worker_gone("both").await.unwrap();
    assert_eq!(listed(&world).await, of(&[("report", 1)]));
    store.worker_gone("both").await.unwrap();
    store.worker_gone("old").await.unwrap();
    assert_eq!(
        listed(&world).await,
        of(&[("report", 1)]),
        "dead is not gone"
    );
    register(&world, &[("report", 2)], Duration::from_secs(60)).await;
    assert_eq!(listed(&world).await, of(&[("report", 2)]));
    // Without a good-bye.
    register(&world, &[("report", 1)], Duration::from_secs(60)).await;
    dies(&world, "report", 2).await;
    let swept = store.sweep_tools(24 * HOUR).await.unwrap();
    assert_eq!(swept.elected, of(&[("report", 1)]));
    assert_eq!(listed(&world).await, of(&[("report", 1)]));
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_witness_for_how_long_they_could_be_heard() {
    let world = World::new().await;
    let store = &world.store;
    assert_eq!(store.watched().await.unwrap(), None);
    let introduction = Introduction {
        name: "w",
        host: "here",
        slots: 1,
        tools: &[],
    };
    store.worker_alive(&introduction).await.unwrap();
    let watched = async || store.watched().await.unwrap();
    assert!(watched().await.unwrap() < HOUR);
    world
        .run("UPDATE workers SET started_at = now() - interval '1 day'")
        .await;
    // Postgres itself has not been up for that long.
    let up = "SELECT now() - pg_postmaster_start_time() < interval '1 day'";
    let up = world.value(up).await;
    assert!(up.as_deref() != Some("t") || watched().await.unwrap() < 24 * HOUR);
    world
        .run("UPDATE workers SET seen_at = now() - interval '2 minutes'")
        .await;
    assert_eq!(watched().await, None, "it is gone itself");
}
