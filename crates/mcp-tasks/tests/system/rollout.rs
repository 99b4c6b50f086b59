//! Releases and tool versions side by side: a rolling upgrade and the way back, under load, and who
//! may run what.
//!
//! The rolling upgrade replaces the binary by itself, unless `MCP_TASKS_OLD_BINARY` names that of
//! an older release (`make rollout` builds one): then it begins with the old release on its own
//! schema.

mod front;
mod load;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use futures::future::join_all;
use harness::cluster::Cluster;
use harness::http::Http;
use harness::node::Node;
use harness::process::{Process, Spec};
use harness::redis::Redis;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use self::front::Front;
use self::load::Load;
use crate::support::{SOON, System, plan, set};

const NEW: &str = env!("CARGO_BIN_EXE_mcp-tasks");

/// The old release's binary, and whether it is another than ours.
#[expect(
    clippy::disallowed_methods,
    reason = "what a test compares with is no setting of the product"
)]
fn old() -> (PathBuf, bool) {
    match std::env::var("MCP_TASKS_OLD_BINARY") {
        Ok(path) if !path.is_empty() => (path.into(), true),
        _ => (NEW.into(), false),
    }
}

/// Applies a release's migrations with its own command.
async fn migrate_with(binary: &Path, url: &str, log: &Path) {
    let mut spec = Spec::new("migrate", binary, log).args(["migrate"]);
    spec.env = vec![("MCP_TASKS__POSTGRES__URL".to_owned(), url.to_owned())];
    let mut process = Process::spawn(&spec).unwrap();
    let status = process.wait(SOON).await.unwrap();
    assert!(status.success(), "{}", harness::logs::tail(log, 20));
}

/// Ends a process as Kubernetes would, and starts another release in its place.
async fn replace(node: &mut Node, binary: &Path) {
    let status = node.stop(SOON).await.unwrap();
    assert!(status.success(), "{}: {status}", node.name());
    binary.clone_into(&mut node.plan_mut().binary);
    node.start_again().unwrap();
    node.ready().await.unwrap();
}

/// Every process in turn; before each, some tasks begin to wait for people, which the next ones
/// will have to resume.
async fn roll(cluster: &mut Cluster, binary: &Path, load: &Load) {
    for node in cluster.nodes() {
        let parked = load.park(4).await;
        replace(node, binary).await;
        load.resume(parked).await;
    }
}

/// One release after the other, process by process, and back again, while clients call, ask,
/// answer, cancel and repeat: nobody sees an error, no task is lost, every result is right, and no
/// try is spent.
#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_upgrade_and_the_way_back() {
    let (old, is_another) = old();
    let postgres = harness::postgres::Postgres::temporary().await.unwrap();
    let url = postgres.create_database("rollout").await.unwrap();
    let redis = Redis::temporary().await.unwrap();
    let log = tempfile::NamedTempFile::new().unwrap();
    migrate_with(&old, &url, log.path()).await;

    let mut plan = plan(&url, &redis.url()).of(2, 2, 1).settings(
        r#"
[gateway]
drain_delay = "500ms"
[worker]
drain_deadline = "2s"
stop_grace = "1s"
"#,
    );
    plan.binary.clone_from(&old);
    let mut cluster = plan.start().await.unwrap();
    cluster
        .wait_for_tools(0, &["slow_compute", "run_suite"])
        .await
        .unwrap();
    let mut probes = JoinSet::new();
    let front = Front::start(&cluster, &mut probes);
    let load = Load::start(&front, if is_another { 8 } else { 4 });
    load.warm(10).await;

    // The new schema comes first, under the old release.
    migrate_with(Path::new(NEW), &url, log.path()).await;
    load.warm(10).await;
    roll(&mut cluster, Path::new(NEW), &load).await;
    load.warm(10).await;
    if is_another {
        roll(&mut cluster, &old, &load).await;
        load.warm(10).await;
    }
    let seen = load.end().await;
    println!("rollout: {seen}");
    let rows = harness::postgres::rows(
        &url,
        "SELECT count(*) FILTER (WHERE phase IS NOT NULL), max(tries),
             string_agg(DISTINCT error::text, ' ') FILTER (WHERE status = 'failed') FROM tasks",
    )
    .await
    .unwrap();
    let none: [Option<String>; 3] = [Some("0".into()), Some("0".into()), None];
    assert_eq!(rows[0], none, "live tasks, tries, failures");
    cluster.quiet(&[]).unwrap();
    if is_another {
        does_not_start(&mut cluster.gateways[0], &url).await;
    }
}

/// The old release on a schema that has left it behind.
async fn does_not_start(gateway: &mut Node, url: &str) {
    let newer = "UPDATE schema_support SET oldest_supported_release = '99.0.0'";
    harness::postgres::rows(url, newer).await.unwrap();
    gateway.kill9();
    gateway.start_again().unwrap();
    let status = gateway.wait(SOON).await.unwrap();
    assert!(!status.success(), "{status}");
    let log = harness::logs::tail(gateway.log(), 5);
    assert!(log.contains("run release 99.0.0 or newer"), "{log}");
}

