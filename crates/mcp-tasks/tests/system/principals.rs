//! Whose work it is: what a program, a service and an upstream server are told of it is of their own call, at every
//! attempt, whoever's work the same worker did before or does beside it. (What a tool in Rust is told is tested
//! where workers are: `principals` of `crates/worker/tests/attempts`.)

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Mutex;

use harness::client::Client;
use harness::redis::Redis;
use harness::temp::Temp;
use harness::wait;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::callbacks::{Seen, Service};
use crate::passthrough::mcp;
use crate::support::{SOON, System};

/// Subject, issuer and tenant of each key; the second has none, and two have one name.
const WHO: [(&str, &str, Option<&str>); 3] = [
    ("alice", "api-keys", Some("acme")),
    ("bob", "api-keys", None),
    ("alice", "other-keys", Some("other")),
];
/// Attempts of each call.
const TRIES: usize = 3;

/// Notes whose work it is, and is done at the third try.
const PROGRAM: &str = r#"#!/bin/sh
printf '%s|%s|%s|%s|%s|%s\n' "$MCP_TASKS_TASK_ID" "$MCP_TASKS_ATTEMPT" "$MCP_TASKS_PRINCIPAL_SUBJECT" \
    "$MCP_TASKS_PRINCIPAL_ISSUER" "${MCP_TASKS_PRINCIPAL_TENANT-none}" "$1" >> seen-command
[ "$MCP_TASKS_ATTEMPT" -ge 3 ] || exit 75
echo done
"#;

fn settings(dir: &Path, service: &str) -> String {
    use std::os::unix::fs::PermissionsExt as _;
    let program = dir.join("program.sh");
    std::fs::write(&program, PROGRAM).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let schema = "input_schema = { type = \"object\", properties = { x = { type = \"string\" } } }";
    let tools = format!(
        "[defaults]\ninline_budget = \"0s\"\nbackoff = {{ first = \"50ms\" }}\n\
         [[command]]\nname = \"program\"\ndescription = \"D.\"\nprogram = \"./program.sh\"\n{schema}\n\
         positional = [\"x\"]\nseparator = \"\"\neffects = \"repeatable\"\nretry_exit_codes = [75]\n\
         [[http]]\nname = \"service\"\ndescription = \"D.\"\neffects = \"repeatable\"\n{schema}\n\
         url = \"{service}/service/{{principal_issuer}}?who={{principal_subject}}\"\n\
         headers = {{ X-Who = \"{{principal_subject}} of {{principal_issuer}}\", X-Tenant = \"{{principal_tenant}}\" }}\n\
         body = {{ x = \"{{x}}\", who = \"{{principal_subject}}\", tenant = \"{{principal_tenant}}\" }}\n\
         [[upstream]]\nname = \"up\"\nprefix = \"up_\"\nurl = \"{service}/mcp\"\neffects = \"repeatable\"\n"
    );
    std::fs::write(dir.join("tools.toml"), tools).unwrap();
    let mut keys = String::new();
    for (place, (subject, issuer, tenant)) in WHO.into_iter().enumerate() {
        let hash = Sha256::digest(token(place));
        let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        keys += &format!(
            "[[key]]\nsha256 = \"{hash}\"\nsubject = \"{subject}\"\nissuer = \"{issuer}\"\n"
        );
        if let Some(tenant) = tenant {
            keys += &format!("tenant = \"{tenant}\"\n");
        }
    }
    std::fs::write(dir.join("keys.toml"), keys).unwrap();
    format!(
        "[worker]\nslots = 4\n[auth]\nmode = \"tokens\"\napi_keys_file = {:?}\n[tools]\nfile = {:?}\n",
        dir.join("keys.toml"),
        dir.join("tools.toml")
    )
}

fn token(place: usize) -> String {
    format!("mtk_principal-{place}")
}

/// Not now, but at the third try.
fn at_the_third() -> impl Fn(&Seen) -> Option<(u16, String)> {
    let calls: Mutex<BTreeMap<String, usize>> = Mutex::default();
    move |seen| {
        let tries = match key_of_call(&seen.json()) {
            Some(key) => {
                let mut calls = calls.lock().unwrap();
                let tries = calls.entry(key).or_default();
                *tries += 1;
                *tries
            }
            None if seen.path.starts_with("/service/") => {
                seen.header("mcp-tasks-attempt").parse().unwrap()
            }
            None => return mcp(seen),
        };
        if tries < TRIES {
            return Some((503, String::new()));
        }
        mcp(seen).or_else(|| Some((200, "{}".to_owned())))
    }
}

