//! Secrets are planted wherever a caller, a tool or the settings may bring one, everything that ends in a
//! particular way is made to happen, and then all that left the processes is searched: logs at the level
//! trace, spans, metrics, alerts, answers to others, arguments of processes, what operators see, Redis, and,
//! with encryption at rest, every row in Postgres.

use std::collections::BTreeMap;
use std::process::Command;

use harness::cluster::{Cluster, Plan};
use harness::hook::{Hook, Manner as Takes};
use harness::node::Node;
use harness::postgres::Database;
use harness::redis::Redis;
use harness::temp::Temp;
use harness::wait;
use serde_json::{Value, json};

use crate::collector::{Collector, Manner};
use crate::stack::{SOON, migrate, plan};

/// Of callers and tools: in no output, and with encryption in no row.
const SAID: [&str; 7] = [
    "hush-argument",
    "hush-answer",
    "hush-malformed",
    "hush-error",
    "hush-output",
    "hush-script",
    "hush-baggage",
];
/// Of callers: in no output. Issuer and subject, which the token is in this mode, and keys are clear in Postgres.
const SHOWN: [&str; 2] = ["hush-token", "hush-idempotency"];
/// Of the settings.
const KEPT: [&str; 6] = [
    "a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1",
    "b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2",
    "c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3",
    "whsec_aHVzaGh1c2hodXNoaHVzaGh1c2hodXNo",
    "hush-redis",
    "hush-path",
];

struct Planted {
    cluster: Cluster,
    database: Database,
    redis: Redis,
    hook: Hook,
    _files: Temp,
}

async fn planted(collector: &Collector) -> Planted {
    let database = harness::postgres::test_database(migrate).await.unwrap();
    let redis = Redis::temporary().await.unwrap();
    let user = [
        "ACL",
        "SETUSER",
        "app",
        "on",
        ">hush-redis",
        "~*",
        "&*",
        "+@all",
    ];
    redis.command(&user).await.unwrap();
    let hook = Hook::start(Takes::Take).await.unwrap();
    let files = Temp::new().unwrap();
    let key_file = files.path().join("key");
    std::fs::write(&key_file, KEPT[2]).unwrap();
    let ledger = files.path().join("ledger");
    let settings = format!(
        "filter = \"trace\"\n\
         [postgres]\nlease = \"3s\"\nheartbeat = \"1s\"\n\
         [gateway]\ndrain_delay = \"0s\"\nrequest_state_keys = [{:?}]\n\
         [callbacks]\nkeys = [{:?}]\npublic_url = \"http://127.0.0.1:1\"\n\
         [encryption]\nkeys = [{{ id = \"k1\", key_file = {key_file:?} }}]\n\
         [tools]\nfixtures = \"chaos\"\nledger = {ledger:?}\nshell = true\n\
         [cron]\nalerts_interval = \"200ms\"\n\
         [logs]\nfilter = \"trace\"\n\
         [traces]\nbatch_delay = \"100ms\"\nendpoint = {:?}\n\
         [alerts]\nunfetched_after = \"1s\"\n\
         [[alerts.receivers]]\nname = \"hook\"\nkind = \"webhook\"\nurl = \"{}/hush-path\"\nsecret = {:?}\nquestions = true\n",
        KEPT[0], KEPT[1], collector.endpoint, hook.url, KEPT[3],
    );
    let settings = settings.strip_prefix("filter = \"trace\"\n").unwrap();
    let address = redis.url().replace("redis://", "redis://app:hush-redis@");
    let binary = env!("CARGO_BIN_EXE_mcp-tasks");
    let cluster = Plan::new(binary, database.url(), &address);
    let cluster = cluster
        .of(1, 1, 1)
        .settings(settings)
        .start()
        .await
        .unwrap();
    let tools = ["chaos_undo", "run_shell"];
    cluster.wait_for_tools(0, &tools).await.unwrap();
    Planted {
        cluster,
        database,
        redis,
        hook,
        _files: files,
    }
}

/// Which secret is in it.
fn found<'a>(bytes: &[u8], secrets: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    secrets.into_iter().find(|secret| {
        let mut parts = bytes.windows(secret.len());
        parts.any(|part| part == secret.as_bytes())
    })
}

