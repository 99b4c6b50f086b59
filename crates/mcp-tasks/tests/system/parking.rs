//! Tasks that wait for people: questions with deadlines of their own, devices that race, and
//! everything that may happen to the system meanwhile.

use std::time::{Duration, Instant};

use futures::future::join_all;
use harness::node::Node;
use serde_json::{Value, json};

use crate::support::{SOON, System, entries, over_own_postgres_with, set};

/// Workers say often what they serve, so that a version is missed soon.
const DRILLS: &str = r#"
[tools]
drills = 1
[worker]
publish_interval = "1s"
drain_deadline = "1s"
[cron]
deadline_interval = "200ms"
purge_interval = "200ms"
version_wait = "8s"
"#;

fn accept(answer: &str) -> Value {
    json!({"action": "accept", "content": {"answer": answer}})
}

/// Asks these questions at once, and waits until they are shown.
async fn asked(system: &System, label: &str, questions: Value) -> (String, Value) {
    let alice = system.cluster.client(0, "alice");
    let arguments = json!({"label": label, "questions": questions});
    let id = alice.start("drill_ask", arguments).await.unwrap();
    let task = alice
        .wait_status(&id, "input_required", SOON)
        .await
        .unwrap();
    (id, task)
}

async fn completed(system: &System, gateway: usize, id: &str) -> Value {
    let alice = system.cluster.client(gateway, "alice");
    let task = alice.wait_end(id, SOON).await.unwrap();
    assert_eq!(task["status"], "completed", "{task}");
    task["result"]["structuredContent"].clone()
}

/// The keys of the questions that a task shows.
fn open(task: &Value) -> Vec<&str> {
    let requests = task["inputRequests"].as_object();
    requests.unwrap().keys().map(String::as_str).collect()
}

/// The one number that the query gives.
async fn number(system: &System, id: &str, what: &str) -> i64 {
    let sql = format!("SELECT ({what})::bigint FROM tasks WHERE id = '{id}'");
    system.count(&sql).await
}

/// Each of several questions that wait together has its own deadline. One that is over and has a
/// default is answered by it, while the others go on waiting for as long as they may.
#[tokio::test(flavor = "multi_thread")]
async fn a_default_answers_its_own_question_only() {
    let system = System::with(1, 1, DRILLS).await;
    let alice = system.cluster.client(0, "alice");
    let questions = json!([
        {"key": "slow", "wait_ms": 3_600_000},
        {"key": "slower", "wait_ms": 7_200_000},
        {"key": "brief", "wait_ms": 1500, "default": "by default"},
    ]);
    let begun = Instant::now();
    let (id, task) = asked(&system, "defaults", questions).await;
    assert_eq!(open(&task), ["brief", "slow", "slower"]);
    let grown = task["ttlMs"].as_u64().unwrap();
    let work = json!({"steps": 1, "ms": 0, "manner": "polite"});
    let plain = alice.call("drill_work", work).await.unwrap();
    let longest = 7_200_000;
    assert_eq!(grown, plain["ttlMs"].as_u64().unwrap() + longest);
    let left = alice
        .wait(&id, SOON, |task| {
            task["inputRequests"]["brief"].is_null() && task["status"] == "input_required"
        })
        .await
        .unwrap();
    assert!(begun.elapsed() > Duration::from_millis(1400), "too early");
    assert_eq!(open(&left), ["slow", "slower"]);
    assert!(left["lastUpdatedAt"].as_str() > task["lastUpdatedAt"].as_str());
    let due = "SELECT deadline_at FROM inputs WHERE task_id = id AND key =";
    let is_due = async |key: &str| {
        number(
            &system,
            &id,
            &format!("(input_deadline_at = ({due} '{key}'))::int"),
        )
        .await
    };
    assert_eq!(is_due("slow").await, 1, "the earliest that is still open");
    alice
        .update(&id, json!({"slow": accept("a")}))
        .await
        .unwrap();
    assert_eq!(is_due("slower").await, 1, "answers move it on");
    alice
        .update(
            &id,
            json!({"slower": accept("b"), "brief": accept("too late")}),
        )
        .await
        .unwrap();
    let said = completed(&system, 0, &id).await;
    assert_eq!(
        said["answers"],
        json!({"slow": accept("a"), "slower": accept("b"), "brief": accept("by default")})
    );
    let ended = alice.get(&id).await.unwrap();
    assert_eq!(ended["ttlMs"].as_u64(), Some(grown), "it never shrinks");
}

