//! What operators did is kept for a stated time, and as long as a task they did it to is there.

use serde_json::json;
use store::{Act, Audit, AuditFilter, Repeat, Touched};

use crate::support::{HOUR, NO_WORK, World, task_id, token};

async fn commands(world: &World) -> Vec<String> {
    let all = AuditFilter {
        limit: 100,
        ..AuditFilter::default()
    };
    let audits = world.store.audits(all).await.unwrap();
    let mut commands: Vec<String> = audits.into_iter().map(|audit| audit.command).collect();
    commands.sort();
    commands
}

#[tokio::test(flavor = "multi_thread")]
async fn old_acts_are_forgotten_but_not_those_to_tasks_that_are_there() {
    let world = World::new().await;
    let store = &world.store;
    let mut audits = Vec::new();
    for command in ["old", "old too", "of a live task", "of a repeat", "young"] {
        let (audit, by) = (token(), ("olga", command));
        store.audit(audit, by, &json!({})).await.unwrap();
        audits.push(audit);
    }
    let act = |audit, id| Act {
        audit,
        operator: "olga",
        id,
    };
    let live = world.running().await;
    let touched = store.operator_cancel(act(audits[2], live.id())).await;
    assert_eq!(touched.unwrap(), Touched::Stopping);
    // The task is gone, the one that repeats it is there.
    let failed = world.running().await;
    let _ = store
        .fail(&failed, b"{\"code\":1}", "m", NO_WORK)
        .await
        .unwrap();
    let repeat = Repeat {
        new_id: task_id(),
        force: false,
    };
    let repeated = store.operator_repeat(act(audits[3], failed.id()), repeat);
    assert!(matches!(repeated.await.unwrap(), Touched::Repeated { .. }));
    world
        .set(failed.id(), "expires_at = now(), first_fetched_at = now()")
        .await;
    assert_eq!(store.purge(10, HOUR).await.unwrap(), 1);
    world
        .run("UPDATE audit SET at = at - interval '2 hours' WHERE command <> 'young'")
        .await;
    assert_eq!(store.purge_audit(1, HOUR).await.unwrap(), 1, "in batches");
    assert_eq!(store.purge_audit(10, HOUR).await.unwrap(), 1);
    assert_eq!(store.purge_audit(10, HOUR).await.unwrap(), 0);
    assert_eq!(
        commands(&world).await,
        ["of a live task", "of a repeat", "young"]
    );
    let _ = store.confirm_stopped(&live).await.unwrap();
    world
        .run("UPDATE tasks SET expires_at = now(), first_fetched_at = now() WHERE phase IS NULL")
        .await;
    assert_eq!(store.purge(10, HOUR).await.unwrap(), 1);
    assert_eq!(store.purge_audit(10, HOUR).await.unwrap(), 1);
    assert_eq!(commands(&world).await, ["of a repeat", "young"]);
    let left = world.value("SELECT count(*) FROM audit_tasks").await;
    assert_eq!(left.as_deref(), Some("1"));
}

/// Also of what touched no task; what was killed is told from what did nothing, and neither from what an
/// older release wrote.
#[tokio::test(flavor = "multi_thread")]
async fn what_became_of_a_command_is_written_down() {
    let world = World::new().await;
    let store = &world.store;
    let (ended, killed) = (token(), token());
    for (audit, command) in [(ended, "ended"), (killed, "killed")] {
        let by = ("olga", command);
        store.audit(audit, by, &json!({})).await.unwrap();
    }
    store.audit_ended(ended, "1 refused").await.unwrap();
    // A repeat of the first statement, whose reply was lost, is no new beginning.
    let by = ("olga", "ended");
    store.audit(ended, by, &json!({})).await.unwrap();
    world
        .run(
            "INSERT INTO audit (id, at, operator, command, target) \
             VALUES (gen_random_uuid(), now(), 'olga', 'older', '{}')",
        )
        .await;
    let all = AuditFilter {
        limit: 10,
        ..AuditFilter::default()
    };
    let audits = store.audits(all).await.unwrap();
    let outcome = |command: &str| {
        let audit = audits.iter().find(|audit| audit.command == command);
        audit.unwrap().outcome.as_str()
    };
    assert_eq!(outcome("ended"), "1 refused");
    assert_eq!(outcome("killed"), Audit::BEGUN);
    assert_eq!(outcome("older"), Audit::UNRECORDED);
}
