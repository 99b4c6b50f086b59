//! Postgres did what it was asked and its reply is lost on the way, once for every kind of write:
//! nobody is told of a failure that was none, and nothing happens twice.

use harness::config::Role;
use harness::postgres::{Postgres, rows};
use harness::proxy::Proxy;
use serde_json::{Value, json};

use crate::postgres_load::{Ledger, World, accept, told};
use crate::support::{SOON, keyed, migrate};

/// A system whose gateway and worker each reach Postgres by a road of their own; the cron does too,
/// undisturbed.
struct Roads {
    world: World,
    gateway: Proxy,
    worker: Proxy,
    postgres: Postgres,
}

impl Roads {
    async fn start() -> Roads {
        Self::start_with("").await
    }

    /// The same with further settings.
    async fn start_with(more: &str) -> Roads {
        let postgres = Postgres::temporary().await.unwrap();
        let url = postgres.create_database("system").await.unwrap();
        migrate(url.clone()).await.unwrap();
        let gateway = Proxy::to_port(postgres.port()).await.unwrap();
        let worker = Proxy::to_port(postgres.port()).await.unwrap();
        // Long leases: a late heartbeat of a busy machine would be a second fault.
        let settings = "[postgres]\nlease = \"15s\"\nheartbeat = \"1s\"\n\
                        [gateway]\ninline_budget = \"1s\"\n";
        let settings = format!("{settings}{more}");
        let mut world =
            World::start_with(&gateway.through(&url), &settings, |plan| plan.of(1, 0, 0)).await;
        for (role, url) in [(Role::Worker, worker.through(&url)), (Role::Cron, url)] {
            let change = |plan: &mut harness::node::Plan| plan.common.postgres_url = url;
            world.cluster.add_with(role, change).unwrap();
        }
        world.cluster.ready().await.unwrap();
        world.serves().await;
        Roads {
            world,
            gateway,
            worker,
            postgres,
        }
    }

    /// One column of one row of the task.
    async fn row(&self, id: &str, columns: &str) -> Vec<Option<String>> {
        let url = self.postgres.url("system");
        let sql = format!("SELECT {columns} FROM tasks WHERE id = '{id}'");
        rows(&url, &sql).await.unwrap().swap_remove(0)
    }

    async fn attempts(&self, id: &str) -> (String, String) {
        let row = self.row(id, "attempt, tries").await;
        (row[0].clone().unwrap(), row[1].clone().unwrap())
    }

    async fn phase_is(&self, id: &str, phase: &str) {
        let look = async || self.row(id, "phase").await.swap_remove(0);
        let good = |seen: &Option<String>| seen.as_deref() == Some(phase);
        harness::wait::for_state("phase", SOON, look, good)
            .await
            .unwrap();
    }

    fn ledger(&self) -> &Ledger {
        &self.world.ledger
    }
}

/// The 16 bytes that a uuid is in a statement.
fn bytes(id: &str) -> Vec<u8> {
    let digits: Vec<char> = id.chars().filter(|c| *c != '-').collect();
    let pair = |pair: &[char]| u8::from_str_radix(&String::from_iter(pair), 16).unwrap();
    digits.chunks(2).map(pair).collect()
}

/// What was armed has happened by the end of the block, and exactly once.
async fn lost(road: &Proxy, before: u64) {
    let mut swallowed = road.swallowed();
    let waiting = swallowed.wait_for(|count| *count > before);
    let waited = tokio::time::timeout(SOON, waiting).await;
    assert_eq!(*waited.expect("a reply was lost").unwrap(), before + 1);
}

fn count(road: &Proxy) -> u64 {
    *road.swallowed().borrow()
}

fn plan(call: &str, items: Value) -> Value {
    json!({"call": call, "items": items})
}

/// Not idempotent: doing it twice would be seen, and being unsure of it would fail the task.
fn once(key: &str, after_ms: u64) -> Value {
    json!({"step": {"key": key, "after_ms": after_ms}})
}

