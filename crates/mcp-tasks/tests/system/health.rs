//! Probes: what each says of its process, and that they answer whatever hangs.

use std::time::{Duration, Instant};

use harness::http::Http;
use harness::node::Node;
use serde_json::{Value, json};

use crate::support::{SOON, System, over_own_postgres, over_own_postgres_with};

/// What Kubernetes gives a probe by default.
const ANSWER: Duration = Duration::from_secs(1);

/// Status and body of a probe. It is tried again where this machine is late: what hangs for good is
/// late every time.
async fn probe(node: &Node, name: &str) -> (u16, Value) {
    let http = Http::new(Duration::from_secs(10));
    let url = format!("{}/{name}", node.admin());
    let mut took = Vec::new();
    for _ in 0..5 {
        let asked = Instant::now();
        let reply = http.get(&url).await.unwrap();
        took.push(asked.elapsed());
        if asked.elapsed() < ANSWER {
            let body = serde_json::from_slice(&reply.body).unwrap();
            return (reply.status, body);
        }
    }
    panic!("{url}: {took:?}");
}

/// Waits for a probe's answer.
async fn until(node: &Node, name: &str, good: impl Fn(u16, &Value) -> bool) -> Value {
    let what = format!("{name} of {}", node.name());
    let look = async || probe(node, name).await;
    let (_, body) = harness::wait::for_state(&what, SOON, look, |(s, b)| good(*s, b))
        .await
        .unwrap();
    body
}

/// Waits until a process that was just started answers at all.
async fn up(node: &Node) {
    let http = Http::new(ANSWER);
    let url = format!("{}/livez", node.admin());
    let look = async || http.get(&url).await.is_ok();
    harness::wait::for_state("it answers", SOON, look, |up| *up)
        .await
        .unwrap();
}

fn nodes(cluster: &harness::cluster::Cluster) -> impl Iterator<Item = &Node> {
    let (gateways, workers) = (cluster.gateways.iter(), cluster.workers.iter());
    gateways.chain(workers).chain(cluster.crons.iter())
}

/// Every process names the loops that it is watched by.
#[tokio::test(flavor = "multi_thread")]
async fn every_process_is_watched_by_its_own_loops() {
    let system = System::of(1, 1).await;
    for (node, loops) in nodes(&system.cluster).zip([
        &["accept", "runtime"][..],
        &["heartbeat", "poll", "runtime"],
        &["runtime", "schedule"],
    ]) {
        for name in ["livez", "readyz", "startupz"] {
            let body = until(node, name, |status, _| status == 200).await;
            assert_eq!(body, json!({"status": "ok"}));
        }
        let page = node.metrics().await.unwrap();
        let ages = page.lines().filter_map(|line| {
            let rest = line.strip_prefix("mcp_tasks_health_liveness_age_seconds{loop=\"")?;
            rest.split('"').next()
        });
        let mut ages: Vec<&str> = ages.collect();
        ages.sort_unstable();
        assert_eq!(ages, loops, "{}", node.name());
    }
}

/// Redis is down: ready, and the reason is told. Nobody is restarted for it.
#[tokio::test(flavor = "multi_thread")]
async fn without_redis_all_are_ready_and_say_what_is_worse() {
    let mut system = System::of(1, 1).await;
    system.redis.stop().await.unwrap();
    for node in nodes(&system.cluster) {
        let body = until(node, "readyz", |status, body| {
            status == 200 && body["degraded"]["redis"].is_string()
        })
        .await;
        let told = body["degraded"]["redis"].as_str().unwrap();
        assert!(told.contains("slower"), "{told}");
        assert_eq!(probe(node, "livez").await.0, 200);
        assert_eq!(probe(node, "startupz").await.0, 200);
    }
    system.redis.start_again().await.unwrap();
    for node in nodes(&system.cluster) {
        until(node, "readyz", |_, body| body == &json!({"status": "ok"})).await;
    }
}