/// One without a default ends the task by name, however long the others might still wait.
#[tokio::test(flavor = "multi_thread")]
async fn an_unanswered_question_is_named() {
    let system = System::with(1, 1, DRILLS).await;
    let questions = json!([{"key": "may wait"}, {"key": "the boss", "wait_ms": 1000}]);
    let (id, _) = asked(&system, "named", questions).await;
    let alice = system.cluster.client(0, "alice");
    let failed = alice.wait_end(&id, SOON).await.unwrap();
    assert_eq!(failed["status"], "failed");
    assert_eq!(failed["error"]["data"]["reason"], "input_deadline");
    let message = failed["error"]["message"].as_str().unwrap();
    assert_eq!(message, "question \"the boss\" went unanswered");
    assert!(failed.get("inputRequests").is_none());
    // Late answers change nothing.
    let late = json!({"the boss": accept("yes"), "may wait": accept("no")});
    alice.update(&id, late).await.unwrap();
    assert_eq!(alice.get(&id).await.unwrap()["error"], failed["error"]);
}

/// Two devices answer at once through two gateways: the task goes on once, with the first answer to
/// each question.
#[tokio::test(flavor = "multi_thread")]
async fn two_devices_resume_a_task_once() {
    let system = System::with(2, 2, DRILLS).await;
    let devices = [0, 1].map(|gateway| system.cluster.client(gateway, "alice"));
    let race = async |number: usize| {
        let questions = json!([{"key": "a"}, {"key": "b"}, {"key": "c"}]);
        let (id, _) = asked(&system, "race", questions).await;
        // Each knows one answer that the other does not, and they differ over the third.
        let first = json!({"a": accept("1"), "c": accept("from the first")});
        let second = json!({"b": accept("2"), "c": accept("from the second")});
        let (first, second) = tokio::join!(
            devices[number % 2].update(&id, first),
            devices[(number + 1) % 2].update(&id, second)
        );
        first.unwrap();
        second.unwrap();
        let said = completed(&system, number % 2, &id).await;
        assert_eq!(said["answers"]["a"], accept("1"));
        assert_eq!(said["answers"]["b"], accept("2"));
        let stored = format!(
            "SELECT convert_from(response, 'UTF8') FROM inputs WHERE task_id = '{id}' AND key = 'c'"
        );
        let stored = system.database.rows(&stored).await.unwrap();
        let stored: Value = serde_json::from_str(stored[0][0].as_deref().unwrap()).unwrap();
        assert_eq!(said["answers"]["c"], stored, "the answer that was kept");
        assert_eq!(number_of_runs(&said), (1, 2));
        id
    };
    let ids = join_all((0..20).map(race)).await;
    let once = "SELECT count(*) FROM tasks WHERE attempt = 2 AND rounds = 1 AND tries = 0";
    assert_eq!(system.count(once).await, i64::try_from(ids.len()).unwrap());
    system.cluster.quiet(&[]).unwrap();
}

/// Which attempts acted before and after the questions.
fn number_of_runs(said: &Value) -> (u64, u64) {
    let of = |when: &str| said[when]["attempt"].as_u64().unwrap();
    (of("before"), of("after"))
}

