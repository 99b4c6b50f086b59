//! Every sweep is safe to kill half way, leaves out what is broken, and shows when it does not succeed;
//! and tools that nobody serves are taken off the list.

use std::collections::BTreeMap;
use std::time::Duration;

use harness::config::Role;
use harness::http::Http;
use harness::node::Node;
use serde_json::{Value, json};

use crate::support::{SOON, System};

/// Tasks for each sweep.
const MANY: i64 = 90;
/// Three at a time, so that a kill is half way.
const SLOW: &str = "[cron]\nbatch = 3\npurge_interval = \"200ms\"\ndeadline_interval = \"200ms\"\nalerts_interval = \"200ms\"\n";

/// Copies of a task with other columns, told apart by `last_error`.
async fn copies(system: &System, of: &str, tag: &str, columns: &str) {
    let sql = format!(
        "INSERT INTO tasks
         SELECT (jsonb_populate_record(t, jsonb_build_object(
             'id', gen_random_uuid(), 'last_error', '{tag}', {columns}))).*
         FROM tasks t, generate_series(1, {MANY}) WHERE t.id = '{of}' RETURNING 1"
    );
    let made = system.database.rows(&sql).await.unwrap();
    assert_eq!(made.len(), usize::try_from(MANY).unwrap());
}

/// How many there are by tag and status; tombstones and alerts as tags of their own.
async fn standing(system: &System) -> BTreeMap<String, i64> {
    let sql = "SELECT last_error || ' ' || status, count(*) FROM tasks WHERE last_error IS NOT NULL GROUP BY 1
               UNION ALL SELECT 'tombstones', count(*) FROM tombstones
               UNION ALL SELECT 'alerts', count(*) FROM alerts a JOIN tasks t ON t.id = a.task_id WHERE t.last_error = 'unread'
               UNION ALL SELECT 'alerted twice', count(*) FROM (SELECT 1 FROM alerts GROUP BY task_id, kind HAVING count(*) > 1) a
               UNION ALL SELECT 'leftovers', (SELECT count(*) FROM inputs i WHERE NOT EXISTS (SELECT FROM tasks t WHERE t.id = i.task_id))";
    let rows = system.database.rows(sql).await.unwrap();
    rows.into_iter()
        .map(|row| {
            let [what, count] = [0, 1].map(|n| row[n].clone().unwrap());
            (what, count.parse().unwrap())
        })
        .collect()
}

/// Killed again and again in the middle of all sweeps, crons bring every task to the end that one
/// undisturbed cron would.
#[tokio::test(flavor = "multi_thread")]
async fn sweeps_killed_half_way_come_to_the_same_end() {
    let mut system = System::with(1, 1, SLOW).await;
    let alice = system.cluster.client(0, "alice");
    let done = alice.start("slow_compute", json!({"seconds": 0}));
    let done = done.await.unwrap();
    alice.wait_status(&done, "completed", SOON).await.unwrap();
    let asks = alice.start("confirm_delete", json!({"filename": "a"}));
    let asks = asks.await.unwrap();
    alice
        .wait_status(&asks, "input_required", SOON)
        .await
        .unwrap();
    system.cluster.workers[0].stop(SOON).await.unwrap();
    system.cluster.crons[0].kill9();
    let queued = "'status', 'working', 'phase', 'queued', 'result', NULL, 'finished_at', NULL, 'run_at', now() + interval '1 hour'";
    let past = "now() - interval '1 s'";
    copies(
        &system,
        &done,
        "expiring",
        &format!("{queued}, 'expires_at', {past}"),
    )
    .await;
    copies(
        &system,
        &done,
        "unheld",
        &format!("{queued}, 'handed_out_at', NULL, 'held_until', {past}"),
    )
    .await;
    copies(
        &system,
        &done,
        "stopped",
        &format!("{queued}, 'stop_requested_at', {past}, 'stop_reason', 'cancelled'"),
    )
    .await;
    copies(
        &system,
        &asks,
        "overdue",
        &format!("'input_deadline_at', {past}"),
    )
    .await;
    let questions = format!(
        "INSERT INTO inputs SELECT (jsonb_populate_record(i, jsonb_build_object('task_id', t.id, 'deadline_at', {past}))).*
         FROM inputs i, tasks t WHERE i.task_id = '{asks}' AND t.last_error = 'overdue' RETURNING 1"
    );
    system.database.rows(&questions).await.unwrap();
    copies(&system, &done, "finished", &format!("'expires_at', {past}")).await;
    copies(
        &system,
        &done,
        "unread",
        "'status', 'failed', 'result', NULL, 'error', '\\x7b7d', 'finished_at', now() - interval '1 day', 'first_fetched_at', NULL",
    )
    .await;
    let expected: BTreeMap<String, i64> = [
        ("expiring failed", MANY),
        ("unheld cancelled", MANY),
        ("stopped cancelled", MANY),
        ("overdue failed", MANY),
        ("unread failed", MANY),
        ("tombstones", MANY),
        ("alerts", MANY),
        ("alerted twice", 0),
        ("leftovers", 0),
    ]
    .map(|(what, count)| (what.to_owned(), count))
    .into();
    let mut before = standing(&system).await;
    for _ in 0..6 {
        system.cluster.crons[0].start_again().unwrap();
        let moved = async || standing(&system).await;
        harness::wait::for_state("something moved", SOON, moved, |now| *now != before)
            .await
            .unwrap();
        system.cluster.crons[0].kill9();
        // Stands for the time after which a silent leader is replaced.
        let sql = "UPDATE sweep_leases SET lease_until = now() RETURNING 1";
        system.database.rows(sql).await.unwrap();
        before = standing(&system).await;
        if before == expected {
            break;
        }
    }
    system.cluster.crons[0].start_again().unwrap();
    let now = async || standing(&system).await;
    harness::wait::for_state("all ended", SOON, now, |now| *now == expected)
        .await
        .unwrap();
    // And one that finds it all done changes nothing.
    system.cluster.crons[0].restart().await.unwrap();
    assert_eq!(standing(&system).await, expected);
}

