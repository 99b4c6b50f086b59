//! Whose tasks are whose, and who may do what with them.

use gateway::auth::{Issuer as Settings, Scopes};
use harness::client::Client;
use harness::tokens::{Issuer, SigningKey};
use serde_json::{Value, json};

use super::{Doors, US, challenge, discover};

#[tokio::test]
async fn tasks_belong_to_issuer_and_subject() {
    let other = SigningKey::ed25519("o");
    let second = Issuer::start(&[&other]).await.unwrap();
    let url = second.url.clone();
    let doors = Doors::with(|mut auth| {
        auth.issuers.push(Settings {
            issuer: url,
            ..Settings::default()
        });
        auth
    })
    .await;
    let alice = doors.world.client(&doors.p256.sign(&doors.claims()));
    let task = alice.call("task", json!({})).await.unwrap();
    let id = task["taskId"].as_str().unwrap();
    // Another token of the same principal: its owner.
    let again = doors
        .world
        .client(&doors.rsa.sign(&doors.changed("jti", json!("2"))));
    assert_eq!(again.get(id).await.unwrap()["taskId"], id);
    // The same name at another issuer, and another name: the bytes of an unknown task, and no 401.
    let namesake = doors.world.client(&other.sign(&second.claims("alice", US)));
    let bob = doors
        .world
        .client(&doors.p256.sign(&doors.changed("sub", json!("bob"))));
    let unknown = protocol::TaskId::new(0).to_string();
    for stranger in [namesake, bob] {
        for method in ["tasks/get", "tasks/cancel", "tasks/update"] {
            let ask = async |id: &str| {
                let params = json!({"taskId": id, "inputResponses": {}});
                let request = stranger.request(method, params).id(json!(1));
                let answer = request.send().await.unwrap();
                (answer.status, answer.body)
            };
            let foreign = ask(id).await;
            assert_eq!(foreign.0, 200, "{method}");
            assert_eq!(foreign, ask(&unknown).await, "{method}");
        }
    }
    assert_eq!(again.get(id).await.unwrap()["status"], "working");
    let rows = doors
        .world
        .database
        .rows("SELECT issuer, subject FROM tasks")
        .await
        .unwrap();
    assert_eq!(rows[0][0].as_deref(), Some(doors.issuer.url.as_str()));
    assert_eq!(rows[0][1].as_deref(), Some("alice"));
}

