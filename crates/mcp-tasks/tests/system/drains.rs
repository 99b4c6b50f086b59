//! Processes that are asked to end: they finish or hand over what they hold, and are gone in time
//! whatever tools, clients and servers do.

use std::time::{Duration, Instant};

use harness::config::Role;
use harness::http::Http;
use harness::node::Node;
use serde_json::{Value, json};

use crate::support::{SOON, System, over_own_postgres_with, set};

const SECOND: Duration = Duration::from_secs(1);
/// Between what the settings allow and what a busy machine needs.
const SLACK: Duration = Duration::from_secs(4);

const DRILLS: &str = r#"
[tools]
drills = 1
[worker]
drain_deadline = "1s"
stop_grace = "1s"
"#;

/// Starts a job of the drill tool, and waits until a worker owns it.
async fn working(system: &System, steps: u32, ms: u64, manner: &str) -> String {
    let alice = system.cluster.client(0, "alice");
    let arguments = json!({"steps": steps, "ms": ms, "manner": manner});
    let id = alice.start("drill_work", arguments).await.unwrap();
    until(system, &id, "phase = 'running'").await;
    id
}

async fn until(system: &System, id: &str, what: &str) {
    let sql = format!("SELECT count(*) FROM tasks WHERE id = '{id}' AND {what}");
    let look = async || (system.count(&sql).await == 1).then_some(());
    harness::wait::until(what, SOON, look).await.unwrap();
}

async fn tries(system: &System, id: &str) -> i64 {
    let sql = format!("SELECT tries FROM tasks WHERE id = '{id}'");
    system.count(&sql).await
}

/// Asks a process to end and waits: how long that took. A good end is one with code 0.
async fn end(node: &mut Node) -> (Duration, Option<i32>) {
    let begun = Instant::now();
    node.term();
    let status = node.wait(SOON).await.unwrap();
    (begun.elapsed(), status.code())
}

/// A worker that ends finishes no long job: at its soft deadline the job is told to stop between
/// two steps, and another worker goes on from there at once. That spends no try.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_job_goes_on_elsewhere() {
    let mut system = System::with(1, 1, DRILLS).await;
    let id = working(&system, 12, 300, "polite").await;
    system
        .cluster
        .add(Role::Worker)
        .unwrap()
        .ready()
        .await
        .unwrap();
    let (took, code) = end(&mut system.cluster.workers[0]).await;
    assert_eq!(code, Some(0));
    assert!(took < SECOND + SLACK, "{took:?}");
    // Whatever comes from now on is the other's.
    let alice = system.cluster.client(0, "alice");
    let done = alice.wait_status(&id, "completed", SOON).await.unwrap();
    let steps = done["result"]["structuredContent"]["steps"].clone();
    let attempts: Vec<u64> = steps
        .as_array()
        .unwrap()
        .iter()
        .map(|step| step["attempt"].as_u64().unwrap())
        .collect();
    assert!(attempts.is_sorted() && attempts.len() == 12, "{attempts:?}");
    assert_eq!(
        (attempts[0], attempts[11]),
        (1, 2),
        "steps of the first attempt were kept: {attempts:?}"
    );
    assert_eq!(tries(&system, &id).await, 0, "no try is spent");
    system.cluster.quiet(&[]).unwrap();
}

/// From the signal on, a worker takes nothing new, even while it still has time.
#[tokio::test(flavor = "multi_thread")]
async fn an_ending_worker_takes_nothing_new() {
    let settings = "[tools]\ndrills = 1\n[worker]\ndrain_deadline = \"10s\"";
    let mut system = System::with(1, 1, settings).await;
    let held = working(&system, 1, 3000, "polite").await;
    system.cluster.workers[0].term();
    harness::wait::until("the worker drains", SOON, async || {
        let lines = harness::logs::lines(system.cluster.workers[0].log()).ok()?;
        let drains = |line: &Value| line.to_string().contains("asked to end");
        lines.iter().any(drains).then_some(())
    })
    .await
    .unwrap();
    let alice = system.cluster.client(0, "alice");
    let quick = json!({"steps": 1, "ms": 0, "manner": "polite"});
    let next = alice.start("drill_work", quick).await.unwrap();
    let done = alice.wait_status(&held, "completed", SOON).await.unwrap();
    let steps = &done["result"]["structuredContent"]["steps"];
    assert_eq!(steps[0]["attempt"], 1, "what it had, it finished");
    system.cluster.workers[0].wait(SOON).await.unwrap();
    assert_eq!(alice.get(&next).await.unwrap()["status"], "working");
    let attempts = format!("SELECT attempt FROM tasks WHERE id = '{next}'");
    assert_eq!(system.count(&attempts).await, 0);
    system.cluster.workers[0].start_again().unwrap();
    alice.wait_status(&next, "completed", SOON).await.unwrap();
}

