//! Scopes beyond those of a method: whichever way an answer comes, and what a provider asks for.

use std::path::Path;

use gateway::auth::{Config as Auth, Mode, Scopes};
use harness::client::{Answer, Client};
use protocol::prompts::Prompt;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use store::{ParkedFor, ProviderSpec, Resources};

use crate::support::{SOON, World, config, text, yes};

/// A gateway whose keys are words: `mtk_NAME` is alice's, with these scopes.
async fn world(keys: &[(&str, &[&str])], folder: &Path) -> World {
    let one = |scope: &str| vec![scope.to_owned()];
    let entries = keys.iter().map(|(name, scopes)| {
        let hash = Sha256::digest(format!("mtk_{name}"));
        let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("[[key]]\nsha256 = \"{hash}\"\nsubject = \"alice\"\nscopes = {scopes:?}\n")
    });
    let file = folder.join("keys.toml");
    std::fs::write(&file, entries.collect::<String>()).unwrap();
    let auth = Auth {
        mode: Some(Mode::Tokens),
        api_keys_file: Some(file),
        scopes: Scopes {
            call: one("call"),
            read: one("read"),
            update: one("update"),
            resources: one("resources"),
            prompts: one("prompts"),
            ..Scopes::default()
        },
        ..Auth::default()
    };
    World::guarded(config(), auth).await
}

fn refused(answer: &Answer, scopes: &str, what: &str) {
    let told = (answer.status, answer.error_code());
    assert_eq!(told, (403, Some(403)), "{what}: {}", answer.message);
    let challenge = answer.header("www-authenticate");
    for part in [
        "error=\"insufficient_scope\"",
        &format!("scope=\"{scopes}\""),
    ] {
        assert!(challenge.contains(part), "{what}: {challenge}");
    }
}

async fn called(client: &Client, key: Option<&str>, params: Value) -> Answer {
    let mut request = client.request("tools/call", params);
    if let Some(key) = key {
        request = request.idempotency_key(key);
    }
    request.send().await.unwrap()
}

#[tokio::test]
async fn answers_to_a_task_need_their_scope_whichever_way_they_come() {
    let files = tempfile::tempdir().unwrap();
    let keys: [(&str, &[&str]); 2] = [("call", &["call"]), ("full", &["call", "update"])];
    let world = world(&keys, files.path()).await;
    let (call, full) = (world.client("mtk_call"), world.client("mtk_full"));
    let params = || json!({"name": "task", "arguments": {}});
    let answering = |key: &str| {
        let mut params = params();
        params["inputResponses"] = json!({key: yes()});
        params
    };
    let handle = called(&call, Some("k"), params()).await;
    let id = handle.message["result"]["taskId"].clone();
    assert!(id.is_string(), "{}", handle.message);
    let claim = world.claim("task").await;
    world.park(&claim, ParkedFor::Task, &["first"]).await;
    // Who can't be shown a task is given a state for it.
    let undeclared = call.clone().undeclared();
    let asked = called(&undeclared, Some("k"), params()).await;
    let state = asked.message["result"]["requestState"].clone();
    assert!(state.is_string(), "{}", asked.message);
    let mut by_state = answering("first");
    by_state["requestState"] = state;

    for (way, client, key, params) in [
        ("by key", &call, Some("k"), answering("first")),
        (
            "by key, undeclared",
            &undeclared,
            Some("k"),
            answering("first"),
        ),
        ("by state", &call, None, by_state.clone()),
        ("by state, undeclared", &undeclared, None, by_state),
    ] {
        refused(&called(client, key, params).await, "call update", way);
    }
    let update = json!({"taskId": id, "inputResponses": {"first": yes()}});
    let updated = call.request("tasks/update", update).send().await.unwrap();
    refused(&updated, "update", "tasks/update");
    let mut wished = answering("first");
    wished["task"] = json!({});
    let legacy = call.request("tools/call", json!({})).params(wished);
    let legacy = legacy
        .header("mcp-protocol-version", "2025-11-25")
        .idempotency_key("k");
    let legacy = legacy.header("idempotency-key", "k").send().await.unwrap();
    assert!(legacy.error_code().is_some(), "{}", legacy.message);
    let answered = "SELECT count(*) FROM inputs WHERE answered_by IS NOT NULL";
    assert_eq!(world.count(answered).await, 0);

    // What answers nothing is ignored, and a repeat is a repeat.
    for params in [params(), answering("other")] {
        let again = called(&call, Some("k"), params).await;
        assert_eq!(again.message["result"]["taskId"], id, "{}", again.message);
    }
    let answer = called(&full, Some("k"), answering("first")).await;
    assert_eq!(answer.message["result"]["taskId"], id, "{}", answer.message);
    assert_eq!(world.count(answered).await, 1);

    // The result is the call's own, also without the scope that reads tasks.
    let claim = world.claim("task").await;
    world.complete(&claim, &text("done")).await;
    let over = called(&call, Some("k"), answering("first")).await;
    assert_eq!(over.message["result"]["content"][0]["text"], "done");
    let read = call.request("tasks/get", json!({"taskId": id}));
    refused(&read.send().await.unwrap(), "read", "tasks/get");
}