fn all() -> impl Iterator<Item = &'static str> {
    SAID.into_iter().chain(SHOWN).chain(KEPT)
}

/// Everything ends in its way; answers to others are handed back.
async fn drive(planted: &mut Planted) -> Vec<Value> {
    let mut others = Vec::new();
    let alice = planted.cluster.client(0, "hush-token");
    let mallory = planted.cluster.client(0, "mallory");
    let ask = json!([
        { "step": { "key": "act", "undo": { "refuses": 1 } } },
        { "ask": [{ "key": "word" }] },
        { "panic": 1 },
        { "retry": 1 },
    ]);
    for end in ["result", "tool_error", "failed"] {
        let params =
            json!({ "name": "chaos_undo", "arguments": plan("hush-argument", ask.clone(), end) });
        let call = alice.request("tools/call", params.clone());
        let key = format!("hush-idempotency-{end}");
        let call = call.idempotency_key(&key);
        let call = call.meta("baggage", json!("user=hush-baggage"));
        let id = call.send().await.unwrap().into_result().unwrap()["taskId"].clone();
        let id = id.as_str().unwrap().to_owned();
        let asks = alice.wait_status(&id, "input_required", SOON).await;
        asks.unwrap();
        let malformed = json!({ "word": { "action": "accept", "content": "hush-malformed" } });
        alice.update(&id, malformed).await.unwrap_err();
        for foreign in [
            mallory.request("tasks/get", json!({ "taskId": id })),
            mallory.request("tasks/cancel", json!({ "taskId": id })),
        ] {
            others.push(foreign.send().await.unwrap().error().clone());
        }
        planted.redis.freeze();
        let answer =
            json!({ "word": { "action": "accept", "content": { "value": "hush-answer" } } });
        alice.update(&id, answer).await.unwrap();
        planted.redis.thaw();
        alice.wait_end(&id, SOON).await.unwrap();
        // The same key for something else.
        let other =
            json!({ "name": "chaos_undo", "arguments": plan("hush-error", json!([]), end) });
        let other = alice.request("tools/call", other);
        let other = other.idempotency_key(&key);
        assert!(other.send().await.unwrap().error_code().is_some());
    }
    let refused = json!({ "name": "chaos_undo", "arguments": plan("x", json!([{ "hush-error": 1 }]), "result") });
    alice.request("tools/call", refused).send().await.unwrap();
    let unknown = json!({ "name": "hush-argument", "arguments": {} });
    alice.request("tools/call", unknown).send().await.unwrap();
    let script = "echo hush-output; echo hush-output >&2; : hush-script; exit 3";
    let shell = alice.start("run_shell", json!({ "script": script, "step": "once" }));
    let shell = shell.await.unwrap();
    alice.wait_end(&shell, SOON).await.unwrap();
    // Nobody reads this one: a receiver is told.
    let unread = alice.start("chaos_undo", plan("hush-argument", json!([]), "failed"));
    let unread = unread.await.unwrap();
    wait::until("an alert", SOON, async || {
        let posts = planted.hook.posts("/hush-path");
        posts
            .iter()
            .any(|post| post.body.contains(&unread))
            .then_some(())
    })
    .await
    .unwrap();
    others
}

/// What operators are shown, by command.
fn operators(planted: &mut Planted) -> BTreeMap<String, Vec<u8>> {
    let node = planted.cluster.nodes().next().unwrap();
    let name = format!("{}.toml", node.name());
    let settings = node.plan_mut().dir.join(name);
    let mut shown = BTreeMap::new();
    for command in [
        "config show",
        "config check",
        "doctor",
        "tasks list",
        "workers",
        "queues",
        "audit",
    ] {
        let mut process = Command::new(env!("CARGO_BIN_EXE_mcp-tasks"));
        let output = process
            .args(command.split(' '))
            .arg("--config")
            .arg(&settings);
        let output = output.output().unwrap();
        shown.insert(command.to_owned(), [output.stdout, output.stderr].concat());
    }
    shown
}

