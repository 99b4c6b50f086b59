//! What operators see and do: every statement, and that each act is written down once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use protocol::{TaskId, TaskStatus};
use serde_json::json;
use store::{
    Act, AuditFilter, Begin, Cancel, Introduction, Pause, PauseScope, Repeat, StopReason, TaskAct,
    TaskFilter, ToolPolicy, ToolSpec, Touched, UndoSpec, UnhintedFilter, Write,
};
use uuid::Uuid;

use crate::support::{
    HOUR, NO_WORK, SECOND, World, YES, answers, config, question, step, store, task_id, token,
};

const KEEP: Duration = Duration::from_secs(3600);
const BOTH: PauseScope = PauseScope {
    calls: true,
    jobs: true,
};

/// A command of an operator, written down.
async fn command(world: &World, name: &str) -> Uuid {
    let id = token();
    let target = json!({"ids": []});
    world
        .store
        .audit(id, ("olga@desk", name), &target)
        .await
        .unwrap();
    id
}

fn act(audit: Uuid, id: TaskId) -> Act<'static> {
    Act {
        audit,
        operator: "olga@desk",
        id,
    }
}

fn repeat(force: bool) -> Repeat {
    Repeat {
        new_id: task_id(),
        force,
    }
}

/// What the audit says of a task: command and outcome, the last first.
async fn audited(world: &World, id: TaskId) -> Vec<(String, String)> {
    let filter = AuditFilter {
        task: Some(id),
        limit: 10,
        ..AuditFilter::default()
    };
    let audits = world.store.audits(filter).await.unwrap();
    let mut all = Vec::new();
    for audit in audits {
        let of_task = audit
            .tasks
            .iter()
            .filter(|task| [Some(task.task_id), task.new_task_id].contains(&Some(*id.as_uuid())));
        all.extend(of_task.map(|task| (audit.command.clone(), task.outcome.clone())));
    }
    all
}

fn spec(version: i32) -> ToolSpec {
    let schema = json!({"type": "object"});
    ToolSpec {
        version,
        ..ToolSpec::new(protocol::tools::Tool::new("report", &schema))
    }
}

async fn fail(world: &World, error: &'static [u8]) -> TaskId {
    let claim = world.running().await;
    let ended = world
        .store
        .fail(&claim, &Bytes::from_static(error), "it broke", NO_WORK)
        .await;
    let _ = ended.unwrap();
    claim.id()
}

const BROKEN: &[u8] =
    br#"{"code":-32603,"message":"\u0000it broke","data":{"reason":"attempts_exhausted"}}"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_list_holds_what_fits_the_filter() {
    let world = World::new().await;
    let (queued, running) = (world.queued().await, world.running().await.id());
    let (parked, _) = world.parked(&[question("charts")]).await;
    let failed = fail(&world, BROKEN).await;
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
    let all = sorted(vec![queued, running, parked, failed]);
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
            vec![failed],
        ),
    ] {
        assert_eq!(list(filter.clone()).await, sorted(expected), "{filter:?}");
    }
    world.store.mark_fetched(&[failed]).await.unwrap();
    let unread = TaskFilter {
        unread: true,
        ..TaskFilter::default()
    };
    assert_eq!(list(unread).await, []);
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

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_of_an_operator_says_who_it_was() {
    let world = World::new().await;
    let audit = command(&world, "tasks cancel").await;
    let queued = world.queued().await;
    let claim = world.running().await;
    let store = &world.store;
    assert_eq!(
        store.operator_cancel(act(audit, queued)).await.unwrap(),
        Touched::Ended
    );
    assert_eq!(world.get(queued).await.status, TaskStatus::Cancelled);
    assert_eq!(
        store.operator_cancel(act(audit, claim.id())).await.unwrap(),
        Touched::Stopping
    );
    let beats = store.heartbeat([&claim]).await.unwrap();
    assert_eq!(beats[0].stop, Some(StopReason::Cancelled));
    let _ = store.confirm_stopped(&claim).await.unwrap();
    for id in [queued, claim.id()] {
        let shown = store.show_task(id).await.unwrap().unwrap();
        assert_eq!(shown.stopped_by.as_deref(), Some("olga@desk"));
        assert_eq!(shown.stop_reason.as_deref(), Some("cancelled"));
        assert_eq!(shown.status, "cancelled");
    }
    let over = store.operator_cancel(act(token(), queued)).await.unwrap();
    assert!(matches!(over, Touched::Refused(_)), "{over:?}");
    let missing = store.operator_cancel(act(audit, task_id())).await.unwrap();
    assert_eq!(missing, Touched::Missing);
}

