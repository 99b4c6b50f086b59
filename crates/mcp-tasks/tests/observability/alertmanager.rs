//! A failure that nobody reads reaches a real Alertmanager and a webhook, once each, and so does its
//! end when it is read.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use harness::hook::{Hook, Manner, Post};
use harness::wait;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;

use crate::load::{self, SOON, TOOL};
use crate::servers::{Server, replaced, text};
use crate::stack::Stack;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// Many sweeps for a second message to come by, if there were one.
const QUIET: Duration = Duration::from_secs(3);

/// The configuration of deploy/, whose people are this hook, and in a hurry.
async fn alertmanager(hook: &Hook) -> Server {
    let people = format!(
        "- name: people\n    webhook_configs: [{{ url: \"{}/people\", send_resolved: true }}]\n",
        hook.url
    );
    let config = text("deploy/alertmanager.yml");
    let config = replaced(&config, "- name: people\n", &people);
    let config = replaced(&config, "group_wait: 10s", "group_wait: 1s");
    let config = replaced(&config, "group_interval: 1m", "group_interval: 1s");
    Server::alertmanager(&config).await
}

/// As the Standard Webhooks say: the receiver computes the signature itself.
fn assert_signed(post: &Post) {
    let key = STANDARD
        .decode(SECRET.trim_start_matches("whsec_"))
        .unwrap();
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).unwrap();
    let (id, at) = (
        &post.headers["webhook-id"],
        &post.headers["webhook-timestamp"],
    );
    mac.update(format!("{id}.{at}.{}", post.body).as_bytes());
    let signature = format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
    assert_eq!(post.headers["webhook-signature"], signature);
}

/// The groups of alerts that are firing now, those of Alertmanager's own view.
async fn groups(alertmanager: &Server) -> Vec<Value> {
    let groups = alertmanager.get("/api/v2/alerts/groups").await;
    groups.as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unread_failure_is_told_once_and_so_is_that_it_was_read() {
    let hook = Hook::start(Manner::Take).await.unwrap();
    let alertmanager = alertmanager(&hook).await;
    let settings = format!(
        "[alerts]\nunfetched_after = \"1s\"\n\
         link = \"https://ops.example.com/{{task_id}}\"\n\
         [[alerts.receivers]]\nname = \"alertmanager\"\nkind = \"alertmanager\"\nurl = {:?}\n\
         [[alerts.receivers]]\nname = \"hook\"\nkind = \"webhook\"\nurl = \"{}/hook\"\nsecret = {SECRET:?}\n",
        alertmanager.url(),
        hook.url,
    );
    let stack = Stack::of((1, 1), &settings).await;
    let alice = stack.cluster.client(0, "alice");
    let read = alice.start(TOOL, load::plan("read", json!([]), "failed"));
    let read = read.await.unwrap();
    alice.wait_status(&read, "failed", SOON).await.unwrap();
    let secret = json!([{ "step": { "key": "nobody-may-see-this" } }]);
    let id = alice.start(TOOL, load::plan("unread", secret, "failed"));
    let id = id.await.unwrap();

    let told = wait::until("a notification", SOON, async || {
        hook.posts("/people").first().cloned()
    });
    let told = told.await.unwrap().json();
    assert_eq!(told["status"], "firing");
    assert_eq!(
        told["groupKey"],
        json!("{}:{alertname=\"McpTasksUnfetchedFailure\", tool=\"chaos_undo\"}")
    );
    tokio::time::sleep(QUIET).await;

    let groups = groups(&alertmanager).await;
    assert_eq!(groups.len(), 1, "{groups:?}");
    let alerts = groups[0]["alerts"].as_array().unwrap();
    assert_eq!(alerts.len(), 1, "{alerts:?}");
    let labels = &alerts[0]["labels"];
    assert_eq!(labels["alertname"], "McpTasksUnfetchedFailure");
    assert_eq!(labels["fingerprint"], format!("unfetched_failure:{id}"));
    assert_eq!(labels["task_id"], id);
    assert_eq!(labels["tool"], TOOL);
    assert_eq!(
        alerts[0]["generatorURL"],
        format!("https://ops.example.com/{id}")
    );
    let page = alerts[0]["annotations"]["runbook_url"].as_str().unwrap();
    assert!(crate::rules::is_runbook(page), "{page}");
    assert_eq!(alerts[0]["status"]["state"], "active");
    assert_eq!(hook.posts("/people").len(), 1, "told once");
    let posts = hook.posts("/hook");
    assert_eq!(posts.len(), 1, "{posts:?}");
    assert_signed(&posts[0]);
    assert_eq!(posts[0].json()["type"], "unfetched_failure.firing");
    assert_eq!(posts[0].json()["taskId"], id);

    alice.get(&id).await.unwrap();
    let over = wait::until("the end of it", SOON, async || {
        let (people, hook) = (hook.posts("/people"), hook.posts("/hook"));
        (people.len() > 1 && hook.len() > 1).then_some((people, hook))
    });
    let (people, posts) = over.await.unwrap();
    assert_eq!(people[1].json()["status"], "resolved");
    assert_eq!(people[1].json()["alerts"][0]["labels"]["task_id"], id);
    assert_signed(&posts[1]);
    assert_eq!(posts[1].json()["type"], "unfetched_failure.resolved");
    assert_eq!(
        posts[1].json()["fingerprint"],
        posts[0].json()["fingerprint"]
    );
    tokio::time::sleep(QUIET).await;
    assert_eq!(
        (hook.posts("/people").len(), hook.posts("/hook").len()),
        (2, 2)
    );
    let none: Vec<Value> = crate::alertmanager::groups(&alertmanager).await;
    assert!(none.is_empty(), "{none:?}");
    for post in [hook.posts("/people"), hook.posts("/hook")].concat() {
        assert!(!post.body.contains("nobody-may-see-this"), "{post:?}");
        assert!(!post.body.contains("planned to fail"), "{post:?}");
    }
}