#[tokio::test]
async fn scopes_open_methods_and_tools() {
    let one = |scope: &str| vec![scope.to_owned()];
    let doors = Doors::with(|mut auth| {
        auth.scopes = Scopes {
            call: one("call"),
            read: one("read"),
            update: one("update"),
            cancel: one("cancel"),
            ..Scopes::default()
        };
        auth
    })
    .await;
    let with = |scope: &str| {
        doors
            .world
            .client(&doors.p256.sign(&doors.changed("scope", json!(scope))))
    };
    let all = with("call read update cancel");
    let task = all.call("task", json!({})).await.unwrap();
    let id = task["taskId"].clone();
    let unknown = json!(protocol::TaskId::new(0).to_string());
    let none = with("other");
    assert_eq!(
        discover(&none).await.status,
        200,
        "discovery needs no scope"
    );
    for (method, params, scope) in [
        (
            "tools/call",
            json!({"name": "task", "arguments": {}}),
            "call",
        ),
        ("tasks/get", json!({"taskId": id}), "read"),
        ("tasks/get", json!({"taskId": unknown}), "read"),
        (
            "tasks/update",
            json!({"taskId": id, "inputResponses": {}}),
            "update",
        ),
        ("tasks/cancel", json!({"taskId": id}), "cancel"),
        (
            "subscriptions/listen",
            json!({"notifications": {"taskIds": [id]}}),
            "read",
        ),
    ] {
        let answer = none.request(method, params.clone()).send().await.unwrap();
        assert_eq!(
            (answer.status, answer.error_code()),
            (403, Some(403)),
            "{method}"
        );
        let challenge = challenge(&answer);
        for part in [
            "error=\"insufficient_scope\"",
            &format!("scope=\"{scope}\""),
            "resource_metadata=",
        ] {
            assert!(challenge.contains(part), "{method}: {challenge}");
        }
        if method != "subscriptions/listen" {
            let other = with(&format!("x {scope}"));
            let answer = other.request(method, params).send().await.unwrap();
            assert_eq!(answer.status, 200, "{method}");
        }
    }
    // A tool with a scope of its own is only listed to who may call it.
    let names = async |client: &Client| {
        let answer = client.request("tools/list", json!({})).send().await;
        let list = answer.unwrap().message["result"].clone();
        assert_eq!(list["cacheScope"], "private");
        let tools = list["tools"].as_array().unwrap().clone();
        tools
            .iter()
            .map(|tool| tool["name"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert!(!names(&all).await.contains(&"scoped".to_owned()));
    let allowed = with("call reports:write");
    assert!(names(&allowed).await.contains(&"scoped".to_owned()));
    let call = json!({"name": "scoped", "arguments": {}});
    let answer = all
        .request("tools/call", call.clone())
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status, 403);
    let challenge = challenge(&answer);
    assert!(
        challenge.contains("scope=\"call reports:write\""),
        "{challenge}"
    );
    let answer = allowed.request("tools/call", call).send().await.unwrap();
    assert_eq!(answer.status, 200);
}

#[tokio::test]
async fn who_may_answer_for_the_tenant_does_and_is_recorded() {
    let doors = Doors::with(|mut auth| {
        auth.scopes.delegate = vec!["approve".to_owned()];
        auth
    })
    .await;
    let world = &doors.world;
    let who = |subject: &str, org: Value, scope: &str| {
        let mut claims = doors.changed("sub", json!(subject));
        claims["org"] = org;
        claims["scope"] = json!(scope);
        world.client(&doors.p256.sign(&claims))
    };
    let owner = who("alice", json!("acme"), "");
    let task = owner.call("task", json!({})).await.unwrap();
    let id = task["taskId"].as_str().unwrap().to_owned();
    let claim = world.claim("task").await;
    let keys = ["first", "second"];
    world.park(&claim, store::ParkedFor::Task, &keys).await;
    let update = async |client: &Client, id: &str, key: &str| {
        let params = json!({"taskId": id, "inputResponses": {key: crate::support::yes()}});
        let request = client.request("tasks/update", params).id(json!(1));
        let answer = request.send().await.unwrap();
        (answer.status, answer.body)
    };
    // Of another tenant, without the scope, or of no tenant: the bytes of an unknown task.
    let unknown = protocol::TaskId::new(0).to_string();
    for stranger in [
        who("bob", json!("other"), "approve"),
        who("bob", json!("acme"), "reject"),
        who("bob", json!(null), "approve"),
    ] {
        let expected = update(&stranger, &unknown, "first").await;
        assert_eq!(update(&stranger, &id, "first").await, expected);
    }
    assert_eq!(world.count("SELECT count(*) FROM audit").await, 0);
    let bob = who("bob", json!("acme"), "x approve");
    let answer = update(&bob, &id, "first").await;
    assert!(
        !String::from_utf8_lossy(&answer.1).contains("error"),
        "{answer:?}"
    );
    // To answer is all that it may.
    assert!(bob.get(&id).await.is_err() && bob.cancel(&id).await.is_err());
    // The owner's own answer is no delegation, and neither is one that changes nothing.
    update(&bob, &id, "first").await;
    update(&owner, &id, "second").await;
    world
        .until("SELECT count(*) FROM tasks WHERE phase = 'queued'", 1)
        .await;
    let sql = "SELECT operator, command, target->>'keys', task_id::text, audit_tasks.outcome \
               FROM audit JOIN audit_tasks ON audit_id = id";
    let rows = world.database.rows(sql).await.unwrap();
    assert_eq!(rows.len(), 1, "{rows:?}");
    let row: Vec<&str> = rows[0]
        .iter()
        .map(|cell| cell.as_deref().unwrap())
        .collect();
    let operator = format!("{} bob", doors.issuer.url);
    assert_eq!(
        row,
        [&operator, "tasks/update", "[\"first\"]", &id, "answered"]
    );
    let sql = "SELECT key, answered_by FROM inputs ORDER BY key";
    let rows = world.database.rows(sql).await.unwrap();
    let by: Vec<&str> = rows.iter().map(|row| row[1].as_deref().unwrap()).collect();
    assert_eq!(by, ["tenant", "owner"]);
}