/// What tells a call of a tool from others to an upstream server.
fn key_of_call(asked: &Value) -> Option<String> {
    let key = asked["params"]["_meta"]["io.github.mcp-tasks/idempotencyKey"].as_str();
    key.filter(|_| asked["method"] == "tools/call")
        .map(str::to_owned)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_attempt_is_told_whose_work_it_is() {
    let dir = Temp::new().unwrap();
    let service = Service::saying(at_the_third()).await;
    let database = harness::postgres::test_database(crate::support::migrate);
    let database = database.await.unwrap();
    let redis = Redis::temporary().await.unwrap();
    let url = redis.url();
    let cluster = crate::support::plan(database.url(), &url)
        .settings(&settings(dir.path(), &service.url))
        .start()
        .await
        .unwrap();
    let system = System {
        cluster,
        database,
        redis,
    };
    let gateway = system.cluster.gateways[0].url();
    let clients: Vec<Client> = (0..WHO.len())
        .map(|place| Client::new(&gateway).bearer(&token(place)))
        .collect();
    let tools = ["program", "service", "up_look"];
    let listed = async || clients[0].list().await.unwrap_or_default();
    let all = |seen: &Vec<Value>| {
        let has = |name: &&str| seen.iter().any(|tool| tool["name"] == *name);
        tools.iter().all(has)
    };
    wait::for_state("the tools", SOON, listed, all)
        .await
        .unwrap();
    // One after the other, and then all at once.
    let mut owners = BTreeMap::new();
    for (place, client) in clients.iter().enumerate() {
        for tool in tools {
            let id = client
                .start(tool, json!({ "x": format!("x{place}") }))
                .await
                .unwrap();
            client.wait_status(&id, "completed", SOON).await.unwrap();
            owners.insert(id, (place, tool));
        }
    }
    for _ in 0..2 {
        for tool in tools {
            for (place, client) in clients.iter().enumerate() {
                let id = client
                    .start(tool, json!({ "x": format!("x{place}") }))
                    .await
                    .unwrap();
                owners.insert(id, (place, tool));
            }
        }
    }
    for (id, (place, _)) in &owners {
        clients[*place]
            .wait_status(id, "completed", SOON)
            .await
            .unwrap();
    }
    let mut attempts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let commands = std::fs::read_to_string(dir.path().join("seen-command")).unwrap();
    for line in commands.lines() {
        let parts: Vec<&str> = line.split('|').collect();
        let (place, tool) = owners[parts[0]];
        let (subject, issuer, tenant) = WHO[place];
        let expected = [
            subject,
            issuer,
            tenant.unwrap_or("none"),
            &format!("x{place}"),
        ];
        assert_eq!((tool, &parts[2..]), ("program", &expected[..]), "{line}");
        attempts
            .entry(parts[0].to_owned())
            .or_default()
            .insert(parts[1].to_owned());
    }
    let mut calls = 0;
    for seen in service.seen() {
        if !seen.path.starts_with("/service/") {
            calls += usize::from(is_right_call(&seen, &owners));
            continue;
        }
        let id = seen.header("mcp-tasks-task-id").to_owned();
        let (place, tool) = owners[&id];
        let (subject, issuer, tenant) = WHO[place];
        assert_eq!(tool, "service");
        let of = tenant.unwrap_or("");
        assert_eq!(seen.path, format!("/service/{issuer}?who={subject}"));
        assert_eq!(seen.header("x-who"), format!("{subject} of {issuer}"));
        assert_eq!(seen.header("x-tenant"), of, "left out where there is none");
        let mut body = json!({ "x": format!("x{place}"), "who": subject });
        if let Some(tenant) = tenant {
            body["tenant"] = json!(tenant);
        }
        assert_eq!(seen.json(), body);
        let attempt = seen.header("mcp-tasks-attempt").to_owned();
        attempts.entry(id).or_default().insert(attempt);
    }
    for (id, (_, tool)) in &owners {
        let tried = attempts.get(id).map_or(0, BTreeSet::len);
        let expected = if *tool == "up_look" { 0 } else { TRIES };
        assert_eq!(tried, expected, "{tool}: {attempts:?}");
    }
    assert_eq!(calls, TRIES * 3 * WHO.len(), "of the upstream server");
}

/// Whether it is a call of a tool, which says nothing of whose it is but its arguments and a key of its own.
fn is_right_call(seen: &Seen, owners: &BTreeMap<String, (usize, &str)>) -> bool {
    for (subject, issuer, tenant) in WHO {
        for name in [subject, issuer].into_iter().chain(tenant) {
            assert!(!seen.whole.contains(name), "{}", seen.whole);
        }
    }
    let asked = seen.json();
    let Some(key) = key_of_call(&asked) else {
        return false;
    };
    let task = key.split(':').next().unwrap();
    let (place, tool) = owners[task];
    assert_eq!(tool, "up_look");
    assert_eq!(
        asked["params"]["arguments"],
        json!({ "x": format!("x{place}") })
    );
    true
}