/// Both hang, for longer than any loop may take for a turn: probes answer all the same, readiness
/// says what is missing, and nobody is restarted for what a restart does not mend.
#[tokio::test(flavor = "multi_thread")]
async fn while_postgres_and_redis_hang_nobody_is_dead() {
    let (cluster, postgres, mut redis) = over_own_postgres(1, 1).await;
    postgres.freeze();
    redis.freeze();
    for node in nodes(&cluster) {
        let body = until(node, "readyz", |status, _| status == 503).await;
        let told = body["failing"]["postgres"].as_str().unwrap();
        assert!(told.contains("postgres is unavailable"), "{body}");
    }
    // Longer than a loop may take.
    let end = Instant::now() + Duration::from_secs(36);
    while Instant::now() < end {
        for node in nodes(&cluster) {
            let (status, body) = probe(node, "livez").await;
            assert_eq!(status, 200, "{}: {body}", node.name());
            assert_eq!(probe(node, "startupz").await.0, 200, "started is started");
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    postgres.thaw();
    redis.thaw();
    for node in nodes(&cluster) {
        until(node, "readyz", |status, _| status == 200).await;
    }
}

/// Postgres is away when a process starts: it waits, ready as soon as Postgres is there, and is not
/// restarted meanwhile by whoever waits for its start.
#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_postgres_has_started() {
    let (mut cluster, mut postgres, _redis) = over_own_postgres(1, 1).await;
    postgres.stop().await.unwrap();
    for node in cluster.nodes() {
        node.kill9();
        node.start_again().unwrap();
    }
    for node in nodes(&cluster) {
        up(node).await;
        until(node, "startupz", |status, _| status == 200).await;
        let (status, body) = probe(node, "readyz").await;
        let told = body["failing"]["schema"].as_str().unwrap();
        assert!(
            status == 503 && told.contains("postgres is unavailable"),
            "{body}"
        );
        assert_eq!(probe(node, "livez").await.0, 200);
    }
    postgres.start_again().await.unwrap();
    for node in nodes(&cluster) {
        until(node, "readyz", |status, _| status == 200).await;
    }
}

/// A tool that neither awaits nor returns keeps a thread of its own, and no probe.
#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_blocks_does_not_block_its_worker() {
    let system = System::with(1, 1, "[tools]\ndrills = 1\n[worker]\nslots = 4\n").await;
    let cluster = &system.cluster;
    cluster.wait_for_tools(0, &["drill_work"]).await.unwrap();
    let alice = cluster.client(0, "alice");
    let work = json!({"steps": 1, "ms": 20_000, "manner": "blocked"});
    let blocked = alice.start("drill_work", work).await.unwrap();
    let sql = format!("SELECT count(*) FROM tasks WHERE id = '{blocked}' AND phase = 'running'");
    let running = async || system.count(&sql).await;
    harness::wait::for_state("it runs", SOON, running, |count| *count == 1)
        .await
        .unwrap();
    let worker = &cluster.workers[0];
    for name in ["livez", "readyz"] {
        assert_eq!(probe(worker, name).await.0, 200);
    }
    // And others get their turn beside it.
    let other = json!({"steps": 1, "ms": 1, "manner": "polite"});
    let id = alice.start("drill_work", other).await.unwrap();
    alice.wait_status(&id, "completed", SOON).await.unwrap();
}

/// Asked to end: not ready at once, alive until the end.
#[tokio::test(flavor = "multi_thread")]
async fn who_drains_is_alive_and_not_ready() {
    let settings = "[gateway]\ndrain_delay = \"20s\"\n[tools]\ndrills = 1\n\
                    [worker]\ndrain_deadline = \"20s\"\n";
    let mut system = System::with(1, 1, settings).await;
    let cluster = &system.cluster;
    cluster.wait_for_tools(0, &["drill_work"]).await.unwrap();
    let alice = cluster.client(0, "alice");
    let work = json!({"steps": 1, "ms": 600_000, "manner": "polite"});
    let id = alice.start("drill_work", work).await.unwrap();
    let sql = format!("SELECT count(*) FROM tasks WHERE id = '{id}' AND phase = 'running'");
    let running = async || system.count(&sql).await;
    harness::wait::for_state("it runs", SOON, running, |count| *count == 1)
        .await
        .unwrap();
    system.cluster.gateways[0].term();
    system.cluster.workers[0].term();
    for node in [&system.cluster.gateways[0], &system.cluster.workers[0]] {
        let body = until(node, "readyz", |status, _| status == 503).await;
        assert_eq!(body["failing"], json!({"shutdown": "draining"}));
        assert_eq!(probe(node, "livez").await.0, 200);
        assert_eq!(probe(node, "startupz").await.0, 200);
    }
}

/// A process that is stuck as a whole cannot be told from one that is gone: no answer, and a probe
/// fails by its timeout. Afterwards it goes on, and is not restarted for what is over.
#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_process_does_not_answer() {
    let mut system = System::of(1, 0).await;
    let url = format!("{}/livez", system.cluster.gateways[0].admin());
    system.cluster.gateways[0].freeze();
    assert!(Http::new(ANSWER).get(&url).await.is_err());
    system.cluster.gateways[0].thaw();
    until(&system.cluster.gateways[0], "livez", |status, _| {
        status == 200
    })
    .await;
}