#[tokio::test(flavor = "multi_thread")]
async fn of_what_gateways_write() {
    let roads = Roads::start().await;
    let road = &roads.gateway;
    let alice = roads.world.cluster.client(0, "alice");

    // Created, with a key and without.
    let before = count(road);
    road.swallow_reply_to("made-without-key");
    let arguments = plan("made-without-key", json!([once("a", 0)]));
    let id = alice.start("chaos_steps", arguments).await.unwrap();
    lost(road, before).await;
    alice.wait_status(&id, "completed", SOON).await.unwrap();

    let before = count(road);
    road.swallow_reply_to("made-with-key");
    let arguments = plan("made-with-key", json!([once("a", 0)]));
    let params = keyed("chaos_steps", arguments, "key");
    let called = alice.request("tools/call", params).send().await.unwrap();
    let id = called.into_result().unwrap()["taskId"].clone();
    lost(road, before).await;
    let id = id.as_str().unwrap();
    alice.wait_status(id, "completed", SOON).await.unwrap();

    // Handed out, when the budget of a held call is over.
    let items = json!([{"pause": 3_000}, once("a", 0)]);
    let calling = alice.start("chaos_quick", plan("handed-out", items));
    let (id, before) = tokio::join!(calling, async {
        let url = roads.postgres.url("system");
        let held = "SELECT id FROM tasks WHERE tool = 'chaos_quick' AND handed_out_at IS NULL";
        let look = async || rows(&url, held).await.ok()?.first()?[0].clone();
        let id = harness::wait::until("the call is held", SOON, look).await;
        let before = count(road);
        road.swallow_reply_to(bytes(&id.unwrap()));
        before
    });
    let id = id.unwrap();
    lost(road, before).await;
    alice.wait_status(&id, "completed", SOON).await.unwrap();

    // Answered.
    let items = json!([{"ask": [{"key": "q"}]}, once("a", 0)]);
    let id = alice
        .start("chaos_ask", plan("answered", items))
        .await
        .unwrap();
    alice
        .wait_status(&id, "input_required", SOON)
        .await
        .unwrap();
    let before = count(road);
    road.swallow_reply_after(["answer-given", "COMMIT"]);
    let answers = json!({"q": accept("answer-given")});
    alice.update(&id, answers).await.unwrap();
    lost(road, before).await;
    let task = alice.wait_status(&id, "completed", SOON).await.unwrap();
    assert_eq!(told(&task["result"])["answers"]["q"], "answer-given");

    // Cancelled, parked and running.
    let items = json!([{"ask": [{"key": "q"}]}]);
    let parked = alice
        .start("chaos_ask", plan("parked", items))
        .await
        .unwrap();
    alice
        .wait_status(&parked, "input_required", SOON)
        .await
        .unwrap();
    let waits = json!({"call": "running", "end": "wait"});
    let running = alice.start("chaos_steps", waits).await.unwrap();
    roads.phase_is(&running, "running").await;
    for id in [parked, running] {
        let before = count(road);
        road.swallow_reply_after([bytes(&id), b"COMMIT".to_vec()]);
        alice.cancel(&id).await.unwrap();
        lost(road, before).await;
        let task = alice.wait_end(&id, SOON).await.unwrap();
        assert_eq!(task["status"], "cancelled", "{task}");
    }

    let url = roads.postgres.url("system");
    let sql = "SELECT count(*), max(tries) FROM tasks";
    let all = rows(&url, sql).await.unwrap().swap_remove(0);
    assert_eq!(all, [Some("6".to_owned()), Some("0".to_owned())]);
    for call in [
        "made-without-key",
        "made-with-key",
        "handed-out",
        "answered",
    ] {
        assert_eq!(roads.ledger().of(call)["a"], 1, "{call}");
    }
}

