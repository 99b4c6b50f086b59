//! Pauses of tools, workers and queues, as operators see them.

use std::time::Duration;

use store::{Cancel, Introduction, Pause, PauseScope, Write};

use crate::operate::{BROKEN, fail, spec, unhinted};
use crate::support::{HOUR, NO_WORK, SECOND, World, YES, answers, question};

const BOTH: PauseScope = PauseScope {
    calls: true,
    jobs: true,
};

fn pause(scope: PauseScope) -> Pause<'static> {
    Pause {
        tool: "report",
        scope,
        operator: "olga@desk",
        reason: Some("it burns"),
    }
}

/// What waits stays, what runs goes on, and nothing new begins.
#[tokio::test(flavor = "multi_thread")]
async fn a_tool_whose_jobs_are_paused_begins_none() {
    let world = World::new().await;
    let store = &world.store;
    assert_eq!(
        store.pause_tool(pause(BOTH)).await.unwrap(),
        None,
        "unknown"
    );
    store.register_tools(&[spec(1)], HOUR).await.unwrap();
    let running = world.running().await;
    let (parked, _) = world.parked(&[question("charts")]).await;
    let queued = world.queued().await;
    let jobs = PauseScope {
        calls: false,
        jobs: true,
    };
    assert_eq!(store.pause_tool(pause(jobs)).await.unwrap(), Some(jobs));
    assert!(world.claim(queued).await.is_none());
    world.set(queued, "hinted_at = NULL").await;
    assert_eq!(unhinted(&world).await, [], "nor is it hinted over and over");
    assert_eq!(store.heartbeat([&running]).await.unwrap().len(), 1);
    world.lose_lease(running.id()).await;
    tokio::time::sleep(SECOND * 2).await;
    assert!(
        world.claim(running.id()).await.is_none(),
        "nor another attempt"
    );
    let answered = store
        .answer(&world.alice, parked, &answers(&[("charts", YES)]), None)
        .await;
    assert!(matches!(answered.unwrap(), store::Answer::Resumed { .. }));
    assert!(world.claim(parked).await.is_none());
    let cancelled = store.cancel(&world.alice, parked).await.unwrap();
    assert_eq!(cancelled, Cancel::Cancelled, "a stop still ends it");
    assert!(!store.tools().await.unwrap()[0].paused, "calls are taken");

    // Its hint was used up by the claim that was refused.
    world
        .set(queued, "hinted_at = now(), hint_epoch = 'epoch'")
        .await;
    let none = PauseScope {
        calls: false,
        jobs: false,
    };
    assert_eq!(
        store
            .resume_tool("report", BOTH, "olga@desk")
            .await
            .unwrap(),
        Some(none)
    );
    assert_eq!(
        store
            .resume_tool("report", BOTH, "olga@desk")
            .await
            .unwrap(),
        None
    );
    assert!(
        unhinted(&world).await.contains(&queued),
        "hinted again at once"
    );
    assert!(world.claim(queued).await.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn pauses_of_calls_and_of_jobs_come_and_go_alone() {
    let world = World::new().await;
    let store = &world.store;
    store.register_tools(&[spec(1)], HOUR).await.unwrap();
    let calls = PauseScope {
        calls: true,
        jobs: false,
    };
    let jobs = PauseScope {
        calls: false,
        jobs: true,
    };
    assert_eq!(store.pause_tool(pause(calls)).await.unwrap(), Some(calls));
    assert!(store.tools().await.unwrap()[0].paused);
    let queued = world.queued().await;
    assert!(world.claim(queued).await.is_some(), "jobs go on");
    assert_eq!(store.pause_tool(pause(jobs)).await.unwrap(), Some(BOTH));
    let state = &store.tool_states().await.unwrap()[0];
    assert_eq!(state.paused, BOTH);
    assert_eq!(state.pause_reason.as_deref(), Some("it burns"));
    assert_eq!(state.changed_by.as_deref(), Some("olga@desk"));
    assert!(state.calls_since.is_some() && state.jobs_since.is_some() && state.alive);
    assert_eq!(
        store.resume_tool("report", calls, "otto").await.unwrap(),
        Some(jobs)
    );
    let state = &store.tool_states().await.unwrap()[0];
    assert_eq!(
        state.pause_reason.as_deref(),
        Some("it burns"),
        "the other is still on"
    );
    assert_eq!(state.changed_by.as_deref(), Some("otto"));
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_are_known_by_their_signs_of_life_and_their_jobs() {
    let world = World::new().await;
    let store = &world.store;
    store.register_tools(&[spec(1)], HOUR).await.unwrap();
    let served = [("report".to_owned(), 1)];
    let worker = |name: &'static str| Introduction {
        name,
        host: "machine",
        slots: 7,
        tools: &served,
    };
    for name in ["worker-1", "worker-2", "worker-3"] {
        store.worker_alive(&worker(name)).await.unwrap();
    }
    world
        .run("UPDATE workers SET seen_at = now() - interval '5 minutes' WHERE name = 'worker-2'")
        .await;
    world
        .run("UPDATE workers SET seen_at = now() - interval '2 days' WHERE name = 'worker-3'")
        .await;
    store.worker_alive(&worker("worker-1")).await.unwrap();
    let claim = world.running().await;
    let workers = store.workers().await.unwrap();
    let said: Vec<_> = workers
        .iter()
        .map(|worker| {
            (
                worker.name.as_str(),
                worker.alive,
                worker.running,
                worker.slots,
            )
        })
        .collect();
    assert_eq!(
        said,
        [
            ("worker-1", true, 1, Some(7)),
            ("worker-2", false, 0, Some(7))
        ]
    );
    assert_eq!(workers[0].tools, ["report 1"]);
    assert_eq!(store.tool_states().await.unwrap()[0].workers, 1);
    // One of a release that does not introduce itself.
    store.worker_gone("worker-1").await.unwrap();
    let stranger = &store.workers().await.unwrap()[1];
    assert_eq!(
        (stranger.name.as_str(), stranger.alive, stranger.running),
        ("worker-1", true, 1)
    );
    world.lose_lease(claim.id()).await;
    let stranger = &store.workers().await.unwrap()[1];
    assert_eq!(
        (stranger.alive, stranger.running, stranger.lost),
        (false, 0, 1)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn queues_say_what_waits_and_for_what() {
    let world = World::new().await;
    let claim = world.running().await;
    let tried = world.store.retry(&claim, "not yet", HOUR, NO_WORK).await;
    assert_eq!(tried.unwrap(), Write::Done);
    let due = world.queued().await;
    world.set(due, "run_at = now() - interval '1 minute'").await;
    let _ = world.running().await;
    let _ = world.parked(&[question("charts")]).await;
    let _ = fail(&world, BROKEN).await;
    let queues = world.store.queues().await.unwrap();
    assert_eq!(queues.len(), 1);
    let queue = &queues[0];
    let counts = (
        queue.queued,
        queue.due,
        queue.backing_off,
        queue.running,
        queue.parked,
    );
    assert_eq!(counts, (2, 1, 1, 1, 1));
    let waited = queue.oldest_due.unwrap();
    assert!(waited >= Duration::from_secs(59), "{waited:?}");
}