#[tokio::test]
async fn answers_to_a_call_are_part_of_it() {
    let files = tempfile::tempdir().unwrap();
    let world = world(&[("call", &["call"])], files.path()).await;
    let call = world.client("mtk_call");
    for key in [None, Some("k")] {
        let params = json!({"name": "asks", "arguments": {}});
        let (asked, ()) = tokio::join!(called(&call, key, params.clone()), async {
            let claim = world.claim("asks").await;
            world.park(&claim, ParkedFor::Caller, &["first"]).await;
        });
        let asked = &asked.message["result"];
        assert_eq!(asked["resultType"], "input_required", "{asked}");
        let mut again = params;
        again["inputResponses"] = json!({"first": yes(), "other": yes()});
        if key.is_none() {
            again["requestState"] = asked["requestState"].clone();
        }
        let handle = called(&call, key, again.clone()).await;
        let id = &handle.message["result"]["taskId"];
        assert!(id.is_string(), "{}", handle.message);
        // Whoever did not get that answer sends the same again: no offence.
        let repeated = called(&call, key, again).await;
        assert_eq!(&repeated.message["result"]["taskId"], id);
        let claim = world.claim("asks").await;
        world.complete(&claim, &text("done")).await;
    }
}

#[tokio::test]
async fn a_provider_that_completes_nothing_keeps_its_scopes() {
    let files = tempfile::tempdir().unwrap();
    let keys: [(&str, &[&str]); 2] = [
        ("any", &["resources", "prompts"]),
        ("notes", &["prompts", "notes"]),
    ];
    let world = world(&keys, files.path()).await;
    let mut notes = ProviderSpec {
        prompts: Some(vec![Prompt::new("summary").needing("day", "Which.")]),
        resources: Some(Resources {
            prefixes: vec!["notes://".to_owned()],
            ..Resources::default()
        }),
        ..ProviderSpec::new("notes")
    };
    notes.policy.scopes = vec!["notes".to_owned()];
    let other = ProviderSpec {
        prompts: Some(vec![Prompt::new("plain")]),
        completes: true,
        ..ProviderSpec::new("other")
    };
    world
        .store
        .register_providers(&[notes, other])
        .await
        .unwrap();
    world.queue.catalogue_changed().await;
    let complete = async |name: &str| {
        let params = json!({"ref": {"type": "ref/prompt", "name": "summary"},
                            "argument": {"name": "day", "value": "m"}});
        let client = world.client(name);
        let request = client.request("completion/complete", params);
        request.send().await.unwrap()
    };
    let served = async || (complete("mtk_notes").await.status == 200).then_some(());
    harness::wait::until("the providers are known", SOON, served)
        .await
        .unwrap();
    let none = complete("mtk_notes").await.message;
    assert_eq!(none["result"]["completion"]["values"], json!([]), "{none}");
    let any = complete("mtk_any").await;
    refused(&any, "prompts notes", "completion/complete");
    // Told is all that the request needs: who asks for that alone must not lose the other.
    for (method, params, scopes) in [
        ("prompts/get", json!({"name": "summary"}), "prompts notes"),
        (
            "resources/read",
            json!({"uri": "notes://1"}),
            "resources notes",
        ),
    ] {
        let client = world.client("mtk_any");
        let answer = client.request(method, params).send().await.unwrap();
        refused(&answer, scopes, method);
    }
}
