//! What a caller proves itself with reaches nothing behind the door: no program, no service, no upstream
//! server by pipe or by HTTP, no log, no row and nothing in Redis (MCP 2026-07-28 §Access Token Privilege Restriction: tokens
//! are not passed through).

use std::path::Path;

use harness::client::Client;
use harness::redis::Redis;
use harness::temp::Temp;
use harness::wait;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::callbacks::{Seen, Service};
use crate::support::{SOON, System};

/// The caller's key, and what else a careless client sends along.
const TOKEN: &str = "mtk_hush-token-7b1d";
const COOKIE: &str = "hush-cookie-90aa";
const EXTRA: &str = "hush-extra-55c0";

/// Notes all that it is given: arguments, environment, input.
const PROGRAM: &str = "#!/bin/sh\n{ echo args: \"$@\"; env; cat; } >> seen-command\necho done\n";

/// A server of 2025-11-25 that notes its environment and every line.
const UPSTREAM: &str = r#"
env >> seen-upstream
said() { printf '%s\n' "$1"; }
while IFS= read -r line; do
  printf '%s\n' "$line" >> seen-upstream
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case $line in
  *'"method":"initialize"'*)
    said '{"jsonrpc":"2.0","id":'$id',"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"sh","version":"1"}}}' ;;
  *'"method":"tools/list"'*)
    said '{"jsonrpc":"2.0","id":'$id',"result":{"tools":[{"name":"look","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}]}}' ;;
  *'"method":"tools/call"'*)
    said '{"jsonrpc":"2.0","id":'$id',"result":{"content":[{"type":"text","text":"done"}]}}' ;;
  *'"id"'*)
    said '{"jsonrpc":"2.0","id":'$id',"error":{"code":-32601,"message":"no such method"}}' ;;
  esac
done
"#;

fn settings(dir: &Path, service: &str, remote: &str) -> String {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::write(dir.join("program.sh"), PROGRAM).unwrap();
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(dir.join("program.sh"), executable).unwrap();
    std::fs::write(dir.join("upstream.sh"), UPSTREAM).unwrap();
    let tools = format!(
        "[[command]]\nname = \"program\"\ndescription = \"D.\"\nprogram = \"./program.sh\"\n\
         [[http]]\nname = \"service\"\ndescription = \"D.\"\nurl = \"{service}/service\"\n\
         [[upstream]]\nname = \"sh\"\nprefix = \"sh_\"\ncommand = [\"sh\", \"upstream.sh\"]\ndir = {dir:?}\n\
         protocol = \"2025-11-25\"\n\
         [[upstream]]\nname = \"old\"\nprefix = \"old_\"\nurl = \"{remote}/old\"\nprotocol = \"2025-11-25\"\n\
         [[upstream]]\nname = \"new\"\nprefix = \"new_\"\nurl = \"{remote}/new\"\nprotocol = \"2026-07-28\"\n"
    );
    std::fs::write(dir.join("tools.toml"), tools).unwrap();
    let hash = Sha256::digest(TOKEN);
    let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    let keys = format!("[[key]]\nsha256 = \"{hash}\"\nsubject = \"alice\"\n");
    std::fs::write(dir.join("keys.toml"), keys).unwrap();
    format!(
        "[logs]\nfilter = \"trace\"\n[auth]\nmode = \"tokens\"\napi_keys_file = {:?}\n\
         [tools]\nfile = {:?}\n",
        dir.join("keys.toml"),
        dir.join("tools.toml")
    )
}