/// Everything in Redis, whatever its type.
const EVERYTHING: &str = r#"
local read = { string = {'GET'}, hash = {'HGETALL'}, set = {'SMEMBERS'}, list = {'LRANGE', 0, -1},
    zset = {'ZRANGE', 0, -1}, stream = {'XRANGE', '-', '+'} }
local function flat(value)
    if type(value) ~= 'table' then return tostring(value) end
    local parts = {}
    for _, part in ipairs(value) do parts[#parts + 1] = flat(part) end
    return table.concat(parts, ' ')
end
local all = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
    local how = read[redis.call('TYPE', key).ok]
    all[#all + 1] = key .. ' = ' .. flat(redis.call(how[1], key, unpack(how, 2)))
end
return table.concat(all, '\n')
"#;

async fn redis(planted: &Planted) -> String {
    let dump = planted.redis.command(&["EVAL", EVERYTHING, "0"]).await;
    format!("{:?}", dump.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn no_planted_secret_is_in_anything_that_is_put_out() {
    let collector = Collector::start(Manner::Prompt).await;
    let mut planted = planted(&collector).await;
    let others = drive(&mut planted).await;
    for answer in &others {
        assert_eq!(
            found(answer.to_string().as_bytes(), all()),
            None,
            "{answer}"
        );
    }
    for (command, shown) in operators(&mut planted) {
        let text = String::from_utf8_lossy(&shown);
        // Whose tasks there are is what operators look for.
        let secrets = all().filter(|secret| *secret != "hush-token");
        assert_eq!(found(&shown, secrets), None, "{command}: {text}");
    }
    for post in planted.hook.posts("/hush-path") {
        // To the receiver, its own address, the owner's name and its signature.
        let told = post.body.replace("hush-token", "");
        assert_eq!(found(told.as_bytes(), all()), None, "{told}");
    }
    for node in planted.cluster.nodes() {
        let metrics = node.metrics().await.unwrap();
        assert_eq!(found(metrics.as_bytes(), all()), None, "{}", node.name());
        let pid = node.pid().unwrap();
        for file in ["cmdline", "environ"] {
            let given = std::fs::read(format!("/proc/{pid}/{file}")).unwrap();
            assert_eq!(found(&given, all()), None, "{}: {file}", node.name());
        }
    }
    let dump = redis(&planted).await;
    assert!(!dump.is_empty());
    assert_eq!(found(dump.as_bytes(), all()), None, "{dump}");
    let tables = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()";
    let mut bytes = 0;
    for table in planted
        .database
        .rows(tables)
        .await
        .unwrap()
        .into_iter()
        .flatten()
        .flatten()
    {
        let sql = format!("SELECT t::text FROM {table} t");
        for row in planted
            .database
            .rows(&sql)
            .await
            .unwrap()
            .into_iter()
            .flatten()
            .flatten()
        {
            bytes += row.len();
            let in_hex = SAID.map(|secret| {
                secret
                    .bytes()
                    .map(|b| format!("{b:02x}"))
                    .collect::<String>()
            });
            let in_hex = in_hex.iter().map(String::as_str);
            let secrets = SAID.into_iter().chain(in_hex).chain(KEPT);
            assert_eq!(found(row.as_bytes(), secrets), None, "{table}: {row}");
        }
    }
    for node in planted.cluster.nodes() {
        assert!(node.stop(SOON).await.unwrap().success());
    }
    let mut logged = 0;
    for node in planted.cluster.nodes() {
        let log = std::fs::read(Node::log(node)).unwrap();
        logged += log.len();
        for line in log.split(|byte| *byte == b'\n') {
            let text = String::from_utf8_lossy(line);
            assert_eq!(found(line, all()), None, "{}: {text}", node.name());
        }
    }
    for body in collector.bodies() {
        assert_eq!(found(&body, all()), None);
    }
    let spans = collector.spans().len();
    println!(
        "{logged} bytes of logs, {bytes} of rows, {} of Redis and {spans} spans say nothing",
        dump.len()
    );
    assert!(spans > 50 && bytes > 10_000 && logged > 100_000);
}