/// Where more waits than there are places, a worker takes whatever is next, for one place or for many in one
/// statement: the jobs that it got without knowing are found again.
#[tokio::test(flavor = "multi_thread")]
async fn of_a_claim_by_turn() {
    for places in [1, 4] {
        let mut roads = Roads::start_with(&format!("[worker]\nslots = {places}\n")).await;
        let alice = roads.world.cluster.client(0, "alice");
        roads.world.cluster.workers[0].freeze();
        let mut claimed = Vec::new();
        for n in 0..2 * places + 1 {
            let plan = plan(&format!("by-turn-{n}"), json!([once("a", 0)]));
            claimed.push(alice.start("chaos_steps", plan).await.unwrap());
        }
        let before = count(&roads.worker);
        // What the statement shall do, as an argument: no task is named in it.
        roads.worker.swallow_reply_to(*b"\0\0\0\x04take");
        roads.world.cluster.workers[0].thaw();
        lost(&roads.worker, before).await;
        for (n, id) in claimed.iter().enumerate() {
            let task = alice.wait_end(id, SOON).await.unwrap();
            assert_eq!(task["status"], "completed", "{task}");
            let once = ("1".to_owned(), "0".to_owned());
            assert_eq!(roads.attempts(id).await, once);
            assert_eq!(roads.ledger().of(&format!("by-turn-{n}"))["a"], 1);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_what_workers_write() {
    let mut roads = Roads::start().await;
    let alice = roads.world.cluster.client(0, "alice");

    // Claimed.
    roads.world.cluster.workers[0].freeze();
    let claimed = plan("claimed", json!([once("a", 0)]));
    let claimed = alice.start("chaos_steps", claimed).await.unwrap();
    let before = count(&roads.worker);
    roads.worker.swallow_reply_to(bytes(&claimed));
    roads.world.cluster.workers[0].thaw();
    lost(&roads.worker, before).await;
    alice
        .wait_status(&claimed, "completed", SOON)
        .await
        .unwrap();
    let road = &roads.worker;

    // Begun: the first that is sent of a step. (No word of a statement is like these keys.)
    let before = count(road);
    road.swallow_reply_to("key-begun");
    let begun = plan("a step", json!([once("key-begun", 0)]));
    let begun = alice.start("chaos_steps", begun).await.unwrap();
    lost(road, before).await;
    alice.wait_status(&begun, "completed", SOON).await.unwrap();

    // Finished: what is sent of it once it has acted. And a heartbeat of the same task.
    let finished = plan(
        "finished",
        json!([once("key-done", 1_000), {"pause": 1_500}]),
    );
    let finished = alice.start("chaos_steps", finished).await.unwrap();
    let acted = async || (roads.ledger().of("finished").len() == 1).then_some(());
    harness::wait::until("it acted", SOON, acted).await.unwrap();
    let before = count(road);
    road.swallow_reply_to("key-done");
    lost(road, before).await;
    road.swallow_reply_to(bytes(&finished));
    lost(road, before + 1).await;
    alice
        .wait_status(&finished, "completed", SOON)
        .await
        .unwrap();

    // Parked.
    let before = count(road);
    road.swallow_reply_to("key-asked");
    let items = json!([{"ask": [{"key": "key-asked"}]}, once("a", 0)]);
    let parked = alice
        .start("chaos_ask", plan("parked", items))
        .await
        .unwrap();
    lost(road, before).await;
    let task = alice
        .wait_status(&parked, "input_required", SOON)
        .await
        .unwrap();
    assert_eq!(task["inputRequests"].as_object().unwrap().len(), 1);
    assert_eq!(roads.attempts(&parked).await, ("1".into(), "0".into()));
    let answers = json!({"key-asked": accept("yes")});
    alice.update(&parked, answers).await.unwrap();
    alice.wait_status(&parked, "completed", SOON).await.unwrap();

    // Completed and failed: what is sent of the end.
    let before = count(road);
    road.swallow_reply_to(r#"call\":\"completed-here"#);
    let completed = plan("completed-here", json!([once("a", 0)]));
    let completed = alice.start("chaos_steps", completed).await.unwrap();
    lost(road, before).await;
    let task = alice.wait_end(&completed, SOON).await.unwrap();
    assert_eq!(told(&task["result"])["call"], "completed-here", "{task}");

    let before = count(road);
    road.swallow_reply_to("planned to fail");
    let failed = json!({"call": "failed", "items": [once("a", 0)], "end": "failed"});
    let failed = alice.start("chaos_steps", failed).await.unwrap();
    lost(road, before).await;
    let task = alice.wait_end(&failed, SOON).await.unwrap();
    assert_eq!(task["error"]["code"], 4711, "{task}");

    // Tried again: counted once.
    let before = count(road);
    road.swallow_reply_to("planned to be tried again");
    let items = json!([once("a", 0), {"retry": 1}]);
    let retried = alice
        .start("chaos_steps", plan("retried", items))
        .await
        .unwrap();
    lost(road, before).await;
    alice
        .wait_status(&retried, "completed", SOON)
        .await
        .unwrap();
    assert_eq!(roads.attempts(&retried).await, ("2".into(), "1".into()));

    // Stopped.
    let waits = json!({"call": "stopped", "end": "wait"});
    let stopped = alice.start("chaos_steps", waits).await.unwrap();
    roads.phase_is(&stopped, "running").await;
    let before = count(road);
    road.swallow_reply_to(bytes(&stopped));
    alice.cancel(&stopped).await.unwrap();
    lost(road, before).await;
    // A heartbeat's, perhaps: then also that of what follows.
    road.swallow_reply_to(bytes(&stopped));
    let task = alice.wait_end(&stopped, SOON).await.unwrap();
    assert_eq!(task["status"], "cancelled", "{task}");

    for id in [&claimed, &begun, &finished, &completed, &failed, &stopped] {
        let (attempt, tries) = roads.attempts(id).await;
        assert_eq!((&*attempt, &*tries), ("1", "0"), "{id}");
    }
    for call in [
        "claimed",
        "a step",
        "finished",
        "parked",
        "completed-here",
        "failed",
        "retried",
    ] {
        let acts = roads.ledger().of(call);
        assert_eq!(acts.values().sum::<usize>(), 1, "{call}: {acts:?}");
    }
}
