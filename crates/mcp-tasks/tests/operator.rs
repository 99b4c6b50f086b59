//! The commands for operators, on a real system: what they print, what they do, and what is left in
//! the audit.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests fail the test, as the tests do"
)]

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use harness::cluster::{Cluster, Plan};
use harness::pgbouncer::{PgBouncer, PoolMode};
use harness::postgres::{Database, Options as PostgresOptions, Postgres};
use harness::redis::{Options as RedisOptions, Redis};
use harness::temp::Temp;
use serde_json::{Value, json};

const BINARY: &str = env!("CARGO_BIN_EXE_mcp-tasks");
/// Used up by failures only.
const SOON: Duration = Duration::from_secs(60);
const SETTINGS: &str = "
[tools]
drills = 1
[postgres]
lease = \"3s\"
heartbeat = \"1s\"
";

/// The command line of an operator.
struct Desk {
    config: PathBuf,
    _dir: Temp,
}

impl Desk {
    fn at(postgres: &str, redis: &str) -> Desk {
        let dir = Temp::new().unwrap();
        let config = dir.path().join("operator.toml");
        let text = format!("{SETTINGS}url = \"{postgres}\"\n[redis]\nurl = \"{redis}\"\n");
        std::fs::write(&config, text).unwrap();
        Desk { config, _dir: dir }
    }

    fn run(&self, arguments: &[&str]) -> Output {
        Command::new(BINARY)
            .args(arguments)
            .arg("--config")
            .arg(&self.config)
            .env("MCP_TASKS_OPERATOR", "olga")
            .output()
            .unwrap()
    }

    /// Exit code and rows of a command.
    fn json(&self, arguments: &[&str]) -> (bool, Value) {
        let output = self.run(&[arguments, &["--output", "json"]].concat());
        let text = String::from_utf8(output.stdout).unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}\n{said}"));
        (output.status.success(), value)
    }

    /// Rows of a command that must succeed.
    fn rows(&self, arguments: &[&str]) -> Vec<Value> {
        let (success, value) = self.json(arguments);
        assert!(success, "{arguments:?}: {value:#}");
        value.as_array().unwrap().clone()
    }

    fn ids(&self, arguments: &[&str]) -> Vec<String> {
        let rows = self.rows(arguments);
        rows.iter()
            .map(|row| row["id"].as_str().unwrap().to_owned())
            .collect()
    }
}

struct System {
    desk: Desk,
    cluster: Cluster,
    database: Database,
    _redis: Redis,
}

async fn migrate(url: String) -> Result<(), store::Error> {
    let config = store::Config {
        url,
        ..Default::default()
    };
    store::migrate::migrate(&config).await.map(drop)
}

async fn start(postgres: &str, redis: &str, of: (usize, usize, usize)) -> Cluster {
    let cluster = Plan::new(BINARY, postgres, redis)
        .of(of.0, of.1, of.2)
        .settings(SETTINGS)
        .start()
        .await
        .unwrap();
    for gateway in 0..of.0 {
        let tools = cluster.wait_for_tools(gateway, &["drill_ask", "drill_work"]);
        tools.await.unwrap();
    }
    cluster
}

impl System {
    async fn of(gateways: usize, workers: usize, crons: usize) -> System {
        let database = harness::postgres::test_database(migrate).await.unwrap();
        let redis = Redis::temporary().await.unwrap();
        let cluster = start(database.url(), &redis.url(), (gateways, workers, crons)).await;
        System {
            desk: Desk::at(database.url(), &redis.url()),
            cluster,
            database,
            _redis: redis,
        }
    }

    /// A job of Bob's that runs until it is stopped.
    async fn long(&self) -> String {
        let work = json!({"steps": 1, "ms": 600_000, "manner": "polite"});
        let bob = self.cluster.client(0, "bob");
        let id = bob.start("drill_work", work).await.unwrap();
        let sql = format!("SELECT phase FROM tasks WHERE id = '{id}'");
        let running = async || self.database.rows(&sql).await.unwrap()[0][0].clone();
        harness::wait::for_state("it runs", SOON, running, |phase| {
            phase.as_deref() == Some("running")
        })
        .await
        .unwrap();
        id
    }