/// A wrong password, an unknown database and missing rights are no outages: each process says what
/// to do at once, in its log and in its readiness, and works as soon as that is done.
#[tokio::test(flavor = "multi_thread")]
async fn what_postgres_refuses_is_told_and_waited_for() {
    let (mut cluster, postgres, _redis) = over_own_postgres_with(1, 1, "").await;
    let admin = postgres.url("system");
    let run = async |sql: &str| harness::postgres::rows(&admin, sql).await.unwrap();
    run("CREATE ROLE app LOGIN PASSWORD 'right'").await;
    let rules = postgres.data().join("pg_hba.conf");
    let text = std::fs::read_to_string(&rules).unwrap();
    std::fs::write(
        &rules,
        format!("host all app 127.0.0.1/32 scram-sha-256\n{text}"),
    )
    .unwrap();
    run("SELECT pg_reload_conf()").await;
    let sql = "SELECT count(*) FROM pg_hba_file_rules WHERE user_name = '{app}'";
    let loaded = async || run(sql).await[0][0].clone();
    harness::wait::for_state("rules", SOON, loaded, |n| n.as_deref() == Some("1"))
        .await
        .unwrap();
    let dir = harness::temp::Temp::new().unwrap();
    let secret = dir.path().join("password");
    std::fs::write(&secret, "wrong").unwrap();
    let url = admin.replace("postgres@", "app@");
    let settings = format!(
        "[postgres]\nurl = \"{url}\"\npassword_file = \"{}\"\n",
        secret.display()
    );
    for node in [&mut cluster.gateways[0], &mut cluster.workers[0]] {
        node.kill9();
        crate::support::set(node, &settings);
        node.start_again().unwrap();
    }
    let nodes = || [&cluster.gateways[0], &cluster.workers[0]];
    for node in nodes() {
        up(node).await;
    }
    let told = async |what: &str| {
        for node in nodes() {
            let body = until(node, "readyz", |status, body| {
                let told = body["failing"]["schema"].as_str().unwrap_or_default();
                status == 503 && told.contains(what)
            })
            .await;
            assert!(!body.to_string().contains("wrong"), "{body}");
            let log = async || std::fs::read_to_string(node.log()).unwrap();
            harness::wait::for_state("a line", SOON, log, |log| {
                log.contains("refuses this process") && log.contains(what)
            })
            .await
            .unwrap();
            assert_eq!(probe(node, "livez").await.0, 200);
        }
    };
    told("refuses the password").await;
    std::fs::write(&secret, "right").unwrap();
    told("lacks a right").await;
    run("GRANT SELECT ON ALL TABLES IN SCHEMA public TO app").await;
    told("lacks INSERT, UPDATE, DELETE on alert").await;
    run("GRANT ALL ON ALL TABLES IN SCHEMA public TO app").await;
    for node in nodes() {
        until(node, "readyz", |status, _| status == 200).await;
    }
    // And later, while it runs.
    run("ALTER ROLE app NOLOGIN").await;
    run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'").await;
    for node in nodes() {
        until(node, "readyz", |_, body| {
            let told = body["failing"]["postgres"].as_str().unwrap_or_default();
            told.contains("pg_hba.conf")
        })
        .await;
        assert_eq!(probe(node, "livez").await.0, 200);
    }
}

/// Runs `mcp-tasks health` as a container's health check does: its exit code, and what it printed.
async fn asked(listen: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_mcp-tasks"));
    command.env_clear().arg("health").args(arguments);
    command.env("MCP_TASKS__ADMIN__LISTEN", listen);
    let ended = command.output().await.unwrap();
    let told = [ended.stdout, ended.stderr].concat();
    (ended.status.code(), String::from_utf8(told).unwrap())
}

/// Images have no curl: the binary asks its own kind.
#[tokio::test(flavor = "multi_thread")]
async fn the_command_says_what_the_probes_say() {
    let (cluster, mut postgres, _redis) = over_own_postgres(1, 1).await;
    let node = &cluster.gateways[0];
    until(node, "readyz", |status, _| status == 200).await;
    let admin = node.admin();
    let listen = admin.trim_start_matches("http://");
    let (_, port) = listen.rsplit_once(':').unwrap();
    let ok = (Some(0), "{\"status\":\"ok\"}\n".to_owned());
    assert_eq!(asked(listen, &[]).await, ok);
    // Who listens everywhere is asked here.
    assert_eq!(asked(&format!("0.0.0.0:{port}"), &["live"]).await, ok);
    postgres.stop().await.unwrap();
    until(node, "readyz", |status, _| status == 503).await;
    let (code, told) = asked(listen, &["ready"]).await;
    assert!(
        code == Some(1) && told.contains("postgres is unavailable"),
        "{told}"
    );
    assert_eq!(asked(listen, &["startup"]).await, ok);
    // Nobody is there; or somebody who says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let (code, told) = asked(&address, &["--timeout", "200ms"]).await;
    assert!(code == Some(1) && told.contains("admin.listen"), "{told}");
    drop(silent);
    let (code, told) = asked(&address, &[]).await;
    assert!(code == Some(1) && told.contains("admin.listen"), "{told}");
}