async fn readiness(node: &Node) -> Option<Value> {
    let http = Http::new(Duration::from_secs(5));
    let answer = http.get(&format!("{}/readyz", node.admin())).await.ok()?;
    serde_json::from_slice(&answer.body).ok()
}

/// A row that Postgres refuses to change: the others are swept, and the sweep counts as failed at
/// every replica until somebody has mended it.
#[tokio::test(flavor = "multi_thread")]
async fn a_broken_row_stops_no_other_and_is_shown_by_every_replica() {
    let settings = "[cron]\ndeadline_interval = \"200ms\"\n";
    let mut system = System::with(1, 1, settings).await;
    let cron = system.cluster.add(Role::Cron).unwrap();
    cron.ready().await.unwrap();
    let alice = system.cluster.client(0, "alice");
    let mut asking = Vec::new();
    for _ in 0..3 {
        let id = alice.start("confirm_delete", json!({"filename": "secret zwieback"}));
        let id = id.await.unwrap();
        alice
            .wait_status(&id, "input_required", SOON)
            .await
            .unwrap();
        asking.push(id);
    }
    let broken = asking[1].clone();
    let poison = format!(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             RAISE EXCEPTION 'refused by a test' USING ERRCODE = 'check_violation', DETAIL = OLD::text; END $$;
         CREATE TRIGGER refuse BEFORE UPDATE ON tasks FOR EACH ROW WHEN (OLD.id = '{broken}') EXECUTE FUNCTION refuse()"
    );
    system.database.rows(&poison).await.unwrap();
    let late = "ALTER TABLE tasks DISABLE TRIGGER refuse;
                UPDATE tasks SET expires_at = now(); ALTER TABLE tasks ENABLE TRIGGER refuse";
    system.database.rows(late).await.unwrap();
    for id in [&asking[0], &asking[2]] {
        let failed = alice.wait_status(id, "failed", SOON).await.unwrap();
        assert_eq!(failed["error"]["data"]["reason"], "task_expired");
    }
    for node in &system.cluster.crons {
        let look = async || readiness(node).await;
        harness::wait::for_state("expire is overdue", SOON, look, |body| {
            let told = body.as_ref().map(|body| &body["failing"]["expire"]);
            told.and_then(Value::as_str)
                .is_some_and(|told| told.contains("three intervals"))
        })
        .await
        .unwrap();
    }
    let mut failures = 0.0;
    for node in &system.cluster.crons {
        let name = "mcp_tasks_cron_failures_total";
        failures += node.metric(name, "sweep=\"expire\"").await.unwrap();
        // The row is named, and nothing of it is shown.
        let log = std::fs::read_to_string(node.log()).unwrap();
        // As text, and as Postgres prints bytes.
        let shown = ["zwieback", "7a7769656261636b"]
            .iter()
            .any(|secret| log.contains(secret));
        assert!(!shown, "{log}");
    }
    assert!(failures > 0.0);
    let logs = system.cluster.crons.iter();
    let logs = logs.map(|node| std::fs::read_to_string(node.log()).unwrap());
    let logs: String = logs.collect();
    assert!(logs.contains(&broken) && logs.contains("refused by a test"));
    let mend = "DROP TRIGGER refuse ON tasks";
    system.database.rows(mend).await.unwrap();
    alice.wait_status(&broken, "failed", SOON).await.unwrap();
    for node in &system.cluster.crons {
        let look = async || readiness(node).await;
        let ok = |body: &Option<Value>| body.as_ref().is_some_and(|body| body["status"] == "ok");
        harness::wait::for_state("ready", SOON, look, ok)
            .await
            .unwrap();
    }
}

