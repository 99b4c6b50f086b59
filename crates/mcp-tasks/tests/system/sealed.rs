//! With encryption at rest: a life of questions, steps, cancels and callbacks; a rotation while it goes on;
//! processes that lack the key; and a principal that is erased from the command line.

use std::process::{Command, Output};

use harness::redis::Redis;
use harness::temp::Temp;
use harness::wait;
use serde_json::{Value, json};

use crate::callbacks::{Service, post};
use crate::support::{self, SOON, System, keyed, migrate, set, text};

/// In everything that is said.
const SAID: &str = "chatter-0815";
const CHAOS: [&str; 3] = ["chaos_steps", "chaos_ask", "chaos_undo"];

/// Nobody is taken for lost while he is frozen.
const LEASES: &str = "[postgres]\nlease = \"60s\"\nheartbeat = \"1s\"\n";

/// `[encryption]` with these keys; the first seals.
fn keys(ids: &[&str]) -> String {
    let key = |id: &&str| {
        let key = format!("{:02x}", id.bytes().fold(0_u8, u8::wrapping_add)).repeat(32);
        format!("{{ id = \"{id}\", key = \"{key}\" }}")
    };
    let keys: Vec<String> = ids.iter().map(key).collect();
    format!("[encryption]\nkeys = [{}]\n", keys.join(", "))
}

fn plan(items: Value, end: &str) -> Value {
    json!({ "call": SAID, "items": items, "end": end })
}

/// A system whose tools follow plans, and what it keeps its files in.
async fn system(ids: &[&str], tools: &str, more: &str) -> (System, Temp) {
    let dir = Temp::new().unwrap();
    let ledger = dir.path().join("ledger");
    let settings = format!(
        "[tools]\nfixtures = \"chaos\"\nledger = {ledger:?}\n{tools}{}{more}",
        keys(ids)
    );
    let database = harness::postgres::test_database(migrate).await.unwrap();
    let redis = Redis::temporary().await.unwrap();
    let plan = support::plan(database.url(), &redis.url());
    let cluster = plan.of(1, 1, 1).settings(&settings).start().await.unwrap();
    cluster.wait_for_tools(0, &CHAOS).await.unwrap();
    let system = System {
        cluster,
        database,
        redis,
    };
    (system, dir)
}

/// A command of an operator, with the settings of cron or these keys.
fn operate(system: &mut System, arguments: &[&str], ids: Option<&[&str]>) -> Output {
    let dir = system.cluster.crons[0].plan_mut().dir.clone();
    let mut settings = std::fs::read_to_string(dir.join("cron-1.toml")).unwrap();
    if let Some(ids) = ids {
        let mut table: toml::Table = settings.parse().unwrap();
        harness::config::merge(&mut table, &keys(ids).parse().unwrap());
        settings = table.to_string();
    }
    let file = dir.join("operator.toml");
    std::fs::write(&file, settings).unwrap();
    Command::new(env!("CARGO_BIN_EXE_mcp-tasks"))
        .args(arguments)
        .arg("--config")
        .arg(&file)
        .env("MCP_TASKS_OPERATOR", "olga")
        .output()
        .unwrap()
}

fn shown(output: &Output) -> String {
    let said = [&output.stdout[..], &output.stderr].concat();
    String::from_utf8_lossy(&said).into_owned()
}

/// Rows of any table with this text, or its bytes as Postgres shows them.
async fn rows_with(system: &System, word: &str) -> Vec<String> {
    let hex: String = word.bytes().map(|b| format!("{b:02x}")).collect();
    let tables = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()";
    let mut found = Vec::new();
    for table in system.database.rows(tables).await.unwrap() {
        let table = table[0].clone().unwrap();
        let sql = format!("SELECT '{table}: ' || t::text FROM {table} t");
        let rows = system.database.rows(&sql).await.unwrap();
        let rows = rows.into_iter().flatten().flatten();
        found.extend(rows.filter(|row| row.contains(word) || row.contains(&hex)));
    }
    found
}

