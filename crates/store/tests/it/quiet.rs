//! After a quiet hour, in which Postgres counted its rows while nothing was live, statements about one
//! task still find it by its id: an index of what is live would look small then, and hold everything as
//! soon as there is a backlog.

use std::time::Duration;

use protocol::TaskId;
use store::{Config, Lookup};

use crate::statements::files;
use crate::support::{NO_WORK, World, config, store};

/// By id alone.
const BY_ID: &[&str] = &[
    "abandon",
    "begin_step",
    "claim_one",
    "claim_queued",
    "complete",
    "complete_one",
    "delivered_inline",
    "fail",
    "finish_step",
    "get",
    "get_one",
    "hand_out",
    "heartbeat",
    "hinted",
    "hold",
    "lock_running",
    "lock_task",
    "mark_fetched",
    "mark_hinted",
    "park",
    "progress",
    "release",
    "request_stop",
    "resume",
    "retry",
    "stop_own",
];

#[tokio::test(flavor = "multi_thread")]
async fn statements_by_id_stay_by_id() {
    let world = World::new().await;
    let claim = world.running().await;
    let id = claim.id();
    let done = world.store.complete(&claim, b"{}", NO_WORK).await;
    assert_eq!(done.unwrap(), store::Write::Done);
    world.run(&copies(id)).await;
    world.run("VACUUM ANALYZE tasks").await;
    let client = world.raw().await;
    client
        .batch_execute("SET plan_cache_mode = force_generic_plan")
        .await
        .unwrap();
    for (name, sql) in files() {
        if !BY_ID.contains(&name.as_str()) {
            continue;
        }
        let arguments = client.prepare(&sql).await.unwrap().params().len();
        let arguments = vec!["NULL"; arguments].join(", ");
        let explain = format!("PREPARE q_{name} AS {sql}; EXPLAIN EXECUTE q_{name} ({arguments})");
        let plan: String = client
            .simple_query(&explain)
            .await
            .unwrap()
            .iter()
            .filter_map(|message| match message {
                tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
                _ => None,
            })
            .collect::<Vec<_>>()
            .join("\n");
        assert!(plan.contains("tasks_pkey"), "{name}: {plan}");
        assert!(!plan.contains("tasks_live"), "{name}: {plan}");
        assert!(!plan.contains("Seq Scan on tasks"), "{name}: {plan}");
    }
}

/// What is planned while there is next to nothing in the table would read all of it when there is a lot.
#[tokio::test(flavor = "multi_thread")]
async fn plans_for_an_empty_table_are_not_kept_for_long() {
    const MANY: i64 = 5_000;
    let world = World::new().await;
    world
        .run("ALTER TABLE tasks SET (autovacuum_enabled = false)")
        .await;
    let one = store(Config {
        pool_size: 1,
        ..config(world.database.url())
    });
    let id = world.queued().await;
    let read = async || {
        let found = one.get(&world.alice, id).await.unwrap();
        assert!(matches!(found, Lookup::Found(_)), "{found:?}");
    };
    // Until the plan is kept.
    for _ in 0..8 {
        read().await;
    }
    world.run(&copies(id)).await;
    // Rows that one read looks at. A session reports what it read every other second.
    let rows_of_a_read = async || {
        let count = async || {
            let sql = "SELECT t.seq_tup_read + sum(i.idx_tup_read) FROM pg_stat_user_tables t
                       JOIN pg_stat_user_indexes i USING (relid) WHERE t.relname = 'tasks' GROUP BY t.seq_tup_read";
            let count = world.value(sql).await.unwrap();
            count.parse::<i64>().unwrap()
        };
        let before = count().await;
        for _ in 0..6 {
            read().await;
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        (count().await - before) / 6
    };
    let mut seen = vec![rows_of_a_read().await];
    while seen.last().is_some_and(|rows| *rows > MANY / 100) {
        assert!(
            seen.len() < 20,
            "rows of a read, every three seconds: {seen:?}"
        );
        seen.push(rows_of_a_read().await);
    }
}

fn copies(id: TaskId) -> String {
    format!(
        "INSERT INTO tasks SELECT copy.* FROM tasks t, generate_series(1, 5000) n,
             LATERAL jsonb_populate_record(t, jsonb_build_object(
                 'id', gen_random_uuid(), 'subject', 'other-' || n)) copy
         WHERE t.id = '{id}'"
    )
}
