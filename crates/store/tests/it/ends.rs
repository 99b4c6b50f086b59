//! What is counted of ends: each once, with its tool and how it ended, by whoever found it.

use store::{Cancel, Ended, Store, Write};
use telemetry::Registry;

use crate::support::{HOUR, NO_WORK, SECOND, World, config, question};

const DOUBT: &[u8] = br#"{"code":-32603,"message":"?","data":{"reason":"step_in_doubt"}}"#;

/// A world whose store counts into this registry.
async fn counted() -> (World, Registry) {
    let (mut world, registry) = (World::new().await, Registry::new());
    world.store = Store::new(config(world.database.url()), &registry).unwrap();
    (world, registry)
}

/// The value of a series; 0 if there is none.
fn value(registry: &Registry, series: &str) -> f64 {
    let text = registry.render();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(&format!("{series} ")));
    line.map_or(0.0, |value| value.parse().unwrap())
}

fn ended(registry: &Registry, outcome: &str) -> f64 {
    let labels = format!("{{outcome=\"{outcome}\",tool=\"report\"}}");
    value(
        registry,
        &format!("mcp_tasks_task_duration_seconds_count{labels}"),
    )
}

fn of_tool(registry: &Registry, name: &str) -> f64 {
    value(registry, &format!("{name}{{tool=\"report\"}}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_way_to_end_is_counted_once() {
    let (world, registry) = counted().await;
    let store = &world.store;
    let claim = world.running().await;
    world
        .set(claim.id(), "created_at = created_at - interval '1 hour'")
        .await;
    let written = store.complete(&claim, b"{}", NO_WORK).await.unwrap();
    assert_eq!(written, Write::Done);
    let sum = "mcp_tasks_task_duration_seconds_sum{outcome=\"completed\",tool=\"report\"}";
    let life = value(&registry, sum);
    assert!((3_600.0..3_700.0).contains(&life), "{life}");

    let wrong = world.running().await;
    let result = br#"{"content":[],"isError":true}"#;
    assert_eq!(
        store.complete(&wrong, result, NO_WORK).await.unwrap(),
        Write::Done
    );
    let failed = world.running().await;
    let error = br#"{"code":1,"message":"no"}"#;
    assert_eq!(
        store.fail(&failed, error, "no", NO_WORK).await.unwrap(),
        Ended::Done
    );
    let queued = world.queued().await;
    let cancelled = store.cancel(&world.alice, queued).await.unwrap();
    assert_eq!(cancelled, Cancel::Cancelled);
    let running = world.running().await;
    store.cancel(&world.alice, running.id()).await.unwrap();
    assert_eq!(ended(&registry, "cancelled"), 1.0, "it still runs");
    assert_eq!(store.confirm_stopped(&running).await.unwrap(), Ended::Done);
    let counts =
        ["completed", "tool_error", "failed", "cancelled"].map(|how| ended(&registry, how));
    assert_eq!(counts, [1.0, 1.0, 1.0, 2.0]);
    assert_eq!(of_tool(&registry, "mcp_tasks_steps_in_doubt_total"), 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn doubts_are_counted_whoever_finds_them() {
    let (world, registry) = counted().await;
    let store = &world.store;
    let doubts = || of_tool(&registry, "mcp_tasks_steps_in_doubt_total");
    let claim = world.running().await;
    assert_eq!(
        store.fail(&claim, DOUBT, "?", NO_WORK).await.unwrap(),
        Ended::Done
    );
    assert_eq!(doubts(), 1.0, "its worker");
    let claim = world.running().await;
    world.begin(&claim, "pay").await;
    store.cancel(&world.alice, claim.id()).await.unwrap();
    assert_eq!(store.confirm_stopped(&claim).await.unwrap(), Ended::Done);
    assert_eq!(doubts(), 2.0, "a stop");
    let claim = world.running().await;
    world.begin(&claim, "pay").await;
    store.cancel(&world.alice, claim.id()).await.unwrap();
    world.lose_lease(claim.id()).await;
    let settled = harness::wait::until("cron settles it", 10 * SECOND, async || {
        let settled = store.settle_stopped(&[claim.id()]).await.unwrap();
        (!settled.is_empty()).then_some(())
    });
    settled.await.unwrap();
    assert_eq!(doubts(), 3.0, "cron");
    assert_eq!(of_tool(&registry, "mcp_tasks_leases_run_out_total"), 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_ran_out_is_counted_and_so_is_what_its_owner_still_writes() {
    let (world, registry) = counted().await;
    let store = &world.store;
    let first = world.running().await;
    assert_eq!(of_tool(&registry, "mcp_tasks_leases_run_out_total"), 0.0);
    let second = world.steal(first.id()).await;
    assert_eq!(of_tool(&registry, "mcp_tasks_leases_run_out_total"), 1.0);
    let late = store.complete(&first, b"{}", NO_WORK).await.unwrap();
    assert_eq!(late, Write::Lost);
    let fenced = "mcp_tasks_store_fenced_writes_total{operation=\"complete\"}";
    assert_eq!(value(&registry, fenced), 1.0);
    assert_eq!(ended(&registry, "completed"), 0.0);
    assert_eq!(
        store.complete(&second, b"{}", NO_WORK).await.unwrap(),
        Write::Done
    );
    assert_eq!(
        (value(&registry, fenced), ended(&registry, "completed")),
        (1.0, 1.0)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_expires_is_counted_as_what_it_was() {
    let (world, registry) = counted().await;
    let store = &world.store;
    let running = world.running().await;
    let (parked, _) = world.parked(&[question("sure")]).await;
    let over = world.running().await;
    assert_eq!(
        store.complete(&over, b"{}", NO_WORK).await.unwrap(),
        Write::Done
    );
    for id in [running.id(), parked, over.id()] {
        world.set(id, "expires_at = now()").await;
    }
    assert_eq!(store.expire(10).await.unwrap().len(), 2);
    assert_eq!(store.settle_stopped(&[parked]).await.unwrap().len(), 1);
    assert_eq!(store.confirm_stopped(&running).await.unwrap(), Ended::Done);
    // Those that expired while they were live go later, and are not counted again.
    store.mark_fetched(&[running.id(), parked]).await.unwrap();
    world.set(running.id(), "expires_at = now()").await;
    world.set(parked, "expires_at = now()").await;
    assert_eq!(store.purge(10, HOUR).await.unwrap(), 3);
    let counts = [
        "working",
        "input_required",
        "completed",
        "failed",
        "cancelled",
    ];
    let counts = counts.map(|status| {
        let series = format!("mcp_tasks_tasks_expired_total{{status=\"{status}\"}}");
        value(&registry, &series)
    });
    assert_eq!(counts, [1.0, 1.0, 1.0, 0.0, 0.0]);
}