/// A tool that hears nothing is dropped after the grace, and its job handed back all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_deaf_tool_does_not_keep_its_worker() {
    let mut system = System::with(1, 1, DRILLS).await;
    let id = working(&system, 1, 600_000, "deaf").await;
    let (took, code) = end(&mut system.cluster.workers[0]).await;
    assert_eq!(code, Some(0));
    assert!(took < 2 * SECOND + SLACK, "{took:?}");
    until(&system, &id, "phase = 'queued' AND tries = 0").await;
    let alice = system.cluster.client(0, "alice");
    alice.cancel(&id).await.unwrap();
}

/// A tool that blocks its thread can't be stopped from inside: the worker ends without it, hands
/// back what ran beside it, and the job is found by its lease.
#[tokio::test(flavor = "multi_thread")]
async fn a_blocking_tool_does_not_keep_its_worker() {
    let mut system = System::with(1, 1, DRILLS).await;
    let blocked = working(&system, 1, 600_000, "blocked").await;
    let beside = working(&system, 2, 30_000, "polite").await;
    let (took, _) = end(&mut system.cluster.workers[0]).await;
    // Being dropped takes up to 5 s before a tool counts as one that can't be stopped.
    assert!(took < 7 * SECOND + SLACK, "{took:?}");
    until(&system, &beside, "phase = 'queued' AND tries = 0").await;
    let alice = system.cluster.client(0, "alice");
    for id in [&blocked, &beside] {
        alice.cancel(id).await.unwrap();
    }
    let ended = alice.wait_end(&blocked, SOON).await.unwrap();
    assert_eq!(
        ended["error"]["data"]["reason"], "step_in_doubt",
        "its step may still land: {ended}"
    );
}

/// A second signal means at once: nothing is handed back, as if the process had been killed.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_ends_at_once() {
    let mut system = System::with(
        1,
        1,
        "[tools]\ndrills = 1\n[gateway]\ndrain_delay = \"60s\"",
    )
    .await;
    let id = working(&system, 20, 200, "polite").await;
    system
        .cluster
        .add(Role::Worker)
        .unwrap()
        .ready()
        .await
        .unwrap();
    for node in [
        &mut system.cluster.workers[0],
        &mut system.cluster.gateways[0],
    ] {
        node.term();
        tokio::time::sleep(SECOND / 2).await;
        assert_eq!(node.ended(), None, "the first one drains");
        let (took, code) = end(node).await;
        assert!(took < SECOND, "{took:?}");
        assert_eq!(code, Some(1), "not in good order");
    }
    system.cluster.gateways[0].start_again().unwrap();
    system.cluster.gateways[0].ready().await.unwrap();
    let alice = system.cluster.client(0, "alice");
    alice.wait_status(&id, "completed", SOON).await.unwrap();
    assert_eq!(tries(&system, &id).await, 1, "like a lost worker");
}

/// A gateway that ends is first taken out of service, then out of reach; what it holds is finished
/// or handed over, and streams get their last message.
#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_leaves_in_good_order() {
    let settings = r#"
[tools]
drills = 1
[gateway]
inline_budget = "60s"
drain_delay = "1500ms"
drain_deadline = "4s"
"#;
    let mut system = System::with(2, 1, settings).await;
    let alice = system.cluster.client(0, "alice");
    let old = alice.undeclared();
    let call = |seconds: u32| {
        let params = json!({"name": "slow_compute", "arguments": {"seconds": seconds}});
        old.request("tools/call", params)
    };
    let task = working(&system, 1, 300_000, "polite").await;
    let alice = system.cluster.client(0, "alice");
    let mut listen = alice
        .listen(json!({"taskIds": [task], "toolsListChanged": true}))
        .await
        .unwrap();
    let mut ends = call(4).stream().await.unwrap();
    let mut never = call(300).stream().await.unwrap();
    let begun = Instant::now();
    system.cluster.gateways[0].term();
    // Not ready at once, but still there for whoever has not heard of it.
    let http = Http::new(SECOND);
    let ready = format!("{}/readyz", system.cluster.gateways[0].admin());
    harness::wait::until("not ready", SECOND, async || {
        (http.get(&ready).await.ok()?.status == 503).then_some(())
    })
    .await
    .unwrap();
    let late = alice.timeout(SOON);
    let answer = late
        .request("server/discover", json!({}))
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("connection"), "close");
    assert!(begun.elapsed() < SECOND, "{:?}", begun.elapsed());

    let last = all(&mut listen).await.pop().unwrap();
    assert_eq!(last["result"]["resultType"], "complete");
    assert!(
        begun.elapsed() >= 1400 * SECOND / 1000,
        "{:?}",
        begun.elapsed()
    );
    late.discover().await.unwrap_err();
    let result = all(&mut ends).await.pop().unwrap();
    let said = result["result"]["content"][0]["text"].as_str().unwrap();
    assert!(said.contains("for 4 s"), "{result}");
    let told = all(&mut never).await.pop().unwrap();
    assert_eq!(told["error"]["data"]["reason"], "unavailable", "{told}");
    let status = system.cluster.gateways[0].wait(SOON).await.unwrap();
    assert_eq!(status.code(), Some(0));
    let took = begun.elapsed();
    assert!(took < 5500 * SECOND / 1000 + SLACK, "{took:?}");

    // Whoever listens again elsewhere gets the full current state first.
    let other = system.cluster.client(1, "alice");
    let mut again = other.listen(json!({"taskIds": [task]})).await.unwrap();
    again.next(SOON).await.unwrap();
    let state = again.next(SOON).await.unwrap().unwrap();
    assert_eq!(state["params"]["taskId"], json!(task));
    assert_eq!(state["params"]["status"], "working");
    other.cancel(&task).await.unwrap();
}