/// The owner was first: the audit has the operator's act, the task its owner's stop.
#[tokio::test(flavor = "multi_thread")]
async fn the_first_stop_stays_its_own() {
    let world = World::new().await;
    let claim = world.running().await;
    let store = &world.store;
    let stopped = store.cancel(&world.alice, claim.id()).await.unwrap();
    assert_eq!(stopped, Cancel::Requested);
    let audit = command(&world, "tasks expire").await;
    let late = store.operator_expire(act(audit, claim.id()), KEEP).await;
    assert!(matches!(late.unwrap(), Touched::Refused(_)));
    let shown = store.show_task(claim.id()).await.unwrap().unwrap();
    assert_eq!(
        (shown.stopped_by, shown.stop_reason.as_deref()),
        (None, Some("cancelled"))
    );
    assert_eq!(audited(&world, claim.id()).await, [], "nothing was done");
}

/// A reply that was lost: the act is found, and not done twice.
#[tokio::test(flavor = "multi_thread")]
async fn an_act_is_done_and_written_down_once() {
    let world = World::new().await;
    let failed = fail(&world, BROKEN).await;
    let audit = command(&world, "tasks retry").await;
    let store = &world.store;
    let Touched::Repeated { new_id, .. } = store
        .operator_repeat(act(audit, failed), repeat(false))
        .await
        .unwrap()
    else {
        panic!()
    };
    let again = store
        .operator_repeat(act(audit, failed), repeat(false))
        .await
        .unwrap();
    assert_eq!(
        again,
        Touched::Before {
            outcome: "repeated".to_owned(),
            new_id: Some(new_id)
        }
    );
    let count = world.value("SELECT count(*) FROM tasks").await;
    assert_eq!(count.as_deref(), Some("2"));
    let expected = [("tasks retry".to_owned(), "repeated".to_owned())];
    assert_eq!(audited(&world, failed).await, expected);
    assert_eq!(
        audited(&world, new_id).await,
        expected,
        "found from both ends"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_is_a_new_task_of_the_same_owner() {
    let world = World::new().await;
    world.store.register_tools(&[spec(3)], HOUR).await.unwrap();
    let failed = fail(&world, BROKEN).await;
    let before = world.get(failed).await;
    let audit = command(&world, "tasks retry").await;
    let touched = world
        .store
        .operator_repeat(act(audit, failed), repeat(false))
        .await
        .unwrap();
    let Touched::Repeated {
        new_id,
        tool,
        version,
        acted,
    } = touched
    else {
        panic!("{touched:?}")
    };
    assert_eq!((tool.as_str(), version, acted), ("report", 3, 0));
    let new = world.get(new_id).await;
    assert!(new.queued && new.handed_out && !new.keyed);
    assert_eq!(new.ttl_ms, ToolPolicy::default().ttl_ms(false));
    for column in [
        "arguments",
        "arguments_digest",
        "client_capabilities",
        "subject",
        "issuer",
    ] {
        assert_eq!(
            world.column(new_id, column).await,
            world.column(failed, column).await,
            "{column}"
        );
    }
    let after = world.get(failed).await;
    assert_eq!(
        (after.status, after.error),
        (before.status, before.error),
        "terminal is final"
    );
    // Cron finds it, also where the hint was never given.
    let unhinted = unhinted(&world).await;
    assert_eq!(unhinted, [new_id]);

    let again = act(command(&world, "tasks retry").await, failed);
    let refused = world
        .store
        .operator_repeat(again, repeat(false))
        .await
        .unwrap();
    let Touched::Refused(why) = refused else {
        panic!("{refused:?}")
    };
    assert!(why.contains(&new_id.to_string()), "{why}");
    let forced = world
        .store
        .operator_repeat(again, repeat(true))
        .await
        .unwrap();
    assert!(matches!(forced, Touched::Repeated { .. }));
    let live = act(audit, new_id);
    let refused = world
        .store
        .operator_repeat(live, repeat(true))
        .await
        .unwrap();
    assert!(matches!(refused, Touched::Refused(_)), "it is not over");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_in_doubt_is_repeated_by_force_only() {
    let world = World::new().await;
    let claim = world.running().await;
    let store = &world.store;
    let done = world.begin(&claim, "build").await;
    let output = store
        .finish_step(&claim, done, &Bytes::from_static(b"1"))
        .await;
    assert_eq!(output.unwrap(), Write::Done);
    let _open = world.begin(&claim, "deploy").await;
    let _ = store.cancel(&world.alice, claim.id()).await.unwrap();
    let _ = store.confirm_stopped(&claim).await.unwrap();
    assert_eq!(world.error_reason(claim.id()).await, "step_in_doubt");
    let audit = command(&world, "tasks retry").await;
    let refused = store
        .operator_repeat(act(audit, claim.id()), repeat(false))
        .await
        .unwrap();
    assert!(
        matches!(&refused, Touched::Refused(why) if why.contains("--force")),
        "{refused:?}"
    );
    let forced = store
        .operator_repeat(act(audit, claim.id()), repeat(true))
        .await
        .unwrap();
    let Touched::Repeated { acted, .. } = forced else {
        panic!("{forced:?}")
    };
    assert_eq!(acted, 1, "the step that is not in doubt acts again");
}

async fn unhinted(world: &World) -> Vec<TaskId> {
    let epochs = ["epoch".to_owned()];
    let filter = UnhintedFilter {
        epochs: &epochs,
        age: HOUR,
        tools: None,
        limit: 10,
    };
    let unhinted = world.store.unhinted(&filter).await.unwrap();
    unhinted.into_iter().map(|job| job.id).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_backs_off_is_due_when_an_operator_says_so() {
    let world = World::new().await;
    let claim = world.running().await;
    let store = &world.store;
    let tried = store.retry(&claim, "not yet", HOUR, NO_WORK).await;
    assert_eq!(tried.unwrap(), Write::Done);
    assert!(world.claim(claim.id()).await.is_none());
    let audit = command(&world, "tasks requeue").await;
    let due = store
        .operator_requeue(act(audit, claim.id()))
        .await
        .unwrap();
    let expected = Touched::Due {
        tool: "report".to_owned(),
        version: 1,
    };
    assert_eq!(due, expected);
    assert_eq!(unhinted(&world).await, [claim.id()]);
    let again = world.claim(claim.id()).await.unwrap();
    let running = act(command(&world, "tasks requeue").await, again.id());
    let refused = store.operator_requeue(running).await.unwrap();
    assert!(matches!(refused, Touched::Refused(_)), "it runs");
    let missing = store.operator_requeue(act(audit, task_id())).await.unwrap();
    assert_eq!(missing, Touched::Missing);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_task_fails_and_a_finished_one_is_buried() {
    let world = World::new().await;
    let audit = command(&world, "tasks expire").await;
    let store = &world.store;
    let live = world.queued().await;
    let expires_at = world.column(live, "expires_at").await;
    let touched = store.operator_expire(act(audit, live), KEEP).await.unwrap();
    assert_eq!(touched, Touched::Ended);
    assert_eq!(world.error_reason(live).await, "task_expired");
    assert_eq!(
        world.column(live, "expires_at").await,
        expires_at,
        "a TTL never shrinks"
    );

    let failed = fail(&world, BROKEN).await;
    let touched = store
        .operator_expire(act(audit, failed), KEEP)
        .await
        .unwrap();
    assert_eq!(touched, Touched::Buried);
    let gone = store.get(&world.alice, failed).await.unwrap();
    assert!(
        matches!(
            gone,
            store::Lookup::Expired {
                final_status: TaskStatus::Failed,
                ..
            }
        ),
        "{gone:?}"
    );
    let tombstone = store.show_tombstone(failed).await.unwrap().unwrap();
    assert_eq!(tombstone.final_status, "failed");
    assert!(store.show_task(failed).await.unwrap().is_none());
    let expected = [("tasks expire".to_owned(), "buried".to_owned())];
    assert_eq!(
        audited(&world, failed).await,
        expected,
        "the audit outlives it"
    );
    let again = store
        .operator_expire(act(audit, failed), KEEP)
        .await
        .unwrap();
    assert_eq!(again.outcome(), "buried");
}

/// Everything of a life but what it was about.
#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_shown_without_its_content() {
    let world = World::new().await;
    let claim = world.running().await;
    let store = &world.store;
    let undo = UndoSpec {
        how: b"{\"secret\": 4711}",
        idempotent: true,
    };
    let spec = store::StepSpec {
        undo: Some(undo),
        ..step("build")
    };
    let Begin::Act(permit) = store.begin_step(&claim, spec).await.unwrap() else {
        panic!()
    };
    let output = Bytes::from_static(b"\"secret 4711\"");
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
    for secret in ["4711", "may", "accept"] {
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
