//! I2: jobs that Redis does not know of are found, and only those.

use std::time::Duration;

use protocol::TaskId;
use store::{ToolPolicy, Unhinted, UnhintedFilter, Write};

use crate::support::{HOUR, NO_WORK, SECOND, World};

const MINUTE: Duration = Duration::from_secs(60);

async fn unhinted(world: &World) -> Vec<TaskId> {
    let filter = UnhintedFilter {
        epochs: &["epoch".to_owned(), "other shard".to_owned()],
        age: MINUTE,
        tools: None,
        limit: 100,
    };
    let mut found = world.store.unhinted(&filter).await.unwrap();
    found.sort_by_key(|job| job.id);
    found.into_iter().map(|job| job.id).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_freshly_hinted_job_is_left_alone() {
    let world = World::new().await;
    let _queued = world.queued().await;
    let _running = world.running().await;
    let _parked = world.parked(&[crate::support::question("q")]).await;
    assert_eq!(unhinted(&world).await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_was_never_hinted_or_under_another_epoch_is_found() {
    let world = World::new().await;
    for change in [
        "hinted_at = NULL, hint_epoch = NULL",
        "hint_epoch = NULL",
        "hint_epoch = 'gone'",
        "hinted_at = now() - interval '61 s'",
    ] {
        let id = world.queued().await;
        world.set(id, change).await;
        assert_eq!(unhinted(&world).await, [id], "{change}");
        world
            .store
            .mark_hinted(&[(id, Some("epoch".to_owned()))])
            .await
            .unwrap();
        assert_eq!(unhinted(&world).await, [], "{change}");
        for (not_now, because) in [
            ("run_at = now() + interval '1 h'", "not due"),
            ("run_at = now(), expires_at = now()", "expired"),
            (
                "expires_at = now() + interval '1 h', stop_requested_at = now(), stop_reason = 'cancelled'",
                "stopping",
            ),
        ] {
            world.set(id, &format!("{change}, {not_now}")).await;
            assert_eq!(unhinted(&world).await, [], "{because}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_wait_for_a_lost_hint_doubles_with_every_hint() {
    let world = World::new().await;
    let id = world.queued().await;
    for (hints, seconds) in [(0, 60), (1, 120), (2, 240), (3, 480)] {
        assert_eq!(
            world.column(id, "hint_count").await.unwrap(),
            hints.to_string()
        );
        world
            .set(
                id,
                &format!("hinted_at = now() - interval '{} s'", seconds - 5),
            )
            .await;
        assert_eq!(unhinted(&world).await, [], "{hints}");
        world
            .set(
                id,
                &format!("hinted_at = now() - interval '{} s'", seconds + 1),
            )
            .await;
        assert_eq!(unhinted(&world).await, [id], "{hints}");
        world
            .store
            .mark_hinted(&[(id, Some("epoch".to_owned()))])
            .await
            .unwrap();
    }
    // Far from overflow, however long the backlog.
    world.set(id, "hint_count = 30").await;
    assert_eq!(unhinted(&world).await, []);
    world.store.mark_hinted(&[(id, None)]).await.unwrap();
    assert_eq!(world.column(id, "hint_count").await.as_deref(), Some("30"));
    assert_eq!(
        unhinted(&world).await,
        [id],
        "pushed while the epoch was unknown"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_worker_is_lost_is_found_after_the_grace() {
    let world = World::new().await;
    let claim = world.running().await;
    world.lose_lease(claim.id()).await;
    world
        .set(claim.id(), "hinted_at = now() - interval '30 s'")
        .await;
    let found = harness::wait::until("grace", 10 * SECOND, async || {
        let found = unhinted(&world).await;
        (!found.is_empty()).then_some(found)
    })
    .await
    .unwrap();
    assert_eq!(found, [claim.id()]);
    world
        .store
        .mark_hinted(&[(claim.id(), Some("epoch".to_owned()))])
        .await
        .unwrap();
    assert_eq!(unhinted(&world).await, [], "hinted since");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_is_retried_is_found_when_it_is_due() {
    let world = World::new().await;
    let claim = world.running().await;
    assert_eq!(
        world.store.retry(&claim, "e", HOUR, NO_WORK).await.unwrap(),
        Write::Done
    );
    assert_eq!(unhinted(&world).await, []);
    world.set(claim.id(), "run_at = now()").await;
    assert_eq!(unhinted(&world).await, [claim.id()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_most_urgent_first_of_the_asked_tools_under_their_lane() {
    let world = World::new().await;
    let mut ids = Vec::new();
    for priority in [0, 5, 3] {
        let policy = ToolPolicy {
            priority,
            ..ToolPolicy::default()
        };
        let id = world.queued_with(&policy).await;
        world.set(id, "hinted_at = NULL").await;
        ids.push(id);
    }
    let all = async |tools: Option<&[(String, i32)]>, limit| {
        let filter = UnhintedFilter {
            epochs: &[],
            age: MINUTE,
            tools,
            limit,
        };
        world.store.unhinted(&filter).await.unwrap()
    };
    let order: Vec<_> = all(None, 2).await.into_iter().map(|job| job.id).collect();
    assert_eq!(order, [ids[1], ids[2]]);
    let (old, new) = (("report".to_owned(), 1), ("report".to_owned(), 4));
    assert_eq!(all(Some(&[("other".to_owned(), 1)]), 10).await, []);
    assert_eq!(all(Some(std::slice::from_ref(&old)), 10).await.len(), 3);
    // A task without a journal goes to the current version, one with a journal to its own.
    crate::tools::register(&world, &[("report", 4)], HOUR).await;
    world.set(ids[0], "journaled = true").await;
    let lanes: std::collections::BTreeSet<_> = all(None, 10)
        .await
        .into_iter()
        .map(|Unhinted { id, version, .. }| (id, version))
        .collect();
    assert_eq!(lanes, [(ids[0], 1), (ids[1], 4), (ids[2], 4)].into());
    // Who serves one version only is offered no job of the other, and none takes its place.
    let of = async |served: &[(String, i32)], limit| {
        let found = all(Some(served), limit).await.into_iter();
        found.map(|job| job.id).collect::<Vec<_>>()
    };
    assert_eq!(of(std::slice::from_ref(&old), 1).await, [ids[0]]);
    assert_eq!(of(std::slice::from_ref(&new), 10).await, [ids[1], ids[2]]);
    assert_eq!(of(&[old, new], 10).await.len(), 3);
    // No epoch is known (Redis is away): everything due counts.
    let _hinted = world.queued().await;
    assert_eq!(all(None, 10).await.len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn queues_are_measured_by_tool() {
    let world = World::new().await;
    let id = world.queued().await;
    world
        .set(
            id,
            "run_at = now() - interval '10 s', created_at = now() - interval '20 s'",
        )
        .await;
    let _second = world.queued().await;
    let _running = world.running().await;
    let ages = world.store.queue_ages().await.unwrap();
    assert_eq!(ages.len(), 1);
    assert_eq!((ages[0].tool.as_str(), ages[0].jobs), ("report", 2));
    assert!(ages[0].waited >= 10 * SECOND && ages[0].waited < MINUTE);
    let mut live = world.store.gauges().await.unwrap();
    live.sort_by(|a, b| a.phase.cmp(&b.phase));
    let short: Vec<_> = live.iter().map(|l| (l.phase.as_str(), l.tasks)).collect();
    assert_eq!(short, [("queued", 2), ("running", 1)]);
    assert!(live[0].oldest >= 20 * SECOND);
    // Both are hinted; after Redis lost its data neither is.
    let of = async |epoch: &str| {
        let epochs = [epoch.to_owned()];
        world.store.unhinted_ages(&epochs).await.unwrap()
    };
    assert_eq!(of("epoch").await, []);
    let lost = of("later").await;
    assert_eq!((lost[0].tool.as_str(), lost[0].jobs), ("report", 2));
    assert!(lost[0].waited >= 10 * SECOND && lost[0].waited < MINUTE);
    world
        .run("INSERT INTO tool_pauses (tool, jobs, changed_by) VALUES ('report', true, 'x')")
        .await;
    assert_eq!(of("later").await, [], "a paused tool's jobs get no hint");
    world.run("DELETE FROM tool_pauses").await;
    let claim = world.running().await;
    world
        .set(claim.id(), "created_at = created_at - interval '20 s'")
        .await;
    assert!(claim.age < MINUTE);
    let again = world.steal(claim.id()).await;
    assert!(
        again.age >= 20 * SECOND && again.age < 3 * MINUTE,
        "{:?}",
        again.age
    );
}

/// However often a job was hinted before: the version whose workers it was hinted to may be gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_version_gets_the_backlog_at_once() {
    let world = World::new().await;
    crate::tools::register(&world, &[("report", 1)], HOUR).await;
    let (free, bound) = (world.queued().await, world.queued().await);
    for id in [free, bound] {
        world.set(id, "hinted_at = now(), hint_count = 9").await;
    }
    world.set(bound, "journaled = true").await;
    assert_eq!(unhinted(&world).await, []);
    crate::tools::register(&world, &[("report", 2)], HOUR).await;
    assert_eq!(unhinted(&world).await, [free], "the other one is bound");
    let hinted = [(free, Some("epoch".to_owned()))];
    world.store.mark_hinted(&hinted).await.unwrap();
    assert_eq!(unhinted(&world).await, [], "once");
    // Two releases may describe one version differently, and take turns at it.
    world.set(free, "tool_version = 2").await;
    world
        .value("UPDATE tools SET changed_at = now() + interval '1 s' RETURNING 1::text")
        .await;
    assert_eq!(unhinted(&world).await, [], "its own version");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_is_to_be_undone_gets_one_hint() {
    let world = World::new().await;
    let id = world.queued().await;
    let undone = "phase = 'undoing', pending_status = 'failed', hinted_at = NULL, error = '{}'";
    world.set(id, undone).await;
    assert_eq!(unhinted(&world).await, [id]);
    let hinted = [(id, Some("epoch".to_owned()))];
    world.store.mark_hinted(&hinted).await.unwrap();
    assert_eq!(unhinted(&world).await, []);
}

/// The hint is taken by a worker before cron has written down that it gave it: what the worker
/// leaves behind has no hint, and must not count as if it had.
#[tokio::test(flavor = "multi_thread")]
async fn a_hint_that_was_used_before_it_was_recorded_does_not_count() {
    let world = World::new().await;
    let id = world.queued().await;
    world.set(id, "hinted_at = NULL").await;
    let filter = UnhintedFilter {
        epochs: &["epoch".to_owned()],
        age: MINUTE,
        tools: None,
        limit: 1,
    };
    let found = world.store.unhinted(&filter).await.unwrap();
    let claim = world.claim(id).await.unwrap();
    let retried = world.store.retry(&claim, "e", Duration::ZERO, NO_WORK);
    assert_eq!(retried.await.unwrap(), Write::Done);
    let found: Vec<(Unhinted, Option<String>)> = found
        .into_iter()
        .map(|job| (job, Some("epoch".to_owned())))
        .collect();
    world.store.mark_found_hinted(&found).await.unwrap();
    assert_eq!(unhinted(&world).await, [id]);
}
