//! I14: any number of migrators, one migration; and who may run on what.

use store::migrate::migrate;
use tokio::task::JoinSet;

use crate::support::{SECOND, config, raw, store};

async fn empty(name: &str) -> String {
    let server = harness::postgres::shared().await.unwrap();
    server.create_database(name).await.unwrap()
}

/// All there are, in order.
fn migrations() -> Vec<String> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../migrations");
    let files = std::fs::read_dir(folder).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut all: Vec<_> = names
        .filter_map(|name| Some(name.strip_suffix(".sql")?.to_owned()))
        .collect();
    all.sort();
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn of_five_at_once_one_migrates_and_all_succeed() {
    let url = empty("migrate_five").await;
    let mut all = JoinSet::new();
    for _ in 0..5 {
        let config = config(&url);
        all.spawn(async move { migrate(&config).await.unwrap() });
    }
    let done = all.join_all().await;
    assert_eq!(
        done.iter().filter(|m| m.applied == migrations()).count(),
        1,
        "{done:?}"
    );
    assert_eq!(
        done.iter().filter(|m| m.applied.is_empty()).count(),
        4,
        "{done:?}"
    );
    assert!(
        done.iter()
            .all(|m| m.version == i32::try_from(migrations().len()).unwrap())
    );
    store(config(&url)).check_schema().await.unwrap();
    let sql = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' \
               AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    harness::wait::for_state(
        "the lock goes with its session",
        10 * SECOND,
        async || harness::postgres::rows(&url, sql).await.unwrap()[0][0].clone(),
        |count| count.as_deref() == Some("0"),
    )
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_migration_that_was_changed_is_refused() {
    let url = empty("migrate_changed").await;
    migrate(&config(&url)).await.unwrap();
    harness::postgres::rows(&url, "UPDATE schema_migrations SET checksum = '\\x00'")
        .await
        .unwrap();
    let refused = migrate(&config(&url)).await.unwrap_err().to_string();
    assert!(
        refused.contains("0001_tasks was changed after it was applied"),
        "{refused}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schema_says_what_to_run() {
    let url = empty("migrate_check").await;
    let store = store(config(&url));
    let missing = store.check_schema().await.unwrap_err().to_string();
    assert!(
        missing.contains("version 0") && missing.contains("mcp-tasks migrate"),
        "{missing}"
    );
    migrate(&config(&url)).await.unwrap();
    store.check_schema().await.unwrap();
    // A newer release went ahead: fine, until it ends the support of this one.
    harness::postgres::rows(
        &url,
        "INSERT INTO schema_migrations VALUES (99, '0099_more', '\\x00')",
    )
    .await
    .unwrap();
    store.check_schema().await.unwrap();
    assert_eq!(migrate(&config(&url)).await.unwrap().version, 99);
    harness::postgres::rows(
        &url,
        "UPDATE schema_support SET oldest_supported_release = '99.0.0'",
    )
    .await
    .unwrap();
    let left_behind = store.check_schema().await.unwrap_err().to_string();
    assert!(
        left_behind.contains("run release 99.0.0 or newer"),
        "{left_behind}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_migration_that_finds_its_table_locked_gives_way_and_tries_again() {
    let url = empty("migrate_locked").await;
    migrate(&config(&url)).await.unwrap();
    // As if it had not run; its first statement then waits for the name.
    harness::postgres::rows(
        &url,
        "DO $$ DECLARE name text; BEGIN
            FOR name IN SELECT tablename FROM pg_tables
                WHERE schemaname = 'public' AND tablename NOT LIKE 'schema%'
            LOOP EXECUTE format('DROP TABLE %I CASCADE', name); END LOOP;
        END $$",
    )
    .await
    .unwrap();
    harness::postgres::rows(&url, "DELETE FROM schema_migrations")
        .await
        .unwrap();
    let holder = raw(&url).await;
    holder
        .batch_execute("BEGIN; LOCK TABLE schema_migrations IN SHARE ROW EXCLUSIVE MODE")
        .await
        .unwrap();
    let config = config(&url);
    let migrating = migrate(&config);
    let holding = async {
        tokio::time::sleep(6 * SECOND).await;
        holder.batch_execute("COMMIT").await.unwrap();
    };
    let (migrated, ()) = tokio::join!(migrating, holding);
    assert_eq!(migrated.unwrap().applied, migrations());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_there_is_unavailable() {
    let port = harness::ports::free().unwrap();
    let nowhere = config(&format!("postgres://postgres@127.0.0.1:{port}/x"));
    assert!(matches!(
        migrate(&nowhere).await,
        Err(store::Error::Unavailable(_))
    ));
}
