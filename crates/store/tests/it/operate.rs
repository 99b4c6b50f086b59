//! What operators do to tasks: every act, which is written down once.

use std::time::Duration;

use bytes::Bytes;
use protocol::{TaskId, TaskStatus};
use serde_json::json;
use store::{
    Act, AuditFilter, Cancel, Repeat, StopReason, ToolPolicy, ToolSpec, Touched, UnhintedFilter,
    Write,
};
use uuid::Uuid;

use crate::support::{HOUR, NO_WORK, World, task_id, token};

const KEEP: Duration = Duration::from_secs(3600);
/// A command of an operator, written down.
pub async fn command(world: &World, name: &str) -> Uuid {
    let id = token();
    let target = json!({"ids": []});
    world
        .store
        .audit(id, ("olga@desk", name), &target)
        .await
        .unwrap();
    id
}

pub fn act(audit: Uuid, id: TaskId) -> Act<'static> {
    Act {
        audit,
        operator: "olga@desk",
        id,
    }
}

pub fn repeat(force: bool) -> Repeat {
    Repeat {
        new_id: task_id(),
        force,
    }
}

/// What the audit says of a task: command and outcome, the last first.
pub async fn audited(world: &World, id: TaskId) -> Vec<(String, String)> {
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

pub fn spec(version: i32) -> ToolSpec {
    let schema = json!({"type": "object"});
    ToolSpec {
        version,
        ..ToolSpec::new(protocol::tools::Tool::new("report", &schema))
    }
}

pub async fn fail(world: &World, error: &'static [u8]) -> TaskId {
    let claim = world.running().await;
    let ended = world
        .store
        .fail(&claim, &Bytes::from_static(error), "it broke", NO_WORK)
        .await;
    let _ = ended.unwrap();
    claim.id()
}

pub const BROKEN: &[u8] =
    br#"{"code":-32603,"message":"\u0000it broke","data":{"reason":"attempts_exhausted"}}"#;

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

pub async fn unhinted(world: &World) -> Vec<TaskId> {
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
