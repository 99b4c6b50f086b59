//! What operators see of tasks, and of Postgres.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use protocol::TaskId;
use store::{Begin, TaskAct, TaskFilter, UndoSpec, Write};

use crate::operate::{BROKEN, fail};
use crate::support::{
    HOUR, NO_WORK, SECOND, World, YES, answers, config, question, step, store, task_id, token,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_list_holds_what_fits_the_filter() {
    let world = World::new().await;
    let (queued, running) = (world.queued().await, world.running().await.id());
    let (parked, _) = world.parked(&[question("charts")]).await;
    let failed = fail(&world, BROKEN).await;
    let wrong = world.running().await;
    let result = br#"{"content":[],"isError":true}"#;
    let done = world.store.complete(&wrong, result, NO_WORK).await.unwrap();
    assert_eq!(done, Write::Done);
    let wrong = wrong.id();
    world
        .set(queued, "created_at = now() - interval '2 hours'")
        .await;
    world.set(running, "subject = 'bob'").await;
    let list = async |filter: TaskFilter| {
        let found = world.store.list_tasks(&filter, None, (None, 100)).await;
        let mut ids: Vec<TaskId> = found.unwrap().iter().map(|task| task.id).collect();
        ids.sort();
        ids
    };
    let sorted = |mut ids: Vec<TaskId>| {
        ids.sort();
        ids
    };
    let all = sorted(vec![queued, running, parked, failed, wrong]);
    assert_eq!(list(TaskFilter::default()).await, all);
    for (filter, expected) in [
        (
            TaskFilter {
                statuses: vec!["failed".to_owned(), "input_required".to_owned()],
                ..TaskFilter::default()
            },
            vec![parked, failed],
        ),
        (
            TaskFilter {
                phases: vec!["queued".to_owned()],
                ..TaskFilter::default()
            },
            vec![queued],
        ),
        (
            TaskFilter {
                tool: Some("other".to_owned()),
                ..TaskFilter::default()
            },
            vec![],
        ),
        (
            TaskFilter {
                subject: Some("bob".to_owned()),
                issuer: Some("https://issuer".to_owned()),
                ..TaskFilter::default()
            },
            vec![running],
        ),
        (
            TaskFilter {
                older_than: Some(HOUR),
                ..TaskFilter::default()
            },
            vec![queued],
        ),
        (
            TaskFilter {
                unread: true,
                ..TaskFilter::default()
            },
            vec![failed, wrong],
        ),
        (
            TaskFilter {
                errors: true,
                ..TaskFilter::default()
            },
            vec![failed, wrong],
        ),
        (
            TaskFilter {
                ids: vec![running, queued, task_id()],
                ..TaskFilter::default()
            },
            vec![running, queued],
        ),
    ] {
        assert_eq!(list(filter.clone()).await, sorted(expected), "{filter:?}");
    }
    world.store.mark_fetched(&[failed]).await.unwrap();
    let unread = TaskFilter {
        unread: true,
        ..TaskFilter::default()
    };
    assert_eq!(list(unread).await, [wrong]);
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_go_on_where_the_last_one_ended_and_hold_what_an_act_is_for() {
    let world = World::new().await;
    let mut live = Vec::new();
    for _ in 0..5 {
        live.push(world.queued().await);
    }
    let failed = fail(&world, BROKEN).await;
    live.sort();
    live.reverse();
    let any = TaskFilter::default();
    let store = &world.store;
    let mut seen = Vec::new();
    let mut before = None;
    loop {
        let page = store
            .list_tasks(&any, Some(TaskAct::Cancel), (before, 2))
            .await
            .unwrap();
        let Some(last) = page.last() else { break };
        before = Some(last.id);
        seen.extend(page.iter().map(|task| task.id));
    }
    assert_eq!(seen, live);
    let of = async |act| {
        let found = store.list_tasks(&any, Some(act), (None, 100)).await;
        found.unwrap()
    };
    let retry = of(TaskAct::Retry).await;
    assert_eq!(retry.len(), 1);
    assert_eq!(retry[0].id, failed);
    assert_eq!(retry[0].reason.as_deref(), Some("attempts_exhausted"));
    assert_eq!(of(TaskAct::Requeue).await.len(), 5);
    assert_eq!(of(TaskAct::Expire).await.len(), 6);
    world
        .set(
            live[0],
            "has_undo = true, phase = 'undoing', pending_status = 'cancelled'",
        )
        .await;
    assert_eq!(of(TaskAct::Cancel).await.len(), 4, "it is ending");
    assert_eq!(of(TaskAct::Requeue).await.len(), 5, "an undo may back off");
    assert_eq!(of(TaskAct::Expire).await.len(), 5);
}

/// Everything of a life but what it was about.
#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_shown_without_its_content() {
    let world = World::new().await;
    let claim = world.running().await;
    let store = &world.store;
    let undo = UndoSpec {
        how: b"{\"secret\": \"zwieback\"}",
        idempotent: true,
    };
    let spec = store::StepSpec {
        undo: Some(undo),
        ..step("build")
    };
    let Begin::Act(permit) = store.begin_step(&claim, spec).await.unwrap() else {
        panic!()
    };
    let output = Bytes::from_static(b"\"secret zwieback\"");
    assert_eq!(
        store.finish_step(&claim, permit, &output).await.unwrap(),
        Write::Done
    );
    let questions = [question("charts")];
    let parked = store
        .park(&claim, store::ParkedFor::Task, &questions, NO_WORK)
        .await;
    assert_eq!(parked.unwrap(), store::Parked::Parked);
    let answered = store
        .answer(&world.alice, claim.id(), &answers(&[("charts", YES)]), None)
        .await;
    assert!(matches!(answered.unwrap(), store::Answer::Resumed { .. }));
    let shown = store.show_task(claim.id()).await.unwrap().unwrap();
    assert_eq!(shown.steps.len(), 1);
    assert_eq!(shown.steps[0].undo_state.as_deref(), Some("pending"));
    assert_eq!(shown.inputs[0].answered_by.as_deref(), Some("owner"));
    assert_eq!((shown.attempt, shown.rounds), (1, 1));
    assert_eq!(shown.worker.as_deref(), Some("worker-1"));
    let all = format!("{shown:?}");
    for secret in ["zwieback", "may", "accept"] {
        assert!(!all.contains(secret), "{secret}: {all}");
    }
    assert!(store.show_task(task_id()).await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_said_of_a_task_is_shown() {
    let world = World::new().await;
    let failed = fail(&world, BROKEN).await;
    let receivers = ["log".to_owned()];
    let rules = store::AlertRules {
        receivers: &receivers,
        question_receivers: &[],
        unfetched_after: Duration::ZERO,
        question_after: HOUR,
        limit: 10,
    };
    let _ = world.store.raise_unfetched(&rules).await.unwrap();
    let told = world.store.show_alerts(failed).await.unwrap();
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].kind, "unfetched_failure");
    assert_eq!(told[0].delivery.as_ref().unwrap().receiver, "log");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_is_told_of_server_and_sweeps() {
    let world = World::new().await;
    let open = world.raw().await;
    open.batch_execute("BEGIN; SELECT 1").await.unwrap();
    tokio::time::sleep(SECOND).await;
    let facts = world.store.server_facts().await.unwrap();
    assert!(facts.version_num >= 140_000 && facts.connections_max.0 > 0);
    assert!(facts.oldest_transaction.unwrap() >= SECOND, "{facts:?}");
    assert!(!facts.blind);
    let holder = token();
    assert!(
        world
            .store
            .lead_sweep("expire", holder, HOUR)
            .await
            .unwrap()
    );
    assert!(world.store.lead_sweep("purge", holder, HOUR).await.unwrap());
    world.store.swept("purge", holder).await.unwrap();
    let sweeps = world.store.sweep_facts().await.unwrap();
    let said: Vec<_> = sweeps
        .iter()
        .map(|sweep| (sweep.name.as_str(), sweep.success.is_some(), sweep.led))
        .collect();
    assert_eq!(said, [("expire", false, true), ("purge", true, true)]);
}

/// Only a role without the right is told so, and not everyone while some session begins.
#[tokio::test]
async fn a_role_that_sees_only_its_own_sessions_is_told_so() {
    let world = World::new().await;
    let role = format!("role_{}", token().simple());
    world.run(&format!("CREATE ROLE {role} LOGIN")).await;
    let mut config = config(world.database.url());
    let (_, place) = config.url.split_once('@').expect("a user is named");
    config.url = format!("postgres://{role}@{place}");
    let limited = store(config);
    let stop = AtomicBool::new(false);
    let begin = async {
        while !stop.load(Ordering::Relaxed) {
            tokio::join!(world.raw(), world.raw(), world.raw());
        }
    };
    let look = async {
        for _ in 0..20 {
            assert!(!world.store.server_facts().await.unwrap().blind);
        }
        assert!(limited.server_facts().await.unwrap().blind);
        stop.store(true, Ordering::Relaxed);
    };
    tokio::join!(begin, look);
    world.run(&format!("DROP ROLE {role}")).await;
}