    /// A task of Alice's that asks.
    async fn asking(&self) -> String {
        let ask = json!({"label": "secret zwieback", "questions": [{"key": "go"}]});
        let alice = self.cluster.client(0, "alice");
        let id = alice.start("drill_ask", ask).await.unwrap();
        alice
            .wait_status(&id, "input_required", SOON)
            .await
            .unwrap();
        id
    }
}

fn whats(shown: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let events = shown["timeline"].as_array().unwrap();
    events
        .iter()
        .map(|event| (text(&event["what"]), text(&event["detail"])))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_are_listed_and_shown_without_their_content() {
    let system = System::of(1, 1, 1).await;
    let (asking, running) = (system.asking().await, system.long().await);
    let desk = &system.desk;
    assert_eq!(
        desk.ids(&["tasks", "list"]),
        [running.clone(), asking.clone()]
    );
    for (filter, expected) in [
        (&["--status", "input_required,failed"][..], vec![&asking]),
        (&["--phase", "running"], vec![&running]),
        (&["--principal", "bob"], vec![&running]),
        (&["--tool", "drill_ask"], vec![&asking]),
        (&["--older-than", "1h"], vec![]),
        (&["--unread"], vec![]),
        (&["--limit", "1"], vec![&running]),
    ] {
        let ids = desk.ids(&[&["tasks", "list"], filter].concat());
        assert_eq!(ids.iter().collect::<Vec<_>>(), expected, "{filter:?}");
    }
    let table = desk.run(&["tasks", "list"]);
    let table = String::from_utf8(table.stdout).unwrap();
    assert!(
        table.starts_with("ID ") && table.contains(&asking),
        "{table}"
    );

    let alice = system.cluster.client(0, "alice");
    let yes = json!({"go": {"action": "accept", "content": {"answer": "secret knusper"}}});
    alice.update(&asking, yes).await.unwrap();
    alice.wait_status(&asking, "completed", SOON).await.unwrap();
    let read = format!("SELECT first_fetched_at IS NOT NULL FROM tasks WHERE id = '{asking}'");
    let look = async || system.database.rows(&read).await.unwrap()[0][0].clone();
    harness::wait::for_state("read", SOON, look, |read| read.as_deref() == Some("t"))
        .await
        .unwrap();
    let (success, shown) = desk.json(&["tasks", "show", &asking]);
    assert!(success);
    let happened: Vec<String> = whats(&shown).into_iter().map(|(what, _)| what).collect();
    for what in [
        "created",
        "handed out",
        "claimed",
        "step started",
        "step finished",
        "asked",
        "answered",
        "ended",
        "read by its owner",
    ] {
        assert!(
            happened.iter().any(|seen| seen == what),
            "{what}: {happened:?}"
        );
    }
    assert_eq!(shown["task"]["status"], "completed");
    assert_eq!(shown["attempt"]["number"], 2);
    let hows = shown["attempts"].as_array().unwrap().iter();
    let hows: Vec<_> = hows
        .map(|attempt| (&attempt["attempt"], &attempt["how"]))
        .collect();
    assert_eq!(
        hows,
        [
            (&json!(1), &json!("parked")),
            (&json!(2), &json!("completed"))
        ]
    );
    assert!(happened.iter().any(|seen| seen == "attempt ended"));
    assert_eq!(shown["steps"][0]["key"], "before");
    assert_eq!(shown["questions"][0]["answered_by"], "owner");
    let table = desk.run(&["tasks", "show", &asking]);
    let table = String::from_utf8(table.stdout).unwrap();
    assert!(
        table.contains("by worker") && table.contains("go by owner"),
        "{table}"
    );
    for secret in ["zwieback", "knusper"] {
        assert!(!format!("{shown}{table}").contains(secret), "{secret}");
    }
    let unknown = desk.run(&["tasks", "show", "01963d5c-7a10-7abc-8def-0123456789ab"]);
    assert!(!unknown.status.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_are_stopped_and_repeated_singly_and_in_bulk() {
    let system = System::of(1, 1, 1).await;
    let (first, second) = (system.long().await, system.long().await);
    let (desk, bob) = (&system.desk, system.cluster.client(0, "bob"));
    let cancel = [
        "tasks",
        "cancel",
        "--tool",
        "drill_work",
        "--principal",
        "bob",
    ];
    // Not by accident.
    for (arguments, told) in [
        (&cancel[..], "--yes"),
        (&["tasks", "cancel", "--yes"], "filter"),
        (
            &["tasks", "cancel", &first, "--tool", "drill_work"],
            "not both",
        ),
    ] {
        let refused = desk.run(arguments);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && said.contains(told), "{said}");
    }
    let would = desk.rows(&[&cancel[..], &["--dry-run", "--yes"]].concat());
    assert_eq!(would.len(), 2);
    for id in [&first, &second] {
        assert_eq!(
            bob.get(id).await.unwrap()["status"],
            "working",
            "a dry run touches nothing"
        );
    }
    assert!(
        desk.rows(&["audit", "list"]).is_empty(),
        "nor is it in the audit"
    );

    // One expires, which is a failure that can be repeated.
    let (success, expired) = desk.json(&["tasks", "expire", &first]);
    assert!(success && expired[0]["outcome"] == "stopping", "{expired}");
    let task = bob.wait_status(&first, "failed", SOON).await.unwrap();
    assert_eq!(task["error"]["data"]["reason"], "task_expired");
    let failed = desk.rows(&["tasks", "list", "--status", "failed"]);
    assert_eq!(failed[0]["id"], first.as_str());
    assert_eq!(failed[0]["reason"], "task_expired");
    let repeated = desk.rows(&["tasks", "retry", &first]);
    let new = repeated[0]["new_id"].as_str().unwrap();
    // A dry run says what would be refused; and in bulk a refusal is told by the exit code as well.
    for arguments in [
        &["tasks", "retry", &first, "--dry-run"][..],
        &["tasks", "retry", "--status", "failed", "--dry-run"],
    ] {
        let (_, would) = desk.json(arguments);
        assert_eq!(would[0]["refused"], "repeated already (--force)", "{would}");
    }
    let (done, bulk) = desk.json(&["tasks", "retry", "--status", "failed", "--yes"]);
    assert!(!done && bulk[0]["outcome"] == "refused", "{bulk}");
    let (applies, would) = desk.json(&["tasks", "cancel", &first, "--dry-run"]);
    assert!(!applies && would[0]["refused"].is_string(), "{would}");
    let (again, said) = desk.json(&["tasks", "retry", &first]);
    let why = said[0]["detail"].as_str().unwrap();
    assert!(
        !again && why.contains(new) && why.contains("--force"),
        "{said}"
    );
    let shown = harness::wait::until("the new one runs", SOON, async || {
        let (_, shown) = desk.json(&["tasks", "show", new]);
        (shown["task"]["phase"] == "running").then_some(shown)
    })
    .await
    .unwrap();
    let repeats = format!("tasks retry by olga: repeats {first}");
    assert!(
        whats(&shown).contains(&("operator".to_owned(), repeats)),
        "{shown:#}"
    );
    assert_eq!(
        bob.get(new).await.unwrap()["status"],
        "working",
        "it is its owner's"
    );

    // The rest in bulk, as its owner could.
    let done = desk.rows(&[&cancel[..], &["--yes"]].concat());
    assert_eq!(done.len(), 2, "{done:?}");
    for id in [&second, new] {
        let _ = bob.wait_end(id, SOON).await.unwrap();
        let (_, shown) = desk.json(&["tasks", "show", id]);
        let told = (
            "told to stop".to_owned(),
            "cancelled by operator olga".to_owned(),
        );
        assert!(whats(&shown).contains(&told), "{shown:#}");
    }
    assert!(
        desk.rows(&[&cancel[..], &["--yes"]].concat()).is_empty(),
        "nothing is left to stop"
    );
    let missing = desk.json(&["tasks", "cancel", "01963d5c-7a10-7abc-8def-0123456789ab"]);
    assert!(
        !missing.0 && missing.1[0]["outcome"] == "missing",
        "{missing:?}"
    );

    let last = &desk.rows(&["audit", "list", "--limit", "2"]);
    assert_eq!(last[0]["outcome"], "missing", "of no task: {last:?}");
    assert_eq!(last[1]["outcome"], "nothing", "none fits: {last:?}");
    let audits = desk.rows(&["audit", "list", "--task", new]);
    let said: Vec<_> = audits
        .iter()
        .map(|audit| audit["command"].as_str().unwrap())
        .collect();
    assert_eq!(said, ["tasks cancel", "tasks retry"]);
    assert_eq!(audits[0]["operator"], "olga");
    assert_eq!(
        audits[0]["target"]["filter"],
        json!({"tool": "drill_work", "principal": "bob"})
    );
    assert_eq!(audits[0]["tasks"].as_array().unwrap().len(), 2);
    assert_eq!(audits[1]["tasks"][0]["new_id"], new);

    // What is over can go early.
    let buried = desk.rows(&["tasks", "expire", &second]);
    assert_eq!(buried[0]["outcome"], "buried");
    let (_, shown) = desk.json(&["tasks", "show", &second]);
    assert_eq!(shown["task"]["status"], "expired");
    let error = bob.get(&second).await.unwrap_err().to_string();
    assert!(error.contains("expired"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_tool_takes_no_calls_or_no_jobs_without_a_deploy() {
    let system = System::of(2, 1, 1).await;
    let desk = &system.desk;
    let work = json!({"steps": 1, "ms": 10, "manner": "polite"});
    let clients = [0, 1].map(|gateway| system.cluster.client(gateway, "bob"));
    let params = json!({"name": "drill_work", "arguments": work});
    let keyed = clients[0]
        .request("tools/call", params.clone())
        .idempotency_key("k");
    let before = keyed.send().await.unwrap().message;
    assert!(before["result"]["taskId"].is_string(), "{before}");

    let paused = desk.rows(&[
        "tools",
        "pause",
        "drill_work",
        "--calls",
        "--reason",
        "it burns",
    ]);
    assert_eq!(
        paused[0],
        json!({"tool": "drill_work", "calls_paused": true, "jobs_paused": false})
    );
    for client in &clients {
        let call = async || {
            client
                .request("tools/call", params.clone())
                .send()
                .await
                .unwrap()
        };
        let refused =
            |answer: &harness::client::Answer| answer.error()["data"]["reason"] == "tool_paused";
        let answer = harness::wait::for_state("refused", Duration::from_secs(4), call, refused)
            .await
            .unwrap();
        assert_eq!((answer.status, answer.header("retry-after")), (200, "30"));
        assert_eq!(answer.error()["data"]["retryAfterSeconds"], 30);
        let again = client
            .request("tools/call", params.clone())
            .idempotency_key("k");
        let again = again.send().await.unwrap().message;
        assert!(again["error"].is_null(), "a repeat is no new call: {again}");
        let tasks = system
            .database
            .rows("SELECT count(*) FROM tasks WHERE idempotency_key = 'k'")
            .await;
        assert_eq!(tasks.unwrap()[0][0].as_deref(), Some("1"));
    }
    assert!(
        clients[0]
            .list()
            .await
            .unwrap()
            .iter()
            .any(|tool| tool["name"] == "drill_work")
    );
    let tools = desk.rows(&["tools", "list"]);
    let row = tools
        .iter()
        .find(|tool| tool["tool"] == "drill_work")
        .unwrap();
    assert_eq!(
        (&row["paused"], &row["pause_reason"], &row["changed_by"]),
        (&json!("calls"), &json!("it burns"), &json!("olga"))
    );
    assert_eq!((&row["workers"], &row["alive"]), (&json!(1), &json!(true)));

    // Calls are taken again, and wait: what an operator makes due as well.
    let _ = desk.rows(&["tools", "pause", "drill_work", "--jobs"]);
    let _ = desk.rows(&["tools", "resume", "drill_work", "--calls"]);
    let id = harness::wait::until("calls are taken", SOON, async || {
        clients[1].start("drill_work", work.clone()).await.ok()
    })
    .await
    .unwrap();
    let later = format!("UPDATE tasks SET run_at = now() + interval '1 hour' WHERE id = '{id}'");
    let _ = system.database.rows(&later).await.unwrap();
    let queue = |rows: Vec<Value>| {
        rows.into_iter()
            .find(|row| row["tool"] == "drill_work")
            .unwrap()
    };
    let waiting = queue(desk.rows(&["queues"]));
    assert_eq!(
        (&waiting["queued"], &waiting["backing_off"]),
        (&json!(1), &json!(1)),
        "{waiting}"
    );
    let due = desk.rows(&["tasks", "requeue", &id]);
    assert_eq!(due[0]["outcome"], "due");
    let waiting = queue(desk.rows(&["queues"]));
    assert_eq!(
        (&waiting["due"], &waiting["running"]),
        (&json!(1), &json!(0)),
        "{waiting}"
    );
    assert_eq!(clients[0].get(&id).await.unwrap()["status"], "working");
    let _ = desk.rows(&["tools", "resume", "drill_work"]);
    clients[0]
        .wait_status(&id, "completed", SOON)
        .await
        .unwrap();

    for (arguments, told) in [
        (
            ["tools", "resume", "drill_work"],
            "nothing of that is paused",
        ),
        (
            ["tools", "pause", "drill_other"],
            "no worker has ever served",
        ),
    ] {
        let refused = desk.run(&arguments);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && said.contains(told), "{said}");
    }
    let audits = desk.rows(&["audit", "list", "--by", "olga"]);
    let burns = audits
        .iter()
        .find(|audit| audit["command"] == "tools pause" && audit["target"]["reason"] == "it burns");
    assert_eq!(burns.unwrap()["outcome"], "paused");
    let last: Vec<_> = audits[..3].iter().map(|audit| &audit["outcome"]).collect();
    assert_eq!(last, ["unknown", "not_paused", "resumed"], "the last first");
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_and_queues_are_shown() {
    let mut system = System::of(1, 1, 1).await;
    let _id = system.long().await;
    let worker = |rows: &[Value]| {
        assert_eq!(rows.len(), 1, "{rows:?}");
        rows[0].clone()
    };
    let alive = worker(&system.desk.rows(&["workers"]));
    assert_eq!(
        (&alive["alive"], &alive["running"], &alive["slots"]),
        (&json!(true), &json!(1), &json!(100))
    );
    assert_eq!(alive["release"], store::migrate::release());
    assert_eq!(alive["tools"], json!(["drill_ask 1", "drill_work 1"]));
    let queues = system.desk.rows(&["queues"]);
    let queue = queues
        .iter()
        .find(|row| row["tool"] == "drill_work")
        .unwrap();
    assert_eq!(
        (&queue["running"], &queue["pending"], &queue["readers"]),
        (&json!(1), &json!(1), &json!(1))
    );
    // One that ends in good order says so.
    system.cluster.workers[0]
        .stop(Duration::from_secs(30))
        .await
        .unwrap();
    assert!(system.desk.rows(&["workers"]).is_empty());
}

/// Verdict and advice of one check.
fn finding<'a>(findings: &'a Value, check: &str) -> (&'a str, &'a str) {
    let all = findings.as_array().unwrap();
    let finding = all.iter().find(|finding| finding["check"] == check);
    let finding = finding.unwrap_or_else(|| panic!("{check}: {findings:#}"));
    let text = |name: &str| finding[name].as_str().unwrap_or_default();
    (text("verdict"), text("advice"))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_finds_a_healthy_system_well() {
    let postgres = Postgres::temporary_with(PostgresOptions::durable())
        .await
        .unwrap();
    let url = postgres.create_database("healthy").await.unwrap();
    migrate(url.clone()).await.unwrap();
    let redis = Redis::temporary_with(RedisOptions::durable())
        .await
        .unwrap();
    let _cluster = start(&url, &redis.url(), (1, 1, 1)).await;
    let desk = Desk::at(&url, &redis.url());
    let look = async || desk.json(&["doctor"]);
    let (_, findings) = harness::wait::for_state("well", SOON, look, |(well, _)| *well)
        .await
        .unwrap();
    for finding in findings.as_array().unwrap() {
        assert_eq!(finding["verdict"], "ok", "{finding}");
    }
    let table = desk.run(&["doctor"]);
    println!("{}", String::from_utf8_lossy(&table.stdout));
    let (well, findings) = desk.json(&["doctor", "--processes", "100"]);
    assert!(!well, "100 pools do not fit");
    assert_eq!(finding(&findings, "connections").0, "fail");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_says_what_is_broken_and_what_to_do() {
    let database = harness::postgres::test_database(migrate).await.unwrap();
    let mut options = RedisOptions::test();
    for (name, value) in [("maxmemory", "100mb"), ("maxmemory-policy", "allkeys-lru")] {
        options.settings.push((name.to_owned(), value.to_owned()));
    }
    let redis = Redis::temporary_with(options).await.unwrap();
    let desk = Desk::at(database.url(), &redis.url());
    // A schema that fits, and nobody at work.
    let (well, findings) = desk.json(&["doctor"]);
    assert!(!well);
    for (check, advice) in [
        ("workers", "mcp-tasks worker"),
        ("tools", "worker"),
        ("sweeps", "mcp-tasks cron"),
        ("redis eviction", "noeviction"),
        ("fsync", "set it to on"),
    ] {
        let (verdict, todo) = finding(&findings, check);
        assert!(
            verdict == "fail" && todo.contains(advice),
            "{check}: {findings:#}"
        );
    }
    assert_eq!(finding(&findings, "schema").0, "ok");
    // An old schema.
    let older = "DELETE FROM schema_migrations WHERE version = (SELECT max(version) FROM schema_migrations)";
    let _ = database.rows(older).await.unwrap();
    let (well, findings) = desk.json(&["doctor"]);
    assert!(!well);
    let (verdict, todo) = finding(&findings, "schema");
    assert!(
        verdict == "fail" && todo.contains("mcp-tasks migrate"),
        "{findings:#}"
    );
    let table = desk.run(&["doctor"]);
    println!("{}", String::from_utf8_lossy(&table.stdout));
    let refused = desk.run(&["tasks", "list"]);
    assert!(!refused.status.success(), "other commands refuse it");
    // Nobody there.
    let nowhere = format!("127.0.0.1:{}", harness::ports::free().unwrap());
    let desk = Desk::at(
        &format!("postgres://{nowhere}/x"),
        &format!("redis://{nowhere}"),
    );
    let (well, findings) = desk.json(&["doctor"]);
    assert!(!well);
    for check in ["postgres", "redis"] {
        assert_eq!(finding(&findings, check).0, "fail", "{findings:#}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_finds_a_pooler_that_breaks_sessions() {
    let postgres = Postgres::temporary().await.unwrap();
    let url = postgres.create_database("pooled").await.unwrap();
    migrate(url).await.unwrap();
    let bouncer = PgBouncer::start(postgres.port(), PoolMode::Transaction)
        .await
        .unwrap();
    let redis = Redis::temporary().await.unwrap();
    let desk = Desk::at(&bouncer.url("pooled"), &redis.url());
    let (well, findings) = desk.json(&["doctor"]);
    assert!(!well);
    let (verdict, todo) = finding(&findings, "sessions");
    assert!(
        verdict == "fail" && todo.contains("session pooling"),
        "{findings:#}"
    );
}

/// For a scheduler that starts processes: no cron of ours runs here.
#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_can_be_run_once() {
    let system = System::of(1, 1, 0).await;
    let desk = &system.desk;
    let asking = system.asking().await;
    let over = format!("UPDATE tasks SET expires_at = now() WHERE id = '{asking}'");
    let _ = system.database.rows(&over).await.unwrap();
    let swept = desk.rows(&["cron", "run", "expire", "purge"]);
    assert_eq!(
        swept[0],
        json!({"sweep": "expire", "outcome": "swept", "rows": 1})
    );
    assert_eq!(swept[1]["outcome"], "swept");
    let alice = system.cluster.client(0, "alice");
    let task = alice.get(&asking).await.unwrap();
    assert_eq!(task["error"]["data"]["reason"], "task_expired");
    // The lead is given back at once.
    let again = desk.rows(&["cron", "run", "expire"]);
    assert_eq!(
        again[0],
        json!({"sweep": "expire", "outcome": "swept", "rows": 0})
    );
    // A worker that is lost, and its job: judged only after looking on for a while.
    let running = system.long().await;
    let lose = format!(
        "UPDATE tasks SET lease_until = now() - interval '1 minute', claim_token = id, hinted_at = NULL WHERE id = '{running}'"
    );
    let _ = system.database.rows(&lose).await.unwrap();
    let requeued = desk.rows(&["cron", "run", "requeue"]);
    assert_eq!(requeued[0]["rows"], 1, "{requeued:?}");
    // Another replica leads.
    let lead = "INSERT INTO sweep_leases (sweep, holder, lease_until) VALUES ('holds', gen_random_uuid(), now() + interval '1 hour')";
    let _ = system.database.rows(lead).await.unwrap();
    let elsewhere = desk.rows(&["cron", "run", "holds"]);
    assert_eq!(elsewhere[0]["outcome"], "led_elsewhere");
    for (name, told) in [("nonsense", "requeue"), ("gauges", "stays")] {
        let (success, said) = desk.json(&["cron", "run", name]);
        let error = said[0]["error"].as_str().unwrap();
        assert!(!success && error.contains(told), "{said}");
    }
    // What must have looked on takes the word of the workers, of which none is old enough.
    let young = desk.rows(&["cron", "run", "versions", "catalogue"]);
    assert!(
        young
            .iter()
            .all(|row| row["outcome"] == "workers_are_too_young"),
        "{young:?}"
    );
    let audits = desk.rows(&["audit", "list"]);
    assert_eq!(audits[0]["command"], "cron run");
    assert_eq!(
        audits[0]["target"],
        json!({"sweeps": ["versions", "catalogue"]})
    );
    assert_eq!(audits[0]["operator"], "olga");
    let outcomes: Vec<_> = audits[..4].iter().map(|audit| &audit["outcome"]).collect();
    let expected = [
        "2 workers_are_too_young",
        "failed",
        "failed",
        "led_elsewhere",
    ];
    assert_eq!(outcomes, expected);
}

/// As `| head` does that has seen enough.
#[test]
fn a_reader_that_goes_is_no_failure() {
    let mut child = Command::new(BINARY)
        .args(["config", "reference"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}");
}

async fn queued(store: &store::Store, subject: &str, tenant: Option<&str>) {
    let tenant = tenant.map(str::to_owned);
    let issuer = "https://issuer".to_owned();
    let principal = store::Principal::verified(issuer, subject.to_owned(), tenant);
    let new = store::NewTask {
        id: protocol::TaskId::new(1_790_000_000_000),
        principal: &principal,
        tool: "report",
        tool_version: 1,
        policy: &store::ToolPolicy::default(),
        arguments: bytes::Bytes::from_static(b"{}"),
        arguments_digest: [7; 32],
        client_capabilities: bytes::Bytes::from_static(b"{}"),
        offered_responses: None,
        trace_context: None,
        idempotency_key: None,
        status_message: "queued",
        hold: SOON,
        handed_out: true,
        hint_epoch: None,
    };
    let created = store.create(&new).await.unwrap();
    assert!(matches!(created, store::Created::New(_)), "{created:?}");
}

/// All who have tasks of it, but who has others as well: those are nobody's to erase by this name.
#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_is_erased_but_not_who_is_elsewhere_too() {
    let system = System::of(0, 0, 0).await;
    let desk = &system.desk;
    let settings = store::Config {
        url: system.database.url().to_owned(),
        ..store::Config::default()
    };
    let store = store::Store::new(settings, &telemetry::Registry::new()).unwrap();
    for (subject, tenant) in [
        ("anna", Some("acme")),
        ("anna", Some("acme")),
        ("ben", Some("acme")),
        ("ben", Some("other")),
        ("cleo", Some("acme")),
        ("dora", Some("other")),
        ("erik", None),
    ] {
        queued(&store, subject, tenant).await;
    }
    let erase = ["tasks", "erase", "--tenant", "https://issuer", "acme"];
    let half = ["tasks", "erase", "--tenant", "https://issuer"];
    let empty = [&half[..], &["", "--yes"]].concat();
    let both = [
        &erase[..],
        &["--principal", "https://issuer", "anna", "--yes"],
    ]
    .concat();
    for bad in [&half[..], &empty[..], &both[..]] {
        let refused = desk.run(bad);
        assert_eq!(refused.status.code(), Some(2), "{bad:?}");
    }
    let left = async || {
        let sql = "SELECT subject FROM tasks ORDER BY 1";
        let rows = system.database.rows(sql).await.unwrap();
        rows.into_iter().flatten().flatten().collect::<Vec<_>>()
    };
    let there = desk.rows(&erase);
    assert_eq!(there[0]["live"], 3, "{there:?}");
    assert_eq!(left().await.len(), 7, "a look");

    let erased = desk.run(&[&erase[..], &["--yes"]].concat());
    let told = String::from_utf8_lossy(&erased.stderr).into_owned();
    assert_eq!(erased.status.code(), Some(1), "{told}");
    assert!(told.contains("erase: 3 tasks"), "{told}");
    assert!(told.contains("https://issuer ben has tasks"), "{told}");
    assert_eq!(left().await, ["ben", "ben", "dora", "erik"]);
    let audits = desk.rows(&["audit", "list"]);
    assert_eq!(audits.len(), 2, "one for each principal: {audits:?}");
    for audit in &audits {
        assert_eq!(audit["outcome"], "erased");
        let whose = audit["target"]["principal"].as_str().unwrap();
        assert!(whose.starts_with("erased:"), "{whose}");
    }
    let ben = ["tasks", "erase", "--principal", "https://issuer", "ben"];
    assert!(desk.json(&[&ben[..], &["--yes"]].concat()).0);
    let all = desk.json(&[&erase[..], &["--yes"]].concat());
    assert!(all.0, "{all:?}");
    assert_eq!(left().await, ["dora", "erik"]);
}

/// One who goes on creating holds up nobody behind it, and who comes to have tasks elsewhere before its turn is
/// left alone as if it had had them before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_is_erased_while_its_principals_go_on() {
    let system = System::of(0, 0, 0).await;
    let settings = store::Config {
        url: system.database.url().to_owned(),
        ..store::Config::default()
    };
    let store = store::Store::new(settings, &telemetry::Registry::new()).unwrap();
    for subject in ["anna", "ben", "cleo"] {
        queued(&store, subject, Some("acme")).await;
    }
    let is_over = Arc::new(AtomicBool::new(false));
    let mut creates = tokio::task::JoinSet::new();
    creates.spawn({
        let (store, is_over) = (store.clone(), is_over.clone());
        async move {
            while !is_over.load(Ordering::Relaxed) {
                queued(&store, "anna", Some("acme")).await;
            }
        }
    });
    let desk = system.desk;
    let erasing = tokio::task::spawn_blocking(move || {
        let erase = ["tasks", "erase", "--tenant", "https://issuer", "acme"];
        let erased = desk.run(&[&erase[..], &["--yes", "--wait", "5s"]].concat());
        (desk, erased)
    });
    let begun = async || {
        let sql = "SELECT id::text FROM audit";
        let rows = system.database.rows(sql).await.unwrap();
        (!rows.is_empty()).then_some(())
    };
    harness::wait::until("the first one's turn", SOON, begun)
        .await
        .unwrap();
    queued(&store, "ben", Some("other")).await;
    let (desk, erased) = erasing.await.unwrap();
    is_over.store(true, Ordering::Relaxed);
    creates.join_next().await.unwrap().unwrap();
    let told = String::from_utf8_lossy(&erased.stderr).into_owned();
    assert_eq!(erased.status.code(), Some(1), "{told}");
    assert!(told.contains("https://issuer ben has tasks"), "{told}");
    assert!(!told.contains("https://issuer anna"), "{told}");
    assert!(told.contains("run the same command again"), "{told}");
    let sql = "SELECT subject, tenant FROM tasks WHERE subject <> 'anna' ORDER BY 2";
    let left = system.database.rows(sql).await.unwrap();
    let left: Vec<Option<String>> = left.into_iter().flatten().collect();
    let left: Vec<&str> = left.iter().flatten().map(String::as_str).collect();
    assert_eq!(left, ["ben", "acme", "ben", "other"], "{told}");
    // Hers and the last one's: the other's turn left no line.
    assert_eq!(desk.rows(&["audit", "list"]).len(), 2, "{told}");
}