/// All messages until the stream ends.
async fn all(stream: &mut harness::sse::Stream) -> Vec<Value> {
    let mut messages = Vec::new();
    while let Some(message) = stream.next(SOON).await.unwrap() {
        messages.push(message);
    }
    messages
}

/// A cron that ends hands every sweep over at once, instead of letting its leases run out.
#[tokio::test(flavor = "multi_thread")]
async fn a_cron_hands_its_sweeps_over() {
    let mut system = System::of(1, 0).await;
    // Those that look every second or two; the others take over at their next turn.
    let leads = async |node: &Node| {
        let mut leading = 0;
        for sweep in ["requeue", "holds", "expire", "inputs", "stopped"] {
            let label = format!("sweep=\"{sweep}\"");
            let leads = node.metric("mcp_tasks_cron_leading", &label).await.ok()?;
            leading += i32::from(leads > 0.5);
        }
        Some(leading)
    };
    let first = async || leads(&system.cluster.crons[0]).await;
    harness::wait::for_state("one leads", SOON, first, |count| *count == Some(5))
        .await
        .unwrap();
    let second = system.cluster.add(Role::Cron).unwrap();
    second.ready().await.unwrap();
    tokio::time::sleep(SECOND).await;
    assert_eq!(leads(&system.cluster.crons[1]).await, Some(0));
    let (took, code) = end(&mut system.cluster.crons[0]).await;
    assert_eq!(code, Some(0));
    assert!(took < SLACK, "{took:?}");
    let second = async || leads(&system.cluster.crons[1]).await;
    let soon = Duration::from_secs(4);
    harness::wait::for_state("the other leads", soon, second, |count| *count == Some(5))
        .await
        .unwrap();
}

/// With Postgres frozen nobody can finish anything: all the same, every process ends in time.
#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_postgres_keeps_nobody() {
    let (mut cluster, postgres, _redis) = over_own_postgres_with(
        1,
        1,
        &format!(
            "{DRILLS}\n[postgres]\nwait_max = \"3s\"\n[gateway]\ndrain_delay = \"500ms\"\n\
             drain_deadline = \"2s\""
        ),
    )
    .await;
    let alice = cluster.client(0, "alice");
    let arguments = json!({"steps": 1, "ms": 60_000, "manner": "polite"});
    let id = alice.start("drill_work", arguments).await.unwrap();
    let url = postgres.url("system");
    let running = format!("SELECT id FROM tasks WHERE id = '{id}' AND phase = 'running'");
    harness::wait::until("a job runs", SOON, async || {
        let rows = harness::postgres::rows(&url, &running).await.ok()?;
        (!rows.is_empty()).then_some(())
    })
    .await
    .unwrap();
    postgres.freeze();
    let get = alice.get(&id);
    let ending = async {
        let begun = Instant::now();
        tokio::time::sleep(SECOND / 2).await;
        for node in cluster.nodes() {
            node.term();
        }
        for node in cluster.nodes() {
            node.wait(SOON).await.unwrap();
        }
        begun.elapsed()
    };
    let (read, took) = tokio::join!(get, ending);
    read.unwrap_err();
    // The longest ways: a gateway's two times, and what it still wants to record; a worker's, and
    // its last words to Postgres.
    assert!(took < 6 * SECOND + SLACK, "{took:?}");
    // Nor does one that has not begun yet.
    let worker = &mut cluster.workers[0];
    worker.start_again().unwrap();
    tokio::time::sleep(SECOND).await;
    let (took, _) = end(worker).await;
    assert!(took < SLACK, "{took:?}");
    postgres.thaw();
    // Its job is found by its lease.
    for node in cluster.nodes() {
        set(node, "[worker]\ndrain_deadline = \"100ms\"");
        node.start_again().unwrap();
    }
    cluster.ready().await.unwrap();
    let alice = cluster.client(0, "alice");
    alice.cancel(&id).await.unwrap();
    alice.wait_end(&id, SOON).await.unwrap();
}
