//! Everything that is secret is planted, everything that can happen is made to happen, and then all that left
//! the processes is searched: logs at the level trace, spans, metrics, alerts, answers to others and to who is
//! refused, arguments of processes, what operators see, Redis, and, with encryption at rest, a dump of Postgres.

use std::collections::BTreeMap;
use std::process::Command;

use bytes::Bytes;
use harness::http::Http;
use harness::node::Node;
use harness::wait;
use http::Request;
use http_body_util::Full;
use serde_json::{Value, json};

use crate::collector::{Collector, Manner};
use crate::doors::{self, Heard};
use crate::outages;
use crate::planted::{API_KEY, OPAQUE, Planted, REFUSED, RESOURCE, SHOWN, found, planted};
use crate::stack::{SOON, plan};

/// Calls by each kind of token, and by one that is none.
async fn by_tokens(planted: &mut Planted) {
    let claims = planted.issuer.claims("joan", RESOURCE);
    let jwt = planted.signing.sign(&claims);
    let active =
        json!({ "active": true, "sub": "opal", "aud": RESOURCE, "iss": planted.issuer.url });
    planted.issuer.know(OPAQUE, active);
    for (token, argument) in [
        (API_KEY, "hush-key-argument"),
        (OPAQUE, "hush-opaque-argument"),
        (&jwt, "hush-argument"),
    ] {
        let client = planted.cluster.client(1, token);
        let call = client.start("chaos_undo", plan(argument, json!([]), "result"));
        let id = call.await.unwrap();
        client.wait_end(&id, SOON).await.unwrap();
    }
    for wrong in ["hush-wrong-token", &format!("{jwt}x")] {
        let client = planted.cluster.client(1, wrong);
        let refused = client
            .request("tools/list", json!({}))
            .send()
            .await
            .unwrap();
        assert_eq!(refused.status, 401);
    }
    planted.made.push(jwt);
}

/// A service says how it goes, and what came of it.
async fn by_callback(planted: &mut Planted, heard: &mut Heard) {
    let alice = planted.cluster.client(0, "alice");
    let id = alice.start("job", json!({})).await.unwrap();
    let asked = wait::until("a request", SOON, async || {
        planted.service.posts("/job").pop()
    });
    let asked = asked.await.unwrap();
    assert_eq!(asked.headers["x-upstream"], "hush-upstream");
    let url = asked.headers["mcp-tasks-callback-url"].clone();
    let path = url.strip_prefix("http://callbacks.example").unwrap();
    let place = planted.cluster.gateways[0].url().replace("/mcp", path);
    let http = Http::new(SOON);
    for (body, status) in [
        (json!({ "progress": 1, "message": "hush-progress" }), 202),
        (json!({ "hush-callback": "no result" }), 400),
        (json!({ "text": "hush-callback for hush-upstream" }), 200),
        (json!({ "text": "hush-callback of another" }), 409),
    ] {
        let request = Request::post(&place).header("content-type", "application/json");
        let body = Full::new(Bytes::from(body.to_string()));
        let reply = http.send(request.body(body).unwrap()).await.unwrap();
        assert_eq!(reply.status, status);
    }
    let done = alice.wait_status(&id, "completed", SOON).await.unwrap();
    let said = &done["result"]["content"][0]["text"];
    assert_eq!(said, "hush-callback for ***");
    let token = path.rsplit('/').next().unwrap();
    doors::callbacks(planted, token, heard).await;
    planted.made.push(token.to_owned());
}

/// Everything ends in its way; answers to others are handed back.
async fn drive(planted: &mut Planted) -> Vec<Value> {
    let mut others = Vec::new();
    let alice = planted.cluster.client(0, "alice");
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
        let key = format!("{SHOWN}-{end}");
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
    // Nobody reads this one: a receiver is told, another one refuses to be.
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
    wait::until("a refusal", SOON, async || {
        let kept = "SELECT count(*) FROM alert_deliveries WHERE receiver = 'grumbler' AND last_error IS NOT NULL";
        let kept = planted.database.rows(kept).await.unwrap();
        (kept[0][0].as_deref() != Some("0")).then_some(())
    })
    .await
    .unwrap();
    assert!(!planted.grumbler.posts(REFUSED).is_empty());
    planted.unread = unread;
    others
}

