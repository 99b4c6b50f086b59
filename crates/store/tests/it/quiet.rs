//! After a quiet hour, in which Postgres counted its rows while nothing was live, statements about one
//! task still find it by its id: an index of what is live would look small then, and hold everything as
//! soon as there is a backlog.

use crate::statements::files;
use crate::support::{NO_WORK, World};

/// By id alone.
const BY_ID: &[&str] = &[
    "abandon",
    "begin_step",
    "claim_queued",
    "complete",
    "delivered_inline",
    "fail",
    "finish_step",
    "get",
    "hand_out",
    "heartbeat",
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
    let copies = format!(
        "INSERT INTO tasks SELECT copy.* FROM tasks t, generate_series(1, 5000) n,
             LATERAL jsonb_populate_record(t, jsonb_build_object(
                 'id', gen_random_uuid(), 'subject', 'other-' || n)) copy
         WHERE t.id = '{id}'"
    );
    world.run(&copies).await;
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