/// Everything is lost but what Postgres wrote to disk: the task still asks the same questions, and
/// goes on with its arguments and its journal.
#[tokio::test(flavor = "multi_thread")]
async fn a_parked_task_outlives_everything() {
    let (mut cluster, mut postgres, mut redis) = over_own_postgres_with(2, 1, DRILLS).await;
    let alice = cluster.client(0, "alice");
    let label = "\u{e9}\u{1F600} \"quoted\" 1e2 ".repeat(1000);
    let questions = json!([{"key": "a"}, {"key": "b"}]);
    let arguments = json!({"label": label, "questions": questions});
    let id = alice.start("drill_ask", arguments).await.unwrap();
    let before = alice
        .wait_status(&id, "input_required", SOON)
        .await
        .unwrap();
    alice.update(&id, json!({"a": accept("1")})).await.unwrap();
    let before = {
        let now = alice.get(&id).await.unwrap();
        assert_ne!(now["inputRequests"], before["inputRequests"]);
        now
    };
    postgres.kill9().await;
    redis.kill9();
    for node in cluster.nodes() {
        node.kill9();
    }
    postgres.start_again().await.unwrap();
    redis.start_again().await.unwrap();
    for node in cluster.nodes() {
        node.start_again().unwrap();
    }
    cluster.ready().await.unwrap();
    let other = cluster.client(1, "alice");
    let after = other.get(&id).await.unwrap();
    for same in [
        "status",
        "inputRequests",
        "lastUpdatedAt",
        "createdAt",
        "ttlMs",
    ] {
        assert_eq!(after[same], before[same], "{same}");
    }
    other.update(&id, json!({"b": accept("2")})).await.unwrap();
    let done = other.wait_status(&id, "completed", SOON).await.unwrap();
    let said = &done["result"]["structuredContent"];
    assert_eq!(said["label"], json!(label));
    assert_eq!(said["answers"], json!({"a": accept("1"), "b": accept("2")}));
    assert_eq!(number_of_runs(said), (1, 2), "nothing acted twice");
}

/// Ten times longer than any timer of ours, with those that can be made short made short: nothing
/// is held for the task meanwhile, nothing touches it, and its arguments are intact afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn a_wait_outlasts_every_timer() {
    const LONGEST: Duration = Duration::from_secs(3);
    let settings = r#"
[tools]
drills = 1
[postgres]
lease = "2s"
heartbeat = "500ms"
expired_grace = "1s"
[gateway]
hold = "3s"
keep_alive = "1s"
recheck = "500ms"
listen_recheck = "1s"
request_state_ttl = "2s"
poll_input = "1s"
[gateway.limits]
header_read_timeout = "3s"
[worker]
publish_interval = "1s"
stop_grace = "1s"
[cron]
hint_age = "500ms"
deadline_interval = "200ms"
purge_interval = "200ms"
tombstone_keep = "1s"
consumer_idle = "1s"
version_wait = "3s"
"#;
    let system = System::with(2, 1, settings).await;
    let label = "\u{1F41D} 1.0 \\ \u{7f}".repeat(500);
    let (id, asked) = asked(&system, &label, json!([{"key": "a"}])).await;
    let alice = system.cluster.client(1, "alice");
    let mut listen = alice.listen(json!({"taskIds": [id]})).await.unwrap();
    let row = format!(
        "SELECT t::text, (SELECT i::text FROM inputs i WHERE i.task_id = t.id) FROM tasks t WHERE id = '{id}'"
    );
    let before = system.database.rows(&row).await.unwrap();
    let mut silent = 0;
    let ended = Instant::now() + 10 * LONGEST;
    while Instant::now() < ended {
        match tokio::time::timeout(LONGEST, listen.event()).await {
            Ok(event) => drop(event.unwrap().expect("the stream stays open")),
            Err(_) => silent += 1,
        }
    }
    assert_eq!(silent, 0, "the stream shows that it is alive");
    assert_eq!(
        system.database.rows(&row).await.unwrap(),
        before,
        "nothing was written"
    );
    assert_eq!(entries(&system.redis).await, 0, "nobody was told to look");
    let task = alice.get(&id).await.unwrap();
    assert_eq!(task["inputRequests"], asked["inputRequests"]);
    alice.update(&id, json!({"a": accept("x")})).await.unwrap();
    let told = listen
        .find(SOON, |message| message["params"]["status"] == "completed")
        .await
        .unwrap();
    let said = &told["params"]["result"]["structuredContent"];
    assert_eq!(said["label"], json!(label));
    assert_eq!(said["answers"]["a"], accept("x"));
    assert_eq!(number_of_runs(said), (1, 2));
}

/// Restarts a worker with the drill tools of another version.
async fn serve(worker: &mut Node, version: i32, resumes: &[i32]) {
    worker.stop(SOON).await.unwrap();
    set(
        worker,
        &format!("[tools]\ndrills = {version}\ndrills_resume = {resumes:?}"),
    );
    worker.start_again().unwrap();
    worker.ready().await.unwrap();
}

