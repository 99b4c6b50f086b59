//! Answers for others of one's tenant: everybody who is not of the owner's tenant, or may not answer for
//! it, gets the bytes of an unknown task, whatever the token says of itself and in which revision it is
//! used; and nothing is written, in the audit trail neither.

use std::time::Instant;

use gateway::auth::Issuer as Settings;
use harness::client::Client;
use harness::tokens::{Issuer, SigningKey};
use serde_json::{Value, json};

use super::{Doors, US};
use crate::support::yes;
use crate::timing::{Foreign, compare};

fn delegating(mut auth: gateway::auth::Config) -> gateway::auth::Config {
    auth.scopes.delegate = vec!["approve".to_owned()];
    auth
}

async fn update(client: &Client, id: &str, key: &str) -> (u16, Vec<u8>) {
    let params = json!({"taskId": id, "inputResponses": {key: yes()}});
    let request = client.request("tasks/update", params).id(json!(1));
    let answer = request.send().await.unwrap();
    (answer.status, answer.body.to_vec())
}

/// A parked task of an owner with these claims, asking two questions.
async fn parked(doors: &Doors, owner: &Client) -> String {
    let id = owner.start("task", json!({})).await.unwrap();
    let claim = doors.world.claim_task("task", id.parse().unwrap()).await;
    let keys = ["first", "second"];
    doors
        .world
        .park(&claim, store::ParkedFor::Task, &keys)
        .await;
    id
}

#[tokio::test]
async fn nobody_else_answers() {
    let other = SigningKey::ed25519("o");
    let second = Issuer::start(&[&other]).await.unwrap();
    let url = second.url.clone();
    let doors = Doors::with(|mut auth| {
        auth.issuers.push(Settings {
            issuer: url,
            tenant_claim: "org".to_owned(),
            ..Settings::default()
        });
        delegating(auth)
    })
    .await;
    let world = &doors.world;
    let claims = |subject: &str, org: Value, scope: &str| {
        let mut claims = doors.changed("sub", json!(subject));
        claims["org"] = org;
        claims["scope"] = json!(scope);
        claims
    };
    let who = |subject: &str, org: Value, scope: &str| {
        world.client(&doors.p256.sign(&claims(subject, org, scope)))
    };
    let of_second = |subject: &str, org: &str| {
        let mut claims = second.claims(subject, US);
        claims["org"] = json!(org);
        claims["scope"] = json!("approve");
        world.client(&other.sign(&claims))
    };
    let with_tenant = parked(&doors, &who("alice", json!("acme"), "")).await;
    let without = parked(&doors, &who("carol", json!(null), "")).await;
    let unknown = protocol::TaskId::new(0).to_string();
    let strangers = [
        ("of another tenant", who("bob", json!("other"), "approve")),
        (
            "of a tenant that begins alike",
            who("bob", json!("acm"), "approve"),
        ),
        (
            "of a tenant in other letters",
            who("bob", json!("ACME"), "approve"),
        ),
        (
            "of a tenant with a wildcard",
            who("bob", json!("%"), "approve"),
        ),
        ("of no tenant", who("bob", json!(null), "approve")),
        ("without the scope", who("bob", json!("acme"), "reject")),
        (
            "with part of the scope",
            who("bob", json!("acme"), "approv approve2 APPROVE"),
        ),
        (
            "of another issuer's tenant of that name",
            of_second("bob", "acme"),
        ),
        (
            "of another issuer, named as the owner",
            of_second("alice", "acme"),
        ),
    ];
    for (what, stranger) in &strangers {
        let expected = update(stranger, &unknown, "first").await;
        for id in [&with_tenant, &without] {
            assert_eq!(update(stranger, id, "first").await, expected, "{what}");
        }
    }
    // Who is of the tenant reaches no task of who is of none.
    let bob = who("bob", json!("acme"), "approve");
    let expected = update(&bob, &unknown, "first").await;
    assert_eq!(update(&bob, &without, "first").await, expected);
    // A tenant that is no name is no token.
    for org in [json!(""), json!(["acme"]), json!({"acme": true}), json!(7)] {
        let token = doors.p256.sign(&claims("bob", org.clone(), "approve"));
        assert_eq!(doors.status(&token).await, 401, "{org}");
    }
    assert_eq!(world.count("SELECT count(*) FROM audit").await, 0);
    let answered = "SELECT count(*) FROM inputs WHERE response IS NOT NULL";
    assert_eq!(world.count(answered).await, 0);
}

/// Clients of older revisions answer by a response to a question that was put to them: nobody is asked
/// about another's task, so there is no delegation, whatever id they make up.
#[tokio::test]
async fn nor_do_clients_of_older_revisions() {
    let doors = Doors::with(delegating).await;
    let world = &doors.world;
    let who = |subject: &str| {
        let mut claims = doors.changed("sub", json!(subject));
        claims["org"] = json!("acme");
        claims["scope"] = json!("approve");
        world.client(&doors.p256.sign(&claims))
    };
    let (alice, bob) = (who("alice"), who("bob"));
    let id = parked(&doors, &alice).await;
    // As `tasks/result` of its owner would ask it.
    let asked = protocol::legacy::questions(
        id.parse().unwrap(),
        br#"{"first": {"method": "elicitation/create", "params": {}}}"#,
    );
    let asked: Value = serde_json::from_slice(&asked.unwrap()[0].json).unwrap();
    let respond = async |client: &Client| {
        let body = json!({"jsonrpc": "2.0", "id": asked["id"], "result": yes()});
        let request = client.request("x", json!({})).body(body.to_string());
        let request = request
            .header("mcp-protocol-version", "2025-11-25")
            .without_header("mcp-method");
        request.send().await.unwrap().status
    };
    let answered = "SELECT count(*) FROM inputs WHERE response IS NOT NULL";
    assert_eq!(respond(&bob).await, 202, "accepted and forgotten");
    assert_eq!(world.count(answered).await, 0);
    assert_eq!(respond(&alice).await, 202);
    assert_eq!(world.count(answered).await, 1);
    assert_eq!(world.count("SELECT count(*) FROM audit").await, 0);
}

/// Who may answer for others of a tenant learns nothing of those of another one, by the time that it takes neither.
#[tokio::test]
async fn time_does_not_tell_who_is_of_another_tenant() {
    let doors = Doors::with(delegating).await;
    let who = |subject: &str, org: &str| {
        let mut claims = doors.changed("sub", json!(subject));
        claims["org"] = json!(org);
        claims["scope"] = json!("approve");
        doors.world.client(&doors.p256.sign(&claims))
    };
    let foreign = Foreign::of(&doors.world, &who("alice", "acme")).await;
    let bob = who("bob", "other");
    let time = async |id: &str| {
        let started = Instant::now();
        let (status, body) = update(&bob, id, "k").await;
        let took = started.elapsed();
        let said = String::from_utf8_lossy(&body);
        assert!(status == 200 && said.contains("-32602"), "{status} {said}");
        took
    };
    compare("tasks/update of another tenant", &foreign, time).await;
}