/// Waits until so many rows fit.
async fn until(system: &System, what: &str, condition: &str, rows: i64) {
    let sql = format!("SELECT count(*) FROM tasks WHERE {condition}");
    let look = async || system.count(&sql).await;
    let seen = wait::for_state(what, SOON, look, |count| *count == rows);
    seen.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_life_goes_on_sealed_while_keys_rotate() {
    let service = Service::start().await;
    let dir = Temp::new().unwrap();
    let file = dir.path().join("tools.toml");
    let tools = format!(
        "[[http]]\nname = \"job\"\ndescription = \"D.\"\nurl = \"{}/job\"\ncallback_wait = \"1h\"\n\
         effects = \"repeatable\"\n[http.policy]\ninline_budget = \"0s\"\n",
        service.url
    );
    std::fs::write(&file, tools).unwrap();
    let more = format!(
        "[callbacks]\nkeys = [\"{}\"]\npublic_url = \"http://callbacks.example\"\n",
        "1f".repeat(32)
    );
    let tools = format!("file = {file:?}\n");
    let ids = ["old", "new", "newer"];
    let (mut system, _files) = system(&ids, &tools, &more).await;
    let mut listed = CHAOS.to_vec();
    listed.push("job");
    system.cluster.wait_for_tools(0, &listed).await.unwrap();
    let alice = system.cluster.client(0, "alice");

    let ask = json!([{ "step": { "key": "act" } }, { "ask": [{ "key": "word" }] }]);
    let call = keyed("chaos_ask", plan(ask, "result"), "once");
    let asks = alice.request("tools/call", call.clone()).send().await;
    let asks = asks.unwrap().into_result().unwrap()["taskId"].clone();
    let asks = asks.as_str().unwrap().to_owned();
    let seen = alice.wait_status(&asks, "input_required", SOON).await;
    assert!(seen.unwrap()["inputRequests"]["word"].is_object());
    let runs = alice.start("chaos_steps", plan(json!([]), "wait")).await;
    let runs = runs.unwrap();
    until(
        &system,
        "it runs",
        &format!("id = '{runs}' AND phase = 'running'"),
        1,
    )
    .await;
    let called = alice.start("job", json!({})).await.unwrap();
    let url = service.request(0).await.url;
    let url = url.strip_prefix("http://callbacks.example").unwrap();
    let url = system.cluster.gateways[0].url().replace("/mcp", url);
    let waits = format!("id = '{called}' AND phase = 'queued'");
    until(&system, "it waits for its service", &waits, 1).await;
    let half = json!({ "progress": 1, "message": format!("half of {SAID}") });
    assert_eq!(post(&url, half.to_string()).await.0, 202);
    let told = alice.wait(&called, SOON, |task| {
        task["statusMessage"] == format!("half of {SAID}")
    });
    told.await.unwrap();
    assert_eq!(rows_with(&system, SAID).await, Vec::<String>::new());

    // By the command, while all three live.
    until(&system, "sealed by the first", "sealed_by = 'old'", 3).await;
    // A cron that stays leads its sweeps, and would do it itself.
    system.cluster.crons[0].stop(SOON).await.unwrap();
    let rotated = Some(&["new", "old", "newer"][..]);
    let swept = wait::until("the command leads the sweep", SOON, async || {
        let output = operate(&mut system, &["cron", "run", "rewrap"], rotated);
        assert!(output.status.success(), "{}", shown(&output));
        shown(&output).contains("swept").then_some(())
    });
    swept.await.unwrap();
    until(&system, "sealed by the next", "sealed_by = 'new'", 3).await;
    let yes = json!({ "word": { "action": "accept", "content": { "value": SAID } } });
    alice.update(&asks, yes).await.unwrap();
    let task = alice.wait_status(&asks, "completed", SOON).await.unwrap();
    let said: Value = serde_json::from_str(&text(&task["result"])).unwrap();
    assert_eq!(said["answers"]["word"], SAID, "{task}");
    let result = json!({ "text": SAID });
    assert_eq!(post(&url, result.to_string()).await.0, 200);
    let task = alice.wait_status(&called, "completed", SOON).await.unwrap();
    assert_eq!(text(&task["result"]), SAID);

    // By the sweep, while the last one runs.
    let next = format!(
        "{}[cron]\npurge_interval = \"200ms\"\n",
        keys(&["newer", "new", "old"])
    );
    set(&mut system.cluster.crons[0], &next);
    system.cluster.crons[0].restart().await.unwrap();
    until(&system, "sealed by the last", "sealed_by = 'newer'", 3).await;
    alice.cancel(&runs).await.unwrap();
    alice.wait_status(&runs, "cancelled", SOON).await.unwrap();
    // The others are not needed any more.
    for node in system.cluster.nodes() {
        set(node, &keys(&["newer"]));
        node.restart().await.unwrap();
    }
    system.cluster.wait_for_tools(0, &listed).await.unwrap();
    for id in [&asks, &called] {
        let task = alice.get(id).await.unwrap();
        assert!(task["result"].to_string().contains(SAID), "{task}");
    }
    let again = alice.request("tools/call", call).send().await.unwrap();
    let again = again.into_result().unwrap().to_string();
    assert!(
        again.contains(SAID) || again.contains(&asks),
        "the same task: {again}"
    );
    assert_eq!(system.count("SELECT count(*) FROM tasks").await, 3);
    assert_eq!(rows_with(&system, SAID).await, Vec::<String>::new());
    let output = operate(&mut system, &["doctor"], None);
    assert!(
        shown(&output).contains("new tasks are sealed with key \"newer\""),
        "{}",
        shown(&output)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_key_all_waits_and_with_it_all_goes_on() {
    let (mut system, _dir) = system(&["k1"], "", "").await;
    let alice = system.cluster.client(0, "alice");
    let done = alice.start("chaos_steps", plan(json!([]), "result")).await;
    let done = done.unwrap();
    alice.wait_status(&done, "completed", SOON).await.unwrap();
    system.cluster.workers[0].stop(SOON).await.unwrap();
    let steps = json!([{ "step": { "key": "act" } }]);
    let waits = alice.start("chaos_steps", plan(steps, "result")).await;
    let waits = waits.unwrap();
    for lacking in [&[][..], &["k2"]] {
        for node in system.cluster.nodes() {
            set(node, &keys(lacking));
            node.restart().await.unwrap();
        }
        let answer = alice.request("tasks/get", json!({ "taskId": done }));
        let answer = answer.send().await.unwrap();
        assert_eq!(answer.status, 503, "{:?}", answer.body);
        assert_eq!(answer.error_code(), Some(-32603));
        assert_eq!(answer.error()["data"]["reason"], "key_missing");
        assert!(!answer.header("retry-after").is_empty());
        let unopened = "mcp_tasks_store_unopened_total";
        let gateway = &system.cluster.gateways[0];
        let counted = gateway.metric(unopened, "why=\"key_missing\"").await;
        assert!(counted.unwrap() > 0.0);
        // Not tried, and not lost.
        let put_off = format!(
            "id = '{waits}' AND phase = 'queued' AND tries = 0 AND run_at > now() + interval '5 s'"
        );
        until(&system, "the job is put off", &put_off, 1).await;
        let output = operate(&mut system, &["doctor"], Some(lacking));
        assert!(!output.status.success());
        let named = "2 tasks need key \"k1\", which encryption.keys lacks";
        assert!(shown(&output).contains(named), "{}", shown(&output));
        // For the next round: nobody has tried yet.
        let due = format!(
            "UPDATE tasks SET run_at = now(), asleep = false WHERE id = '{waits}' RETURNING 1"
        );
        system.cluster.workers[0].kill9();
        system.database.rows(&due).await.unwrap();
    }
    for node in system.cluster.nodes() {
        set(node, &keys(&["k2", "k1"]));
        node.restart().await.unwrap();
    }
    let output = operate(&mut system, &["tasks", "requeue", &waits], None);
    assert!(output.status.success(), "{}", shown(&output));
    for id in [&done, &waits] {
        let task = alice.wait_status(id, "completed", SOON).await.unwrap();
        assert!(text(&task["result"]).contains(SAID), "{task}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_principal_is_erased_from_the_command_line() {
    let (mut system, _dir) = system(&["k1"], "", LEASES).await;
    let (erica, bob) = ("erica-4711", system.cluster.client(0, "bob"));
    let client = system.cluster.client(0, erica);
    let kept = bob.start("chaos_steps", plan(json!([]), "result")).await;
    let kept = kept.unwrap();
    bob.wait_status(&kept, "completed", SOON).await.unwrap();
    let call = keyed("chaos_steps", plan(json!([]), "result"), "once");
    let done = client.request("tools/call", call.clone()).send().await;
    let done = done.unwrap().into_result().unwrap()["taskId"].clone();
    let done = done.as_str().unwrap().to_owned();
    client.wait_status(&done, "completed", SOON).await.unwrap();
    let undo = json!([{ "step": { "key": "act", "undo": {} } }, { "ask": [{ "key": "word" }] }]);
    let asks = client.start("chaos_undo", plan(undo, "result")).await;
    let asks = asks.unwrap();
    let asking = client.wait_status(&asks, "input_required", SOON).await;
    asking.unwrap();
    let runs = client.start("chaos_steps", plan(json!([]), "wait")).await;
    let runs = runs.unwrap();
    until(
        &system,
        "it runs",
        &format!("id = '{runs}' AND phase = 'running'"),
        1,
    )
    .await;
    let issuer = format!("SELECT issuer FROM tasks WHERE id = '{done}'");
    let issuer = system.database.rows(&issuer).await.unwrap()[0][0].clone();
    let issuer = issuer.unwrap();
    let whose = ["tasks", "erase", "--principal", &issuer, erica];

    for bad in [
        &["tasks", "erase"][..],
        &["tasks", "erase", "--principal", erica],
        &[
            "tasks",
            "erase",
            "--principal",
            &issuer,
            erica,
            "x",
            "--yes",
        ],
        &[
            "tasks",
            "erase",
            "--principal",
            &issuer,
            erica,
            "--yes",
            "--wait",
            "soon",
        ],
        &["tasks", "erase", "--principal", &issuer, "", "--yes"],
        &["tasks", "erase", "--principal", "", erica, "--yes"],
    ] {
        let output = operate(&mut system, bad, None);
        assert!(!output.status.success(), "{bad:?}: {}", shown(&output));
        assert!(!output.stderr.is_empty(), "{bad:?}");
    }
    let look = [&whose[..], &["--output", "json"]].concat();
    let output = operate(&mut system, &look, None);
    assert!(output.status.success(), "{}", shown(&output));
    let there: Value = serde_json::from_slice(&output.stdout).unwrap();
    let (live, ended) = (&there[0]["live"], &there[0]["ended"]);
    assert_eq!((live, ended), (&json!(2), &json!(1)), "{there}");
    assert_eq!(system.count("SELECT count(*) FROM tasks").await, 4);
    assert_eq!(system.count("SELECT count(*) FROM audit").await, 0);

    // Nobody stops it meanwhile: it is named, and the same command goes on later.
    system.cluster.workers[0].freeze();
    let output = operate(
        &mut system,
        &[&whose[..], &["--yes", "--wait", "0s"]].concat(),
        None,
    );
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    let told = shown(&output);
    assert!(
        told.contains(&runs) && told.contains("run the same command again"),
        "{told}"
    );
    system.cluster.workers[0].thaw();
    let output = operate(&mut system, &[&whose[..], &["--yes"]].concat(), None);
    assert!(output.status.success(), "{}", shown(&output));
    assert_eq!(rows_with(&system, erica).await, Vec::<String>::new());
    assert_eq!(system.count("SELECT count(*) FROM tasks").await, 1);
    let named = "SELECT count(*) FROM audit WHERE command = 'tasks erase' AND operator = 'olga' \
                 AND target->>'principal' LIKE 'erased:%'";
    assert_eq!(system.count(named).await, 2);
    for outcome in ["erased", "partly_erased"] {
        let so = format!("{named} AND outcome = '{outcome}'");
        assert_eq!(system.count(&so).await, 1, "{outcome}");
    }

    // As if they had never been.
    let foreign = client.request("tasks/get", json!({ "taskId": kept }));
    let unknown = foreign.send().await.unwrap().error().clone();
    for id in [&done, &asks, &runs] {
        let answer = client.request("tasks/get", json!({ "taskId": id }));
        assert_eq!(*answer.send().await.unwrap().error(), unknown);
    }
    let task = bob.get(&kept).await.unwrap();
    assert!(text(&task["result"]).contains(SAID), "{task}");
    // The same key: a new task.
    let again = client.request("tools/call", call).send().await.unwrap();
    let again = again.into_result().unwrap()["taskId"].clone();
    assert!(again.is_string() && again != json!(done), "{again}");
    // Again, of nobody: nothing to do.
    let nobody = ["tasks", "erase", "--principal", &issuer, "nobody", "--yes"];
    assert!(operate(&mut system, &nobody, None).status.success());
}