/// What a server of MCP says, of whatever revision it is asked in.
pub fn mcp(seen: &Seen) -> Option<(u16, String)> {
    let asked = seen.json();
    let result = match asked["method"].as_str()? {
        "server/discover" => json!({ "resultType": "complete", "supportedVersions": ["2026-07-28"],
            "capabilities": { "tools": {} }, "ttlMs": 0, "cacheScope": "private" }),
        "initialize" => json!({ "protocolVersion": "2025-11-25", "capabilities": { "tools": {} },
            "serverInfo": { "name": "s", "version": "1" } }),
        "tools/list" => {
            json!({ "resultType": "complete", "ttlMs": 0, "cacheScope": "private", "tools": [
            { "name": "look", "inputSchema": { "type": "object" }, "annotations": { "readOnlyHint": true } }] })
        }
        "tools/call" => json!({ "resultType": "complete",
            "content": [{ "type": "text", "text": "done" }] }),
        _ if asked["id"].is_null() => return Some((202, String::new())),
        _ => {
            let error = json!({ "code": -32601, "message": "no such method" });
            let body = json!({ "jsonrpc": "2.0", "id": asked["id"], "error": error });
            return Some((404, body.to_string()));
        }
    };
    let body = json!({ "jsonrpc": "2.0", "id": asked["id"], "result": result });
    Some((200, body.to_string()))
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

/// Which of the secrets the text holds.
fn told(text: &str) -> Option<&'static str> {
    [TOKEN, "hush-token", COOKIE, EXTRA]
        .into_iter()
        .find(|secret| text.contains(secret))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_callers_token_goes_no_further_than_the_door() {
    let dir = Temp::new().unwrap();
    let (service, remote) = (Service::start().await, Service::saying(mcp).await);
    let database = harness::postgres::test_database(crate::support::migrate);
    let database = database.await.unwrap();
    let redis = Redis::temporary().await.unwrap();
    let url = redis.url();
    // Nobody can be asked for tools without a key, so the usual wait for them would wait for ever.
    let cluster = crate::support::plan(database.url(), &url)
        .settings(&settings(dir.path(), &service.url, &remote.url))
        .start()
        .await
        .unwrap();
    let mut system = System {
        cluster,
        database,
        redis,
    };
    let alice = Client::new(&system.cluster.gateways[0].url()).bearer(TOKEN);
    let listed = async || alice.list().await.unwrap_or_default();
    let tools = ["program", "service", "sh_look", "old_look", "new_look"];
    let all = |seen: &Vec<Value>| {
        let has = |name: &&str| seen.iter().any(|tool| tool["name"] == *name);
        tools.iter().all(has)
    };
    wait::for_state("the tools", SOON, listed, all)
        .await
        .unwrap();
    for tool in tools {
        let call = alice
            .request("tools/call", json!({"name": tool, "arguments": {}}))
            .header("cookie", COOKIE)
            .header("x-api-key", EXTRA)
            .header("proxy-authorization", format!("Bearer {EXTRA}"));
        let answer = call.send().await.unwrap();
        assert_eq!(answer.status, 200, "{tool}: {}", answer.message);
    }
    // Who holds a wrong one shows it nobody, either.
    let wrong = Client::new(&system.cluster.gateways[0].url()).bearer("mtk_hush-token-wrong");
    let refused = wrong.request("server/discover", json!({})).send().await;
    assert_eq!(refused.unwrap().status, 401);

    let look = async || {
        let files = ["seen-command", "seen-upstream"];
        let mut seen: Vec<String> = files
            .iter()
            .map(|file| std::fs::read_to_string(dir.path().join(file)).unwrap_or_default())
            .collect();
        for service in [&service, &remote] {
            let all = service.seen();
            seen.push(all.iter().map(|seen| seen.whole.clone()).collect());
        }
        seen
    };
    let called = |seen: &Vec<String>| {
        let calls = seen[3].matches("\"tools/call\"").count();
        seen[0].contains("args:")
            && seen[1].contains("tools/call")
            && !seen[2].is_empty()
            && calls >= 2
    };
    let seen = wait::for_state("all were called", SOON, look, called).await;
    for seen in seen.unwrap() {
        assert_eq!(told(&seen), None, "{seen}");
    }
    let kept = system.redis.command(&["EVAL", EVERYTHING, "0"]).await;
    let kept = format!("{:?}", kept.unwrap());
    assert!(kept.len() > 50, "{kept}");
    assert_eq!(told(&kept), None, "{kept}");
    // The way to the database shows the arguments, and nothing of who called but their name.
    let tables =
        "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()";
    let tables = system.database.rows(tables).await.unwrap();
    assert!(tables.len() > 10);
    for table in tables {
        let table = table[0].clone().unwrap();
        let rows = format!("SELECT t::text FROM {table} t");
        for row in system.database.rows(&rows).await.unwrap() {
            let row = row[0].clone().unwrap_or_default();
            assert_eq!(told(&row), None, "{table}: {row}");
            // Bytes are shown as hexadecimal digits.
            let hex: String = TOKEN.bytes().map(|byte| format!("{byte:02x}")).collect();
            assert!(!row.contains(&hex), "{table}: {row}");
        }
    }
    let mut bytes = 0;
    for node in system.cluster.nodes() {
        assert!(node.stop(SOON).await.unwrap().success());
        let log = std::fs::read(node.log()).unwrap();
        let log = String::from_utf8_lossy(&log);
        bytes += log.len();
        let line = log.lines().find(|line| told(line).is_some());
        assert_eq!(line, None, "{}", node.name());
    }
    assert!(bytes > 2_000, "much was to be told: {bytes} bytes");
}
