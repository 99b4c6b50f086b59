//! A batch is as large as it was asked to be, whatever plan Postgres chooses.

use crate::support::{HOUR, World};

/// Every way to avoid running one side of a join again and again.
const WAYS: [&str; 6] = [
    "enable_hashjoin",
    "enable_mergejoin",
    "enable_material",
    "enable_indexscan",
    "enable_indexonlyscan",
    "enable_bitmapscan",
];

/// A `LIMIT` with locked rows below a join may be run again for every row of the other side, and
/// take more. On a table that seems to hold one row, and with nothing better, that is the plan.
#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_moves_no_more_rows_than_it_was_asked_to() {
    let world = World::new().await;
    let database = world.value("SELECT current_database()").await.unwrap();
    for way in WAYS {
        world
            .run(&format!("ALTER DATABASE \"{database}\" SET {way} = off"))
            .await;
    }
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(world.queued().await);
    }
    for id in &ids {
        world.set(*id, "expires_at = now()").await;
    }
    world
        .run("UPDATE pg_class SET reltuples = 1, relpages = 1 WHERE relname = 'tasks'")
        .await;
    // Its sessions are opened now, with these settings.
    let store = crate::support::store(crate::support::config(world.database.url()));
    for _ in 0..2 {
        assert_eq!(store.expire(1).await.unwrap().len(), 1);
    }
    assert_eq!(store.expire(10).await.unwrap().len(), 3);
    assert_eq!(store.stoppable(2).await.unwrap().len(), 2);
    let settled = store.settle_stopped(&ids).await.unwrap();
    assert_eq!(settled.len(), 5);
    for id in &ids {
        world
            .set(*id, "expires_at = now(), first_fetched_at = now()")
            .await;
    }
    assert_eq!(store.purge(1, HOUR).await.unwrap(), 1);
    assert_eq!(store.purge(3, HOUR).await.unwrap(), 3);
    assert_eq!(store.purge(10, HOUR).await.unwrap(), 1);
    world.run("UPDATE tombstones SET purge_at = now()").await;
    assert_eq!(store.purge_tombstones(1).await.unwrap(), 1);
    assert_eq!(store.purge_tombstones(10).await.unwrap(), 4);

    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(world.queued().await);
    }
    for id in &held {
        world
            .set(*id, "handed_out_at = NULL, held_until = now()")
            .await;
    }
    assert_eq!(store.end_holds(1).await.unwrap().len(), 1);
    assert_eq!(store.end_holds(10).await.unwrap().len(), 2);
}
