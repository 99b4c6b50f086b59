//! Every statement: prepared against the schema, used once, and on an index where it is hot.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use store::Write;

use crate::support::World;

fn src() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

pub fn files() -> Vec<(String, String)> {
    let mut files: Vec<_> = std::fs::read_dir(src().join("sql"))
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            (name, std::fs::read_to_string(path).unwrap())
        })
        .collect();
    files.sort();
    files
}

#[tokio::test(flavor = "multi_thread")]
async fn every_statement_fits_the_schema() {
    let world = World::new().await;
    let client = world.raw().await;
    for (name, sql) in files() {
        // Several statements, run by the migrator only.
        if name == "schema_tables" {
            client.batch_execute(&sql).await.unwrap();
            continue;
        }
        let prepared = client.prepare(&sql).await;
        assert!(prepared.is_ok(), "{name}: {:?}", prepared.err());
        assert!(sql.starts_with("--"), "{name} says which promise it keeps");
    }
}

#[test]
fn every_file_is_included_and_every_inclusion_is_a_file() {
    let mut included = BTreeSet::new();
    for entry in std::fs::read_dir(src()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            for part in text.split("sql!(\"").skip(1) {
                included.insert(part[..part.find('"').unwrap()].to_owned());
            }
        }
    }
    let there: BTreeSet<_> = files().into_iter().map(|(name, _)| name).collect();
    assert_eq!(included, there);
}

/// Those that run for every request, and those that sweep whole tables.
const ON_AN_INDEX: &[&str] = &[
    "abandon",
    "abandon_step",
    "begin_step",
    "begin_undo",
    "claim",
    "claim_best",
    "claim_one",
    "complete",
    "complete_one",
    "count_live",
    "create",
    "create_one",
    "delivered_inline",
    "end_holds",
    "existing",
    "expire",
    "expiring",
    "fail",
    "fail_undo",
    "find_callback",
    "finish_step",
    "finish_undo",
    "get",
    "get_one",
    "hinted",
    "give_up_undos",
    "hand_out",
    "heartbeat",
    "hold",
    "journal",
    "keep_waiting",
    "list_owned",
    "lock_called",
    "lock_for_answer",
    "lock_running",
    "lock_task",
    "lock_unanswered",
    "lock_undoing",
    "mark_fetched",
    "mark_hinted",
    "next_undo",
    "open_callback",
    "outstanding",
    "park",
    "progress",
    "progress_callback",
    "purge",
    "purgeable",
    "purge_tombstones",
    "queue_ages",
    "queue_waits",
    "receive_callback",
    "record_answer",
    "release",
    "repeated",
    "request_stop",
    "resume",
    "retry",
    "retry_undo",
    "settle_stopped",
    "stop_own",
    "stoppable",
    "store_answers",
    "tombstone",
    "tombstones",
    "unanswered",
    "undone",
    "undos",
    "unheld",
    "unhinted",
    "wait_callback",
    "wake",
];

#[tokio::test(flavor = "multi_thread")]
async fn hot_statements_use_an_index() {
    let world = World::new().await;
    let client = world.raw().await;
    client
        .batch_execute("SET enable_seqscan = off; SET plan_cache_mode = force_generic_plan")
        .await
        .unwrap();
    for (name, sql) in files() {
        if !ON_AN_INDEX.contains(&name.as_str()) {
            continue;
        }
        let arguments = client.prepare(&sql).await.unwrap().params().len();
        let arguments = match arguments {
            0 => String::new(),
            n => format!("({})", vec!["NULL"; n].join(", ")),
        };
        let explain = format!("PREPARE s_{name} AS {sql}; EXPLAIN EXECUTE s_{name} {arguments}");
        let plan: Vec<String> = client
            .simple_query(&explain)
            .await
            .unwrap()
            .into_iter()
            .filter_map(|message| match message {
                tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
                _ => None,
            })
            .collect();
        let plan = plan.join("\n");
        for table in [
            "callbacks",
            "tasks",
            "steps",
            "inputs",
            "tombstones",
            "idempotency_keys",
        ] {
            let scan = format!("Seq Scan on {table}");
            assert!(
                !plan.contains(&scan),
                "{name} reads all of {table}:\n{plan}"
            );
        }
    }
}

/// A heartbeat every few seconds for every job: if it left the HOT path, every index of the
/// table would grow with it.
#[tokio::test(flavor = "multi_thread")]
async fn heartbeats_holds_hints_and_progress_are_hot_updates() {
    let world = World::new().await;
    let claim = world.running().await;
    // On a connection of its own, which reports its counts when it ends.
    let counts = async || {
        let sql = "SELECT pg_stat_force_next_flush(), n_tup_upd || ' ' || n_tup_hot_upd \
                   FROM pg_stat_user_tables WHERE relname = 'tasks'";
        let rows = world.database.rows(sql).await.unwrap();
        let text = rows[0][1].clone().unwrap();
        let (all, hot) = text.split_once(' ').unwrap();
        (all.parse::<i64>().unwrap(), hot.parse::<i64>().unwrap())
    };
    let flushed = async |updates: i64| {
        harness::wait::for_state(
            "counts of the updates",
            crate::support::SECOND * 20,
            async || {
                // Idle sessions report late; a statement makes them.
                let _ = world.store.gauges().await.unwrap();
                counts().await
            },
            |(all, _)| *all >= updates,
        )
        .await
        .unwrap()
    };
    let (before, hot_before) = flushed(1).await;
    for n in 0..20 {
        let _ = world.store.heartbeat([&claim]).await.unwrap();
        let progress = world.store.progress(&claim, &format!("page {n}")).await;
        assert_eq!(progress.unwrap(), Write::Done);
        world
            .store
            .mark_hinted(&[(claim.id(), Some("e".to_owned()))])
            .await
            .unwrap();
    }
    let (after, hot_after) = flushed(before + 60).await;
    assert_eq!(after - before, 60);
    // A full page whose dead rows somebody may still see costs one that is not; a column in an
    // index costs all.
    assert!(
        hot_after - hot_before > 45,
        "{} of 60",
        hot_after - hot_before
    );
}
