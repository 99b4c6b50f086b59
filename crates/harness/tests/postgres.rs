//! The private Postgres, for real: its URL works for `psql` and other users, data survives a kill,
//! leftovers of a killed run are ended.

use std::process::Command;

use mcp_tasks_harness as harness;

use harness::pgbouncer::{PgBouncer, PoolMode};
use harness::postgres::{self, Options, Postgres};
use harness::process::find_program;
use harness::temp::Temp;

async fn count(url: &str) -> String {
    let rows = postgres::rows(url, "SELECT count(*) FROM kept")
        .await
        .expect("postgres answers");
    rows[0][0].clone().expect("a count is never null")
}

#[tokio::test]
async fn survives_kill_stop_and_freeze() {
    let mut server = Postgres::temporary().await.unwrap();
    let url = server.create_database("kept").await.unwrap();
    assert_eq!(
        server.create_database("kept").await.unwrap(),
        url,
        "making it twice is fine"
    );
    let fill = "CREATE TABLE kept (n int); INSERT INTO kept SELECT generate_series(1, 10)";
    postgres::rows(&url, fill).await.unwrap();

    let first = server.pid().unwrap();
    server.kill9().await;
    assert!(postgres::rows(&url, "SELECT 1").await.is_err());
    server.start_again().await.unwrap();
    assert_ne!(server.pid().unwrap(), first);
    assert_eq!(
        count(&url).await,
        "10",
        "acknowledged commits survive the kill, on the same URL"
    );

    server.restart().await.unwrap();
    assert_eq!(count(&url).await, "10");

    server.freeze();
    let frozen = tokio::time::timeout(std::time::Duration::from_millis(300), count(&url)).await;
    assert!(frozen.is_err(), "a frozen server answers nothing");
    server.thaw();
    assert_eq!(count(&url).await, "10");
}

#[tokio::test]
async fn psql_of_any_local_user_can_use_the_url() {
    let server = Postgres::temporary().await.unwrap();
    let url = server.url("postgres");
    let psql = find_program("psql").expect("psql comes with Postgres");
    let mut command = Command::new(&psql);
    command
        .args([&url, "-Atc", "SELECT 40 + 2"])
        .current_dir("/");
    if nix::unistd::Uid::effective().is_root() {
        let nobody = nix::unistd::User::from_name("nobody").unwrap().unwrap();
        std::os::unix::process::CommandExt::uid(&mut command, nobody.uid.as_raw());
    }
    let output = command.output().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "42\n",
        "{output:?}"
    );
}

#[tokio::test]
async fn every_test_gets_a_copy_of_the_template() {
    async fn migrate(url: String) -> harness::Result<()> {
        postgres::rows(&url, "CREATE TABLE kept (n int)")
            .await
            .map(drop)
    }
    let (one, two) = tokio::join!(
        postgres::test_database(migrate),
        postgres::test_database(migrate)
    );
    let (one, two) = (one.unwrap(), two.unwrap());
    one.rows("INSERT INTO kept VALUES (1)").await.unwrap();
    assert_eq!(count(one.url()).await, "1");
    assert_eq!(count(two.url()).await, "0");
}

#[tokio::test]
async fn leftovers_of_a_killed_run_are_ended() {
    let dir = Temp::new().unwrap();
    let first = Postgres::start(dir.path(), Options::durable())
        .await
        .unwrap();
    postgres::rows(&first.url("postgres"), "CREATE TABLE kept (n int)")
        .await
        .unwrap();
    let old = first.pid().unwrap();
    // As a killed run does: nobody stops the server.
    std::mem::forget(first);
    let second = Postgres::start(dir.path(), Options::durable())
        .await
        .unwrap();
    assert_ne!(second.pid().unwrap(), old);
    assert_eq!(count(&second.url("postgres")).await, "0");
}

#[tokio::test]
async fn a_pid_file_that_names_a_stranger_is_no_obstacle() {
    let dir = Temp::new().unwrap();
    let mut server = Postgres::start(dir.path(), Options::test()).await.unwrap();
    server.kill9().await;
    let file = server.data().join("postmaster.pid");
    let text = std::fs::read_to_string(&file).unwrap();
    let rest = text.split_once('\n').unwrap().1;
    std::fs::write(&file, format!("{}\n{rest}", std::process::id())).unwrap();
    server.start_again().await.unwrap();
}

#[tokio::test]
async fn data_lies_elsewhere_where_the_user_cannot_enter() {
    if !nix::unistd::Uid::effective().is_root() {
        println!("skipped: only root runs Postgres as another user");
        return;
    }
    let dir = Temp::new().unwrap();
    let closed = dir.path().join("closed");
    std::fs::create_dir(&closed).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(&closed, mode).unwrap();
    let mut server = Postgres::start(&closed, Options::test()).await.unwrap();
    let data = server.data();
    assert!(!data.starts_with(&closed), "{data:?}");
    server.stop().await.unwrap();
    let again = Postgres::start(&closed, Options::test()).await.unwrap();
    assert_eq!(again.data(), data, "the next start finds it");
    drop(again);
    postgres::end_and_remove(&closed).await.unwrap();
    assert!(!data.exists(), "fresh removes both");
}

#[tokio::test]
async fn a_standby_has_every_commit_and_takes_the_primarys_place() {
    let mut primary = Postgres::temporary().await.unwrap();
    let url = primary.create_database("kept").await.unwrap();
    postgres::rows(&url, "CREATE TABLE kept (n int)")
        .await
        .unwrap();
    let standby = primary.standby().await.unwrap();
    primary.commit_with_standby().await.unwrap();
    for n in 0..20 {
        let insert = format!("INSERT INTO kept VALUES ({n})");
        postgres::rows(&url, &insert).await.unwrap();
    }
    let url = standby.url("kept");
    assert!(
        postgres::rows(&url, "INSERT INTO kept VALUES (0)")
            .await
            .is_err(),
        "a standby takes no writes"
    );
    primary.kill9().await;
    standby.promote().await.unwrap();
    assert_eq!(count(&url).await, "20");
    postgres::rows(&url, "INSERT INTO kept VALUES (20)")
        .await
        .unwrap();
}

#[tokio::test]
async fn a_pooler_shares_sessions_by_its_mode() {
    let server = Postgres::temporary().await.unwrap();
    for (mode, sessions) in [(PoolMode::Session, 2), (PoolMode::Transaction, 1)] {
        let pooler = PgBouncer::start(server.port(), mode).await.unwrap();
        let url = pooler.url("postgres");
        let connect = async || {
            let connected = tokio_postgres::connect(&url, tokio_postgres::NoTls);
            connected.await.unwrap()
        };
        let ((one, c1), (two, c2)) = (connect().await, connect().await);
        let pid = async |client: &tokio_postgres::Client| {
            let rows = client
                .simple_query("SELECT pg_backend_pid()")
                .await
                .unwrap();
            format!("{rows:?}")
        };
        let pids = async { [pid(&one).await, pid(&two).await] };
        let pids: std::collections::BTreeSet<_> = tokio::select! {
            pids = pids => pids.into(),
            _ = c1 => panic!("ended"),
            _ = c2 => panic!("ended"),
        };
        assert_eq!(pids.len(), sessions, "{mode:?}");
    }
}