/// What operators are shown, by settings and command.
fn operators(planted: &mut Planted) -> BTreeMap<String, Vec<u8>> {
    let mut shown = BTreeMap::new();
    for node in planted.cluster.nodes() {
        let file = format!("{}.toml", node.name());
        let settings = node.plan_mut().dir.join(file);
        let show = format!("tasks show {}", planted.unread);
        for command in [
            show.as_str(),
            "config show",
            "config check",
            "doctor",
            "tasks list",
            "tasks erase --principal dev alice",
            "workers",
            "queues",
            "audit",
        ] {
            let mut process = Command::new(env!("CARGO_BIN_EXE_mcp-tasks"));
            let process = process.args(command.split(' '));
            let output = process.arg("--config").arg(&settings).output().unwrap();
            let all = [output.stdout, output.stderr].concat();
            assert!(!all.is_empty(), "{command}");
            shown.insert(format!("{} {command}", node.name()), all);
        }
    }
    shown
}

/// All of the database, by Postgres' own tool.
fn dump(planted: &Planted) -> Vec<u8> {
    let url = planted.database.url();
    let dump = Command::new("pg_dump").args(["--inserts", url]).output();
    let dump = dump.unwrap();
    let said = String::from_utf8_lossy(&dump.stderr);
    assert!(dump.status.success(), "{said}");
    dump.stdout
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
    let mut heard = Heard::new();
    by_tokens(&mut planted).await;
    doors::tokens(&mut planted, &mut heard).await;
    doors::malformed(&mut planted, &mut heard).await;
    doors::states(&mut planted, &mut heard).await;
    doors::over_tls(&mut planted, &mut heard).await;
    by_callback(&mut planted, &mut heard).await;
    outages::of_keys(&mut planted, &mut heard);
    outages::of_upstreams(&mut planted, &mut heard).await;
    outages::of_postgres(&mut planted, &mut heard).await;
    outages::of_redis(&mut planted, &mut heard).await;
    let others = drive(&mut planted).await;
    let shown = operators(&mut planted);
    let all: Vec<String> = planted.all().into_iter().map(str::to_owned).collect();
    for answer in &others {
        let text = answer.to_string();
        assert_eq!(found(text.as_bytes(), &all), None, "{answer}");
    }
    let credentials = planted.credentials();
    for answer in &heard {
        assert_eq!(found(answer.as_bytes(), &credentials), None, "{answer}");
    }
    for (command, shown) in shown {
        let text = String::from_utf8_lossy(&shown);
        assert_eq!(found(&shown, &all), None, "{command}: {text}");
    }
    let posts = planted.hook.posts("/hush-path");
    assert!(!posts.is_empty());
    for post in posts {
        assert_eq!(found(post.body.as_bytes(), &all), None, "{}", post.body);
        let headers = format!("{:?}", post.headers);
        assert_eq!(found(headers.as_bytes(), &all), None, "{headers}");
    }
    for node in planted.cluster.nodes() {
        let metrics = node.metrics().await.unwrap();
        assert_eq!(found(metrics.as_bytes(), &all), None, "{}", node.name());
        let pid = node.pid().unwrap();
        for file in ["cmdline", "environ"] {
            let given = std::fs::read(format!("/proc/{pid}/{file}")).unwrap();
            assert_eq!(found(&given, &all), None, "{}: {file}", node.name());
        }
    }
    let kept = redis(&planted).await;
    assert_eq!(found(kept.as_bytes(), &all), None, "{kept}");
    let rows = dump(&planted);
    let in_no_row = planted.in_no_row();
    for line in rows.split(|byte| *byte == b'\n') {
        let text = String::from_utf8_lossy(line);
        assert_eq!(found(line, &in_no_row), None, "{text}");
    }
    for node in planted.cluster.nodes() {
        assert!(node.stop(SOON).await.unwrap().success());
    }
    let (mut logged, mut debug) = (0, 0);
    for node in planted.cluster.nodes() {
        let log = std::fs::read(Node::log(node)).unwrap();
        logged += log.len();
        debug += String::from_utf8_lossy(&log).matches("\"DEBUG\"").count();
        for line in log.split(|byte| *byte == b'\n') {
            let text = String::from_utf8_lossy(line);
            assert_eq!(found(line, &all), None, "{}: {text}", node.name());
        }
    }
    for body in collector.bodies() {
        assert_eq!(found(&body, &all), None);
    }
    let spans = collector.spans().len();
    println!(
        "{logged} bytes of logs, {} of a dump, {} of Redis, {} answers and {spans} spans say nothing of {} secrets",
        rows.len(),
        kept.len(),
        heard.len(),
        all.len()
    );
    assert!(spans > 50 && rows.len() > 10_000 && logged > 10_000 && kept.len() > 50);
    assert!(debug > 0, "they were asked to tell much");
}
