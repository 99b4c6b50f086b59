//! An idempotency key lives exactly as long as its task: whatever makes or deletes one does so to the
//! other in the same statement, so there is nothing to sweep.

use std::time::Duration;

use store::{Act, Created, Lookup, NewTask, ToolPolicy};
use tokio::task::JoinSet;

use crate::support::{HOUR, NO_WORK, World, create, task_id, token};

/// Keys without a task, and tasks without their key.
async fn orphans(world: &World) -> String {
    let sql = "SELECT (SELECT count(*) FROM idempotency_keys k WHERE NOT EXISTS \
                  (SELECT FROM tasks t WHERE t.id = k.task_id AND t.idempotency_key = k.key)) || ' ' || \
               (SELECT count(*) FROM tasks t WHERE t.idempotency_key IS NOT NULL AND NOT EXISTS \
                  (SELECT FROM idempotency_keys k WHERE k.task_id = t.id AND k.key = t.idempotency_key))";
    world.value(sql).await.unwrap()
}

async fn keyed(world: &World, key: &'static str, change: impl FnOnce(&mut NewTask<'_>)) -> Created {
    let policy = ToolPolicy::default();
    create(&world.store, &world.alice, &policy, |new| {
        new.idempotency_key = Some(key);
        change(new);
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn no_key_outlives_its_task() {
    let world = World::new().await;
    let store = &world.store;
    // Racing calls, of which some are dropped half way.
    let mut racing = JoinSet::new();
    for n in 0..24 {
        let (store, alice) = (store.clone(), world.alice.clone());
        racing.spawn(async move {
            let policy = ToolPolicy::default();
            let making = create(&store, &alice, &policy, |new| {
                new.idempotency_key = Some(["a", "b", "c"][n % 3]);
            });
            let patience = Duration::from_micros(n as u64 * 150);
            let _ = tokio::time::timeout(patience, making).await;
        });
    }
    racing.join_all().await;
    for key in ["a", "b", "c", "d"] {
        keyed(&world, key, |_| ()).await;
    }
    keyed(&world, "inline", |new| new.handed_out = false).await;
    assert_eq!(orphans(&world).await, "0 0");
    let count = world.value("SELECT count(*) FROM idempotency_keys").await;
    assert_eq!(count.as_deref(), Some("5"));
    // All ways in which a task goes: delivered inline (which keeps one that has a key), purged,
    // ended by an operator.
    let rows = world.database.rows("SELECT id FROM tasks").await.unwrap();
    for row in rows {
        let id = row[0].as_deref().unwrap().parse().unwrap();
        let claim = world.claim(id).await.unwrap();
        let _ = store.complete(&claim, b"{}", NO_WORK).await.unwrap();
        store.delivered_inline(&[id]).await.unwrap();
        assert!(matches!(
            store.get(&world.alice, id).await.unwrap(),
            Lookup::Found(_)
        ));
    }
    assert_eq!(orphans(&world).await, "0 0");
    world
        .run("UPDATE tasks SET expires_at = now() WHERE idempotency_key <> 'd'")
        .await;
    for left in [4, 2] {
        // Dropped half way, it has purged both or neither.
        let purging = store.purge(2, HOUR);
        let _ = tokio::time::timeout(Duration::from_micros(400), purging).await;
        assert_eq!(orphans(&world).await, "0 0", "{left} to purge");
    }
    while store.purge(1, HOUR).await.unwrap() > 0 {
        assert_eq!(orphans(&world).await, "0 0");
    }
    let left = world.value("SELECT id FROM tasks").await.unwrap();
    let audit = token();
    let target = serde_json::json!({});
    let by = ("olga", "tasks expire");
    store.audit(audit, by, &target).await.unwrap();
    let act = Act {
        audit,
        operator: "olga",
        id: left.parse().unwrap(),
    };
    store.operator_expire(act, HOUR).await.unwrap();
    let count = world.value("SELECT count(*) FROM idempotency_keys").await;
    assert_eq!(count.as_deref(), Some("0"));
}

/// Somebody who mends a database by hand may leave one behind: it is no trap for its next user.
#[tokio::test(flavor = "multi_thread")]
async fn an_orphan_made_by_hand_is_replaced() {
    let world = World::new().await;
    world
        .run(&format!(
            "INSERT INTO idempotency_keys VALUES ('https://issuer', 'alice', 'report', 'key', '{}', '\\x07', now())",
            task_id()
        ))
        .await;
    let created = keyed(&world, "key", |_| ()).await;
    assert!(matches!(created, Created::New(_)), "{created:?}");
    let again = keyed(&world, "key", |_| ()).await;
    assert!(matches!(again, Created::Existing(_)), "{again:?}");
    assert_eq!(orphans(&world).await, "0 0");
}