/// A new version that can resume the old one goes on with its tasks; the task stays bound to the
/// version that began its journal.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_version_resumes_the_old_one() {
    let mut system = System::with(1, 1, DRILLS).await;
    let (id, _) = asked(&system, "old", json!([{"key": "a"}])).await;
    serve(&mut system.cluster.workers[0], 2, &[1]).await;
    let alice = system.cluster.client(0, "alice");
    alice.update(&id, json!({"a": accept("x")})).await.unwrap();
    let said = completed(&system, 0, &id).await;
    assert_eq!(said["before"]["version"], 1, "replayed, not acted again");
    assert_eq!(said["after"]["version"], 2);
    assert_eq!(number(&system, &id, "tool_version").await, 1);
    let (new, _) = asked(&system, "new", json!([{"key": "a"}])).await;
    assert_eq!(number(&system, &new, "tool_version").await, 2);
}

/// With only a version that can't resume it, a task waits for one that can, and new calls are
/// served meanwhile; when none comes for the stated time, it fails by name.
#[tokio::test(flavor = "multi_thread")]
async fn an_incompatible_version_leaves_old_tasks_alone() {
    let mut system = System::with(1, 1, DRILLS).await;
    let (waits, _) = asked(&system, "waits", json!([{"key": "a"}])).await;
    let (fails, _) = asked(&system, "fails", json!([{"key": "a"}])).await;
    let alice = system.cluster.client(0, "alice");
    serve(&mut system.cluster.workers[0], 3, &[]).await;
    alice
        .update(&waits, json!({"a": accept("x")}))
        .await
        .unwrap();
    let (new, _) = asked(&system, "new", json!([{"key": "a"}])).await;
    assert_eq!(number(&system, &new, "tool_version").await, 3);
    assert_eq!(alice.get(&waits).await.unwrap()["status"], "working");
    assert_eq!(
        number(&system, &waits, "attempt").await,
        1,
        "nobody took it"
    );
    serve(&mut system.cluster.workers[0], 2, &[1]).await;
    let said = completed(&system, 0, &waits).await;
    assert_eq!(said["after"]["version"], 2);

    serve(&mut system.cluster.workers[0], 3, &[]).await;
    let gone = Instant::now();
    alice
        .update(&fails, json!({"a": accept("x")}))
        .await
        .unwrap();
    let failed = alice.wait_end(&fails, SOON).await.unwrap();
    assert_eq!(failed["error"]["data"]["reason"], "version_gone");
    let message = failed["error"]["message"].as_str().unwrap();
    assert!(message.contains("version 1 of this tool"), "{message}");
    assert!(gone.elapsed() > Duration::from_secs(7), "{gone:?}");
}

/// Everything was stopped for longer than a version may be missing, and cron is back first: it gives
/// the workers as long to come back.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_stop_is_no_missing_version() {
    let settings = format!("{DRILLS}version_wait = \"6s\"").replace("version_wait = \"8s\"\n", "");
    let mut system = System::with(1, 1, &settings).await;
    let (id, _) = asked(&system, "stopped", json!([{"key": "a"}])).await;
    system.cluster.workers[0].stop(SOON).await.unwrap();
    system.cluster.crons[0].stop(SOON).await.unwrap();
    let alice = system.cluster.client(0, "alice");
    alice.update(&id, json!({"a": accept("x")})).await.unwrap();
    // Postgres' clock: until both the task and the version's last sign of life are old enough.
    let missed = format!(
        "SELECT count(*) FROM tasks t JOIN tools v ON v.name = t.tool
         WHERE id = '{id}' AND greatest(run_at, last_seen_at) < now() - interval '6 s'"
    );
    let look = async || (system.count(&missed).await == 1).then_some(());
    harness::wait::until("long enough", SOON, look)
        .await
        .unwrap();
    system.cluster.crons[0].start_again().unwrap();
    system.cluster.crons[0].ready().await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    system.cluster.workers[0].start_again().unwrap();
    completed(&system, 0, &id).await;
}