/// While two versions of a tool are served, the old one's workers take no job of the new one:
/// neither from Redis nor, while it is away, from Postgres.
#[tokio::test(flavor = "multi_thread")]
async fn an_old_version_eats_no_new_job() {
    let mut system = System::with(1, 2, "[tools]\ndrills = 1").await;
    let alice = system.cluster.client(0, "alice");
    let ask = async |questions: Value| {
        let arguments = json!({"label": "x", "questions": questions});
        alice.start("drill_ask", arguments).await.unwrap()
    };
    let accept = json!({"action": "accept", "content": {"answer": "x"}});
    let bound = ask(json!([{"key": "a"}])).await;
    alice
        .wait_status(&bound, "input_required", SOON)
        .await
        .unwrap();
    let worker = &mut system.cluster.workers[1];
    worker.stop(SOON).await.unwrap();
    set(worker, "[tools]\ndrills = 2");
    worker.start_again().unwrap();
    worker.ready().await.unwrap();
    let is_new = "SELECT count(*) FROM tools WHERE name = 'drill_ask' AND version = 2 AND current";
    assert_eq!(system.count(is_new).await, 1);
    tokio::time::sleep(Duration::from_secs(2)).await;

    let versions = async |count: usize| {
        let ids = join_all((0..count).map(|_| ask(json!([])))).await;
        for id in ids {
            let done = alice.wait_status(&id, "completed", SOON).await.unwrap();
            let said = &done["result"]["structuredContent"];
            assert_eq!(said["before"]["version"], 2, "{said}");
        }
    };
    versions(20).await;
    system.redis.kill9();
    versions(20).await;
    system.redis.start_again().await.unwrap();
    // What the old version began, it goes on with.
    alice.update(&bound, json!({"a": accept})).await.unwrap();
    let done = alice.wait_status(&bound, "completed", SOON).await.unwrap();
    assert_eq!(done["result"]["structuredContent"]["after"]["version"], 1);
}

/// A binary that the schema does not support any more does not start, and says what to do; so
/// does one that the schema does not know yet.
#[tokio::test(flavor = "multi_thread")]
async fn a_binary_that_does_not_fit_says_so() {
    let mut system = System::of(1, 1).await;
    let refused = async |node: &mut Node, text: &str| {
        node.kill9();
        node.start_again().unwrap();
        let status = node.wait(SOON).await.unwrap();
        assert!(!status.success(), "{}: {status}", node.name());
        let log = harness::logs::tail(node.log(), 5);
        assert!(log.contains(text), "{}: {log}", node.name());
    };
    for (change, text) in [
        (
            "UPDATE schema_support SET oldest_supported_release = '99.0.0'",
            "99.0.0 or newer",
        ),
        ("DELETE FROM schema_migrations", "mcp-tasks migrate"),
    ] {
        system.database.rows(change).await.unwrap();
        for node in system.cluster.nodes() {
            refused(node, text).await;
        }
    }
}

/// A backlog that was hinted to a version's workers goes to the next version's at once, though the
/// old ones are gone and no hint is old enough to count as lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_backlog_moves_to_the_new_version() {
    let settings = "[tools]\ndrills = 1\n[cron]\nhint_age = \"10m\"";
    let mut system = System::with(1, 1, settings).await;
    let alice = system.cluster.client(0, "alice");
    system.cluster.workers[0].stop(SOON).await.unwrap();
    let arguments = json!({"steps": 1, "ms": 0, "manner": "polite"});
    let ids = join_all((0..10).map(|_| alice.start("drill_work", arguments.clone()))).await;
    let worker = &mut system.cluster.workers[0];
    set(worker, "[tools]\ndrills = 2");
    worker.start_again().unwrap();
    for id in ids {
        let done = alice.wait_status(&id.unwrap(), "completed", SOON).await;
        let steps = done.unwrap()["result"]["structuredContent"]["steps"].clone();
        assert_eq!(steps[0]["version"], 2);
    }
}

/// A process says that it is ready when it is, and not for a moment before: a rolling upgrade goes on
/// to the next one then.
#[tokio::test(flavor = "multi_thread")]
async fn ready_is_not_said_too_early() {
    let mut system = System::with(1, 1, "[tools]\ndrills = 1").await;
    let http = Http::new(Duration::from_secs(1));
    let ready = async |node: &mut Node| {
        node.start_again().unwrap();
        let probe = format!("{}/readyz", node.admin());
        let begun = Instant::now();
        // Without a pause: to meet every moment.
        while !http
            .get(&probe)
            .await
            .is_ok_and(|reply| reply.status == 200)
        {
            assert!(begun.elapsed() < SOON, "{} is not ready", node.name());
        }
    };
    for version in 2..10 {
        let worker = &mut system.cluster.workers[0];
        worker.kill9();
        set(worker, &format!("[tools]\ndrills = {version}"));
        ready(worker).await;
        let sql = format!(
            "SELECT count(*) FROM tools WHERE name = 'drill_ask' AND version = {version} AND current"
        );
        assert_eq!(system.count(&sql).await, 1, "served by the worker");
        let gateway = &mut system.cluster.gateways[0];
        gateway.kill9();
        ready(gateway).await;
        let listed = system.cluster.client(0, "alice").list().await.unwrap();
        assert!(listed.iter().any(|tool| tool["name"] == "drill_ask"));
    }
}