/// No worker serves a tool any more: whoever listens is told, at every gateway, and calls of it are
/// refused; its tasks go on when a worker is back, and so do its calls.
#[tokio::test(flavor = "multi_thread")]
async fn tools_that_nobody_serves_are_taken_off_the_list_and_come_back() {
    let settings = "[cron]\npurge_interval = \"200ms\"\ntool_wait = \"4s\"\n[worker]\npublish_interval = \"1s\"\n";
    let mut system = System::with(2, 1, settings).await;
    let clients = [0, 1].map(|gateway| system.cluster.client(gateway, "alice"));
    let [alice, other] = &clients;
    let asking = alice.start("confirm_delete", json!({"filename": "a"}));
    let asking = asking.await.unwrap();
    alice
        .wait_status(&asking, "input_required", SOON)
        .await
        .unwrap();
    let mut listens = Vec::new();
    for client in &clients {
        let mut listen = client
            .listen(json!({"toolsListChanged": true}))
            .await
            .unwrap();
        listen.next(SOON).await.unwrap();
        listens.push(listen);
    }
    let names = async |client: &harness::client::Client| {
        let tools = client.list().await.unwrap();
        let names = tools.into_iter().map(|tool| tool["name"].clone());
        names.collect::<Vec<_>>()
    };
    let all = names(alice).await;
    assert!(all.len() > 3);
    // A queued task, whose worker is gone.
    system.cluster.workers[0].kill9();
    let queued = alice.start("slow_compute", json!({"seconds": 0}));
    let queued = queued.await.unwrap();
    for (client, listen) in clients.iter().zip(&mut listens) {
        let told = listen.next(SOON).await.unwrap().unwrap();
        assert_eq!(told["method"], "notifications/tools/list_changed");
        let gone = async || names(client).await;
        harness::wait::for_state("an empty list", SOON, gone, Vec::is_empty)
            .await
            .unwrap();
        let call = json!({"name": "slow_compute", "arguments": {"seconds": 0}});
        let refused = client.request("tools/call", call).send().await.unwrap();
        assert_eq!(refused.error_code(), Some(-32602));
        let message = refused.error()["message"].as_str().unwrap();
        assert!(message.contains("slow_compute"), "{message}");
    }
    let task = other.get(&queued).await.unwrap();
    assert_eq!(task["status"], "working");
    let yes = json!({"confirm": {"action": "accept", "content": {"confirm": true}}});
    let questions = other.get(&asking).await.unwrap();
    let key = questions["inputRequests"]
        .as_object()
        .unwrap()
        .keys()
        .next()
        .cloned();
    let yes = json!({ key.unwrap(): yes["confirm"] });
    other.update(&asking, yes).await.unwrap();
    system.cluster.workers[0].start_again().unwrap();
    for (client, listen) in clients.iter().zip(&mut listens) {
        let told = listen.next(SOON).await.unwrap().unwrap();
        assert_eq!(told["method"], "notifications/tools/list_changed");
        let back = async || names(client).await;
        harness::wait::for_state("the list is back", SOON, back, |now| *now == all)
            .await
            .unwrap();
    }
    other.wait_status(&queued, "completed", SOON).await.unwrap();
    other.wait_end(&asking, SOON).await.unwrap();
    let again = alice.start("slow_compute", json!({"seconds": 0}));
    let again = again.await.unwrap();
    other.wait_status(&again, "completed", SOON).await.unwrap();
}

/// A machine that slept with all that ran on it: to Postgres' clock nobody was heard of for an hour, and
/// workers have not had the time to say anything. Nothing is taken off the list.
#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_slept_takes_no_tool_off_the_list() {
    let settings = "[cron]\npurge_interval = \"4s\"\ntool_wait = \"9s\"\n[worker]\npublish_interval = \"3s\"\n";
    let mut system = System::with(1, 1, settings).await;
    let changes = "SELECT string_agg(name || listed || changed_at, ',' ORDER BY name) FROM tools";
    let before = system.database.rows(changes).await.unwrap();
    // Long enough for the sweep to judge, and right after a turn: the next one is seconds away.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let turn = "SELECT now() - last_success_at < interval '300 ms' FROM sweep_leases WHERE sweep = 'catalogue'";
    let turned = async || system.database.rows(turn).await.unwrap()[0][0].clone();
    harness::wait::for_state("a turn", SOON, turned, |turned| {
        turned.as_deref() == Some("t")
    })
    .await
    .unwrap();
    let sleep =
        "BEGIN; UPDATE sweep_leases SET last_success_at = last_success_at - interval '1 hour';
                 UPDATE tools SET last_seen_at = last_seen_at - interval '1 hour'; COMMIT";
    system.database.rows(sleep).await.unwrap();
    let swept = "SELECT last_success_at > now() - interval '1 minute' FROM sweep_leases WHERE sweep = 'catalogue'";
    let swept = async || system.database.rows(swept).await.unwrap()[0][0].clone();
    harness::wait::for_state("the next turn", SOON, swept, |swept| {
        swept.as_deref() == Some("t")
    })
    .await
    .unwrap();
    system.cluster.workers[0].thaw();
    assert_eq!(system.database.rows(changes).await.unwrap(), before);
}
